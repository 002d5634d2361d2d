"""The paper's weight learning (MemTier 4.4): a gradient that is one, and a script that runs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memtier_plugin.bench.weight_learning import (
    CLIP,
    Episode,
    advantages,
    gradient,
    learned,
    log_probability,
    objective,
    ratio,
)

ROOT = Path(__file__).parents[1]
WEIGHT = st.floats(0.05, 0.5)
EPISODE = st.builds(Episode, st.tuples(WEIGHT, WEIGHT), st.sampled_from([-1.0, 1.0]))


def average(mean: list[float], old: list[float], batch: list[Episode]) -> float:
    """Return the batch's average objective."""
    gains = advantages([episode.reward for episode in batch])
    return sum(
        objective(ratio(log_probability(e.action, old), log_probability(e.action, mean)), gain)
        for e, gain in zip(batch, gains, strict=True)
    ) / len(batch)


@given(
    st.tuples(WEIGHT, WEIGHT), st.tuples(WEIGHT, WEIGHT), st.lists(EPISODE, min_size=1, max_size=5)
)
def test_gradient(new: tuple[float, ...], old: tuple[float, ...], batch: list[Episode]) -> None:
    """The gradient is the slope of the clipped objective wherever that has one."""
    mean, start, step = list(new), list(old), 1e-6
    for episode in batch:  # at the edge of the clip there is no slope
        likelier = ratio(
            log_probability(episode.action, start), log_probability(episode.action, mean)
        )
        assume(min(abs(likelier - 1 - CLIP), abs(likelier - 1 + CLIP)) > 1e-3)
    for i, slope in enumerate(gradient(mean, start, batch)):
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
    mean = learned([0.3, 0.3], episodes, random.Random(2))
    assert mean[0] > 0.305
    assert abs(mean[1] - 0.3) < mean[0] - 0.3
    assert learned([0.3, 0.3], episodes, random.Random(2)) == mean


@pytest.mark.parametrize("rewards", [[], [1.0], [-1.0, -1.0]])
def test_equal_rewards_teach_nothing(rewards: list[float]) -> None:
    """Without variance of the reward learning is refused, and not passed off as a result."""
    with pytest.raises(ValueError, match="rewards are equal"):
        learned([0.3], [Episode((0.3,), reward) for reward in rewards], random.Random(1))


def run_script(data: Path) -> subprocess.CompletedProcess[str]:
    """Run the script in the checkout."""
    script = ROOT / "scripts" / "learn_paper_weights.py"
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], None, '__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(script), "--data", str(data)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_script(tmp_path: Path) -> None:
    """The script tells of every weight what it learned, and stops where nothing can be learned."""
    said = [f"{what} is on the {where} shelf" for what in ("Tea", "Rice") for where in "ABCDEFG"]
    turns = [
        {"speaker": "Ada", "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(said, 1)
    ]
    asked = [("Where is tea?", "D1:1"), ("Where is rice?", "D1:8"), ("Who sings?", "D1:14")]
    qa = [
        {"question": question, "answer": "-", "evidence": [turn], "category": 4}
        for question, turn in asked
    ]
    conversation = {"session_1_date_time": "1:56 pm on 1 May, 2024", "session_1": turns}
    observation = {"session_1_observation": {"Ada": [["Ada has tea.", "D1:1"]]}}
    sample = {"sample_id": "s", "conversation": conversation, "observation": observation}
    data = tmp_path / "locomo.json"
    data.write_text(json.dumps([{**sample, "qa": qa}]))
    done = run_script(data)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["bm25", "decay", "cw", "tier"]
    assert lines[5].endswith("of 3 questions")
    data.write_text(json.dumps([{**sample, "qa": qa[:1]}]))
    stopped = run_script(data)
    assert stopped.returncode == 1
    assert "rewards are equal" in stopped.stderr
    assert "Traceback" not in stopped.stderr
