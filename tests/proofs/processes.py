"""The processes of the proofs: ``python processes.py ROLE ...``, each a user of the API.

A role prints what it did, one JSON value a line, as soon as it is acknowledged to it.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

from memtier_bench.synthetic import SyntheticChat
from memtier_plugin.core.errors import EndpointError, LedgerError, LedgerWriteError
from memtier_plugin.core.records import Extractor, FactDraft, Source
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding.load import load_embedder
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.storage.index.connection import Index
from memtier_plugin.storage.index.items import IndexItems
from memtier_plugin.storage.index.postings import Postings
from memtier_plugin.storage.ledger import jsonl
from tests.faults import injection
from tests.proofs.checks import of_another_space

PROJECT = "proof"
SESSIONS = ("kitchen", "garage")
# Where a consolidation may die: before and after each of its writes, and in the middle of one.
POINTS = (
    "before plan", "after plan", "before facts", "part of semantic", "after facts",
    "before supersede", "after supersede", "before promote", "after promote", "before propose",
    "after propose", "before consolidate", "after consolidate", "before done",
    "part of _project", "part of _project:2", "part of _project:3", "part of _project:4",
)  # fmt: skip


def tell(value: Any) -> None:
    """Acknowledge to whoever started us, in one write of one line."""
    os.write(1, json.dumps(value).encode() + b"\n")


def exchange(words: str, number: int, ok: bool | None = None) -> list[dict[str, Any]]:
    """Return a run's messages; ``ok`` tells how its tool fared, None that it had none."""
    tool = {"role": "tool", "name": "search", "content": f"found {number}", "ok": ok}
    return [
        {"role": "user", "content": f"{words} {number}"},
        *([tool] if ok is not None else []),
        {"role": "assistant", "content": f"noted {words} as number {number}"},
    ]


# -- many writers of one ledger ----------------------------------------------------------------


def write(home: str, name: str, runs: str) -> None:
    """Record runs into two shared sessions; every 25th asks at once for what it wrote."""
    slowest = 0.0
    unseen = 0
    with MemTier.open(home, PROJECT) as memory:
        for number in range(int(runs)):
            run = f"{name}-{number}"
            started = time.perf_counter()
            messages, stored = exchange(f"{name}x{number} bread", number), False
            while not stored:
                with suppress(LedgerWriteError):  # on a busy machine the lock has other holders
                    memory.record(messages, session_id=SESSIONS[number % 2], run_id=run)
                    stored = True
            slowest = max(slowest, time.perf_counter() - started)
            if number % 25 == 0:
                hits = memory.recall(f"{name}x{number}").hits
                unseen += run not in {hit.item.run_id for hit in hits}
    tell({"slowest_ms": round(1000 * slowest), "unseen": unseen})


def read(home: str, until: str) -> None:
    """Recall until a file appears, and tell how often and with which labels."""
    labels: Counter[str] = Counter()
    slowest = 0.0
    with MemTier.open(home, PROJECT) as memory:
        while not Path(until).exists():
            recall = memory.recall("which bread was noted in the kitchen?")
            labels[recall.label] += 1
            slowest = max(slowest, recall.ms)
    tell({"slowest_ms": round(slowest), "labels": labels})


def acknowledge(home: str, name: str, until: str) -> None:
    """Record runs of an agent until a file appears; tell each with the moment of its return."""
    number = 0
    with MemTier.open(home, PROJECT, f"agent-{name}") as memory:
        while not Path(until).exists():
            messages = exchange(f"{name}x{number} bread", number)
            entries = memory.record(messages, session_id=name, run_id=f"{name}-{number}")
            tell({"at": time.monotonic(), "ids": [entry.id for entry in entries]})
            if number % 20 == 0:
                memory.remember(f"The oven of {name} number {number} is hot.")
                memory.recall(f"{name}x{number}", purpose="inject", session_id=name)
            number += 1


# -- a change of the embedding model -----------------------------------------------------------


def embed(home: str) -> None:
    """Make the vectors of the model that is configured now; tell each step, or why it ended."""
    with MemTier.open(home, PROJECT) as memory:
        try:
            tell(asdict(memory.reembedding.run(progress=lambda *at: tell(at))))
        except EndpointError as error:
            tell({"left": None, "error": str(error)})


def ask(home: str, questions: str, until: str) -> None:
    """Ask all questions, round after round, as whoever opens the project at each round does.

    Beside each recall stands a lexical one of the same moment; for each round is told how many of
    the lines asked for were among the first ten of either, and what failed.
    """
    cases = json.loads(Path(questions).read_text())
    while not Path(until).exists():
        counts: Counter[str] = Counter()
        labels: Counter[str] = Counter()
        slowest = 0.0
        words = {"embedding.model": "none"}
        with (
            MemTier.open(home, PROJECT) as memory,
            MemTier.open(home, PROJECT, settings=words) as lexical,
        ):
            # The loopback server's vectors are the shipped model's, turned: of the same cosines.
            embedder = memory.store.embedder
            if isinstance(embedder, EndpointEmbedder):
                embedder = load_embedder()
            for question, expected_id in cases:
                try:
                    recall = memory.recall(question)
                except Exception as error:
                    labels[repr(error)] += 1
                    counts["failed"] += 1
                    continue
                labels[recall.label] += 1
                slowest = max(slowest, recall.ms)
                counts["recalls"] += 1
                counts["found"] += expected_id in [hit.id for hit in recall.hits[:10]]
                hits = lexical.recall(question).hits[:10]
                counts["found_by_words"] += expected_id in [hit.id for hit in hits]
                checked, strange = of_another_space(recall, embedder) if embedder else (0, 0)
                counts["checked"] += checked
                counts["mixed"] += strange
        tell({**counts, "labels": labels, "slowest_ms": round(slowest)})


