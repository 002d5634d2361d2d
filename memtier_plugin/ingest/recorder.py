"""Record runs: clean and redact each message, and write it once per delivery key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from memtier_plugin.core.errors import LimitReached
from memtier_plugin.core.events import LimitEvent
from memtier_plugin.core.records import Entry, Message, Run
from memtier_plugin.core.structs import replace_fields as replace
from memtier_plugin.ingest.messages import Delivery, Session, key_after
from memtier_plugin.ingest.origins import Confidences, HeldLines, with_origins
from memtier_plugin.storage.protocol import NEAR_SHARE, NewRun, Quota
from memtier_plugin.storage.store import Actor

_LINE: Final = 600  # bytes of an entry's line besides its content
_TOGETHER: Final = 1000  # messages of an import that are appended and indexed together


class Recorder:
    """Writes the runs of an agent."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._agent = actor.agent
        self._redactor = actor.redactor
        self._clock = actor.clock
        self._confidences = Confidences(actor)
        self._room = Quota(actor.store.measure_usage, actor.store.settings.limits)

    def record(self, runs: Iterable[tuple[Run, Sequence[Message]]]) -> list[Entry]:
        """Append the new messages of the agent's runs durably.

        Raises:
            LedgerError: nothing was written.
        """
        local = self._store.settings.trust.local_tools
        runs = [(self._masked(run), with_origins(messages, local)) for run, messages in runs]
        private = self._confidences.find_private(runs)
        runs = [
            (replace(run, private=hidden), messages)
            for (run, messages), hidden in zip(runs, private, strict=True)
        ]
        held_lines = HeldLines(self._actor)
        entries = self._write(
            [
                self._new(run, messages, held_lines.positions(run, messages))
                for run, messages in runs
            ]
        )
        for run, messages in runs if entries else ():
            if run.private:
                self._confidences.mark_earlier(run, messages)
        return entries

    def _write(self, runs: Sequence[NewRun]) -> list[Entry]:
        """Append new messages within the limits, and journal what was cut off.

        Raises:
            LimitReached, LedgerError: nothing was written.
        """
        now, size = self._clock(), sum(map(_size, runs))
        try:
            self._room.check(size, now)
        except LimitReached:  # unless most of it is already stored
            new = self._store.undelivered_keys(self._agent, runs)
            size = sum(
                _size(run._replace(messages=[m for m in run.messages if m[0] in new]))
                for run in runs
            )
            self._room.check(size, now)
        entries = self._store.append_entries(self._agent, runs, self._clock)
        self._room.add(size if entries else 0)
        self._store.append_events(
            [self._actor.event(notice) for notice in self._limit_notices(entries)]
        )
        return entries

    def _masked(self, run: Run) -> Run:
        """Return a run with the secrets in its names masked."""
        mask = self._redactor.redact_name
        return replace(
            run,
            session=mask(run.session),
            run=mask(run.run),
            sender=self._actor.mask_name(run.sender),
            parent=self._actor.mask_name(run.parent),
        )

    def _masked_names(self, message: Message) -> Message:
        """Return a message with the secrets in its speaker and tool masked."""
        tool, speaker, mask = message.tool, message.speaker, self._redactor.redact_name
        if tool:
            tool = replace(tool, name=mask(tool.name), call_id=tool.call_id and mask(tool.call_id))
        if speaker:
            speaker = mask(speaker)
        if (tool, speaker) == (message.tool, message.speaker):
            return message
        return replace(message, tool=tool, speaker=speaker)

    def _limit_notices(self, entries: Sequence[Entry]) -> list[LimitEvent]:
        """Return the limits that new entries reached, or almost reached."""
        limits = self._store.settings.limits
        spoken = [entry for entry in entries if entry.role not in ("tool", "system")]
        cut = tuple(entry.id for entry in spoken if entry.truncated)
        near = max((len(e.content) for e in spoken if not e.truncated), default=0)
        sizes = Counter(entry.run_id for entry in entries)
        marker = _left_out(limits.run_messages)
        left = tuple(entry.run_id for entry in entries if entry.content == marker)
        longest = max((size for run, size in sizes.items() if run not in left), default=0)
        chars = partial(LimitEvent, limit="entry_chars", most=limits.entry_chars)
        messages = partial(LimitEvent, limit="run_messages", most=limits.run_messages)
        notices = []
        if cut:
            notices.append(chars(entries=cut))
        elif near >= NEAR_SHARE * limits.entry_chars:
            notices.append(chars(near=near))
        if left:
            notices.append(messages(runs=left))
        elif longest >= NEAR_SHARE * limits.run_messages:
            notices.append(messages(near=longest))
        return notices

    def record_sessions(self, sessions: Iterable[Session]) -> Iterator[list[Entry]]:
        """Record whole sessions and yield the new entries of each batch of runs.

        Raises:
            LedgerError: what was yielded is written, nothing else.
        """
        for runs in self._batches(sessions):
            yield self.record(runs)

    def reimport(self, entries: Sequence[Entry], *, dry_run: bool) -> tuple[int, dict[str, str]]:
        """Write exported entries under their original keys.

        Returns how many were new, and the present id of each key.

        Raises:
            LedgerError: nothing was written.
        """
        runs = [self._as_run(entry) for entry in entries]
        if dry_run:
            new = self._store.undelivered_keys(self._agent, runs)
            return len(new), {entry.key: entry.id for entry in entries}
        added = self._write(runs)
        with self._store.session() as reader:
            here = reader.ids_of_keys([entry.key for entry in entries])
        return len(added), here | {entry.key: entry.id for entry in added}

    def _as_run(self, entry: Entry) -> NewRun:
        run = self._masked(
            Run(
                agent=self._agent,
                session=entry.session_id,
                run=entry.run_id,
                sender=entry.sender,
                parent=entry.parent,
                private=entry.private,
            )
        )
        message = Message(
            role=entry.role,
            content=entry.content,
            speaker=entry.speaker,
            observed_at=entry.observed_at,
            origin=entry.origin,
            tool=entry.tool,
        )
        message = self._masked_names(message)
        if entry.truncated:  # already cut and marked
            prepared = replace(message, content=self._redactor.redact(message.content).text), True
        else:
            prepared = self._prepared(message)
        tainted = {entry.key} if entry.tainted else ()
        return NewRun(run, [(entry.key, *prepared)], [key_after(entry)], tainted)

    def count_new(self, sessions: Iterable[Session]) -> int:
        """Return how many messages of these sessions are not stored yet, without writing."""
        new: set[str] = set()
        for runs in self._batches(sessions):
            new_runs = [self._new(self._masked(run), messages) for run, messages in runs]
            new |= self._store.undelivered_keys(self._agent, new_runs)
        return len(new)

    def _batches(
        self, sessions: Iterable[Session]
    ) -> Iterator[list[tuple[Run, Sequence[Message]]]]:
        runs: list[tuple[Run, Sequence[Message]]] = []
        size = 0
        for session in sessions:
            for exchange in session.exchanges:
                run = Run(
                    agent=self._agent,
                    session=session.session_id,
                    run=exchange.run_id,
                    sender=session.sender,
                    observed_at=session.observed_at,
                )
                runs.append((run, exchange.messages))
                size += len(exchange.messages)
                if size >= _TOGETHER:
                    yield runs
                    runs, size = [], 0
        if runs:
            yield runs

    def prepare(self, message: Message) -> Message:
        """Return a message as it would be written."""
        return self._prepared(message)[0]

    def _new(
        self, run: Run, messages: Sequence[Message], held_positions: Collection[int] = ()
    ) -> NewRun:
        most = self._store.settings.limits.run_messages
        prepared = [
            (position, *self._prepared(message))
            for position, message in enumerate(messages[:most])
            if message.content.strip() or message.tool_calls
        ]
        if len(messages) > most:
            prepared.append((most, Message(role="system", content=_left_out(most)), False))
        delivery = Delivery(run.agent, run.run, run.sender)
        return NewRun(
            run,
            [
                (delivery.key(position, message), message, cut)
                for position, message, cut in prepared
            ],
            [delivery.place_key(position, message.role) for position, message, _ in prepared],
            tainted={
                delivery.key(position, message)
                for position, message, _ in prepared
                if position in held_positions
            },
        )

    def _prepared(self, message: Message) -> tuple[Message, bool]:
        """Return a message without our block, masked, and cut to its limit; and if it was cut."""
        content = message.content
        calls = [f"[tool call: {call.name} {call.arguments}]" for call in message.tool_calls]
        content = self._redactor.redact("\n".join([content, *calls] if content else calls)).text
        settings = self._store.settings
        cap = settings.limits.entry_chars
        if message.role == "tool":
            cap = min(cap, settings.ledger.tool_result_chars)
        truncated = len(content) > cap
        if truncated:
            content = f"{content[:cap]}\n[... {len(content) - cap} characters left out]"
        message = self._masked_names(message)
        same = content == message.content
        return message if same else replace(message, content=content), truncated


def _left_out(most: int) -> str:
    return f"[system] The messages of this run after the first {most} were left out."


def _size(run: NewRun) -> int:
    """Return the approximate size of a run's lines in bytes."""
    return sum(len(m.content.encode("utf-8", "surrogatepass")) + _LINE for _, m, _ in run.messages)
