"""Find older lines that a later one replaces, by pairs of what they say.  Pure.

Two statements make a pair where the later one is about the same thing (shared words, those of the
query most), says that something changed (closed classes of words: "moved", "no longer", "now") and
gives another value.  `pair_features` measures that; the probability is logistic in the features,
with coefficients from ``replacement.json``, fitted by ``scripts/fit_replacement.py``.  Neither
facts nor a model take part.

A question, a plan or a condition replaces nothing, and what one person says of themselves is not
replaced by what another says of themselves.  In a long message the sentence that changes counts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.retrieval.contradictions import hit_time
from memtier_plugin.retrieval.statements import SHORT_CHARS, Statement, statements
from memtier_plugin.text.tokenizer import Tokenizer
from memtier_plugin.trust.origins import effective_origin

CONSIDERED: Final = 32  # of the best hits, among which pairs are looked for
_LEAST_TOPIC: Final = 0.25  # of the query's words, by idf, without which a pair is not one
_WHOLE_TOPIC: Final = 0.8  # of the query's words: both are about all of it
_NOTE_WORDS: Final = 14  # of the current statement that a note quotes


@dataclass(frozen=True, slots=True)
class Replacement:
    """The line that holds instead of an older one.

    Attributes:
        by: the later hit.
        statement: its sentence that says so.
        probability: that it replaces the older one.
    """

    by: Hit
    statement: str
    probability: float


# -- pairs -----------------------------------------------------------------------------------------


class Rarity:
    """How much words tell: those of the query by the store's idf, others by the statements'.

    Args:
        query: the index words of the query, each with its idf.
        statements: all that the hits state.
    """

    def __init__(self, query: Mapping[str, float], statements: Sequence[Statement]) -> None:
        self.query = frozenset(query)
        total = sum(query.values()) or 1.0
        self._shares = {term: idf / total for term, idf in query.items()}
        self._statements = statements
        self._rarities: dict[frozenset[str], float] = {}

    @cached_property
    def _rarity(self) -> dict[str, float]:  # most queries have no pair that needs it
        counts = Counter(term for statement in self._statements for term in statement.terms)
        scale = math.log(len(self._statements) + 2)
        return {term: 1 - math.log(n + 1) / scale for term, n in counts.items()}

    def query_share(self, terms: frozenset[str]) -> float:
        """Return the share of the query's words, by idf, that are among these."""
        return sum([self._shares[term] for term in self.query & terms])

    def of(self, terms: frozenset[str]) -> float:
        """Return how rare these words are together: each up to 1 by how few statements have it."""
        rarity = self._rarities.get(terms)
        if rarity is None:  # a statement is compared with many others
            rarity = self._rarities[terms] = sum([self._rarity[term] for term in terms])
        return rarity


def pair_features(older: Statement, later: Statement, rarity: Rarity) -> dict[str, float]:
    """Return what speaks for a later statement's replacing an older one."""
    query = rarity.query
    both = older.terms & later.terms
    topic, value = both & query, both - query
    old_value = older.names - later.names - query
    new_value = later.names - older.names - query
    change, ending = "change" in later.cues, "ending" in later.cues
    shared = rarity.of(older.content & later.content) / max(
        0.5, min(rarity.of(older.content), rarity.of(later.content))
    )
    cue = float(change or ending)
    present = float("present" in later.cues and not cue)
    short = float(len(older.terms) <= 10 and len(later.terms) <= 10)
    topic_share = rarity.query_share(topic)
    frame = _same_frame(older, later)
    rare = min(2.0, rarity.of(value))
    return {
        "one": 1.0,
        "topic": topic_share,
        "lost": rarity.query_share(older.terms) - topic_share,
        "gained": rarity.query_share(later.terms) - topic_share,
        "shared": shared,
        "rare": rare,
        "change": float(change),
        "ending": float(ending),
        "present": present,
        "cue_topic": cue * topic_share,
        "cue_shared": cue * shared,
        "cue_rare": cue * rare,
        "mentions_value": float(bool((older.names - query) & later.terms) and cue > 0),
        "numbers_differ": float(
            bool(older.numbers) and bool(later.numbers - older.numbers) and bool(topic or value)
        ),
        "same_numbers": float(bool(older.numbers) and later.numbers <= older.numbers),
        "both_new": float(bool(old_value) and bool(new_value)),
        "present_topic": present * topic_share,
        "present_shared": present * shared,
        "other_thing": _other_thing(older, later, topic, query),
        "short": short,
        "short_cue": short * max(cue, 0.5 * present),
        "same_slot": float(frame == 1.0 and topic_share >= _WHOLE_TOPIC),
        "slot_cue": float(frame == 1.0 and topic_share >= _WHOLE_TOPIC) * max(cue, present),
        "ending_topic": ending * topic_share,
        "old_rest": math.log1p(len(older.content - later.terms - query)),
        "new_rest": math.log1p(len(later.content - older.terms - query)),
        "new_value": float(bool(new_value)),
        "only_repeats": float(bool(older.names - query) and not new_value and not ending),
        "own_old": float(older.own),
        "own_new": float(later.own),
    }


