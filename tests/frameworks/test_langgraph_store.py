"""LangGraph's store on MemTier: what its own stores do, and what only a memory does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.errors import MessageError
from tests.builders import write_config

pytestmark = pytest.mark.framework
pytest.importorskip("langgraph")

MARA, BEN = ("notes", "mara"), ("notes", "ben")


@pytest.fixture
def store() -> Any:
    """Give a store in a project of its own."""
    from memtier_plugin.frameworks.langgraph import MemTierStore

    return MemTierStore(project="shop")


def test_what_is_put_is_got(store: Any) -> None:
    """A value comes back as it was, in its namespace alone, and the last one put stands."""
    value = {"text": "Grüße, 東京", "tags": ["a"], "deep": {"n": 1.5, "none": None}}
    store.put(MARA, "k.1", value)
    assert store.get(MARA, "k.1").value == value
    assert store.get(BEN, "k.1") is None
    store.put(MARA, "k.1", {"text": "new"})
    item = store.get(MARA, "k.1")
    assert (item.value, item.key, item.namespace) == ({"text": "new"}, "k.1", MARA)
    store.delete(MARA, "k.1")
    store.delete(MARA, "never")
    assert store.get(MARA, "k.1") is None
    assert store.search(MARA) == []


def test_search(store: Any) -> None:
    """A query orders by what fits; filters, limits and prefixes are LangGraph's own."""
    store.put(MARA, "db", {"text": "We chose PostgreSQL for the ledger.", "year": 2026})
    store.put(MARA, "cake", {"text": "The cake was excellent.", "year": 2024})
    store.put(BEN, "db", {"text": "PostgreSQL needs more memory.", "year": 2025})
    assert [each.key for each in store.search(MARA, query="Which database?")][:1] == ["db"]
    assert {each.namespace for each in store.search(("notes",), query="PostgreSQL")} == {MARA, BEN}
    assert {each.namespace for each in store.search(MARA, query="PostgreSQL memory")} == {MARA}
    newer = store.search(("notes",), filter={"year": {"$gt": 2024}})
    assert {(each.namespace, each.key) for each in newer} == {(MARA, "db"), (BEN, "db")}
    assert [each.key for each in store.search(MARA)] == ["db", "cake"]
    assert [each.key for each in store.search(MARA, limit=1, offset=1)] == ["cake"]
    assert sorted(store.list_namespaces(prefix=("notes",))) == [BEN, MARA]
    assert store.list_namespaces(max_depth=1) == [("notes",)]


def test_another_process_finds_it(store: Any, home: Path) -> None:
    """What is put is on the disk, and another store of the project has it."""
    from memtier_plugin.frameworks.langgraph import MemTierStore

    store.put(MARA, "k", {"text": "The lock code is on the board."})
    assert MemTierStore(project="shop", home=str(home)).get(MARA, "k") is not None
    assert MemTierStore(project="other").get(MARA, "k") is None


def test_no_other_agent_is_told(store: Any, home: Path) -> None:
    """A user's items make no facts, and no agent of the project recalls them."""
    store.put(MARA, "k", {"text": "I am allergic to peanuts."})
    with MemTier.open(home, "shop", "main") as memory:
        memory.consolidate()
        assert memory.facts() == []
        assert memory.recall("Who is allergic to peanuts?").hits == ()


def test_asynchronous_calls(store: Any) -> None:
    """The same, awaited, as a graph's nodes do."""

    async def work() -> Any:
        await store.aput(MARA, "k", {"text": "x"})
        return await store.aget(MARA, "k")

    assert asyncio.run(work()).value == {"text": "x"}


def test_what_would_not_come_back_is_refused(home: Path) -> None:
    """A value that is too long and a key that is masked are refused, and the old value stands."""
    from memtier_plugin.frameworks.langgraph import MemTierStore

    write_config(home, {"limits": {"entry_chars": 1000}})
    store = MemTierStore(project="narrow")
    store.put(MARA, "k", {"text": "x"})
    with pytest.raises(MessageError, match=r"limits\.entry_chars"):
        store.put(MARA, "k", {"text": "x" * 1000})
    with pytest.raises(MessageError, match="secret"):
        store.put(MARA, "ghp_0123456789abcdefghijABCDEFGHIJ012345", {"text": "x"})
    assert [each.value for each in store.search(MARA)] == [{"text": "x"}]
    store.put(MARA, "k", {"token": "ghp_0123456789abcdefghijABCDEFGHIJ012345", "n": 1})
    assert store.get(MARA, "k").value == {"token": "[redacted:github-token]", "n": 1}
