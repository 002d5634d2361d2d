"""`memtier demo`: demonstrate MemTier in five steps that check their own claims.

Everything runs through the hooks, as in a host, in a home that is kept for inspection. The clock is
fixed, so that scores are reproducible.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import column_table, escape_controls, make_console, safe_text
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.paths import make_home, make_project_folder
from memtier_plugin.core.plugins import manager
from memtier_plugin.core.records import Entry, Message, ToolCall
from memtier_plugin.core.results import Hit, PromptEvent, RunContext, RunEvent
from memtier_plugin.memory import MemTier

_WIDTH: Final = 100  # columns of a heading
PROJECT: Final = "harbor"
MARKER: Final = ".memtier-demo"
CONFIGURATION: Final = "retrieval:\n  k: 6  # lines per prompt, at most\n"
MONDAY: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ASKED_AT: Final = MONDAY + timedelta(days=2)
PROMOTION_TIMEOUT: Final = 30.0  # seconds for the scheduler to promote a fact

# Two similar pieces of advice, only one of which works.
DRAIN: Final = "To restart the tide service, drain it with pierctl first."
FLUSH: Final = "To restart the tide service, flush it with dockctl first."
# The command the agent runs when it follows the advice, and its answer.
TRIALS: Final = {
    DRAIN: ("pierctl drain", "That was pierctl."),
    FLUSH: ("dockctl flush", "That was dockctl."),
}
RESTART: Final = "restart the tide service"
PORT_FACT: Final = "The health check listens on port 8443."
PASSWORD: Final = "kittiwake-4711"
CONFIDED: Final = (
    "We decided to close the pier in Lagos."  # would be a fact if it were not told in confidence
)
PRIVATE: Final = f"Between us: {CONFIDED}"

# Session, agent, minutes after Monday 9:00, and who said what.  Both pieces of
# advice have neighbours of the same length, so that no signal but their age and
# their vectors tells them apart.
SESSIONS: Final = (
    (
        "monday-deploy",
        "builder",
        0,
        (
            ("user", "Mara", PORT_FACT),
            ("assistant", None, "The load balancer probes it every ten seconds."),
            ("user", "Mara", f"The database is postgres://app:{PASSWORD}@db.internal/orders."),
            ("assistant", None, "I keep the address out of the log."),
            ("user", "Mara", "Pager went quiet."),
            ("assistant", None, "Good, logs look clean."),
            ("user", "Mara", "One more thing before lunch."),
            ("assistant", None, "Listening."),
            ("user", "Mara", DRAIN),
            ("assistant", None, "Understood."),
        ),
    ),
    (
        "monday-oncall",
        "builder",
        180,
        (
            ("user", "Mara", "Pager stays quiet."),
            ("assistant", None, "Good, graphs look clean."),
            ("user", "Mara", "One more thing before dinner."),
            ("assistant", None, "Listening."),
            ("user", "Mara", FLUSH),
            ("assistant", None, "Understood."),
        ),
    ),
    (
        "monday-coffee",
        "builder",
        300,
        (
            ("user", "Mara", PRIVATE),
            ("assistant", None, "Understood."),
        ),
    ),
    (
        "tuesday-review",
        "reviewer",
        24 * 60,
        (
            ("user", "Jonas", "Please review the retry logic in src/harbor/client.py."),
            ("assistant", None, "The backoff has no upper limit; I suggest thirty seconds."),
            ("user", "Jonas", "We decided to cap the backoff at 20 seconds."),
            ("assistant", None, "Then I approve with that change."),
        ),
    ),
)


@click.command(cls=CliCommand)
@click.pass_obj
def demo(scope: Scope) -> None:
    """Demonstrate MemTier on a small conversation."""
    document = run(Path(scope.home or "memtier-demo"), make_console(stderr=scope.as_json))
    if scope.as_json:
        scope.show(document)


class ClaimFailed(MemTierError):
    """A claim of the demo does not hold on this machine."""


@dataclass(frozen=True)
class Stage:
    """The demo's home and its output."""

    home: Path
    out: Console

    def open(self, agent: str) -> MemTier:
        """Open the demo's project as one of its agents."""
        return MemTier.open(self.home, PROJECT, agent)

    def step(self, number: int, title: str) -> None:
        """Begin a step."""
        self.out.print()
        heading = Rule(safe_text(f"{number}. {title} ", "bold"), align="left", characters="─")
        self.out.print(heading, width=min(_WIDTH, self.out.width))

    def say(self, line: str, style: str = "") -> None:
        """Print one line."""
        self.out.print(safe_text(line, style), soft_wrap=True)

    def show(self, view: RenderableType) -> None:
        """Print something indented."""
        self.out.print(Padding(view, (0, 0, 0, 2), expand=False))


