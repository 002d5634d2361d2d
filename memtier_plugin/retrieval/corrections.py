"""Find the rules that a user set by correcting an assistant, before a task like the corrected one.

A rule's own words seldom resemble the next task ("Use pnpm", "Install lodash").  The request that
was corrected does, and so does what had been done: the lines before the rule's own in its session.
They are only compared, never shown: another agent's lines stay its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import CORRECTED, OWN_WORDS, REVIEWED, Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.dialogue_acts import asks_for_work, odds, sets_rule
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.query import QueryVector
from memtier_plugin.retrieval.standing import stems
from memtier_plugin.retrieval.visibility import Viewer, read_hits
from memtier_plugin.retrieval.worth import cosine, unit
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.lexicon import words_of

BY_ACT: Final = "act"  # the extractor of a rule without words: an edit undone, a call refused
MAX_RULES: Final = 3  # in a block
_MANY: Final = 12  # rules, of which the third in order is seldom the one: two stand there
SIGNAL: Final = "like"  # how like the prompt is to what a rule corrected
_READ: Final = 128  # rules and intentions that are looked at, the newest
_BEFORE: Final = 6  # lines before a correction, among which its request stands
_MAX_CHARS: Final = 600  # of a text that are compared
_LEAST: Final = 1.0  # how like a prompt must be
# What more it takes for a rule without words.  Before 64 unseen like tasks such a rule is shown in
# .42, before 320 unlike ones in .12; without this in .55 and .43.
_LEAST_BY_ACT: Final = 2.0
_REPEATED: Final = 0.5  # what each doubling of a rule's sources adds to its likeness
# What the cosines of the request, the deed and the rule's own words count, and the share of the
# prompt's words that they have.
_REQUEST, _DEED, _TEXT, _WORDS = 9.0, 5.0, 4.0, 2.0
_SAME: Final = 2.0  # what a rule's likeness to a later correction counts, beside its wording
_SAID_AGAIN: Final = -0.8  # the odds, as a logarithm, from which on it says the rule again


class OwnWords(Struct, frozen=True):
    """A rule or an intention, or a confidence, which may be one; ``times``: lines that say so."""

    row: int
    item: Entry | Fact
    times: int


class Rule(Struct, frozen=True):
    """A rule with the request that it corrected and what had been done about that, if known.

    ``times`` is how many lines say so.
    """

    row: int
    item: Entry | Fact
    times: int = 1
    request: Entry | None = None
    deeds: tuple[Entry, ...] = ()


def find_rules(
    reader: Reader,
    viewer: Viewer,
    prompt: str,
    vector: QueryVector | None,
    own_words: Sequence[OwnWords],
) -> list[Hit]:
    """Return the rules in force that hold for a task, the likeliest first.

    Args:
        vector: of the prompt, which is compared with those of the index; without one, the shipped
            model compares texts.
    """
    if not asks_for_work(prompt):
        return []
    rules = read_rules(reader, own_words)
    prompt = prompt[:_MAX_CHARS]
    cosines = _read_cosines(reader, rules, vector) if vector else _compare_texts(prompt, rules)
    likely = [(_likeness(prompt, rule, cosines), rule) for rule in rules]
    likely.sort(key=lambda each: (-each[0], each[1].item.id))
    most = MAX_RULES - (len(rules) > _MANY)
    ranked = [
        (rule.row, score, {SIGNAL: round(score, 4)})
        for likeness, rule in likely[:most]
        if likeness > _LEAST_BY_ACT * _is_act(rule) and (score := 1 / (1 + math.exp(-likeness)))
    ]
    return read_hits(reader, ranked, viewer, {}) if ranked else []


def leave_out_same(first: Sequence[Hit], judged: Judged) -> Judged:
    """Drop hits that only repeat a rule or reminder shown before them.

    A rule or intention that was found by its words alone is dropped, too, if another hit has them.
    """
    hits = others(first, judged.hits)
    lines = tuple(hit for hit in hits if not _is_own_words(hit))
    hits = tuple(hit for hit in hits if not _is_own_words(hit) or others(lines, [hit]))
    known = {hit.id for hit in (*hits, *first)}
    same = {hit.id: "restated" for hit in judged.hits if hit.id not in known}
    left_out = {**judged.left_out, **same}
    return replace(judged, hits=hits, left_out=left_out) if same else judged


def leave_out_closed(reader: Reader, judged: Judged) -> Judged:
    """Drop the lines of rules and intentions that have ended, unless a line says more."""
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


def repeated_rule(line: str, rules: Sequence[Fact]) -> Fact | None:
    """Return the rule that a user's line repeats, if any, out of those shown before it."""
    words = content(line)
    likeness = [
        max(0.0, cosine(unit(rule.text), unit(line)))
        + len(words & (own := content(rule.text))) / (2 * max(1, min(len(words), len(own))))
        for rule in rules
    ]
    most = max(likeness, default=0.0)
    if not rules or odds("again", line) + _SAME * most < _SAID_AGAIN:
        return None
    return rules[likeness.index(most)]


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


