"""From ranked hits to the block that stands in a prompt.  Pure.

The block is fenced; each line has a date, who said it and a short id.  What is recalled was once
written by somebody, so it is made harmless (`trust.escaping`), and says where it comes from when
that is neither the user nor, for an entry, the assistant.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec import Struct

from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.records import Entry, Fact, count_tokens
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.retrieval.pasted_text import mark_pasted
from memtier_plugin.text.dates.spans import resolve_times
from memtier_plugin.text.phrases import MAX_ASKED, TOOL_CALL_MARK, is_standing_instruction
from memtier_plugin.trust.escaping import FENCE, NOTICE, escape_line, escape_name
from memtier_plugin.trust.external_text import find_other_values
from memtier_plugin.trust.origins import effective_origin, is_doubtful, is_foreign

CUT_MARK: Final = " [...]"
MIN_LINE_TOKENS: Final = 8  # of the shortest line: its date, who and id
SHORT_ID_CHARS: Final = 8  # of an id that are shown; the end of a ULID is its random part
_ANSWERS: Final = 16  # held lines that are looked at for a tool's value


class Packed(Struct, frozen=True):
    """The indexes chosen from a ranking, in its order, with the tokens granted to each."""

    chosen: tuple[tuple[int, int], ...]
    tokens: int


class RefusedLine(Struct, frozen=True):
    """The reason why a hit has no line in the block.

    ``needed`` and ``left`` are tokens: what its line costs, and what the lines before it left.
    """

    by: Literal["k", "tokens", "tries"]
    needed: int
    left: int


def keep_injectable(hits: Iterable[Hit], *, guarded: bool = True) -> list[Hit]:
    """Return the hits that may stand in a prompt unasked.

    What a tool said may where it only gives another value to what the user said.
    """
    offered = [(hit, is_injectable(hit, guarded=guarded)) for hit in hits]
    answers = [hit.text for hit, allowed in offered if not allowed and _is_answer(hit)]
    values: Collection[str] = ()
    if answers:
        own_lines = [hit.text for hit, allowed in offered if allowed and _is_the_users(hit)]
        values = find_other_values(answers[:_ANSWERS], own_lines)
    return [
        hit if allowed else hit.with_note("said by a tool")
        for hit, allowed in offered
        if allowed or (hit.text in values and _is_answer(hit))
    ]


def _is_answer(hit: Hit) -> bool:
    """Return whether a hit is short enough for a value that the assistant took from a tool."""
    item = hit.item
    if not isinstance(item, Entry) or item.origin != "assistant":
        return False
    return len(hit.text) <= MAX_ASKED and not is_standing_instruction(hit.text)


def _is_the_users(hit: Hit) -> bool:
    return hit.item.origin == "user" and len(hit.text) <= MAX_ASKED


def is_injectable(hit: Hit, *, guarded: bool = True) -> bool:
    """Return whether a hit may stand in a prompt unasked.

    What rests on text from outside may not, unless somebody accepted it.
    """
    if isinstance(hit.item, Entry) and hit.item.role not in ("user", "assistant"):
        return not guarded
    return not (guarded and is_doubtful(hit.item))


def pack(costs: Iterable[int], k: int, budget: int, least: int = 1) -> Packed:
    """Choose by rank what fits, skip what does not, stop at ``k``.

    Only the very first may be cut: when it alone is larger than the budget it gets all of it.

    Args:
        costs: tokens of each candidate, best first; read only as far as needed.
        least: no candidate costs less, so that with less than this left nothing more is tried.
    """
    chosen: list[tuple[int, int]] = []
    left = budget
    if k < 1 or left < least:
        return Packed((), 0)
    for index, cost in enumerate(costs):
        granted = min(cost, left) if index == 0 else cost
        if granted <= left:
            chosen.append((index, granted))
            left -= granted
        if len(chosen) == k or left < least:
            break
    return Packed(tuple(chosen), budget - left)


class BlockPlan(Struct, frozen=True):
    """The hits offered to a block, and its size.

    Attributes:
        k: how many lines it may have.
        budget: how many tokens, the frame included.
        excerpt: what is shown of a text.
        tries: how many hits are looked at, so that the last free tokens do not cost a reading
            of everything; all when None.
        guarded: off puts every text there as it was written (`trust.defence`).
        mark: adds to a hit what is to be noted of the text shown.
    """

    hits: Sequence[Hit]
    k: int
    budget: int
    excerpt: Callable[[str], str] = lambda text: text
    tries: int | None = None
    guarded: bool = True
    mark: Callable[[Hit, str], Hit] = lambda hit, text: hit

    def fill(self, recall_id: str, without: str = "") -> tuple[tuple[Hit, ...], str]:
        """Return the hits that are injected, and the block; its tokens never exceed the budget.

        Nothing is injected when not even the frame and a few words fit.

        Args:
            without: the id of a hit whose line is left out; none takes its place.
        """
        room = self._room(recall_id)
        marked: list[Hit] = []
        lines: list[str] = []
        costs: list[int] = []

        def next_costs() -> Iterator[int]:
            for hit in self.hits[: self.tries]:
                noted, line = self._line(hit, room)
                marked.append(noted)
                lines.append(line)
                costs.append(_cost(line))
                yield costs[-1]

        packed = pack(next_costs(), self.k, room, MIN_LINE_TOKENS)
        chosen = [pair for pair in packed.chosen if self.hits[pair[0]].id != without]
        shown = [
            lines[index] if costs[index] <= tokens else truncate(lines[index], tokens)
            for index, tokens in chosen
        ]
        if not shown or "] " not in shown[0].removesuffix(CUT_MARK):  # cut before its first word
            return (), ""
        return tuple(marked[index] for index, _ in chosen), frame_lines(recall_id, shown)

    def explain_refusal(self, index: int, recall_id: str) -> RefusedLine:
        """Return why the hit at this index has no line."""
        room = self._room(recall_id)
        tried = (*self.hits[:index][: self.tries], self.hits[index])
        costs = [_cost(self._line(hit, room)[1]) for hit in tried]
        packed = pack(costs[:-1], self.k, room, MIN_LINE_TOKENS)
        left = room - packed.tokens
        if len(packed.chosen) >= self.k:
            return RefusedLine("k", costs[-1], left)
        in_turn = self.tries is None or index < self.tries
        by_tokens = in_turn or left < MIN_LINE_TOKENS
        return RefusedLine("tokens" if by_tokens else "tries", costs[-1], left)

    def _room(self, recall_id: str) -> int:
        return self.budget - count_tokens(frame_lines(recall_id, []))

    def _line(self, hit: Hit, room: int) -> tuple[Hit, str]:
        text = hit.text
        if not (isinstance(hit.item, Fact) and hit.item.shelf):  # a choice of passages already
            text = self.excerpt(text)
        hit = self.mark(hit, text)
        if self.guarded:
            text = _with_marks(hit, text)
        # Twice what could fit is enough to know that a long text does not.
        text = text[: 8 * max(0, room)]
        if isinstance(hit.item, Entry):  # those of a fact are resolved in its own text
            text = resolve_times(text, hit.item.observed_at.date())
        return hit, _format(hit, text, guarded=self.guarded)


def format_line(hit: Hit, text: str) -> str:
    """Return one line of the block: date, who, short id, and the words made harmless.

    What somebody pasted into a message stands in marks: it is not their word.
    """
    return _format(hit, _with_marks(hit, text), guarded=True)


def _with_marks(hit: Hit, text: str) -> str:
    item = hit.item
    if not isinstance(item, Entry) or item.role != "user":
        return text
    return mark_pasted(text, item.content)


def _format(hit: Hit, text: str, *, guarded: bool) -> str:
    name, safe = (escape_name, escape_line) if guarded else (str, str)
    item = hit.item
    who = _fact_label(item) if isinstance(item, Fact) else _speaker_label(item, name)
    short = name(item.id[-SHORT_ID_CHARS:])  # an id may be somebody else's, from an edited ledger
    note = f" ({safe(hit.note)})" if hit.note else ""
    if isinstance(item, Entry) and item.role == "assistant" and TOOL_CALL_MARK in text:
        text = "\n".join(map(_readable_call, text.split("\n")))
    return f"- [{hit_time(hit):%Y-%m-%d} {who} {short}] {safe(text)}{note}"


def _readable_call(line: str) -> str:
    """Return a line of an entry; of a recorded call its tool and the values it was given."""
    if not line.startswith(TOOL_CALL_MARK):
        return line
    inside = line.removeprefix(TOOL_CALL_MARK).strip()
    name, _, arguments = inside.removesuffix("]").partition(" ")
    values: Any = None
    with suppress(ValueError):  # cut off, or the model's own text
        values = parse_json_text(arguments)
    if isinstance(values, dict):
        plain = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in values.items()
        }
        named = ", ".join(f"{key}={value}" for key, value in plain.items())
        arguments = named if len(plain) > 1 else "".join(plain.values())
    return f"called {name}: {arguments}" if arguments else f"called {name}"


def _fact_label(fact: Fact) -> str:
    label = fact.shelf or ("fact" if fact.tier == "semantic" else "how-to")
    usual = ("user",) if label == "fact" else ("user", "assistant")
    return label if fact.origin in usual else f"{label}/{fact.origin}"


def _speaker_label(entry: Entry, name: Callable[[str], str]) -> str:
    label = name(entry.speaker) if entry.speaker else entry.role
    if entry.parent and entry.role == "user":
        return f"{label}/agent"  # the agent's that sent this one, not a person's words
    origin = effective_origin(entry)
    return f"{label}/{origin}" if is_foreign(origin) and origin != entry.role else label


def truncate(line: str, tokens: int) -> str:
    """Return the beginning of a line within so many tokens, with a mark where it is cut."""
    room = tokens - count_tokens(f"{CUT_MARK}\n")
    size = bisect_right(range(len(line) + 1), room, key=lambda end: count_tokens(line[:end])) - 1
    beginning = line[: max(0, size)].rstrip()
    return f"{beginning}{CUT_MARK}" if beginning else ""


def _cost(line: str) -> int:
    return count_tokens(f"{line}\n")


def frame_lines(recall_id: str, lines: Sequence[str]) -> str:
    """Return a block of these lines, fenced so that it is recognised when it comes back."""
    body = "\n".join([NOTICE, *lines])
    return f'<{FENCE} recall="{recall_id}">\n{body}\n</{FENCE}>\n'
