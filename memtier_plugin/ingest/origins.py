"""Determine messages' origins when they are recorded: authors, held lines, confidences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Final

from memtier_plugin.core.errors import IndexProblem, NotFound
from memtier_plugin.core.events import ConfideEvent, ForgetEvent
from memtier_plugin.core.records import Entry, Fact, JournalEvent, Message, Run, ToolCall
from memtier_plugin.core.structs import replace_fields as replace
from memtier_plugin.ingest.user_acts import tells_act
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.phrases import only_acknowledges
from memtier_plugin.trust.confidences import Confidence, find_confidence
from memtier_plugin.trust.escaping import remove_quotes, says_more
from memtier_plugin.trust.external_text import ExternalText
from memtier_plugin.trust.origins import (
    brings_external_text,
    effective_origin,
    is_own_tool,
    is_wrapper,
    shown_lines,
    unwrap_call,
)

# -- Determine messages' origins if the host does not state them
#
# Results written by strangers are external.  MemTier's own output counts as the system's, whoever
# returns it: its tools' results, blocks and quoted lines are no evidence and are not recalled.


def with_origins(messages: Sequence[Message], local: Sequence[str]) -> Sequence[Message]:
    """Return the messages of a run with their origins, and without MemTier's own output.

    Args:
        local: the tools of `trust.local_tools`.
    """
    calls: dict[str | None, ToolCall] = {}
    marked = []
    for message in messages:
        calls.update({call.call_id: call for call in message.tool_calls if call.call_id})
        marked.append(
            _result(message, calls, local) if message.role == "tool" else _spoken(message)
        )
    return marked


def _result(
    message: Message, calls: Mapping[str | None, ToolCall], local: Sequence[str]
) -> Message:
    tool = message.tool or ToolCall(name="tool")
    call = calls.get(tool.call_id, tool)
    origin = message.origin
    if origin is None and brings_external_text(
        call.name, call.arguments, message.content, local=local
    ):
        origin = "external"
    elif origin in (None, "tool") and (
        _is_own(call) or is_own_tool(tool.name) or remove_quotes(message.content) != message.content
    ):
        origin = "system"
    return message if origin == message.origin else replace(message, origin=origin)


def _spoken(message: Message) -> Message:
    if message.origin == "external":
        return message
    content = remove_quotes(message.content)
    if content != message.content:
        if not says_more(content):
            return replace(message, origin="system")
        message = replace(message, content=content)
    only_own = message.tool_calls and all(map(_is_own, message.tool_calls))
    if only_own and (not content.strip() or only_acknowledges(content)):
        return replace(message, origin="system")
    return message


def _is_own(call: ToolCall) -> bool:
    return is_own_tool(unwrap_call(call.name, call.arguments)[0])


# -- Hold back assistant messages that repeat external text
#
# A message is compared with the external text of its session: pages, mail, results of tools that
# reach out, external lines that a memory tool returned; of this run and of earlier ones.

_EARLIER: Final = 500  # newest entries of a session that are read, and
_EARLIER_CHARS: Final = 400_000  # their total characters


class HeldLines:
    """Follows the runs of an agent as they are recorded.

    Most sessions have no external text; their text is only buffered until some arrives.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._sessions: dict[str, ExternalText] = {}
        self._waiting: dict[str, list[Message | Entry]] = {}

    def positions(self, run: Run, messages: Sequence[Message]) -> frozenset[int]:
        """Return the positions of a run's messages that are held back.

        Args:
            messages: the run's, in order; the runs of a session come in order too.
        """
        session = self._sessions.get(run.session)
        if session is None:
            waiting = self._waiting.get(run.session)
            if waiting is None:
                answers = any(message.role == "assistant" for message in messages)
                waiting = [*self._earlier(run)] if answers else []
                self._waiting[run.session] = waiting
            brings = run.seen or any(
                item.origin == "external"
                or (item.origin == "system" and item.tool)  # possibly the output of a memory tool
                or (isinstance(item, Entry) and item.tainted)
                for item in (*waiting, *messages)
            )
            if not brings:
                waiting += messages
                return frozenset()
            self._sessions[run.session] = session = ExternalText(self._actor.store.tokenizer.words)
            for item in self._waiting.pop(run.session):
                _add(session, item)
        for text in run.seen:
            session.add_external(text)
        session.begin_run()
        held = set()
        for position, message in enumerate(messages):
            shown = message.role == "assistant" or tells_act(message)
            if shown and _is_held(session, message):
                held.add(position)
            else:
                _add(session, message)
        return frozenset(held)

    def _earlier(self, run: Run) -> list[Entry]:
        """Return the session's earlier entries, oldest first.

        The assistant has read all of them, whoever spoke.
        """
        store = self._actor.store
        with suppress(IndexProblem), store.session() as reader:
            scopes = reader.scopes(run.agent, run.sender, read_all=True)
            rows = reader.newest_in_session(run.agent, run.session, scopes, _EARLIER)
            stored = reader.items_by_row(rows)
            entries, room = [], _EARLIER_CHARS
            for row in rows:
                entry = stored[row].item if row in stored else None
                if isinstance(entry, Entry) and entry.run_id != run.run and room > 0:
                    entries.append(entry)
                    room -= len(entry.content)
            return entries[::-1]
        return []


def _is_held(session: ExternalText, message: Message) -> bool:
    if message.origin == "external":
        return True
    if not session:
        return False
    texts = [message.content, *(call.arguments for call in message.tool_calls)]
    if any(map(session.is_carried_by, texts)):
        return True
    return session.read_in_run and not session.is_grounded("\n".join(texts))


