"""Memory as a text to edit, and the difference that an edited one makes.  Pure.

Each line of memory stands behind its short id in brackets; its further lines are indented. Lines
with ``#`` are notes. What was changed is told by the ids alone, so lines may be moved::

    # Ines
    [5H61N2FJ] Ines lives in Porto.
    [7XW9K06D] 09:30 Ines: The first of
      two lines.
    A line without an id is new.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from memtier_plugin.core.errors import MessageError
from memtier_plugin.lifecycle.edit import Change
from memtier_plugin.retrieval.block import SHORT_ID_CHARS

_ITEM: Final = re.compile(r"\[([0-9A-Za-z]*)\](?: (.*)|)", re.DOTALL)
_INDENT: Final = "  "
_MOST_PROBLEMS: Final = 10  # shown at once


@dataclass(frozen=True, slots=True)
class EditLine:
    """A line of memory to edit.

    Attributes:
        group: the note above the lines that belong together.
        head: what stands before the words and is not to be changed ("09:30 Ines").
        fixed: why its words cannot be changed; "" where they can.
    """

    id: str
    text: str
    group: str = ""
    head: str = ""
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """An item of a text, by its short id; without an id it is a new line.

    ``number`` is the line's in the text, ``after`` the short id of the last item before it.
    """

    number: int
    short: str | None
    text: str
    after: str | None


@dataclass(slots=True)
class _ItemReader:
    """The items read so far, and the problems found."""

    items: list[Written] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def short_ids(lines: Sequence[EditLine]) -> dict[str, str]:
    """Return each line's id by its end, as short as the ends are all different."""
    for length in range(SHORT_ID_CHARS, 1 + max((len(line.id) for line in lines), default=0)):
        ends = {line.id[-length:]: line.id for line in lines}
        if len(ends) == len(lines):
            return ends
    return {line.id: line.id for line in lines}


def render_text(lines: Sequence[EditLine], notes: Sequence[str]) -> str:
    """Return the text to edit: the notes, and each group's lines below its name."""
    short_of = {identity: short for short, identity in short_ids(lines).items()}
    parts = [f"# {note}".rstrip() for note in notes]
    group = None
    for line in lines:
        if line.group != group:
            group = line.group
            parts += ["", f"# {_single_line(group)}".rstrip()]
        first, *others = _normal(line.text).split("\n")
        head = f"{_single_line(line.head)}: " if line.head else ""
        parts.append(f"[{short_of[line.id]}] {head}{first}".rstrip())
        parts += [f"{_INDENT}{other}".rstrip() for other in others]
    text = "\n".join(parts) + "\n"
    return text.encode("utf-8", "replace").decode()  # half a character cannot stand in a file


def find_changes(lines: Sequence[EditLine], before: str, after: str) -> list[Change]:
    """Return the changes of an edited text: deletions first, then the rest in the order of lines.

    Args:
        lines: from which the text was made.
        before: the text as it was given out.

    Raises:
        MessageError: a line cannot be understood; names the number and the remedy of each.
    """
    full, by_id = short_ids(lines), {line.id: line for line in lines}
    was = {item.short: item for item in _read(before).items if item.short}
    reading = _read(after)
    items, problems = reading.items, reading.problems
    if not items and was and not after.strip():
        problems.append("line 1: the text is empty; to forget everything, use `memtier forget`")
    problems += _misplaced(items, full)
    changes = []
    for item in items:
        if item.short is None:
            above = full.get(item.after or "")
            changes.append(Change("add", None, "", item.text, item.number, above))
        elif item.short in was and item.text != was[item.short].text:
            line = by_id[full[item.short]]
            try:
                changes.append(_rewording(line, was[item.short], item))
            except ValueError as problem:
                problems.append(f"line {item.number}: {problem}")
    if problems:
        raise MessageError("; ".join(problems[:_MOST_PROBLEMS]))
    kept = {item.short for item in items}
    gone = [
        Change("forget", full[short], by_id[full[short]].text, "", item.number)
        for short, item in was.items()
        if short not in kept
    ]
    return [*gone, *changes]


def _rewording(line: EditLine, was: Written, item: Written) -> Change:
    """Return the change of a line's words.

    Raises:
        ValueError: they cannot be changed so.
    """
    head = f"{_single_line(line.head)}: " if line.head else ""
    if line.fixed:
        raise ValueError(f"{line.fixed}; write [{item.short}] as it was, or delete the line")
    if not item.text.startswith(head):
        raise ValueError(f"leave {head.strip()!r} before the words of [{item.short}]")
    words = item.text[len(head) :].strip()
    if not words:
        raise ValueError(f"[{item.short}] has no words; delete the line to forget it")
    return Change("reword", line.id, was.text[len(head) :], words, item.number)


def _misplaced(items: Sequence[Written], full: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each item with an unknown or repeated id."""
    first: dict[str, int] = {}
    for item in items:
        if item.short is None:
            continue
        if item.short not in full:
            yield (
                f"line {item.number}: no line that was given out has the id [{item.short}]; "
                "without the brackets it is a new line"
            )
        elif item.short in first:
            yield (
                f"line {item.number}: [{item.short}] stands on line {first[item.short]} already; "
                "without the brackets it is a new line"
            )
        first.setdefault(item.short, item.number)


def _read(text: str) -> _ItemReader:
    """Read the items of a text, and what cannot be read of it."""
    reading = _ItemReader()
    words: list[str] | None = None  # of the item at hand
    number, short, above = 0, None, None

    def finish() -> None:
        nonlocal words, above
        if words is not None:
            reading.items.append(Written(number, short, _normal("\n".join(words)), above))
            above = short or above
        words = None

    for position, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.rstrip()
        if line.startswith((_INDENT, "\t")):
            if words is None:
                reading.problems.append(
                    f"line {position}: an indented line goes on with the one above it, and there"
                    " is none; begin it without spaces"
                )
                continue
            words.append(line.removeprefix("\t") if line[0] == "\t" else line[len(_INDENT) :])
        elif not line:
            if words is not None:
                words.append("")  # within an item if an indented line follows
        else:
            finish()
            if line.startswith("#"):
                continue
            item = _ITEM.fullmatch(line)
            if line.startswith("[") and not (item and item[1]):
                reading.problems.append(
                    f"line {position}: it starts with a bracket, and not with an [id]; a new line"
                    " starts with a word"
                )
                continue
            number, short = position, item[1].upper() if item else None
            words = [(item[2] or "") if item else line.strip()]
    finish()
    return reading


def _normal(text: str) -> str:
    """Return a text without what an editor may drop: spaces at the ends of lines, empty ends."""
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def _single_line(text: str) -> str:
    return " ".join(text.split())
