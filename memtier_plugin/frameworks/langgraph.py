"""LangGraph: a store whose items are lines of MemTier's log, found by words and by meaning."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Unpack

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import RunContext
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool

from .conversations import Owner

Namespace = tuple[str, ...]

_AGENT: Final = "langgraph-store."
_ALL: Final = 1_000_000_000
_WAIT_MS: Final = 500  # to catch up with other processes


class MemTierStore(BaseStore):
    """Keeps each namespace as an agent of its own, which no other reads, and each key as a session.

    A value that is replaced or deleted is forgotten: hidden until `memtier unforget`.
    """

    __slots__ = ("_base",)

    def __init__(self, **owner: Unpack[Owner]) -> None:
        home = str(owner["home"]) if "home" in owner else None
        self._base = RunContext(agent_id=_AGENT, project=owner.get("project"), home=home)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations in order.

        Raises:
            MemTierError: an operation failed; those before it are done.
        """
        return [self._do(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do as `batch`, without blocking the event loop."""
        return await asyncio.to_thread(self.batch, [*ops])

    def _do(self, op: Op) -> Result:
        if isinstance(op, PutOp):
            return self._put(op)
        if isinstance(op, GetOp):
            with self._memory(op.namespace) as memory:
                return _item(memory, op.namespace, op.key)
        if isinstance(op, SearchOp):
            return self._search(op)
        assert isinstance(op, ListNamespacesOp)
        everything = self._search(SearchOp((), limit=_ALL))
        return _copy(everything).batch([op])[0]

    @contextmanager
    def _memory(self, namespace: Namespace) -> Iterator[MemTier]:
        context = replace(self._base, agent_id=_AGENT + ".".join(namespace))
        with memory_pool.use(context) as memory:
            memory.store.refresh(memory.agent_id, wait_ms=_WAIT_MS)
            yield memory

    def _put(self, op: PutOp) -> None:
        with self._memory(op.namespace) as memory:
            before = [entry.id for entry in _entries(memory, op.key)]
            if op.value is not None:
                content = json.dumps(op.value, ensure_ascii=False)
                most = memory.settings.limits.entry_chars
                if len(content) > most:
                    raise MessageError(
                        f"the value of {op.key!r} has {len(content)} characters, more than"
                        f" limits.entry_chars ({most})"
                    )
                value = {"role": "user", "content": content}
                [entry] = memory.record([value], session_id=op.key, private=True)
                if entry.session_id != op.key:
                    memory.forget(ids=[entry.id])
                    raise MessageError("the key looks like a secret: it would not be found again")
            if before:
                memory.forget(ids=before)

    def _search(self, op: SearchOp) -> list[SearchItem]:
        """Return matching items, best first; without a query, oldest first."""
        scored: dict[tuple[Namespace, str], SearchItem] = {}
        depth = len(op.namespace_prefix)
        for namespace in self._namespaces():
            if namespace[:depth] != op.namespace_prefix:
                continue
            with self._memory(namespace) as memory:
                for key, score in _ranked(memory, op.query):
                    item = _item(memory, namespace, key)
                    if item:
                        scored[namespace, key] = SearchItem(
                            namespace,
                            key,
                            item.value,
                            item.created_at,
                            item.updated_at,
                            score,
                        )
        best = sorted(scored.values(), key=lambda item: -(item.score or 0))
        chosen: Any = _copy(best).batch([op._replace(query=None)])[0]
        return [scored[item.namespace, item.key] for item in chosen]

    def _namespaces(self) -> list[Namespace]:
        """Return the namespaces that hold or held items."""
        with self._memory(("",)) as memory:
            memory.store.catch_up_all()
            with memory.store.session() as reader:
                agents = [*reader.all_sessions()]
        stored = [name.removeprefix(_AGENT) for name in agents if name.startswith(_AGENT)]
        return [tuple(name.split(".")) for name in stored]


def _entries(memory: MemTier, key: str) -> list[Entry]:
    """Return the current lines of a value, oldest first: one, unless two wrote at once."""
    with memory.store.session() as reader:
        stored = reader.items(reader.ids_in_session(memory.agent_id, key)).values()
        items = [each.item for each in stored if not each.state.forgotten]
    return [item for item in items if isinstance(item, Entry)]


def _item(memory: MemTier, namespace: Namespace, key: str) -> Item | None:
    current = _entries(memory, key)
    if not current:
        return None
    newest = current[-1]
    return Item(
        value=_value(newest.content),
        key=key,
        namespace=namespace,
        created_at=current[0].timestamp,
        updated_at=newest.timestamp,
    )


def _value(content: str) -> dict[str, Any]:
    with suppress(ValueError):  # masking a secret may have broken the JSON
        value: dict[str, Any] = parse_json_text(content)
        return value
    return {"text": content}


def _ranked(memory: MemTier, query: str | None) -> list[tuple[str, float | None]]:
    """Return the keys of a namespace that match a query, or all, with their scores."""
    if query:
        hits = memory.recall(query).hits
        return [
            (hit.item.session_id, hit.score)
            for hit in hits
            if isinstance(hit.item, Entry) and hit.item.agent_id == memory.agent_id
        ]
    with memory.store.session() as reader:
        spans = reader.session_spans(memory.agent_id)
    return [(span.session, None) for span in reversed(spans)]


def _copy(items: Iterable[Any]) -> InMemoryStore:
    """Copy items into LangGraph's own store, which applies its filters and wildcards."""
    store = InMemoryStore()
    for item in items:
        store.put(item.namespace, item.key, item.value)
    return store
