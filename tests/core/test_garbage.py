"""No cyclic collection starts inside a recall; afterwards all is as the host left it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtier_plugin.core.concurrency import delayed_collection
from memtier_plugin.memory import MemTier


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Leave the collector as it was, whatever fails."""
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


def test_collections_are_held_back_and_come_back_after_an_error() -> None:
    """The collector is off inside and on afterwards, whatever happens inside."""
    gc.enable()
    with pytest.raises(ValueError, match="inside"), delayed_collection():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_a_collector_that_the_host_switched_off_stays_off() -> None:
    """Who works without the collector gets none from a recall."""
    gc.disable()
    with delayed_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_recall_leaves_the_collector_on(tmp_path: Path) -> None:
    """A recall that found something, and one without a query, leave the collector on."""
    gc.enable()
    with MemTier.open(tmp_path, "p", "main") as memory:
        memory.remember("The staging server listens on port 9443")
        for query in ("Which port has the staging server?", ""):
            memory.recall(query)
            assert gc.isenabled()
