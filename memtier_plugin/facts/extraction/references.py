"""Detect values that depend on context (pronouns, deictics) or carry no information.  Pure.

A fact is read without its conversation, so a value ends before the first word that only the
conversation resolves, and is rejected if too little is left.
"""

from __future__ import annotations

import re
from typing import Final

from memtier_plugin.facts.extraction.vocabulary import KIN
from memtier_plugin.text.lexicon import lexicon

MAX_WORDS: Final = 24
_DOUBT: Final = re.compile(
    r"\b(?:if|unless|suppose|imagine|maybe|perhaps|probably|might|could|should|wish|whether|"
    r"wonder\w*|not sure|guess|assuming|supposed to)\b|\w['’]d\b",
    re.IGNORECASE,
)
# Words with which a value that depends on context opens.
_VAGUE: Final = re.compile(
    r"(?:it|its|this|that|these|those|them|him|his|her|their|you|yours?|ones?|some|any|something|"
    r"everything|anything|nothing|stuff|things?|how|what|when|where|why|all|so|hearing|seeing|mind|"
    r"forget|been|not|no|each|every|being able|the (?:way|idea|fact|other|same|one|whole|rest)|"
    r"another one|to (?:see|hear|know|say|help|think|believe|thank|share|"
    r"chat|be|do|make sure|understand))\b(?!['’-])",
    re.IGNORECASE,
)
_STRICT: Final = frozenset(
    {
        *("likes", "dislikes", "prefers", "works_as", "allergic_to", "did", "usually", "does"),
        *("has", "favorite", "is", "can", "used_to"),
    }
)
_ENGLISH: Final = lexicon("english")
# Weekdays and months may be shortened, but "jun" and "jul" begin too many other words.
_CALENDAR: Final = "|".join(
    name if name in ("june", "july") else name[:3]
    for name in (*_ENGLISH.weekday_names, *_ENGLISH.month_names)
    if name != "may"
)
UNRESOLVED: Final = re.compile(
    rf"\b(?:you|yours?|yourself|ya|y['’]all|here|the following|this one|it|its|it['’]s|(?:each|"
    rf"one) other|(?<!-)together(?! with)|these|those|(?:the|an|this|that|each|every) other|"
    rf"(?:a(?: \w+)?|the(?: \w+)?|another|other|new|my|some|which|both|first|next|last) ones?)\b|"
    rf"(?<!adopted )(?<!rescued )(?<!met )\bthis\b(?! (?:past |coming )?(?:week|weekend|month|year|"
    rf"morning|afternoon|evening|spring|summer|fall|winter|{_CALENDAR}))|\b(?:of|from|in|on|at|to|"
    rf"for|about|with|by|after|before|during|into|through|than|all|and|did|do|does|doing|made|make|"
    rf"got|get|took|like|love|saw|like|bought|read|finished|learned|learnt|over|near|around) "
    rf"that\b|\b(?:the (?:thing|things|stuff|event|events|project|process|place|whole|pic|photo|"
    rf"picture|idea|issue|problem|game|show|movie|book|story|trip|class|team|group|experience|"
    rf"journey|details?|results?|others|first|second|next|last|same|other|new|latest|above|code|"
    rf"error|app|schema|following|right|rest|company|meeting|deal|meantime|spot)"
    r"(?=\Z|[.,!]| (?:and|but|so|yesterday|today|last|this|next|on|too|in (?:\w+ ){1,2}(?:weeks|"
    r"days))\b))|\b(?:this|that|there|does|doing|do|did|so|way|sometime|some|few|several|any|more|"
    r"another|many|an?|my|our|own|is|was|are|were|be|have|has|had|who|whom|than|whose|including|"
    r"like|such|haven['’]t|hasn['’]t|hadn['’]t|can|will|would|away|very|going|being|up to|through|"
    r"not|no|else|they|he|she|I|we|as \w+)\Z|\bsomething\b|\A(?:got|received) (?:some )?(?:\w+ "
    r")?news\b|\b(?:on|for|with|at|to|in|of) (?:for|since)\b|\b(?:some|few|two|several) more\b(?! "
    r"[a-z]+s\b(?! ago))|\b(?:an?|some|new|cool|exciting|big) (?:projects?|things?|stuff|events?|"
    r"places?|options?)\Z|\A\w+ that\b|\bsome to\b|\A\w+ing (?:hard|more|a lot|well|longer|better|"
    r"nonstop|all day)\Z|\Awent \w+ing\Z|\breading a (?:\w+ )*book(?! (?:on|about|called|by|titled|"
    r"named))|\bsame stuff\b|\A(?:got|received|had) (?:an? |some |lots of )?(?:\w+ )*(?:turnout|"
    r"surge|feedback|compliments?|response|leads|ideas)\b|\A(?:going|getting|working|being|seeing) "
    r".*\bhas (?:given|made|been|helped|shown|taught)\b|\A(?!.*\b(?:I|we|they|he|she|people|who|"
    r"one|that)\b).*\b(?:to|for|with|as|in|on|of|at|from|by)\Z|\bthat (?:before|again|either)\b|"
    r"\A(?:bought|got|made|found|received|adopted|had|met|saw|lost|sold|built|ordered|replaced) "
    r"(?:last|yesterday|this (?:week|month|year|morning|spring|summer)|about|around|a few|two|"
    r"three|just|recently|today|on (?:\w+ \d|the \d|\w+day))|\Awent (?!(?:to|on|for|into|back|out|"
    r"through|with|over|up|down|all|home|\w+ing)\b)|\A(?!.*\b(?:over|than|instead)\b).*\bones\b|"
    r"(?:(?<!in )\bneed|\b(?:ask|know|else))\Z|\A(?:made|has made) (?:an? |some )?(?:\w+ "
    r")?(?:mistakes?|progress|sure|sense)\b|\Ahad an? (?:[\w-]+ ){0,3}(?:time|blast|day|week|"
    r"weekend|night|chat|talk)\b(?! (?:at|with|in|about|on|hiking))",
    re.IGNORECASE,
)
# "the" refers to something said before, unless the noun is known to all or one to each.
_DEFINITE: Final = re.compile(
    r"(?<!play )(?<!playing )\bthe (?:[a-z][\w-]* ){0,2}?(?!(?:outdoors|beach|ocean|sea|mountains?|"
    r"rain|snow|city|country|countryside|sun|sunset|water|woods|forest|gym|piano|guitar|violin|"
    r"drums|arts|museum|park|kids|children|dogs?|family|hospital|doctor|dentist|bank|library|"
    r"office|school|university|church|mall|store|airport|zoo|pool|lake|river|internet|news|weather|"
    r"world|community|past|future|week|weekend|summer|winter|spring|fall|year|month|months|day|"
    r"morning|evening|night|market|movies|theater|theatre|cinema|radio|phone|house|kitchen|garden|"
    r"yard|poor|homeless|elderly|government|environment|economy|moon|stars|sky|military|army|"
    r"police|time)\b)[a-z][\w-]*(?=\Z|[,.!]| (?:and|but|yesterday|last|this|next|a few|\d|two|"
    r"three|so|with)\b)"
)
_OTHERS: Final = re.compile(
    r"\b(?:he|she|they|him|her|hers|them|his|theirs?|there)\b", re.IGNORECASE
)
_PERSON: Final = re.compile(
    rf"\b{KIN}s?\b|\b(?:people|everyone|someone|somebody|kids|children|students|pets|animals|"
    r"women|men|man|woman|girl|boy|person|folks|clients|customers|parents|those who|one|author|"
    r"patients|veterans|members|players|buddy|buddies|pals?)\b|(?<!\A)\b[A-Z][a-z]+\b"
)
# Where a value can end before an unresolved reference, and still be true.
_JOINT: Final = re.compile(
    r",? (?:and|but|which|so|because|since|plus|as well as|along with)\s|, | - |\s\(", re.IGNORECASE
)
_ATTRIBUTE: Final = re.compile(r"\b(?:an?|my|our|the|such|more|very|so) [\w-]+\Z")  # "a safe, ..."
TRAILING_FILLER: Final = re.compile(
    r"(?:[\s,;:.!-]+(?:too|though|so much|a lot|as well|lol|haha|right now|and|but|so|because|the|"
    r"that|which|in general|for sure|actually|again|recently|lately|already|either|at the moment|"
    r"then|also|or|really|finally|just|today's|today's)(?![\w'’-]))*[\s.,;:!-]*\Z"
)
# True of most people, or of anything.
_COMMON: Final = re.compile(
    r"make (?:all )?(?:my|our) dreams? come true|(?:to )?(?:help(?:ing)?|mak(?:e|ing)|see(?:ing)?|"
    r"be(?:ing)?|spend(?:ing)? (?:quality )?time with|hang(?:ing)? out with|support(?:ing)?|"
    r"meet(?:ing)?|learn(?:ing)?|try(?:ing)?|do(?:ing)?|connect(?:ing)? with|hav(?:e|ing)|shar(?:e|"
    r"ing)|bring(?:ing)?|creat(?:e|ing))(?: (?:a|the|other|new|some|more|my|our|great|close|people|"
    r"others|everyone|someone|difference|positive|impact|happy|smile|happen|things?|stuff|friends|"
    r"loved ones|family|fam|make|be|do|positively|affect|world|lives|life|memories|best|fun|time|"
    r"good|in|and|with|on|happiness|joy|something|around))*\Z",
    re.IGNORECASE,
)
_PRAISING: Final = re.compile(
    r"the (?!(?:outdoors|beach|ocean|sea|mountains?|rain|snow|city|countryside|sun|water|woods|"
    r"forest|gym|piano|guitar|violin|drums|arts|(?:smell|sound|taste|feeling|thrill|challenge|"
    r"freedom|idea|look|work|music|power) of|books? by|band|series|movie [A-Z\"“]|film|"
    r"novel)\b)[a-z]"
)
_POINTS: Final = re.compile(r"(?i)\b(?:it|that|this|them|those|these|(?:that|this) one)\Z")
_DANGLING: Final = re.compile(r"(?i)\b(?:to|for|with|of|from|at|by|into|about|as)\Z")
_EMPTY: Final = re.compile(r"(?:to|for|on|with|of|at|in|a|the|\W)+", re.IGNORECASE)


