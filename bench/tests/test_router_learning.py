"""The trained router: rewards, labels, training, its tables, and what `learn router` applies."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.tests.test_bench import locomo
from memtier_bench.cli.learn_router import LEAST_QUESTIONS, find_obstacle
from memtier_bench.report import markdown
from memtier_bench.router_learning import (
    TABLES,
    compare_policies,
    judge_actions,
    run_router_learning,
    tokens_at_recall,
    train_by_folds,
)
from memtier_bench.router_policy import (
    NAMES,
    RoutedCase,
    train_by_labels,
    train_by_rewards,
)
from memtier_bench.training_export import export_training_rows
from memtier_papers.learn_log import LearnLog
from memtier_papers.tiermem.router_reward import (
    repair_and_regress,
    reward_completions,
    route_label,
    route_reward,
)
from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin import MemTier
from memtier_plugin.answering.llm import _ROUTE
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.providers.prompting import parse_json
from tests.builders import say
from tests.processes import run_memtier

GOLDEN = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[2] / "papers/tests/golden" / "tiermem_router.json").read_text(
            "utf-8"
        )
    )
}


def case(number: int, unsaid: float, s: float, r: float, kind: float = 0.0) -> RoutedCase:
    """Return a question of one of four conversations."""
    amounts = {"unsaid": unsaid, "uncarried": 0.5, **({"kind": kind} if kind else {})}
    return RoutedCase(str(number), f"c{number % 4}", amounts, {"S": s, "R": r}, {"S": 50, "R": 200})


# What the facts leave unsaid decides; the kind of the question says nothing.
CASES = [
    *(case(n, 0.1 + n % 7 / 20, 1, 1, n % 2) for n in range(60)),
    *(case(n, 0.7 + n % 7 / 30, 0, 1, n % 2) for n in range(60, 120)),
    *(case(n, 0.5, 0, 0) for n in range(120, 130)),
]


def test_rewards_as_published() -> None:
    """Table 11 of TierMem, with its printed cost; of a reply that is no decision the format's.

    The example's R that is wrong where S is right lacks the waste penalty of .4, which eq. 1 takes
    wherever R is chosen though the label is S.
    """
    for row in GOLDEN["tiermem_reward_table"]["expected"]:
        wastes_wrongly = (row["action"], row["s_correct"], row["r_correct"]) == ("R", True, False)
        earned = route_reward(row["action"], row["s_correct"], row["r_correct"])
        assert earned == pytest.approx(row["paper"] - (0.4 if wastes_wrongly else 0.0))


@pytest.mark.parametrize("r_right, accuracy", [(True, 1.0), (False, -1.5)])
def test_waste_is_punished_wherever_the_facts_suffice(r_right: bool, accuracy: float) -> None:
    """R = accuracy - cost of the log - waste, the last where S was the right decision (eq. 1)."""
    assert route_reward("R", True, r_right) == pytest.approx(accuracy - 0.1 - 0.4)
    assert route_reward("R", False, r_right) == pytest.approx(accuracy - 0.1)
    assert route_label(True, r_right) == "S"


def test_repair_and_regress_as_published() -> None:
    """The rates of TierMem's appendix D, from its counts."""
    inputs, expected = (GOLDEN["tiermem_repair_regress"][name] for name in ("inputs", "expected"))
    counts = {"sR": inputs["sw_rc"], "sr": inputs["sw_rw"], "Sr": inputs["sc_rw"]}
    repair, regress = repair_and_regress({**counts, "SR": inputs["sc_rc"]})
    assert repair == pytest.approx(expected["repair"])
    assert regress == pytest.approx(expected["regress"])


def test_labels_and_completions() -> None:
    """The facts where they suffice, else the log, else none; replies are read as by `ask`."""
    assert [route_label(s, r) for s, r in ((True, False), (False, True), (False, False))] == [
        "S",
        "R",
        None,
    ]
    replies = ['{"thinking": "x", "action": "S"}', [{"content": '{"action": "R"}'}], "S, I think"]
    assert reward_completions(replies, [True] * 3, [True] * 3) == [1.0, 0.5, -1.0]


