"""MemTier as its callers see it: what is kept, who may see it, and what it learns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rank_bm25 import BM25Okapi

from memtier_plugin.core.errors import LedgerError, MessageError, NotFound, Paused
from memtier_plugin.core.events import ForgetEvent, PromoteEvent
from memtier_plugin.core.files import hold_lock
from memtier_plugin.core.records import Entry, Fact, FactDraft, Message, ToolCall
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.facts.extraction.rules import extract_facts
from memtier_plugin.ingest import recorder
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.memory import MemTier
from tests.builders import make_draft, say, texts, turns
from tests.processes import holding

Day = Callable[..., datetime]
ROOT = Path(__file__).parents[1]


def tool_run(answer: str, *, ok: bool | None) -> list[dict[str, Any]]:
    """Return a run that calls a tool, which fares well or not, and answers."""
    call = {"id": "c1", "function": {"name": "shell", "arguments": "{}"}}
    return [
        {"role": "user", "content": "please"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done", "ok": ok},
        {"role": "assistant", "content": answer},
    ]


def ledgers(memory: MemTier) -> bytes:
    """Return every byte in the project's ledgers."""
    return b"".join(path.read_bytes() for path in sorted(memory.folder.rglob("*.jsonl")))


@contextmanager
def write_lock(memory: MemTier) -> Iterator[None]:
    """Let another process hold the index's write lock for as long as this lasts."""
    code = f"""
        import apsw
        connection = apsw.Connection({str(memory.store.index.path)!r})
        connection.execute("BEGIN IMMEDIATE")
    """
    with holding(code):
        yield


# -- recording ------------------------------------------------------------------------------------


def test_delivery_again_adds_nothing(home: Path) -> None:
    """A run that is delivered again, by this process or another, adds no line."""
    messages = turns("the fox sleeps", "where?")
    with MemTier.open(home) as memory:
        first = memory.record(messages, session_id="s", run_id="r")
        before = ledgers(memory)
        assert memory.record(messages, session_id="s", run_id="r") == []
        with MemTier.open(home) as other:
            assert other.record(messages, session_id="s", run_id="r") == []
        assert ledgers(memory) == before
        assert list(memory.entries()) == first


def test_two_persons_with_one_run_id(home: Path) -> None:
    """The same words in a run of the same name are each person's own, also once they are purged."""
    with MemTier.open(home, "p") as memory:

        def say(sender: str | None) -> list[Entry]:
            return memory.record(
                turns("the fox sleeps", "where?"), session_id="s", run_id="1", sender=sender
            )

        entries = {sender: say(sender) for sender in ("ann", "ben", None)}
        assert {*map(len, entries.values())} == {2}
        assert not any(map(say, entries))
        memory.purge(Selection(sender="ann"))
        assert not any(map(say, entries))
        assert {entry.sender for entry in memory.entries()} == {"ben", None}
        assert say("cid")


def test_growing_delivery_adds_what_is_new(home: Path) -> None:
    """A run that is delivered after each of its messages adds each message once."""
    messages = turns("the fox sleeps", "where?", "in its den", "thanks", "the fox sleeps")
    with MemTier.open(home) as memory:
        for end in (1, 2, 2, 4, 5):
            memory.record(messages[:end], session_id="s", run_id="r")
        assert [entry.content for entry in memory.entries()] == [m["content"] for m in messages]
        assert [entry.turn for entry in memory.entries()] == [1, 2, 3, 4, 5]


def test_key(home: Path) -> None:
    """The same words are new in another run, place, role or agent, and only then."""
    with MemTier.open(home) as memory, MemTier.open(home, agent_id="b") as other:
        entries = [
            *memory.record(turns("fox", "fox"), session_id="s", run_id="r"),
            *memory.record(turns("fox"), session_id="s", run_id="r2"),
            *other.record(turns("fox"), session_id="s", run_id="r"),
        ]
        assert len({entry.key for entry in entries}) == len(entries) == 4


def test_without_a_run_id(home: Path) -> None:
    """Without a run id one is made, and a second delivery cannot be recognised."""
    with MemTier.open(home) as memory:
        assert say(memory, "fox").run_id != say(memory, "fox").run_id
        assert len(list(memory.entries())) == 2


def test_turns_are_per_session(home: Path) -> None:
    """Turns count from 1 without gaps in each session of each agent."""
    with MemTier.open(home) as memory, MemTier.open(home, agent_id="b") as other:
        numbers = [
            say(memory, "fox", session_id="s1").turn,
            say(memory, "fox", session_id="s2").turn,
            say(memory, "fox", session_id="s1").turn,
            say(other, "fox", session_id="s1").turn,
        ]
    assert numbers == [1, 1, 2, 1]


def test_turns_across_an_index_that_lags(home: Path) -> None:
    """Turns and keys are right while the index lacks lines, and when it was deleted."""
    with MemTier.open(home) as memory:
        say(memory, "fox 1", run_id="r1")
        with write_lock(memory):
            assert say(memory, "fox 2", run_id="r2").turn == 2
            assert memory.record(turns("fox 2"), session_id="s", run_id="r2") == []
            assert say(memory, "fox 3", run_id="r3").turn == 3
    for path in memory.folder.glob("index.sqlite3*"):
        path.unlink()
    with MemTier.open(home) as memory:
        assert memory.record(turns("fox 2"), session_id="s", run_id="r2") == []
        assert say(memory, "fox 4", run_id="r4").turn == 4


def test_entry_fields(home: Path, day: Day) -> None:
    """An entry carries the run it came from, and times of saying and of writing."""
    with MemTier.open(home, "p", "host.main", clock=lambda: day(1)) as memory:
        entry = say(
            memory,
            "the fox sleeps",
            session_id="s1",
            run_id="r1",
            sender="ann",
            observed_at=day(-300),
            parent="r0",
        )
        assert (entry.project, entry.agent_id, entry.session_id) == ("p", "host.main", "s1")
        assert (entry.run_id, entry.sender, entry.parent) == ("r1", "ann", "r0")
        assert (entry.timestamp, entry.observed_at) == (day(1), day(-300))
        assert (entry.tokens, entry.promoted, entry.cognitive_weight) == (4, False, 0.0)
        [path] = (memory.folder / "episodic" / "host.main").glob("*.jsonl")
        assert path.name == "2026-01-06.jsonl"
        assert Entry.from_json(json.loads(path.read_bytes())) == entry


