"""Credit by log-probabilities: what it finds, what it may cost, and what stands without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.memtier.logprob_credit import AttributeEvent, AttributionReport, LogprobCreditor
from memtier_papers.memtier.scoring import NoLogprobs
from memtier_plugin import MemTier
from memtier_plugin.core.errors import (
    CapReached,
    EndpointError,
    EndpointRefused,
    SettingsError,
)
from memtier_plugin.core.events import ChatEvent, CreditEvent
from memtier_plugin.daemon.jobs import jobs_in_group
from memtier_plugin.memory import MemTier as Memory
from memtier_plugin.providers import endpoint
from tests.builders import say
from tests.credit.test_credit import run_of
from tests.loopback import Loopback
from tests.proofs.checks import content

COPIED = "the fox sleeps beneath the crooked mill by the old canal"
DECOY = "fox canal mill old beneath crooked the by sleeps in winter"
ASKED = "Where does the fox sleep?"
GOOD = run_of(COPIED, "done", exit_code=0)


@pytest.fixture
def server() -> Iterator[Loopback]:
    """Return a model server that echoes log-probabilities."""
    with pytest.MonkeyPatch.context() as patch, Loopback() as running:
        patch.setattr(endpoint, "FIRST_PAUSE", 0.001)
        yield running


def opened(home: Path, server: Loopback, **more: Any) -> Memory:
    """Return a memory that credits by the server's model."""
    settings: dict[str, Any] = {
        "attribution.proxy": "logprob",
        "attribution.model": "endpoint:loop/m",
        "endpoints": {"loop": {"base_url": server.base_url}},
        "embedding.model": "none",
    }
    return MemTier.open(home, settings=settings | more)


def run(memory: Memory, name: str = "r1", messages: Any = GOOD) -> dict[str, float]:
    """Let a run be given what it asks for, and end it; return its credits."""
    memory.recall(ASKED, purpose="inject", session_id=f"of {name}", run_id=name)
    result = memory.end_run(messages, session_id=f"of {name}", run_id=name)
    return {**result.credits}


def weights(memory: Memory) -> dict[str, float]:
    """Return what the entries weigh that weigh anything."""
    memory.catch_up()
    return {e.content: e.cognitive_weight for e in memory.entries() if e.cognitive_weight}


def events(memory: Memory, kind: str) -> list[Any]:
    """Return the payloads of a kind of event."""
    memory.catch_up()
    of = {"credit": CreditEvent, "attribute": AttributeEvent, "chat": ChatEvent}[kind]
    return [of.of(event) for event in memory.events(kinds=[kind])]


def test_the_copied_line_gets_the_credit(home: Path, server: Loopback) -> None:
    """Words in common credit a decoy, too; the model credits the line that the answer copies."""
    with opened(home, server) as memory:
        copied, decoy = say(memory, COPIED).id, say(memory, DECOY).id
        assert run(memory).keys() == {copied, decoy}  # at the end of the run, without a model
        assert server.count("/completions") == 0
        assert LogprobCreditor(memory.actor).run() == AttributionReport(scored=1)
        last = {c.item: c.share for c in events(memory, "credit") if c.proxy == "logprob"}
        assert last[copied] > 0.9 > 0.1 > last.get(decoy, 0.0)
        assert weights(memory)[COPIED] == pytest.approx(0.1 * last[copied], rel=1e-3)
        [scored] = events(memory, "attribute")
        assert scored.affinities.keys() == {copied, decoy} and not scored.problem
        assert server.count("/completions") == 3  # with both lines, and without each
        before = content(memory)
        memory.reindex()
        assert content(memory) == before
        assert LogprobCreditor(memory.actor).run() == AttributionReport()  # nothing is due
        run_again = memory.end_run(GOOD, session_id="of r1", run_id="r1")
        assert "already" in run_again.reason  # a second delivery does not undo it
        assert weights(memory)[COPIED] == pytest.approx(0.1 * last[copied], rel=1e-3)


