"""Copies of a text in other forms: a purge finds them wherever they are, or names the form."""

from __future__ import annotations

import base64
import html
import json
import random
import time
import unicodedata
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, quote_plus

from memtier_plugin.lifecycle.purge.encoded import NOT_LOOKED_FOR, EncodedFinder
from memtier_plugin.lifecycle.purge.plan import PURGED_MARK, TextFinder
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from memtier_plugin.transfer.archive import write_backup
from tests.cases import each_case

SECRET = "Café vault 7731 öffnet am Südtor"


def _wrapped(text: str) -> str:
    return "\n".join(text[at : at + 7] for at in range(0, len(text), 7))


def _twice(text: str) -> str:
    return base64.b64encode(base64.b64encode(f"say {text} ok".encode())).decode()


def _each(text: str, before: str, after: str | None = None) -> str:
    """Return a text with marks around each word."""
    return " ".join(f"{before}{word}{before if after is None else after}" for word in text.split())


def _numbers(text: str, form: str, between: str = " ") -> str:
    """Return the bytes of a text, each written in a form."""
    return between.join(format(byte, form) for byte in text.encode())


FORMS: dict[str, Callable[[str], str]] = {
    "percent": quote,
    "percent, every byte, twice": lambda text: quote("".join(f"%{b:02x}" for b in text.encode())),
    "form": quote_plus,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of a sentence, URL's alphabet, wrapped": lambda text: "\n".join(
        base64.urlsafe_b64encode(f"they say {text} often".encode()).decode()[at : at + 20]
        for at in range(0, 80, 20)
    ),
    "base64 twice": _twice,
    "base64 three times": lambda text: base64.b64encode(_twice(text).encode()).decode(),
    "base64 of hexadecimal": lambda text: base64.b64encode(text.encode().hex().encode()).decode(),
    "base64 of UTF-16": lambda text: base64.b64encode(f"x {text}".encode("utf-16")).decode(),
    "base64 of UTF-16, big end first": lambda text: base64.b64encode(
        text.encode("utf-16-be")
    ).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal of UTF-16": lambda text: text.encode("utf-16-le").hex(),
    "hexadecimal of base64": lambda text: base64.b64encode(text.encode()).hex(),
    "one hexadecimal number": lambda text: f"0x{text.encode().hex()}",
    "spaced hexadecimal": lambda text: text.encode().hex(" "),
    "hexadecimal with colons, capitals": lambda text: text.encode().hex(":").upper(),
    "list of 0x": lambda text: _numbers(text, "#04x", ", "),
    "array of 0x, a line each": lambda text: "{\n" + _numbers(text, "#04x", ",\n  ") + "\n}",
    "list of decimal bytes": lambda text: str(list(text.encode())),
    "octal numbers": lambda text: _numbers(text, "03o"),
    "binary numbers": lambda text: _numbers(text, "08b"),
    "bytes of Python": lambda text: repr(text.encode()),
    "escapes of bytes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "octal escapes": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "JSON in JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps({"said": text}))),
    "long escapes": lambda text: "".join(f"\\U{ord(char):08x}" for char in text),
    "escapes in braces": lambda text: "".join(f"\\u{{{ord(char):x}}}" for char in text),
    "NFD": lambda text: unicodedata.normalize("NFD", text),
    "NFKC, capitals": lambda text: unicodedata.normalize("NFKC", text).upper(),
    "zero-width": "\u200b".join,
    "NULs between": "\0".join,
    "line breaks": _wrapped,
    "quoted": lambda text: "> " + text.replace(" ", "\n> "),
    "quoted twice, inside words": lambda text: "> > " + _wrapped(text).replace("\n", "\n> > "),
    "commented": lambda text: "# " + text.replace(" ", "\n# "),
    "bold": lambda text: _each(text, "**"),
    "emphasised and code": lambda text: _each(text, "_`", "`_"),
    "bold in HTML": lambda text: _each(text, "<b>", "</b>"),
    "bold inside a word": lambda text: f"{text[:3]}**{text[3:7]}**{text[7:]}",
    "colours": lambda text: _each(text, "\x1b[1;31m", "\x1b[0m"),
    "a name made of it": lambda text: "-".join(text.lower().split()),
    "a variable made of it": lambda text: "_".join(text.split()),
    "joined": lambda text: "".join(text.title().split()),
    "HTML": lambda text: html.escape(text).encode("ascii", "xmlcharrefreplace").decode(),
}


