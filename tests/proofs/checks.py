"""What the proofs share: worlds written by many processes, and "equal to a rebuild"."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from shutil import copyfile
from typing import Any

import memtier_plugin
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.core.paths import iter_ledger_folders
from memtier_plugin.core.results import Recall
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding.static import SHIPPED_MODEL, ShippedEmbedder
from memtier_plugin.storage.index.items import embedding_texts
from memtier_plugin.storage.ledger import jsonl
from tests.processes import start_python

PACKAGE = Path(memtier_plugin.__file__).parents[1]
CHILD = Path(__file__).with_name("processes.py")
TOLERANCE = 1e-9  # of scores and signals

# All that the index holds, by ids and names: its own numbers may differ between two builds.
CONTENT = {
    "items": """SELECT items.id, tier, scopes.agent, sender, sessions.name, path, line, turn, role,
        speaker, observed, key, retrievable, indexed, items.length, data, quotable, shelf
        FROM items JOIN scopes ON scopes.id = scope JOIN files ON files.id = file
        LEFT JOIN sessions ON sessions.id = session""",
    "postings": """SELECT agent, sender, term, items.id, tf, postings.length
        FROM postings JOIN scopes ON scopes.id = postings.scope JOIN items ON row = item""",
    "terms": "SELECT agent, sender, term, df FROM terms JOIN scopes ON scopes.id = scope",
    "grams": """SELECT agent, sender, substr(term, instr(term, '.') + 1), items.id
        FROM gram_postings JOIN scopes ON scopes.id = CAST(term AS INTEGER)
        JOIN items ON row = doc""",
    "gram_terms": "SELECT agent, sender, term, df FROM gram_terms JOIN scopes ON scopes.id = scope",
    "totals": "SELECT agent, sender, shelf, entries, length FROM scopes WHERE entries",
    "states": "SELECT * FROM states",
    "sources": "SELECT * FROM sources",
    "facts": "SELECT id, subject, relation, value FROM facts",
    "events": "SELECT id, stamp, kind, agent, run, data FROM events",
    "touches": "SELECT * FROM touches",
    "cursors": "SELECT * FROM cursors",
    "importance": "SELECT * FROM importance",
    "headers": "SELECT * FROM headers",
    "bad_lines": "SELECT path, line FROM bad_lines JOIN files ON files.id = file",
    "files": "SELECT path, ledger, owner, size, offset, lines, tail FROM files",
}


def child(*arguments: object) -> subprocess.Popen[str]:
    """Start one of the processes of ``processes.py``; what it prints is read from it."""
    return start_python(CHILD, *map(str, arguments), stdout=subprocess.PIPE, text=True)


def outputs(processes: Iterable[subprocess.Popen[str]]) -> list[str]:
    """Wait for processes that must end well, and return what each printed."""
    printed = [process.communicate()[0] for process in processes]
    codes = [process.returncode for process in processes]
    assert not any(codes), f"exit codes {codes}"
    return printed


def show(what: str, figures: Mapping[str, Any]) -> None:
    """Print a proof's figures on a line of its own."""
    shown = ", ".join(f"{name} {value}" for name, value in figures.items())
    print(f"\n{what}: {shown}")  # noqa: T201