# -- a rich store ------------------------------------------------------------------------------


def live(home: str, agent: str, sessions: str) -> None:
    """Do all that an agent does: record, recall, be credited, add facts, promote, forget."""
    source, chance = SyntheticChat(sum(agent.encode())), random.Random(agent)
    done: Counter[str] = Counter()
    with MemTier.open(home, PROJECT, agent) as memory:
        for _, session in zip(range(int(sessions)), source.sessions(), strict=False):
            texts = [message.content for message in session.messages]
            for index, run in enumerate(session.exchanges):
                name = f"{session.session_id}-{index}"
                memory.recall(
                    source.question(source.pick(texts)), run_id=name, purpose="inject",
                    session_id=session.session_id,
                )  # fmt: skip
                tool = {"role": "tool", "name": "t", "content": "x", "ok": chance.random() < 0.7}
                result = memory.end_run(
                    [*run.messages, tool], session_id=session.session_id, run_id=name,
                    observed_at=session.observed_at,
                )  # fmt: skip
                done["entries"] += len(result.entries)
                done["credits"] += len(result.credits)
            retained, forgotten, *_ = result.entries
            facts = [  # the first is superseded by the next session's, the second forgotten
                ("lives_in", source.pick(texts)[:30], retained),
                ("said", source.pick(texts)[:60], forgotten),
            ]
            done["facts"] += len(
                memory.add_facts(
                    FactDraft(
                        subject="user",
                        relation=relation,
                        value=value,
                        text=f"user {relation} {value}",
                        sources=(Source(agent=agent, session=entry.session_id, entry=entry.id),),
                    )
                    for relation, value, entry in facts
                )
            )
            memory.remember(f"{source.pick(texts)[:50]} is to be kept")
            memory.record(
                [{"role": "user", "content": f"I prefer {source.pick(texts).split()[0]} to tea."}],
                session_id=session.session_id,
            )
            done["forgotten"] += len(memory.forget(ids=[forgotten.id]).ids)
            with suppress(LedgerError):  # another process is at it
                report = memory.consolidate()
                done["promoted"] += report.promoted
    tell(done)


# -- writers that are killed -------------------------------------------------------------------


