"""Facts from what users say, by rules: no model, precise rather than broad (seeds 1.6).

Only the user's own prose is read: no tainted entry, no tool output, no code, quotation, question,
request or hypothesis. Each rule matches one clause from its start, so that what a
fact quotes is exactly what was said. The relations and their rules stand in ``statements.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.records import Entry, FactDraft, Source
from memtier_plugin.statements import RELATIVE, Rule, rules

MAX_PER_ENTRY: Final = 5
MAX_WORDS: Final = 24
MAX_CHARS: Final = 400

SINGLE_VALUED: Final = frozenset(
    {
        *("name", "lives_in", "works_at", "birthday", "age", "favorite"),
        *("version_of", "runs_on_port", "located_at", "scheduled_for"),
    }
)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found, and how often something was left out, by reason."""

    drafts: tuple[FactDraft, ...]
    rejected: Mapping[str, int]


_LEAD: Final = re.compile(
    r"(?:(?:yeah|yes|yep|no|nope|well|so|also|and|but|oh|hey|hi|wow|actually|by the way|btw|fyi|"
    r"anyway|plus|honestly|thanks|sure|okay|ok|haha|lol|for me|as for me|in fact|luckily|hi there"
    r"|(?:yesterday|today|last \w+))\b[,!:.-]*\s+|[-*•]\s+|\d+[.)]\s+)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    r"\s*(?:[>$|<{}#@]|//|\(?\w+\)?[$#] |(?:    |\t)\S|at \S+\(|File \"|Traceback|import "
    r"|def |class |from \S+ import|(?:const|let|var|return|function|public|private|export) )"
    r"|[^\n]*(?:[;{}]|\(\):?|=>)\s*\Z"
)
_SENTENCE: Final = re.compile(r"[^\s.!?](?:[^.!?\n]|[.](?=\S)|[!?](?=[\w]))*[.!?]*")
_CUT: Final = re.compile(
    r"(?:\s?[,;:—–]|\s-)?\s(?:(?:and|but|so|because|since|though|although|which|while|as)\s+)+"
    r"(?=(?:I|we|my|our|it|he|she|they|you|can|could|would|will|please|how|what|that|this|there)\b)"
    r"|\s?(?:[;—–]|,\s(?=(?:can|could|would|will|do|does|did|is|are|how|what|why|which|where|when|"
    r"should|please|I|we|you|it|thanks|so|but|because|which|especially)\b)|\s-\s|->|\.\.\.)\s?",
    re.IGNORECASE,
)
_QUESTION: Final = re.compile(
    r"(?:can|could|would|will|do|does|did|is|are|was|were|have|has|how|what|why|which|where|when|"
    r"who|should|shall|may|any)\b",
    re.IGNORECASE,
)
_UNSURE: Final = re.compile(
    r"\b(?:if|unless|suppose|imagine|maybe|perhaps|probably|might|would|could|should|wish|whether|"
    r"wonder\w*|hypothetical\w*|not sure|guess|assuming|thinking (?:of|about)|considering|hope|"
    r"supposed to|pretend|for example|e\.g)\b|\w['’]d\b",
    re.IGNORECASE,
)
# A value that points elsewhere means nothing by itself: it opens with, is, or ends in such a word.
_VAGUE: Final = re.compile(
    r"(?:it|its|this|that|these|those|them|him|his|her|their|you|yours?|ones?|some|any|something|"
    r"everything|anything|nothing|stuff|things?|how|what|when|where|why|all|so|hearing|seeing|mind|"
    r"forget|been|not|no|to (?:see|hear|know|say|help|think|believe|thank|share|"
    r"chat|be|do|make sure|understand))\b(?!['’-])",
    re.IGNORECASE,
)
_STRICT: Final = frozenset(["likes", "dislikes", "prefers", "works_as", "allergic_to", "did"])
_POINTING: Final = re.compile(
    r"\b(?:you|yours?|yourself|here|the following|this one)\b"
    r"|\b(?:it|this|that|them|there|him|her)\Z|\A\w+ (?:it|this|that|these|those|them|him|her)\b"
    r"|\Ahad an? (?:\w+ )?(?:time|blast|day|week)\b",
    re.IGNORECASE,
)
_ELSEWHERE: Final = re.compile(r"\b(?:it|them|him|her|his|these|those)\b", re.IGNORECASE)
_TAIL: Final = re.compile(
    r"(?:[\s,;:.!-]+(?:too|though|so much|a lot|as well|lol|haha|right now|and|but|so|because|to"
    r"|the|with|for|that|which)(?![\w'’]))*[\s.,;:!-]*\Z"
)
_VOCATIVE: Final = re.compile(r", [A-Z][a-z]+[.!\s]*\Z")
_PLACES: Final = frozenset(["lives_in", "moved_to", "from", "born"])
_PRONOUNS: Final = {
    "i": "they", "we": "they", "me": "them", "us": "them", "my": "their", "our": "their",
    "mine": "theirs", "ours": "theirs", "myself": "themselves", "ourselves": "themselves",
    "i'm": "they are", "we're": "they are", "i've": "they have", "we've": "they have",
    "i'll": "they will", "we'll": "they will",
}  # fmt: skip
_WORD: Final = re.compile(r"(?<![\w'’./-])[A-Za-z]+(?:['’][a-z]+)?(?![\w'’-])")
_INFLECTED: Final = {
    "have": "has", "be": "is", "don't": "doesn't", "do not": "does not",
}  # fmt: skip
_PAST: Final = re.compile(
    r"\w+ed|thought|knew|had|was|went|got|saw|felt|made|took|came|found|gave|told|said|did|kept"
    r"|wrote|written|ran|met|left|lost|been|done|seen|can|will|must"
)


def extract(entries: Sequence[Entry], single_valued: Collection[str] = ()) -> Extraction:
    """Return what the rules find in the users' own entries, in the entries' order.

    The same statement again adds its source to the first draft; for a ``single_valued`` relation
    only as long as nothing else was said between, since going back is a change of its own.
    """
    drafts: list[FactDraft] = []
    places: dict[tuple[str, str, str], int] = {}
    current: dict[tuple[str, str], tuple[str, str, str]] = {}
    rejected: Counter[str] = Counter()
    for entry in entries:
        if reason := _unread(entry):
            rejected[reason] += 1
            continue
        kept = 0
        for draft in _drafts(entry, rejected):
            slot = (draft.subject.casefold(), draft.relation)
            key = (*slot, " ".join(draft.value.casefold().split()))
            if (place := places.get(key)) is not None:
                drafts[place] = _seen_again(drafts[place], draft)
                rejected["duplicate"] += 1
            elif kept == MAX_PER_ENTRY:
                rejected["cap"] += 1
            else:
                if draft.relation in single_valued:
                    places.pop(current.get(slot, key), None)
                    current[slot] = key
                places[key] = len(drafts)
                drafts.append(draft)
                kept += 1
    return Extraction(tuple(drafts), dict(rejected))


def _seen_again(draft: FactDraft, again: FactDraft) -> FactDraft:
    new = [source for source in again.sources if source not in draft.sources]
    return replace(draft, sources=(*draft.sources, *new))


def _unread(entry: Entry) -> str:
    """Return why an entry is not read at all, or nothing."""
    if entry.role != "user" or entry.origin != "user":
        return "not_user"
    if entry.tainted:
        return "tainted"
    return "system" if entry.content.lstrip().startswith("[system]") else ""


def _drafts(entry: Entry, rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the drafts of one entry; each clause gives at most one."""
    for start, end in _clauses(entry.content, rejected):
        clause = entry.content[start:end]
        for rule in rules():
            if match := rule.pattern.match(clause):
                draft = _draft(entry, rule, match, start)
                if isinstance(draft, FactDraft):
                    yield draft
                else:
                    rejected[draft] += 1
                break


def _clauses(content: str, rejected: Counter[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans of the clauses that state something, code and quotations left out."""
    at, fenced = 0, False
    for line in content.splitlines(keepends=True):
        start, at = at, at + len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced or _CODE.match(line):
            rejected["code"] += 1
        else:
            for sentence in _SENTENCE.finditer(content, start, at):
                yield from _parts(content, *sentence.span(), rejected)


def _parts(content: str, start: int, end: int, rejected: Counter[str]) -> Iterator[tuple[int, int]]:
    if re.match(r"(?i)(?:if|when|suppose|imagine|say)\b", content[start : start + 12]):
        rejected["hypothetical"] += 1
        return
    asks = content[start:end].rstrip().endswith("?")
    cuts = [(m.start(), m.end()) for m in _CUT.finditer(content, start, end)]
    lefts, rights = [start, *(e for _, e in cuts)], [*(s for s, _ in cuts), end]
    for left, right in zip(lefts, rights, strict=True):
        while left < right and (lead := _LEAD.match(content, left, right)):
            left = lead.end()
        clause = content[left:right]
        if _QUESTION.match(clause) or (asks and right == end):
            rejected["question"] += 1
        elif _UNSURE.search(clause):
            rejected["hypothetical"] += 1
        elif right - left > MAX_CHARS:
            rejected["long"] += 1
        elif clause.strip():
            yield left, right


def _draft(entry: Entry, rule: Rule, match: re.Match[str], offset: int) -> FactDraft | str:
    """Return the draft of a match, or the reason against it."""
    value = match["value"]
    if entry.speaker and rule.relation not in _PLACES:
        value = _VOCATIVE.sub("", value)
    value = _TAIL.sub("", value)
    if reason := _unclear(rule.relation, value):
        return reason
    groups = match.groupdict()
    subject, who = entry.speaker or "user", entry.speaker or "The user"
    if own := groups.get("own"):
        subject = f"{who}'s {own}"
    elif thing := groups.get("thing"):
        subject = thing
    start, end = match.start(), match.start("value") + len(value)
    quote = match.string[start:end]
    text = _told(rule, match, quote, value, who)
    if re.search(rf"\b{RELATIVE}", value, re.IGNORECASE):
        text += f" (said on {entry.observed_at:%Y-%m-%d})"
    return FactDraft(
        subject=subject,
        relation=rule.relation,
        value=value,
        text=f"{text}.",
        sources=(Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id),),
        quote=quote,
        span=(offset + start, offset + end),
        valid_from=entry.observed_at,
    )


def _unclear(relation: str, value: str) -> str:
    """Return why a value says too little on its own, or too much, or nothing."""
    if not value or _POINTING.search(value) or _VAGUE.fullmatch(value):
        return "vague"
    if relation in _STRICT and (_VAGUE.match(value) or _ELSEWHERE.search(value)):
        return "vague"
    if relation == "likes" and re.match("the [a-z]", value):
        return "vague"  # mostly about what is at hand: I love the colours
    return "long" if len(value.split()) > MAX_WORDS else ""


def _told(rule: Rule, match: re.Match[str], quote: str, value: str, who: str) -> str:
    """Return the quote in the third person: a sentence that stands alone."""
    groups = match.groupdict()
    if not groups.get("i"):
        if rule.relation == "remember":
            return f"{who} asked to remember: {value}"
        if rule.relation in ("always", "never"):
            return f"{who} asks: {quote[0].lower()}{_third(quote[1:])}"
        if rule.relation == "decided":
            return f"{who} decided to {_third(value)}"
        possessive = re.sub(r"^[Mm]y\b|^[Oo]ur\b", lambda _: f"{who}'s", quote)
        return possessive[0].upper() + _third(possessive[1:])
    rest_at = match.end("i")
    rest = quote[rest_at - match.start() :]
    if be := groups.get("be"):
        rest = f" is{rest[len(be) :]}"
    elif (have := groups.get("have")) and rest.startswith(have):
        rest = f" has{rest[len(have) :]}"
    elif rest.startswith(("'ll", "’ll")):
        rest = f" will{rest[3:]}"
    elif verb := groups.get("verb"):
        at = match.start("verb") - rest_at
        rest = rest[:at].replace(" do ", " ") + _inflected(verb) + rest[at + len(verb) :]
    return who + _third(rest)


def _inflected(verb: str) -> str:
    """Return a verb of the first person in the third; a past form stays."""
    plain = verb.replace("’", "'")
    if plain in _INFLECTED:
        return _INFLECTED[plain]
    if _PAST.fullmatch(plain):
        return verb
    if plain.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y\Z", plain) else f"{verb}s"


def _third(text: str) -> str:
    def swap(word: re.Match[str]) -> str:
        if word[0] == "US":  # the country
            return word[0]
        return _PRONOUNS.get(word[0].replace("’", "'").lower(), word[0])

    return _WORD.sub(swap, text)
