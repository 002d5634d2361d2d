"""Why a recall left something out: every reason is the true one, and nobody's text leaks by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.results import Recall
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.journal import signal_contributions
from tests.builders import make_draft, make_fact, say

Day = Callable[..., datetime]


def why(memory: MemTier, recall: Recall, identity: str) -> dict[str, Any]:
    """Return what is told of one item in a recall."""
    explanation: dict[str, Any] = memory.explain(recall.id, identity)["why"]
    return explanation


def test_injected_and_unknown(home: Path) -> None:
    """What was injected is told with its line and its journalled score; a foreign id is not known.

    Without asking why, nothing more is told.
    """
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        recall = memory.recall("fox barn")
        explanation = why(memory, recall, entry.id)
        assert (explanation["reason"], explanation["text"]) == ("injected", entry.content)
        assert (explanation["then"]["place"], explanation["then"]["rank"], explanation["now"]) == (
            1,
            1,
            None,
        )
        assert why(memory, recall, new_id())["reason"] == "unknown"
        assert why(memory, recall, "\x00\udcff")["reason"] == "unknown"
        assert "why" not in memory.explain(recall.id)


def test_contributions_make_the_score(home: Path) -> None:
    """Weight x signal, the most first, add up to the score of every line and near miss.

    The journal keeps the signals of lines rounded; those of near misses are computed again.
    """
    with MemTier.open(home) as memory:
        for n in range(6):
            say(memory, f"the fox number {n} sleeps in barn {n}", run_id=f"r{n}")
        recall = memory.recall("which fox sleeps in barn 3?", k=2)
        explanation = memory.explain(recall.id)
        lines = [*explanation["injected"], *explanation["near_misses"]]
        assert len(lines) == 6
        for line in lines:
            parts = line["contributions"]
            off = 0.2 if line["signals_from"] == "journal" else 0.006
            assert sum(parts.values()) == pytest.approx(line["score"], abs=off)
            assert [*parts.values()] == sorted(parts.values(), reverse=True)
            assert line["other"] == 0
            for name, value in parts.items():
                expected = explanation["weights"][name] * line["signals"][name]
                assert value == pytest.approx(expected, abs=1e-5)
    assert signal_contributions({"a": 0.5, "b": 1, "c": 0, "d": 1}, {"a": 1, "b": 2, "c": 1}) == {
        "b": 2.0,
        "a": 0.5,
    }


def test_other_agents_and_senders_stay_private(home: Path) -> None:
    """Neither another agent's nor another sender's line is told: no text, place, rank or score."""
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        foreign = say(other, "the fox owes the owl seven coins")
        guest = say(memory, "the fox whispers to the owl", sender="guest", run_id="g")
        mine = say(memory, "the fox sleeps", sender="host", run_id="h")
        recall = memory.recall("fox owl", sender="host")
        for hidden in (foreign, guest):
            explanation = why(memory, recall, hidden.id)
            assert explanation["reason"] == "unknown"
            assert not any(explanation[name] for name in ("text", "file", "then", "now", "words"))
        assert why(memory, recall, mine.id)["reason"] == "injected"
        for entry in (mine, foreign):  # the recall is not b's, not even where the line is
            with pytest.raises(NotFound, match="has no recall"):
                why(other, recall, entry.id)
        rights = {"agents": {"c": {"read_all": True}}}
        with MemTier.open(home, agent_id="c", settings=rights) as reader:
            assert why(reader, reader.recall("coins"), foreign.id)["reason"] == "injected"


def test_not_findable(home: Path, day: Day) -> None:
    """The system's text, proposed, superseded and forgotten things are named as such."""
    now = day(0)
    with MemTier.open(home, clock=lambda: now) as memory:
        system = say(memory, "[system] the fox", run_id="1")
        entry = say(memory, "the fox naps at work", run_id="2")
        [old] = memory.add_facts([make_draft(entry, "Acme", valid_from=day(-9))])
        [new] = memory.add_facts([make_draft(entry, "Bolt", valid_from=day(-1))])
        waits = {"project": "default", "status": "proposed", "sources": old.sources}
        proposed = make_fact("the fox likes owls", now, id=new_id(), subject="fox", **waits)
        memory.add_facts([proposed])
        forgotten = say(memory, "the fox hides", run_id="3")
        memory.forget(ids=[forgotten.id])
        now = day(1)
        recall = memory.recall("fox")
        reasons = {
            i: why(memory, recall, i) for i in (system.id, old.id, proposed.id, forgotten.id)
        }
        assert [explanation["reason"] for explanation in reasons.values()] == [
            "system",
            "superseded",
            "proposed",
            "forgotten",
        ]
        assert new.id in reasons[old.id]["said"]
        assert reasons[forgotten.id]["text"] is None
        assert not any("since" in explanation["said"] for explanation in reasons.values())


