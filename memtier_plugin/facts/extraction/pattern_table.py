"""The patterns of statements: one row per phrasing, each with the relation that it states.

A row's pattern matches a clause from its start.  The relations:

=============  ===================================================================================
name           of the speaker, or of a relative or pet (subject ``Ann's dog``)
lives_in       also *from* and *moved_to*: places of the speaker
works_at       also *works_as*: employer and trade; *is*: other traits of the speaker
born           date or place of birth; *birthday*: the day; *age*: years
has            family, pets, possessions, appointments
likes          also *dislikes*, *prefers*, *favorite* (subject ``Ann's favorite colour``)
always         also *never*, *usually*: habits and standing instructions
allergic_to    also *diet*
decided        decisions and switches
plans          also *wants*, *considers*: the future, certain or not
did            past events of the speaker or a relative; *used_to*: past habits
does           present activities; *can*: abilities
uses           tools; *version_of* (subject: the tool), *runs_on_port*, *located_at* (the thing),
               *amount* (of a thing)
scheduled_for  dates and deadlines of a thing
remember       things that the user asked to remember or to note
=============  ===================================================================================
"""

from __future__ import annotations

from typing import Final

from memtier_plugin.facts.extraction.vocabulary import (
    ACT,
    ADVERB,
    AM,
    COUNT,
    DATE,
    DIET,
    DONE,
    FAMILY,
    FEAT,
    HABIT,
    HAVE,
    HAVING,
    KIN,
    KIND,
    LASTING,
    ME,
    MINE,
    NAME,
    NO_POSSESSION,
    OFTEN,
    ORDER,
    OWN,
    PAST,
    PLACE,
    PRAISE,
    RELEASE,
    SOMETHING,
    SPAN,
    STATE,
    STAYED,
    THING,
    TO_DO,
    TOOL,
    TRADE,
    UNIT,
    UNTIL,
    WHAT,
)

