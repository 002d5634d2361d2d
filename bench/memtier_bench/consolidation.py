"""Measure the cost of a consolidation, and its effect on the latency of recalls.

A store of synthetic entries, some of which state facts that the rules extract, is consolidated
without a model.  Meanwhile three kinds of processes recall as a host does, each compared with its
own idle latency in the same minutes:

- `aside`: a separate process, while a `memtier daemon --once` consolidates;
- `serve`: `memtier serve`, whose own background consolidates;
- `within`: a process that consolidates in one of its threads, which MemTier never does; it shows
  what the others avoid.

A consolidation is short, so it is repeated on copies of the store until enough recalls overlap it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.metrics import latency_percentiles
from memtier_bench.planted import PEOPLE
from memtier_bench.probe import PROJECT, agent_name, peak_rss_mb, run_in_fresh_process
from memtier_bench.progress import Progress, no_progress
from memtier_bench.synthetic import SyntheticChat, WordList
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.records import Message
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.ingest.messages import Session
from memtier_plugin.memory import MemTier

WHERE: Final = ("aside", "serve", "within")
GOAL: Final = 2.0  # times the idle p95

_SESSION_MESSAGES: Final = 20  # messages
_AGENTS: Final = 4
_STATEMENT_EVERY: Final = 5  # one in this many user messages states a fact
_IDLE_RECALLS: Final = 100  # idle recalls before and after a consolidation, each
_MAX_ROUNDS: Final = 12  # maximum of consolidations per kind of process
_CONSOLIDATION_TIMEOUT: Final = 300.0  # seconds for one consolidation
_STATEMENTS: Final = (
    "My {relative}'s name is {person}.",
    "I live in {Word}.",
    "I work at {Word} {Other}.",
    "I am allergic to {word}.",
    "My favorite {word} is {other}.",
    "I prefer {word} to {other}.",
    "I never eat {word}.",
    "{person} lives in {Word}.",
    "I moved to {Word} last year.",
    "The {word} server runs on port {port}.",
)
_RELATIVES: Final = ("sister", "brother", "wife", "husband", "daughter", "son", "boss")


def run_consolidation(
    entries: int = 1_000, recalls: int = 200, seed: int = 1, progress: Progress | None = None
) -> dict[str, Any]:
    """Measure a consolidation of a synthetic store, and the recalls during it.

    Args:
        entries: messages in the store.
        recalls: how many must overlap a consolidation, for each kind of process.
        seed: the same seed gives the same texts.
        progress: told of each step.

    Raises:
        MemTierError: one of the processes failed.
    """
    tell = progress or no_progress
    with tempfile.TemporaryDirectory(prefix="memtier-consolidation-") as folder:
        top = Path(folder)
        home = top / "home"
        tell("recording", 0, 1)
        with MemTier.open(home, PROJECT, agent_name(0)) as memory:
            settings = flatten_settings(memory.settings)
        _fill(home, entries, seed)
        tell("recording", 1, 1)
        steps = 1 + len(WHERE)
        tell("consolidating", 0, steps)
        alone = _run_on_copy("alone", home, top)
        measured: dict[str, Any] = {}
        for number, where in enumerate(WHERE, 1):
            tell("consolidating", number, steps)
            measured[where] = _measure_recalls(where, home, top, recalls, seed)
        tell("consolidating", steps, steps)
    return {
        "dataset": "consolidation",
        "entries": entries,
        "agents": _AGENTS,
        "seed": seed,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "alone": alone,
        "recalls": measured,
        "goal": GOAL,
        "version": memtier_plugin.__version__,
        "settings": settings,
    }


def _measure_recalls(where: str, home: Path, top: Path, recalls: int, seed: int) -> dict[str, Any]:
    """Measure recalls of one kind of process, over as many consolidations as needed."""
    idle: list[float] = []
    busy: list[float] = []
    rounds = 0
    seconds: list[float] = []
    rss: list[float] = []
    while rounds < _MAX_ROUNDS and len(busy) < recalls:
        done = _run_on_copy("during", home, top, where=where, seed=seed + rounds)
        idle += done["idle"]
        busy += done["busy"]
        seconds.append(done["seconds"])
        rss.append(done["peak_rss_mb"])
        rounds += 1
    calm, under = latency_percentiles(idle), latency_percentiles(busy)
    return {
        "rounds": rounds,
        "idle": {"recalls": len(idle), "latency_ms": calm},
        "during": {
            "recalls": len(busy),
            "latency_ms": under,
            "worst_ms": round(1000 * max(busy), 3),
        },
        "ratio": {name: round(under[name] / max(calm[name], 1e-3), 2) for name in ("p50", "p95")},
        "seconds": round(sum(seconds) / len(seconds), 3),
        "peak_rss_mb": max(rss),
    }


def _run_on_copy(function: str, home: Path, top: Path, **task: Any) -> dict[str, Any]:
    """Call a function of this module in a fresh process, on a copy of the store."""
    copy = top / "copy"
    shutil.copytree(home, copy)
    try:
        request = {"home": str(copy), **task}
        return run_in_fresh_process(function, request, "consolidation")
    finally:
        shutil.rmtree(copy)


def _fill(home: Path, entries: int, seed: int) -> None:
    """Record the entries, agent by agent."""
    for agent in range(_AGENTS):
        with MemTier.open(home, PROJECT, agent_name(agent)) as memory:
            for _ in memory.record_sessions(_sessions(entries, seed, agent)):
                pass


def _sessions(entries: int, seed: int, agent: int) -> Iterator[Session]:
    source, chance, words = SyntheticChat(seed), random.Random(f"{seed}/said"), WordList().words
    for number in range(-(-entries // _SESSION_MESSAGES)):
        session = source.session(
            number, min(_SESSION_MESSAGES, entries - number * _SESSION_MESSAGES)
        )
        turns = list(session.turns)
        for index in range(0, len(turns), 2):
            if chance.randrange(_STATEMENT_EVERY) == 0:
                text = f"{_statement(chance, words)} {turns[index].message.content}"
                turns[index] = replace(turns[index], message=Message(role="user", content=text))
        if number % _AGENTS == agent:
            yield replace(session, turns=tuple(turns))


def _statement(chance: random.Random, words: Sequence[str]) -> str:
    word, other = (words[chance.randrange(300, 3_000)] for _ in range(2))
    return chance.choice(_STATEMENTS).format(
        relative=chance.choice(_RELATIVES),
        person=chance.choice(PEOPLE),
        word=word,
        other=other,
        Word=word.capitalize(),
        Other=other.capitalize(),
        port=chance.randrange(3_000, 9_000),
    )


# -- in a fresh process ----------------------------------------------------------------------------


def alone(task: Mapping[str, Any]) -> dict[str, Any]:
    """Consolidate everything with nothing else running; return its cost."""
    with MemTier.open(task["home"], PROJECT, agent_name(0)) as memory:
        before = peak_rss_mb()
        started = time.perf_counter()
        read, facts = _consolidate_all(memory)
        seconds = time.perf_counter() - started
    return {
        "seconds": round(seconds, 3),
        "entries_per_s": round(read / max(seconds, 1e-9), 1),
        "read": read,
        "facts": facts,
        "peak_rss_mb": peak_rss_mb(),
        "rss_before_mb": before,
    }


def during(task: Mapping[str, Any]) -> dict[str, Any]:
    """Recall before, during and after a consolidation; return the seconds of each recall."""
    home = Path(task["home"])
    questions = SyntheticChat(task["seed"]).questions(200)
    if task["where"] == "serve":
        return _measure_server(home, questions)
    with MemTier.open(home, PROJECT, agent_name(0)) as memory:

        def ask(question: str) -> None:
            memory.recall(question, session_id="bench", run_id="bench", purpose="inject")

        work = {"aside": _run_daemon, "within": _consolidate_here}[task["where"]]
        return _time_recalls(ask, questions, lambda: work(home))


def _time_recalls(
    ask: Callable[[str], None], questions: Sequence[str], work: Callable[[], None]
) -> dict[str, Any]:
    """Time recalls while idle, while work runs in another thread, and while idle again."""
    for question in questions[:10]:
        ask(question)  # warm up
    idle = [_time_recall(ask, question) for question in questions[:_IDLE_RECALLS]]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    busy: list[float] = []
    started = time.perf_counter()
    thread.start()
    while thread.is_alive():
        busy.append(_time_recall(ask, questions[len(busy) % len(questions)]))
    seconds = time.perf_counter() - started
    thread.join()
    if failures:
        raise MemTierError(f"the consolidation failed: {failures[0]}")
    idle += [_time_recall(ask, question) for question in questions[-_IDLE_RECALLS:]]
    return {
        "idle": idle,
        "busy": busy,
        "seconds": round(seconds, 3),
        "peak_rss_mb": peak_rss_mb(),
    }


def _time_recall(ask: Callable[[str], None], question: str) -> float:
    started = time.perf_counter()
    ask(question)
    return time.perf_counter() - started


def _consolidate_all(memory: MemTier) -> tuple[int, int]:
    """Consolidate to the end; return the numbers of entries read and facts written."""
    read = facts = 0
    while True:
        report = memory.consolidate()
        read, facts = read + report.read, facts + report.facts
        if report.read < memory.settings.consolidation.batch:
            return read, facts


def _consolidate_here(home: Path) -> None:
    with MemTier.open(home, PROJECT, agent_name(0)) as memory:
        _consolidate_all(memory)


def _run_daemon(home: Path) -> None:
    arguments = ["--once", "--home", str(home), "--project", PROJECT]
    command = [sys.executable, "-m", "memtier_plugin.daemon", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise MemTierError(f"memtier daemon failed:\n{done.stderr.strip()}")


_SERVE: Final = """\
import sys
from memtier_bench.probe import peak_rss_mb
from memtier_plugin.server.rpc import serve
serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer, scheduler=sys.argv[2] == "1")
print(peak_rss_mb(), file=sys.stderr)
"""


def _measure_server(home: Path, questions: Sequence[str]) -> dict[str, Any]:
    """Measure a server without background jobs, then one that consolidates at once."""
    calm = _ServeProcess(home, background=False)
    for question in questions[:10]:
        calm.ask(question)
    idle = [_time_recall(calm.ask, question) for question in questions[:_IDLE_RECALLS]]
    calm.end()
    served = _ServeProcess(home, background=True)
    for question in questions[:10]:
        served.ask(question)
    with MemTier.open(home, PROJECT, agent_name(0)) as memory:
        started = time.perf_counter()
        busy: list[float] = []
        while not _is_consolidated(memory):
            busy.append(_time_recall(served.ask, questions[len(busy) % len(questions)]))
            if time.perf_counter() - started > _CONSOLIDATION_TIMEOUT:
                raise MemTierError("memtier serve did not consolidate")
        seconds = time.perf_counter() - started
    time.sleep(1.0)  # let later background jobs end
    idle += [_time_recall(served.ask, question) for question in questions[-_IDLE_RECALLS:]]
    rss = served.end()
    return {"idle": idle, "busy": busy, "seconds": round(seconds, 3), "peak_rss_mb": rss}


def _is_consolidated(memory: MemTier) -> bool:
    """Return whether everything has been consolidated."""
    memory.catch_up(full=False)
    status = memory.status()
    return not status["backlog"]


class _ServeProcess:
    """A `memtier serve` process, queried over its stdin."""

    def __init__(self, home: Path, *, background: bool) -> None:
        self._home = home
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(home), "1" if background else "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ask(self, question: str) -> None:
        """Recall and wait for the answer."""
        params = {
            "query": question,
            "project": PROJECT,
            "agent": agent_name(0),
            "session_id": "bench",
            "run_id": "bench",
            "purpose": "inject",
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": "recall", "params": params}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        if "result" not in json.loads(self._process.stdout.readline() or "{}"):
            self._process.kill()
            raise MemTierError("memtier serve failed to answer a recall")

    def end(self) -> float:
        """End it and return its peak memory in megabytes."""
        _, output = self._process.communicate(timeout=30)
        return float(output.split()[-1])