def test_hidden_since(home: Path, day: Day) -> None:
    """What was forgotten after the recall was injected then, and both are told."""
    now = day(0)
    with MemTier.open(home, clock=lambda: now) as memory:
        shown = say(memory, "the fox sleeps in the red barn", run_id="1")
        for n in range(12):
            say(memory, f"fox {n} {'filler ' * n}", run_id=f"x{n}")
        recall = memory.recall("fox in the red barn", k=1)
        far = recall.hits[-1].id
        assert shown.id == recall.injected[0].id
        now = day(1)
        memory.forget(ids=[shown.id, far])
        explanation = why(memory, recall, shown.id)
        assert (explanation["reason"], explanation["text"], explanation["then"]["rank"]) == (
            "injected",
            None,
            1,
        )
        assert any("forgotten on 2026-01-06" in line for line in explanation["differences"])
        explanation = why(memory, recall, far)
        assert explanation["reason"] == "forgotten" and "since the recall" in explanation["said"]


def test_not_indexed_yet(home: Path) -> None:
    """While another process keeps the index locked, a new line is told as not read yet."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps", run_id="1")
        recall = memory.recall("fox")
        memory.explain(recall.id)  # the journal is in the index now
        other = apsw.Connection(str(memory.store.index.path))
        other.execute("BEGIN IMMEDIATE")
        waiting = say(memory, "the fox waits", run_id="2")
        assert why(memory, recall, waiting.id)["reason"] == "unindexed"
        other.execute("ROLLBACK")
        assert why(memory, recall, waiting.id)["reason"] == "later"


def test_written_later(home: Path, day: Day) -> None:
    """A line written after the recall cannot have been in it."""
    now = day(0)
    with MemTier.open(home, clock=lambda: now) as memory:
        first = say(memory, "the fox sleeps", run_id="1")
        recall = memory.recall("fox")
        now += timedelta(seconds=1)
        late = say(memory, "the fox wakes", run_id="2")
        assert why(memory, recall, late.id)["reason"] == "later"
        explanation = why(memory, recall, first.id)
        assert "1 items that it may see were written since" in explanation["differences"]


def test_no_candidate(home: Path) -> None:
    """What shares nothing with the query is told with both sides' words, cosine and floor."""
    with MemTier.open(home) as memory:
        for n in range(15):  # so that it is no neighbour of what is found
            say(memory, f"topic {n}", run_id=f"a{n}", session_id=f"s{n}")
        alone = say(memory, "Quarterly invoices await signature.", run_id="z", session_id="z")
        recall = memory.recall("fox")
        explanation = why(memory, recall, alone.id)
        assert explanation["reason"] == "no candidate"
        words = explanation["words"]
        assert (words["shared"], words["grams"], words["query"]) == ([], 0, ["fox"])
        assert words["cosine"] < words["floor"] == 0.3
        assert "invoic" in words["entry"]


