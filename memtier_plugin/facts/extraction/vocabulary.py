"""Vocabulary of the statement patterns: how people name things, in English.  Pure."""

from __future__ import annotations

from typing import Final

from memtier_plugin.text.dates.annotate import ONE_TO_TEN, RELATIVE
from memtier_plugin.text.lexicon import lexicon

_ENGLISH: Final = lexicon("english")
_MONTHS: Final = sorted(" ".join(_ENGLISH.months).split(), key=len, reverse=True)
_WEEKDAY: Final = f"(?:{'|'.join(name.title() for name in _ENGLISH.weekday_names)})"

ME: Final = r"(?P<i>[Ii]|[Ww]e)"
AM: Final = rf"{ME}(?P<be>['’]?m|['’]re| am| are)"
HAVE: Final = rf"{ME}(?P<have>['’]?ve| have)?"
HAVING: Final = rf"{ME}(?P<have>['’]?ve| have)"
OWN: Final = rf"{ME}(?P<have>['’]?ve got| have)(?: also)?"
ADVERB: Final = (
    r"(?: (?:really|absolutely|also|just|still|do|truly|totally|especially|currently|now|finally|"
    r"recently|personally|definitely|generally|actually|already|strongly|mostly|even|even just|"
    r"both|first|kinda|sorta|always|super|pretty|so|very|big|mainly|usually|often|all|lately|"
    r"initially|originally|successfully|officially|temporarily|now currently))*"
)
KIN: Final = (
    r"(?:wife|husband|partner|fianc[eé]e?|girlfriend|boyfriend|mom|mum|mother|dad|father|sister|"
    r"brother|son|daughter|grandma|grandpa|granny|grandmother|grandfather|aunt|auntie|uncle|cousin|"
    r"niece|nephew|boss|manager|dog|cat|puppy|pup|kitten|kitty|pet|horse|rabbit|hamster|parrot|"
    r"(?:best |close |childhood |old )?friend|roommate|neighbou?r|coworker|colleague|mentor|coach|"
    r"teacher|company|team|kids|children|parents|family|grandparents|siblings)"
)
COUNT: Final = rf"(?:an?|{ONE_TO_TEN}|no|\d+)"
FAMILY: Final = (
    r"(?:kids?|child(?:ren)?|sons?|daughters?|brothers?|sisters?|siblings?|twins|dogs?|cats?|"
    r"pup(?:s|py|pies)?|kittens?|pets?|horses?|degree|allergy|allergies)"
)
TRADE: Final = (
    r"(?:engineer|developer|teacher|nurse|doctor|manager|student|designer|artist|writer|producer|"
    r"lawyer|scientist|researcher|consultant|analyst|accountant|chef|photographer|musician|"
    r"programmer|administrator|architect|counsel+or|coach|director|editor|librarian|therapist|"
    r"mechanic|electrician|plumber|carpenter|farmer|barista|waiter|waitress|pilot|driver|officer|"
    r"firefighter|paramedic|veterinarian|dentist|pharmacist|professor|tutor|journalist|actor|"
    r"actress|dancer|singer|translator|technician|assistant|entrepreneur|freelancer|contractor|"
    r"realtor|baker|hairdresser|tailor|trader|banker|broker|specialist|supervisor)"
)
KIND: Final = (
    r"(?:mom|mum|mother|dad|father|parent|owner|owl|volunteer|veteran|runner|gamer|graduate|twin|"
    r"Christian|Muslim|Jew|Buddhist|Hindu|atheist|immigrant|survivor|homebody|introvert|extrovert|"
    r"early bird|morning person|night person|dog person|cat person|beginner|native|citizen|"
    r"member of [^,]+|believer in [^,]+)"
)
STATE: Final = (
    r"(?:married|single|divorced|widowed|engaged|pregnant|retired|unemployed|self-employed|"
    r"left-handed|trans|transgender|gay|lesbian|bisexual|colou?r-?blind|deaf|diabetic|bilingual)"
)
DIET: Final = (
    r"vegan|vegetarian|pescatarian|(?:gluten|lactose)[ -](?:free|intolerant)|celiac|diabetic"
)
MONTH: Final = rf"(?:{'|'.join(name.title() for name in _MONTHS)})\b\.?"
DATE: Final = (
    rf"(?:\d{{4}}-\d\d-\d\d|{MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}})?|"
    rf"(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTH}(?:,? \d{{4}})?|{MONTH},? \d{{4}}|"
    rf"\d{{1,2}}/\d{{1,2}}/\d{{2,4}}|in (?:{MONTH}|(?:19|20)\d\d\b)|(?i:{RELATIVE}))"
)
_ANY_DATE: Final = rf"(?:{DATE}|{MONTH}|{_WEEKDAY}|(?:19|20)\d\d|\d{{1,2}}\b)"
UNTIL: Final = rf"(?:(?:until|till|through|from) (?:the )?{_ANY_DATE})"
SPAN: Final = (  # a time that is over, or in which something is so
    rf"(?:(?:from|between) (?:the )?{_ANY_DATE}.{{0,12}} (?:to|until|till|through|and) (?:the )?"
    rf"{_ANY_DATE}|{UNTIL}|{DATE})"
)
STAYED: Final = (  # what lasts
    r"(?:lived|resided|stayed|worked|studied|served|taught|used(?! to\b)|(?:was|were) (?:in|at|on|"
    r"an?|the|our|my))"
)
LASTING: Final = (
    rf"(?:for (?:about |around |almost |nearly |over |more than |at least )?(?:the (?:past|last) "
    rf")?(?:\d+|an?|{ONE_TO_TEN}|twenty|a few|several|many|a couple of) (?:hour|day|week|month|"
    rf"year|decade)s?\b|for (?:years|months|decades|ages)\b|since (?:{DATE}|(?:19|20)\d\d|high "
    rf"school|college|childhood|I was [\w ]+)|my (?:whole|entire) life|all my life)"
)
OFTEN: Final = (
    rf"(?:(?:every|each) (?:single |other )?(?:day|morning|afternoon|evening|night|week|weekend|"
    rf"month|year|summer|winter|spring|fall|Christmas|{_WEEKDAY})\b|(?:once|twice|\w+ times|\d+ "
    rf"hours|an hour|\w+ minutes) (?:an?|each|every|per) (?:day|week|month|year)\b|on (?:weekends|"
    rf"weekdays|{_WEEKDAY}s)\b|daily\b|weekly\b|monthly\b|most (?:days|nights|mornings|evenings|"
    rf"weekends)\b|in the (?:mornings|evenings)\b|(?:before|after) (?:bed|work|school)\b)"
)
PLACE: Final = r"(?P<value>(?:the )?[A-Z][\w'’.-]+(?:(?:,? | of | de )[A-Z][\w'’.-]+){0,4})"
NAME: Final = r"(?P<value>[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,2})(?=$|[,.!;]| and )"
THING: Final = (
    r"(?:[Tt]he |[Oo]ur |[Mm]y )?(?P<thing>(?!(?i:it|this|that|there|which|what|he|she)\b)"
    r"[\w`'’./-]+(?: [\w`'’./-]+){0,5}?)"
)
ORDER: Final = (
    r"(?:use|using|push|commit|run|add|write|delete|remove|deploy|merge|send|include|format|reply|"
    r"answer|respond|show|provide|mention|explain|ask|avoid|prefer|suggest|recommend|put|keep|"
    r"start|"
    r"install|call|round|convert|list|confirm|check|test|assume|change|touch|edit|create|present|"
    r"tailor|cite|quote|translate|summari[sz]e|make|give|address|speak|stick|refer|label|name)"
)
# A dated past event may be nearly anything; an undated one must have a lasting effect (FEAT).
PAST: Final = (
    r"(?:(?!(?:need|feed|lov|lik|want|hop|wish|realiz|realis|wonder|ask|mention|promis|laugh|"
    r"worri|guess|figur|believ|appreciat|seem|agre|us|car|notic|need|miss|gain|fail|heard)e?d\b)"
    r"(?!(?:need|feed|speed|breed|seed|exceed|proceed|succeed|embed)\b)\w+ed|went|got|took|had|made|met|ran|won|lost|began|quit|flew|drove|wrote|gave|saw|read|"
    r"set|bought|left|found|built|spent|taught|caught|broke|chose|rode|swam|sang|grew|"
    r"threw|put|sold|cut|did|fell|brought|led|beat|held|came|hurt|sent|paid|hit|ate)"
)
FEAT: Final = (
    r"(?:adopted|bought|purchased|moved|graduated|quit|launched|opened|joined|enrol+ed|signed|won|"
    r"finished|completed|published|wrote|applied|sold|rescued|visited|travel+ed|received|earned|"
    r"built|designed|created|painted|planted|volunteered|donated|attended|hosted|organi[sz]ed|"
    r"founded|started|began|lost|got|met|ordered|booked|scheduled|injured|broke|retired|passed|"
    r"hired|recorded|released|performed|competed|trained|submitted|registered|renovated|repaired|"
    r"wrapped up|scored|contacted|interviewed|consulted|spoke at|got back from|upgraded|"
    r"installed|deployed|implemented|added|integrated|migrated|configured|set up|reduced|"
    r"improved|increased|achieved|reached|merged|fixed|updated|allocated|estimated|enabled|secured|"
    r"negotiated|accepted|spent|taught|made|took|went|ran|baked|cooked|knitted|learned|invested|"
    r"saved|drove|flew|hiked|camped|grew|gave|found|turned|came up with|switched)"
)
# The object of such an event: something of one's own, something new, a number, a name.
SOMETHING: Final = (
    r"(?:(?:up|in|out|off|back|into|from|for|to|at|with|on|as|about|over|around|through|away) "
    r"){0,2}(?:an?\b|my\b|our\b|another\b|some\b|\$?\d|two\b|three\b|four\b|five\b|six\b|several\b|"
    r"a few\b|lots of\b|both\b|(?!I\b)[A-Z`]|\w+ing (?!it\b|that\b|this\b|them\b)|engaged\b|"
    r"married\b|promoted\b|hired\b|accepted\b|divorced\b|pregnant\b|diagnosed\b|camping\b|hiking\b|"
    r"new\b|(?!(?:this|was|is|its|as|us|his|always|things|yes|does|the)\b)(?:(?!the\b|this\b|"
    r"that\b|those\b|these\b|your\b)[a-z-]+ )?(?!was|is|its|as|us|his|this|things)[a-z]{3,}s\b)"
)
DONE: Final = (
    r"(?:diagnosed|promoted|hired|accepted|invited|elected|selected|nominated|offered|featured|"
    r"awarded|injured|laid off|fired|raised|married|engaged|admitted|asked to|chosen)"
)
ACT: Final = (  # an activity; no feeling, and no announcement of what is said next
    r"(?!(?:being|feeling|thinking|wondering|hoping|trying|looking forward|going|doing|having|"
    r"seeing|saying|telling|asking|talking|getting(?! (?:married|into|better at|certified|ready "
    r"for|my|an? (?:\w+ )?(?:dog|cat|puppy|kitten|pet|car|house|job|degree|tattoo|divorce|haircut|"
    r"bike)))|planning|looking for (?:some |more |any |an? )?(?:\w+ )?(?:advice|ways?|help|more|"
    r"guidance|tips|suggestions?|methods?|ideas?|recommendations?|something|feedback|examples?|"
    r"clarification)|learning a (?:lot|ton)|crossing|starting (?:from|some)|meeting so|"
    r"encountering|facing|struggling|experiencing|running into|keeping(?! a)|staying|living(?! "
    r"with)|loving|enjoying|liking|dying|freaking|kidding|using|leaning|sending|sharing|rooting|"
    r"cheering|counting|wishing|missing|needing|wanting|losing|giving(?! (?:a|lessons|classes))|"
    r"chasing|sitting|standing|trusting|assuming|referring|calling|making(?! an?\b| my)|bringing|"
    r"coming|putting(?! together| on an?)|taking it|looking at|pushing|sticking|getting there|"
    r"finding|becoming|starting to|beginning|learning to (?:love|accept|appreciate)|figuring|"
    r"exploring how|evaluating how|leaving|showing|hitting|dealing|working hard|working through|"
    r"hanging in|setting my sights|holding|aware|stressing|noticing|asking|sticking|heading out|"
    r"something|anything|nothing|everything|interesting|amazing)\b)\w+ing\b"
)
HABIT: Final = (
    r"(?:attend|bake|bike|call|clean|commute|cook|coach|dance|do|draw|drink|drive|eat|exercise|"
    r"feed|fly|foster|garden|get up|go (?:to|for|on|\w+ing)|have|hike|host|jog|journal|knit|lift|"
    r"listen|make|meditate|meet|paint|play|practi[cs]e|pray|read|ride|run|sing|skate|ski|sleep|"
    r"spend|stretch|study|surf|swim|take|teach|train|travel|try to|use|visit|volunteer|wake|walk|"
    r"watch|wear|work(?: out)?|write)"
)
TO_DO: Final = (  # an intended act; nothing that happens in the conversation itself
    r"(?!(?:join in|lend|help out|savor|know|see|hear|say|tell|ask|thank|share|show|make (?:sure|"
    r"it)|ensure|understand|chat|talk|check|be(?! an?\b)|go over|help you|let|do|have (?:fun|a "
    r"great|a good)|keep|give it|take a look|look|think|need|give|try (?:it|that|and)|stay|get "
    r"(?:started|back|it|there)|find out|hang|catch|remember|mention|add|clarify|confirm|focus|"
    r"continue|believe|live|feel|enjoy|support|always|never|just|really|work|spread|miss|hold|push|"
    r"put|pass|use|inspire|follow|stick|appear|make a (?:real )?(?:difference|change|impact)|"
    r"figure|bring)\b)[a-z]+\b"
)
NO_POSSESSION: Final = (
    r"(?:questions?|ideas?|feelings?|problems?|issues?|doubts?|point|look|chance|time|blast|lot|"
    r"bit|hard|great|good|bad|tough|hunch|thought|clue|moment|sec|second|minute|hour|day|week|"
    r"choice|trouble|habit|wonderful|fun|fantastic|amazing|awesome|nice|rough|crazy|few (?:ideas|"
    r"questions|things|plans)|plans?|(?:[\w-]+ )?stor(?:y|ies)|news|surprise|tips?|advice|"
    r"suggestions?|error|bug|concern|reason|way|similar|such|long|new|real|strong|couple|sense|"
    r"better|chat|talk|plenty to|lots to|much|so many|other|couple of|deadline to|better)"
)
MINE: Final = (  # possessions and attributes that are asked about later
    r"(?:(?:next |main |biggest |current |first |new |old |ultimate |long-term |short-term |other |"
    r"dream |daily |monthly |weekly |total |biggest )*(?:goal|dream|plan|hobby|hobbies|hometown|"
    r"major|degree|budget|salary|income|deadline|address|email|phone(?: number)?|car|bike|house|"
    r"apartment|school|passion|specialty|role|position|title|project|app|stack|database|server|"
    r"laptop|computer|setup|diet|doctor|routine|rent|job|business|store|shop|studio|company|team|"
    r"band|instrument|go-to(?: [\w-]+)?|favou?rites?|inspiration|motivation|target|priority|"
    r"nickname|username|password hint|time ?zone|schedule|appointment|flight|trip|wedding|"
    r"graduation|exam|interview|thesis|degree|class|course|anniversary|blood type|shoe size|size|"
    r"height|weight|bedtime|comfort (?:food|meal)))"
)
PRAISE: Final = (
    r"(?:(?:so|very|really|super|pretty|always|all|just|also|quite|such|truly|too|absolutely|not|"
    r"going|doing|getting|coming|what|how|where|the (?:best|most|one|reason)|a (?:big|huge|great|"
    r"lot|real|total|bit)|here|there|full of|about|like)\b|(?:amazing|awesome|great|good|nice|cool|"
    r"happy|excited|proud|lovely|fun|important|everything|cute|sweet|beautiful|okay|ok|fine|well|"
    r"wonderful|supportive|in (?:the|a)|on the|more|still|finally|already|starting|back|up|out|"
    r"over)\b)"
)
WHAT: Final = r"(?P<value>\S.*)"
STOP: Final = r"(?:and|for|to|with|but|in|on|as|from|so|which|that|by|at|or|because|since|while|is)"
TOOL: Final = (
    r"(?P<value>(?:the )?(?:[A-Z`]|\w+\.\w)[\w`.+#/-]*(?: (?:and )?[A-Z`v\d][\w`.+#/-]*){0,4}"
    rf"(?: (?!{STOP}\b)[a-z][\w-]*){{0,3}}"
    r"(?: (?:for|with|as) (?!I |we )(?:(?!and )[\w`'’./-]+ ?){1,8})?)"
)
RELEASE: Final = (
    r"(?P<thing>[A-Z][\w.+#-]*(?: [A-Z][\w.+#-]*){0,3}) (?:version )?"
    r"(?P<value>v?\d++(?:\.\d+)*+)"
    r"(?!\w| ?(?:%|[KMGT]?B\b|(?:time|minute|hour|day|week|month|year)s?\b))"  # no amounts
)
UNIT: Final = (
    r"(?:%|ms\b|seconds?\b|minutes?\b|hours?\b|days?\b|weeks?\b|months?\b|dollars\b|euros?\b|"
    r"[KMGT]B\b|"
    r"[kKm]g\b|km\b|miles?\b|pounds?\b|lbs\b|px\b|requests?\b|users?\b|items?\b|people\b|guests?\b)"
)
