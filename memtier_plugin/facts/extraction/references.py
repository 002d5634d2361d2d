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
    r"\b(?:you|yours?|yourself|ya|y['’]all|here|the following|this one|it|its|it['’]s|"
    r"(?:each|one) other|(?<!-)together(?! with)|these|those|(?:the|an|this|that|each|every) other|"
    r"(?:a(?: \w+)?|the(?: \w+)?|another|other|new|my|some|which|both|first|next|last) ones?)\b"
    r"|(?<!adopted )(?<!rescued )(?<!met )\bthis\b(?! (?:past |coming )?(?:week|weekend|month|"
    rf"year|morning|afternoon|evening|spring|summer|fall|winter|{_CALENDAR}))"
    r"|\b(?:of|from|in|on|at|to|for|about|with|by|after|before|during|into|through|than|all|and|"
    r"did|do|"
    r"does|doing|made|make|got|get|took|like|love|saw|like|bought|read|finished|learned|learnt|"
    r"over|near|around) that\b"
    r"|\b(?:the (?:thing|things|stuff|event|events|project|process|place|whole|pic|photo|picture|"
    r"idea|"
    r"issue|problem|game|show|movie|book|story|trip|class|team|group|experience|journey|"
    r"details?|results?|others|first|second|next|last|same|other|new|latest|above|code|error|"
    r"app|schema|following|right|rest|company|meeting|deal|meantime|spot)"
    r"(?=\Z|[.,!]| (?:and|but|so|yesterday|today|last|this|next|on|too|in (?:\w+ ){1,2}(?:weeks|"
    r"days))\b))"
    r"|\b(?:this|that|there|does|doing|do|did|so|way|sometime|some|few|several|any|more|another|"
    r"many|an?|my|our|own"
    r"|is|was|are|were|be|have|has|had|who|whom|than|whose|including|like|such|haven['’]t|"
    r"hasn['’]t|hadn['’]t|can|will"
    r"|would|away|very|going|being|up to|through|not|no|else|they|he|she|I|we|as \w+)\Z"
    r"|\bsomething\b|\A(?:got|received) (?:some )?(?:\w+ )?news\b|\b(?:on|for|with|at|to|in|of) "
    r"(?:for|since)\b|\b(?:some|few|two|several) more\b(?! [a-z]+s\b(?! ago))"
    r"|\b(?:an?|some|new|cool|exciting|big) (?:projects?|things?|stuff|events?|places?|options?)\Z"
    r"|\A\w+ that\b|\bsome to\b|\A\w+ing (?:hard|more|a lot|well|longer|better|nonstop|all "
    r"day)\Z|\Awent \w+ing\Z"
    r"|\breading a (?:\w+ )*book(?! (?:on|about|called|by|titled|named))|\bsame stuff\b"
    r"|\A(?:got|received|had) (?:an? |some |lots of )?(?:\w+ )*(?:turnout|surge|feedback|"
    r"compliments?|response|leads|ideas)\b"
    r"|\A(?:going|getting|working|being|seeing) .*\bhas (?:given|made|been|helped|shown|taught)\b"
    r"|\A(?!.*\b(?:I|we|they|he|she|people|who|one|that)\b).*\b(?:to|for|with|as|in|on|of|at|"
    r"from|by)\Z|\bthat (?:before|again|either)\b"
    r"|\A(?:bought|got|made|found|received|adopted|had|met|saw|lost|sold|built|ordered|replaced) "
    r"(?:last|yesterday|this (?:week|month|year|morning|spring|summer)|"
    r"about|around|a few|two|three|just|recently|today|on (?:\w+ \d|the \d|\w+day))"
    r"|\Awent (?!(?:to|on|for|into|back|out|through|with|over|up|down|all|home|\w+ing)\b)|"
    r"\A(?!.*\b(?:over|than|instead)\b).*\bones\b|(?:(?<!in )\bneed|\b(?:ask|know|else))\Z"
    r"|\A(?:made|has made) (?:an? |some )?(?:\w+ )?(?:mistakes?|progress|sure|sense)\b"
    r"|\Ahad an? (?:[\w-]+ ){0,3}(?:time|blast|day|week|weekend|night|chat|talk)\b(?! (?:at|with|"
    r"in|about|on|hiking))",
    re.IGNORECASE,
)
# "the" refers to something said before, unless the noun is known to all or one to each.
_DEFINITE: Final = re.compile(
    r"(?<!play )(?<!playing )\bthe (?:[a-z][\w-]* ){0,2}?(?!(?:outdoors|beach|ocean|sea|"
    r"mountains?|rain|snow|city|country|"
    r"countryside|sun|sunset|water|woods|forest|gym|piano|guitar|violin|drums|arts|museum|park|"
    r"kids|"
    r"children|dogs?|family|hospital|doctor|dentist|bank|library|office|school|university|church|"
    r"mall|"
    r"store|airport|zoo|pool|lake|river|internet|news|weather|world|community|past|future|week|"
    r"weekend|summer|winter|spring|fall|year|month|months|day|morning|evening|night|market|movies|"
    r"theater|theatre|cinema|radio|phone|house|kitchen|garden|yard|poor|homeless|elderly|"
    r"government|"
    r"environment|economy|moon|stars|sky|military|army|police|time)\b)[a-z][\w-]*"
    r"(?=\Z|[,.!]| (?:and|but|yesterday|last|this|next|a few|\d|two|three|so|with)\b)"
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
    r"(?:[\s,;:.!-]+(?:too|though|so much|a lot|as well|lol|haha|right now|and|but|so|because"
    r"|the|that|which|in general|for sure|actually|again|recently|lately|already|either"
    r"|at the moment|then|also|or|really|finally|just"
    r"|today's|today's)(?![\w'’-]))*[\s.,;:!-]*\Z"
)
# True of most people, or of anything.
_COMMON: Final = re.compile(
    r"make (?:all )?(?:my|our) dreams? come true|(?:to )?(?:help(?:ing)?|mak(?:e|ing)|"
    r"see(?:ing)?|be(?:ing)?|spend(?:ing)? (?:quality "
    r")?time with|"
    r"hang(?:ing)? out with|support(?:ing)?|meet(?:ing)?|learn(?:ing)?|try(?:ing)?|do(?:ing)?|"
    r"connect(?:ing)? with|hav(?:e|ing)|shar(?:e|ing)|bring(?:ing)?|creat(?:e|ing))"
    r"(?: (?:a|the|other|new|some|more|my|our|great|close|people|others|everyone|someone|"
    r"difference|"
    r"positive|impact|happy|smile|happen|things?|stuff|friends|loved ones|family|fam|make|be|do|"
    r"positively|affect|world|lives|life|memories|best|fun|"
    r"time|good|in|and|with|on|happiness|joy|something|around))*\Z",
    re.IGNORECASE,
)
_PRAISING: Final = re.compile(
    r"the (?!(?:outdoors|beach|ocean|sea|mountains?|rain|snow|city|countryside|sun|water|woods|"
    r"forest|"
    r"gym|piano|guitar|violin|drums|arts|(?:smell|sound|taste|feeling|thrill|challenge|"
    r"freedom|idea|look|work|music|power) of|books? by|band|series|movie [A-Z\"“]|film|"
    r"novel)\b)[a-z]"
)
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
        return ""
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