def _add(session: ExternalText, item: Message | Entry) -> None:
    """Add an item to the session: as external text, or as the user's or the machine's."""
    if tells_act(item):
        return  # it quotes what the assistant wrote, which proves nothing
    origin = effective_origin(item) if isinstance(item, Entry) else item.origin or item.role
    if origin == "external":
        if item.role != "assistant":
            session.add_external(item.content)
    elif _is_shown_by_memory(item):
        for line, external in shown_lines(item.content):
            (session.add_external if external else session.add_trusted)(line)
    elif origin == "user" or not session:
        session.add_trusted(item.content)
    # Anything else said or printed after external text may come from it, so it proves nothing.


def _is_shown_by_memory(item: Message | Entry) -> bool:
    """Return whether an item is the answer of a memory tool, called directly or by a wrapper."""
    name = item.tool.name if item.tool else ""
    return item.origin == "system" and (is_own_tool(name) or is_wrapper(name))


# -- Detect confidential runs when they are recorded, and mark earlier entries

_LAST: Final = 50  # newest entries of a session in which its last run is looked up
_MOSTLY: Final = 10  # of which the first few usually suffice


class Confidences:
    """The confidences of one agent: decided when a run is written, or marked later."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def find_private(self, runs: Sequence[tuple[Run, Sequence[Message]]]) -> list[bool]:
        """Return which runs are confidences.

        A run is one if its host or its own words say so, if its session is marked private, or if
        the last message before it announced a confidence.
        """
        private = [run.private or bool(_confidences_in(messages)) for run, messages in runs]
        if all(private):
            return private
        with suppress(IndexProblem), self._store.session() as reader:
            marks = reader.events(kinds=[ConfideEvent.KIND], agent=self._actor.agent)
            sessions = {(mark.session, mark.sender) for mark in map(ConfideEvent.of, marks)}
            newest = cache(partial(self._newest, reader))
            for number, (run, messages) in enumerate(runs):
                if not sessions.isdisjoint({(run.session, None), (run.session, run.sender)}):
                    private[number] = True
                elif not private[number]:
                    before = self._last_run(reader, run, newest(run.session, run.sender))
                    # What a user undid was done in the run before.
                    confided = any(map(tells_act, messages)) and any(e.private for e in before)
                    announced = any(each.after for each in _confidences_in(before))
                    private[number] = confided or announced
        return private

    def mark_earlier(self, run: Run, messages: Sequence[Message]) -> None:
        """Mark what a recorded run makes a confidence: what was said before it, or the session.

        Raises:
            LedgerError, IndexProblem: it was not marked.
        """
        confidences = _confidences_in(messages)
        if any(confidence.whole for confidence in confidences):
            self.mark_session(run.session, run.sender)
        elif any(confidence.before for confidence in confidences):
            with self._store.session() as reader:
                rows = self._newest(reader, run.session, run.sender)
                items = [entry.id for entry in self._last_run(reader, run, rows)]
            self._mark(items)

    def mark_session(self, session: str, sender: str | None = None) -> tuple[str, ...]:
        """Make a session a confidence, including everything said in it later; return its entries.

        Facts that rest on them alone are forgotten, and so are the summaries that quote them.

        Args:
            sender: only what this person says in it.

        Raises:
            NotFound: the agent has no such session.
            LedgerError, IndexProblem: it was not marked.
        """
        self._store.catch_up_all()
        with self._store.session() as reader:
            stored = reader.items(reader.ids_in_session(self._actor.agent, session))
        items = [i for i, line in stored.items() if _is_of(line.item, sender)]
        if not items:
            raise NotFound(
                f"{self._actor.agent} has no session {session!r}; `memtier sessions` lists them"
            )
        self._mark(items, session, sender)
        return tuple(items)

    def _mark(
        self, items: Collection[str], session: str | None = None, sender: str | None = None
    ) -> None:
        if not items:
            return
        with self._store.session() as reader:
            facts = [
                stored.item.id
                for stored in reader.items(reader.facts_citing(items)).values()
                if isinstance(stored.item, Fact) and stored.item.shelf
            ]
            facts += [
                stored.item.id
                for stored in reader.items(reader.dependent_facts(items)).values()
                if isinstance(stored.item, Fact) and not stored.item.private_to
            ]
        marked = ConfideEvent(items=tuple(items), session=session, sender=sender)
        events: list[JournalEvent] = [self._actor.event(marked)]
        if facts:
            events.append(self._actor.event(ForgetEvent(items=tuple(dict.fromkeys(facts)))))
        self._store.append_events(events, shared=True)

    def _newest(self, reader: Reader, session: str, sender: str | None) -> list[int]:
        """Return the newest rows of a session."""
        agent = self._actor.agent
        return reader.newest_in_session(agent, session, reader.scopes(agent, sender), _LAST)

    def _last_run(self, reader: Reader, run: Run, rows: list[int]) -> list[Entry]:
        """Return the last entries of the session before a run."""
        last: list[Entry] = []
        for newest in (rows[:_MOSTLY], rows):
            stored = reader.items_by_row(newest)
            entries = [stored[row].item for row in newest if row in stored]
            earlier = [e for e in entries if isinstance(e, Entry) and e.run_id != run.run]
            last = [entry for entry in earlier if entry.run_id == earlier[0].run_id]
            if len(last) < len(earlier):  # otherwise it may begin before them
                break
        return last


def _is_of(item: Entry | Fact, sender: str | None) -> bool:
    return sender is None or (isinstance(item, Entry) and item.sender == sender)


def _confidences_in(messages: Sequence[Message | Entry]) -> list[Confidence]:
    """Return what the people who speak make confidential."""
    spoken = (m.content for m in messages if m.role == "user" and m.origin in (None, "user"))
    return [confidence for text in spoken if (confidence := find_confidence(text))]