def run(home: Path, out: Console) -> Mapping[str, Any]:
    """Run the demo in a new home and return its ids and files.

    Raises:
        MemTierError: the folder is not the demo's, or a claim does not hold.
    """
    began = time.monotonic()
    stage = Stage(_prepare_home(home), out)
    stored = _show_recording(stage)
    _show_recall(stage)
    recalls = _show_learning(stage)
    fact = _show_sharing(stage)
    files = _show_files(stage, recalls[1])
    out.print()
    stage.say(f"Every claim held. {time.monotonic() - began:.1f} seconds, no network, no LLM.")
    return {
        "home": str(stage.home),
        "entries": stored,
        "recall_before": recalls[0],
        "recall_after": recalls[1],
        "fact": fact,
        "files": files,
    }


def _prepare_home(home: Path) -> Path:
    """Create the demo's folder, replacing the one of an earlier demo."""
    home = home.absolute()
    if home.exists():
        if not (home / MARKER).is_file() and (not home.is_dir() or any(home.iterdir())):
            raise MemTierError(
                f"{str(home)!r} exists and is not a demo's folder, so it is left alone; "
                f"name another one with --home"
            )
        shutil.rmtree(home)
    make_home(home)
    (home / MARKER).write_text("Made by `memtier demo`, which may delete this folder.\n")
    write_private_file(make_project_folder(home, PROJECT) / "project.yaml", CONFIGURATION)
    return home


def _check(claim: bool, statement: str) -> None:
    if not claim:
        raise ClaimFailed(f"the demo's claim does not hold: {statement}")


def _show_recording(stage: Stage) -> int:
    stage.step(1, "Two agents work, every run is written down")
    stored: list[Entry] = []
    for session, agent, minutes, lines in SESSIONS:
        start = MONDAY + timedelta(minutes=minutes)
        messages = [
            Message(
                role="user" if role == "user" else "assistant",
                content=content,
                speaker=speaker,
                observed_at=start + timedelta(minutes=turn),
            )
            for turn, (role, speaker, content) in enumerate(lines)
        ]
        with stage.open(agent) as memory:
            new = memory.record(messages, session_id=session, run_id=f"{session}-1")
            again = memory.record(messages, session_id=session, run_id=f"{session}-1")
        _check(len(new) == len(messages), f"{session} was recorded whole")
        _check(not again, "a run delivered twice is stored once")
        stored += new
        stage.say(f"  {agent:<9} {session:<15} {len(new)} lines; delivered again: {len(again)} new")
    ledgers = "".join(path.read_text() for path in _ledgers(stage.home))
    _check(PASSWORD not in ledgers, "the password in the database address was not written")
    redacted = next(entry.content for entry in stored if "postgres" in entry.content)
    stage.say("  Mara pasted a password; the file on disk has:")
    stage.say(f"    {redacted}", "cyan")
    return len(stored)


def _show_recall(stage: Stage) -> None:
    stage.step(2, "Before a prompt is built: recall returns what is relevant to it, with sources")
    question = "Which port does the health check use?"
    stage.say(f"  builder is asked: {question}")
    addition = manager().hook.before_prompt_build(
        event=PromptEvent(prompt=question),
        context=_context(stage, "builder", "wednesday", "wednesday-1"),
    )
    _check(addition is not None, "the hook before_prompt_build returned something")
    _check("8443" in addition.prepend_context, "the line about the port was injected")
    stage.say("  and the hook before_prompt_build puts this in front of the prompt:")
    for line in addition.prepend_context.splitlines():
        stage.say(f"    {line}", "cyan")
    with stage.open("builder") as memory:
        hit = memory.recall(question, at=ASKED_AT).hits[0]
    source = hit.sources[0]
    path = stage.home / "projects" / PROJECT / str(source.file)
    _check("8443" in path.read_text().splitlines()[(source.line or 0) - 1], "the source is there")
    stage.say(f"  The best line comes from {source.file}:{source.line}")