@pytest.mark.parametrize("number", [10**5000, -(10**5000), 2**63], ids=["huge", "low", "2**63"])
def test_no_integer_is_longer_than_sqlite_takes(home: Path, number: int) -> None:
    """A huge number is an error that names its argument, though Python could not print it."""
    with MemTier.open(home) as memory:
        for call in (
            lambda: memory.recall("fox", token_budget=number),
            lambda: memory.recall("fox", k=number),
            lambda: memory.knowledge.runs(limit=number),
            lambda: memory.knowledge.search("fox", limit=number),
        ):
            with pytest.raises(MessageError, match="an integer of 64 bits at most"):
                call()


@pytest.mark.parametrize("messages", [[{"role": "alien", "content": "x"}], "text", [3], {"a": 1}])
def test_what_is_no_message(home: Path, messages: Any) -> None:
    """One message that is none is an error with its place, and nothing is written."""
    with MemTier.open(home) as memory:
        batch = [*turns("fox"), *messages] if isinstance(messages, list) else messages
        with pytest.raises(MessageError):
            memory.record(batch, session_id="s")
        assert ledgers(memory) == b""


def test_secrets_never_reach_the_disk(home: Path) -> None:
    """A secret is masked before the ledger, the index and the journal's query."""
    secret = "sk-ant-api03-" + "Zq9" * 31
    with MemTier.open(home) as memory:
        entry = say(memory, f"the key of the fox is {secret}")
        assert entry.content == "the key of the fox is [redacted:anthropic-key]"
        memory.recall(f"what is {secret}", purpose="inject", run_id="r")
        memory.remember(f"the fox has {secret}")
        memory.end_run(tool_run(f"it is {secret}", ok=True), session_id="s", run_id="r")
    for path in home.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_tool_results_are_capped(home: Path) -> None:
    """A long tool result is cut at the setting and marked, so that it stays readable."""
    run = tool_run("ok", ok=True)
    run[2]["content"] = "x" * 10_000
    with MemTier.open(home, settings={"ledger.tool_result_chars": 500}) as memory:
        memory.record(run, session_id="s")
        [tool] = [entry for entry in memory.entries() if entry.role == "tool"]
        assert tool.truncated
        assert tool.content == "x" * 500 + "\n[... 9500 characters left out]"
        assert tool.tool == ToolCall(name="shell", call_id="c1", ok=True)
        assert [e.truncated for e in memory.entries() if e.role != "tool"] == [False] * 3


def test_own_block_is_not_recorded(home: Path) -> None:
    """What was injected into a prompt does not come back as the user's words."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps in its den", run_id="r1")
        block = memory.recall("fox", purpose="inject").text
        entry = say(memory, f"{block}\nand the owl?", run_id="r2")
        assert entry.content.strip() == "and the owl?"


# -- who may see what -----------------------------------------------------------------------------


def test_agents_are_apart(home: Path) -> None:
    """What was said to one agent is not recalled by another, unless the project grants it."""
    granted = {"agents.boss.read_all": True}
    with (
        MemTier.open(home, agent_id="a") as memory,
        MemTier.open(home, agent_id="b") as other,
        MemTier.open(home, agent_id="boss", settings=granted) as boss,
        MemTier.open(home, agent_id="boss") as nobody,
    ):
        entry = say(memory, "the fox sleeps")
        assert texts(memory.recall("fox").hits) == ["the fox sleeps"]
        assert not other.recall("fox").hits
        assert not nobody.recall("fox").hits
        assert texts(boss.recall("fox").hits) == ["the fox sleeps"]
        [stored] = memory.add_facts([make_draft(entry, "the den")])
        assert texts(other.recall("works").hits) == [stored.text]
        [source] = other.recall("works").hits[0].sources
        assert (source.entry, source.file) == (entry.id, None)
        assert other.fact(stored.id) == (stored, [])
        assert boss.fact(stored.id) == (stored, [one_of(memory.entries())])


def one_of(entries: Iterator[Entry]) -> Entry:
    """Return the only entry."""
    [entry] = entries
    return entry


def test_senders_are_apart(home: Path) -> None:
    """On a shared channel entries are recalled for their own sender only, neighbours included."""
    with MemTier.open(home) as memory:
        say(memory, "the fox of Ann", sender="ann")
        say(memory, "the fox of Bob", sender="bob")
        say(memory, "the fox of nobody")
        assert texts(memory.recall("fox", sender="ann").hits) == ["the fox of Ann"]
        assert texts(memory.recall("fox", sender="bob").hits) == ["the fox of Bob"]
        assert texts(memory.recall("fox").hits) == ["the fox of nobody"]
        assert "Bob" not in memory.recall("Ann Bob nobody fox", sender="ann").text


def test_senders_are_apart_while_the_index_is_locked(home: Path) -> None:
    """What the index has not taken in yet is held to the same rules."""
    with MemTier.open(home) as memory:
        say(memory, "the first fox", sender="ann")
        with write_lock(memory):
            messages = [*turns("a late fox"), {"role": "system", "content": "a system fox"}]
            memory.record(messages, session_id="s", sender="bob")
            say(memory, "[system] a fox", sender="bob")
            assert texts(memory.recall("fox", sender="ann").hits) == ["the first fox"]
            assert texts(memory.recall("fox", sender="bob").hits) == ["a late fox"]


def test_projects_are_apart(home: Path) -> None:
    """Neither entries nor facts leave their project, whatever an agent may read."""
    granted = {"agents.main.read_all": True}
    with (
        MemTier.open(home, "one", settings=granted) as memory,
        MemTier.open(home, "other", settings=granted) as other,
    ):
        memory.add_facts([make_draft(say(memory, "the fox sleeps"), "the den")])
        assert memory.recall("fox").hits
        assert other.recall("fox").label == "empty"
        assert other.facts() == []


def test_system_text_is_never_found(home: Path) -> None:
    """What is `[system]`, by its role or its mark, is written and never retrieved."""
    with MemTier.open(home) as memory:
        memory.record([{"role": "system", "content": "the fox rules"}], session_id="s")
        say(memory, "  [system] the fox rules")
        say(memory, "[System] the fox asks")
        assert texts(memory.recall("fox").hits) == ["[System] the fox asks"]
        assert len(list(memory.entries())) == 3


def test_tool_and_external_text(home: Path) -> None:
    """Tool and external text is found by searching, but never put into a prompt on its own."""
    run = tool_run("the fox is in", ok=True)
    run[0]["content"] = "please count the fox"
    run[2]["content"] = "fox: 1 found"
    page = {"role": "user", "content": "a page on the fox", "origin": "external"}
    with MemTier.open(home) as memory:
        memory.record([run[0], page, *run[1:]], session_id="s")
        searched = memory.recall("fox")
        assert {"fox: 1 found", "a page on the fox"} < set(texts(searched.injected))
        injected = memory.recall("fox", purpose="inject")
        assert set(texts(injected.hits)) == set(texts(searched.hits))
        # What the assistant said beside the page rests on it.
        assert texts(injected.injected) == ["please count the fox"]
        assert "found" not in injected.text and "page" not in injected.text


def test_answers_to_external_text_are_tainted(home: Path) -> None:
    """In a run with external text the assistant's words are tainted, and nothing promotes them."""
    page = {"role": "user", "content": "My name is Eve.", "origin": "external"}
    answer = {"role": "assistant", "content": "My name is Eve."}
    with MemTier.open(home) as memory:
        assert [e.tainted for e in memory.record([page, answer], session_id="s")] == [False, True]
        assert [e.tainted for e in memory.record([answer], session_id="s2")] == [False]
        assert memory.consolidate().facts == 0


