"""Run the console examples of a documentation page and compare what they print.

A ``console`` block holds commands (``$ ...``) and the output of each. The commands of a page run in
order, in one folder with a home of its own, so that a later block can use what an earlier one did.
A block with a title (``text title="talk.txt"``) is written to that file first.

Compared line by line, trailing and repeated spaces aside, and with these wildcards:

- ``...`` on a line of its own stands for any number of lines, and within a line for any characters;
- ids, the time of writing, milliseconds, sizes and scores are not compared;
- `DAY` stands for the day on which the example runs, `READER` for the reader's home folder.

Commands that `NOT_RUN` names are shown and not run. To write the real output into a page::

    python -m tests.console_examples docs/quickstart.md
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from click.testing import CliRunner

ROOT: Final = Path(__file__).parents[1]
DAY: Final = "2026-11-23"
READER: Final = "/home/mara"
# These install, run the tests themselves, change a host or need a data set.
NOT_RUN: Final = re.compile(
    r"pip install|make |git |python |memtier install \w+$|memtier bench \w+ --data"
)
_FENCE: Final = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TITLE: Final = re.compile(r'title="([^"]+)"')
_MASKS: Final = (
    (re.compile(r"\b(rules|model)-(\d+)-[0-9a-f]{8}\b"), r"\1-\2-<hash>"),
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b|\b[0-9A-HJKMNP-TV-Z]{8}\b"), "<id>"),
    (re.compile(r"\b(\d{4}-\d\d-\d\d)[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), r"\1 <time>"),
    (re.compile(r"^\d\d:\d\d(?= )|(?<=\*\* )\d\d:\d\d(?=:)"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ms\b|\bms \d+(\.\d+)?\b"), "<ms>"),
    (re.compile(r"\b\d+(\.\d+)? [kM]?B\b"), "<size>"),
    (re.compile(r"[-+]?\b\d+\.\d{4}\b"), "<score>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"─+"), "─"),
    (re.compile(r" +"), " "),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    info: str
    text: str

    @property
    def title(self) -> str | None:
        """The file name in the block's title, if it has one."""
        match = _TITLE.search(self.info)
        return match[1] if match else None


@dataclass
class Example:
    """A command, the output that the page shows and the one that it has."""

    command: str
    expected: list[str] = field(default_factory=list)
    actual: str = ""
    code: int = 0

    @property
    def runs(self) -> bool:
        """Whether the test runs this command."""
        return not NOT_RUN.match(self.command)

    def mismatch(self) -> str | None:
        """Describe how the output differs from the page, or return None."""
        if self.code or "Traceback" in self.actual:
            return f"$ {self.command}\nexit {self.code}\n{self.actual}"
        if matches(self.expected, self.actual.splitlines()):
            return None
        return f"$ {self.command}\npage:\n" + "\n".join(self.expected) + f"\nreal:\n{self.actual}"


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(*match.groups()) for match in _FENCE.finditer(text)]


def examples(block: Block) -> Iterator[Example]:
    """Yield the commands of a console block, each with the output shown."""
    example: Example | None = None
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if example:
                yield example
            example = Example(line[2:])
        elif example and example.command.endswith("\\"):
            example.command = f"{example.command[:-1].rstrip()} {line.strip()}"
        elif example:
            example.expected.append(line)
    if example:
        yield example


def run_page(text: str, folder: Path, *, started: bool = False) -> list[Example]:
    """Run every console example of a page in ``folder`` and return them with their output."""
    done: list[Example] = []
    for block in blocks(text):
        if block.title:
            (folder / block.title).write_text(block.text)
        if block.language == "console":
            for example in examples(block):
                if example.runs:
                    _run(example, folder, started)
                done.append(example)
    return done


def _run(example: Example, folder: Path, started: bool) -> None:
    """Call a `memtier` command in this process; give anything else to a shell."""
    from memtier_plugin.cli.main import main

    before, _, last = example.command.rpartition(" | ")
    if started or not last.startswith("memtier ") or re.search(r"[<>&;]", _unquoted(last)):
        before, last = example.command, ""
    piped = b""
    if before:
        process = subprocess.run(
            before, shell=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120
        )
        piped, example.code = process.stdout, process.returncode
        example.actual = piped.decode() + process.stderr.decode()
    if last:
        result = CliRunner().invoke(main, shlex.split(last)[1:], input=piped)
        example.code, example.actual = result.exit_code, result.output
    for path in {str(folder.parent), str(folder.parent.resolve())}:
        example.actual = example.actual.replace(path, READER)
    example.actual = example.actual.replace(f"{datetime.now(UTC):%Y-%m-%d}", DAY)


def _unquoted(command: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", "", command)


def masked(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return line.rstrip()


def matches(expected: list[str], actual: list[str]) -> bool:
    """Compare an output with the one shown, with the wildcards of this module."""
    pattern = ""
    for line in [masked(line) for line in _trimmed(expected)]:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*?".join(_anywhere_wrapped(part) for part in line.split("..."))
            pattern += r"\s+"
    full_text = "".join(masked(line) + "\n" for line in _trimmed(actual))
    return re.fullmatch(pattern, full_text) is not None


def _anywhere_wrapped(text: str) -> str:
    """Return a pattern for a text that may be wrapped elsewhere: "136 ms" is longer than "9 ms"."""
    return re.sub(r"(?:\\ )+", r"\\s+", re.escape(text))


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").split("\n") if any(map(str.strip, lines)) else []


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which the examples of a page run."""
    script = folder.parent / "bin" / "memtier"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memtier_plugin "$@"\n')
    script.chmod(0o755)
    return {
        "HOME": str(folder.parent),
        "MEMTIER_HOME": str(folder.parent / ".memtier"),
        "PATH": os.pathsep.join((str(script.parent), os.environ["PATH"])),
        "PYTHONPATH": str(ROOT),
    }


def rewritten(text: str, done: list[Example]) -> str:
    """Return the page with the real output of every example that no longer matches."""
    remaining = iter(done)

    def block(match: re.Match[str]) -> str:
        if match[1] != "console":
            return match[0]
        lines = []
        for example in examples(Block(*match.groups())):
            result = next(remaining)
            lines.append("$ " + example.command)
            output = result.actual.splitlines() if result.runs and result.mismatch() else None
            lines += [line.rstrip() for line in (output if output is not None else result.expected)]
        return "```console" + match[2] + "\n" + "\n".join(lines).strip("\n") + "\n```"

    return _FENCE.sub(block, text)


def _main(pages: list[str]) -> None:
    import tempfile

    for page in map(Path, pages):
        path = page.resolve()
        with tempfile.TemporaryDirectory() as root:
            folder = Path(root) / "shop"
            folder.mkdir()
            os.environ.update(environment(folder))
            os.chdir(folder)
            done = run_page(path.read_text("utf-8"), folder)
        for example in done:
            if example.runs and (message := example.mismatch()):
                sys.stderr.write(message + "\n\n")
        path.write_text(rewritten(path.read_text("utf-8"), done), "utf-8")
        os.chdir(ROOT)


if __name__ == "__main__":
    _main(sys.argv[1:])
