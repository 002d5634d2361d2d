"""Writing runs: cleaned, masked, and each message once, however often its run is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from memtier_plugin.packing import clean
from memtier_plugin.records import Entry, Message, Run
from memtier_plugin.redaction import Redactor
from memtier_plugin.store import NewRun, Store
from memtier_plugin.transcripts import Session

_TOGETHER: Final = 1000  # messages of an import that are appended and indexed together


class Recorder:
    """Writes the runs of one agent."""

    def __init__(
        self, store: Store, agent: str, redactor: Redactor, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._agent = agent
        self._redactor = redactor
        self._clock = clock

    def record(self, runs: Iterable[tuple[Run, Sequence[Message]]]) -> list[Entry]:
        """Append what is not stored yet of the agent's runs; it is acknowledged on return.

        Raises:
            LedgerError: nothing was written.
        """
        return self._store.add_entries(
            self._agent, [self._new(run, messages) for run, messages in runs], self._clock
        )

    def record_sessions(self, sessions: Iterable[Session]) -> Iterator[list[Entry]]:
        """Record whole sessions and yield the new entries of each few runs written together.

        Raises:
            LedgerError: what was yielded is written, nothing else.
        """
        runs: list[tuple[Run, Sequence[Message]]] = []
        size = 0
        for session in sessions:
            for one in session.runs:
                run = Run(
                    agent=self._agent,
                    session=session.session_id,
                    run=one.run_id,
                    observed_at=session.observed_at,
                )
                runs.append((run, one.messages))
                size += len(one.messages)
                if size >= _TOGETHER:
                    yield self.record(runs)
                    runs, size = [], 0
        if runs:
            yield self.record(runs)

    def written(self, message: Message) -> Message:
        """Return a message as it would be written."""
        return self._prepared(message)[0]

    def _new(self, run: Run, messages: Sequence[Message]) -> NewRun:
        prepared = [
            (place, *self._prepared(message))
            for place, message in enumerate(messages)
            if message.content.strip() or message.tool_calls
        ]
        identity = json.dumps([run.agent, run.run])
        return NewRun(
            run,
            [(_key(identity, place, message), message, cut) for place, message, cut in prepared],
            tainted=any(message.origin == "external" for message in messages),
        )

    def _prepared(self, message: Message) -> tuple[Message, bool]:
        """Return a message without our block, masked, a tool result capped; and whether it was."""
        content = clean(message.content) if message.role == "user" else message.content
        calls = [f"[tool call: {call.name} {call.arguments}]" for call in message.tool_calls]
        content = self._redactor.redact("\n".join([content, *calls] if content else calls)).text
        cap = self._store.settings.ledger.tool_result_chars
        truncated = message.role == "tool" and len(content) > cap
        if truncated:
            content = f"{content[:cap]}\n[... {len(content) - cap} characters left out]"
        same = content == message.content
        return message if same else replace(message, content=content), truncated


def _key(run: str, place: int, message: Message) -> str:
    """Return an entry's key: agent and run (as JSON), place in the run, role and content (4.3)."""
    content = message.content.encode("utf-8", "surrogatepass")
    identity = f'{run[:-1]}, {place}, "{message.role}"]'.encode()
    return hashlib.blake2b(identity + hashlib.blake2b(content).digest(), digest_size=16).hexdigest()
