"""The methods of `memtier serve`; home, project and agent are optional parameters of each.

Parameters are passed by name and checked against the annotations here.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from copy import copy
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from memtier_plugin import __version__
from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import EndpointRefused, MemTierError, MessageError
from memtier_plugin.core.formats import from_iso
from memtier_plugin.core.paths import make_private_folder
from memtier_plugin.core.plugins import manager, watch_failures
from memtier_plugin.core.results import (
    CallReminder,
    HookEvent,
    PromptAddition,
    PromptEvent,
    RecallOptions,
    RunContext,
    RunEvent,
    ToolCallEvent,
)
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.structs import check_fields
from memtier_plugin.ingest.messages import parse_messages, unknown_keys
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import describe_silence
from memtier_plugin.pool import memory_pool
from memtier_plugin.providers.chat import HOST_MODEL
from memtier_plugin.server.access import Access
from memtier_plugin.server.host_models import HostModels
from memtier_plugin.server.requests import BadParams, to_jsonable

METHODS: Final = (
    *("hook", "tool", "command", "recall", "ask", "explain", "record", "end_run", "remember"),
    *("forget", "unforget", "facts", "fact", "review", "status", "ping"),
    *("acknowledge", "offers", "complete"),
)
HOOKS: Final[Mapping[str, type[HookEvent] | None]] = {
    "before_prompt_build": PromptEvent,
    "before_tool_call": ToolCallEvent,
    "agent_end": RunEvent,
    "before_compaction": RunEvent,
    "session_start": None,
    "session_end": None,
}
# Hooks whose failure is reported, so that the host retries the event or continues without a block.
AWAITED_HOOKS: Final = {*HOOKS} - {"session_start", "session_end"}
MAX_TRANSLATORS: Final = 512  # kept in memory; their state is in files


class _Scope(TypedDict, total=False):
    """Parameters of every method that select the memory."""

    home: str | None
    project: str | None
    agent: str


class _HostScope(TypedDict, total=False):
    """The same for methods with a context; they fill in what it leaves out.

    ``host`` names the host in whose form the context is.
    """

    host: str | None
    home: str | None
    project: str | None
    agent: str | None


class _RunOptions(TypedDict, total=False):
    """Parameters of recorded messages."""

    run_id: str | None
    sender: str | None
    observed_at: datetime | None
    parent: str | None
    private: bool


class _EndOptions(_RunOptions, total=False):
    """Parameters of a finished run."""

    recall_ids: list[Any] | None
    error: str | None


class Methods:
    """The methods by name.

    Args:
        served: called with the context of every call that names a project.
    """

    def __init__(self, home: Path, served: Callable[[RunContext], None]) -> None:
        self.socket: str | None = None
        self.count_clients: Callable[[], int] = lambda: 1
        self.host_models = HostModels()
        self.access: Access | None = None  # None: the home's user
        self._home = str(home)
        self._translators: OrderedDict[tuple[str, str], Any] = OrderedDict()
        # Whether the host was warned, by project and agent.
        self._warned: dict[tuple[str | None, str], bool] = {}
        self._lock = Mutex()
        self._served = served

    def restricted(self, access: Access) -> Methods:
        """Return these methods for a TCP client, restricted to its token's scope."""
        restricted = copy(self)
        restricted.access = access
        return restricted

    def _admit(self, run: RunContext) -> RunContext:
        """Return the permitted context of a call, counting its project as served.

        Raises:
            NotGranted: the client's token does not cover it.
        """
        admitted = self.access.bind(run) if self.access else run
        self._served(admitted)
        return admitted

    def ping(self) -> dict[str, Any]:
        """Return the version, process, socket and number of clients of the server."""
        if self.access:
            return {"version": __version__}
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": self._home,
            "socket": self.socket,
            "clients": self.count_clients(),
        }

    def hook(
        self,
        name: str,
        context: dict[str, Any],
        event: dict[str, Any] | None = None,
        host: str | None = None,
        home: str | None = None,
        project: str | None = None,
        agent: str | None = None,
    ) -> Any:
        """Call a hook with its event and context in MemTier's form, or a host's.

        ``home``, ``project`` and ``agent`` fill in what the context leaves out.
        """
        if host is not None:
            base = RunContext(agent_id="", home=home or self._home, project=project)
            translator = self._translator(host, project)
            try:
                call = translator.translate(name, event or {}, context, base)
            except (TypeError, AttributeError, LookupError, ValueError) as error:
                raise BadParams(f"invalid {name} payload from {host}: {error}") from error
            if call is None:
                return None
            call = replace(call, context=self._admit(call.context))
            if isinstance(call.event, PromptEvent) and (event or {}).get("acknowledges") is True:
                call = replace(call, event=replace(call.event, acknowledges=True))
            with watch_failures() as errors:
                answer = self._call_hook(call.hook, call.context, call.event)
            if errors and call.hook in AWAITED_HOOKS:
                raise errors[0]
            if call.hook == "before_prompt_build":
                return {**(answer or {}), "warning": self._warning(call.context)}
            return answer
        if name not in HOOKS:
            raise BadParams(f"no hook {name!r}; there are {', '.join(HOOKS)}")
        defaults = {"home": home or self._home, "project": project, "agent_id": agent}
        kind = HOOKS[name]
        payload: HookEvent | None = None
        try:
            run = RunContext(**{**defaults, **context})
            check_fields(run)
            if kind is not None:
                fields = {**(event or {})}
                if kind is not ToolCallEvent:
                    fields["messages"] = parse_messages(fields.get("messages", ()))
                if (since := fields.get("visible_since")) is not None:
                    fields["visible_since"] = from_iso(since)
                payload = kind(**fields)
                check_fields(payload)
        except (TypeError, ValueError, MessageError) as error:
            raise BadParams(f"the event or context of {name} is wrong: {error}") from None
        return self._call_hook(name, self._admit(run), payload)

    def _call_hook(self, name: str, run: RunContext, event: HookEvent | None) -> Any:
        arguments = {} if event is None else {"event": event}
        answer = getattr(manager().hook, name)(context=run, **arguments)
        return to_jsonable(answer) if isinstance(answer, PromptAddition | CallReminder) else None

    def _warning(self, context: RunContext) -> str | None:
        """Return a warning for the host's log, once, if turns pass without anything stored."""
        with suppress(MemTierError), memory_pool.use(context) as memory:
            message = describe_silence(memory.store, context.agent_id)
            key = (context.project, context.agent_id)
            warned = self._warned.get(key)
            self._warned[key] = bool(message)
            return None if warned else message
        return None

    def _translator(self, host: str, project: str | None) -> Any:
        """Return the translator of a host's payloads, which tracks the ends of sessions.

        There is one for each host, and over TCP for each project and token binding, because hosts
        of different people may use the same session names.
        """
        from memtier_plugin.hooks.translators import HOSTS, open_translator

        if host not in HOSTS:
            hosts = ", ".join(HOSTS)
            raise BadParams(f"unknown host {host!r}; there is {hosts}")
        key = (host, self.access.state_folder(project) if self.access else "")
        with self._lock:
            if key not in self._translators:
                home = Path(self._home)
                folder = make_private_folder(home, "hosts", key[1]) if key[1] else home
                self._translators[key] = open_translator(host, folder)
                if len(self._translators) > MAX_TRANSLATORS:
                    self._translators.popitem(last=False)
            self._translators.move_to_end(key)
            return self._translators[key]

    def tool(
        self,
        name: str,
        context: dict[str, Any],
        arguments: dict[str, Any] | None = None,
        **scope: Unpack[_HostScope],
    ) -> Any:
        """Call a memory tool for a model, returning text."""
        run = self._run_context(f"the context of {name}", context, **scope)
        from memtier_plugin.hooks.tools import call_tool

        return call_tool(name, arguments or {}, run)

    def command(self, text: str, context: dict[str, Any], **scope: Unpack[_HostScope]) -> Any:
        """Answer a person's `/memtier` command in a host's chat; never for a model."""
        run = self._run_context("the command's context", context, **scope)
        from memtier_plugin.hooks.chat_commands import answer_command

        return {"text": answer_command(text, run)}

    def acknowledge(
        self, recall_id: str, context: dict[str, Any], **scope: Unpack[_HostScope]
    ) -> None:
        """Record that a host put the offered block into its prompt."""
        run = self._run_context("the context of acknowledge", context, **scope)
        with memory_pool.use(run) as memory:
            memory.acknowledge(recall_id, sender=run.sender)

    def _run_context(
        self,
        name: str,
        context: dict[str, Any],
        host: str | None = None,
        home: str | None = None,
        project: str | None = None,
        agent: str | None = None,
    ) -> RunContext:
        """Return a call's context, from a host's form or ours, counting its project as served."""
        base = RunContext(agent_id=agent or "main", home=home or self._home, project=project)
        try:
            run = (
                self._translator(host, project).context(context, base)
                if host
                else replace(base, **context)
            )
            check_fields(run)
        except (TypeError, MessageError) as error:
            raise BadParams(f"{name} is wrong: {error}") from None
        return self._admit(run)

    def recall(
        self,
        query: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        **options: Unpack[RecallOptions],
    ) -> Any:
        """Return ranked hits for a query, and the block to inject."""
        with self._memory(options.get("session_id"), home, project, agent) as memory:
            recall = memory.recall(query, **options)
        return to_jsonable(recall)

    def ask(
        self,
        question: str,
        sender: str | None = None,
        at: datetime | None = None,
        write_back: bool | None = None,
        session_id: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Answer a question, citing its ledger lines."""
        with self._memory(session_id, **scope) as memory:
            answer = memory.ask(
                question, sender=sender, at=at, write_back=write_back, session_id=session_id
            )
        return answer.to_document()

    def explain(
        self,
        recall_id: str,
        why: str | None = None,
        sender: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Explain the hits of a recall, or why an entry or fact is not among them."""
        with self._memory(**scope) as memory:
            return to_jsonable(memory.explain(recall_id, why, sender=sender))

    def record(
        self,
        messages: list[Any],
        session_id: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        **options: Unpack[_RunOptions],
    ) -> Any:
        """Record messages and return the entries that are new."""
        with self._memory(session_id, home, project, agent) as memory:
            entries = memory.record(messages, session_id=session_id, **options)
        answer = {"entries": to_jsonable(entries)}
        if ignored := unknown_keys(messages):
            answer["ignored_keys"] = [*ignored]
        return answer

    def end_run(
        self,
        messages: list[Any],
        session_id: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        **options: Unpack[_EndOptions],
    ) -> Any:
        """Record a finished run and credit what was injected into it."""
        with self._memory(session_id, home, project, agent) as memory:
            return to_jsonable(memory.end_run(messages, session_id=session_id, **options))

    def remember(
        self,
        text: str,
        session_id: str = "remembered",
        sender: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Store a statement as a fact."""
        with self._memory(**scope) as memory:
            return to_jsonable(memory.remember(text, session_id=session_id, sender=sender))

    def forget(
        self,
        ids: list[Any] | None = None,
        session: str | None = None,
        dry_run: bool = False,
        sender: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Hide entries and facts, by id or of a whole session."""
        with self._memory(**scope) as memory:
            forgotten = memory.forget(
                ids=ids or (), session=session, sender=sender, dry_run=dry_run
            )
        return to_jsonable(forgotten)

    def unforget(
        self,
        ids: list[Any],
        dry_run: bool = False,
        sender: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Restore hidden entries and facts by id, if visible to the agent and sender."""
        with self._memory(**scope) as memory:
            knowledge = memory.knowledge.of_sender(sender)
            return to_jsonable(knowledge.unforget(ids, dry_run=dry_run))

    def facts(
        self,
        query: str | None = None,
        subject: str | None = None,
        include_superseded: bool = False,
        limit: int | None = None,
        sender: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Return the facts visible to the agent, newest first or matching a query.

        On a shared channel ``sender`` is the reader; a person's own facts are shown to nobody else.
        """
        with self._memory(**scope) as memory:
            knowledge = memory.knowledge.of_sender(sender)
            if query is not None:
                result = knowledge.search(query, limit or 10)
                return {
                    "label": result.label,
                    "facts": [to_jsonable(hit.item) for hit in result.hits],
                }
            views = knowledge.facts(include_superseded=include_superseded, subject=subject)
        return {"facts": [view.to_json() for view in views[::-1][:limit]]}

    def fact(self, fact_id: str, sender: str | None = None, **scope: Unpack[_Scope]) -> Any:
        """Return a fact, its state, and its source lines visible to the agent."""
        with self._memory(**scope) as memory:
            return memory.knowledge.of_sender(sender).fact(fact_id).to_document()

    def review(
        self,
        accept: list[Any] | None = None,
        reject: list[Any] | None = None,
        why: str = "",
        edit: dict[str, Any] | None = None,
        sender: str | None = None,
        **scope: Unpack[_Scope],
    ) -> Any:
        """Accept, reject or edit pending items as the agent; return what is still pending.

        ``edit`` is the new wording by the fact's id.

        It is for a person behind the host: no model may decide what it believes.
        """
        with self._memory(**scope) as memory:
            knowledge = memory.knowledge.of_sender(sender)
            decided = [*knowledge.accept(accept or ()), *knowledge.reject(reject or (), why)]
            for item, text in (edit or {}).items():
                knowledge.fact(item)  # an agent cannot edit what it may not see
                decided.append(memory.edit_fact(item, str(text), sender=sender))
            waiting = knowledge.review_queue()
        return {
            "decided": to_jsonable(decided),
            "waiting": [item.to_json() for item in waiting],
        }

    def status(self, **scope: Unpack[_Scope]) -> Any:
        """Return the status of the project."""
        with self._memory(**scope) as memory:
            return to_jsonable(memory.status())

    def offers(self, project: str) -> dict[str, Any]:
        """Return which running host offers its model for a project."""
        connection, key = self.host_models.find(project)
        return {"host": connection.offers[key]}

    def complete(
        self,
        project: str,
        messages: list[Any],
        max_tokens: int,
        temperature: float = 0.0,
        seconds: float = 120.0,
        purpose: str = "extraction",
    ) -> Any:
        """Ask a running host's model; for MemTier's jobs, which respect the caps."""
        model = load_settings(Path(self._home), project).consolidation.model
        if model != HOST_MODEL:
            raise EndpointRefused(
                f"project {project!r} does not use its host's model: consolidation.model is {model}"
            )
        connection, key = self.host_models.find(project)
        request = {
            "offer": key,
            "project": project,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seconds": seconds,
            "purpose": purpose,
        }
        return connection.ask(request, seconds)

    def _memory(
        self,
        session_id: str | None = None,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
    ) -> AbstractContextManager[MemTier]:
        """Open the memory of a call as a context, counting its project as served."""
        context = RunContext(
            agent_id=agent, session_id=session_id, project=project, home=home or self._home
        )
        return memory_pool.use(self._admit(context))