_MAY_DIFFER: Final = {"weight", "dense", "dense_window", "dense_previous"}


def _show_learning(stage: Stage) -> tuple[str, str]:
    stage.step(3, "Tools fail and succeed, and the memory learns which line helped")
    stage.say("  Mara gave two pieces of advice that words alone cannot tell apart:")
    for advice in TRIALS:
        stage.say(f"    {advice}", "cyan")
    with stage.open("builder") as memory:
        before = memory.recall(RESTART, at=ASKED_AT)
        old = _rank_advice(before.hits)
    first, second = sorted(old, key=lambda advice: old[advice][0])
    _play_run(stage, "wednesday-2", first, ok=False)
    _play_run(stage, "wednesday-3", second, ok=True)
    manager().hook.session_end(context=_context(stage, "builder", "wednesday", "wednesday-3"))
    with stage.open("builder") as memory:
        after = memory.recall(RESTART, at=ASKED_AT)
        new = _rank_advice(after.hits)
        explanation = memory.explain(after.id)
    _check(new[first][1].weight < 0 < new[second][1].weight, "one is blamed, one is credited")
    _check(new[second][0] < new[first][0], "the advice that helped is ranked first after the runs")
    for when, pair in (("before", old), ("after", new)):
        drain, flush = (pair[advice][1].signals for advice in TRIALS)
        apart = {name for name in drain if abs(drain[name] - flush[name]) > 1e-9}
        _check(apart <= _MAY_DIFFER, f"{when} the runs only {_MAY_DIFFER} may differ: {apart}")
    weights_now = {row["id"]: row["weight_now"] for row in explanation["injected"]}
    for advice in TRIALS:
        told_weight = weights_now.get(new[advice][1].id, math.nan)
        _check(abs(told_weight - new[advice][1].weight) < 1e-9, f"explain tells of {advice!r}")
    stage.say(f"  Asked for {RESTART!r} before and after: likeness stays, the weight decides:")
    table = column_table("", "rank", "score", "weight", "likeness", "advice", right=["rank"])
    for when, pair in (("before", old), ("after", new)):
        for advice in sorted(pair, key=lambda line: pair[line][0]):
            rank, hit = pair[advice]
            shown = (
                str(rank),
                f"{hit.score:.4f}",
                f"{hit.weight:+.4f}",
                f"{hit.signals['dense']:.2f}",
            )
            table.add_row(when, *shown, TRIALS[advice][0])
    stage.show(table)
    return before.id, after.id


def _rank_advice(hits: tuple[Hit, ...]) -> dict[str, tuple[int, Hit]]:
    """Return rank and hit of each piece of advice."""
    ranked = {hit.text: (rank, hit) for rank, hit in enumerate(hits, 1)}
    _check(DRAIN in ranked and FLUSH in ranked, "both pieces of advice are recalled")
    return {advice: ranked[advice] for advice in (DRAIN, FLUSH)}


def _play_run(stage: Stage, run_id: str, advice: str, *, ok: bool) -> None:
    """Run one turn of the builder as a host does: prompt, tool call, result, answer, end."""
    command, answer = TRIALS[advice]
    # Phrased differently from the advice.
    prompt = "Pager: the tide service hangs again, please bring it back."
    context = _context(stage, "builder", "wednesday", run_id)
    addition = manager().hook.before_prompt_build(event=PromptEvent(prompt=prompt), context=context)
    _check(advice in getattr(addition, "prepend_context", ""), "the advice stood in the prompt")
    call = ToolCall(name="shell", call_id=run_id, arguments=command)
    result = ToolCall(name="shell", call_id=run_id, ok=ok, exit_code=0 if ok else 1)
    messages = (
        Message(role="user", content=prompt, speaker="Mara"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="healthy" if ok else "still hanging", tool=result),
        Message(role="assistant", content=answer),
    )
    manager().hook.agent_end(event=RunEvent(messages=messages, success=ok), context=context)
    outcome = "exit 0, credit" if ok else "exit 1, blame"
    stage.say(f"  run {run_id}: shell `{command}` → {outcome}")


