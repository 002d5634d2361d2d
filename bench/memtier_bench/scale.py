"""Measure cost and recall at size, in one store that grows step by step.

The store is bulk-loaded: twenty sessions of up to fifty messages at a time through
`MemTier.record_sessions`, agent by agent.  Ingest time covers writing, indexing and embedding,
including the final catch-up; it excludes generating the text.

Recalls are measured in fresh processes, like a host's.  The first recall of a process is cold: it
pays for opening the project and loading its libraries, with the files in the system's cache.  All
later ones are warm.

Planted lines (`bench.planted`) are in the store from the smallest size on, and each is queried
twice by its agent.  For comparison, the same run measures rank-bm25 over all texts, numpy over all
vectors, and the speed of the shipped embedding model.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import memtier_plugin
from memtier_bench import scans
from memtier_bench.planted import MAX_PLANTED, plant_lines
from memtier_bench.probe import PROJECT, agent_name, run_in_fresh_process
from memtier_bench.progress import Progress, no_progress
from memtier_bench.synthetic import EPOCH, Sentences, SyntheticChat
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import Message, count_tokens
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.memory import MemTier

SIZES: Final = (1_000, 10_000)

_QUERIES: Final = 200  # distinct queries; further recalls repeat them
_LONGEST_RUN: Final = 50  # messages of a run and of a session
_LINES_AMONG: Final = 5  # at most every fifth entry of the smallest size is planted
_STEP_HOURS: Final = 16.0  # hours between two sessions of an agent
_COLD_STARTS: Final = 5  # fresh processes for the cold recall
_SCAN_QUERIES: Final = 20  # a full scan is slow and varies little
_MOST_SCANNED: Final = 100_000  # limit for rank-bm25, which keeps every text in memory
_ENCODED_LOADS: Final = 40  # batches that are also encoded alone
_LOAD_SESSIONS: Final = 20  # sessions per batch


def run_scale(
    entries: Sequence[int] = SIZES,
    recalls: int = _QUERIES,
    agents: int = 20,
    data: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Grow a store to each of these sizes and measure it there; return a JSON report.

    Args:
        entries: the sizes, ascending.
        recalls: how many warm recalls at each size; the 200 queries are reused.
        agents: how many share the entries evenly; the first one runs the queries.
        data: a LoCoMo file or a BEAM folder whose sentences make the texts and the queries; the
            word list that ships if None.
        overrides: settings for the run, by dotted key.
        seed: the same seed gives the same texts and the same questions.
        progress: told of each step.

    Raises:
        ImportFileError: the data is not as published.
        SettingsError: an override is not a setting.
        Unsupported: the sizes do not ascend.
        MemTierError: the recalls in a fresh process failed.
    """
    if not entries or list(entries) != sorted({n for n in entries if n > 0}):
        raise Unsupported(f"sizes {[*entries]}: expected ascending whole numbers above 0")
    store = _GrowingStore(
        entries[0], agents, SyntheticChat(seed, Sentences.read(data) if data else None), seed
    )
    questions = store.source.questions(_QUERIES + _COLD_STARTS)
    cold, queries = questions[:_COLD_STARTS], questions[_COLD_STARTS:]
    rounds = [queries[number % _QUERIES] for number in range(recalls)]
    with tempfile.TemporaryDirectory(prefix="memtier-scale-") as folder:
        run = _ScaleRun(
            Path(folder) / "home", store, overrides, cold, rounds, progress or no_progress
        )
        sizes = [run.measure(size, queries[:_SCAN_QUERIES], seed) for size in entries]
    return {
        "dataset": "scale",
        "source": data.name if data else "word list",
        "agents": agents,
        "recalls": recalls,
        "queries": len(queries),
        "planted": len(store.lines),
        "seed": seed,
        "sizes": sizes,
        "p95_ratios": _p95_ratios(sizes),
        "version": memtier_plugin.__version__,
        "settings": run.settings,
    }


# The figures of a size that a reader wants first, in this order.
_LEADING: Final = (
    "entries",
    "entries_per_s",
    "bytes_per_entry",
    "cold_ms",
    "latency_ms",
    "peak_rss_mb",
    "postings_read",
    "vectors_read",
    "planted_recall10",
    "ratio_to_rank_bm25",
)