def crash(home: str, point: str, kills: str, seed: str) -> None:
    """Fork writers one after the other; each dies at the fault point, or whenever we like.

    A fork is a process of its own, and its death by SIGKILL is a real one; what it saves is the
    time of the imports.  Nothing of MemTier is open here.
    """
    chance = random.Random(int(seed))
    began = mmap.mmap(-1, 1)  # set by a writer that has acknowledged something
    span = 0.25  # seconds; longer where few writers get that far, as on a busy machine
    for number in range(int(kills)):
        own = random.Random(chance.random())
        pid = os.fork()
        if pid == 0:
            try:
                _die(home, point, number, own, began)
            except BaseException as error:
                tell({"failed": repr(error), "writer": number})
            os._exit(1)
        if point == "anywhere":
            time.sleep(0.02 + own.random() * span)
            os.kill(pid, signal.SIGKILL)
            span = max(0.25, 0.9 * span) if began[0] else min(5.0, 1.3 * span)
        _, status = os.waitpid(pid, 0)
        began[0] = 0
        tell({"killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL})


def _die(home: str, point: str, writer: int, chance: random.Random, began: mmap.mmap) -> None:
    with MemTier.open(home, PROJECT) as memory:
        work = _work(memory, writer)
        if writer:  # the run that the last writer died with is given again
            memory.end_run(**_run(writer - 1, 99))
        for _ in range(chance.randint(1, 3)):
            next(work)
            began[0] = 1
        if point != "anywhere":
            FAULTS[point](chance)
        if point == "reindex":
            memory.reindex()
        if point == "anywhere":
            for _ in work:
                if chance.random() < 0.2:
                    memory.reindex()
        memory.recall("bread in the kitchen", purpose="inject", run_id=f"{writer}-99")
        memory.end_run(**_run(writer, 99))
        memory.catch_up()  # with the recalls that wait to be indexed


def _run(writer: int, number: int) -> dict[str, Any]:
    messages = exchange(f"writer{writer} run{number} bread", number, ok=True)
    return {
        "messages": messages,
        "session_id": SESSIONS[writer % 2],
        "run_id": f"{writer}-{number}",
    }


def _work(memory: MemTier, writer: int) -> Iterator[int]:
    """Do runs with recalls, credits and facts, and acknowledge each."""
    for number in range(99):
        run = _run(writer, number)
        memory.recall("bread in the kitchen", purpose="inject", run_id=run["run_id"])
        result = memory.end_run(**run)
        tell(
            {
                "run": run["run_id"],
                "entries": {entry.id: entry.content for entry in result.entries},
                "credits": sorted(result.credits),
            }
        )
        if number % 3 == 0:
            fact = memory.remember(f"writer {writer} bakes bread {number}")
            tell({"fact": fact.id})
        yield number


def consolidate(home: str, limit: str, kills: str, seed: str, *extractors: Extractor) -> None:
    """Fork passes one after the other; each is told to die at a point of its writes.

    After so many deaths the passes that follow go through, until nothing is left to be read.  One
    extractor reads all before the next, whose facts meet the same ones however often one died.
    """
    import openai  # noqa: F401  # once, for all that are forked

    died: Counter[str] = Counter()
    points = cycle(random.Random(int(seed)).sample(POINTS, len(POINTS)))
    for number, extractor in enumerate(extractors, 1):
        most = int(kills) * number // len(extractors)
        while True:
            point = next(points) if died.total() < most else ""
            if (pid := os.fork()) == 0:
                injection.arm(point)
                try:
                    with MemTier.open(home, PROJECT) as memory:
                        read = memory.consolidate(int(limit), extractor=extractor).read
                except BaseException as error:
                    tell({"failed": repr(error), "point": point})
                    os._exit(1)
                os._exit(0 if read else 3)
            status = os.waitpid(pid, 0)[1]
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                died[point] += 1
            elif os.WEXITSTATUS(status):
                break
    tell(died)


def compete(home: str, limit: str, go: str) -> None:
    """Consolidate as soon as a file appears, whoever else does; tell how often one was refused."""
    refused: Counter[str] = Counter()
    with MemTier.open(home, PROJECT) as memory:
        while not Path(go).exists():
            time.sleep(0.001)
        while True:
            try:
                if not memory.consolidate(int(limit)).left:
                    break
            except LedgerError as error:
                refused[str(error)] += 1
                time.sleep(0.002)
    tell(refused)


# -- a purge that dies -------------------------------------------------------------------------


def purge(home: str, *parts: str) -> None:
    """Purge a text (given in parts) and tell what the receipt says; it may die on the way."""
    with MemTier.open(home, PROJECT) as memory:
        memory.purger.complete()
        receipt = memory.purge("-".join(parts))
        tell({"gone": receipt.gone, "after": receipt.found_after, "where": receipt.where_after})


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_in_write(kind: str) -> Callable[[random.Random], None]:
    """The next append to a ledger of this kind writes a part of its bytes, and no more."""

    def arm(chance: random.Random) -> None:
        append, write = jsonl.write_records, os.write

        def part(fd: int, data: bytes) -> int:
            write(fd, data[: chance.randint(1, len(data) - 1)])
            _kill()
            return 0

        def watched(path: Path, *arguments: Any, **more: Any) -> Any:
            if kind in path.parts:
                os.write = part
            return append(path, *arguments, **more)

        jsonl.write_records = watched

    return arm


def _die_in_transaction(chance: random.Random) -> None:
    """A transaction of the index dies with lines, postings or statistics half done."""
    owner, name, most = chance.choice(
        [
            (IndexItems, "add_entries", 2),
            (IndexItems, "add_event", 1),
            (IndexItems, "settle", 1),
            (Postings, "_insert", 3),  # words, and how many items have each word and n-gram
        ]
    )
    original = getattr(owner, name)
    left = chance.randint(1, most)

    def part(self: Any, *arguments: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        done = original(self, *arguments, **more)
        if left == 0:
            _kill()
        return done

    setattr(owner, name, part)


def _die_in_swap(chance: random.Random) -> None:
    """The copy of a new index over the old one dies between two of its steps."""
    replace_with = Index.replace_with

    def replace(self: Index, fresh: Any) -> None:
        real = Index.connection
        Index.connection = lambda self: _Half(real(self), chance.random())
        replace_with(self, fresh)

    Index.replace_with = replace


class _Half:
    """A connection whose backups stop half way."""

    def __init__(self, inner: Any, share: float) -> None:
        self._whole, self._share = inner, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def backup(self, *arguments: Any) -> _Half:
        return _Half(self._whole.backup(*arguments), self._share)

    def __enter__(self) -> _Half:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, _: int) -> None:
        self._whole.step(1)
        self._whole.step(max(1, int(self._whole.page_count * self._share)))
        _kill()


FAULTS = {
    "append": _die_in_write("episodic"),
    "journal": _die_in_write("journal"),
    "transaction": _die_in_transaction,
    "reindex": _die_in_swap,
}

if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    roles = {
        "acknowledge": acknowledge, "ask": ask, "compete": compete, "consolidate": consolidate,
        "crash": crash, "embed": embed, "live": live, "purge": purge, "read": read, "write": write,
    }  # fmt: skip
    roles[role](*arguments)
