"""`memtier bench recipes`: its tasks, its agents, and what an arm may learn from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtier_bench.recipe_agents import (
    COMMAND,
    HOSTS,
    TASKS,
    Call,
    Clock,
    HostAgent,
    Task,
    TaskState,
    Turn,
    first_heeded,
    load_tasks,
    read_block,
    run_task,
)
from memtier_bench.recipes import Bandit, run_recipes
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError, Unsupported

DEPLOY, LIGHTS = (
    next(task for task in load_tasks(TASKS)[0] if task.name == name)
    for name in ("deploy-shop", "evening-lights")
)


def block(*lines: str) -> str:
    """Return lines as a block shows them."""
    return "\n".join(f"- [2026-01-05 fact {n:08}] {line}" for n, line in enumerate(lines))


def write_task(folder: Path, **changes: Any) -> Path:
    """Return a file with a comment and one task, changed."""
    file = folder / "tasks.yaml"
    file.write_text(f"# mine\n- {json.dumps(DEPLOY.to_json() | changes)}\n", "utf-8")
    return file


@pytest.fixture
def two_tasks(tmp_path: Path) -> Path:
    """Return a file of two tasks and one distractor."""
    file = tmp_path / "two.yaml"
    tasks = [task.to_json() for task in (DEPLOY, LIGHTS)]
    file.write_text(json.dumps({"tasks": tasks, "distractors": ["The cat is asleep."]}), "utf-8")
    return file


def test_the_tasks_that_ship() -> None:
    """There are sixteen, three of them call another tool, and the distractors name no recipe."""
    tasks, distractors = load_tasks(TASKS)
    assert len({task.name for task in tasks}) == len(tasks) == 16
    assert sum(any(r.tool != COMMAND for r in task.recipes) for task in tasks) >= 3
    assert all(len(task.requests) >= 6 and len(task.innocent) == 3 for task in tasks)
    lines = [*distractors, *(line for task in tasks for line in task.innocent)]
    for task in tasks:
        assert not any(recipe.is_named_in(line) for recipe in task.recipes for line in lines)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"recipes": [DEPLOY.recipes[0].to_json()]}, "recipes: expected array of length 2"),
        ({"outside": None}, "outside: expected object"),
        ({"requests": ["a", "b"]}, "deploy-shop: requests: write at least 3"),
        ({"outside": {"exit": 0, "output": ""}}, "outside: the exit code must not be 0"),
        (
            {"recipes": [{**r.to_json(), "names": ["shop"]} for r in DEPLOY.recipes]},
            "names: .'shop'. stand in the rival's line, too; give others",
        ),
        (
            {"recipes": [{**r.to_json(), "names": ["x"]} for r in DEPLOY.recipes]},
            "names: give words that stand in the recipe's line",
        ),
        (
            {"recipes": [{**r.to_json(), "command": {}} for r in DEPLOY.recipes]},
            "need `tool: NAME`",
        ),
    ],
)
def test_a_malformed_task_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    """The message names the file, the line and the remedy; nothing is measured."""
    file = write_task(tmp_path, **changes)
    with pytest.raises(ImportFileError, match=problem) as refused:
        run_recipes(file)
    assert str(refused.value).startswith(f"{file}:2: ")


@pytest.mark.parametrize("text", ["", "tasks: {}", "[", "- 7", "tasks: [{name: x}]"])
def test_a_file_without_tasks_is_refused(tmp_path: Path, text: str) -> None:
    """So is one that is no YAML, or whose tasks lack fields."""
    (tmp_path / "tasks.yaml").write_text(text, "utf-8")
    with pytest.raises(ImportFileError, match=r"tasks\.yaml:1"):
        load_tasks(tmp_path / "tasks.yaml")


def test_what_an_agent_reads() -> None:
    """A mark is skipped if another line is left; a note's other recipe counts before the text."""
    helm, kubectl = (recipe.line for recipe in DEPLOY.recipes)
    shown = block(helm, "The shop is red.", kubectl)
    assert [advice.recipe for advice in read_block(shown, DEPLOY)] == [0, 1]
    marked = read_block(block(f"{helm} (failed on 2026-01-06)", kubectl), DEPLOY)
    assert [(a.recipe, a.marked) for a in marked] == [(0, True), (1, False)]
    assert first_heeded(marked) == 1 and first_heeded(marked[:1]) == 0
    for line, recipe in {
        f"{helm} (failed; kubectl worked)": 1,
        f"{helm} (until 2026-01-06; now: {kubectl})": 0,
        "kubectl failed. Done with helm.": 0,
    }.items():
        [advice] = read_block(block(line), DEPLOY)
        assert (advice.recipe, advice.marked) == (recipe, False)