SELF_STATEMENTS: Final = (
    ("name", rf"{AM} (?P<value>[A-Z][a-z]+)(?=, (?:an?|the|your|and|from|\d))"),
    ("lives_in", rf"{ME}{ADVERB} (?P<verb>live|reside) in {PLACE}"),
    ("lives_in", rf"{AM}{ADVERB} (?:based|living) in {PLACE}"),
    ("moved_to", rf"{HAVE}{ADVERB} moved (?:from [^,]+? )?to {PLACE}"),
    ("from", rf"{AM}{ADVERB}(?: originally)? from {PLACE}"),
    ("from", rf"{ME}{ADVERB} (?P<value>(?:grew up|was raised|come from|was born and raised) .+)"),
    ("works_at", rf"{ME}{ADVERB} (?P<verb>work) (?:at|for) (?P<value>\S[^,]*)"),
    ("works_at", rf"{ME}{ADVERB} (?P<verb>work) (?P<value>in (?!the\b|a\b|my\b)[^,]+)"),
    ("works_as", rf"{ME}{ADVERB} (?P<verb>work) as (?P<value>an? [^,]+)"),
    (
        "works_as",
        rf"{AM}{ADVERB} (?P<value>an? (?:\w+[ -]){{0,4}}{TRADE}\b(?: (?:at|for|in) [^,]+)?)",
    ),
    ("is", rf"{AM}{ADVERB} (?P<value>an? (?:[\w-]+ ){{0,2}}{KIND}\b)"),
    (
        "is",
        rf"{AM}{ADVERB} (?P<value>{STATE}(?:(?: to| with| from| by| in) [^,]+)?)(?=$|[,.!;]| and )",
    ),
    ("is", rf"{AM}{ADVERB} (?P<value>(?:an? )?(?:\w+ )?(?:part|member) of .+)"),
    (
        "born",
        r"(?P<i>I) was born "
        r"(?P<value>(?:on|in) (?!\w+ (?:day|week|month|year)s\b)[^,]+(?:, \d{4})?)",
    ),
    ("age", rf"{AM} (?P<value>\d{{1,3}})(?: years old)?(?=$|[,.!;]| and )"),
    ("allergic_to", rf"{AM}{ADVERB}(?: severely)? allergic to {WHAT}"),
    ("diet", rf"{AM}{ADVERB} (?:an? )?(?P<value>{DIET})\b"),
    ("diet", rf"{ME} (?:can['’]?t|cannot|don['’]?t|do not) (?P<value>(?:eat|drink) [^,]+)"),
    ("has", rf"{OWN} (?P<value>{COUNT} (?:[\w-]+ ){{0,3}}?{FAMILY}\b[^,]*)"),
    ("has", rf"{OWN} (?P<value>(?:an?|my|our|the) (?:[\w'’-]+ ){{1,6}}?(?:on |at |by )?{DATE}.*)"),
    (
        "likes",
        rf"{OWN} (?P<value>(?:an? |such an? )?(?:soft spot|sweet tooth|passion|love|thing) for .+)",
    ),
    ("likes", rf"{OWN} (?P<value>a sweet tooth)"),
    (
        "has",
        rf"{ME}(?:(?P<have>['’]?ve got| have)(?: also)?|{ADVERB} (?P<verb>own)) "
        rf"(?P<value>(?:(?:an?|two|three|four|five|six|\d+|several|my own|"
        rf"lots of|tons of|plenty of|a bunch of|a couple of|a few|a collection of|a pair of) "
        rf"(?!(?:[\w-]+ )?{NO_POSSESSION}\b)[\w-]+.*))",
    ),
    ("likes", rf"{ME}{ADVERB} (?P<verb>like|love|enjoy|adore) {WHAT}"),
    ("likes", rf"{ME}{ADVERB} (?P<value>(?:loved|enjoyed) (?:(?!I\b)[A-Z\"“]|\w+ing ).+)"),
    ("likes", rf"{AM}{ADVERB}(?: into| fond of|(?: a)?(?: big| huge| massive)? fan of) {WHAT}"),
    (
        "likes",
        rf"{AM}{ADVERB} (?:passionate about|keen on|obsessed with|hooked on|crazy about|"
        rf"interested in|fascinated by|addicted to|a sucker for) {WHAT}",
    ),
    (
        "likes",
        rf"{AM}{ADVERB} (?P<value>an? (?:(?!such)\w+ ){{0,2}}(?:person|lover|enthusiast|buff|nerd|"
        r"fanatic|geek|addict|junkie|collector))\b",
    ),
    (
        "prefers",
        rf"{AM}{ADVERB} more of (?P<value>an? .+ (?:person|guy|girl|man|woman|fan|lover))\b",
    ),
    (
        "likes",
        rf"{ME} (?:can['’]?t|cannot|couldn['’]t|could not) (?P<value>(?:live|do|function|imagine "
        rf"(?:my )?life|(?:go|start) (?:a|my) (?:single )?(?:day|morning)) without .+)",
    ),
    ("likes", rf"{ME} (?:can['’]?t|cannot) (?P<value>(?:get enough of|resist) .+)"),
    ("likes", rf"{ME}{ADVERB} (?P<verb>swear) by {WHAT}"),
    ("likes", rf"{HAVE}{ADVERB} (?P<value>(?:fell|fallen) in love with .+)"),
    (
        "dislikes",
        rf"{AM}{ADVERB} (?:not|never)(?: really| much of)?(?: a)?(?: big| huge)?"
        r" (?:fan of|into|keen on|fond of) (?P<value>.+)",
    ),
    ("dislikes", rf"{AM}{ADVERB} (?P<value>(?:scared|afraid|terrified) of .+)"),
    ("dislikes", rf"{ME}{ADVERB} (?P<verb>avoid) {WHAT}"),
    ("dislikes", rf"{ME}{ADVERB} (?P<verb>try) to (?:avoid|stay away from) {WHAT}"),
    ("prefers", rf"{ME}{ADVERB} (?P<verb>prefer) {WHAT}"),
    ("dislikes", rf"{ME}{ADVERB} (?P<verb>don['’]?t|do not) (?:really )?(?:like|enjoy) {WHAT}"),
    ("dislikes", rf"{ME}{ADVERB} (?:can['’]?t|cannot) (?:stand|bear) {WHAT}"),
    ("dislikes", rf"{ME}{ADVERB} (?P<verb>hate|dislike|loathe) {WHAT}"),
    ("never", rf"{HAVE}{ADVERB} never (?P<value>(?P<verb>\w+) .+)"),
    ("used_to", rf"{ME}{ADVERB} used to (?P<value>(?!think|believe|be\b)\w+ .+)"),
    (
        "always",
        rf"{HAVE}(?: (?:really|just))? always (?P<value>(?P<verb>(?!appreciate|be|remember|feel|"
        rf"felt|know|support)\w+) .+)",
    ),
    (
        "usually",
        rf"{ME} (?:usually|normally|typically|often|mostly|tend to) (?P<value>(?P<verb>\w+)\b.+)",
    ),
    (
        "decided",
        rf"{HAVE}{ADVERB} (?:decided|chosen|chose|opted|agreed|settled) "
        r"(?P<value>(?:to|on|for|against|not|that) .+)",
    ),
    ("decided", rf"{ME}(?:['’]ll| will) (?P<value>(?:go|stick) with .+)"),
    (
        "decided",
        rf"{HAVE}{ADVERB} (?P<value>(?:switched|migrated|upgraded|downgraded) (?:[^,]+? )?to .+)",
    ),
    ("version_of", rf"{ME}{ADVERB} (?P<verb>use|run) {RELEASE}"),
    ("version_of", rf"{AM}{ADVERB} (?:using|running)(?: on)? {RELEASE}"),
    ("uses", rf"{ME}{ADVERB} (?P<verb>use) {TOOL}"),
    ("uses", rf"{AM}{ADVERB} using {TOOL}"),
    ("uses", rf"{HAVING}{ADVERB} been using {TOOL}"),
    (
        "can",
        rf"{ME} can (?P<value>(?:speak|play|sing|dance|cook|drive|ride|bake|code in) .+)",
    ),
    (
        "can",
        rf"{AM}{ADVERB} (?P<value>(?:good|great|bad|terrible|skilled|fluent|experienced|proficient|"
        rf"certified) (?:at|in|with) .+)",
    ),
    (
        "plans",
        rf"{AM}{ADVERB} (?P<value>(?:(?:going to|gonna|about to|planning to|set to|hoping to|"
        rf"scheduled to|due to|supposed to) {TO_DO} .+|planning (?:to|on|an?|our|my) (?!few\b).+|"
        rf"(?:ready|off|getting ready) (?:to|for) (?:{TO_DO} )?.*?{DATE}.*))",
    ),
    (
        "plans",
        rf"{AM}{ADVERB} (?P<value>(?:going|heading|travel+ing|flying|driving|moving) "
        r"(?:back )?(?:to|on) (?!(?:the )?next level|it\b)(?:an?|the|my|our|[A-Z]).*)",
    ),
    ("plans", rf"{AM}{ADVERB} (?P<value>looking forward to .+)"),
    (
        "plans",
        rf"{ME}(?:['’]ll| will)(?: (?:also|be))? (?P<value>(?!never|let|keep|always|see|do\b)\w+ "
        rf".*?{DATE}.*)",
    ),
    (
        "plans",
        rf"{ME}{ADVERB} (?P<verb>plan|intend|aim|hope|have|need) to "
        rf"(?P<value>(?:{TO_DO}).*?{DATE}.*)",
    ),
    ("plans", rf"{ME}{ADVERB} (?P<verb>plan|intend|aim) to (?P<value>{TO_DO} .+)"),
    (
        "plans",
        rf"{AM}{ADVERB} (?P<value>{ACT}.*? (?:next|tomorrow|tonight|this (?:weekend|coming)|in "
        rf"(?:\w+ )?\w+ (?:days|weeks|months)\b).*)",
    ),
    (
        "did",
        rf"{HAVE}{ADVERB} (?P<value>{PAST}\b.*?\b{DATE}.*)",
    ),
    (
        "does",
        rf"{HAVING}{ADVERB} been (?P<value>(?:(?!busy|thinking|trying|feeling|meaning|wondering|"
        rf"having|hearing|so|really|a|an|the|through|getting|seeing|going|in|on|told|there|able|"
        rf"putting|pretty)\w+) .*?{LASTING}.*)",
    ),
    (
        "does",
        rf"{HAVING}{ADVERB} (?P<value>(?:known|had|lived|worked|played|owned|used|studied|"
        rf"practi[cs]ed|trained|wanted|loved|run|taught|danced|painted|written) .*?{LASTING}.*)",
    ),
    ("does", rf"{HAVING}{ADVERB} been (?P<value>{ACT} .+)"),
    (
        "did",
        rf"{HAVING}{ADVERB} (?P<value>(?:gone|visited|travel+ed|lived in|climbed|worked with|"
        r"participated|competed|performed|volunteered|been to|been on) .+)",
    ),
    (
        "did",
        rf"{ME}{ADVERB} (?P<value>got to (?:meet|teach|perform|visit|speak|play|work with|"
        rf"attend) .+)",
    ),
    ("did", rf"{ME} (?P<value>was {DONE}\b .+)"),
    ("did", rf"{HAVING} been (?P<value>{DONE}\b .+)"),
    ("did", rf"{HAVE}{ADVERB} (?P<value>{FEAT} {SOMETHING}.*)"),
    ("did", rf"{ME}{ADVERB} (?P<value>{STAYED}\b.*? {SPAN}.*)"),
    ("does", rf"{AM}{ADVERB} (?P<value>(?:in|on|at|away|out|off)\b.*? {UNTIL}.*)"),
    ("does", rf"{AM}{ADVERB} (?P<value>{ACT} .+)"),
    ("usually", rf"{ME}{ADVERB} (?P<value>(?P<verb>{HABIT}) (?:(?!{OFTEN})\S.*?)?{OFTEN}.*)"),
    (
        "does",
        rf"{ME}{ADVERB} (?P<value>(?P<verb>play|mentor|tutor|foster|bake|paint|draw|surf|ski|speak|"
        rf"teach|coach|collect|volunteer|own|lead|manage|sell|attend|belong|practi[cs]e|host|"
        rf"speciali[sz]e|major|sing|garden|run(?= an?\b| my\b)|knit|study|grow(?! up)|commute|"
        rf"breed|compete|meditate|support(?= the\b| [A-Z])) .+)",
    ),
)

