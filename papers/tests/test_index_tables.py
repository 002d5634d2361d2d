"""The tables that plugins keep in the index: complete whatever was written while they were away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtier_papers.hmo.tables import PriorityReader, ScoredEntry
from memtier_plugin.core import plugins
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index import postings
from tests.builders import user_message
from tests.proofs.checks import content


@contextmanager
def without_plugins() -> Iterator[None]:
    """Let no plugin have tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "find_index_tables", list)
        yield


@contextmanager
def opened(home: Path) -> Iterator[MemTier]:
    """Open a project whose entries are rated."""
    with MemTier.open(home, "p", "a", {"priority.enabled": True}) as memory:
        yield memory


def rate(memory: MemTier, text: str) -> None:
    """Record a line and rate it."""
    from memtier_papers.hmo.plugin import prioritiser_of

    memory.record([user_message(text)], session_id="s", run_id=text)
    prioritiser_of(memory).run()


def active(memory: MemTier) -> list[ScoredEntry]:
    """Return the entries in the cache and the buffer."""
    return memory.store.reader().plugin_tables(PriorityReader).active("a", "")


def test_a_plugin_that_was_away(home: Path) -> None:
    """What was written without a plugin is in its tables when it is back, as after a rebuild."""
    with opened(home) as memory:
        rate(memory, "The pier is wet.")
        lines = {path: path.read_bytes() for path in memory.folder.glob("journal/*/*.jsonl")}
        rate(memory, "The boat is red.")
        more = {path: path.read_bytes() for path in memory.folder.glob("journal/*/*.jsonl")}
        for path in more:
            path.write_bytes(lines.get(path, b""))
        memory.reindex()
        assert len(active(memory)) == 1
    with without_plugins(), opened(home) as memory:
        for path, written in more.items():
            path.write_bytes(written)
        memory.catch_up()
        assert len(active(memory)) == 1, "nobody folds these events"
    with opened(home) as memory:
        assert len(active(memory)) == 2
        followed = content(memory)
        memory.reindex()
        assert content(memory) == followed


def test_an_index_without_plugins_is_not_written(home: Path) -> None:
    """Where no plugin has tables, to follow the plugins writes nothing."""
    with without_plugins(), opened(home) as memory:
        memory.record([user_message("The pier is wet.")], session_id="s", run_id="r")
        before = memory.store.index.connection().total_changes()
        postings.follow_plugins(memory.store.index.connection(), {})
        assert memory.store.index.connection().total_changes() == before