# -- recalling ------------------------------------------------------------------------------------


def test_recall_before_anything_was_said(home: Path) -> None:
    """A new project answers with an empty recall and an empty block."""
    with MemTier.open(home) as memory:
        recall = memory.recall("fox", purpose="inject")
        assert (recall.label, recall.hits, recall.text, recall.tokens) == ("empty", (), "", 0)


def test_recall_is_traced_to_its_line(home: Path) -> None:
    """Every hit names the ledger file and line that it stands in."""
    with MemTier.open(home) as memory:
        for number in range(3):
            say(memory, f"the fox {number}", run_id=f"r{number}")
        recall = memory.recall("fox")
        assert len(recall.hits) == 3
        for hit in recall.hits:
            [source] = hit.sources
            assert source.file is not None and source.line is not None
            line = (memory.folder / source.file).read_bytes().splitlines()[source.line - 1]
            assert json.loads(line)["id"] == source.entry == hit.id


def test_late_recall_serves_what_is_ready(home: Path) -> None:
    """A recall whose deadline has passed gives the ranking by words alone, labelled."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps")
        recall = memory.recall("fox", deadline_ms=0)
        assert recall.label == "degraded: deadline"
        assert texts(recall.injected) == ["the fox sleeps"]
        assert memory.recall("fox", deadline_ms=60_000).label == "hybrid"


def test_acknowledged_run_is_visible_while_the_index_is_locked(home: Path) -> None:
    """An agent's own stored run is in its next recall, though another process locks the index."""
    with MemTier.open(home) as memory:
        say(memory, "the old fox")
        with write_lock(memory):
            entry = say(memory, "the new fox")
            recall = memory.recall("new fox", purpose="inject", deadline_ms=5000)
            assert recall.label == "degraded: index locked"
            assert {entry.id} < {hit.id for hit in recall.injected}
            assert "the new fox" in recall.text
        assert memory.recall("new fox").label == "hybrid"
        assert len(memory.recall("fox").hits) == 2


def test_forgetting_holds_while_the_index_is_locked(home: Path) -> None:
    """What another process forgot is gone from a recall that cannot update the index."""
    with MemTier.open(home) as memory:
        retained, forgotten = say(memory, "the fox stays"), say(memory, "the fox goes")
        event = memory.actor.event(ForgetEvent(items=(forgotten.id,)))
        with write_lock(memory):
            memory.store.append_events([event], shared=True)
            assert [hit.id for hit in memory.recall("fox").hits] == [retained.id]
        assert [hit.id for hit in memory.recall("fox").hits] == [retained.id]


def test_locked_ledger(home: Path) -> None:
    """While another process keeps a ledger locked, recording ends in an error and loses nothing."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps", run_id="r1")
        folder = memory.folder / "episodic" / "main"
        before = ledgers(memory)
        locked = hold_lock(folder / ".lock", 1.0)
        with locked, pytest.raises(LedgerError, match="stayed locked"):
            memory.store.append_entries("main", [], memory._clock, timeout=0.1)
        assert ledgers(memory) == before


def test_sessions_are_recorded_as_their_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording sessions at once writes what recording each run does, and again nothing new."""
    monkeypatch.setattr(recorder, "_TOGETHER", 100)
    when = datetime(2026, 1, 5, tzinfo=UTC)
    sessions = [
        Session(
            session_id=f"s{number % 3}",  # one session may come in parts
            observed_at=when + timedelta(hours=number),
            turns=tuple(
                ImportedMessage(
                    id=f"{turn}", run_id=f"r{number}", message=Message(role=role, content=text)
                )
                for turn, (role, text) in enumerate(
                    [("user", f"is fox {number} red?"), ("assistant", ""), ("assistant", "yes")]
                )
            ),
        )
        for number in range(60)
    ]
    with MemTier.open(home, "one") as memory, MemTier.open(home, "other") as other:
        apart = [
            entry
            for session in sessions
            for run in session.exchanges
            for entry in memory.record(
                run.messages,
                session_id=session.session_id,
                run_id=run.run_id,
                observed_at=session.observed_at,
            )
        ]
        groups = [*other.record_sessions(iter(sessions))]
        together = [entry for group in groups for entry in group]
        assert len(groups) > 1

        def content_of(entry: Entry) -> dict[str, Any]:
            return entry.to_json() | {"id": None, "timestamp": None, "project": None}

        assert len(together) == 2 * len(sessions)
        assert (
            [*map(content_of, together)]
            == [*map(content_of, apart)]
            == [*map(content_of, other.entries())]
        )
        assert [entry for group in other.record_sessions(sessions) for entry in group] == []
        (other.folder / "OFF").write_text("")
        with pytest.raises(Paused):
            other.record_sessions(sessions)


def test_at_decides_what_is_old(home: Path, day: Day) -> None:
    """Ages are counted from ``at``, or from the clock; a naive time is UTC."""
    only = dict.fromkeys(SIGNALS, 0.0) | {"retrieval.weights.decay": 1.0}
    with MemTier.open(home, settings=only, clock=lambda: day(100)) as memory:
        say(memory, "the fox", observed_at=day(0))
        say(memory, "the owl and the fox", observed_at=day(10), session_id="s2")

        def ages(at: datetime | None) -> dict[str, float]:
            hits = memory.recall("fox", at=at).hits
            return {hit.text: round(-math.log(hit.signals["decay"]) / 0.05, 3) for hit in hits}

        assert ages(None) == {"the fox": 100, "the owl and the fox": 90}
        assert ages(day(20).replace(tzinfo=None)) == {"the fox": 20, "the owl and the fox": 10}
        assert ages(day(-5)) == {"the fox": 0, "the owl and the fox": 0}


