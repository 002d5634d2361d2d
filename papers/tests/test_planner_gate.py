"""The gate for a trained planner, and how it becomes the project's planner and is undone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.tests.test_bench import locomo
from bench.tests.test_bench_trees import ASKED
from memtier_bench.cli.learn_policy import apply_policy
from memtier_papers.learn_log import LearnLog
from memtier_papers.mem_t.planner import Weights, read_policy, write_policy
from memtier_papers.mem_t.planner_gate import check_planner
from memtier_papers.mem_t.planning import ACTIONS, FEATURES
from memtier_papers.mem_t.settings import Planner
from memtier_plugin import MemTier
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.memory import MemTier as Memory
from tests.builders import say
from tests.processes import run_memtier

SAID = (
    "The barn by the mill was painted red in the spring.",
    "Our oldest ferry to Korsholm leaves from the northern pier.",
    "Ines keeps her telescope in the attic of the bakery.",
    "The orchard behind the station grows quinces and medlars.",
    "Otto repairs violins in a shop under the viaduct.",
    "The lighthouse keeper feeds forty geese every morning.",
)


def policy(*order: int) -> Weights:
    """Return a policy that prefers these of `ACTIONS`, in this order."""
    constant = FEATURES.index("one")
    rows = [[0.0] * len(FEATURES) for _ in ACTIONS]
    for rank, action in enumerate(order):
        rows[action][constant] = 100.0 - rank
    return tuple(map(tuple, rows))


QUESTION, SUMMARY, END = 0, 7, 8


@pytest.fixture
def memory(home: Path) -> Iterator[Memory]:
    """Return a memory of which something can be asked."""
    with MemTier.open(home, "p") as opened:
        for number, text in enumerate(SAID):
            say(opened, text, session_id=f"s{number}")
        yield opened


def test_a_policy_that_shows_less_than_the_rules_is_refused(memory: Memory) -> None:
    """One that looks where nothing is loses every question; one that asks the log loses none."""
    before = len(memory.events(kinds=["recall"]))
    good = check_planner(memory.actor, policy(QUESTION, END))
    bad = check_planner(memory.actor, policy(SUMMARY, END))
    assert good.verdict.questions == bad.verdict.questions == len(SAID)
    assert (good.verdict.after, bad.verdict.after) == (1.0, 0.0)
    assert (good.verdict.refused, bad.verdict.refused) == (False, True)
    assert "rules" in bad.against and len(memory.events(kinds=["recall"])) == before


def test_learned_on_a_data_set_applied_and_undone(tmp_path: Path) -> None:
    """`learn policy --apply` sets `ask.planner`; `learn revert` takes it out, to the byte."""
    data, home = locomo(tmp_path, *ASKED, samples=2), tmp_path / "home"
    with MemTier.open(home, "p") as memory:
        path = LearnLog(memory.actor).path
        path.write_text("ask:\n  pages: 2  # few\n")
        path.chmod(0o600)
    scope = ("--home", home, "--project", "p", "learn")
    done = run_memtier(*scope, "policy", "--data", data, "--updates", "20", "--apply", "--json")
    document = json.loads(done.stdout)
    assert document["low"] > 0 and document["applied"] and not document["why_not"]
    planner = load_settings(home, "p").of(Planner).planner
    assert planner == document["file"] and len(read_policy(Path(planner))) == len(ACTIONS)
    [entry] = json.loads(run_memtier(*scope, "log", "--json").stdout)["learned"]
    assert (entry["what"], entry["applied"]) == ("policy", True)
    assert entry["figures"]["gate"]["refused"] is False
    run_memtier(*scope, "revert")
    assert path.read_text() == "ask:\n  pages: 2  # few\n"
    assert load_settings(home, "p").of(Planner).planner == "model"


def test_a_policy_that_the_gate_refuses_is_not_applied(memory: Memory, tmp_path: Path) -> None:
    """Where the project's own questions fall, the settings stay, and it is said why."""
    path = tmp_path / "policy.json"
    write_policy(path, policy(SUMMARY, END), {})
    refused = apply_policy(memory, {"file": str(path)}, lambda *_: None)
    assert "rules" in refused["why_not"] and "applied" not in refused
    assert LearnLog(memory.actor).entries() == [] and not LearnLog(memory.actor).path.exists()