@pytest.mark.parametrize("seed", range(5))
def test_an_agent_follows_the_block(seed: int) -> None:
    """What fails is followed by the other; what is delayed is repeated; the answer says how."""
    helm, kubectl = (recipe.line for recipe in DEPLOY.recipes)
    advices = read_block(block(helm, kubectl), DEPLOY)
    state = TaskState(DEPLOY, works=1, delayed=True, changes=False)
    calls, answer, used = run_task(state, advices, random.Random(seed))
    assert used[1] and answer.endswith("Done with kubectl.")
    outcomes = [call.exit for call in calls if "shop" in call.output or call.exit]
    assert outcomes[-2:] == [DEPLOY.outside.exit, 0]
    assert ("helm failed." in answer) == (0 in used)


def test_the_bandit_learns_by_line() -> None:
    """It counts what was used for every line that names it, and then puts what worked first."""
    helm, kubectl = (recipe.line for recipe in DEPLOY.recipes)
    advices, bandit = read_block(block(helm, kubectl), DEPLOY), Bandit(random.Random(1))
    for _ in range(30):
        bandit.learn(advices, {0: False, 1: True})
    assert bandit.counts == {"00000000": [1, 31], "00000001": [31, 1]}
    assert [advice.recipe for advice in bandit.order(advices)] == [1, 0]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("task", [DEPLOY, LIGHTS], ids=lambda task: task.name)
def test_a_hosts_run_keeps_its_outcomes(host: str, task: Task, tmp_path: Path) -> None:
    """Every host's translator reads from its payload which calls worked."""
    recipe = task.recipes[0]
    calls = [recipe.call(recipe.error, "Now."), recipe.call(None, "Again.")]
    calls.append(Call(tool=COMMAND, arguments={"command": "ls"}, output="x"))
    turn = Turn(name="run-1", prompt=task.requests[0], calls=calls, answer="Done.")
    agent = HostAgent(host, tmp_path, "p", {}, Clock())
    with agent.memory:
        agent.recall(turn)
        agent.finish(turn, credits=True)
        entries = list(agent.memory.entries())
    assert [entry.tool.ok for entry in entries if entry.tool] == [False, True, True]
    assert (entries[0].role, entries[0].content) == ("user", task.requests[0])
    assert entries[-1].content == "Done."


def test_a_seed_gives_the_same_figures_and_without_credit_no_weight_moves(two_tasks: Path) -> None:
    """Two runs of a seed agree in everything; arms without credit leave every weight at 0."""
    report = run_recipes(two_tasks, 1, rounds=1, arms=("none", "bandit"))
    assert report == run_recipes(two_tasks, 1, rounds=1, arms=("none", "bandit"))
    assert all(row["weights"] == [0.0, 0.0] for row in report["by_world"][0].values())
    with pytest.raises(Unsupported, match="one of: none, configured"):
        run_recipes(arms=("all",))


def test_the_command(tmp_path: Path, two_tasks: Path) -> None:
    """It takes tasks of one's own, and prints a column for the arm."""
    out = tmp_path / "recipes.json"
    arguments = ["--tasks", str(two_tasks), "--worlds", "1", "--rounds", "5"]
    arguments += ["--arms", "paper", "--json", str(out)]
    result = CliRunner().invoke(main, ["bench", "recipes", *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text("utf-8"))
    assert {*report["arms"]} == {"paper"} and report["tasks"] == 2
    assert len(report["by_world"][0]["paper"]["rounds"]) == 6
    assert "working recipe in the first line, after 4" in result.output