# -- learning from outcomes -----------------------------------------------------------------------


def recalled_run(memory: MemTier, run: str, answer: str, *, ok: bool | None) -> Any:
    """Recall for a run, end it, and return its result."""
    memory.recall("where is the fox and the owl", purpose="inject", run_id=run, session_id="now")
    return memory.end_run(tool_run(answer, ok=ok), session_id="now", run_id=run)


@pytest.mark.parametrize(
    ("ok", "reward", "weight"), [(True, 1.0, 0.1), (False, -0.5, -0.05), (None, 0.0, 0.0)]
)
def test_outcome_is_credited(home: Path, ok: bool | None, reward: float, weight: float) -> None:
    """What was injected and used gains 0.1 when the tools fared well and loses 0.05 when not."""
    with MemTier.open(home) as memory:
        used = say(memory, "the fox sleeps in the red barn", run_id="r1")
        idle = say(memory, "owl", run_id="r2", session_id="s2")
        result = recalled_run(memory, "run", "red barn", ok=ok)
        assert result.reward == reward
        assert result.credits == ({used.id: pytest.approx(weight)} if weight else {})
        now = {entry.id: entry.cognitive_weight for entry in memory.entries()}
        assert (now[used.id], now[idle.id]) == (pytest.approx(weight), 0.0)
        [hit] = [hit for hit in memory.recall("barn").hits if hit.id == used.id]
        assert hit.weight == pytest.approx(weight)


def test_only_what_was_injected_is_credited(home: Path) -> None:
    """A search is no injection, and a run that recalled nothing credits nothing."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps in the red barn")
        memory.recall("fox", run_id="run", session_id="now")
        result = memory.end_run(tool_run("red barn", ok=True), session_id="now", run_id="run")
        assert (result.reward, result.credits) == (1.0, {})


def test_credit_is_given_once(home: Path) -> None:
    """A run that is delivered twice is credited once, also by another process."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        recalled_run(memory, "run", "red barn", ok=True)
        run = tool_run("red barn", ok=True)
        assert memory.end_run(run, session_id="now", run_id="run").credits == {}
        with MemTier.open(home) as other:
            assert other.end_run(run, session_id="now", run_id="run").credits == {}
        assert memory.recall("barn").hits[0].weight == pytest.approx(0.1)
        assert [e.data["item"] for e in memory.events(kinds=["credit"])] == [entry.id]


def test_later_attempt_replaces_the_earlier(home: Path) -> None:
    """A run that failed and then succeeded counts as succeeded, and the other way round."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")

        def weight() -> float:
            return {e.id: e.cognitive_weight for e in memory.entries()}[entry.id]

        recalled_run(memory, "run", "red barn", ok=False)
        assert weight() == pytest.approx(-0.05)
        memory.end_run(tool_run("red barn", ok=True), session_id="now", run_id="run")
        assert weight() == pytest.approx(0.1)
        memory.end_run(tool_run("red barn", ok=None), session_id="now", run_id="run")
        assert weight() == 0.0
        attempts = [event.data["attempt"] for event in memory.events(kinds=["credit"])]
        assert attempts == [1, 2, 3]


def test_failed_run_is_no_success(home: Path) -> None:
    """A run that ended in an error earns no reward, however its tools fared."""
    with MemTier.open(home) as memory:
        say(memory, "the fox sleeps in the red barn")
        memory.recall("fox", purpose="inject", run_id="run")
        run = tool_run("red barn", ok=True)
        result = memory.end_run(run, session_id="now", run_id="run", error="timed out")
        assert (result.reward, result.credits) == (0.0, {})


def test_run_without_an_id_is_credited(home: Path) -> None:
    """Without a run id a run is credited for its session's recalls since the last run."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps in the red barn")
        for _ in range(2):
            memory.recall("fox", purpose="inject", session_id="now")
            memory.recall("fox", purpose="inject", session_id="elsewhere")
            result = memory.end_run(tool_run("red barn", ok=True), session_id="now")
            assert set(result.credits) == {entry.id}
        assert memory.end_run(tool_run("red barn", ok=True), session_id="now").credits == {}


def test_recalls_of_another_process_are_credited(home: Path) -> None:
    """A host that recalls in one process and ends the run in another loses no credit."""
    with MemTier.open(home) as memory, MemTier.open(home) as other:
        entry = say(memory, "the fox sleeps in the red barn")
        recall = memory.recall("fox", purpose="inject", run_id="run")
        result = other.end_run(tool_run("red barn", ok=True), session_id="now", run_id="run")
        assert set(result.credits) == {entry.id}
        named = other.end_run(
            tool_run("red barn", ok=True), session_id="now", run_id="run2", recall_ids=[recall.id]
        )
        assert set(named.credits) == {entry.id}


def test_explain(home: Path) -> None:
    """The journal tells what was injected and why, with the weight of then and of now."""
    with MemTier.open(home, settings={"retrieval.k": 1}) as memory:
        used = say(memory, "the fox sleeps in the red barn", run_id="r1")
        missed = say(memory, "an owl", run_id="r2", session_id="s2")
        query = "the fox in the red barn and the owl"
        recall = memory.recall(query, purpose="inject", run_id="run", k=1)
        memory.end_run(tool_run("red barn", ok=True), session_id="now", run_id="run")
        explanation = memory.explain(recall.id)
        assert (explanation["query"], explanation["label"]) == (query, "hybrid")
        [hit] = explanation["injected"]
        assert (hit["id"], hit["text"]) == (used.id, used.content)
        assert (hit["weight_then"], hit["weight_now"]) == (0.0, pytest.approx(0.1))
        signals = recall.hits[0].signals  # what counted for nothing is left out of the journal
        counted = {name: signals[name] for name in hit["signals"]}
        assert counted.keys() >= {"words", "window"}
        assert hit["signals"] == pytest.approx(counted, abs=1 / 61)
        assert hit["score"] == pytest.approx(recall.hits[0].score)
        assert (hit["file"], hit["line"]) == (recall.hits[0].sources[0].file, 1)
        assert [near["id"] for near in explanation["near_misses"]] == [missed.id]
        assert [credit["item"] for credit in explanation["credits"]] == [used.id]
        assert (explanation["postings"], explanation["vectors"]) == (
            recall.postings,
            recall.vectors,
        )
        with pytest.raises(NotFound, match="has no recall 'nothing'"):
            memory.explain("nothing")