def trim_to_self_contained(value: str) -> str:
    """Return a value up to its first unresolved reference, and at most ``MAX_WORDS`` long."""
    value = TRAILING_FILLER.sub("", value)
    for _ in range(3):
        limit = find_unresolved(value)
        if limit is None and len(value.split()) <= MAX_WORDS:
            break
        if limit is None:
            limit = len(" ".join(value.split()[:MAX_WORDS]))
        joints = [
            m.start()
            for m in _JOINT.finditer(value, 0, limit)
            if m[0] != ", " or not _ATTRIBUTE.search(value, 0, m.start())
        ]
        if not joints or joints[-1] < 3:
            break
        value = TRAILING_FILLER.sub("", value[: joints[-1]])
    return value


def find_unresolved(value: str) -> int | None:
    """Return the position of the first reference that the value does not resolve itself."""
    positions = [match.start()] if (match := UNRESOLVED.search(value)) else []
    for other in _OTHERS.finditer(value):
        if not _PERSON.search(value, 0, other.start()):
            positions.append(other.start())
            break
    return min(positions, default=None)


def explain_unclear(relation: str, value: str, ordered: bool) -> str:
    """Return why a value is too vague, too long or too common to be kept, or nothing."""
    if not value or _VAGUE.fullmatch(value) or _EMPTY.fullmatch(value):
        return "vague"
    if value.count('"') % 2 or value.count("“") != value.count("”"):
        return "vague"  # cut within a quotation
    if len(value.split()) > MAX_WORDS:
        return "long"
    if ordered:
        return "vague" if _POINTS.search(value) or _DANGLING.search(value) else ""
    if _DOUBT.search(value):
        return "hypothetical"
    if find_unresolved(value) is not None or (relation in _STRICT and _VAGUE.match(value)):
        return "vague"
    definite = _DEFINITE.search(value) if relation in {*_STRICT, "wants", "plans"} else None
    if definite and value.count(" ", 0, definite.start()) <= 3:
        return "vague"
    if relation in ("likes", "dislikes") and _PRAISING.match(value):
        return "vague"  # mostly about something at hand: "I love the colours"
    return "common" if (relation in _STRICT or relation == "wants") and _COMMON.match(value) else ""
