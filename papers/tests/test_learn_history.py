"""`memtier learn weights --history`: what a project's own use teaches, and what it must not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memtier_papers.learn_log import LearnLog
from memtier_papers.memtier import weight_job
from memtier_papers.memtier.weight_job import WeightLearner
from memtier_papers.memtier.weights import Trained
from memtier_plugin import MemTier
from memtier_plugin.core.errors import LedgerError, Unsupported
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.credit.regression import no_progress
from memtier_plugin.credit.verdict import Difference
from tests.processes import run_memtier
from tests.regression.conftest import NO_VECTORS, NOW, Opened, use


def test_a_history_of_ten_runs_is_refused(tmp_path: Path) -> None:
    """Too short a history teaches nothing: how many questions are needed is said."""
    with MemTier.open(tmp_path, "p", settings=NO_VECTORS, clock=lambda: NOW) as memory:
        memory.record([{"role": "user", "content": "The harbour was painted."}], session_id="s")
        for number in range(10):
            use(memory, number, ok=number % 2 > 0)
        memory.catch_up()
        with pytest.raises(Unsupported, match="40 are needed"):
            WeightLearner(memory.actor).learn_from_history(no_progress)
    shared = ("--home", str(tmp_path), "--project", "p")
    assert "40 are needed" in run_memtier("learn", "weights", "--history", *shared, code=1).output


def test_credits_alone_do_not_reward_the_published_learner(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only credits say what helped, PPO's reward would be circular: it is not tried."""
    monkeypatch.setattr("memtier_papers.memtier.weights.FEWEST_QUESTIONS", 10)
    with opened() as memory:
        memory.catch_up()
        report = WeightLearner(memory.actor).learn_from_history(no_progress)
        published, fitted = report.trained
        assert [trap.name for trap in published.traps] == ["circular reward"]
        assert not published.gains and report.credited == report.questions
        assert fitted.learner == "fit"
        done = WeightLearner(memory.actor).apply(report, LearnLog(memory.actor), no_progress)
        assert done.applied is None and "no gain" in done.why
        assert json.dumps(done.to_json())


def gaining(**weights: float) -> Trained:
    """Return what a learner claims to have gained."""
    return Trained("fit", weights, (), 0.5, 0.6, Difference(0.1, 0.05, 0.15, 0.01), 0.5)


def test_weights_that_silence_memory_are_not_applied(opened: Opened) -> None:
    """The gate refuses what gains elsewhere and answers this project's own questions worse."""
    with opened() as memory:
        learned = LearnLog(memory.actor)
        memory.catch_up()
        learner = WeightLearner(memory.actor)
        report = weight_job.LearnReport("recall_first", 100, 5, ())
        start = learner.start
        bad = gaining(**{**dict.fromkeys(start, 0.0), "tier": 9.0})
        done = learner.apply(replace(report, trained=(bad,)), learned, no_progress)
        assert done.gate and done.gate.verdict.refused and done.applied is None
        assert learned.entries() == [] and "gate refuses" in done.why
        good = gaining(**{**start, "words": 1.25})
        report = replace(report, trained=(good,))
        with (
            learned.exclusive(),
            pytest.raises(LedgerError, match="another process"),
        ):
            learner.apply(report, learned, no_progress)
        assert learned.entries() == []
        done = learner.apply(report, learned, no_progress)
        [entry] = learned.entries()
        assert entry.applied and entry.event.id == done.applied
        assert load_settings(memory.home, "p").retrieval.weights.words == 1.25
        learned.revert()
        assert load_settings(memory.home, "p").retrieval.weights.words == 1.0


def test_the_command_wants_a_source(opened: Opened) -> None:
    """Either data sets or the history is named."""
    with opened() as memory:
        shared = ("--home", str(memory.home), "--project", "p")
    assert "either --data or --history" in run_memtier("learn", "weights", *shared, code=2).output