@dataclass(slots=True)
class _ScaleRun:
    """Grows a store and measures it, size by size."""

    home: Path
    store: _GrowingStore
    overrides: Mapping[str, Any] | None
    cold: Sequence[str]
    queries: Sequence[str]
    tell: Progress
    settings: dict[str, Any] = field(default_factory=dict)
    _index_growth: float = 0.0  # megabytes that recalls have added to the index

    def measure(self, size: int, scanned_queries: Sequence[str], seed: int) -> dict[str, Any]:
        """Grow the store to a size; return its figures there."""
        grown = self.store.grow(self.home, size, self.overrides, partial(self.tell, "ingest"))
        with MemTier.open(self.home, PROJECT, agent_name(0), settings=self.overrides) as memory:
            self.settings = flatten_settings(memory.settings)
        files = _files_mb(memory.folder)  # closed, so that no write-ahead log is pending
        recalls = self._measure_recalls()
        index = files["index"] - self._index_growth
        self._index_growth += _files_mb(memory.folder)["index"] - files["index"]
        self.tell(f"scans of {size:,}", 2, 3)
        scanned = _time_scans(self.store, scanned_queries, seed)
        self.tell(f"scans of {size:,}", 3, 3)
        p50 = recalls["latency_ms"]["p50"]
        figures = {
            "entries": self.store.entries,
            "entries_per_s": grown["entries_per_s"],
            "bytes_per_entry": round(1e6 * index / self.store.entries, 1),
            **recalls,
            "ratio_to_rank_bm25": _ratio(scanned["rank_bm25_ms"], p50),
            "ratio_to_rank_bm25_of_agent": _ratio(scanned["rank_bm25_agent_ms"], p50),
            "ratio_to_numpy": _ratio(scanned["numpy_ms"], p50),
            "ingest": grown,
            "encoded_per_s": grown["encoded_per_s"],
            "ingest_share_of_encoding": _ratio(grown["entries_per_s"], grown["encoded_per_s"]),
            **scanned,
            "files_mb": files,
        }
        return {name: figures[name] for name in _LEADING} | figures

    def _measure_recalls(self) -> dict[str, Any]:
        """Measure cold and warm recalls in fresh processes, and query the planted lines."""
        size = self.store.entries
        task = {
            "home": str(self.home),
            "at": to_iso(self.store.now),
            "overrides": self.overrides,
        }
        self.tell(f"recall from {size:,}", 0, 3)
        starts = [run_in_fresh_process("ask", {**task, "queries": [query]}) for query in self.cold]
        warm = run_in_fresh_process("ask", {**task, "queries": [self.cold[0], *self.queries]})
        self.tell(f"planted lines among {size:,}", 1, 3)
        planted = run_in_fresh_process("find", {**task, "asked": self.store.planted_questions()})
        same = ("latency_ms", "peak_rss_mb", "labels", "postings_read", "vectors_read")
        return {
            **{name: warm[name] for name in (*same, "postings_read_max", "vectors_read_max")},
            "cold_ms": round(median(start["cold_ms"] for start in starts), 3),
            "cold_worst_ms": max(start["cold_ms"] for start in starts),
            "import_ms": round(median(start["import_ms"] for start in starts), 3),
            "planted_recall10": planted["recall10"],
            "planted_recall10_by": planted["by"],
        }