def planted(home: Path, outside: Path) -> MemTier:
    """Return a memory with each form in a line, a tool, a query, a queue, an export and names."""
    memory, other = (MemTier.open(home, "house", f"host.{name}") for name in ("main", "other"))
    (home / "queue").mkdir()
    with outside.open("w", encoding="utf-8") as export:
        for number, form in enumerate(FORMS.values()):
            copy = form(SECRET)
            other.record([{"role": "user", "content": f"noted: {copy} ok"}], session_id="o")
            tool = {"role": "tool", "name": "sh", "content": f"$ cat note\n{copy}\n"}
            named = {"session_id": f"about {copy}", "run_id": f"r{copy}", "sender": copy}
            memory.record([{"role": "user", "content": "Look at it."}, tool], **named)
            memory.recall(f"what about {copy} now?", session_id="s", run_id=f"r{number}")
            spooled = {"event": f"raw {copy} raw"}
            (home / "queue" / f"{number}.json").write_text(json.dumps(spooled))
            export.write(f"a line\nexported {copy} here\n")
    other.close()
    home_files.register_export(memory.folder, outside, "markdown", content=outside)
    return memory


def found(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return which form stands in which file, looked for as it was written, line by line."""
    left = []
    for path in files:
        data = path.read_bytes()
        for name, form in FORMS.items():
            copy = form(SECRET)
            lines = [line for line in copy.split("\n") if len(line) > 8] or [copy]
            spelt = [f(line) for line in lines for f in (str, json.dumps, _unicode_json)]
            if any(text.strip('"').encode() in data for text in spelt):
                left.append((name, path.name))
    return left


def _unicode_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def test_no_form_of_a_text_is_left_in_any_place(tmp_path: Path) -> None:
    """Each form in lines, tools, names, queries, queue and export: none is left, the rest is."""
    home, outside = tmp_path / "home", tmp_path / "notes.md"
    with planted(home, outside) as memory:
        files = [path for path in (*home.rglob("*"), outside) if path.is_file()]
        before = found(files)
        assert {name for name, _ in before} == FORMS.keys() and len(FORMS) == 44
        receipt = memory.purge(SECRET)
        files = [path for path in (*home.rglob("*"), outside) if path.is_file()]
        assert found(files) == [] and receipt.gone, receipt.found_after
        assert NOT_LOOKED_FOR in receipt.beyond
        contents = [entry.content for entry in memory.entries() if entry.content != "Look at it."]
        assert all(text.startswith(("noted: ", "$ cat note")) for text in contents)
        assert sum(PURGED_MARK in text for text in contents) == 2 * len(FORMS)
        assert outside.read_text("utf-8").count("exported") == len(FORMS)


@each_case(
    ("text", "value"),
    [
        ("Maria Keller", "Maria went. Keller stayed"),
        ("Maria Keller", "Maria's cellar, Keller's wine"),
        ("Maria Keller", "Mar ia Kel ler"),
        ("4711", "47 11 and 0x47, 0x11, 0x47, 0x11"),
        ("door code", "the door, the code"),
        ("beefbead", "be ef be ad be ef"),
    ],
)
def test_what_only_looks_alike_stays(text: str, value: str) -> None:
    """Words that meet across a sentence, or numbers that say something else, are no copy."""
    assert TextFinder(text)(value) == []


def test_a_name_that_a_purge_cannot_change_is_told(tmp_path: Path) -> None:
    """The receipt is not clean while the name of an agent's folder says it, in whatever form."""
    with MemTier.open(tmp_path / "home", "house", "host.rita-kowalski") as memory:
        memory.record([{"role": "user", "content": "The pump is blue."}], session_id="s")
        receipt = memory.purge("Rita Kowalski")
        assert not receipt.gone and receipt.found_after["names"]
        assert any("rita-kowalski" in path for path in receipt.where_after)


@each_case("text", ["4711", "r00f", "Südtor", "opensez"])
@each_case("around", ["{}", "they say {} often"])
def test_short_texts_are_found_in_runs(text: str, around: str) -> None:
    """A text of four to seven characters is found in base64 and hexadecimal figures, and alone."""
    finder = TextFinder(text)
    data = around.format(text).encode()
    for run in (data.hex(), base64.b64encode(data).decode(), base64.urlsafe_b64encode(data)):
        copy = run if isinstance(run, str) else run.decode()
        [(start, end)] = finder.find_all(f"the note {copy}, and more")
        assert copy.rstrip("=") in f"the note {copy}, and more"[start:end]


def test_short_texts_are_not_taken_for_others() -> None:
    """Of 100 kB of random base64 and of hexadecimal figures no run is taken for a short text."""
    rng = random.Random(7)
    texts = ["".join(rng.choices("etaoinsr0123456789", k=4 + n % 4)) for n in range(20)]
    finder = EncodedFinder(texts)
    runs = " ".join(base64.b64encode(rng.randbytes(60)).decode() for _ in range(500))
    runs += " ".join(rng.randbytes(60).hex() for _ in range(500))
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
