"""Find the rules that a user set by correcting an assistant, before a task like the corrected one.

A rule's own words seldom resemble the next task ("Use pnpm", "Install lodash").  The request that
was corrected does, and so does what had been done: the lines before the rule's own in its session.
They are only compared, never shown: another agent's lines stay its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from memtier_plugin.core.records import CORRECTED, Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.kinds_of_work import OTHER, kind_model, profile
from memtier_plugin.retrieval.rule_words import sets_rule
from memtier_plugin.retrieval.signals import ScoredRow
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
    """A rule with the request that it corrected and what had been done; "" where unknown.

    ``times`` is how many lines say so.
    """

    row: int
    item: Entry | Fact
    times: int = 1
    request: str = ""
    deed: str = ""


def find_rules(reader: Reader, viewer: Viewer, prompt: str) -> list[Hit]:
    """Return the rules in force that hold for a task, the likeliest first."""
    return read_hits(reader, select_rules(prompt, _read_rules(reader, viewer)), viewer, {})


def is_rule(hit: Hit) -> bool:
    """Return whether a hit is a rule that a user set by a correction."""
    return isinstance(hit.item, Fact) and hit.item.relation == CORRECTED


def _read_rules(reader: Reader, viewer: Viewer) -> list[Rule]:
    """Return the newest rules in force that a viewer may see."""
    own = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
    rows = reader.rule_rows([*own, *reader.shared_scopes(viewer.people)], _READ)
    if not rows:
        return []
    stored = reader.items_by_row([*rows])
    items = {row: stored[row].item for row in rows if row in stored}
    entries = {row: _line_of(item) for row, item in items.items() if viewer.may_see(item)}
    before = reader.lines_before([*entries.values()], _BEFORE)
    rules = [
        _rule(Rule(row, items[row], max(1, rows[row])), before.get(entry, ()))
        for row, entry in entries.items()
    ]
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
    standard = kind_model().standard
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
    together, *parts = (sum(map(mul, row, asked.kinds)) for row in corrected.kinds)
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

    kinds: Sequence[float]  # of length one
    idle: float
    words: frozenset[str]
    asks: float


class _Corrected(Struct, frozen=True):
    """A rule as it is compared: its parts together, its request, its deed and its own words."""

    kinds: Sequence[Sequence[float]]  # each of length one
    words: frozenset[str]


@lru_cache(8)
def _asked(prompt: str) -> _Asked:
    asks = prompt.rstrip().endswith(("?", "？"))
    idle = profile(prompt)[_other()]
    return _Asked(_unit(_of_work(prompt)), idle, _content(prompt), float(asks))


@lru_cache(1024)  # the same rules are compared with every prompt
def _corrected(request: str, deed: str, text: str) -> _Corrected:
    parts = [_of_work(part) for part in (request, deed, text)]
    together = [a + _DEED * b + _DEED * c for a, b, c in zip(*parts, strict=True)]
    kinds = [_unit(row) for row in (together, *parts)]
    return _Corrected(kinds, _content(f"{request} {deed} {text}"))


def _of_work(text: str) -> list[float]:
    """Return the profile of a text without what is no work."""
    other = _other()
    return [0.0 if at == other else share for at, share in enumerate(profile(text))]


def _other() -> int:
    return kind_model().kinds.index(OTHER)


def _unit(kinds: Sequence[float]) -> list[float]:
    length = math.hypot(*kinds)
    return [share / length for share in kinds] if length else [*kinds]


def _content(text: str) -> frozenset[str]:
    """Return the stems of a text's words of content."""
    return frozenset(word for word in stems(text) - words_of("stop_words") if len(word) > 1)
