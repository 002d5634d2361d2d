"""Read the cases of judgement sets, those of `currency.yaml` as talks with a question each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import yaml

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.ingest.messages import ImportedMessage, Session, parse_messages
from memtier_plugin.transfer.importers.reading import require_field


@dataclass(frozen=True, slots=True)
class CurrencyCase:
    """What was said in which session, a question, and the values (any of) that hold now."""

    id: str
    kind: str
    sessions: tuple[Session, ...]
    ask: str
    now: tuple[str, ...]

    def holds(self, text: str) -> bool:
        """Return whether a text has a value that holds now."""
        return any(value in text for value in self.now)


def read_currency_cases(path: Path) -> Iterator[CurrencyCase]:
    """Yield the cases of a judgement set's folder, or of the file itself.

    Raises:
        ImportFileError: it is missing or malformed; names the file and the case.
    """
    file = path / "currency.yaml" if path.is_dir() else path
    document = read_cases(file, "cases")
    for number, case in enumerate(document["cases"], 1):
        location = f"{file}: case {number}"
        name = require_field(case, "id", str, location)
        yield CurrencyCase(
            id=name,
            kind=require_field(case, "kind", str, location),
            sessions=tuple(
                Session(
                    session_id=f"{name}-{nth}",
                    observed_at=morning_of(day),
                    turns=tuple(
                        ImportedMessage(id=f"{name}-{nth}:{i}", message=message)
                        for i, message in enumerate(parse_messages(to_messages(turns)))
                    ),
                )
                for nth, (day, *turns) in enumerate(require_field(case, "history", list, location))
            ),
            ask=require_field(case, "ask", str, location),
            now=tuple(require_field(case, "now", list, location)),
        )


def read_cases(file: Path, *keys: str) -> Any:
    """Read a file of a judgement set, and check that it has these lists.

    Raises:
        ImportFileError: it is missing or malformed; names file and remedy.
    """
    remedy = "the files are described in docs/evaluation.md"
    try:
        document = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ImportFileError(f"{file}: not to be read: {error}; {remedy}") from error
    for key in keys:
        if not isinstance(document, dict) or not isinstance(document.get(key), list):
            raise ImportFileError(f"{file}: expected a list {key!r}; {remedy}")
    return document


def to_messages(turns: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return turns as messages; a key that is not a role names a user."""
    messages = []
    for turn in turns:
        who, text = next(iter(turn.items()))
        if who == "tool":
            messages.append({"role": "tool", "content": text, "name": turn.get("name", "tool")})
        elif who in ("user", "assistant"):
            messages.append({"role": who, "content": text})
        else:
            messages.append({"role": "user", "content": text, "name": who})
    return messages


def morning_of(day: date) -> datetime:
    """Return nine o'clock on a day."""
    return datetime.combine(day, time(9, tzinfo=UTC))