def test_explain_to_another_agent(home: Path) -> None:
    """Another agent cannot tell that there was a recall, still less what was asked."""
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        say(memory, "the fox sleeps")
        recall = memory.recall("fox", purpose="inject")
        assert memory.explain(recall.id)["injected"]
        with pytest.raises(NotFound, match="has no recall"):
            other.explain(recall.id)


def test_newest_of_conflicting_facts_is_first(home: Path, day: Day) -> None:
    """Where agents' facts contradict each other, the newest line is first and names the older.

    A question about the time of the older one has that first.
    """
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        origin: dict[str, Any] = {"origin": "assistant"}
        early, late = day(-30), day(-1)
        text = "the fox works at"
        first = say(memory, "noted", observed_at=early)
        [old] = memory.add_facts(
            [
                make_draft(
                    first, "Acme", valid_from=early, text=f"{text} Acme, works at it", **origin
                )
            ]
        )
        second = say(other, "noted", observed_at=late)
        [new] = other.add_facts(
            [make_draft(second, "Bolt", valid_from=late, text=f"{text} Bolt", **origin)]
        )
        recall = memory.recall("Where does the fox work, Acme?", at=day(0))
        assert [hit.id for hit in recall.hits][:2] == [old.id, new.id]
        ids = [hit.id for hit in recall.injected]
        assert ids.index(new.id) < ids.index(old.id)
        assert f"{text} Bolt (newest of 2; the older says otherwise)" in recall.text
        [line] = [hit for hit in memory.explain(recall.id)["injected"] if hit["id"] == new.id]
        assert (line["note"], line["rank"]) == ("newest of 2; the older says otherwise", 2)
        then = memory.recall(f"Where did the fox work on {early:%d %B %Y}?", at=day(0))
        ids = [hit.id for hit in then.injected]
        assert ids.index(old.id) < ids.index(new.id)


def test_a_fact_that_replaced_another_says_so(home: Path, day: Day) -> None:
    """A superseding fact says that there was an older one, unless that was forgotten."""
    with MemTier.open(home) as memory:
        entry = say(memory, "noted")
        [old] = memory.add_facts([make_draft(entry, "Acme", valid_from=day(-9))])
        memory.add_facts([make_draft(entry, "Bolt", valid_from=day(-1))])
        assert "the fox works at Bolt (replaces an older one)" in memory.recall("fox").text
        memory.forget(ids=[old.id])
        assert "older" not in memory.recall("fox").text


def test_expired_recalls(home: Path, day: Day) -> None:
    """Recalls are dropped after the retention; credits, and so weights, stay for ever."""
    now = day(0)
    with MemTier.open(home, clock=lambda: now) as memory:
        say(memory, "the fox sleeps in the red barn")
        recalled_run(memory, "run", "red barn", ok=True)
        [old] = memory.events(kinds=["recall"])
        now = day(91)
        young = memory.recall("fox")
        assert memory.expire_recalls() == 1
        assert memory.expire_recalls() == 0
        with pytest.raises(NotFound):
            memory.explain(old.id)
        assert memory.explain(young.id)
        assert memory.recall("barn").hits[0].weight == pytest.approx(0.1)
        memory.reindex()
        assert memory.recall("barn").hits[0].weight == pytest.approx(0.1)


# -- forgetting -----------------------------------------------------------------------------------


def test_forget_hides_at_once_everywhere(home: Path) -> None:
    """A forgotten entry, and a fact resting only on it, are gone from every answer."""
    with MemTier.open(home) as memory, MemTier.open(home) as other:
        forgotten = say(memory, "the fox sleeps", run_id="r1")
        retained = say(memory, "the fox is red", run_id="r2")
        [alone] = memory.add_facts([make_draft(forgotten, "the den")])
        [both] = memory.add_facts([make_draft(forgotten, "Acme", relation="likes")])
        memory.store.append_events(
            [
                memory.actor.event(
                    PromoteEvent(items=(retained.id,), facts=(both.id,), agent="main", session="s")
                )
            ],
            shared=True,
        )
        recall = memory.recall("fox", purpose="inject")
        assert len(recall.hits) == 4
        would = memory.forget(ids=[forgotten.id], dry_run=True)
        assert (would.ids, would.facts) == ((forgotten.id,), (alone.id,))
        assert len(memory.recall("fox").hits) == 4
        assert memory.forget(ids=[forgotten.id]) == would
        for reader in (memory, other):
            assert {hit.id for hit in reader.recall("fox").hits} == {retained.id, both.id}
            assert [entry.id for entry in reader.entries()] == [retained.id]
            assert [fact.id for fact in reader.facts()] == [both.id]
            injected = reader.explain(recall.id)["injected"]
            assert {hit["text"] for hit in injected if hit["id"] in (forgotten.id, alone.id)} == {
                None
            }
            with pytest.raises(NotFound):
                reader.fact(alone.id)
        memory.reindex()
        assert {hit.id for hit in memory.recall("fox").hits} == {retained.id, both.id}
        assert memory.forget(ids=[retained.id]).facts == (both.id,)


def test_forgotten_does_not_come_back(home: Path) -> None:
    """Delivering a forgotten run, fact or words again does not bring them back."""
    with MemTier.open(home) as memory:
        entry = say(memory, "My name is Ann.", run_id="r")
        memory.consolidate()
        [existing] = memory.facts()
        draft = FactDraft(
            subject=existing.subject,
            relation=existing.relation,
            value=existing.value,
            text=existing.text,
            sources=existing.sources,
        )
        memory.forget(ids=[existing.id])
        assert memory.record(turns("My name is Ann."), session_id="s", run_id="r") == []
        assert memory.add_facts([existing]) == memory.add_facts([draft]) == []
        assert memory.consolidate().facts == 0
        memory.forget(ids=[entry.id])
        assert memory.record(turns("My name is Ann."), session_id="s", run_id="r") == []
        memory.reindex()
        assert memory.recall("Ann name").label == "empty"
        assert memory.facts(include_superseded=True) == []
        assert not [finding for finding in memory.doctor() if finding.level != "ok"]