def _show_sharing(stage: Stage) -> str:
    stage.step(4, "In the background, entries become facts that all agents of the project share")
    question = "health check port"
    with stage.open("reviewer") as reviewer:
        before = reviewer.recall(question, at=ASKED_AT)
        _check(not any("8443" in hit.text for hit in before.hits), "reviewer cannot know it yet")
        stage.say(f"  reviewer asks for {question!r}: nothing about 8443, it was said to builder")
        with _scheduler(stage.home):
            fact = _wait_for(
                lambda: _fact_about(reviewer, "8443"), "the scheduler extracted a fact"
            )
        hits = reviewer.recall(question, at=ASKED_AT).hits
        _check(hits[0].id == fact.id, "reviewer's best line is the fact")
        source = hits[0].sources[0]
        _check(source.agent == "builder", "the fact's source is a line of builder")
        private = reviewer.recall(PRIVATE, at=ASKED_AT).hits
        _check(not _fact_about(reviewer, "Lagos"), "a confidence becomes no fact")
        _check(
            all("Lagos" not in hit.text for hit in private), "builder's private line stays private"
        )
        _check(
            all(e.agent_id == "reviewer" for h in private if isinstance(e := h.item, Entry)),
            "reviewer sees no entry of builder",
        )
    with stage.open("builder") as builder:
        private_hits = builder.recall(PRIVATE, at=ASKED_AT).hits
        _check(private_hits[0].text == PRIVATE, "builder finds its own private line")
    stage.say("  the scheduler (memtier daemon) has promoted a fact; reviewer asks again:")
    stage.say(f"    {hits[0].text}", "cyan")
    stage.say(f"    fact {fact.id}, source {source.agent}/{source.session}, entry {source.entry}")
    stage.say("  What Mara told builder in confidence would be a fact, but for her words:")
    stage.say(f"    {PRIVATE}", "cyan")
    stage.say("    a fact: no; builder finds it: yes; reviewer finds it: no")
    return str(fact.id)


def _fact_about(memory: MemTier, word: str) -> Any:
    return next((fact for fact in memory.facts() if word in fact.text), None)


def _wait_for(find: Callable[[], Any], claim: str) -> Any:
    deadline = time.monotonic() + PROMOTION_TIMEOUT
    while time.monotonic() < deadline:
        if result := find():
            return result
        time.sleep(0.1)
    raise ClaimFailed(
        f"the demo's claim does not hold: {claim} within {PROMOTION_TIMEOUT:.0f} seconds"
    )


@contextmanager
def _scheduler(home: Path) -> Iterator[None]:
    """Run the consolidation daemon of this home once a second, as `memtier daemon` does."""
    from memtier_plugin.daemon import scheduler

    stop = threading.Event()
    thread = threading.Thread(
        target=scheduler.serve_projects, kwargs={"home": home, "interval": 1.0, "stop": stop}
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PROMOTION_TIMEOUT)


def _show_files(stage: Stage, recall_id: str) -> list[str]:
    stage.step(5, "Look at it")
    folder = stage.home / "projects" / PROJECT
    files = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    stage.say(f"  {_shortest_path(folder)}")
    for path in sorted(folder.rglob("*.jsonl")):
        lines = len(path.read_text().splitlines())
        stage.say(f"    {path.relative_to(folder)}  {lines} lines")
    stage.say("  Try:")
    for command in (
        f"export MEMTIER_HOME={_shortest_path(stage.home)} MEMTIER_PROJECT={PROJECT}",
        "memtier log",
        "memtier facts list",
        f"memtier recall --agent builder '{RESTART}'",
        f"memtier explain --agent builder {recall_id}",
        "memtier status",
        "memtier doctor",
    ):
        stage.say(f"    {command}")
    return files


def _shortest_path(path: Path) -> str:
    return escape_controls(
        path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    )


def _ledgers(home: Path) -> list[Path]:
    return sorted(home.rglob("*.jsonl"))


def _context(stage: Stage, agent: str, session: str, run_id: str) -> RunContext:
    return RunContext(
        agent_id=agent,
        session_id=session,
        run_id=run_id,
        project=PROJECT,
        home=str(stage.home),
        workspace=str(stage.home),
    )