AFTER_TIME: Final = (  # after the time in which it was so: "In 2021 I worked for ..."
    ("did", rf"{ME}{ADVERB} (?P<value>{STAYED}\b .+)"),
)

TENTATIVE: Final = (  # statements about wishes, valid in spite of a word of doubt
    (
        "wants",
        rf"{ME}{ADVERB} (?P<verb>want|hope|dream) (?P<value>(?:to|of) {TO_DO} .+)",
    ),
    ("wants", rf"{ME}{ADVERB} (?P<verb>wanna) (?P<value>{TO_DO} .+)"),
    ("wants", rf"{ME}(?:['’]d| would){ADVERB} (?:love|like) to (?P<value>{TO_DO} .+)"),
    ("wants", rf"{HAVING} always wanted (?P<value>.+)"),
    (
        "wants",
        rf"{AM}{ADVERB} (?P<value>(?:hoping|aiming|determined|eager|keen|saving up) (?:to|for) "
        rf"{TO_DO} .+)",
    ),
    (
        "considers",
        rf"{AM}{ADVERB} (?P<value>(?:thinking (?:of|about)|considering) (?:an?|\w+ing) .+)",
    ),
    (
        "considers",
        rf"{HAVING}{ADVERB} been (?P<value>(?:thinking (?:of|about)|considering) (?:an?|\w+ing) "
        rf".+)",
    ),
    ("prefers", rf"{ME}(?:['’]d| would) (?:much )?rather (?P<value>\w+.*? than .+)"),
    (
        "prefers",
        rf"{ME}(?:['’]d| would) (?:always |definitely )?(?P<value>(?:choose|pick|take|go for) "
        rf".+? over .+)",
    ),
)

