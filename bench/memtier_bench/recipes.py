"""`memtier bench recipes`: whether the outcomes of tool calls teach a memory what works.

A world is a project's memory in which users once stated two rival recipes for each of several
tasks, one of which works.  Three agents, each of another host, get the same requests day after day,
follow what the memory shows and call tools, which fail or work.  After each day the memory is asked
in other words.  Runs and recalls go through the public API, so any rule of credit can be measured.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

import memtier_plugin
from memtier_bench.intervals import bootstrap_interval
from memtier_bench.progress import Progress, no_progress
from memtier_bench.recipe_agents import (
    AGENTS,
    HOSTS,
    PROBES,
    TASKS,
    Advice,
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
from memtier_bench.tables import Report, ReportTable, Section
from memtier_plugin.core.errors import Unsupported

CHANGE_AFTER: Final = 4  # rounds, after which the other recipe works in half of the tasks
LEARNED_WITHIN: Final = 2  # rounds, of a change
AFTER: Final = (1, 2, 4, 8)  # rounds, after which is reported what comes first

_PROJECT: Final = "world"
_DISTRACTORS: Final = 60
_DELAYED: Final = 1 / 3  # of tasks whose working recipe always needs a second call
# Of the probes: the first line names the working recipe; so does the first line without a mark; it
# does wherever one is named; any line does; a line without a mark names the other.
_SHARES: Final = ("first", "heeded", "known", "possible", "unmarked")
_SETTINGS: Final = MappingProxyType(
    {
        "ledger.durability": "os",
        "consolidation.probes": 0,
        "agents": {name: {"read_all": True} for name in AGENTS},
    }
)
_DAY: Final = timedelta(days=1)


# -- arms ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A way to learn: settings, whether runs end with an outcome, and whether a bandit reorders."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    credits: bool = True
    bandit: bool = False


ARMS: Final[Mapping[str, Arm]] = {
    "none": Arm(credits=False),
    "configured": Arm(),
    "paper": Arm(settings={"retrieval.profile": "paper"}),
    "bandit": Arm(credits=False, bandit=True),
}


@dataclass(slots=True)
class Bandit:
    """Thompson sampling over lines: successes and failures of the recipes that they name."""

    chance: random.Random
    counts: dict[str, list[int]] = field(default_factory=dict)

    def order(self, advices: Sequence[Advice]) -> list[Advice]:
        """Return the lines by a sample of how likely each is to work."""
        draws = {
            advice.line: self.chance.betavariate(*self.counts.get(advice.line, (1, 1)))
            for advice in advices
        }
        return sorted(advices, key=lambda advice: -draws[advice.line])

    def learn(self, advices: Sequence[Advice], used: Mapping[int, bool]) -> None:
        """Count a run's success or failure for each line of a recipe that was used."""
        for advice in advices:
            if advice.recipe in used:
                counts = self.counts.setdefault(advice.line, [1, 1])
                counts[not used[advice.recipe]] += 1


# -- a world ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Probe:
    """What is shown for the held-back requests of a task: the blocks, and the lines with advice."""

    blocks: list[str]
    advices: list[list[Advice]]


