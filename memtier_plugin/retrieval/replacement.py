"""Find older lines that a later one replaces, as `succession` judges it.  Pure.

From `ReplacementModel.mark` on the older line is said to be replaced.  Below, a pair may still be
an order: the newer line first, without a claim.

A question replaces nothing, and nobody replaces what another person says of themselves.  In a long
message the sentence that changes counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.retrieval.prompt_words import likeliest_language, split_words
from memtier_plugin.retrieval.statements import Statement, StatementWord, statements
from memtier_plugin.retrieval.succession import (
    LEAST_SHARED,
    Rarity,
    fitted_model,
    is_of_another,
    probability,
)
from memtier_plugin.retrieval.worth import worth
from memtier_plugin.text.phrases import Words
from memtier_plugin.trust.escaping import escape_line
from memtier_plugin.trust.origins import effective_origin

CONSIDERED: Final = 20  # of the best hits, among which pairs are looked for
MAX_PAIRS: Final = 12  # of statements that are judged for one recall, the most alike first
_NEAR_TURNS: Final = 2  # between what was said and what puts it right
_FIRST: Final = 4  # lines of a block that are put in the order of time
_ABOUT_AS_LIKELY: Final = 0.6  # of the likeliest line's probability
_WHOLE: Final = 0.8  # of a line's characters
_WORTH: Final = -1.0  # below it, nobody would keep a line
_NOTE_WORDS: Final = 14  # of the current statement that a note quotes


class Replacement(Struct, frozen=True):
    """The line that holds instead of an older one.

    Attributes:
        by: the later hit.
        statement: its sentence that says so.
        probability: that it replaces the older one.
        proof: what that rests on, as `explain` shows it.
        is_proven: whether it is likely enough to be said; else it is an order alone.
    """

    by: Hit
    statement: str
    probability: float
    proof: str
    is_proven: bool = True


# -- pairs -----------------------------------------------------------------------------------------


class Pair(Struct, frozen=True):
    """An older and a later hit, each with the statement that makes it one."""

    older: Hit
    later: Hit
    old: Statement
    new: Statement
    likeness: float  # Dice's coefficient of their content words

    @property
    def is_whole(self) -> bool:
        """Return whether the older statement is its entire line, and worth keeping.

        A mark covers the entire line, so a line that says more must not get one.  Neither must one
        that nobody would keep ("thanks, that means a lot"): it states nothing that could change.
        """
        text = self.old.text
        words = Words.of(text, likeliest_language(text, split_words(text)))
        is_all = len(text) >= _WHOLE * len(_words_of(self.older).strip())
        return is_all and worth(words) > _WORTH

    def proof(self, likely: float) -> str:
        """Describe which words the two share, and which each has alone."""
        old, new = self.old.words, self.new.words
        shared = self.old.content & self.new.content

        def named(words: Sequence[StatementWord], among: Collection[str]) -> str:
            stems = dict.fromkeys(w.stem for w in words if w.kind != "function" and w.stem in among)
            return " ".join(stems) or "-"

        lost, fresh = named(old, self.old.content - shared), named(new, self.new.content - shared)
        return f"{self.later.id}: same {named(new, shared)}; {lost} > {fresh}; p {likely:.2f}"


def find_pairs(
    hits: Sequence[Hit], query: Collection[str] = (), in_sight: Sequence[Hit] = ()
) -> Iterator[Pair]:
    """Yield the pairs of statements of which one may replace the other, best hits first.

    Args:
        query: the words of a question, of which both have one; none where nothing is asked.
        in_sight: further hits, which may replace others, but get no line themselves.
    """
    lines = [*_read_lines(hits, query)]
    markable, on_topic = len(lines), list[int]()
    lines += _read_lines(in_sight, query)
    talks: dict[tuple[str, str], list[int]] = {}
    for at, first in enumerate(lines):
        talk, turn = talks.setdefault(first.talk, []), first.turn
        near = [index for index in talk if 0 < abs(lines[index].turn - turn) <= _NEAR_TURNS]
        others = sorted({*on_topic, *near}) if first.is_on_topic else near
        for index in others:  # each of a line that may be marked
            second = lines[index]
            is_older = first.when < second.when
            old, new = (first, second) if is_older else (second, first)
            if old.when >= new.when or (is_older and at >= markable):
                continue
            if not _share_enough(old, new, query):
                continue
            if not _are_comparable(old.hit, new.hit) or not _may_change(old, new):
                continue
            if new.statement.is_open or is_of_another(old.statement, new.statement):
                continue
            shared = len(old.statement.content & new.statement.content)
            words = len(old.statement.content) + len(new.statement.content)
            likeness = 2 * shared / max(1, words)
            yield Pair(old.hit, new.hit, old.statement, new.statement, likeness)
        if at < markable:
            talk.append(at)
            on_topic += [at] if first.is_on_topic else []


class _Line(Struct, frozen=True):
    """A statement of a hit, and when it was said."""

    hit: Hit
    when: datetime
    talk: tuple[str, str]  # in which session, and of which agent
    turn: int
    statement: Statement
    is_on_topic: bool  # it has a word of the question


def _read_lines(hits: Iterable[Hit], query: Collection[str]) -> Iterator[_Line]:
    """Yield what hits state; a fact is a conversation by itself."""
    for hit in hits:
        item = hit.item
        if isinstance(item, Entry):
            talk, turn, text = (item.session_id, item.agent_id), item.turn, item.content
        else:
            talk, turn, text = (item.id, ""), 0, item.quote or item.text
        when = hit_time(hit)
        for part in statements(text):
            yield _Line(hit, when, talk, turn, part, not query or part.has_any(query))


def _words_of(hit: Hit) -> str:
    """Return the words of a line as they were said: a fact's quote, an entry's text."""
    return hit.item.quote or hit.text if isinstance(hit.item, Fact) else hit.text


def _share_enough(old: _Line, new: _Line, query: Collection[str]) -> bool:
    """Check whether two statements share enough for one to replace the other."""
    older, later = old.statement.content, new.statement.content
    shared = older & later
    if len(shared) < LEAST_SHARED * len(older) or (query and shared.isdisjoint(query)):
        return old.talk == new.talk and 0 < new.turn - old.turn <= _NEAR_TURNS
    same = len(shared) == len(older) == len(later)
    return not same or old.statement.negated != new.statement.negated


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
    """Return whether a line comes from outside of the conversation: a page, a mail, a file."""
    item = hit.item
    origin = effective_origin(item) if isinstance(item, Entry) else item.origin
    return origin == "external"


def _names_of_speaker(hit: Hit, statement: Statement) -> frozenset[str]:
    """Return the names of a line's speaker; none for an assistant."""
    item = hit.item
    if isinstance(item, Fact):
        names = [item.person, item.subject if statement.own or statement.possessive else ""]
    else:
        names = [item.speaker, item.sender] if item.role == "user" else []
        names = names if any(names) or item.role != "user" else [item.role]
    return frozenset([name.casefold() for name in names if name])