def _same_frame(older: Statement, later: Statement) -> float:
    """Return how alike two statements are but for their values; 0 where those do not differ."""
    if older.names == later.names or not (older.names and later.names):
        return 0.0
    old, new = older.content - older.names, later.content - later.names
    return len(old & new) / max(1, len(old | new))


def _other_thing(
    older: Statement, later: Statement, topic: Iterable[str], query: Collection[str]
) -> float:
    """Tell whether a word of the query that both have stands by another word of it in the older.

    "The staging server" and "the production server" are two things, where staging is asked for.
    """
    for term in topic:
        at, there = older.order.index(term), later.order.index(term)
        for step in (-1, 1):
            word = _word_at(older.order, at + step)
            other = _word_at(later.order, there + step)
            if word not in query or word in later.terms:
                continue
            if other in later.content and other not in older.terms and other not in query:
                return 1.0
    return 0.0


def _word_at(words: Sequence[str], index: int) -> str:
    return words[index] if 0 <= index < len(words) else ""


@dataclass(frozen=True, slots=True)
class ReplacementModel:
    """Coefficients by feature, and the probability from which an older line is marked."""

    weights: Mapping[str, float]
    mark: float

    def probability(self, features: Mapping[str, float]) -> float:
        """Return how likely a later statement replaces an older one."""
        total = math.fsum(weight * features.get(name, 0.0) for name, weight in self.weights.items())
        return 1.0 / (1.0 + math.exp(-total))


@cache
def fitted_model() -> ReplacementModel:
    """Return the model that ``scripts/fit_replacement.py`` has fitted."""
    document = json.loads(Path(__file__).with_name("replacement.json").read_bytes())
    return ReplacementModel(document["weights"], document["mark"])


@dataclass(frozen=True, slots=True)
class Pair:
    """An older and a later hit, each with the statement that makes it one."""

    older: Hit
    later: Hit
    old: Statement
    new: Statement
    features: Mapping[str, float]


def find_pairs(
    hits: Sequence[Hit], query: Mapping[str, float], tokenizer: Tokenizer
) -> Iterator[Pair]:
    """Yield the pairs of statements that may replace each other.

    Args:
        query: the index words of the query, each with its idf.
    """
    about = _stems(query)
    lines = [
        _Line(hit, hit_time(hit), part)
        for hit in hits
        for part in statements(hit.text, tokenizer, about)
    ]
    lines += _naming(hits, lines, query.keys(), tokenizer)
    rarity = Rarity(query, [line.statement for line in lines])
    several = len({voice for hit in hits if (voice := _voice(hit))}) > 1
    topics = [rarity.query_share(line.statement.terms) for line in lines]
    pairs = [*zip(lines, topics, strict=True)]
    olds = [line for line, topic in pairs if topic >= _LEAST_TOPIC]
    changes = [
        line
        for line, topic in pairs
        if line.statement.may_change and (topic >= _LEAST_TOPIC or line.statement.states_change)
    ]
    for new in changes:
        for old in olds:
            if old.when >= new.when or not _are_comparable(old.hit, new.hit):
                continue
            if not _share_enough(old, new, rarity):
                continue
            if several and not _may_speak_for(old.hit, old.statement, new.hit, new.statement):
                continue
            features = pair_features(old.statement, new.statement, rarity)
            yield Pair(old.hit, new.hit, old.statement, new.statement, features)


