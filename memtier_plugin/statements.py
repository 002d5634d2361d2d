"""How people state facts: one row per way of saying, each with the relation it gives.

A row's pattern matches a clause from its start. The relations:

=============  ===================================================================================
name           of the speaker, or of a relative or pet (subject ``Ann's dog``)
lives_in       also *from* and *moved_to*: places of the speaker
works_at       also *works_as*: employer and trade
born           date or place of birth; *birthday*: the day; *age*: years
has            family, pets, appointments
likes          also *dislikes*, *prefers*, *favorite* (subject ``Ann's favorite colour``)
always         also *never*, *usually*: habits and standing instructions
allergic_to    also *diet*
decided        decisions and switches
uses           tools; *version_of* (subject: the tool), *runs_on_port*, *located_at* (the thing)
scheduled_for  dates and deadlines of a thing; *did*: what the speaker did at a stated time
remember       what the user asked to remember or to note
=============  ===================================================================================
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple


class Rule(NamedTuple):
    """A pattern for the start of a clause; ``value`` is what is stated, ``verb`` gets inflected.

    ``thing`` names the subject where it is not the speaker; ``own`` makes it the speaker's thing.
    """

    relation: str
    pattern: re.Pattern[str]


_I = r"(?P<i>I|[Ww]e)"
_AM = rf"{_I}(?P<be>['’]m|['’]re| am| are)"
_HAVE = rf"{_I}(?P<have>['’]ve| have)?"
_OWN = rf"{_I}(?P<have>['’]ve got| have)(?: also)?"
_ADVERB = (
    r"(?: (?:really|absolutely|also|just|still|do|truly|totally|especially|currently|now|finally|"
    r"recently|personally|definitely|generally|actually|already|strongly|mostly))*"
)
_KIN = (
    r"(?:wife|husband|partner|fiancée?|girlfriend|boyfriend|mom|mum|mother|dad|father|sister|"
    r"brother|son|daughter|grandma|grandpa|grandmother|grandfather|aunt|uncle|cousin|boss|manager|"
    r"dog|cat|puppy|kitten|pet|horse|rabbit|hamster|parrot|best friend|roommate|company|team)"
)
_COUNT = r"(?:an?|one|two|three|four|five|six|no|\d+)"
_FAMILY = (
    r"(?:kids?|child(?:ren)?|sons?|daughters?|brothers?|sisters?|siblings?|twins|dogs?|cats?|"
    r"pup(?:s|py|pies)?|kittens?|pets?|horses?|degree|allergy|allergies)"
)
_TRADE = (
    r"(?:engineer|developer|teacher|nurse|doctor|manager|student|designer|artist|writer|producer|"
    r"lawyer|scientist|researcher|consultant|analyst|accountant|chef|photographer|musician|"
    r"programmer|administrator|architect|counsel+or)"
)
_DIET = r"vegan|vegetarian|pescatarian|(?:gluten|lactose)[ -](?:free|intolerant)|celiac|diabetic"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|"
    r"Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?s?\b"
RELATIVE: Final = (
    rf"(?:today|tonight|tomorrow|yesterday|(?:last|next|this|the (?:past|coming)) (?:few )?"
    rf"(?:night|week(?:end)?|month|year|spring|summer|fall|autumn|winter|{_DAY}|{_MONTH})s?\b|"
    rf"(?:\d+|an?|one|two|three|four|five|six|a (?:few|couple of)) "
    rf"(?:day|week|month|year)s? (?:ago|from now)|in (?:\d+|an?|two|three|a few) "
    rf"(?:hour|day|week|month)s?\b|{_DAY}|the other day|earlier this)"
)
_DATE = (
    rf"(?:\d{{4}}-\d\d-\d\d|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}})?|"
    rf"(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?|{_MONTH} \d{{4}}|"
    rf"\d{{1,2}}/\d{{1,2}}/\d{{2,4}}|{RELATIVE})"
)
_PLACE = r"(?P<value>(?:the )?[A-Z][\w'’.-]+(?:(?:,? | of | de )[A-Z][\w'’.-]+){0,4})"
_NAME = r"(?P<value>[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,2})(?=$|[,.!;]| and )"
_THING = r"(?:[Tt]he |[Oo]ur |[Mm]y )?(?P<thing>(?!(?i:it|this|that|there|which|what|he|she)\b)"
_THING += r"[\w`'’./-]+(?: [\w`'’./-]+){0,5}?)"
_ORDER = (
    r"(?:use|using|push|commit|run|add|write|delete|remove|deploy|merge|send|include|format|reply|"
    r"answer|respond|show|provide|mention|explain|ask|avoid|prefer|suggest|recommend|put|keep|start|"
    r"install|call|round|convert|list|confirm|check|test|assume|change|touch|edit|create|present)"
)
_DID = (
    r"(?:went|visited|started|finished|completed|bought|got|adopted|signed|joined|ran|painted|made|"
    r"met|attended|hosted|took|had|moved|won|lost|launched|released|published|submitted|passed|"
    r"began|signed|quit|graduated|married|travel+ed|flew|drove|hiked|ordered|received|planted|"
    r"wrote|gave|deployed|merged|fixed|booked|scheduled|applied|baked|cooked|saw|read|set up)"
)
_WHAT = r"(?P<value>\S.*)"
_STOP = r"(?:and|for|to|with|but|in|on|as|from|so|which|that|by|at|or|because|since|while|is)"
_TOOL = (
    r"(?P<value>(?:the )?(?:[A-Z`]|\w+\.\w)[\w`.+#/-]*(?: (?:and )?[A-Z`v\d][\w`.+#/-]*){0,4}"
    rf"(?: (?!{_STOP}\b)[a-z][\w-]*){{0,3}}"
    r"(?: (?:for|with|as) (?!I |we )(?:(?!and )[\w`'’./-]+ ?){1,8})?)"
)
_RELEASE = (
    r"(?P<thing>[A-Z][\w.+#-]*(?: [A-Z][\w.+#-]*){0,3}) (?:version )?"
    r"(?P<value>v?\d++(?:\.\d+)*+)"
    r"(?!\w| ?(?:%|[KMGT]?B\b|(?:time|minute|hour|day|week|month|year)s?\b))"  # no amounts
)

_TABLE: Final = (
    ("name", rf"[Mm]y (?:full )?name(?: is|['’]s) {_NAME}"),
    ("name", rf"[Mm]y (?P<own>{_KIN})(?:['’]s name is| is (?:called|named)) {_NAME}"),
    ("lives_in", rf"{_I}{_ADVERB} (?P<verb>live|reside) in {_PLACE}"),
    ("lives_in", rf"{_AM}{_ADVERB} (?:based|living) in {_PLACE}"),
    ("moved_to", rf"{_HAVE}{_ADVERB} moved (?:from [^,]+? )?to {_PLACE}"),
    ("from", rf"{_AM}{_ADVERB}(?: originally)? from {_PLACE}"),
    ("works_at", rf"{_I}{_ADVERB} (?P<verb>work) (?:at|for) (?P<value>\S[^,]*)"),
    ("works_as", rf"{_I}{_ADVERB} (?P<verb>work) as (?P<value>an? [^,]+)"),
    ("works_as", r"[Mm]y (?:job|profession|occupation) is (?P<value>[^,]+)"),
    ("works_as", rf"{_AM} (?P<value>an? (?:\w+[ -]){{0,4}}{_TRADE}\b(?: (?:at|for|in) [^,]+)?)"),
    ("birthday", rf"[Mm]y birthday(?: is|['’]s)(?: on)? (?P<value>{_DATE})"),
    ("born", r"(?P<i>I) was born (?P<value>(?:on|in) [^,]+(?:, \d{4})?)"),
    ("age", rf"{_AM} (?P<value>\d{{1,3}})(?: years old)?(?=$|[,.!;]| and )"),
    ("allergic_to", rf"{_AM}{_ADVERB}(?: severely)? allergic to {_WHAT}"),
    ("diet", rf"{_AM}{_ADVERB} (?:an? )?(?P<value>{_DIET})\b"),
    ("diet", rf"{_I} (?:can['’]?t|cannot|don['’]t|do not) (?P<value>(?:eat|drink) [^,]+)"),
    ("has", rf"{_OWN} (?P<value>{_COUNT} (?:[\w-]+ ){{0,3}}?{_FAMILY}\b[^,]*)"),
    ("has", rf"{_OWN} (?P<value>(?:an?|my|our|the) (?:[\w'’-]+ ){{1,6}}?(?:on |at |by )?{_DATE})"),
    ("favorite", rf"[Mm]y (?P<own>favou?rite [\w -]{{2,40}}?)(?: (?:is|are)|['’]s) {_WHAT}"),
    ("prefers", rf"{_I}{_ADVERB} (?P<verb>prefer) {_WHAT}"),
    ("dislikes", rf"{_I}{_ADVERB} (?P<verb>don['’]t|do not) (?:really )?(?:like|enjoy) {_WHAT}"),
    ("dislikes", rf"{_I}{_ADVERB} (?:can['’]?t stand|cannot stand) {_WHAT}"),
    ("dislikes", rf"{_I}{_ADVERB} (?P<verb>hate|dislike|loathe) {_WHAT}"),
    ("likes", rf"{_I}{_ADVERB} (?P<verb>like|love|enjoy|adore) {_WHAT}"),
    ("likes", rf"{_AM}{_ADVERB}(?: into| fond of|(?: a)?(?: big| huge)? fan of) {_WHAT}"),
    ("likes", rf"{_AM}{_ADVERB} passionate about {_WHAT}"),
    ("never", rf"{_HAVE}{_ADVERB} never (?P<value>(?P<verb>\w+) .+)"),
    ("always", rf"{_HAVE}{_ADVERB} always (?P<value>(?P<verb>\w+) .+)"),
    ("usually", rf"{_I} (?:usually|normally|typically) (?P<value>(?P<verb>\w+) .+)"),
    ("always", rf"(?:[Pp]lease )?[Aa]lways (?P<value>{_ORDER} .+)"),
    ("never", rf"(?:[Pp]lease )?(?:[Nn]ever|[Dd]on['’]t ever) (?P<value>{_ORDER} .+)"),
    (
        "decided",
        rf"{_HAVE}{_ADVERB} (?:decided|chosen|chose|opted|agreed|settled) "
        r"(?P<value>(?:to|on|for|against|not|that) .+)",
    ),
    ("decided", rf"{_I}(?:['’]ll| will) (?P<value>(?:go|stick) with .+)"),
    ("decided", r"[Ll]et['’]?s (?P<value>(?:use|go with|stick with|stay with|switch to) .+)"),
    (
        "decided",
        rf"{_HAVE}{_ADVERB} (?P<value>(?:switched|migrated|upgraded|downgraded) (?:[^,]+? )?to .+)",
    ),
    ("version_of", rf"{_I}{_ADVERB} (?P<verb>use|run) {_RELEASE}"),
    ("version_of", rf"{_AM}{_ADVERB} (?:using|running)(?: on)? {_RELEASE}"),
    (
        "version_of",
        rf"{_THING} (?:is|are) (?:pinned (?:to|at)|locked to|(?:at|on) version) "
        r"(?P<value>v?\d[\w.+-]*)",
    ),
    (
        "runs_on_port",
        rf"{_THING} (?:(?:is )?(?:running|listening|exposed)|runs|listens|is)(?: locally)? "
        r"on port (?P<value>\d{2,5})\b",
    ),
    (
        "located_at",
        rf"{_THING} (?:lives?|sits?|resides?|(?:is|are)(?: located| stored| kept| saved| hosted)?) "
        r"(?:in|at|under|on) (?P<value>`?(?:[~.]{0,2}/|https?://|[A-Z]:\\|s3://)[^\s,;]+)",
    ),
    ("uses", rf"{_I}{_ADVERB} (?P<verb>use) {_TOOL}"),
    ("uses", rf"{_AM}{_ADVERB} using {_TOOL}"),
    (
        "scheduled_for",
        rf"{_THING} (?:is|are)(?: now)?(?: (?:scheduled|set|due|planned|happening|booked))?"
        rf"(?: on| for| by)? (?P<value>{_DATE}(?: at \d[\d:]*(?: ?[AaPp][Mm]\b)?)?)",
    ),
    ("did", rf"{_HAVE}{_ADVERB} (?P<value>{_DID}\b.*?\b{_DATE}.*)"),
    (
        "remember",
        r"(?:[Pp]lease )?(?:[Rr]emember|[Nn]ote|[Kk]eep in mind|[Dd]on['’]t forget)(?: that|:) "
        r"(?P<value>(?!time|day|one|you)\S+ \S+ .+)",
    ),
)


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rows in the order in which they are tried; compiled when first asked for."""
    return tuple(Rule(relation, re.compile(pattern)) for relation, pattern in _TABLE)


_STANDING: Final = re.compile(
    r"(?im)^\W*(?:please[ ,]+)?(?:always|never|do not ever|don['’]t ever|from now on|"
    r"whenever i|every time i|in (?:the )?future)\b"
    r"|\b(?:when|whenever|every time|if) i ask (?:you )?(?:about|for|to|how|what)\b"
    r"|\bfrom now on\b"
)
_STANDING_HINTS: Final = ("always", "ever", "now on", "future", "i ask")  # one is in any match
_BEGINNING: Final = 400  # characters in which an instruction is stated


def is_standing(text: str) -> bool:
    """Tell whether a user's words are an instruction for all times to come (English)."""
    beginning = text[:_BEGINNING]
    lower = beginning.lower()
    for hint in _STANDING_HINTS:
        if hint in lower:
            return bool(_STANDING.search(beginning))
    return False
