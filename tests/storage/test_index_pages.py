"""Pages: immutable runs of about 1,000 tokens, the same in every index of the same ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin import MemTier
from memtier_plugin.retrieval.block import format_line
from memtier_plugin.retrieval.visibility import PageReader, Viewer
from memtier_plugin.storage.index.overviews import BLOCK_TURNS, PAGE_TOKENS, Page, page_id

Day = Callable[..., datetime]


def say(
    memory: MemTier, sizes: Sequence[int], sender: str | None = None, session: str = "s"
) -> None:
    """Record one entry of about so many tokens for each size."""
    messages = [{"role": "user", "content": "word " * max(1, size * 4 // 5)} for size in sizes]
    memory.record(messages, session_id=session, sender=sender)


def pages(memory: MemTier, sender: str | None = None, session: str = "s") -> list[Page]:
    """Return the pages of a session that a sender may see."""
    memory.catch_up()
    with memory.store.session() as reader:
        scopes = reader.scopes(memory.agent_id, sender)
        rows = reader.newest_in_session(memory.agent_id, session, scopes, 10_000)[::-1]
        by_row = reader.pages.pages_of(rows, scopes)
        return [*{by_row[row].id: by_row[row] for row in rows}.values()]


def reader_of(memory: MemTier, day: Day, sender: str | None = None) -> PageReader:
    return PageReader(memory.store.reader(), Viewer(memory.agent_id, sender, False, day(9)))


@given(
    before=st.lists(st.integers(1, 1500), min_size=1, max_size=12),
    after=st.lists(st.integers(1, 1500), min_size=1, max_size=12),
)
def test_appending_changes_no_earlier_page(
    tmp_path_factory: pytest.TempPathFactory, before: list[int], after: list[int]
) -> None:
    """A closed page stays as it is, an open one only grows, and every entry stands on one page."""
    with MemTier.open(tmp_path_factory.mktemp("home") / "home") as memory:
        say(memory, before)
        first = pages(memory)
        say(memory, after)
        then = pages(memory)
        closed = [page for page in first if page.tokens >= PAGE_TOKENS]
        assert then[: len(closed)] == closed
        for old, new in zip(first, then, strict=False):
            assert new.id == old.id
            assert new.rows[: len(old.rows)] == old.rows
        rows = [row for page in then for row in page.rows]
        assert len(rows) == len(set(rows)) == len(before) + len(after)


@given(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=15))
def test_a_page_exceeds_its_size_by_one_entry_at_most(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    """A page closes with the entry that fills it; a long entry is never split."""
    with MemTier.open(tmp_path_factory.mktemp("home") / "home") as memory:
        say(memory, sizes)
        indexed = pages(memory)
        entries = {e.id: e.tokens for e in memory.entries()}
        with memory.store.session() as reader:
            for page in indexed:
                stored = reader.items_by_row(page.rows)
                tokens = [entries[stored[row].item.id] for row in page.rows]
                assert sum(tokens) == page.tokens
                assert sum(tokens[:-1]) < PAGE_TOKENS
        assert [page.tokens >= PAGE_TOKENS for page in indexed[:-1]] == [True] * (len(indexed) - 1)


def test_the_same_after_a_reindex(home: Path) -> None:
    """Ids, rows and sizes of pages do not depend on the index."""
    with MemTier.open(home) as memory:
        say(memory, [300, 900, 50, 1200, 10, 400])
        before = pages(memory)
        memory.reindex()
        assert pages(memory) == before
        assert len(before) == 3


def test_what_is_forgotten_keeps_its_place(home: Path, day: Day) -> None:
    """A forgotten entry still counts where pages end, and is shown nowhere."""
    with MemTier.open(home) as memory:
        say(memory, [600, 600, 600])
        before = pages(memory)
        first = next(memory.entries())
        memory.forget(ids=[first.id])
        after = pages(memory)
        assert [(page.id, page.tokens) for page in after] == [(p.id, p.tokens) for p in before]
        assert len(after[0].rows) == len(before[0].rows) - 1
        shown = reader_of(memory, day).hits_on(after[0])
        assert first.id not in {hit.id for hit in shown}


def test_of_a_page_the_neighbours_of_lines_are_read(home: Path, day: Day) -> None:
    """One line before and one behind each line that was found; the whole page without any."""
    with MemTier.open(home) as memory:
        say(memory, [10] * 9)
        [page] = pages(memory)
        reader = reader_of(memory, day)
        ids = [hit.id for hit in reader.hits_on(page)]
        near = [hit.id for hit in reader.hits_near(page, {ids[0], ids[5], "elsewhere"})]
        assert near == [*ids[:2], *ids[4:7]]
        assert [hit.id for hit in reader.hits_near(page, {"elsewhere"})] == ids


def test_agents_and_senders_have_their_own_pages(home: Path, day: Day) -> None:
    """No page holds the words of two senders, and nobody is given another's, by id or by entry."""
    with MemTier.open(home) as memory, MemTier.open(home, agent_id="other") as other:
        say(memory, [400], sender="ann")
        say(memory, [400], sender="bob")
        say(memory, [400], sender="ann")
        say(other, [400])
        [anns] = pages(memory, "ann")
        [bobs] = pages(memory, "bob")
        [others] = pages(other)
        assert not set(anns.rows) & set(bobs.rows)
        assert len(anns.rows) == 2
        bob = reader_of(memory, day, "bob")
        assert bob.page(bobs.id) == bobs
        assert bob.page(anns.id) is None
        assert bob.page(others.id) is None
        ids = [entry.id for entry in memory.entries()]
        assert set(bob.pages_of_entries(ids).values()) == {bobs}
        assert set(bob.visible_entries(ids)) == {
            e.id for e in memory.entries() if e.sender == "bob"
        }