def test_forget_a_session(home: Path) -> None:
    """Forgetting a session hides this agent's entries of it, and nobody else's."""
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        forgotten = [say(memory, f"fox {n}", session_id="s1", run_id=f"r{n}").id for n in range(3)]
        say(memory, "fox 4", session_id="s2")
        say(other, "fox 5", session_id="s1")
        assert memory.forget(session="s1").ids == tuple(sorted(forgotten))
        assert texts(memory.recall("fox").hits) == ["fox 4"]
        assert texts(other.recall("fox").hits) == ["fox 5"]
        assert say(memory, "fox 6", session_id="s1").turn == 4


def test_forget_what_is_not_there(home: Path) -> None:
    """An unknown id or session is an error, and what was named beside it stays."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox")
        with pytest.raises(NotFound, match="'nothing'"):
            memory.forget(ids=[entry.id, "nothing"])
        with pytest.raises(NotFound, match="no session 'nowhere'"):
            memory.forget(session="nowhere")
        assert memory.recall("fox").hits


# -- facts ----------------------------------------------------------------------------------------


def test_facts_are_added_once(home: Path) -> None:
    """A fact that is there, in whatever case and spacing, is not added again."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox")
        [existing] = memory.add_facts([make_draft(entry, "Acme")])
        assert memory.add_facts([make_draft(entry, " ACME "), make_draft(entry, "acme")]) == []
        assert memory.add_facts([existing]) == []
        assert memory.facts() == [existing]
        assert memory.fact(existing.id) == (existing, list(memory.entries()))
        with pytest.raises(NotFound):
            memory.fact("nothing")


def test_single_valued_facts_supersede(home: Path, day: Day) -> None:
    """A newer value of a single-valued relation replaces the older, which tells until when."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox")
        [old] = memory.add_facts([make_draft(entry, "Acme", valid_from=day(0))])
        [new] = memory.add_facts([make_draft(entry, "Bolt", valid_from=day(5))])
        assert memory.facts() == [new]
        past, current = memory.facts(include_superseded=True)
        assert (past.id, past.valid_to, current) == (old.id, day(5), new)
        assert not {old.id} & {hit.id for hit in memory.recall("works Acme").hits}
        memory.add_facts([make_draft(entry, "Cord", valid_from=day(2))])  # learned late, but older
        assert memory.facts() == [new]
        assert len(memory.facts(include_superseded=True)) == 3
        memory.reindex()
        assert memory.facts() == [new]


def test_other_facts_add_up(home: Path) -> None:
    """What may have many values, or was said of another subject, is kept beside the old."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox")
        memory.add_facts([make_draft(entry, "eggs", relation="likes")])
        memory.add_facts([make_draft(entry, "milk", relation="likes")])
        memory.add_facts([make_draft(entry, "Acme"), make_draft(entry, "Bolt", subject="the owl")])
        assert [fact.value for fact in memory.facts()] == ["eggs", "milk", "Acme", "Bolt"]


def test_agents_do_not_supersede_each_other(home: Path) -> None:
    """Another agent's own conclusion stays; the user's words replace the user's words."""
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        mine, theirs = say(memory, "the fox"), say(other, "the fox")
        memory.add_facts([make_draft(mine, "Acme", origin="assistant")])
        other.add_facts([make_draft(theirs, "Bolt", origin="assistant")])
        assert [fact.value for fact in memory.facts()] == ["Acme", "Bolt"]
        memory.add_facts([make_draft(mine, "Cord", subject="the owl")])
        other.add_facts([make_draft(theirs, "Dyne", subject="the owl")])
        assert [fact.value for fact in memory.facts()] == ["Acme", "Bolt", "Dyne"]


def test_superseding_fact_starts_anew(home: Path) -> None:
    """What an old fact earned is not the new one's."""
    with MemTier.open(home) as memory:
        entry = say(memory, "unrelated words")
        [old] = memory.add_facts([make_draft(entry, "Acme")])
        memory.recall("fox works", purpose="inject", run_id="run")
        memory.end_run(tool_run("the fox works", ok=True), session_id="now", run_id="run")
        weights = {hit.id: hit.weight for hit in memory.recall("fox works").hits}
        assert weights[old.id] > 0.05
        [new] = memory.add_facts([make_draft(entry, "Bolt")])
        weights = {hit.id: hit.weight for hit in memory.recall("fox works").hits}
        assert weights[new.id] == 0.0
        assert old.id not in weights


def test_consolidate(home: Path) -> None:
    """User statements become shared facts once; their entries are promoted, other text is not."""
    with MemTier.open(home, agent_id="a") as memory, MemTier.open(home, agent_id="b") as other:
        source = memory.record(turns("My name is Ann.", "My name is Bot."), session_id="s")[0]
        report = other.consolidate()
        assert (report.read, report.facts, report.promoted) == (2, 1, 1)
        [existing] = other.facts()
        assert (existing.relation, existing.value) == ("name", "Ann")
        assert [s.entry for s in existing.sources] == [source.id]
        assert existing.quote in source.content
        assert {e.id: e.promoted for e in memory.entries()}[source.id]
        assert memory.consolidate().read == 0
        assert [hit.id for hit in other.recall("Ann").hits] == [existing.id]
        say(memory, "My name is Ann.", session_id="t", run_id="again")
        report = memory.consolidate()
        assert (report.facts, report.promoted) == (0, 1)
        [_, entries] = memory.fact(existing.id)
        assert len(entries) == 2


def test_consolidate_in_batches(home: Path) -> None:
    """A pass reads at most its limit and the next goes on, until nothing is left."""
    with MemTier.open(home) as memory:
        for number in range(5):
            say(memory, f"I like fox number {number}.", run_id=f"r{number}")
        assert [memory.consolidate(2).read for _ in range(4)] == [2, 2, 1, 0]
        assert memory.status()["backlog"] == 0
        assert memory.status()["consolidation"]["due"] is False
        assert len(memory.facts()) == 5


def test_crash_between_facts_and_cursor(home: Path) -> None:
    """A pass that died after its facts is repeated without doubling any, superseded ones too."""
    with MemTier.open(home) as memory:
        for number, city in enumerate(["Rome", "Oslo", "Bern"]):
            say(memory, f"I live in {city}.", run_id=f"r{number}", session_id=f"s{number}")
        drafts = extract_facts(list(memory.entries()), memory.settings.facts.single_valued).drafts
        assert len(memory.add_facts(drafts)) == 3  # and here the process died
        assert [fact.value for fact in memory.facts()] == ["Bern"]
        report = memory.consolidate()
        assert (report.read, report.facts, report.promoted) == (3, 0, 3)
        assert [fact.value for fact in memory.facts()] == ["Bern"]
        assert len(memory.facts(include_superseded=True)) == 3