class _GrowingStore:
    """The growing store: entries are identified by position and generated on demand."""

    def __init__(self, smallest: int, agents: int, source: SyntheticChat, seed: int) -> None:
        self.source = source
        self.entries = 0
        self._agents = agents
        self._length = max(2, min(_LONGEST_RUN, smallest // agents))  # of a session
        count = min(MAX_PLANTED, max(1, smallest // _LINES_AMONG))
        places = [(2 * number + 1) * smallest // (2 * count) for number in range(count)]
        self.lines = dict(zip(places, plant_lines(count, seed), strict=True))
        self._ids: dict[int, str] = {}  # of the planted entries

    @property
    def now(self) -> datetime:
        """A time after every entry in the store."""
        return EPOCH + timedelta(hours=self._step * (self.entries // self._length + 2))

    @property
    def _step(self) -> float:
        return _STEP_HOURS / self._agents

    def grow(
        self,
        home: Path,
        size: int,
        overrides: Mapping[str, Any] | None,
        tell: Callable[[int, int], None],
    ) -> dict[str, float]:
        """Record entries up to a size; return their number, time and rate.

        Opening the memories and loading the model are not timed.  Some batches are also encoded by
        the shipped model alone, interleaved, so that other load on the machine slows both equally.
        """
        first, seconds, tokens = self.entries, 0.0, 0
        encoded, encoding = 0, 0.0
        every = max(1, (size - first) // (self._length * _LOAD_SESSIONS * _ENCODED_LOADS))
        with ExitStack() as stack:
            memories = [
                stack.enter_context(MemTier.open(home, PROJECT, name, settings=overrides))
                for name in map(agent_name, range(self._agents))
            ]
            for memory in memories:
                if memory.store.embedder:
                    memory.store.embedder.encode(["warm up"])
            for number, (agent, load) in enumerate(self._load_batches(first, size)):
                messages = [message for _, session in load for message in session.messages]
                tokens += sum(count_tokens(message.content) for message in messages)
                sessions = [session for _, session in load]
                started = time.perf_counter()
                stored = [e for part in memories[agent].record_sessions(sessions) for e in part]
                seconds += time.perf_counter() - started
                if number % every == 0:
                    encoding += scans.time_encoding([message.content for message in messages])
                    encoded += len(messages)
                places = [
                    position
                    for start, session in load
                    for position in range(start, start + len(session.turns))
                ]
                for position, entry in zip(places, stored, strict=True):
                    if position in self.lines:
                        self._ids[position] = entry.id
                self.entries += len(stored)
                tell(self.entries, size)
            started = time.perf_counter()
            memories[0].catch_up()
            seconds += time.perf_counter() - started
        added = self.entries - first
        return {
            "entries": added,
            "seconds": round(seconds, 3),
            "entries_per_s": round(added / max(seconds, 1e-9), 1),
            "encoded_per_s": round(encoded / max(encoding, 1e-9), 1),
            "mean_tokens": round(tokens / added, 1),
        }

    def planted_questions(self) -> dict[str, list[tuple[str, str, str]]]:
        """Return each agent's questions about its planted lines: kind, question, entry id."""
        by_agent: dict[str, list[tuple[str, str, str]]] = {}
        for position, line in self.lines.items():
            agent = agent_name(position // self._length % self._agents)
            by_agent.setdefault(agent, []).extend(
                [
                    ("own_words", line.own_words, self._ids[position]),
                    ("paraphrase", line.paraphrase, self._ids[position]),
                ]
            )
        return by_agent

    def texts(self, agent: int | None = None) -> Iterator[str]:
        """Yield the texts in the store, of all agents or of one."""
        for _, session in self._sessions_between(0, self.entries, agent):
            yield from (message.content for message in session.messages)

    def _sessions_between(
        self, first: int, last: int, agent: int | None = None
    ) -> Iterator[tuple[int, Session]]:
        """Yield the sessions between two positions, with their numbers."""
        for number in range(first // self._length, -(-last // self._length)):
            if agent not in (None, number % self._agents):
                continue
            session = self.source.session(number, self._length, self._step)
            start = number * self._length
            turns = tuple(
                self._plant_line(start + offset, turn)
                for offset, turn in enumerate(session.turns)
                if first <= start + offset < last
            )
            yield number, replace(session, turns=turns)

    def _load_batches(
        self, first: int, last: int
    ) -> Iterator[tuple[int, list[tuple[int, Session]]]]:
        """Yield batches of one agent's sessions, each with its first position."""
        runs = self._sessions_between(first, last)
        while together := [*islice(runs, _LOAD_SESSIONS * self._agents)]:
            for agent in range(self._agents):
                load = [
                    (max(first, number * self._length), session)
                    for number, session in together
                    if number % self._agents == agent
                ]
                if load:
                    yield agent, load

    def _plant_line(self, position: int, turn: ImportedMessage) -> ImportedMessage:
        if position not in self.lines:
            return turn
        return replace(turn, message=Message(role="user", content=self.lines[position].line))


def _time_scans(store: _GrowingStore, queries: Sequence[str], seed: int) -> dict[str, float | None]:
    small = store.entries <= _MOST_SCANNED
    return {
        "rank_bm25_ms": scans.time_rank_bm25(store.texts(), queries) if small else None,
        "rank_bm25_agent_ms": scans.time_rank_bm25(store.texts(agent=0), queries),
        "numpy_ms": scans.time_numpy(store.entries, queries, seed),
    }


def _p95_ratios(sizes: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return for each pair of sizes how many times longer the larger one's p95 is."""
    return {
        f"{large['entries']}/{small['entries']}": _ratio(
            large["latency_ms"]["p95"], small["latency_ms"]["p95"]
        )
        for small, large in combinations(sizes, 2)
    }


def _ratio(value: float | None, to: float) -> float | None:
    return None if value is None else round(value / max(to, 1e-3), 3)


def _files_mb(folder: Path) -> dict[str, float]:
    """Return the size of each part of a project's folder, with the index as one part."""
    sizes: dict[str, float] = {}
    for file in folder.rglob("*"):
        if file.is_file():
            part = file.relative_to(folder).parts[0]
            part = "index" if part.startswith("index") else part
            sizes[part] = sizes.get(part, 0) + file.stat().st_size / 1e6
    return {part: round(size, 3) for part, size in sorted(sizes.items())}
