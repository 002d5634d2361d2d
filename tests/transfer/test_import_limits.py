"""What is imported is bounded in bytes, files, nesting, kind and time, with a clear refusal."""

from __future__ import annotations

import json
import os
import resource
import time
import zipfile
from itertools import count
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.errors import ImportFileError, ImportStopped, LedgerError
from memtier_plugin.ingest import recorder
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.transfer.importers import reading
from memtier_plugin.transfer.importers.formats import detect_format, read_transcript
from memtier_plugin.transfer.importers.reading import TimeLimit
from memtier_plugin.transfer.memtier_export import export_jsonl, import_memtier_export
from tests.builders import say
from tests.processes import run_memtier

NAME = "conversations.json"


def bomb(path: Path, content: bytes, copies: int = 1) -> Path:
    """Write a ZIP that holds a content which packs well, so many times."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(copies):
            name = NAME if copies == 1 else f"conversations{number:05d}.json"
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("content", "copies"),
    [(b"[" + b" " * 30_000_000 + b"]", 1), (b"[" * 30_000_000, 1), (b"[" + b" " * 10_000, 4000)],
    ids=["blank", "nested", "many"],
)  # fmt: skip
def test_zip_bombs(tmp_path: Path, content: bytes, copies: int) -> None:
    """A small ZIP that unpacks to much is refused before it is unpacked."""
    path = bomb(tmp_path / "export.zip", content, copies)
    before, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ImportFileError, match="unpacks from"):
        list(reading.read_items(path, "conversations"))
    assert time.process_time() - before < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 100_000


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ZIP of more files than an export has is refused."""
    monkeypatch.setattr(reading, "MAX_FILES", 5)
    path = bomb(tmp_path / "export.zip", b"[]", 6)
    with pytest.raises(ImportFileError, match="6 files"):
        list(reading.read_items(path, "conversations"))


def test_a_real_export_is_read(tmp_path: Path) -> None:
    """Repetitive conversations of several megabytes are within the bounds."""
    turn = {"role": "user", "content": "The same sentence again and again, with a number."}
    items = [{"id": n, "text": [turn] * 20} for n in range(3000)]
    path = bomb(tmp_path / "export.zip", json.dumps(items).encode())
    assert len(list(reading.read_items(path, "conversations"))) == 3000


def test_nesting(tmp_path: Path, home: Path) -> None:
    """JSON that is nested too deeply is refused in a sentence, by `record` and `import`."""
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    for command in (["record", str(path), "--session", "s"], ["import", str(path)]):
        done = run_memtier(*command, code=1)
        assert "Traceback" not in done.stderr and done.stderr.strip()


def test_pipes_are_refused(tmp_path: Path, home: Path) -> None:
    """A pipe in the place of an import, an archive or a ledger is refused, not waited for."""
    pipe = tmp_path / "export.json"
    os.mkfifo(pipe)
    with pytest.raises(ImportFileError, match="not a plain file"):
        detect_format(pipe)
    with pytest.raises(ImportFileError, match="not a plain file"):
        list(reading.read_items(pipe, ""))
    with MemTier.open(home) as memory:
        say(memory, "The boat is red.")
        ledger = memory.folder / "episodic" / "main" / "2020-01-01.jsonl"
        os.mkfifo(ledger)
        with pytest.raises(LedgerError, match="not a plain file"):
            jsonl.read_lines(ledger)
        assert next(f.where for f in memory.doctor() if f.level == "error") == str(ledger)


def test_an_import_that_takes_long_is_gone_on_with(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its limit of time an import ends between lines that are recorded, and can go on."""
    monkeypatch.setattr(recorder, "_TOGETHER", 10)
    path = tmp_path / "talks.jsonl"
    turn = {"role": "user", "content": "The same sentence again and again."}
    talks = [{"id": f"talk {n}", "messages": [turn] * 5} for n in range(20)]
    path.write_text("\n".join(map(json.dumps, talks)))
    ticks = count()
    monkeypatch.setattr(reading, "monotonic", lambda: next(ticks))  # a second a question
    command = ["--project", "default", "import", str(path), "--minutes"]

    refused = run_memtier(*command, "0.1", code=1).stderr
    assert "before the file was read through; nothing was recorded" in refused
    assert "--minutes 0.2" in refused
    with MemTier.open(home) as memory:
        assert memory.status()["entries"] == 0
    assert "50 new messages are recorded" in run_memtier(*command, "0.4", code=1).stderr
    with MemTier.open(home) as memory:
        assert memory.status()["entries"] == 50
    again = run_memtier(*command, "0.4", code=1).stderr
    assert "no new message was reached. Give it longer: `--minutes 0.8`" in again
    assert json.loads(run_memtier("--json", *command, "0").stdout)["recorded"] == 50


SPOKEN = [{"role": "user", "content": "The same sentence again and again."}] * 40
ENDLESS = {
    "openai": json.dumps(SPOKEN),
    "text": "User: The same sentence again and again.\n" * 40,
    "openclaw": "\n".join(json.dumps({"type": "message", "message": m}) for m in SPOKEN),
}


@pytest.mark.parametrize("form", ENDLESS)
def test_a_single_session_is_cut_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A file of one endless session ends in time inside it, before it is read through."""
    monkeypatch.setattr(reading, "_EVERY", 10)
    path = tmp_path / "endless"
    path.write_text(ENDLESS[form])
    ticks = count()
    limit = TimeLimit(2 / 60, clock=lambda: next(ticks))  # a look at the clock takes a second
    with pytest.raises(ImportStopped, match="before the file was read through; nothing was"):
        list(limit.read(read_transcript(path, form)))
    assert next(ticks) <= 5
    assert len(list(TimeLimit(0).read(read_transcript(path, form)))) == 1


def test_an_export_that_takes_long_is_gone_on_with(tmp_path: Path, home: Path) -> None:
    """MemTier's own exports are imported with the same limit."""
    with MemTier.open(home) as memory:
        for number in range(5):
            say(memory, f"The boat number {number} is red.", run_id=f"r{number}")
        path = tmp_path / "export.jsonl"
        path.write_text("".join(export_jsonl(memory)))
    with MemTier.open(tmp_path / "other") as memory:
        ticks = count()
        with pytest.raises(ImportStopped, match="nothing was recorded"):
            limit = TimeLimit(0.05, clock=lambda: next(ticks))
            import_memtier_export(memory, path, lambda *_: None, limit)
        assert import_memtier_export(memory, path, lambda *_: None, TimeLimit(0)).recorded == 5