def _may_change(old: _Line, new: _Line) -> bool:
    """Return whether a later speaker may change what an older one said.

    Only the speaker may change what they said of themselves, or somebody who names them.
    """
    if not (old.statement.own or old.statement.possessive):
        return True
    names = _names_of_speaker(old.hit, old.statement)
    later = new.hit.item
    if isinstance(later, Entry) and later.role == "assistant":
        return isinstance(old.hit.item, Fact) or old.hit.item.sender == later.sender
    later_names = _names_of_speaker(new.hit, new.statement)
    if not names.isdisjoint(later_names) or not (names and later_names):
        return True
    text = new.statement.text.casefold()
    return any(name in text for name in names)


# -- lines -----------------------------------------------------------------------------------------


def find_replacements(
    hits: Sequence[Hit],
    query: Collection[str],
    frequencies: Callable[[Collection[str]], Rarity],
    superseded: Iterable[tuple[str, str]] = (),
    in_sight: Sequence[Hit] = (),
) -> dict[str, Replacement]:
    """Return, by id, the hits that a later one may replace, with the latest likeliest one.

    Args:
        query: the words of the question.
        frequencies: returns how rare words are in the store; asked once, if there are pairs.
        superseded: pairs of entries, an older one whose fact was superseded, and the later one that
            the superseding fact rests on.
        in_sight: hits that need no mark themselves.
    """
    model = fitted_model()
    latest: dict[str, tuple[bool, datetime, Replacement]] = {}

    def note(older: Hit, now: Replacement) -> None:
        rank = now.is_proven, hit_time(now.by)
        if older.id not in latest or rank > latest[older.id][:2]:
            latest[older.id] = (*rank, now)

    superseded = [*superseded]
    by_id = {hit.id: hit for hit in (*hits, *in_sight)} if superseded else {}
    for old, new in superseded:
        older, later = by_id[old], by_id[new]
        if hit_time(older) < hit_time(later):
            note(older, Replacement(later, later.text, 1.0, f"its fact was superseded by {new}'s"))
    pairs = nlargest(MAX_PAIRS, find_pairs(hits, query, in_sight), key=lambda pair: pair.likeness)
    if pairs:
        rarity = frequencies(
            frozenset().union(*(pair.old.content | pair.new.content for pair in pairs))
        )
        for pair in pairs:
            likely = probability(pair.old, pair.new, rarity)
            # Without a word in common there is no evidence of one matter, only a correction.
            if likely >= (model.order if pair.likeness else model.mark):
                proof, proven = pair.proof(likely), likely >= model.mark and pair.is_whole
                note(
                    pair.older,
                    Replacement(pair.later, pair.new.text, likely, proof, proven),
                )
    replaced = _follow_chains({older: now for older, (*_, now) in latest.items()})
    return {**_resting_on(hits, replaced), **replaced} if replaced else {}