def test_a_new_outcome_is_scored_again(home: Path, server: Loopback) -> None:
    """A run that is delivered with another outcome is credited by words, then by the model."""
    with opened(home, server) as memory:
        say(memory, COPIED)
        run(memory)
        LogprobCreditor(memory.actor).run()
        memory.end_run(run_of(COPIED, "gone", exit_code=1), session_id="of r1", run_id="r1")
        assert weights(memory)[COPIED] < 0
        assert LogprobCreditor(memory.actor).run().scored == 1
        credits = events(memory, "credit")
        assert [credit.proxy for credit in credits][-1] in (None, "logprob")
        assert weights(memory)[COPIED] == pytest.approx(-0.05)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("down", EndpointError), ("mute", NoLogprobs), ("400", EndpointRefused)],
)
def test_without_the_model_the_earlier_credit_stands(
    home: Path, server: Loopback, fault: str, error: type[Exception]
) -> None:
    """A server that is away, refuses or does not echo changes no weight, and says why."""
    with opened(home, server) as memory:
        say(memory, COPIED)
        run(memory)
        before = weights(memory)
        assert before
        if fault == "down":
            server.stop()
        elif fault == "mute":
            server.echo = False
        else:
            server.always(fault)
        with pytest.raises(error) as raised:
            LogprobCreditor(memory.actor).run()
        if fault == "mute":
            assert "echo" in str(raised.value) and server.count("/completions") == 1
        assert weights(memory) == before and events(memory, "attribute") == []


def test_what_one_run_cannot_have_does_not_hold_up_the_others(home: Path, server: Loopback) -> None:
    """A run that is too long for the model is noted and left; the others are scored."""
    with opened(home, server) as memory:
        say(memory, COPIED)
        run(memory, "r1")
        run(memory, "r2", run_of(f"{COPIED} {'on and on ' * 300}", "done", exit_code=0))
        server.context = 1_500
        assert LogprobCreditor(memory.actor).run() == AttributionReport(scored=1, skipped=1)
        assert sorted(bool(e.problem) for e in events(memory, "attribute")) == [False, True]
        assert LogprobCreditor(memory.actor).run() == AttributionReport()


def test_the_budget_holds(home: Path, server: Loopback) -> None:
    """Each call is in the day's accounts; what it does not allow is not asked."""
    with opened(home, server, **{"consolidation.max_calls_per_day": 3}) as memory:
        say(memory, COPIED)
        say(memory, DECOY)
        run(memory, "r1")
        assert LogprobCreditor(memory.actor).run().scored == 1
        run(memory, "r2")
        with pytest.raises(CapReached):
            LogprobCreditor(memory.actor).run()
        assert server.count("/completions") == 3
        assert len(events(memory, "attribute")) == 1
        settled = [chat for chat in events(memory, "chat") if chat.settles]
        assert {chat.purpose for chat in settled} == {"attribution"} and len(settled) == 3
        assert all(chat.tokens > 10 and not chat.output_tokens for chat in settled)


def test_confidences_and_what_is_forgotten_are_not_sent(home: Path, server: Loopback) -> None:
    """No model of another server reads what was confided, or forgotten since."""
    with opened(home, server) as memory:
        kept, gone = say(memory, COPIED), say(memory, DECOY)
        run(memory)
        memory.forget(ids=[gone.id])
        LogprobCreditor(memory.actor).run()
        sent = "".join(request["body"]["prompt"] for request in server.requests)
        assert kept.content in sent and DECOY not in sent
        memory.record(
            [{"role": "user", "content": f"{COPIED}, I swear"}], session_id="p", private=True
        )
        before = server.count("/completions")
        run(memory, "r2")
        assert LogprobCreditor(memory.actor).run().skipped == 1
        assert server.count("/completions") == before
        assert "confidence" in events(memory, "attribute")[-1].problem


def test_nothing_is_asked_by_default(home: Path, server: Loopback) -> None:
    """Without the setting there is no job; without a model it says what is missing."""
    with opened(home, server, **{"attribution.proxy": "jaccard"}) as memory:
        say(memory, COPIED)
        run(memory)
        memory.catch_up()
        assert memory.events(kinds=["outcome"]) == []
        assert LogprobCreditor(memory.actor).run() == AttributionReport()
        assert "attribution" not in jobs_in_group("endpoint", memory.settings)
    with opened(home, server, **{"attribution.model": "none"}) as memory:
        run(memory, "r2")
        assert "attribution" in jobs_in_group("endpoint", memory.settings)
        with pytest.raises(SettingsError, match=r"attribution\.model"):
            LogprobCreditor(memory.actor).run()


def test_each_agents_runs_stay_its_own(home: Path, server: Loopback) -> None:
    """The job of a project credits a run in its own agent's journal, from its own lines alone."""
    with opened(home, server) as mine:
        say(mine, DECOY)
        with MemTier.open(home, agent_id="other", settings=mine.settings) as theirs:
            line = say(theirs, COPIED)
            run(theirs)
        assert LogprobCreditor(mine.actor).run().scored == 1
        assert not any(DECOY in request["body"]["prompt"] for request in server.requests)
        mine.catch_up()
        scored = mine.events(kinds=["attribute"])
        assert [event.agent_id for event in scored] == ["other"]
        assert AttributeEvent.of(scored[0]).affinities.keys() == {line.id}