class _Line(NamedTuple):
    """A statement of a hit, and when it was said."""

    hit: Hit
    when: datetime
    statement: Statement


def _naming(
    hits: Sequence[Hit], lines: Sequence[_Line], query: Collection[str], tokenizer: Tokenizer
) -> list[_Line]:
    """Return the short lines without a word of the query that name a value of one with it."""
    values = frozenset[str]().union(*(line.statement.names for line in lines)).difference(query)
    named = _stems(value for value in values if len(value) > 2)
    if not named:
        return []
    seen = {line.hit.id for line in lines}
    return [
        _Line(hit, hit_time(hit), part)
        for hit in hits
        if hit.id not in seen and len(hit.text) <= SHORT_CHARS
        for part in statements(hit.text, tokenizer, named)
    ]


def _share_enough(old: _Line, new: _Line, rarity: Rarity) -> bool:
    """Check whether two statements share enough of the query's words, or the value replaced."""
    both = old.statement.terms & new.statement.terms
    if not both or both == old.statement.terms == new.statement.terms:
        return False
    if rarity.query_share(both) >= _LEAST_TOPIC:
        return True
    return new.statement.states_change and not old.statement.names.isdisjoint(both - rarity.query)


def _stems(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words to look for in a text, the longer ones without their last letter."""
    return tuple(sorted({term[:-1] if len(term) > 3 else term for term in words}))


def _are_comparable(older: Hit, later: Hit) -> bool:
    for hit in (older, later):
        if isinstance(hit.item, Fact) and (hit.item.shelf or hit.item.tier != "semantic"):
            return False
    if _is_from_outside(later) and not _is_from_outside(older):
        return False
    return {source.entry for source in older.sources}.isdisjoint(
        source.entry for source in later.sources
    )


def _is_from_outside(hit: Hit) -> bool:
    """Tell whether a line comes from outside of the conversation: a page, a mail, a file."""
    item = hit.item
    origin = effective_origin(item) if isinstance(item, Entry) else item.origin
    return origin == "external"


def _voice(hit: Hit) -> str:
    """Return who says a line, "" where that is not known: a fact's, or the assistant's."""
    item = hit.item
    if isinstance(item, Fact):
        return ""
    return item.speaker or item.sender or item.role if item.role == "user" else ""


def _may_speak_for(older: Hit, old: Statement, later: Hit, new: Statement) -> bool:
    """Tell whether a later speaker may change what an older one said.

    What somebody says of themselves is theirs alone to change.
    """
    voice, other = _voice(older), _voice(later)
    if voice == other:
        return True
    if isinstance(later.item, Entry) and later.item.role == "assistant":
        return isinstance(older.item, Fact) or older.item.sender == later.item.sender
    if old.own or old.possessive:
        return False
    if new.own or new.possessive:  # of themselves, unless the older line names them
        return new.states_change or (bool(other) and other.casefold() in old.text.casefold())
    return True


# -- lines -----------------------------------------------------------------------------------------


def find_replacements(
    hits: Sequence[Hit],
    query: Mapping[str, float],
    tokenizer: Tokenizer,
    superseded: Iterable[tuple[str, str]] = (),
) -> dict[str, Replacement]:
    """Return, by id, the hits that a later one replaces, with the latest one that does.

    Args:
        superseded: pairs of entries, an older one whose fact was superseded, and the later one that
            the superseding fact rests on.
    """
    model = fitted_model()
    latest: dict[str, tuple[datetime, Replacement]] = {}
    for pair in find_pairs(hits, query, tokenizer):
        probability = model.probability(pair.features)
        when = hit_time(pair.later)
        if probability < model.mark:
            continue
        chosen = latest.get(pair.older.id)
        if chosen is None or (when, probability) > (chosen[0], chosen[1].probability):
            now = Replacement(pair.later, pair.new.text, probability)
            latest[pair.older.id] = when, now
    by_id = {hit.id: hit for hit in hits}
    for old, new in superseded:
        older, later = by_id[old], by_id[new]
        if old not in latest and hit_time(older) < hit_time(later):
            latest[old] = hit_time(later), Replacement(later, later.text, model.mark)
    replaced = _follow_chains({older: now for older, (_, now) in latest.items()})
    return {**_resting_on(hits, replaced), **replaced} if replaced else {}


def _resting_on(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> dict[str, Replacement]:
    """Return, by id, the facts that rest on replaced entries alone, and what replaces those."""
    entries = {hit.id: replaced[hit.id] for hit in hits if hit.id in replaced}
    return {
        hit.id: entries[hit.sources[0].entry]
        for hit in hits
        if isinstance(hit.item, Fact) and not hit.item.shelf and hit.sources
        if all(source.entry in entries for source in hit.sources)
        and hit.id != entries[hit.sources[0].entry].by.id
    }


def _follow_chains(replaced: Mapping[str, Replacement]) -> dict[str, Replacement]:
    """Return the replacements with the last line of each chain instead of the next."""
    last: dict[str, Replacement] = {}
    for older, step in replaced.items():
        now = step
        while now.by.id in replaced:  # ends: each is later than the one before
            now = replaced[now.by.id]
        last[older] = replace(now, probability=step.probability)
    return last


def put_current_first(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> tuple[Hit, ...]:
    """Put each current line directly above the first that it replaces, and mark those.

    None is left out: a later line may be wrong, or somebody's attempt to displace the older one.
    """
    ids = {hit.id for hit in hits}
    replaced = {older: now for older, now in replaced.items() if older in ids}
    if not replaced:
        return tuple(hits)
    of_current: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.id in replaced:
            of_current.setdefault(replaced[hit.id].by.id, []).append(hit)
    ordered: list[Hit] = []
    placed: set[str] = set()

    def place(current: Hit) -> None:
        if current.id in ids and current.id not in placed:
            placed.add(current.id)
            ordered.append(standing_for(current, of_current.get(current.id, ())))

    for hit in hits:
        if now := replaced.get(hit.id):
            place(now.by)
            ordered.append(mark_older(hit, now))
        else:
            place(hit)
    return tuple(ordered)


def mark_replaced(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> tuple[Hit, ...]:
    """Return hits in their order, with a note on those that a later one replaces."""
    if not replaced:
        return tuple(hits)
    return tuple(mark_older(hit, replaced[hit.id]) if hit.id in replaced else hit for hit in hits)


def mark_older(hit: Hit, now: Replacement) -> Hit:
    """Return an older hit with a note on until when it held, and what holds now, or then."""
    words = now.statement.split()
    quote = " ".join(words[:_NOTE_WORDS]) + (" ..." if len(words) > _NOTE_WORDS else "")
    item, since = now.by.item, hit_time(now.by)
    when = "then" if isinstance(item, Fact) and since > item.timestamp else "now"
    note = f"until {since:%Y-%m-%d}; {when}: {quote.rstrip('.')}{_origin(now.by)}"
    return hit.with_note(note)


def _origin(hit: Hit) -> str:
    """Return by whom a change was said, where that is not a person."""
    item = hit.item
    role = item.role if isinstance(item, Entry) else item.origin
    if role == "assistant":
        return ", said by the assistant"
    if role == "tool":
        return ", shown by a tool"
    return ""


def standing_for(hit: Hit, others: Sequence[Hit]) -> Hit:
    """Return a line with the evidence of others too, those that it replaces or answers."""
    known = [line.evidence for line in (hit, *others) if line.evidence is not None]
    if hit.evidence is None or len(known) < 2:
        return hit
    best = Evidence(
        coverage=max(line.coverage for line in known),
        own_coverage=max(line.own_coverage for line in known),
        matched=max(line.matched for line in known),
        cosine=max(line.cosine for line in known),
        time=max(line.time for line in known),
        speaker=any(line.speaker for line in known),
    )
    return replace(hit, evidence=best)