def test_two_consolidations_at_once(home: Path) -> None:
    """While one process consolidates another is told so, at once."""
    with MemTier.open(home) as memory:
        say(memory, "My name is Ann.")
        with (
            hold_lock(memory.folder / ".consolidate.rules.lock", 0.0),
            pytest.raises(LedgerError, match="locked by another process"),
        ):
            memory.consolidate()
        assert memory.consolidate().facts == 1


def test_remember(home: Path) -> None:
    """What was asked to be kept is an entry and a fact on it, once, secrets masked."""
    with MemTier.open(home) as memory:
        remembered = memory.remember("the fox sleeps in the barn")
        assert memory.remember(" the fox sleeps in the barn ") == remembered
        secret = memory.remember("the key is sk-ant-api03-" + "Zq9" * 31)
        assert memory.remember("the key is sk-ant-api03-" + "Zq9" * 31) == secret
        assert memory.facts() == [remembered, secret]
        [entry, _] = memory.entries()
        assert (remembered.text, remembered.sources[0].entry, entry.promoted) == (
            entry.content,
            entry.id,
            True,
        )
        for nothing in ("", "  \n"):
            with pytest.raises(MessageError, match="no text to remember"):
                memory.remember(nothing)
        memory.forget(ids=[entry.id])
        with pytest.raises(NotFound, match="forgotten once"):
            memory.remember("the fox sleeps in the barn")


def test_remember_after_a_crash(home: Path) -> None:
    """When the entry was stored but its fact was not, asking again makes the fact."""
    with MemTier.open(home) as memory:
        run = "remember:the-fox-sleeps"
        say(memory, "the fox sleeps", session_id="remembered", run_id=run)
        assert memory.remember("the fox sleeps").value == "the fox sleeps"


# -- looking and keeping --------------------------------------------------------------------------


def test_entries_are_selected(home: Path, day: Day) -> None:
    """The log is narrowed by agent, date and session, read on after an id, and cut at a limit."""
    now = day(0)
    with (
        MemTier.open(home, agent_id="a", clock=lambda: now) as memory,
        MemTier.open(home, agent_id="b", clock=lambda: now) as other,
    ):
        first = say(memory, "fox 1", session_id="s1")
        now = day(1)
        second = say(memory, "fox 2", session_id="s2")
        third = say(other, "fox 3", session_id="s1")

        def ids(**how: Any) -> list[str]:
            return [entry.id for entry in memory.entries(**how)]

        assert ids() == [first.id, second.id, third.id]
        assert ids(agent="a") == [first.id, second.id]
        assert ids(date="2026-01-06") == [second.id, third.id]
        assert ids(session="s1") == [first.id, third.id]
        assert ids(after_id=first.id) == [second.id, third.id]
        assert ids(limit=1) == [first.id]


def test_pause(home: Path) -> None:
    """A project that is switched off neither records nor recalls, for any process."""
    with MemTier.open(home) as memory, MemTier.open(home) as other:
        entry = say(memory, "the fox")
        memory.pause()
        before = ledgers(memory)
        for reader in (memory, other):
            assert reader.paused and reader.status()["paused"]
            recall = reader.recall("fox", purpose="inject")
            assert (recall.label, recall.text) == ("degraded: the project is off", "")
            for refused in (
                lambda: say(reader, "owl"),  # noqa: B023
                lambda: reader.add_facts([make_draft(entry, "Acme")]),  # noqa: B023
                reader.consolidate,
                lambda: reader.remember("owl"),  # noqa: B023
            ):
                with pytest.raises(Paused, match="memtier on"):
                    refused()
        assert ledgers(memory) == before
        other.resume()
        assert say(memory, "owl") and memory.recall("fox").hits


def test_torn_and_invalid_lines_are_told(home: Path) -> None:
    """`doctor` names a torn and an invalid line with file and line; `status` counts them."""
    with MemTier.open(home) as memory:
        say(memory, "the fox", run_id="r1")
        [path] = (memory.folder / "episodic" / "main").glob("*.jsonl")
        with path.open("ab") as file:
            file.write(b"not json\n" + b'{"torn": ')
        warnings = {finding.where: finding for finding in memory.doctor() if finding.level != "ok"}
        assert "cannot be read" in warnings[f"{path}:2"].what
        assert warnings[f"{path}:2"].level == "error"
        assert "torn" in warnings[f"{path}:3"].what
        assert all(finding.remedy for finding in warnings.values())
        assert "1 ledger lines could not be read" in str(memory.status()["warnings"])
        say(memory, "the owl", run_id="r2")
        assert len(memory.recall("fox owl").hits) == 2
        assert "2 ledger lines could not be read" in str(memory.status()["warnings"])


def test_status_of_a_quiet_project(home: Path) -> None:
    """Where all is well, nothing is degraded and `doctor` finds nothing to do."""
    with MemTier.open(home) as memory:
        say(memory, "the fox")
        memory.recall("fox")
        status = memory.status()
        assert (status["entries"], status["facts"], status["degraded"]) == (1, 0, [])
        assert (status["warnings"], status["paused"]) == ([], False)
        assert status["agents"]["main"].keys() == {"last_stored", "last_recall"}
        assert json.loads(json.dumps(status)) == status
        assert {finding.level for finding in memory.doctor()} == {"ok"}


def test_hooks_are_noted(home: Path, day: Day) -> None:
    """A hook that failed last is degraded with its reason; one that went well since is not."""
    now = day(0)
    with MemTier.open(home, clock=lambda: now) as memory:
        memory.note_hook("host.main", "agent_end", ok=True)
        now = day(1)
        memory.note_hook("host.main", "agent_end", ok=False, error="disk full")
        assert "host.main agent_end: disk full" in memory.status()["degraded"]
        now = day(2)
        memory.note_hook("host.main", "agent_end", ok=True)
        assert memory.status()["degraded"] == []
        assert memory.status()["hooks"]["host.main"]["agent_end"]["runs"] == 3


def test_project_must_exist(home: Path) -> None:
    """Looking at a project that is not there does not make it."""
    with pytest.raises(NotFound, match="no project 'nowhere'"):
        MemTier.open(home, "nowhere", create=False)
    assert not home.exists()


# -- ranking --------------------------------------------------------------------------------------

SIGNALS = tuple(f"retrieval.weights.{signal.name}" for signal in fields(Weights))