def test_shared_words_are_named(home: Path) -> None:
    """The words that the index has for an item are named, whatever the caps leave unread."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        stored = memory.store.reader().items_by_row(
            [*memory.store.reader().rows_of([entry.id]).values()]
        )
        from memtier_plugin.retrieval.explain import Explainer
        from memtier_plugin.retrieval.visibility import Viewer

        explainer = Explainer(memory.actor)
        asker = Viewer("main", None, False, entry.timestamp)
        [row] = stored.values()
        explanation = explainer._shared_words("red foxes fly", row, asker)
        assert set(explanation["shared"]) == {"red", "fox"}
        assert set(explanation["query"]) > set(explanation["shared"])


def test_ranked_behind(home: Path) -> None:
    """A near miss and one far behind have rank, score and what the last line had more of."""
    with MemTier.open(home, settings={"retrieval": {"candidates": 5}}) as memory:
        for n in range(30):
            say(memory, f"fox {n} {'filler ' * n}", run_id=f"r{n}", session_id=f"s{n}")
        best = say(memory, "the fox in the red barn", run_id="b", session_id="b")
        recall = memory.recall("fox red barn", k=2)
        assert len(recall.hits) == 5 and recall.hits[0].id == best.id
        near = why(memory, recall, recall.hits[3].id)
        assert near["reason"] == "k" and near["left_out"]["by"] == "k"
        assert near["then"]["rank"] == near["now"]["rank"] == 4
        last = near["last_line"]
        assert last["id"] == recall.injected[-1].id
        gap = last["score"] - near["now"]["score"]
        assert gap > 0 and max(last["lacked"].values()) > 0
        seen = {hit.id for hit in recall.hits}
        far = next(entry.id for entry in memory.entries() if entry.id not in seen)
        explanation = why(memory, recall, far)
        assert (explanation["reason"], explanation["then"]) == ("ranked", None)
        assert explanation["now"]["of"] > 5 and explanation["now"]["rank"] > 2
        assert "5 candidates" in explanation["said"]


def test_left_out_by_packing(home: Path) -> None:
    """Near-duplicates, long lines and what is never injected by itself are told by that."""
    with MemTier.open(home, settings={"retrieval": {"passage_tokens": 200}}) as memory:
        twin = say(memory, "The standup is in the small room.", run_id="1", session_id="a")
        newer = say(memory, "the standup is in the small room", run_id="2", session_id="b")
        long = say(memory, "standup " + "about the many topics " * 40, run_id="3", session_id="c")
        tool = say(memory, "standup room list", run_id="4", session_id="d", role="tool")
        recall = memory.recall("standup room", purpose="inject", token_budget=90)
        explanation = why(memory, recall, twin.id)
        assert explanation["reason"] == "duplicate" and newer.id in explanation["said"]
        assert explanation["left_out"] == {"by": "duplicate", "of": newer.id}
        explanation = why(memory, recall, long.id)
        assert explanation["reason"] == "tokens"
        assert explanation["left_out"]["needed"] > explanation["left_out"]["left"] >= 0
        assert why(memory, recall, tool.id)["reason"] == "origin"


def test_differences_since(home: Path) -> None:
    """Weights that were changed, and what was learned, are named beside what is recomputed."""
    with MemTier.open(home) as memory:
        for n in range(4):
            say(memory, f"the fox {n} sleeps", run_id=f"r{n}", session_id=f"s{n}")
        recall = memory.recall("fox", k=1)
    settings = {"retrieval": {"weights": {"words": 0.123}}}
    with MemTier.open(home, settings=settings) as memory:
        explanation = why(memory, recall, recall.hits[-1].id)
        assert any(
            line.startswith("the weight of words was") and line.endswith("is 0.123")
            for line in explanation["differences"]
        )
        assert explanation["now"]["weights"]["words"] == 0.123
        assert [e.id for e in memory.events(kinds=["recall"])] == [recall.id]


def test_asking_why_changes_nothing(home: Path) -> None:
    """To ask why writes no recall into the journal, so that nothing is credited for it."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps", run_id="1")
        other = say(memory, "an owl", run_id="2", session_id="t")
        recall = memory.recall("fox")
        before = sorted(path.read_bytes() for path in memory.folder.rglob("*.jsonl"))
        why(memory, recall, other.id)
        assert sorted(path.read_bytes() for path in memory.folder.rglob("*.jsonl")) == before
        assert not (memory.folder / "journal" / PROJECT_JOURNAL).exists()


def test_published_profile(home: Path) -> None:
    """The `paper` profile is explained by its own signals, whose parts make eq. 2's score."""
    with MemTier.open(home, settings={"retrieval": {"profile": "paper"}}) as memory:
        for n in range(8):
            say(memory, f"fox {n}", run_id=f"r{n}", session_id=f"s{n}")
        recall = memory.recall("fox 3", k=1)
        explanation = why(memory, recall, recall.hits[-1].id)
        assert explanation["reason"] == "k"
        assert sum(explanation["now"]["contributions"].values()) == pytest.approx(
            explanation["now"]["score"], abs=1e-4
        )
