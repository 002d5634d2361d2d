"""Transcripts: the sessions, exchanges and turns of a file, and reading files without surprises.

Everything here raises ImportFileError, which names the file, the place in it and what was expected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from memtier_plugin.errors import ImportFileError
from memtier_plugin.records import Message, from_iso

T = TypeVar("T")

_TYPE_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    list: "a list",
    dict: "an object",
    int: "a whole number",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message, with the name its file gives it and the run it belongs to, where known."""

    id: str
    message: Message
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One exchange: what was asked and everything up to the next question."""

    run_id: str
    turns: tuple[Turn, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the exchange."""
        return tuple(turn.message for turn in self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of a file; `observed_at` is None where the file does not say when it was.

    ``sender`` is for whom alone it is recalled, where the file has several people's.
    """

    session_id: str
    observed_at: datetime | None
    turns: tuple[Turn, ...]
    sender: str | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the session, in order."""
        return tuple(turn.message for turn in self.turns)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The session as exchanges, whose ids stay the same when the file is read again.

        An exchange starts where a user speaks after an answer; between people, where the one
        who opened the session speaks after another.
        """
        groups: list[list[Turn]] = []
        for turn in self.turns:
            if not groups or _opens(turn.message, groups[-1][-1].message, self.turns[0].message):
                groups.append([])
            groups[-1].append(turn)
        return tuple(
            Run(
                run_id=next((t.run_id for t in group if t.run_id), f"{self.session_id}:{number}"),
                turns=tuple(group),
            )
            for number, group in enumerate(groups, start=1)
        )


def load_json(path: Path) -> Any:
    """Read a whole JSON file.

    Raises:
        ImportFileError: the file cannot be read, or is not JSON.
    """
    return _parse_json("".join(line for _, line in lines(path)), str(path))


def field(record: Any, name: str, kind: type[T], place: str) -> T:
    """Return a field that must be there and of that kind.

    Raises:
        ImportFileError: it is not.
    """
    if not isinstance(record, dict):
        raise ImportFileError(f"{place}: expected an object with {name!r}, found {record!r:.60}")
    value = record.get(name)
    if not isinstance(value, kind):
        expected = _TYPE_NAMES[kind]
        raise ImportFileError(f"{place}: expected {name!r} to be {expected}, found {value!r:.60}")
    return value


def parse_date(text: str, pattern: str, place: str) -> datetime:
    """Read a date in UTC by a strptime pattern.

    Raises:
        ImportFileError: the text does not fit the pattern.
    """
    try:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC)
    except ValueError:
        raise ImportFileError(
            f"{place}: expected a date as {pattern!r}, found {text!r:.60}"
        ) from None


def moment(value: Any, place: str) -> datetime | None:
    """Read a time given as ISO text, or as seconds or milliseconds since 1970; None stays None."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return from_iso(value.strip())
        seconds = float(value)
        # 1e11 seconds is the year 5138, 1e11 milliseconds is 1973: nothing lies between.
        return datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise ImportFileError(
            f"{place}: expected an ISO time such as 2026-03-14T09:30, or seconds since 1970, "
            f"found {value!r:.60}"
        ) from None


def documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a file with their places: its one value, or one a line."""
    filled = ((number, line) for number, line in lines(path) if line.strip())
    number, first = next(filled, (1, ""))
    try:
        document = json.loads(first)
    except (ValueError, RecursionError):
        yield str(path), load_json(path)
        return
    yield f"{path}:{number}", document
    for number, line in filled:
        yield f"{path}:{number}", _parse_json(line, f"{path}:{number}")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file with their numbers."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ImportFileError(
                        f"{path}:{number}: expected UTF-8 text: {error.reason} "
                        f"at byte {error.start}"
                    ) from None
                yield number, text
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read: {error.strerror}") from error


def _parse_json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ImportFileError(
            f"{place}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ImportFileError(f"{place}: JSON nested too deeply") from None


def _opens(message: Message, before: Message, first: Message) -> bool:
    if message.role != "user":
        return False
    if before.role != "user":
        return True
    return message.speaker == first.speaker and message.speaker != before.speaker
