"""Copies of a text in other forms: a purge finds them wherever they are, or names the form."""

from __future__ import annotations

import base64
import html
import json
import random
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from memtier_plugin.lifecycle.purge.encoded import NOT_LOOKED_FOR, EncodedFinder
from memtier_plugin.lifecycle.purge.plan import PURGED_MARK, TextFinder
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import export_register
from memtier_plugin.transfer.backup import write_backup

SECRET = "Café vault 7731 öffnet am Südtor"


def _wrapped(text: str) -> str:
    return "\n".join(text[at : at + 7] for at in range(0, len(text), 7))


FORMS: dict[str, Callable[[str], str]] = {
    "percent": quote,
    "percent, every byte, twice": lambda text: quote("".join(f"%{b:02x}" for b in text.encode())),
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of a sentence, URL's alphabet, wrapped": lambda text: "\n".join(
        base64.urlsafe_b64encode(f"they say {text} often".encode()).decode()[at : at + 20]
        for at in range(0, 80, 20)
    ),
    "JSON in JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps({"said": text}))),
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "NFKC, capitals": lambda text: unicodedata.normalize("NFKC", text).upper(),
    "zero-width": "\u200b".join,
    "line breaks": _wrapped,
    "HTML": lambda text: html.escape(text).encode("ascii", "xmlcharrefreplace").decode(),
    "hexadecimal": lambda text: text.encode().hex(),
}


def planted(home: Path, outside: Path, copy: str) -> MemTier:
    """Return a memory with a copy in five places: two agents, a tool, a query, queue and export."""
    with MemTier.open(home, "house", "host.other") as other:
        other.record([{"role": "user", "content": f"noted: {copy} ok"}], session_id="o")
    memory = MemTier.open(home, "house", "host.main")
    tool = {"role": "tool", "name": "sh", "content": f"$ cat note\n{copy}\n"}
    memory.record([{"role": "user", "content": f"look at {copy} please"}, tool], session_id="s")
    memory.recall(f"what about {copy} now?", session_id="s", run_id="r")
    (home / "queue").mkdir(exist_ok=True)
    (home / "queue" / "1.json").write_text(json.dumps({"event": f"raw {copy} raw"}))
    outside.write_text(f"a line\nexported {copy} here\n", "utf-8")
    export_register.register_export(memory.folder, outside, "markdown")
    return memory


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_text_is_left_in_any_place(tmp_path: Path, form: str) -> None:
    """Twelve forms in lines, queries, queue and exports: none is left, and the rest of each is."""
    home, outside = tmp_path / "home", tmp_path / "notes.md"
    copy = FORMS[form](SECRET)
    memory = planted(home, outside, copy)
    receipt = memory.purge(SECRET)
    assert receipt.gone, receipt
    assert NOT_LOOKED_FOR in receipt.beyond
    finder = TextFinder(SECRET)
    for path in (*home.rglob("*.jsonl"), home / "queue" / "1.json", outside):
        text = path.read_text("utf-8")
        assert not finder(text) and copy not in text, path
    contents = [entry.content for entry in memory.entries()]
    assert sum(PURGED_MARK in content for content in contents) == 3
    assert all(content.startswith(("noted:", "look at", "$ cat")) for content in contents)
    assert PURGED_MARK in outside.read_text("utf-8")
    memory.close()


@pytest.mark.parametrize("text", ["4711", "r00f", "Südtor", "opensez"])
@pytest.mark.parametrize("around", ["{}", "they say {} often"])
def test_short_texts_are_found_in_runs(text: str, around: str) -> None:
    """A text of four to seven characters is found in base64 and hexadecimal figures, and alone."""
    finder = TextFinder(text)
    data = around.format(text).encode()
    for run in (data.hex(), base64.b64encode(data).decode(), base64.urlsafe_b64encode(data)):
        copy = run if isinstance(run, str) else run.decode()
        [(start, end)] = finder.find_all(f"the note {copy}, and more")
        assert copy.rstrip("=") in f"the note {copy}, and more"[start:end]


def test_short_texts_are_not_taken_for_others() -> None:
    """Of 400 kB of random base64 and of hexadecimal figures no run is taken for a short text."""
    rng = random.Random(7)
    texts = ["".join(rng.choices("etaoinsr0123456789", k=4 + n % 4)) for n in range(20)]
    finder = EncodedFinder(texts)
    runs = " ".join(base64.b64encode(rng.randbytes(60)).decode() for _ in range(2_000))
    runs += " ".join(rng.randbytes(60).hex() for _ in range(2_000))
    spans = [runs[start:end] for start, end in finder.find_all(runs)]
    assert [span for span in spans if not any(text in span.lower() for text in texts)] == []


def test_words_that_only_meet_are_no_copy() -> None:
    """A text is not found across words of another, whatever stands between them."""
    for text in ("Susan named a banana", "Susan\nnamed it", "an+na", "YW5u YQ", "a n n a"):
        assert TextFinder("anna")(text) == []
    assert TextFinder("nothing here")("no thing here and nothing, here") == []


def test_an_archive_that_holds_a_copy_is_not_gone(tmp_path: Path) -> None:
    """A backup from before is named until it is deleted; one without the text is no obstacle."""
    with MemTier.open(tmp_path / "home", "house", "host.main") as memory:
        memory.record([{"role": "user", "content": "The pump is blue."}], session_id="s")
        now = datetime(2026, 1, 5, tzinfo=UTC)
        write_backup(memory.folder, "house", tmp_path / "clean.tar.gz", now, lambda *_: None)
        memory.record([{"role": "user", "content": quote(SECRET)}], session_id="s")
        write_backup(memory.folder, "house", tmp_path / "full.tar.gz", now, lambda *_: None)
        receipt = memory.purge(SECRET)
        left = [Path(e["path"]).name for e in receipt.copies.exports if e["what"] == "left"]
        assert left == ["full.tar.gz"] and not receipt.gone
        assert memory.purge(SECRET, delete_exports=True).gone
        assert not (tmp_path / "full.tar.gz").exists() and (tmp_path / "clean.tar.gz").exists()


def test_looking_for_forms_is_linear() -> None:
    """A hostile text of one size costs no more than a multiple of a shorter one."""
    rng = random.Random(3)
    units = ("%41", "\\", "\\\\n", "&amp;", "QUJD", "QUJDREVG\n", "ab ", "\n", "=\n", "\u200b")
    for unit in (*units, *("".join(rng.choices(units, k=3)) for _ in range(5))):
        times = []
        for size in (5_000, 20_000):
            started = time.process_time()
            TextFinder(SECRET)(unit * (size // len(unit)))
            times.append(time.process_time() - started + 0.02)
        assert times[1] < 12 * times[0], unit