def read_rules(reader: Reader, own_words: Sequence[OwnWords]) -> list[Rule]:
    """Return the rules among a user's own words, with what they corrected."""
    entries = {
        _line_of(reader, each.item): Rule(each.row, each.item, each.times)
        for each in own_words
        if isinstance(each.item, Entry) or each.item.relation == CORRECTED
    }
    before = reader.lines_before([*entries], _BEFORE) if entries else {}
    rules = [_rule(rule, before.get(entry, ())) for entry, rule in entries.items()]
    return [rule for rule in rules if isinstance(rule.item, Fact) or _corrects(rule)]


def _line_of(reader: Reader, item: Entry | Fact) -> str:
    """Return the id of the line in which a rule was set, before anyone reworded it."""
    while isinstance(item, Fact) and item.extractor == REVIEWED:
        stored = reader.items(reader.superseded_by([item.id])[:1]).values()
        if not stored:
            break
        item = next(iter(stored)).item
    return item.sources[0].entry if isinstance(item, Fact) else item.id


def _rule(rule: Rule, before: Sequence[Entry]) -> Rule:
    """Return a rule with the last request before it, and what was done about that."""
    request, deeds = None, list[Entry]()
    for entry in before:  # the last first
        if entry.role == "user":
            request = entry
            break
        if entry.role == "assistant":
            deeds.append(entry)
    return replace(rule, request=request, deeds=tuple(deeds))


def _corrects(rule: Rule) -> bool:
    """Return whether a confidence, of which no fact is made, corrects the assistant."""
    return bool(rule.deeds) and sets_rule(rule.item.text)


def _is_act(rule: Rule) -> bool:
    return isinstance(rule.item, Fact) and rule.item.extractor == BY_ACT


def _read_cosines(reader: Reader, rules: Sequence[Rule], vector: QueryVector) -> dict[str, float]:
    """Return, by id, how near a prompt is to each rule and to the lines before it."""
    lines = {entry.id for rule in rules for entry in (*rule.deeds, rule.request) if entry}
    rows = {**reader.rows_of(lines), **{rule.item.id: rule.row for rule in rules}}
    near = reader.vectors.similarity(vector.model, vector.vector, rows.values())
    return {item: near[row] for item, row in rows.items() if row in near}


def _compare_texts(prompt: str, rules: Sequence[Rule]) -> dict[str, float]:
    """Return the same by the shipped model, whatever the index has."""
    texts = {each.id: each.text for rule in rules for each in (*rule.deeds, rule.request) if each}
    texts |= {rule.item.id: rule.item.text for rule in rules}
    asked = unit(prompt)
    return {item: max(0.0, cosine(asked, unit(text[:_MAX_CHARS]))) for item, text in texts.items()}


def _likeness(prompt: str, rule: Rule, cosines: Mapping[str, float]) -> float:
    """Return the logarithm of the odds that a rule holds before a prompt of work."""
    request, deeds, words = rule.request, rule.deeds, content(prompt)
    texts = [each.text[:_MAX_CHARS] for each in (*deeds, request, rule.item) if each]
    near = _TEXT * cosines.get(rule.item.id, 0.0)
    near += _REQUEST * cosines.get(request.id, 0.0) if request else 0.0
    near += _DEED * max((cosines.get(deed.id, 0.0) for deed in deeds), default=0.0)
    shared = len(words & content(" ".join(texts))) / max(1, len(words))
    return near + _WORDS * shared - _LEAST + _REPEATED * math.log2(rule.times)


@lru_cache(1024)  # the same rules are compared with every prompt
def content(text: str) -> frozenset[str]:
    """Return the stems of a text's words of content; of a script without spaces, pairs."""
    return frozenset(word for word in stems(text) - words_of("stop_words") if len(word) > 1)