def test_training_finds_what_decides() -> None:
    """Labels teach what tells the ways apart, rewards keep it; both win on new conversations."""
    first = train_by_labels(CASES)
    second = train_by_rewards(CASES, first, seed=1)
    assert first == train_by_labels(CASES) and second == train_by_rewards(CASES, first, seed=1)
    for doubts in (first, second):
        assert doubts.unsaid > 2 * abs(doubts.kind)
        assert doubts.foreign > doubts.limit  # never seen: as wary as hand-set
    report = compare_policies(CASES, train_by_folds(CASES))["strategies"]
    for name in ("SFT", "SFT + GRPO"):
        assert report[name]["against_hand"]["low"] > 0
        assert report[name]["hard_recall"] == 1
        assert report[name]["tokens_at_equal_recall"] <= report["hand-set"]["tokens"]
    assert report["always the log"]["counts"] == {"SR": 60, "Sr": 0, "sR": 60, "sr": 10}


def test_figures_by_hand() -> None:
    """Rates, rewards and counts of three questions."""
    cases = [case(0, 0.1, 1, 1), case(1, 0.9, 0, 1), case(2, 0.9, 1, 0)]
    row = judge_actions(cases, ["S", "R", "R"])
    assert row["counts"] == {"SR": 0, "Sr": 1, "sR": 1, "sr": 0}
    assert (row["hard_recall"], row["repair_rate"], row["regress_rate"]) == (1, 1, 1)
    assert row["reward"] == pytest.approx((1 + 0.9 - 2.0) / 3, abs=1e-4)
    assert row["tokens"] == 150
    policy = dict.fromkeys(("c0", "c1", "c2"), RouterDoubts())
    assert tokens_at_recall(cases, policy, 1.0) == 100  # escalating the doubted second one alone
    assert tokens_at_recall(cases, policy, 1.1) is None


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        (CASES[:60], "all the same"),
        (CASES[:5], "all the same"),
        ([c for c in CASES if c.conversation == "c0"], "one conversation"),
        ([], "one conversation"),
    ],
)
def test_what_cannot_be_learned_is_refused(cases: list[RoutedCase], problem: str) -> None:
    """Equal labels, one conversation and no question teach nothing, and it is said."""
    with pytest.raises(Unsupported, match=problem):
        train_by_folds(cases)


def test_no_question_that_the_log_answers() -> None:
    """GRPO needs a decision that earns more than the other."""
    with pytest.raises(Unsupported, match="the log is right for none"):
        train_by_rewards([case(0, 0.5, 0, 0)], RouterDoubts(), 1)


ASKED = (
    (4, "Where did the sister of Ben open a bakery?", "D1:2"),
    (4, "What does Ada play?", "D1:3"),
    (1, "What happened to the cello of Ada?", "D1:3", "D2:2"),
    (4, "In which colour are they repainting the hallway?", "D1:4"),
)


