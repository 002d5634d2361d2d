"""Find the rules that a user set by correcting an assistant, before a task like the corrected one.

A rule's own words seldom resemble the next task ("Use pnpm", "Install lodash").  The request that
was corrected does, and so does what had been done: the lines before the rule's own in its session.
They are only compared, never shown: another agent's lines stay its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import CORRECTED, OWN_WORDS, Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.kinds_of_work import (
    Profiles,
    kind_model,
    of_work,
    other_kind,
    profile,
)
from memtier_plugin.retrieval.rule_words import sets_rule
from memtier_plugin.retrieval.signals import ScoredRow
from memtier_plugin.retrieval.standing import stems
from memtier_plugin.retrieval.visibility import Viewer, read_hits
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.lexicon import words_of

MAX_RULES: Final = 3  # in a block
SIGNAL: Final = "like"  # how like the prompt is to what a rule corrected
_READ: Final = 128  # rules and intentions that are looked at, the newest
_BEFORE: Final = 6  # lines before a correction, among which its request stands
_MAX_CHARS: Final = 600  # of a text that are compared
_BEHIND: Final = 2.0  # log-odds by which a rule may be less likely than the likeliest
_REPEATED: Final = 0.5  # what each doubling of a rule's sources adds to its log-odds
_DEED: Final = 0.7  # what the deed and the rule's own words count, beside the request
_PARTS: Final = ((1.0, _DEED, _DEED), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class OwnWords(Struct, frozen=True):
    """A rule or an intention, or a confidence, which may be one; ``times``: lines that say so."""

    row: int
    item: Entry | Fact
    times: int


class Rule(Struct, frozen=True):
    """A rule with the request that it corrected and what had been done; "" where unknown.

    ``times`` is how many lines say so.
    """

    row: int
    item: Entry | Fact
    times: int = 1
    request: str = ""
    deed: str = ""


def find_rules(
    reader: Reader, viewer: Viewer, prompt: str, own_words: Sequence[OwnWords]
) -> list[Hit]:
    """Return the rules in force that hold for a task, the likeliest first."""
    rules = _read_rules(reader, own_words)
    return read_hits(reader, select_rules(prompt, rules), viewer, {}) if rules else []


def leave_out_same(first: Sequence[Hit], judged: Judged) -> Judged:
    """Return what was judged without what says no more than a rule or reminder before it.

    Nor with a rule or intention that was only found by its words, where another line has them.
    """
    hits = others(first, judged.hits)
    lines = tuple(hit for hit in hits if not _is_own_words(hit))
    hits = tuple(hit for hit in hits if not _is_own_words(hit) or others(lines, [hit]))
    known = {hit.id for hit in (*hits, *first)}
    same = {hit.id: "restated" for hit in judged.hits if hit.id not in known}
    left_out = {**judged.left_out, **same}
    return replace(judged, hits=hits, left_out=left_out) if same else judged


def leave_out_closed(reader: Reader, judged: Judged) -> Judged:
    """Return what was judged without the lines of rules and intentions that have ended.

    A line that says more than that stays.
    """
    entries = {source.entry for hit in judged.hits for source in hit.sources}
    ended = reader.closed_lines([*entries]) if entries else {}
    closed = {
        hit.id
        for hit in judged.hits
        if ended.keys() >= {source.entry for source in hit.sources}
        and len(hit.text) <= 2 * max((ended[s.entry] for s in hit.sources), default=0)
    }
    if not closed:
        return judged
    hits = tuple(hit for hit in judged.hits if hit.id not in closed)
    return replace(
        judged, hits=hits, left_out={**judged.left_out, **dict.fromkeys(closed, "ended")}
    )


def others(first: Sequence[Hit], hits: Iterable[Hit]) -> tuple[Hit, ...]:
    """Return the hits that rest on more than the lines of the first."""
    lines = {source.entry for hit in first for source in hit.sources}
    return tuple(hit for hit in hits if not lines.issuperset(s.entry for s in hit.sources))


def _is_own_words(hit: Hit) -> bool:
    return isinstance(hit.item, Fact) and hit.item.relation in OWN_WORDS


def read_own_words(reader: Reader, viewer: Viewer) -> list[OwnWords]:
    """Return the newest rules and intentions in force, and confidences, that a viewer may see."""
    own = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
    rows = reader.own_words([*own, *reader.shared_scopes(viewer.people)], _READ)
    stored = reader.items_by_row([*rows]) if rows else {}
    return [
        OwnWords(row, stored[row].item, max(1, rows[row]))
        for row in rows
        if row in stored and viewer.may_see(stored[row].item)
    ]


def _read_rules(reader: Reader, own_words: Sequence[OwnWords]) -> list[Rule]:
    """Return the rules among a user's own words, with what they corrected."""
    entries = {
        _line_of(each.item): Rule(each.row, each.item, each.times)
        for each in own_words
        if isinstance(each.item, Entry) or each.item.relation == CORRECTED
    }
    before = reader.lines_before([*entries], _BEFORE) if entries else {}
    rules = [_rule(rule, before.get(entry, ())) for entry, rule in entries.items()]
    return [rule for rule in rules if isinstance(rule.item, Fact) or _corrects(rule)]


