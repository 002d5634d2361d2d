"""What a model claims, held against what was said.  Pure.

A claim becomes an active fact only where code finds its quote in an entry, and the sentence around
the quote says the same of the same one. A model's own word for where it read something is a hint
at most; a quote that is nowhere makes a proposal at most.  Source: seeds 2.3 (step 4), issue 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from typing import Final, Literal

import regex

from memtier_plugin.core.records import Entry, FactDraft, Origin, Source
from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.facts.verification.entailment import check_entailment, check_resemblance
from memtier_plugin.facts.verification.quotes import QuoteSpan, find_quotes, normalise_quote
from memtier_plugin.text import dates
from memtier_plugin.text.languages import detect_language, detect_language_in_context, find_sentence
from memtier_plugin.text.parsing import comparison_key, parse_sentence
from memtier_plugin.trust.fence import FENCE

MAX_TEXT_CHARS: Final = 400  # of a fact's text; a longer one is no single fact
MAX_QUOTE_SPANS: Final = 12  # of one quote whose sentences are read

_INSTRUCTION: Final = regex.compile(
    rf"""(?xi)</?{FENCE}|<\|[a-z_]+\|>|\[/?INST\]|\[system\]|<</?SYS>>|</?(?:system|tool_call|assistant)>
    |^\s*(?:system|assistant|developer)\s*:|\#\#\#\s*(?:system|instruction)
    |\b(?:ignore|disregard|forget|override|bypass)\b.{{0,30}}\b(?:previous|prior|above|earlier|all|any|your|
      these|system)\b.{{0,20}}\b(?:instructions?|prompts?|rules|messages?|guidelines|context)
    |\b(?:system|developer)\s+(?:prompt|message|instructions?)\b|\byou\s+are\s+now\b
    |\bas\s+an\s+ai\b|\bjailbreak|\bdo\s+not\s+(?:tell|inform|alert|warn)\s+the\s+user
    |\bwithout\s+(?:telling|asking|informing)\s+the\s+user
    |\b(?:new|updated)\s+instructions?\s*:|\bact\s+as\s+(?:if\s+you|an?\s+(?:un|dan\b))
    |\bagent\s+(?:must|should|shall)\b|\bassistant\s+(?:must|should|shall)\s+(?:now|ignore|always\s+reveal)
    |ignorier\w*\b.{{0,30}}(?:anweisung|instruktion)|ignor[ae]\b.{{0,30}}instrucciones
    |ignore[zr]?\b.{{0,30}}(?:instructions|consignes)|игнориру\w+.{{0,30}}инструкц
    |忽略.{{0,10}}(?:指令|指示|提示)|(?:指示|命令)を無視"""
)
_SPEAKING: Final = regex.compile(
    r"(?i)^\W*(?:(?:he|she|they|i|we|you|his|her|their|my|our|your|er|ich|wir|él|ellos|yo|je|ils|lui"
    r"|lei|eu|ele|ela|ik|hij|zij|он|она|они|я|мы)\b|[他她我您你]|彼|私)"
)
_POINTING: Final = regex.compile(
    r"(?i)^\W*(?:(?:it|this|that|these|those|its|ella|il|elle|io)\b|它)"
)
_NAMED: Final = regex.compile(r"\p{Lu}[\p{L}\p{M}]+")
_CALLED: Final = regex.compile(
    r"(?:[Mm]y name(?: is|['’]s)|[Cc]all me|[Ii]ch heiße|[Mm]e llamo|[Jj]e m['’]appelle"
    r"|[Мм]еня зовут)\s+(\p{Lu}[\p{L}\p{M}'’-]+)"
)
_TRUST: Final[dict[Origin, int]] = {
    "user": 0,
    "assistant": 1,
    "tool": 3,
    "external": 4,
    "system": 5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A fact as a model claims it; ``entry`` is the id that it names, a hint only."""

    subject: str
    relation: str
    value: str
    text: str
    quote: str
    entry: str | None = None
    tier: Literal["semantic", "procedural"] = "semantic"
    valid_from: datetime | None = None
    confidence: float = 0.8


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a claim does not become a fact, not even a proposed one."""

    reason: str
    claim: Claim


def verify_claim(
    claim: Claim,
    entries: Sequence[Entry],
    *,
    extractor: str,
    model: str | None = None,
    prompt_hash: str | None = None,
) -> FactDraft | Rejection:
    """Return the fact that a claim makes, active or proposed, or why it makes none.

    Args:
        entries: of one session, in their order; the claim may rest on any of them.
    """
    claim = _tidy(claim)
    if reason := _unfit(claim):
        return Rejection(reason, claim)
    places = [*_places(claim, entries)]
    if not places:
        return _by_keywords(claim, entries, extractor, model, prompt_hash)
    if not _tells(claim.quote):
        return Rejection("too little evidence", claim)
    judged = [(place, _judged(claim, place, entries)) for place in places]
    rank = {"active": 0, "proposed": 1, "rejected": 2}
    best = min(judged, key=lambda one: (rank[one[1].kind], _distrust(one[0].entry)))[1].kind
    if best == "rejected":
        return Rejection(judged[0][1].reason, claim)
    alike = [one for one in judged if one[1].kind == best]
    trusted = min(_distrust(place.entry) for place, _ in alike)
    alike = [one for one in alike if _distrust(one[0].entry) == trusted]
    return _draft(claim, alike, extractor, model, prompt_hash)


def _tidy(claim: Claim) -> Claim:
    """Return a claim with one space between words, and a confidence that is one."""
    sure = claim.confidence
    return replace(
        claim,
        subject=" ".join(claim.subject.split()),
        relation=" ".join(claim.relation.split()),
        value=" ".join(claim.value.split()),
        text=" ".join(claim.text.split()),
        confidence=min(1.0, max(0.0, sure)) if math.isfinite(sure) else 0.0,
    )


def _unfit(claim: Claim) -> str:
    """Return why a claim is none, whatever it rests on, or nothing."""
    for name in ("value", "subject", "text", "relation"):
        if not normalise_quote(getattr(claim, name)):
            return f"no {name}"
    if not normalise_quote(claim.quote):
        return "no quote"
    if len(claim.text) > MAX_TEXT_CHARS or len(claim.value) > MAX_TEXT_CHARS:
        return "too long"
    if any(_INSTRUCTION.search(part) for part in (claim.text, claim.value, claim.subject)):
        return "instruction"
    named = _NAMED.search(claim.text, 2)
    if _SPEAKING.match(claim.text) or (_POINTING.match(claim.text) and not named):
        return "not self-contained"
    return ""


def _tells(quote: str) -> bool:
    """Tell whether a quote has enough in it to show anything: one word, or small words, do not."""
    tongue = detect_language(quote) or "english"
    words = parse_sentence(quote, tongue).words
    if (
        sum(len(w.text) for w in words if regex.match(r"[\p{Han}\p{Hiragana}\p{Katakana}]", w.text))
        >= 3
    ):
        return True
    return len(words) >= 2 and any(w.kind in ("word", "number") for w in words)


def _places(claim: Claim, entries: Sequence[Entry]) -> Iterator[QuoteSpan]:
    for count, place in enumerate(find_quotes(claim.quote, entries, claim.entry)):
        if count == MAX_QUOTE_SPANS:
            return
        yield place


def _distrust(entry: Entry) -> int:
    """Return how little an entry is trusted, as a number."""
    return max(_TRUST[entry.origin], 2 if entry.tainted else 0)


def _judged(claim: Claim, place: QuoteSpan, entries: Sequence[Entry]) -> Verdict:
    passage = _passage(place, entries)
    verdict = check_entailment(claim.text, claim.value, passage)
    return verdict if verdict.kind == "rejected" else _structured(claim, passage) or verdict


def _passage(place: QuoteSpan, entries: Sequence[Entry]) -> Passage:
    """Return the sentence that a quote stands in, and what one must know to read it."""
    entry, content = place.entry, place.entry.content
    start, end = find_sentence(content, place.start, place.end)
    before = find_sentence(content, start - 2, start - 1) if start > 2 else (0, 0)
    after = content[end : end + 80]
    if not after.strip():
        after = _next_words(entry, entries)
    voices = _voices(tuple((e.speaker, e.role, e.content) for e in entries if e.retrievable))
    voice = (entry.speaker, entry.role)
    return Passage(
        sentence=content[start:end],
        quote=(place.start - start, place.end - start),
        said_on=entry.observed_at.date(),
        before=content[before[0] : before[1]],
        after=after,
        language=detect_language(content[:4000])
        or detect_language_in_context(content, voices.texts.get(voice, "")),
        speaker_names=voices.me.get(voice, frozenset()),
        addressee_names=voices.you.get(voice, frozenset()),
        known_names=voices.names,
    )


def _next_words(entry: Entry, entries: Sequence[Entry]) -> str:
    """Return how the next entry of the same one begins, where it may take back what was said."""
    later = iter(entries)
    for one in later:
        if one.id == entry.id:
            break
    for one in later:
        if (one.speaker, one.role) == (entry.speaker, entry.role):
            return one.content[:80]
    return ""


@dataclass(frozen=True, slots=True)
class _Voices:
    """Who speaks in a batch, by speaker and role, and what is named in it."""

    texts: dict[tuple[str | None, str], str]
    me: dict[tuple[str | None, str], frozenset[str]]
    you: dict[tuple[str | None, str], frozenset[str]]
    names: frozenset[str]


@lru_cache(16)  # the claims of one batch come one after the other
def _voices(said: tuple[tuple[str | None, str, str], ...]) -> _Voices:
    texts: dict[tuple[str | None, str], str] = {}
    names: set[str] = set()
    for speaker, role, content in said:
        voice = (speaker, role)
        if len(texts.setdefault(voice, "")) < 4000:
            texts[voice] += f"{content[:1000]}\n"
        names.update(word[0].casefold() for word in _NAMED.finditer(content[:4000]))
        names.update((speaker or "").casefold().split())
    me: dict[tuple[str | None, str], frozenset[str]] = {}
    for speaker, role in texts:
        words = {*(speaker or "").casefold().split(), role}
        if role == "user" and not speaker:
            words.update(name.casefold() for name in _CALLED.findall(texts[speaker, role]))
        me[speaker, role] = frozenset(words)
    you: dict[tuple[str | None, str], frozenset[str]] = {}
    for voice in texts:
        others = [one for one in texts if one != voice and one[1] in ("user", "assistant")]
        if len(others) == 1:
            you[voice] = me[others[0]] - me[voice]
        elif not others and voice[1] in ("user", "assistant"):
            you[voice] = frozenset(("assistant" if voice[1] == "user" else "user",))
        else:
            you[voice] = frozenset()
    return _Voices(texts, me, you, frozenset(names))


def _structured(claim: Claim, passage: Passage) -> Verdict | None:
    """Return what is wrong when subject and relation say something else than the text."""
    own = detect_language(claim.text) or "english"
    text = parse_sentence(claim.text, own).words
    keys = {word.key for word in text} | {word.text for word in text}
    relation = parse_sentence(claim.relation.replace("_", " ").replace("-", " "), own).words
    told = {word.key for word in relation}
    for one, other in (("=like", "=dislike"), ("=dislike", "=like"), ("=increase", "=decrease")):
        if one in told and other in keys and one not in keys:
            return Verdict("rejected", "negation differs")
    denied = any(word.kind == "no" for word in [*relation, *parse_sentence(claim.value, own).words])
    if not denied and any(word.denied and word.key in told for word in text if word.kind == "word"):
        return Verdict("proposed", "its relation does not deny what its text denies")
    if denied and not any(word.kind == "no" for word in text) and "=dislike" not in keys:
        return Verdict("proposed", "its relation denies what its text does not")
    subject = [w for w in parse_sentence(claim.subject, own).words if w.kind in ("word", "number")]
    known = [
        w for w in subject if w.text in passage.speaker_names or w.text in passage.addressee_names
    ]
    roles = any(w.text in passage.speaker_names or w.text in passage.addressee_names for w in text)
    for word in subject:
        if word in known and roles:
            continue
        if word.key not in keys and comparison_key(word.text, own) not in keys:
            return Verdict("proposed", "its subject is not in its text")
    return None


def _by_keywords(
    claim: Claim,
    entries: Sequence[Entry],
    extractor: str,
    model: str | None,
    prompt_hash: str | None,
) -> FactDraft | Rejection:
    """Return a proposal from the sentence with the most of the claim's words, or a rejection."""
    best: tuple[int, QuoteSpan] | None = None
    wanted = _content(f"{claim.text} {claim.quote}")
    for entry in sorted(entries, key=lambda entry: entry.id != claim.entry):
        if not entry.retrievable or FENCE in entry.content:
            continue
        at = 0
        text = entry.content[:20_000]
        while at < len(text):
            start, end = find_sentence(text, at, at + 1)
            held = len(wanted & _content(text[start:end]))
            if held and (best is None or held > best[0]):
                best = held, QuoteSpan(entry, start, end)
            at = max(end, at) + 1
    if best is None:
        return Rejection("quote not found", claim)
    place = best[1]
    verdict = check_resemblance(claim.text, _passage(place, entries))
    if verdict.kind == "rejected":
        return Rejection(verdict.reason, claim)
    return _draft(claim, [(place, verdict)], extractor, model, prompt_hash)


