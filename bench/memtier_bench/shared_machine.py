"""One machine of `memtier bench shared`, in its own process and home."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from memtier_bench.metrics import latency_percentiles
from memtier_bench.synthetic import EPOCH, SyntheticChat
from memtier_plugin.core.formats import from_iso, new_id
from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.protocol import NewLine, Stream, line_key
from memtier_plugin.storage.shared.sharing import open_ledger

AGENT: Final = "bench"
_POLL_SECONDS: Final = 0.001


def write_runs(task: Mapping[str, Any]) -> dict[str, Any]:
    """End runs of a question and an answer, alternating between the shared and an own session.

    Returns the ids of all acknowledged entries, when each run was acknowledged, and the durations.
    """
    chat = SyntheticChat(task["seed"])
    acknowledged: list[str] = []
    seconds, times = [], []
    with _open(task) as memory:
        _wait_until(task["begin"])
        begun, used = time.time(), _cpu()
        for number in range(task["runs"]):
            messages = chat.session(number, 2).messages
            session = task["sessions"][number % len(task["sessions"])]
            started = time.perf_counter()
            done = memory.end_run(messages, session_id=session, run_id=f"{task['seed']}-{number}")
            seconds.append(time.perf_counter() - started)
            times.append(time.time())
            acknowledged += [entry.id for entry in done.entries]
            time.sleep(task.get("pause", 0.0))
        return {
            "begun": begun,
            "ended": time.time(),
            "cpu": _cpu() - used,
            "latency_ms": latency_percentiles(seconds),
            "times": times,
            "acknowledged": acknowledged,
        }


def check_copy(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of this machine's files: digests, entries, and turns by session."""
    with _open(task) as memory:
        files = {
            str(path.relative_to(memory.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(memory.folder.rglob("*.jsonl"))
            if path.stat().st_size  # a spool remains after everything in it was delivered
        }
        entries = [logged.entry for logged in memory.store.log.entries() if logged.entry]
        turns: dict[str, list[int]] = {}
        for entry in entries:
            turns.setdefault(entry.session_id, []).append(entry.turn)
        return {"files": files, "entries": [entry.id for entry in entries], "turns": turns}


def recall(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run the queries, optionally after rebuilding the index; return digests and times."""
    hits, seconds = [], []
    with _open(task) as memory:
        if task["rebuild"]:
            memory.reindex()
        for query in task["queries"]:
            started = time.perf_counter()
            recalled = memory.recall(query, purpose="search", at=from_iso(task["at"]))
            seconds.append(time.perf_counter() - started)
            ranked = [(hit.item.id, round(hit.score, 9)) for hit in recalled.hits]
            hits.append(hashlib.sha256(json.dumps(ranked).encode()).hexdigest() if ranked else "")
    return {"hits": hits, "latency_ms": latency_percentiles(seconds)}


def watch(task: Mapping[str, Any]) -> dict[str, Any]:
    """Record when each turn of a session is readable in this machine's index."""
    times: list[float] = []
    with _open(task) as memory, memory.store.session() as reader:
        while len(times) < task["turns"] and time.time() < task["until"]:
            last = reader.last_turn(AGENT, task["session"])
            times += [time.time()] * (last - len(times))
            time.sleep(_POLL_SECONDS)
    return {"times": times}


def measure_index(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of entries in this machine's index, and its size in bytes."""
    with _open(task) as memory:
        index = memory.status()["index"]
        return {"entries": index["entries"], "bytes": index["bytes"]}


def append_lines(task: Mapping[str, Any]) -> dict[str, Any]:
    """Append entries in batches to this machine's own stream, by the ledger's protocol.

    They are generated before the clock starts.
    """
    stream, batch = Stream("episodic", task["agent"]), task["batch"]
    lines = [*islice(_lines(task["agent"], task["seed"]), task["lines"])]
    ledger = open_ledger(task["url"], task["project"], durable=task["durable"])
    ledger.heads()
    seconds: list[float] = []
    _wait_until(task["begin"])
    begun = time.time()
    for start in range(0, len(lines), batch):
        started = time.perf_counter()
        ledger.append(stream, start, lines[start : start + batch])
        seconds.append(time.perf_counter() - started)
    ended = time.time()
    ledger.close()
    latencies = latency_percentiles(seconds)
    return {"begun": begun, "ended": ended, "lines": len(lines), "latency_ms": latencies}


def _lines(agent: str, seed: int) -> Iterator[NewLine]:
    """Yield the ledger lines of synthetic sessions, as `MemTier.record` writes them."""
    for session in SyntheticChat(seed).sessions():
        then = session.observed_at or EPOCH
        for turn, spoken in enumerate(session.turns, 1):
            content = spoken.message.content
            entry = Entry(
                id=new_id(),
                timestamp=then,
                session_id=session.session_id,
                project="bench",
                content=content,
                tokens=count_tokens(content),
                agent_id=agent,
                run_id=spoken.id,
                turn=turn,
                role=spoken.message.role,
                origin="user" if spoken.message.role == "user" else "assistant",
                observed_at=then,
                key=f"{agent}/{spoken.id}",
            )
            data = json.dumps(entry.to_json(), ensure_ascii=False).encode() + b"\n"
            yield NewLine(f"{then:%Y-%m-%d}", line_key(data), data)


def _open(task: Mapping[str, Any]) -> MemTier:
    return MemTier.open(Path(task["home"]), task["project"], AGENT, create=False)


def _wait_until(begin: float) -> None:
    time.sleep(max(0.0, begin - time.time()))


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