class World:
    """The memory of one world under one arm, in a home of its own."""

    def __init__(
        self, name: str, home: Path, arm: Arm, tasks: Sequence[TaskState], clock: Clock
    ) -> None:
        self._name, self._arm, self._tasks, self._clock = name, arm, tasks, clock
        self._bandit = Bandit(random.Random(f"{name}/bandit"))
        self._eve = clock.now.replace(hour=8)
        self._stack = ExitStack()
        settings = {**_SETTINGS, **arm.settings}
        self.agents = [HostAgent(host, home, _PROJECT, settings, clock) for host in HOSTS]
        for agent in self.agents:
            self._stack.enter_context(agent.memory)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def record(self, lines: Sequence[str]) -> None:
        """Record what users said on earlier days, and make facts of it."""
        for number, line in enumerate(lines):
            memory = self.agents[number % len(self.agents)].memory
            name = f"earlier-{number}"
            memory.record([{"role": "user", "content": line}], session_id=name, run_id=name)
            self._clock.now += timedelta(hours=4)
        self._consolidate()

    def run_round(self, number: int) -> None:
        """Let the agents do each task once, on one day, and the memory consolidate at night."""
        self._clock.now = self._eve + _DAY * number
        chance = random.Random(f"{self._name}/{number}")
        for turn in chance.sample(range(len(self._tasks)), len(self._tasks)):
            self._clock.now += timedelta(minutes=20)
            self._run(number, turn)
        self._clock.now = self._eve + _DAY * number + timedelta(hours=14)
        self._consolidate()

    def _run(self, number: int, index: int) -> None:
        state = self._tasks[index]
        agent = self.agents[(number + index) % len(self.agents)]
        requests = state.task.requests[:-PROBES]
        name = f"{state.task.name}-{number}"
        turn = Turn(name=name, prompt=requests[(number - 1) % len(requests)])
        advices = self._order(read_block(agent.recall(turn).text, state.task))
        chance = random.Random(f"{self._name}/{number}/{state.task.name}")
        calls, answer, used = run_task(state, advices, chance)
        self._clock.now += timedelta(minutes=5)
        agent.finish(
            Turn(name=name, prompt=turn.prompt, calls=calls, answer=answer),
            credits=self._arm.credits,
        )
        self._bandit.learn(advices, used)

    def _order(self, advices: list[Advice]) -> list[Advice]:
        return self._bandit.order(advices) if self._arm.bandit else advices

    def _consolidate(self) -> None:
        self.agents[0].memory.consolidate(extractor="rules")

    def probe(self) -> list[Probe]:
        """Ask for each task in its held-back words, by another agent each time, unrecorded."""
        probes = []
        for index, state in enumerate(self._tasks):
            blocks = []
            for number, request in enumerate(state.task.requests[-PROBES:]):
                memory = self.agents[(index + number) % len(self.agents)].memory
                blocks.append(memory.recall(request, purpose="preview").text)
            advices = [self._order(read_block(block, state.task)) for block in blocks]
            probes.append(Probe(blocks, advices))
        return probes

    def weights(self) -> dict[str, list[float]]:
        """Return the weights of what each stated line became: its entry and facts."""
        memory = self.agents[0].memory
        stated: dict[str, str] = {}
        for entry in memory.entries():
            if entry.session_id.startswith("earlier-"):
                stated[entry.id] = entry.content
        for fact in memory.facts(include_superseded=True):
            for source in fact.sources:
                if source.entry in stated:
                    stated[fact.id] = stated[source.entry]
        with memory.store.session() as reader:
            states = reader.states([*stated])
        weights: dict[str, list[float]] = {}
        for item, line in stated.items():
            weights.setdefault(line, []).append(states[item].weight)
        return weights


# -- figures ---------------------------------------------------------------------------------------


