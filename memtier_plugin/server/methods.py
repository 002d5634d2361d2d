"""The methods of `memtier serve`; home, project and agent are parameters of each, or take defaults.

Parameters are given by name and checked by the annotations here (`parameters`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Unpack

from memtier_plugin import __version__
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.host import PromptAddition, PromptEvent, RunContext, RunEvent
from memtier_plugin.core.plugins import manager, watch_failures
from memtier_plugin.core.results import RecallOptions
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.operations.health.hook_marks import describe_silence
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.parameters import BadParams, check_fields, parse_time, to_jsonable

METHODS: Final = (
    *("hook", "tool", "recall", "explain", "record", "end_run", "remember", "forget"),
    *("facts", "fact", "review", "status", "ping"),
)
HOOKS: Final[Mapping[str, type[PromptEvent | RunEvent] | None]] = {
    "before_prompt_build": PromptEvent,
    "agent_end": RunEvent,
    "before_compaction": RunEvent,
    "session_start": None,
    "session_end": None,
}
STORING_HOOKS: Final = ("agent_end", "before_compaction")


class Methods:
    """The methods by name.

    Args:
        served: called with the context of every call that names a project.
    """

    def __init__(self, home: Path, served: Callable[[RunContext], None]) -> None:
        self.socket: str | None = None
        self._home = str(home)
        self._translators: dict[str, Any] = {}
        self._warned: dict[str, bool] = {}  # by agent: whether the host was warned
        self._lock = threading.Lock()
        self._served = served

    def ping(self) -> dict[str, Any]:
        """Return the version, process and socket of the server."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": self._home,
            "socket": self.socket,
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
        """Call a hook with its event and context in MemTier's own form, or in that of a host.

        ``home``, ``project`` and ``agent`` fill in what the context does not say.
        """
        if host is not None:
            base = RunContext(agent_id="", home=home or self._home, project=project)
            call = self._translator(host).translate(name, event or {}, context, base)
            if call is None:
                return None
            with watch_failures() as errors:
                answer = self._call_hook(call.hook, call.context, call.event)
            if errors and call.hook in STORING_HOOKS:
                raise errors[0]  # the host's shim keeps the event and sends it again
            if call.hook == "before_prompt_build":
                return {**(answer or {}), "warning": self._warning(call.context)}
            return answer
        if name not in HOOKS:
            raise BadParams(f"no hook {name!r}; there are {', '.join(HOOKS)}")
        defaults = {"home": home or self._home, "project": project, "agent_id": agent}
        kind = HOOKS[name]
        payload: PromptEvent | RunEvent | None = None
        try:
            run = RunContext(**{**defaults, **context})
            if kind is not None:
                given = dict(event or {})
                given["messages"] = parse_messages(given.get("messages", ()))
                if "visible_since" in given:
                    given["visible_since"] = parse_time("visible_since", given["visible_since"])
                payload = kind(**given)
        except TypeError as error:
            raise BadParams(f"the event or context of {name} is wrong: {error}") from None
        check_fields(run, *([payload] if payload else []))
        return self._call_hook(name, run, payload)

    def _call_hook(self, name: str, run: RunContext, event: PromptEvent | RunEvent | None) -> Any:
        self._served(run)
        given = {} if event is None else {"event": event}
        answer = getattr(manager().hook, name)(context=run, **given)
        return to_jsonable(answer) if isinstance(answer, PromptAddition) else None

    def _warning(self, context: RunContext) -> str | None:
        """Return a warning for the host's own log, once: turns pass and nothing is stored."""
        with suppress(MemTierError), memory_pool.use(context) as memory:
            message = describe_silence(memory.store, context.agent_id)
            warned = self._warned.get(context.agent_id)
            self._warned[context.agent_id] = bool(message)
            return None if warned else message
        return None

    def _translator(self, host: str) -> Any:
        """Return the translator of a host's payloads: one each, as it keeps where sessions end."""
        from memtier_plugin.hooks.payloads import HOSTS, open_translator

        if host not in HOSTS:
            hosts = ", ".join(HOSTS)
            raise BadParams(f"the payloads of host {host!r} are not known; there is {hosts}")
        with self._lock:
            if host not in self._translators:
                self._translators[host] = open_translator(host, Path(self._home))
        return self._translators[host]

    def tool(
        self,
        name: str,
        context: dict[str, Any],
        arguments: dict[str, Any] | None = None,
        host: str | None = None,
        home: str | None = None,
        project: str | None = None,
        agent: str | None = None,
    ) -> Any:
        """Call a memory tool as a model does; the answer has a text for it."""
        base = RunContext(agent_id=agent or "main", home=home or self._home, project=project)
        try:
            run = self._translator(host).context(context, base) if host else None
            run = run or replace(base, **context)
        except TypeError as error:
            raise BadParams(f"the context of {name} is wrong: {error}") from None
        self._served(run)
        from memtier_plugin.hooks.tools import call_tool

        return call_tool(name, arguments or {}, run)

    def recall(
        self,
        query: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        **options: Unpack[RecallOptions],
    ) -> Any:
        """Return what matters for a query: ranked hits, and the block to inject."""
        context = self._context(home, project, agent, options.get("session_id"))
        with memory_pool.use(context) as memory:
            recall = memory.recall(query, **options)
        return to_jsonable(recall)

    def explain(
        self,
        recall_id: str,
        why: str | None = None,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
    ) -> Any:
        """Return why a recall chose what it chose, or why an entry or fact is not among it."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            return to_jsonable(memory.explain(recall_id, why))

    def record(
        self,
        messages: list[Any],
        session_id: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        run_id: str | None = None,
        sender: str | None = None,
        observed_at: datetime | None = None,
        parent: str | None = None,
    ) -> Any:
        """Record messages and return the entries that are new."""
        with memory_pool.use(self._context(home, project, agent, session_id)) as memory:
            entries = memory.record(
                messages,
                session_id=session_id,
                run_id=run_id,
                sender=sender,
                observed_at=observed_at,
                parent=parent,
            )
        return {"entries": to_jsonable(entries)}

    def end_run(
        self,
        messages: list[Any],
        session_id: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        run_id: str | None = None,
        recall_ids: list[Any] | None = None,
        sender: str | None = None,
        observed_at: datetime | None = None,
        parent: str | None = None,
        error: str | None = None,
    ) -> Any:
        """Record a finished run and credit what was injected into it."""
        with memory_pool.use(self._context(home, project, agent, session_id)) as memory:
            result = memory.end_run(
                messages,
                session_id=session_id,
                run_id=run_id,
                recall_ids=recall_ids,
                sender=sender,
                observed_at=observed_at,
                parent=parent,
                error=error,
            )
        return to_jsonable(result)

    def remember(
        self,
        text: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        session_id: str = "remembered",
        sender: str | None = None,
    ) -> Any:
        """Store a statement as a fact."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            return to_jsonable(memory.remember(text, session_id=session_id, sender=sender))

    def forget(
        self,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        ids: list[Any] | None = None,
        session: str | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Hide entries and facts, by id or of a whole session."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            return to_jsonable(memory.forget(ids=ids or (), session=session, dry_run=dry_run))

    def facts(
        self,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        query: str | None = None,
        subject: str | None = None,
        include_superseded: bool = False,
        limit: int | None = None,
    ) -> Any:
        """Return the facts that the agent may see, newest first, or those that match a query."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            if query is not None:
                result = memory.knowledge.search(query, limit or 10)
                return {
                    "label": result.label,
                    "facts": [to_jsonable(hit.item) for hit in result.hits],
                }
            views = memory.knowledge.facts(include_superseded=include_superseded, subject=subject)
        return {"facts": [view.to_json() for view in views[::-1][:limit]]}

    def fact(
        self,
        fact_id: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
    ) -> Any:
        """Return a fact, its state, and those of its source lines that the agent may see."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            return memory.knowledge.fact(fact_id).to_document()

    def review(
        self,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
        accept: list[Any] | None = None,
        reject: list[Any] | None = None,
        why: str = "",
    ) -> Any:
        """Accept or reject proposed facts in the agent's name; return those that still wait.

        It is meant for a person behind the host: no model may decide what it believes.
        """
        with memory_pool.use(self._context(home, project, agent)) as memory:
            knowledge = memory.knowledge
            decided = [*knowledge.accept(accept or ()), *knowledge.reject(reject or (), why)]
            waiting = [knowledge.fact(view.fact.id) for view in knowledge.proposals()]
        return {
            "decided": to_jsonable(decided),
            "waiting": [view.to_document() for view in waiting],
        }

    def status(
        self, home: str | None = None, project: str | None = None, agent: str = "main"
    ) -> Any:
        """Return the status of the project."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            return to_jsonable(memory.status())

    def _context(
        self,
        home: str | None,
        project: str | None,
        agent: str,
        session_id: str | None = None,
    ) -> RunContext:
        context = RunContext(
            agent_id=agent, session_id=session_id, project=project, home=home or self._home
        )
        self._served(context)
        return context