def test_the_tables_and_the_exports(tmp_path: Path) -> None:
    """Each table is rendered; the exports are whole prompts, and replies that `ask` can read."""
    data = locomo(tmp_path, *ASKED, samples=2)
    for table in TABLES:
        report = run_router_learning(table, data, export=tmp_path / table)
        assert report["title"] in markdown(report)
        assert report["trained"].keys() == {*NAMES, "limit"}
    rows = export_training_rows(tmp_path / "rows", data)
    for name, count in rows.items():
        lines = (tmp_path / "rows" / name).read_text().splitlines()
        assert len(lines) == count
    for line in (tmp_path / "rows" / "sft.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert [m["role"] for m in row["prompt"]] == ["system", "user"]
        assert parse_json(row["completion"][0]["content"], _ROUTE)["action"] in ("S", "R")
    info = json.loads((tmp_path / "rows" / "dataset_info.json").read_text())
    assert (tmp_path / "rows" / info["memtier_construction"]["file_name"]).exists()


def test_two_learners_do_not_meet(tmp_path: Path) -> None:
    """While one learns from a project another is refused, and nothing is written."""
    data = locomo(tmp_path, *ASKED, samples=2)
    with MemTier.open(tmp_path / "home", "p") as memory, LearnLog(memory.actor).exclusive():
        for command in ("router", "policy"):
            done = run_memtier(
                "--home", tmp_path / "home", "--project", "p", "learn", command, "--data", data,
                code=1,
            )  # fmt: skip
            assert "another process is learning" in done.output
        assert not (LearnLog(memory.actor).path.with_name("planner.json")).exists()


def test_what_is_not_better_is_not_applied(tmp_path: Path) -> None:
    """On eight questions nothing is applied, whatever --apply says."""
    data = locomo(tmp_path, *ASKED, samples=2)
    home = tmp_path / "home"
    MemTier.open(home, "p").close()
    done = run_memtier(
        "--home", str(home), "--project", "p", "learn", "router", "--data", str(data), "--apply",
        "--json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["applied"] is None and "too few" in document["why_not"]
    assert not (home / "projects" / "p" / "project.yaml").exists()


PLAYED = [
    (4, f"Which instrument exactly does Ada {verb}{when}, the cello?", "D1:3")
    for verb in ("play", "practise", "love", "own", "polish", "tune", "carry", "bring", "teach")
    for when in ("", " at home", " on Sundays", " in June")
]
PAINTED = [
    (4, f"In which colour are they {verb} the hallway{when}?", "D1:4")
    for verb in ("repainting", "painting", "colouring", "redoing", "decorating", "finishing")
    for when in ("", " now", " this week")
]


def test_what_is_better_is_applied_and_undone(tmp_path: Path) -> None:
    """A router that asks the log only where the facts fail is used, listed, and taken out again."""
    data, home = locomo(tmp_path, *PLAYED, *PAINTED, samples=2), tmp_path / "home"
    with MemTier.open(home, "p") as memory:
        path = LearnLog(memory.actor).path
        path.write_text("retrieval:\n  k: 8  # eight\n")
        path.chmod(0o600)
    scope = ("--home", home, "--project", "p", "learn")
    done = run_memtier(*scope, "router", "--data", data, "--apply", "--json")
    document = json.loads(done.stdout)
    assert document["figures"]["gain"]["low"] > 0 and document["applied"]
    settings = load_settings(home, "p")
    doubts = asdict(settings.of(RouterDoubts))
    assert doubts == pytest.approx(document["router"]) and settings.retrieval.k == 8
    [entry] = json.loads(run_memtier(*scope, "log", "--json").stdout)["learned"]
    assert (entry["id"], entry["what"], entry["applied"]) == (document["applied"], "router", True)
    run_memtier(*scope, "revert")
    assert path.read_text() == "retrieval:\n  k: 8  # eight\n"


def test_a_router_that_loses_the_projects_own_answers_is_refused(tmp_path: Path) -> None:
    """However much it gains on a data set, the gate has the last word."""
    settings = {"retrieval.depth": "auto", "embedding.model": "none"}
    with MemTier.open(tmp_path / "home", "p", settings=settings) as memory:
        for number, thing in enumerate(("lantern", "orchard", "violin", "kettle", "saddle")):
            say(memory, f"We hid the {thing} under the old bridge.", session_id=f"s{number}")
        memory.remember("Nobody ever hid a bridge from Ada.")
        always_facts = asdict(RouterDoubts(limit=100.0))
        report = {"questions": LEAST_QUESTIONS, "trained": always_facts}
        assert "answered worse" in find_obstacle(memory, report, low=0.1)
        as_it_is = report | {"trained": asdict(RouterDoubts())}
        assert find_obstacle(memory, as_it_is, low=0.1) == ""
        assert find_obstacle(memory, as_it_is, low=0.0)
