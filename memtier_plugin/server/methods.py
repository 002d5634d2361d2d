"""What `memtier serve` can be asked: each method names home, project and agent, or takes defaults.

Parameters are given by name and checked against the annotations here.
"""

from __future__ import annotations

import inspect
import os
import threading
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from memtier_plugin import __version__
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.host import PromptAddition, PromptEvent, RunContext, RunEvent
from memtier_plugin.core.plugins import manager, watch_failures
from memtier_plugin.core.records import Entry, Fact, Purpose
from memtier_plugin.core.results import Depth, Hit
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.operations.health import describe_silence
from memtier_plugin.pool import memory_pool

METHODS: Final = (
    "hook", "tool", "recall", "explain", "record", "end_run", "remember", "forget", "facts",
    "fact", "review", "status", "ping",
)  # fmt: skip
HOOKS: Final[Mapping[str, type[PromptEvent | RunEvent] | None]] = {
    "before_prompt_build": PromptEvent,
    "agent_end": RunEvent,
    "before_compaction": RunEvent,
    "session_start": None,
    "session_end": None,
}


STORING_HOOKS: Final = ("agent_end", "before_compaction")


class BadParams(Exception):
    """A request that cannot be carried out as it is; ``code`` is JSON-RPC's."""

    def __init__(self, message: str, code: int = -32602) -> None:
        super().__init__(message)
        self.code = code


