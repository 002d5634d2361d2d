"""Find the rules that a user set by correcting an assistant, before a task like the corrected one.

A rule's own words seldom resemble the next task ("Use pnpm", "Install lodash").  The request that
was corrected does, and so does what had been done: the lines before the rule's own in its session.
They are only compared, never shown: another agent's lines stay its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import CORRECTED, Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.kinds_of_work import OTHER, kind_model, profile
from memtier_plugin.retrieval.rule_words import sets_rule
from memtier_plugin.retrieval.standing import stems
from memtier_plugin.retrieval.visibility import Viewer, read_hits
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.lexicon import words_of

MAX_RULES: Final = 3  # in a block
SIGNAL: Final = "like"  # how like the prompt is to what a rule corrected
_READ: Final = 48  # rules that are looked at, the newest
_BEFORE: Final = 6  # lines before a correction, among which its request stands
_MAX_CHARS: Final = 600  # of a text that are compared
_BEHIND: Final = 2.0  # log-odds by which a rule may be less likely than the likeliest
_REPEATED: Final = 0.5  # what each doubling of a rule's sources adds to its log-odds
_DEED: Final = 0.7  # what the deed and the rule's own words count, beside the request


class Rule(Struct, frozen=True):
    """A rule as a hit, the request that it corrected and what had been done; "" where unknown."""

    hit: Hit
    request: str = ""
    deed: str = ""


def read_rules(reader: Reader, viewer: Viewer) -> list[Rule]:
    """Return the newest rules in force that a viewer may see."""
    own = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
    scopes = [*own, *reader.shared_scopes(viewer.people)]
    rows = reader.rule_rows(scopes, _READ)
    if not rows:
        return []
    hits = read_hits(reader, [(row, 0.0, {}) for row in rows], viewer, {})
    before = reader.lines_before([hit.sources[0].entry for hit in hits if hit.sources], _BEFORE)
    rules = [_rule(hit, before.get(hit.sources[0].entry, ())) for hit in hits if hit.sources]
    return [rule for rule in rules if isinstance(rule.hit.item, Fact) or _corrects(rule)]


def is_rule(hit: Hit) -> bool:
    """Return whether a hit is a rule that a user set by a correction."""
    return isinstance(hit.item, Fact) and hit.item.relation == CORRECTED


def _corrects(rule: Rule) -> bool:
    """Return whether a line that became no fact, as it is a confidence, is a correction."""
    return bool(rule.deed) and sets_rule(rule.hit.text)


def _rule(hit: Hit, before: Sequence[Entry]) -> Rule:
    """Return a rule with the last request before it, and what was done about that."""
    deeds = list[str]()
    for entry in before:  # the last first
        if entry.role == "user":
            return Rule(hit, entry.content[:_MAX_CHARS], " ".join(deeds[::-1])[:_MAX_CHARS])
        if entry.role == "assistant":
            deeds.append(entry.content)
    return Rule(hit, "", " ".join(deeds[::-1])[:_MAX_CHARS])


def select_rules(prompt: str, rules: Sequence[Rule]) -> list[Hit]:
    """Return the few rules that are likely enough to hold for a task, the likeliest first."""
    standard = kind_model().standard
    measured = list[tuple[float, Hit]]()
    for rule in rules:
        values, times = likeness(prompt[:_MAX_CHARS], rule), len(rule.hit.sources)
        odds = standard["bias"] + sum(standard[name] * value for name, value in values.items())
        measured.append((odds + _REPEATED * math.log2(times), rule.hit))
    least = max(odds for odds, _ in measured) - _BEHIND if measured else 0.0
    likely = [(o, hit) for o, hit in measured if o > max(least, standard["least"])]
    likely.sort(key=lambda each: (-each[0], each[1].id))
    scores = [(1 / (1 + math.exp(-odds)), hit) for odds, hit in likely[:MAX_RULES]]
    return [replace(hit, score=s, signals={SIGNAL: round(s, 4)}) for s, hit in scores]


def likeness(prompt: str, rule: Rule) -> dict[str, float]:
    """Return what speaks for a rule before a prompt: its kind of work, the best part's, words."""
    texts = (rule.request, rule.deed, rule.hit.text)
    wanted, parts = _of_work(prompt), [_of_work(text) for text in texts]
    summed = parts[0] + _DEED * parts[1] + _DEED * parts[2]
    together = _cosine(wanted, summed)
    words = _content(prompt)
    shared = len(words & _content(" ".join(texts))) / max(1, len(words))
    idle = float(profile(prompt)[_other()])
    return {
        "together": together,
        "best": max(_cosine(wanted, part) for part in parts),
        "words": shared,
        "asks": float(prompt.rstrip().endswith(("?", "？"))),
        "idle": idle,
        "working": together * (1 - idle),
    }


def _of_work(text: str) -> Any:
    """Return the profile of a text without what is no work; its type is numpy's."""
    kinds = profile(text).copy()
    kinds[_other()] = 0.0
    return kinds


def _other() -> int:
    return kind_model().kinds.index(OTHER)


def _cosine(first: Any, second: Any) -> float:
    length = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / length if length else 0.0


def _content(text: str) -> frozenset[str]:
    """Return the stems of a text's words of content."""
    return frozenset(word for word in stems(text) - words_of("stop_words") if len(word) > 1)