def ranked(home: Path, query: str, at: datetime, **weights: float) -> list[str]:
    """Return the texts in the order that these weights alone give."""
    only = dict.fromkeys(SIGNALS, 0.0)
    only |= {f"retrieval.weights.{name}": value for name, value in weights.items()}
    with MemTier.open(home, settings=only) as memory:
        return texts(memory.recall(query, at=at).hits)


def test_decay_by_itself(home: Path, day: Day) -> None:
    """Of two lines that match alike the newer comes first because of its age alone."""
    with MemTier.open(home) as memory:
        say(memory, "the fox, day one", observed_at=day(0), session_id="s1")
        say(memory, "the fox, day two", observed_at=day(60), session_id="s2")
    assert ranked(home, "fox", day(61), words=1)[0] == "the fox, day one"  # the smaller id
    assert ranked(home, "fox", day(61), words=1, decay=0.05)[0] == "the fox, day two"


def test_weight_by_itself(home: Path, day: Day) -> None:
    """Of two lines that match alike the one that helped comes first because of that alone."""
    with MemTier.open(home, settings={"embedding.model": "none"}) as memory:
        say(memory, "fox red barn", session_id="s1", observed_at=day(0))
        say(memory, "fox old mill", session_id="s2", observed_at=day(0))
        assert texts(memory.recall("fox", at=day(1)).hits)[0] == "fox red barn"
        recalled_run(memory, "run", "old mill", ok=True)
        assert texts(memory.recall("fox", at=day(1)).hits)[0] == "fox old mill"
    assert ranked(home, "fox", day(1), words=1)[0] == "fox red barn"
    assert ranked(home, "fox", day(1), words=1, weight=0.25)[0] == "fox old mill"


def test_tier_by_itself(home: Path, day: Day) -> None:
    """Of a line and a fact that match alike the fact comes first because of its tier alone."""
    with MemTier.open(home) as memory:
        entry = say(memory, "the fox sleeps", observed_at=day(0))
        memory.add_facts([make_draft(entry, "x", text="the fox sleeps", valid_from=day(0))])
        first, other = memory.recall("fox", at=day(0)).hits
    assert {type(first.item), type(other.item)} == {Entry, Fact}
    only = dict.fromkeys(SIGNALS, 0.0)
    for weight, kinds in ((0.0, [Entry, Fact]), (0.1, [Fact, Entry])):
        chosen = only | {"retrieval.weights.tier": weight}
        with MemTier.open(home, settings=chosen) as memory:
            hits = memory.recall("fox", at=day(0)).hits
            assert [type(hit.item) for hit in hits] == kinds


def direct(
    query: str, facts: list[dict[str, Any]], entries: list[dict[str, Any]]
) -> list[tuple[str, float]]:
    """Compute MemTier's published ranking (section 3.2, eq. 2 and 3) with rank-bm25."""

    def scores(pool: list[dict[str, Any]]) -> list[float]:
        words = [re.findall(r"\w+", item["text"].lower()) for item in pool]
        return list(BM25Okapi(words, k1=1.5, b=0.75).get_scores(re.findall(r"\w+", query.lower())))

    def value(item: dict[str, Any], bm25: float) -> float:
        bypass = bm25 > 2.0 or any(session in scope for session in item["sessions"])
        decay = 1.0 if bypass else math.exp(-0.05 * item["age"])
        return (
            0.35 * bm25 + 0.25 * decay + 0.25 * (item["weight"] + 1) / 2 + 0.15 * (item["mu"] - 1)
        )

    matches = [(item, score) for item, score in zip(facts, scores(facts), strict=True) if score > 0]
    scope: list[str] = []
    for item, _ in sorted(matches, key=lambda pair: (-pair[1], -pair[0]["time"], pair[0]["id"])):
        scope += [s for s in item["sessions"] if s not in scope and len(scope) < 5]
    pool = [item for item in entries if not scope or item["sessions"][0] in scope]
    matches += zip(pool, scores(pool), strict=True)
    scored = [(item["id"], value(item, score)) for item, score in matches]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize(
    "query", ["where does the fox sleep", "red barn owl", "mill", "nothing of this", "fox fox den"]
)
def test_paper_profile(home: Path, day: Day, query: str) -> None:
    """`recall` with the paper's profile ranks, scores and packs as MemTier, section 3.2, says."""
    lines = [
        ("s1", "the fox sleeps in the red barn"),
        ("s1", "does it sleep well"),
        ("s2", "an owl lives in the mill by the river"),
        ("s2", "the mill is old"),
        ("s3", "the bear eats fish"),
        ("s4", "red apples, red leaves, red barn"),
        ("s5", "what does the fox say"),
        ("s6", "nobody sleeps in a den"),
    ]
    statements = [
        (0, "the fox sleeps in the barn"),
        (2, "the owl lives in the mill"),
        (4, "the bear eats"),
        (5, "apples are red"),
        (7, "the den is empty"),
    ]
    with MemTier.open(home, settings={"retrieval.profile": "paper"}) as memory:
        entries = [
            say(memory, text, session_id=session, observed_at=day(3 * number))
            for number, (session, text) in enumerate(lines)
        ]
        facts = [
            memory.add_facts(
                [make_draft(entries[n], text, subject=text, text=text, valid_from=day(n))]
            )
            for n, text in statements
        ]
        recalled_run(memory, "run", "an old red barn", ok=True)
        recall = memory.recall(query, at=day(30), purpose="inject")
        weights = {hit.id: hit.weight for hit in memory.recall("the fox owl bear red den").hits}
        expected = direct(
            query,
            [
                {
                    "id": fact.id,
                    "text": fact.text,
                    "sessions": [entries[n].session_id],
                    "age": 30 - n,
                    "weight": memory.store.reader().state(fact.id).weight,
                    "mu": 1.2,
                    "time": fact.timestamp.timestamp(),
                }
                for (n, _), [fact] in zip(statements, facts, strict=True)
            ],
            [
                {
                    "id": entry.id,
                    "text": entry.content,
                    "sessions": [entry.session_id],
                    "age": max(0.0, (day(30) - entry.observed_at) / timedelta(days=1)),
                    "weight": entry.cognitive_weight,
                    "mu": 1.0,
                }
                for entry in memory.entries()
            ],
        )
    assert any(weights.values())
    assert [hit.id for hit in recall.hits] == [item for item, _ in expected]
    scores = [score for _, score in expected]
    assert [hit.score for hit in recall.hits] == pytest.approx(scores, abs=1e-9)
    assert len(recall.injected) <= 4 and recall.tokens <= 300
