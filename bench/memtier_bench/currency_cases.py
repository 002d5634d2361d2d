"""Read a judgement set's `currency.yaml` as talks, each with a question for what holds now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Final, cast, get_args

import yaml

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Message, Role
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.transfer.importers.reading import require_field

_MORNING: Final = time(9, tzinfo=UTC)


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
    try:
        document = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ImportFileError(f"{file}: not to be read: {error}") from error
    for number, case in enumerate(require_field(document, "cases", list, str(file)), 1):
        location = f"{file}: case {number}"
        name = require_field(case, "id", str, location)
        yield CurrencyCase(
            id=name,
            kind=require_field(case, "kind", str, location),
            sessions=tuple(
                Session(
                    session_id=f"{name}-{nth}",
                    observed_at=datetime.combine(day, _MORNING),
                    turns=tuple(
                        ImportedMessage(id=f"{name}-{nth}:{i}", message=_message(turn))
                        for i, turn in enumerate(turns)
                    ),
                )
                for nth, (day, *turns) in enumerate(require_field(case, "history", list, location))
            ),
            ask=require_field(case, "ask", str, location),
            now=tuple(require_field(case, "now", list, location)),
        )


def _message(turn: Mapping[str, str]) -> Message:
    """Return a turn as a message; a key that is not a role names a user."""
    who, content = next(iter(turn.items()))
    if who in get_args(Role):
        return Message(role=cast("Role", who), content=content)
    return Message(role="user", content=content, speaker=who)