def _resting_on(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> dict[str, Replacement]:
    """Return, by id, the facts that rest on replaced entries alone, and what replaces those."""
    entries = {hit.id: replaced[hit.id] for hit in hits if hit.id in replaced}
    return {
        hit.id: entries[hit.sources[0].entry]
        for hit in hits
        if isinstance(hit.item, Fact) and not hit.item.shelf and hit.sources
        if all(source.entry in entries for source in hit.sources)
        and hit_time(hit) < hit_time(entries[hit.sources[0].entry].by)  # so that no circle arises
    }


def _follow_chains(replaced: Mapping[str, Replacement]) -> dict[str, Replacement]:
    """Return the replacements with the last proven line of each chain instead of the next."""
    last: dict[str, Replacement] = {}
    for older, step in replaced.items():
        now = step
        while (then := replaced.get(now.by.id)) and then.is_proven:  # each is later than the last
            now = then
        last[older] = replace(now, probability=step.probability, proof=step.proof)
    return last


def put_current_first(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> tuple[Hit, ...]:
    """Put the newest line of each matter directly above the first of it; mark what is replaced.

    None is left out: a later line may be wrong, or somebody's attempt to displace the older one.
    """
    if not replaced:
        return tuple(hits)
    by_id = {hit.id: hit for hit in hits}
    replaced = {older: now for older, now in replaced.items() if older in by_id}

    def newest(identity: str) -> str:
        while identity in replaced and replaced[identity].by.id in by_id:
            identity = replaced[identity].by.id
        return identity

    members: dict[str, list[Hit]] = {}
    for hit in hits:
        members.setdefault(newest(hit.id), []).append(hit)
    ordered: dict[str, Hit] = {}
    for hit in hits:
        first = newest(hit.id)
        if first not in ordered:
            rest = [member for member in members[first] if member.id != first]
            ordered[first] = with_evidence_of(by_id[first], rest)
        if hit.id not in ordered:
            ordered[hit.id] = mark_older(hit, replaced[hit.id])
    return tuple(ordered.values())


def newest_first(hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
    """Put the newest of the first lines first if they are about equally likely to be needed.

    That is an order, and claims nothing.
    """
    first = hits[:_FIRST]
    if not all(isinstance(hit.item, Entry) or not hit.item.shelf for hit in first):
        return hits
    least = _ABOUT_AS_LIKELY * max((hit.probability or 0.0 for hit in first), default=0.0)
    likely = [hit for hit in first if (hit.probability or 0.0) >= least]
    rest = [hit for hit in first if (hit.probability or 0.0) < least]
    return (*sorted(likely, key=hit_time, reverse=True), *rest, *hits[_FIRST:])


def mark_replaced(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> tuple[Hit, ...]:
    """Return hits in their order, with a note on those that a later one replaces."""
    if not replaced:
        return tuple(hits)
    return tuple(mark_older(hit, replaced[hit.id]) if hit.id in replaced else hit for hit in hits)


def mark_older(hit: Hit, now: Replacement) -> Hit:
    """Return an older hit with a note on when it ceased to hold and what says so, if proven."""
    if not now.is_proven:
        return hit
    words = now.statement.split()
    cut = " ".join(words[:_NOTE_WORDS]) + (" ..." if len(words) > _NOTE_WORDS else "")
    quote = escape_line(cut)  # as a line of its own: within a note its beginning is not seen
    item, since = now.by.item, hit_time(now.by)
    when = "then" if isinstance(item, Fact) and since > item.timestamp else "now"
    note = f"until {since:%Y-%m-%d}; {when}: {quote.rstrip('.')}{_origin(now.by)}"
    return hit.with_note(note, now.proof)


def _origin(hit: Hit) -> str:
    """Name the source of a change that no person stated."""
    item = hit.item
    role = item.role if isinstance(item, Entry) else item.origin
    if role == "assistant":
        return ", said by the assistant"
    if role == "tool":
        return ", shown by a tool"
    return ""


def with_evidence_of(hit: Hit, others: Sequence[Hit]) -> Hit:
    """Return a line with the best evidence of itself and of the lines it replaces or answers."""
    known = [line.evidence for line in (hit, *others) if line.evidence is not None]
    if hit.evidence is None or not others:
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
