"""Sessions, exchanges and turns of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memtier_plugin.core.records import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message, with the name its file gives it and the run it belongs to, where known."""

    id: str
    message: Message
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
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
    def exchanges(self) -> tuple[Exchange, ...]:
        """The session as exchanges, whose ids stay the same when the file is read again.

        An exchange starts where a user speaks after an answer; between people, where the one
        who opened the session speaks after another.
        """
        groups: list[list[Turn]] = []
        for turn in self.turns:
            if not groups or _starts_exchange(
                turn.message, groups[-1][-1].message, self.turns[0].message
            ):
                groups.append([])
            groups[-1].append(turn)
        return tuple(
            Exchange(
                run_id=next((t.run_id for t in group if t.run_id), f"{self.session_id}:{number}"),
                turns=tuple(group),
            )
            for number, group in enumerate(groups, start=1)
        )


def _starts_exchange(message: Message, before: Message, first: Message) -> bool:
    if message.role != "user":
        return False
    if before.role != "user":
        return True
    return message.speaker == first.speaker and message.speaker != before.speaker