def test_no_page_reaches_over_a_block(home: Path) -> None:
    """However long a session is, finding a page reads no more than its block of turns."""
    with MemTier.open(home) as memory:
        messages = [{"role": "user", "content": f"turn {n}"} for n in range(BLOCK_TURNS + 10)]
        memory.record(messages, session_id="s")
        indexed = pages(memory)
        assert all(
            int(page.number) // BLOCK_TURNS
            == (int(page.number) + len(page.rows) - 1) // BLOCK_TURNS
            for page in indexed
        )
        assert sum(len(page.rows) for page in indexed) == BLOCK_TURNS + 10
        assert [page.open for page in indexed][-1]


@given(st.lists(st.text(max_size=20), min_size=4, max_size=4))
def test_any_id_is_looked_up(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    """An id that names no page, or is none, gives nothing and raises nothing."""
    with MemTier.open(tmp_path_factory.mktemp("home") / "home") as memory:
        reader = memory.store.reader()
        agent, session, sender, number = parts
        assert reader.pages.find_page(page_id(agent, session, sender, number), [1]) is None
        assert reader.pages.find_page("/".join(parts), [1]) is None


def test_a_page_is_shown_in_order_with_dates_and_speakers(home: Path, day: Day) -> None:
    """The lines of a page say when, who and the entry's short id, in the order of the turns."""
    with MemTier.open(home) as memory:
        first = memory.record(
            [{"role": "user", "content": "tea first"}], session_id="s", observed_at=day(0)
        )
        memory.record(
            [{"role": "assistant", "content": "then cake"}], session_id="s", observed_at=day(1)
        )
        memory.record([{"role": "system", "content": "hidden"}], session_id="s")
        [page] = pages(memory)
        lines = [format_line(hit, hit.text) for hit in reader_of(memory, day).hits_on(page)]
        assert lines[0] == f"- [2026-01-05 user {first[0].id[-8:]}] tea first"
        assert lines[1].startswith("- [2026-01-06 assistant ")
        assert len(lines) == 2