class Methods:
    """The methods by name; ``served`` is told of every context that is asked for."""

    def __init__(self, home: Path, served: Callable[[RunContext], None]) -> None:
        self.socket: str | None = None
        self._home = str(home)
        self._translators: dict[str, Any] = {}
        self._told: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._served = served

    def ping(self) -> dict[str, Any]:
        """Tell that the server is alive, and what it is."""
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
            found = self._translator(host).translate(name, event or {}, context, base)
            if found is None:
                return None
            with watch_failures() as seen:
                answer = self._called(found.hook, found.context, found.event)
            if seen and found.hook in STORING_HOOKS:
                raise seen[0]  # the host's shim keeps it and gives it again
            if found.hook == "before_prompt_build":
                return {**(answer or {}), "warning": self._warning(found.context)}
            return answer
        if name not in HOOKS:
            raise BadParams(f"no hook {name!r}; there are {', '.join(HOOKS)}")
        whose = {"home": home or self._home, "project": project, "agent_id": agent, **context}
        kind = HOOKS[name]
        told: PromptEvent | RunEvent | None = None
        try:
            run = RunContext(**whose)
            if kind is not None:
                messages = parse_messages((event or {}).get("messages", ()))
                given = {**(event or {}), "messages": messages}
                if "visible_since" in given:
                    given["visible_since"] = _moment("visible_since", given["visible_since"])
                told = kind(**given)
        except TypeError as error:
            raise BadParams(f"the event or context of {name} is wrong: {error}") from None
        _check_fields(run, *([told] if told else []))
        return self._called(name, run, told)

    def _called(self, name: str, run: RunContext, event: PromptEvent | RunEvent | None) -> Any:
        self._served(run)
        told = {} if event is None else {"event": event}
        answer = getattr(manager().hook, name)(context=run, **told)
        return to_jsonable(answer) if isinstance(answer, PromptAddition) else None

    def _warning(self, context: RunContext) -> str | None:
        """Return what a host's own log has to say, once: that turns pass and nothing is stored."""
        with suppress(MemTierError), memory_pool.use(context) as memory:
            told = describe_silence(memory.store, context.agent_id)
            before, self._told[context.agent_id] = self._told.get(context.agent_id), bool(told)
            return None if before else told
        return None

    def _translator(self, host: str) -> Any:
        """Return what knows a host's payloads; of each host one, as it keeps where sessions end."""
        from memtier_plugin.hooks.payloads import HOSTS, open_translator

        if host not in HOSTS:
            known = ", ".join(HOSTS)
            raise BadParams(f"the payloads of host {host!r} are not known; there is {known}")
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
        session_id: str | None = None,
        run_id: str | None = None,
        purpose: Purpose = "search",
        k: int | None = None,
        token_budget: int | None = None,
        at: str | None = None,
        sender: str | None = None,
        deadline_ms: int | None = None,
        depth: Depth | None = None,
    ) -> Any:
        """Return what matters for a query: ranked hits, and the block to inject."""
        with memory_pool.use(self._context(home, project, agent, session_id)) as memory:
            recall = memory.recall(
                query,
                session_id=session_id,
                run_id=run_id,
                purpose=purpose,
                k=k,
                token_budget=token_budget,
                at=_moment("at", at),
                sender=sender,
                deadline_ms=deadline_ms,
                depth=depth,
            )
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
        observed_at: str | None = None,
        parent: str | None = None,
    ) -> Any:
        """Record messages and return the entries that are new."""
        with memory_pool.use(self._context(home, project, agent, session_id)) as memory:
            entries = memory.record(
                messages,
                session_id=session_id,
                run_id=run_id,
                sender=sender,
                observed_at=_moment("observed_at", observed_at),
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
        observed_at: str | None = None,
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
                observed_at=_moment("observed_at", observed_at),
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
        """Keep a statement as a fact."""
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
        """Return the facts that the agent may see, the newest first, or those a query asks for."""
        with memory_pool.use(self._context(home, project, agent)) as memory:
            if query is not None:
                found = memory.knowledge.search(query, limit or 10)
                return {
                    "label": found.label,
                    "facts": [to_jsonable(hit.item) for hit in found.hits],
                }
            known = memory.knowledge.facts(include_superseded=include_superseded, subject=subject)
        return {"facts": [one.to_json() for one in known[::-1][:limit]]}

    def fact(
        self,
        fact_id: str,
        home: str | None = None,
        project: str | None = None,
        agent: str = "main",
    ) -> Any:
        """Return a fact, how it stands, and those of its source lines that the agent may see."""
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
        """Decide on facts that wait, in the agent's name, and return those that wait then.

        It is for a person behind the host; no model is to decide what it may believe.
        """
        with memory_pool.use(self._context(home, project, agent)) as memory:
            knowledge = memory.knowledge
            decided = [*knowledge.accept(accept or ()), *knowledge.reject(reject or (), why)]
            waiting = [knowledge.fact(one.fact.id) for one in knowledge.proposals()]
        return {"decided": to_jsonable(decided), "waiting": [one.to_document() for one in waiting]}

    def status(
        self, home: str | None = None, project: str | None = None, agent: str = "main"
    ) -> Any:
        """Tell how the project does."""
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


def check_arguments(function: Callable[..., Any], params: Any) -> dict[str, Any]:
    """Return the parameters of a call once they fit the function's names and annotations.

    Raises:
        BadParams: naming the parameter and what was expected.
    """
    if not isinstance(params, dict):
        raise BadParams("parameters are given by name, in an object")
    try:
        inspect.signature(function).bind(**params)
    except TypeError as error:
        raise BadParams(str(error)) from None
    hints = get_type_hints(function)
    for name, value in params.items():
        _check(name, value, hints[name])
    return params


def to_jsonable(value: Any) -> Any:
    """Return records and what holds them in a form that JSON has."""
    if isinstance(value, Hit):
        known = {
            name: to_jsonable(getattr(value, name)) for name in ("id", "tier", "text", "score")
        }
        return {**known, **{f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, Entry | Fact):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_jsonable(item) for item in value]
    if isinstance(value, datetime):
        return to_iso(value)
    return value


def _check_fields(*records: PromptEvent | RunEvent | RunContext) -> None:
    for record in records:
        for name, kind in get_type_hints(type(record)).items():
            _check(name, getattr(record, name), kind)


def _check(name: str, value: Any, kind: Any) -> None:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise BadParams(f"{name} is {value!r}, not {' or '.join(get_args(kind))}")
        return
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain_kinds = tuple(get_origin(one) or one for one in kinds)
    fits = Any in plain_kinds or isinstance(value, plain_kinds)
    if not fits or (isinstance(value, bool) and bool not in plain_kinds):
        expected = " or ".join("null" if one is type(None) else one.__name__ for one in plain_kinds)
        raise BadParams(f"{name} is {type(value).__name__}, not {expected}")


def _moment(name: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else from_iso(text)
    except ValueError as error:
        raise BadParams(f"{name} is not a time: {error}") from None
