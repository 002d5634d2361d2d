"""Verify a model's claims against the entries that they quote.  Pure.

A claim becomes an active fact only if its quote occurs in an entry, and the sentence around the
quote entails it. The entry that a model names is only a hint; a claim whose quote is not found is
proposed at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, FactDraft, Origin
from memtier_plugin.facts.verification.alignment import Passage, Verdict
from memtier_plugin.facts.verification.entailment import check_entailment, check_resemblance
from memtier_plugin.facts.verification.passages import (
    QuoteSpan,
    find_quotes,
    normalise_quote,
    passage_of,
)
from memtier_plugin.retrieval.pasted_text import is_pasted
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.spans import find_validity, resolve_times
from memtier_plugin.text.languages import detect_language, find_sentence
from memtier_plugin.text.parsing import Word, comparison_key, parse_sentence
from memtier_plugin.trust.escaping import FENCE

MAX_TEXT_CHARS: Final = 400  # a longer text is not a single fact
MAX_QUOTE_SPANS: Final = 12  # locations of one quote whose sentences are read
_MAX_SEARCHED: Final = 20_000  # characters of an entry searched by keywords
_MIN_CJK: Final = 3  # characters of an unspaced script that count as evidence

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
_NAME: Final = regex.compile(r"\p{Lu}[\p{L}\p{M}]+")
_CJK: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]")
_DISTRUST: Final[dict[Origin, int]] = {
    "user": 0,
    "assistant": 1,
    "tool": 3,
    "external": 4,
    "system": 5,
}
_TAINTED: Final = 2
_RANKS: Final = {"active": 0, "proposed": 1, "rejected": 2}
_OPPOSED_KEYS: Final = (
    ("=like", "=dislike"),
    ("=dislike", "=like"),
    ("=increase", "=decrease"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A fact as claimed by a model; ``entry`` is the id that it names, only a hint."""

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
    """The reason why a claim is rejected, even as a proposed fact."""

    reason: str
    claim: Claim


def verify(claim: Claim, passage: Passage) -> Verdict:
    """Decide by rules whether a claim follows from a passage: its text, then its structure."""
    verdict = check_entailment(claim.text, claim.value, passage)
    return verdict if verdict.kind == "rejected" else _check_structure(claim, passage) or verdict


class Provenance(NamedTuple):
    """The provenance of a claim: its extractor, model and prompt."""

    extractor: str
    model: str | None = None
    prompt_hash: str | None = None


class _Judged(NamedTuple):
    """A location of the quote and its sentence's verdict on the claim."""

    span: QuoteSpan
    verdict: Verdict


def verify_claim(
    claim: Claim, entries: Sequence[Entry], made_by: Provenance
) -> FactDraft | Rejection:
    """Turn a claim into an active or a proposed fact, or reject it.

    Args:
        entries: of one session, in order; the claim may rest on any of them.
    """
    claim = _tidy(claim)
    if reason := _unfit_reason(claim):
        return Rejection(reason, claim)
    spans = [*_quote_spans(claim, entries)]
    if not spans:
        return _by_keywords(claim, entries, made_by)
    if not is_evidence(claim.quote):
        return Rejection("too little evidence", claim)
    judged = [_Judged(span, verify(claim, passage_of(span, entries))) for span in spans]
    best = min(judged, key=lambda item: _RANKS[item.verdict.kind]).verdict.kind
    if best == "rejected":
        return Rejection(judged[0].verdict.reason, claim)
    strongest = [item for item in judged if item.verdict.kind == best]
    trusted = min(_distrust(item.span) for item in strongest)
    return _draft(claim, [i for i in strongest if _distrust(i.span) == trusted], made_by)


def _tidy(claim: Claim) -> Claim:
    """Return a claim with single spaces between words, and a valid confidence."""
    sure = claim.confidence
    return replace(
        claim,
        subject=" ".join(claim.subject.split()),
        relation=" ".join(claim.relation.split()),
        value=" ".join(claim.value.split()),
        text=" ".join(claim.text.split()),
        confidence=min(1.0, max(0.0, sure)) if math.isfinite(sure) else 0.0,
    )


def _unfit_reason(claim: Claim) -> str:
    """Return why a claim cannot be a fact, or an empty string."""
    for name in ("value", "subject", "text", "relation"):
        if not normalise_quote(getattr(claim, name)):
            return f"no {name}"
    if not normalise_quote(claim.quote):
        return "no quote"
    if len(claim.text) > MAX_TEXT_CHARS or len(claim.value) > MAX_TEXT_CHARS:
        return "too long"
    if any(_INSTRUCTION.search(part) for part in (claim.text, claim.value, claim.subject)):
        return "instruction"
    named = _NAME.search(claim.text, 2)
    if _SPEAKING.match(claim.text) or (_POINTING.match(claim.text) and not named):
        return "not self-contained"
    return ""


def is_evidence(quote: str) -> bool:
    """Return whether a quote has enough words to be evidence."""
    words = _parsed(quote)
    if sum(len(word.text) for word in words if _CJK.match(word.text)) >= _MIN_CJK:
        return True
    return len(words) >= 2 and any(word.kind in ("word", "number") for word in words)


def _parsed(text: str) -> tuple[Word, ...]:
    return parse_sentence(text, detect_language(text) or "english").words