def _line_of(item: Entry | Fact) -> str:
    """Return the id of the line in which a rule was set."""
    return item.sources[0].entry if isinstance(item, Fact) else item.id


def _rule(rule: Rule, before: Sequence[Entry]) -> Rule:
    """Return a rule with the last request before it, and what was done about that."""
    request, deeds = "", list[str]()
    for entry in before:  # the last first
        if entry.role == "user":
            request = entry.content[:_MAX_CHARS]
            break
        if entry.role == "assistant":
            deeds.append(entry.content)
    return replace(rule, request=request, deed=" ".join(deeds[::-1])[:_MAX_CHARS])


def _corrects(rule: Rule) -> bool:
    """Return whether a line that became no fact, as it is a confidence, is a correction."""
    return bool(rule.deed) and sets_rule(rule.item.text)


def select_rules(prompt: str, rules: Sequence[Rule]) -> list[ScoredRow]:
    """Return the rows of the few rules that are likely enough to hold, the likeliest first."""
    standard = kind_model().standards["rules"]
    asked, measured = prompt[:_MAX_CHARS], list[tuple[float, Rule]]()
    for rule in rules:
        odds = standard["bias"] + _REPEATED * math.log2(rule.times)
        odds += sum(standard[name] * value for name, value in likeness(asked, rule).items())
        measured.append((odds, rule))
    least = max((odds for odds, _ in measured), default=0.0) - _BEHIND
    likely = [(o, rule) for o, rule in measured if o > max(least, standard["least"])]
    likely.sort(key=lambda each: (-each[0], each[1].item.id))
    scores = [(1 / (1 + math.exp(-odds)), rule.row) for odds, rule in likely[:MAX_RULES]]
    return [(row, score, {SIGNAL: round(score, 4)}) for score, row in scores]


def likeness(prompt: str, rule: Rule) -> dict[str, float]:
    """Return what speaks for a rule before a prompt: its kind of work, the best part's, words."""
    asked, corrected = _asked(prompt), _corrected(rule.request, rule.deed, rule.item.text)
    together, *parts = (corrected.kinds @ asked.kinds[0]).tolist()
    return {
        "together": together,
        "best": max(parts),
        "words": len(asked.words & corrected.words) / max(1, len(asked.words)),
        "asks": asked.asks,
        "idle": asked.idle,
        "working": together * (1 - asked.idle),
    }


class _Asked(Struct, frozen=True):
    """A prompt as it is compared; ``idle`` is how much it speaks for no work of the user's."""

    kinds: Profiles  # shape (1, kinds), of length one
    idle: float
    words: frozenset[str]
    asks: float


class _Corrected(Struct, frozen=True):
    """A rule as it is compared: its parts together, its request, its deed and its own words."""

    kinds: Profiles  # shape (4, kinds), each row of length one
    words: frozenset[str]


@lru_cache(8)
def _asked(prompt: str) -> _Asked:
    asks = prompt.rstrip().endswith(("?", "？"))
    work = of_work((prompt,), ((1.0,),))
    return _Asked(work, profile(prompt)[other_kind()], _content(prompt), float(asks))


@lru_cache(1024)  # the same rules are compared with every prompt
def _corrected(request: str, deed: str, text: str) -> _Corrected:
    kinds = of_work((request, deed, text), _PARTS)
    return _Corrected(kinds, _content(f"{request} {deed} {text}"))


def _content(text: str) -> frozenset[str]:
    """Return the stems of a text's words of content."""
    return frozenset(word for word in stems(text) - words_of("stop_words") if len(word) > 1)
