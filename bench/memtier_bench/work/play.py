"""Play a project as its hosts would, and ask its probes when their day comes.

A host recalls before each prompt, and records the run when it has ended: what the user and the
assistant said, the calls, and whether they worked.  The jobs of the daemon run after each session
and in the night before each day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

from memtier_bench.baselines import Bm25Baseline
from memtier_bench.datasets import Conversation
from memtier_bench.judgement import says_past
from memtier_bench.recipe_agents import Clock
from memtier_bench.work.projects import WorkProbe, WorkProject, WorkSession, WorkTurn
from memtier_plugin.core.records import Entry, Message, ToolCall
from memtier_plugin.core.results import Hit, Recall, Shown
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.daemon.jobs import JobRun, jobs_in_group, list_jobs
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.memory import MemTier
from memtier_plugin.trust.escaping import escape_line

_PATIENCE: Final = 600_000  # milliseconds: a busy machine must not change a figure
_NIGHT, _MORNING = time(4, tzinfo=UTC), time(9, tzinfo=UTC)
_BETWEEN: Final = timedelta(minutes=30)  # from one session or probe of a day to the next


class ShownLine(NamedTuple):
    """A line of a block; ``text`` lacks MemTier's note, ``is_past`` if that says it is outdated."""

    line: str
    text: str
    is_past: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedProbe:
    """A probe, its block, and all lines of the log as the baseline ranks them for it."""

    id: str
    probe: WorkProbe
    lines: Sequence[ShownLine]
    tokens: int
    ranked: Sequence[Hit]


def read_lines(hits: Sequence[Hit], block: str) -> list[ShownLine]:
    """Return the lines of a block, given its hits in the same order."""
    lines = [line for line in block.splitlines() if line.startswith("- [")]
    return [
        ShownLine(line, line.removesuffix(f" ({escape_line(hit.note)})"), says_past(hit))
        for hit, line in zip(hits, lines, strict=True)
    ]


class ProjectPlayer:
    """The memories of a project's agents, in one home; use it in a ``with`` block."""

    def __init__(self, home: Path, project: WorkProject, overrides: Mapping[str, Any]) -> None:
        self._project = project
        self._clock = Clock()
        self._stack = ExitStack()
        agents = dict.fromkeys(
            (*(each.agent for each in project.sessions), *(each.agent for each in project.probes))
        )
        self.memories = {
            agent: self._stack.enter_context(
                MemTier.open(home, project.name, agent, overrides, clock=self._clock)
            )
            for agent in agents
        }
        nothing = Conversation(id=project.name, sessions=())
        self._ranking = Bm25Baseline("bm25-stem", nothing, project.language)
        self._hits: dict[str, Hit] = {}

    def __enter__(self) -> ProjectPlayer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def settings(self) -> Settings:
        """The settings of its memories."""
        return next(iter(self.memories.values())).settings

    def play(self) -> Iterator[AskedProbe]:
        """Play all days in order; yield each probe with its block."""
        for day, of_day in self._project.by_day():
            self._clock.now = datetime.combine(day, _NIGHT)
            run_local_jobs(next(iter(self.memories.values())))
            for nth, (number, item) in enumerate(of_day):
                self._clock.now = datetime.combine(day, _MORNING) + nth * _BETWEEN
                if isinstance(item, WorkProbe):
                    yield self._ask(number, item)
                else:
                    self._play_session(number, item)

    def _ask(self, number: int, probe: WorkProbe) -> AskedProbe:
        recall = self._recall(probe.agent, probe.prompt, session_id=f"probe-{number}")
        return AskedProbe(
            id=f"{self._project.name}/{number + 1}",
            probe=probe,
            lines=read_lines(recall.injected, recall.text),
            tokens=recall.tokens,
            ranked=[self._hits[name] for name in self._ranking.rank(probe.prompt)],
        )

    def _play_session(self, number: int, session: WorkSession) -> None:
        memory, name = self.memories[session.agent], f"session-{number}"
        shown = Shown(since=self._clock.now)
        entries: list[Entry] = []
        for nth, turns in enumerate(_split_runs(session.turns)):
            run = f"{name}-{nth}"
            if turns[0].user:
                self._recall(session.agent, turns[0].user, session_id=name, run_id=run, shown=shown)
            self._clock.now += timedelta(minutes=1)
            entries += memory.end_run(_messages(turns), session_id=name, run_id=run).entries
        run_local_jobs(next(iter(self.memories.values())))
        words = [
            entry for entry in entries if entry.role in ("user", "assistant") and entry.content
        ]
        self._hits |= {
            entry.id: Hit(item=entry, score=1.0, signals={}, sources=(entry.source,))
            for entry in words
        }
        spoken = tuple(
            ImportedMessage(id=e.id, message=Message(role=e.role, content=e.content)) for e in words
        )
        self._ranking.add([Session(session_id=name, observed_at=self._clock.now, turns=spoken)])

    def _recall(self, agent: str, prompt: str, **options: Any) -> Recall:
        return self.memories[agent].recall(
            prompt, purpose="inject", deadline_ms=_PATIENCE, **options
        )


def run_local_jobs(memory: MemTier) -> None:
    """Run the jobs that a daemon runs without a model."""
    jobs, run = list_jobs(), JobRun(Event())
    for name in jobs_in_group("local", memory.settings):
        jobs[name].run(memory, run)


def _split_runs(turns: Sequence[WorkTurn]) -> Iterator[list[WorkTurn]]:
    """Yield runs: a user's words and everything up to the next ones."""
    run: list[WorkTurn] = []
    for turn in turns:
        if turn.user and run:
            yield run
            run = []
        run.append(turn)
    if run:
        yield run


def _messages(turns: Sequence[WorkTurn]) -> Iterator[Message]:
    for number, turn in enumerate(turns):
        if turn.tool:
            call = ToolCall(name=turn.tool, call_id=f"call-{number}", arguments=turn.call)
            yield Message(role="assistant", content="", tool_calls=(call,))
            result = ToolCall(name=turn.tool, call_id=f"call-{number}", ok=turn.ok)
            yield Message(role="tool", content=turn.output, tool=result)
        elif turn.user:
            yield Message(role="user", content=turn.user)
        else:
            yield Message(role="assistant", content=turn.assistant)