OWN_THINGS: Final = (
    ("name", rf"[Mm]y (?:full )?name(?: is|['’]s) {NAME}"),
    ("name", rf"(?:[Mm]y|[Oo]ur) (?P<own>{KIN})(?:['’]s name is| is (?:called|named)) {NAME}"),
    ("works_as", r"[Mm]y (?:job|profession|occupation) is (?P<value>[^,]+)"),
    ("birthday", rf"[Mm]y birthday(?: is|['’]s)(?: on)? (?P<value>{DATE})"),
    (
        "scheduled_for",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>(?:[\w'’-]+ ){{0,3}}?[\w-]+) (?:is|are|starts?|begins?|"
        rf"ends?)(?: now)?(?: scheduled| set| due| planned| happening| booked)?(?: on| for| by)? "
        rf"(?P<value>{DATE}(?: at \d[\d:]*(?: ?[AaPp][Mm]\b)?)?)",
    ),
    (
        "favorite",
        rf"[Mm]y (?P<own>(?:all-time )?fav(?:ou?rite|e)? [\w -]{{2,40}}?)(?: (?:is|are)|['’]s) "
        rf"{WHAT}",
    ),
    (
        "amount",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>[\w ]{{3,30}}?) (?:is|are)(?: set to| limited to| capped at| "
        rf"about| around)? (?P<value>(?:[$€£]\s?\d[\d,.]*|\d[\d,.]*\s?{UNIT}).*)",
    ),
    ("has", rf"(?:[Mm]y|[Oo]ur) (?P<own>{MINE}) (?:is|are|was|were) (?P<value>(?!{PRAISE})\S.*)"),
    (
        "did",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>{KIN}) and I (?:(?:also|just|recently|both) "
        rf")*(?P<value>{PAST} .+)",
    ),
    (
        "did",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>(?:\w+ )?\w+) (?:(?:also|just|recently|finally|actually) "
        rf")*(?P<value>{PAST}\b(?:.*?\b)?{DATE}.*)",
    ),
    (
        "did",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>(?:\w+ )?{KIN}) (?:(?:also|just|recently|finally|actually) )*"
        rf"(?P<value>(?:{PAST}\b.*?\b{DATE}.*|(?:passed away|died|{FEAT} {SOMETHING}|gave me|"
        rf"taught me).*))",
    ),
    (
        "has",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>(?:\w+ )?{KIN})(?: is|['’]s| are) (?P<value>(?:an?|\d+|{ACT}|"
        rf"allergic|from|{STATE})\b(?! (?:big|huge|great|lot|bit|blast|real|total|true|source)).*)",
    ),
    (
        "does",
        rf"(?:[Mm]y|[Oo]ur) (?P<own>(?:\w+ )?{KIN}) (?:(?:also|really|all) )*(?P<value>(?:loves?|"
        rf"likes?|works?|lives?|hates?|plays?|owns?|runs?|teach(?:es)?|stud(?:y|ies)|(?:has|"
        rf"have)(?! (?:been|so|the most|really|always|my back|our back|never|had)\b)|goes|speaks?|"
        rf"collects?|volunteers?) .+)",
    ),
)

INSTRUCTIONS: Final = (
    ("decided", r"[Ll]et['’]?s (?P<value>(?:use|go with|stick with|stay with|switch to) .+)"),
    ("always", rf"(?:[Pp]lease )?[Aa]lways (?P<value>{ORDER} .+)"),
    (
        "never",
        rf"(?:[Pp]lease )?(?:[Nn]ever|[Dd]on['’]t ever|[Dd]o not ever) (?P<value>{ORDER} .+)",
    ),
    (
        "always",
        r"(?P<value>(?:[Ff]rom now on|[Gg]oing forward|[Ww]henever I|[Ww]hen I ask|[Ee]very time I|"
        r"[Ii]n (?:the )?future)\b.{12,})",
    ),
    ("always", r"(?:[Pp]lease )?(?P<value>[Cc]all me [A-Z]\w+)"),
    (
        "remember",
        r"(?:[Pp]lease )?(?:[Rr]emember|[Nn]ote|[Kk]eep in mind|[Dd]on['’]t forget)(?: that|:) "
        r"(?P<value>(?!time|day|one|you)\S+ \S+ .+)",
    ),
)

SUBJECTLESS: Final = (  # about the speaker without a pronoun: "Just got a puppy"
    (
        "did",
        rf"(?P<i>)(?:(?:[Jj]ust|[Ff]inally|[Rr]ecently|[Aa]lso|[Ee]ven) "
        rf")+(?P<value>{PAST}\b.*?\b{DATE}.*)",
    ),
    (
        "did",
        rf"(?P<i>)(?:(?:[Jj]ust|[Ff]inally|[Rr]ecently|[Aa]lso|[Ee]ven) )+(?P<value>{FEAT} "
        rf"{SOMETHING}.*)",
    ),
    (
        "did",
        rf"(?P<i>)(?P<value>(?:[Ww]ent|[Tt]ook|[Bb]ought|[Gg]ot|[Ss]tarted|[Ff]inished|[Ll]ost|"
        rf"[Ss]old|[Aa]dopted|[Mm]oved|[Pp]assed|[Mm]et|[Rr]an|[Jj]oined|[Vv]isited|[Ww]on|[Mm]ade|"
        rf"[Hh]ad|[Ss]igned)\b.*?\b{DATE}.*)",
    ),
    (
        "plans",
        rf"(?P<i>)(?P<be>[Gg]onna|[Gg]oing to|[Pp]lanning to|[Hh]oping to) "
        rf"(?P<value>(?!be\b){TO_DO} .+)",
    ),
    ("does", rf"(?P<i>)[Bb]een (?P<value>{ACT} .+)"),
)

NAMED_THINGS: Final = (
    (
        "version_of",
        rf"{THING} (?:is|are) (?:pinned (?:to|at)|locked to|(?:at|on) version) "
        r"(?P<value>v?\d[\w.+-]*)",
    ),
    (
        "runs_on_port",
        rf"{THING} (?:(?:is )?(?:running|listening|exposed)|runs|listens|is)(?: locally)? "
        r"on port (?P<value>\d{2,5})\b",
    ),
    (
        "located_at",
        rf"{THING} (?:lives?|sits?|resides?|(?:is|are)(?: located| stored| kept| saved| hosted)?) "
        r"(?:in|at|under|on) (?P<value>`?(?:[~.]{0,2}/|https?://|[A-Z]:\\|s3://)[^\s,;]+)",
    ),
    (
        "scheduled_for",
        rf"{THING} (?:(?:is|are)(?: now)?(?: (?:scheduled|set|due|planned|happening|booked))?|"
        r"(?:starts|begins|ends|closes|opens|launches|expires|takes place))"
        rf"(?: on| for| by)? (?P<value>{DATE}(?: at \d[\d:]*(?: ?[AaPp][Mm]\b)?)?)",
    ),
    (
        "amount",
        rf"(?:The|Our|My|the|our|my) (?P<thing>[\w`-]+(?: [\w`-]+){{0,4}}?) (?:is|are) (?:set to|"
        rf"limited to|capped at) (?P<value>(?:[$€£]\s?\d[\d,.]*|\d[\d,.]*\s?{UNIT}))",
    ),
    (
        "likes",
        r"(?P<value>(?!(?i:['\"“]?(?:it|this|that|these|those|they|he|she|which|what|who|there|one|"
        r"ones|here|your|the|i|we)\b))\S+(?: (?!is |are )\S+){0,5}?)(?: is| are|['’]s) (?:also |"
        r"still |definitely |always |probably )?(?:one of )?(?P<mine>my) (?:all-time |absolute "
        r")?(?:fav(?:ou?rite|e)?s?|go-to|comfort food)\b[^,]*",
    ),
    ("likes", r"(?P<nothing>Nothing beats) (?P<value>\S.*)"),
    (
        "does",
        r"(?P<thing>(?!(?:It|This|That|These|Those|They|He|She|Which|What|Who|There|Here|Your?|The|"
        r"Seeing|Having|Knowing|Hearing|Being|But|And)\b|\w+ing (?:it|them|this|"
        r"that)\b)[A-Z]\w+(?: [\w-]+){0,2}?) (?:really |always |definitely )?(?:helps?|calms?|"
        r"relaxes|inspires?) me (?P<value>(?:to )?[a-z]\w+.*)",
    ),
)
