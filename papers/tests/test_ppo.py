"""The paper's weight learning (MemTier 4.4): a gradient that is one, and a run."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memtier_bench.learning import run_learning
from memtier_bench.reading import ReaderModel
from memtier_papers.memtier.ppo import (
    CLIP,
    Episode,
    advantages,
    clipped_objective,
    learn_weights,
    likelihood_ratio,
    log_probability,
    policy_gradient,
)
from memtier_plugin.core.errors import Unsupported
from tests.loopback import Loopback

WEIGHT = st.floats(0.05, 0.5)
EPISODE = st.builds(Episode, st.tuples(WEIGHT, WEIGHT), st.sampled_from([-1.0, 1.0]))


def average(mean: list[float], old: list[float], batch: list[Episode]) -> float:
    """Return the batch's average objective."""
    gains = advantages([episode.reward for episode in batch])
    return sum(
        clipped_objective(
            likelihood_ratio(log_probability(e.action, old), log_probability(e.action, mean)), gain
        )
        for e, gain in zip(batch, gains, strict=True)
    ) / len(batch)


@given(
    st.tuples(WEIGHT, WEIGHT), st.tuples(WEIGHT, WEIGHT), st.lists(EPISODE, min_size=1, max_size=5)
)
def test_gradient(new: tuple[float, ...], old: tuple[float, ...], batch: list[Episode]) -> None:
    """The gradient is the slope of the clipped objective wherever that has one."""
    mean, start, step = list(new), list(old), 1e-6
    for episode in batch:  # at the edge of the clip there is no slope
        likelier = likelihood_ratio(
            log_probability(episode.action, start), log_probability(episode.action, mean)
        )
        assume(min(abs(likelier - 1 - CLIP), abs(likelier - 1 + CLIP)) > 1e-3)
    for i, slope in enumerate(policy_gradient(mean, start, batch)):
        up, down = list(mean), list(mean)
        up[i] += step
        down[i] -= step
        measured = (average(up, start, batch) - average(down, start, batch)) / (2 * step)
        assert slope == pytest.approx(measured, rel=1e-3, abs=1e-3)


@given(st.lists(st.sampled_from([-1.0, 1.0]), min_size=1))
def test_advantages_sum_to_nothing(rewards: list[float]) -> None:
    """The batch's mean is the baseline: what some gain others lose."""
    assert sum(advantages(rewards)) == pytest.approx(0)


def test_learning_goes_where_the_reward_is() -> None:
    """A weight whose large values were rewarded grows, and the same chance gives the same."""
    chance = random.Random(1)
    actions = [(chance.gauss(0.3, 0.15), chance.gauss(0.3, 0.15)) for _ in range(64)]
    episodes = [Episode(action, 1.0 if action[0] > 0.3 else -1.0) for action in actions]
    mean = learn_weights([0.3, 0.3], episodes, random.Random(2))
    assert mean[0] > 0.305
    assert abs(mean[1] - 0.3) < mean[0] - 0.3
    assert learn_weights([0.3, 0.3], episodes, random.Random(2)) == mean


@pytest.mark.parametrize("rewards", [[], [1.0], [-1.0, -1.0]])
def test_equal_rewards_teach_nothing(rewards: list[float]) -> None:
    """Without variance of the reward learning is refused, and not passed off as a result."""
    with pytest.raises(ValueError, match="rewards are equal"):
        learn_weights([0.3], [Episode((0.3,), reward) for reward in rewards], random.Random(1))


def shelves(tmp_path: Path, questions: int) -> Path:
    """Write a LoCoMo file of what is on which shelf, with so many questions."""
    lines = [f"{what} is on the {where} shelf" for what in ("Tea", "Rice") for where in "ABCDEFG"]
    turns = [
        {"speaker": "Ada", "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(lines, 1)
    ]
    cases = [
        ("Where is tea?", "D1:1", "A shelf"),
        ("Where is rice?", "D1:8", "A shelf"),
        ("Who sings?", "D1:14", "nobody"),
    ]
    sample = {
        "sample_id": "s",
        "conversation": {"session_1_date_time": "1:56 pm on 1 May, 2024", "session_1": turns},
        "observation": {"session_1_observation": {"Ada": [["Ada has tea.", "D1:1"]]}},
        "qa": [
            {"question": question, "answer": answer, "evidence": [turn], "category": 4}
            for question, turn, answer in cases[:questions]
        ],
    }
    data = tmp_path / "locomo.json"
    data.write_text(json.dumps([sample]))
    return data


def test_weights_are_learned_from_what_is_injected(tmp_path: Path) -> None:
    """Every weight but the semantic one is told before and after; the same each time."""
    data = shelves(tmp_path, 3)
    report, again = (run_learning("locomo", data, "dataset") for _ in range(2))
    assert [row["name"] for row in report["weights"]] == ["bm25", "decay", "cw", "tier"]
    for when in ("before", "after"):
        assert sum(row[when] for row in report["weights"]) == pytest.approx(1, abs=1e-3)
    assert 0 < report["rewarded"] < report["questions"] == 3
    assert report["weights"] == again["weights"]
    spread = {row["name"]: row["spread"] for row in report["weights"]}
    assert spread["cw"] == 0  # nothing has been credited yet


def test_a_reader_can_be_what_rewards(tmp_path: Path) -> None:
    """With a reader a question is rewarded when its answer is right by soft exact match (eq. 4)."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        report = run_learning("locomo", shelves(tmp_path, 3), reader=reader)
    assert report["reader"] == "m"
    # The extractive reader quotes a shelf; nobody sings, so that one question is never right.
    assert report["right_before"] in (1, 2)


def test_nothing_is_learned_from_equal_rewards(tmp_path: Path) -> None:
    """The command says why it learned nothing, and what to do."""
    with pytest.raises(Unsupported, match="all 1 rewards are equal, so every advantage is 0"):
        run_learning("locomo", shelves(tmp_path, 1), "dataset")