def _quote_spans(claim: Claim, entries: Sequence[Entry]) -> Iterator[QuoteSpan]:
    for count, span in enumerate(find_quotes(claim.quote, entries, claim.entry)):
        if count == MAX_QUOTE_SPANS:
            return
        yield span


def _distrust(span: QuoteSpan) -> int:
    """Return how little the words at a location are trusted; pasted text is a stranger's."""
    return max(_DISTRUST[span.entry.origin], _TAINTED if span.entry.tainted else 0, _pasted(span))


def _pasted(span: QuoteSpan) -> int:
    entry = span.entry
    pasted = entry.role == "user" and is_pasted(entry.content, span.start, span.end)
    return _DISTRUST["external"] if pasted else 0


def _check_structure(claim: Claim, passage: Passage) -> Verdict | None:
    """Check that subject, relation and value say the same as the text."""
    language = detect_language(claim.text) or "english"
    text = parse_sentence(claim.text, language).words
    keys = {word.key for word in text} | {word.text for word in text}
    relation = parse_sentence(claim.relation.replace("_", " ").replace("-", " "), language).words
    related = {word.key for word in relation}
    for key, opposite in _OPPOSED_KEYS:
        if key in related and opposite in keys and key not in keys:
            return Verdict("rejected", "negation differs")
    value = parse_sentence(claim.value, language).words
    denied = any(word.kind == "no" for word in (*relation, *value))
    denies = any(word.denied and word.key in related for word in text if word.kind == "word")
    if not denied and denies:
        return Verdict("proposed", "its relation does not deny what its text denies")
    if denied and not any(word.kind == "no" for word in text) and "=dislike" not in keys:
        return Verdict("proposed", "its relation denies what its text does not")
    roles = passage.speaker_names | passage.addressee_names
    by_role = any(word.text in roles for word in text)
    for word in parse_sentence(claim.subject, language).words:
        if word.kind not in ("word", "number") or (word.text in roles and by_role):
            continue
        if word.key not in keys and comparison_key(word.text, language) not in keys:
            return Verdict("proposed", "its subject is not in its text")
    return None


def _by_keywords(
    claim: Claim, entries: Sequence[Entry], made_by: Provenance
) -> FactDraft | Rejection:
    """Propose a claim because of the sentence with the most of its words, or reject it."""
    most, best = 0, None
    keywords = _content_keys(f"{claim.text} {claim.quote}")
    for entry in sorted(entries, key=lambda entry: entry.id != claim.entry):
        if not entry.retrievable:
            continue
        position, text = 0, entry.content[:_MAX_SEARCHED]
        while position < len(text):
            start, end = find_sentence(text, position, position + 1)
            shared = len(keywords & _content_keys(text[start:end]))
            if shared > most:
                most, best = shared, QuoteSpan(entry, start, end)
            position = max(end, position) + 1
    if best is None:
        return Rejection("quote not found", claim)
    verdict = check_resemblance(claim.text, passage_of(best, entries))
    if verdict.kind == "rejected":
        return Rejection(verdict.reason, claim)
    return _draft(claim, [_Judged(best, verdict)], made_by)


@lru_cache(4096)
def _content_keys(text: str) -> frozenset[str]:
    return frozenset(word.key for word in _parsed(text) if word.kind in ("word", "number"))


def _draft(claim: Claim, judged: Sequence[_Judged], made_by: Provenance) -> FactDraft:
    """Return the draft of a claim that rests on these locations; its span is the first one's."""
    span, verdict = judged[0]
    entries = [item.span.entry for item in judged]
    status, reason = verdict.kind, verdict.reason
    weakest = max((item.span for item in judged), key=_distrust)
    if _distrust(weakest) > _DISTRUST["assistant"]:
        status, reason = "proposed", "rests on tool or external text"
    return FactDraft(
        subject=claim.subject,
        relation=claim.relation,
        value=claim.value,
        text=resolve_times(claim.text, span.entry.observed_at.date()),
        sources=tuple(dict.fromkeys(entry.source for entry in entries)),
        valid_from=_valid_from(claim, span),
        valid_to=_valid_to(claim, span),
        quote=span.text,
        span=(span.start, span.end),
        **made_by._asdict(),
        confidence=claim.confidence,
        origin="external" if _pasted(weakest) else weakest.entry.origin,
        status="active" if status == "active" else "proposed",
        reason=reason,
        tier=claim.tier,
    )


def _valid_to(claim: Claim, span: QuoteSpan) -> datetime | None:
    """Return the end of a claim's validity if its own words and the quote state it."""
    said_at = span.entry.observed_at
    for text in (span.text, claim.text):
        validity = find_validity(text, said_at, detect_language(text) or "english", None)
        if validity.until is not None and validity.until > said_at:
            return validity.until
    return None


def _valid_from(claim: Claim, span: QuoteSpan) -> datetime:
    """Return the claimed start if the sentence states it, else the time of the entry."""
    said_at = span.entry.observed_at
    if claim.valid_from is None:
        language = detect_language(span.text) or "english"
        return find_validity(span.text, said_at, language, None).since or said_at
    start, end = find_sentence(span.entry.content, span.start, span.end)
    text = span.entry.content[start:end]
    day: date = claim.valid_from.date()
    for mention in [*find_stated_dates(text), *find_relative_dates(text, said_at.date())]:
        if mention.period and mention.period[0] <= day <= mention.period[1]:
            return claim.valid_from
    return said_at