def run_recipes(
    tasks: Path | None = None,
    worlds: int = 5,
    seed: int = 1,
    rounds: int = 8,
    per_world: int = 8,
    arms: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Let agents work in worlds under each arm; return a JSON report.

    Args:
        tasks: a file of tasks [those that ship].
        worlds: how many worlds, each with tasks and luck of its own.
        rounds: how many days the agents work; after `CHANGE_AFTER` half of the tasks change.
        per_world: how many tasks a world has, at most.
        arms: names of `ARMS` [all].

    Raises:
        ImportFileError: the file of tasks is not of that form.
        Unsupported: there is no such arm.
    """
    chosen = {name: _find_arm(name) for name in arms or ARMS}
    every, distractors = load_tasks(tasks or TASKS)
    distractors = distractors or load_tasks(TASKS)[1]
    tell, done = progress or no_progress, 0
    by_world: list[dict[str, Any]] = []
    for number in range(worlds):
        name = f"{seed}/{number}"
        figures: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
            written = _write_world(name, Path(folder) / "written", every, distractors, per_world)
            for arm_name, arm in chosen.items():
                tell(f"world {number + 1}: {arm_name}", done, worlds * len(chosen))
                figures[arm_name] = _measure(name, Path(folder), arm, written, rounds)
                done += 1
        by_world.append(figures)
    return {
        "kind": "recipes",
        "dataset": "recipes",
        "tasks": len(every),
        "worlds": worlds,
        "rounds": rounds,
        "seed": seed,
        "arms": {name: _summarise([figures[name] for figures in by_world]) for name in chosen},
        "by_world": by_world,
        "version": memtier_plugin.__version__,
    }


def _find_arm(name: str) -> Arm:
    if name not in ARMS:
        raise Unsupported(f"arm {name!r}; one of: {', '.join(ARMS)}")
    return ARMS[name]


@dataclass(frozen=True, slots=True)
class _Written:
    """A world before its first round: its tasks and the time; its home is on the disk."""

    home: Path
    tasks: tuple[TaskState, ...]
    clock: Clock


def _write_world(
    name: str, home: Path, tasks: Sequence[Task], distractors: Sequence[str], count: int
) -> _Written:
    chance = random.Random(name)
    drawn = chance.sample(tasks, min(count, len(tasks)))
    changing = set(chance.sample(range(len(drawn)), len(drawn) // 2))
    delayed = set(chance.sample(range(len(drawn)), round(len(drawn) * _DELAYED)))
    states = [
        TaskState(task, chance.randrange(2), number in delayed, number in changing)
        for number, task in enumerate(drawn)
    ]
    lines = [recipe.line for task in drawn for recipe in task.recipes]
    lines += [line for task in drawn for line in task.innocent]
    lines += chance.sample(distractors, min(_DISTRACTORS, len(distractors)))
    chance.shuffle(lines)
    clock = Clock()
    with World(name, home, ARMS["none"], states, clock) as world:
        world.record(lines)
    return _Written(home, tuple(states), clock)


def _measure(name: str, folder: Path, arm: Arm, written: _Written, rounds: int) -> dict[str, Any]:
    """Return the figures of one arm in one world."""
    states = [TaskState(s.task, s.works, s.delayed, s.changes) for s in written.tasks]
    home = Path(tempfile.mkdtemp(dir=folder)) / "home"
    shutil.copytree(written.home, home)
    with World(name, home, arm, states, Clock(written.clock.now)) as world:
        before = probes = world.probe()
        by_round = [_look_at(states, probes)]
        for number in range(1, rounds + 1):
            if number == CHANGE_AFTER + 1:
                for state in states:
                    state.works ^= state.changes
            world.run_round(number)
            probes = world.probe()
            by_round.append(_look_at(states, probes))
        weights = world.weights()
    blamed, hurt = _harm(states, weights, before, probes)
    then, after = by_round[: CHANGE_AFTER + 1][-1], by_round[CHANGE_AFTER + 1 :]
    # What was not learned before cannot be learned anew.
    changed = [n for n, state in enumerate(states) if state.changes and then["known"][n]]
    return {
        "rounds": [{key: fmean(values) for key, values in row.items()} for row in by_round],
        "learned": [_rounds_until([row["known"][n] for row in after]) for n in changed],
        "blamed": blamed,
        "hurt": hurt,
        "weights": [edge(map(edge, weights.values())) for edge in (min, max)],
    }


def _rounds_until(known: Sequence[float]) -> int | None:
    return known.index(1) + 1 if 1 in known else None


def _look_at(states: Sequence[TaskState], probes: Sequence[Probe]) -> dict[str, list[float]]:
    """Return, for each task, the shares of its probes for which something holds."""
    rows: dict[str, list[float]] = {name: [] for name in _SHARES}
    for state, probe in zip(states, probes, strict=True):
        shown, works = probe.advices, state.works
        heeded = [first_heeded(lines) for lines in shown]
        rows["first"].append(fmean(bool(a) and a[0].recipe == works for a in shown))
        rows["heeded"].append(fmean(number == works for number in heeded))
        rows["known"].append(works in heeded and 1 - works not in heeded)
        rows["possible"].append(fmean(any(x.recipe == works for x in a) for a in shown))
        failing = [any(x.recipe != works and not x.marked for x in a) for a in shown]
        rows["unmarked"].append(fmean(failing))
    return rows


def _harm(
    states: Sequence[TaskState],
    weights: Mapping[str, Sequence[float]],
    before: Sequence[Probe],
    after: Sequence[Probe],
) -> tuple[float, float]:
    """Return the share of innocent lines of negative weight, and of those or lost from blocks.

    A line is lost if a block had it before and a later one, no larger, has not.
    """
    blamed, hurt = [], []
    for state, old, new in zip(states, before, after, strict=True):
        for line in state.task.innocent:
            lost = any(
                line in earlier and line not in later and len(later) <= len(earlier)
                for earlier, later in zip(old.blocks, new.blocks, strict=True)
            )
            blamed.append(min(weights[line]) < 0)
            hurt.append(blamed[-1] or lost)
    return fmean(blamed), fmean(hurt)


def _summarise(worlds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of each figure over worlds, and its interval; None where nothing counts."""
    rounds = len(worlds[0]["rounds"]) - 1
    rows: dict[str, list[float]] = {}
    for figure in ("first", "heeded", "possible"):
        for number in (0, *AFTER):
            if number <= rounds:
                rows[f"{figure}@{number}"] = [w["rounds"][number][figure] for w in worlds]
    rows["unmarked"] = [w["rounds"][-1]["unmarked"] for w in worlds]
    rows |= {figure: [w[figure] for w in worlds] for figure in ("blamed", "hurt")}
    rows["learned"] = [
        fmean(n is not None and n <= LEARNED_WITHIN for n in w["learned"])
        for w in worlds
        if rounds > CHANGE_AFTER and w["learned"]
    ]
    times = [n for w in worlds for n in w["learned"] if n is not None]
    intervals = {
        name: [round(value, 4) for value in (fmean(values), *bootstrap_interval(values))]
        for name, values in rows.items()
        if values
    }
    return {**intervals, "rounds_to_learn": round(fmean(times), 2) if times else None}


# -- the report ------------------------------------------------------------------------------------

_LABELS: Final = {
    "first": "working recipe in the first line",
    "heeded": "or in the first without a mark",
    "possible": "in any line",
    "learned": f"change learned within {LEARNED_WITHIN} rounds",
    "hurt": "innocent lines hurt",
    "blamed": "of these, of negative weight",
    "unmarked": "failing recipe shown unmarked",
}


def recipes_view(report: Report) -> list[Section]:
    """Return the table of the figures by arm."""
    arms: Mapping[str, Report] = report["arms"]
    size = " · ".join(f"{report[name]} {name}" for name in ("worlds", "tasks", "rounds"))
    head = f"{size} · seed {report['seed']}\nmeans over worlds with intervals of 95 %"
    table = ReportTable(("", *arms))
    for figure, label in _LABELS.items():
        keys = [key for key in next(iter(arms.values())) if key.partition("@")[0] == figure]
        for key in keys:
            number = key.partition("@")[2]
            name = f"{label}, after {number}" if number else label
            table.add_row(name, *(_format(arm.get(key)) for arm in arms.values()))
    waits = [arm["rounds_to_learn"] for arm in arms.values()]
    label = "rounds until a change is learned, if it is"
    table.add_row(label, *("-" if wait is None else f"{wait:.1f}" for wait in waits))
    return [head, table]


def _format(values: Sequence[float] | None) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*values) if values else "-"
