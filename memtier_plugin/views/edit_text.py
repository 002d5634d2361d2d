"""Memory as a text to edit, and the changes that an edit makes.  Pure.

Each line of memory follows its short id in brackets; its further lines are indented. Lines with
``#`` are comments. Changes are identified by the ids alone, so lines may be moved::

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
        group: the comment above the lines that belong together.
        head: the part before the text that must not be changed ("09:30 Ines").
        fixed: why its text cannot be changed; "" if it can.
    """

    id: str
    text: str
    group: str = ""
    head: str = ""
    fixed: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """An item of a text, by its short id; without an id it is a new line.

    ``number`` is its line number, ``after`` the short id of the last item before it.
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
    """Return each line's short id: the end of its id, long enough to be unique."""
    for length in range(SHORT_ID_CHARS, 1 + max((len(line.id) for line in lines), default=0)):
        ends = {line.id[-length:]: line.id for line in lines}
        if len(ends) == len(lines):
            return ends
    return {line.id: line.id for line in lines}


def render_text(lines: Sequence[EditLine], notes: Sequence[str]) -> str:
    """Return the text to edit: the comments, and each group's lines below its name."""
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
        parts += [f"{_INDENT}{line_text}".rstrip() for line_text in others]
    text = "\n".join(parts) + "\n"
    return text.encode("utf-8", "replace").decode()  # lone surrogates cannot be written to a file


def find_changes(lines: Sequence[EditLine], before: str, after: str) -> list[Change]:
    """Return the changes made by an edit: deletions first, then the rest in line order.

    Args:
        lines: the lines that the text was rendered from.
        before: the rendered text.

    Raises:
        MessageError: lines cannot be parsed; names the number and the remedy of each.
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
    remaining = {item.short for item in items}
    gone = [
        Change("forget", full[short], by_id[full[short]].text, "", item.number)
        for short, item in was.items()
        if short not in remaining
    ]
    return [*gone, *changes]


def _rewording(line: EditLine, was: Written, item: Written) -> Change:
    """Return the change of a line's text.

    Raises:
        ValueError: it cannot be changed in this way.
    """
    head = f"{_single_line(line.head)}: " if line.head else ""
    if line.fixed:
        raise ValueError(f"{line.fixed}; write [{item.short}] unchanged, or delete the line")
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
                f"line {item.number}: no line of the original text has the id [{item.short}]; "
                "remove the brackets to add a new line"
            )
        elif item.short in first:
            yield (
                f"line {item.number}: [{item.short}] is already on line {first[item.short]}; "
                "remove the brackets to add a new line"
            )
        first.setdefault(item.short, item.number)


def _read(text: str) -> _ItemReader:
    """Parse the items of a text, collecting errors."""
    reading = _ItemReader()
    words: list[str] | None = None  # lines of the current item
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
                    f"line {position}: an indented line continues the one above it, but there"
                    " is none; start it without spaces"
                )
                continue
            words.append(line.removeprefix("\t") if line[0] == "\t" else line[len(_INDENT) :])
        elif not line:
            if words is not None:
                words.append("")  # part of an item if an indented line follows
        else:
            finish()
            if line.startswith("#"):
                continue
            item = _ITEM.fullmatch(line)
            if line.startswith("[") and not (item and item[1]):
                reading.problems.append(
                    f"line {position}: it starts with a bracket but has no [id]; start a new line"
                    " with a word"
                )
                continue
            number, short = position, item[1].upper() if item else None
            words = [(item[2] or "") if item else line.strip()]
    finish()
    return reading


def _normal(text: str) -> str:
    """Return a text without what an editor may drop: trailing spaces and trailing empty lines."""
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def _single_line(text: str) -> str:
    return " ".join(text.split())