def content(memory: MemTier) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that the index holds, in a fixed order."""
    connection = memory.store.index.connection()
    return {
        name: sorted(connection.execute(sql).fetchall(), key=repr) for name, sql in CONTENT.items()
    }


def differences(first: Recall, other: Recall) -> list[str]:
    """Return in what two recalls differ (promise 1's meaning of equal), ids of recalls apart."""
    differing = []
    if [hit.id for hit in first.hits] != [hit.id for hit in other.hits]:
        differing.append("the ids of the hits")
    for mine, its in zip(first.hits, other.hits, strict=False):
        if mine.signals.keys() != its.signals.keys() or mine.sources != its.sources:
            differing.append(f"signals or sources of {mine.id}")
            continue
        pairs = [(mine.score, its.score), (mine.weight, its.weight)]
        pairs += [(value, its.signals[name]) for name, value in mine.signals.items()]
        if any(abs(a - b) > TOLERANCE for a, b in pairs):
            differing.append(f"score or signals of {mine.id}")
    if [hit.id for hit in first.injected] != [hit.id for hit in other.injected]:
        differing.append("the injected lines")
    if first.text.replace(first.id, "") != other.text.replace(other.id, ""):
        differing.append("the text")
    if first.label != other.label:
        differing.append(f"the labels {first.label!r} and {other.label!r}")
    return differing


def ask(memory: MemTier, queries: Sequence[str], at: datetime, **more: Any) -> list[Recall]:
    """Ask every query as of the same moment."""
    return [memory.recall(query, at=at, **more) for query in queries]


def unequal(before: Sequence[Recall], after: Sequence[Recall]) -> list[str]:
    """Return, query by query, in what two rounds of recalls differ."""
    return [
        f"{first.query!r}: {', '.join(changed)}"
        for first, other in zip(before, after, strict=True)
        if (changed := differences(first, other))
    ]


def assert_equal_to_rebuild(
    home: Path, project: str, agents: Sequence[str], queries: Sequence[str], at: datetime
) -> int:
    """Hold a project's index against one built anew from the ledgers; return the recalls made."""
    memories = [MemTier.open(home, project, agent) for agent in agents]
    first = memories[0]
    try:
        first.catch_up()
        before = [recall for memory in memories for recall in ask(memory, queries, at)]
        first.catch_up()  # the recalls, too, are in the journal
        followed = content(first)
        first.reindex()
        rebuilt = content(first)
        first.catch_up()  # and with it what no ledger holds: the vectors, if there is a model
        for name, rows in followed.items():
            assert rows == rebuilt[name], f"{name} of the index are not those of a rebuilt one"
        after = [recall for memory in memories for recall in ask(memory, queries, at)]
        assert not unequal(before, after)
        assert any(recall.hits for recall in before)
        assert [*first.store.index.connection().execute("PRAGMA integrity_check")] == [("ok",)]
    finally:
        for memory in memories:
            memory.close()
    return len(before)


def bad_lines(folder: Path) -> list[tuple[str, int]]:
    """Read every ledger file of a project as anybody may, and return the lines that are none."""
    bad = []
    for _, _, where in iter_ledger_folders(folder):
        for path in jsonl.list_day_files(where):
            for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
                try:
                    if line.strip():
                        jsonl.parse_line(jsonl.LedgerLine(number, 0, line))
                except ValueError:
                    bad.append((str(path.relative_to(folder)), number))
    return sorted(bad)


def rotated_model(folder: Path, seed: int = 1) -> Path:
    """Write the shipped model, its space turned: the same likenesses, but of no other space."""
    import numpy as np

    shipped = ShippedEmbedder().table()
    size = shipped.vectors.shape[1]
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))
    turned = shipped.vectors.astype(np.float32) @ turn.astype(np.float32)
    tensors = {"embeddings": turned.astype("<f2"), "weights": shipped.weights.astype("<f4")}
    head, data = {}, b""
    for name, array in tensors.items():
        kind = {"float16": "F16", "float32": "F32"}[array.dtype.name]
        offsets = [len(data), len(data) + array.nbytes]
        head[name] = {"dtype": kind, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    top = json.dumps(head).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(top).to_bytes(8, "little") + top + data)
    copyfile(SHIPPED_MODEL / "tokenizer.json", folder / "tokenizer.json")
    (folder / "config.json").write_text("{}")
    return folder


def of_another_space(recall: Recall, embedder: Embedder) -> tuple[int, int]:
    """Hold the dense signal of each hit against the cosine that a model gives, computed here.

    Returns how many hits were looked at, and how many have a signal that is none of this model's.
    The signal is the cosine divided by the largest of the query's candidates.
    """
    import numpy as np

    hits = [hit for hit in recall.hits if hit.signals.get("dense")]
    if not hits:
        return 0, 0
    pieces = [embedding_texts(hit.item) for hit in hits]
    vectors = np.asarray(embedder.encode([recall.query, *(p for parts in pieces for p in parts)]))
    likeness = iter((vectors[1:] @ vectors[0]).tolist())
    cosines = [max(next(likeness) for _ in parts) for parts in pieces]
    signals = [hit.signals["dense"] for hit in hits]
    best = max(range(len(hits)), key=signals.__getitem__)
    unit = cosines[best] / signals[best]
    return len(hits), sum(
        abs(signal * unit - cosine) > 0.03  # what rounding to a byte costs, twice
        for signal, cosine in zip(signals, cosines, strict=True)
    )