@lru_cache(4096)
def _content(text: str) -> frozenset[str]:
    """Return what the words of a text that mean something are compared by."""
    words = parse_sentence(text, detect_language(text) or "english").words
    return frozenset(word.key for word in words if word.kind in ("word", "number"))


def _draft(
    claim: Claim,
    judged: Sequence[tuple[QuoteSpan, Verdict]],
    extractor: str,
    model: str | None,
    prompt_hash: str | None,
) -> FactDraft:
    """Return the draft of a claim that rests on these places; the span is of the first."""
    first, verdict = judged[0]
    origin = max((place.entry for place, _ in judged), key=_distrust).origin
    status, reason = verdict.kind, verdict.reason
    if any(_distrust(place.entry) > 1 for place, _ in judged):
        status, reason = "proposed", "rests on tool or external text"
    sources = dict.fromkeys(
        Source(agent=e.agent_id, session=e.session_id, entry=e.id)
        for e in (place.entry for place, _ in judged)
    )
    return FactDraft(
        subject=claim.subject,
        relation=claim.relation,
        value=claim.value,
        text=claim.text,
        sources=tuple(sources),
        valid_from=_since(claim, first),
        quote=first.text,
        span=(first.start, first.end),
        extractor=extractor,
        model=model,
        prompt_hash=prompt_hash,
        confidence=claim.confidence,
        origin=origin,
        status="active" if status == "active" else "proposed",
        reason=reason,
        tier=claim.tier,
    )


def _since(claim: Claim, place: QuoteSpan) -> datetime:
    """Return since when a fact holds: the time claimed if the passage names it, or the entry's."""
    said = place.entry.observed_at
    if claim.valid_from is None:
        return said
    start, end = find_sentence(place.entry.content, place.start, place.end)
    text = place.entry.content[start:end]
    day: date = claim.valid_from.date()
    for one in [*dates.find_stated_dates(text), *dates.find_relative_dates(text, said.date())]:
        times = one.period
        if times and times[0] <= day <= times[1]:
            return claim.valid_from
    return said
