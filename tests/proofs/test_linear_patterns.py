"""Every pattern of the product reads any text in time that grows with its length alone.

The patterns are those that a fresh process compiles on import.  Each is given runs of what it is
made of, as long as a run has to be to show a square: four times the text may take four times the
processor time, with room for noise, not sixteen times.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from itertools import islice, permutations
from pathlib import Path
from typing import Any, Final

import pytest
import regex

from memtier_plugin.trust import secret_formats

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("memtier_plugin", "hooks", "daemon")
CHARS: Final = 4_000
PAIRS: Final = 100  # runs of two characters for one pattern
SLOW: Final = 0.01  # processor seconds for so many, of which a linear pattern takes a tenth at most
SQUARE: Final = 9  # times as long for four times the text
ATOMS: Final = 'aA1 \n.-_@/:"()=的é,?!`[]<>#\\*|{\t%+&$' + "'"

# Patterns that may take longer, since what they read is short; by module and name.
BOUNDED: Final = {
    "memtier_plugin.facts.filters": "a draft of at most MAX_CHARS",
    "memtier_plugin.trust.secret_statements": "one value, only matched where it begins",
    "memtier_plugin.lifecycle.purge.encoded": "what the person at the machine purges",
    "memtier_plugin.providers.embedding.load": "a name in the settings",
    "memtier_plugin.storage.home_files": "a file's name",
    "memtier_plugin.hosts.self_check": "a package's own metadata",
}
_COLLECT: Final = """
import importlib, json, re, sys
from memtier_plugin.core import lazy_regex
found = {}
def watch(module):
    compile = module.compile
    def compiled(pattern, flags=0, *more, **named):
        frame = sys._getframe(1)
        where = frame.f_globals.get("__name__", "")
        if isinstance(pattern, str) and where.startswith("memtier_plugin."):
            engine = module.__name__.rpartition("_")[2]
            found[engine, pattern, int(flags)] = [where, frame.f_lineno]
        return compile(pattern, flags, *more, **named)
    module.compile = compiled
watch(re), watch(lazy_regex)
for name in json.load(sys.stdin):
    importlib.import_module(name)
print(json.dumps([[*key, *where] for key, where in found.items()]))
"""


def _modules() -> list[str]:
    names = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            if not {"__main__", "bench", "frameworks"} & {*parts}:  # frameworks need packages
                prefix = () if folder == "memtier_plugin" else ("memtier_plugin",)
                names.append(".".join((*prefix, *parts)).removesuffix(".__init__"))
    return names


@cache
def sources() -> dict[Path, str]:
    """Return the text of every module."""
    return {f: f.read_text("utf-8") for d in FOLDERS for f in (ROOT / d).rglob("*.py")}


def only_matches(module: str, line: int) -> bool:
    """Tell whether a pattern is only matched where a text begins, so that none is looked for."""
    parts = module.split(".")
    file = ROOT.joinpath(*parts).with_suffix(".py")
    if not file.exists():
        file = ROOT.joinpath(*parts[1:]).with_suffix(".py")
    lines = sources()[file].split("\n")[:line]
    name = next(
        (n[1] for each in reversed(lines) if (n := re.match(r"(_?[A-Z][A-Z_0-9]*)\b", each))), ""
    )
    text = sources()[file] if name.startswith("_") else "\n".join(sources().values())
    text = re.sub(r"(?m)^from \S+ import (?:\([^)]*\)|.*)", "", text)
    uses = re.findall(rf"\b{name}\b(\.\w+)?", text)[1:] if name else []
    return bool(uses) and set(uses) <= {".match", ".fullmatch"}


def shapes(pattern: str) -> Iterator[tuple[str, str, str]]:
    """Yield how hostile texts begin, go on and end: by what the pattern itself names."""
    marks = {char for char in pattern if not char.isspace()}
    atoms = [atom for atom in ATOMS if atom.isalnum() or atom in marks or atom in " \n"]
    words = [*dict.fromkeys(re.findall(r"(?<![\\a-zA-Z])[^\W\d_]{2,}", pattern))][:8]
    signs = sorted(mark for mark in marks - {*ATOMS} if not mark.isalnum())  # quotes and the like
    runs = [*atoms, *islice((a + b for a, b in permutations(atoms, 2)), PAIRS), *words]
    runs += [sign + after for sign in signs for after in ("", ".", "a", " ")]
    runs += [word + mark for word in words for mark in (" ", ".", "a", "\n", ", ", ": ")]
    # After the run, what engines look for before they try: they give up early without it.
    end = " \0 " + "".join(sorted(marks)) + " ".join(words)
    yield from (("", run, end) for run in runs)
    yield from ((mark, atom, end) for mark in marks & set("\"'`([{<#@„“") for atom in atoms)


def processor_time(pattern: Any, text: str, *, matches: bool) -> float:
    """Return the processor seconds that a pattern takes for a text."""
    start = time.thread_time()
    if matches:
        pattern.match(text)
        pattern.fullmatch(text)
    else:
        for _ in pattern.finditer(text):
            pass
    return time.thread_time() - start


def is_square(
    pattern: Any, shape: tuple[str, str, str], *, matches: bool, chars: int = CHARS
) -> bool:
    """Tell whether a pattern takes a time that grows with the square of a text's length."""
    begin, run, end = shape

    def least(length: int, times: int) -> float:
        text = begin + run * (length // len(run)) + end
        return min(processor_time(pattern, text, matches=matches) for _ in range(times))

    slow = SLOW * chars / CHARS
    if least(chars, 1) < slow or (short := least(chars, 3)) < slow:
        return False
    if any(least(4 * chars, times) <= SQUARE * short for times in (1, 2)):
        return False
    return least(16 * chars, 1) > SQUARE**2 * short  # a busy machine does not err twice by so much


def library_patterns() -> Iterator[tuple[str, str, int, str, int]]:
    """Yield the patterns of detect-secrets that redaction uses, as a process tells its own."""
    for form in secret_formats._load():
        for pattern in secret_formats.detector_patterns(form.detector) if form.detector else ():
            yield "re", pattern.pattern, pattern.flags, f"detect_secrets.plugins.{form.detector}", 0


@pytest.mark.slow
def test_every_pattern_is_linear() -> None:
    """No pattern takes a square of the time, whatever the text is."""
    answer = subprocess.run(
        [sys.executable, "-c", _COLLECT],
        input=json.dumps(_modules()),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    patterns = [*json.loads(answer.stdout), *library_patterns()]
    assert len(patterns) > 300
    square = []
    for engine, text, flags, module, line in patterns:
        if module in BOUNDED:
            continue
        pattern = (re if engine == "re" else regex).compile(text, flags)
        matches = line > 0 and only_matches(module, line)
        for shape in shapes(text):
            if is_square(pattern, shape, matches=matches):
                square.append((module, line, *shape[:2], text[:80]))
                break
    assert not square


@pytest.mark.parametrize(
    ("text", "run", "square"),
    [
        (r"[\w.+-]+@", "z", True),
        (r"(?<![\w.+-])[\w.+-]++@", "z", False),
        (r"\s+$", " ", True),
        (r"\bword\b", "word ", False),
    ],
)
def test_the_check_itself(text: str, run: str, square: bool) -> None:
    """A pattern that is known to take a square is found, and one that is linear is not."""
    for engine in (re, regex):
        shape = ("", run, " \0 @")
        pattern = engine.compile(text)
        # On a busy machine one measurement may miss it, or see what is not there.
        measured = (is_square(pattern, shape, matches=False, chars=1_500) for _ in range(5))
        assert (any if square else all)(measured) is square
