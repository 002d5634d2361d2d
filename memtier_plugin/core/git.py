"""Read a git repository: its commands run without its hooks, filters, pagers or network.

A repository's configuration is its owner's, and may name programs to run; none of them is run here.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SAFE: Final = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=false"),
    *("-c", "diff.renameLimit=2000"),
    *("-c", "log.showSignature=false"),
    *("-c", "protocol.allow=never"),  # nothing is fetched for a partial clone
)
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
# What points git at another repository than that of the folder.
_LOCATIONS: Final = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
)
_CHUNK: Final = 1 << 16
_PAUSE: Final = 0.002  # seconds after each, as prompts are answered in the same process


@dataclass(frozen=True, slots=True)
class Repository:
    """A work tree of git, ``top`` its uppermost folder."""

    top: Path

    @classmethod
    def of(cls, folder: Path, seconds: float = 5.0) -> Repository | None:
        """Return the repository that a folder is in; None without git, or without one.

        A home folder that is a repository of its own is none of the projects below it.
        """
        if not folder.is_dir():
            return None
        answer = cls(folder).read("rev-parse", "--show-toplevel", seconds=seconds)
        top = Path(answer.rstrip("\n")) if answer else None
        return None if top is None or top in (Path.home(), *Path.home().parents) else cls(top)

    def read(self, *arguments: str, given: str = "", seconds: float = 10.0) -> str | None:
        """Return what a command of git prints; None where it fails or takes longer."""
        try:
            done = subprocess.run(
                self._command(arguments),
                input=given.encode("utf-8", "surrogateescape"),
                capture_output=True,
                timeout=seconds,
                check=False,
                env=_environment(),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        fails = done.returncode > 1  # 1: it has nothing to show
        return None if fails else done.stdout.decode("utf-8", "surrogateescape")

    def lines(
        self, *arguments: str, end: bytes = b"\n", seconds: float = 30.0, most: int = 1 << 26
    ) -> Iterator[str]:
        """Yield what a command of git prints, piece by piece.

        Args:
            end: what a piece ends with, but for the last.
            seconds: after which the rest is left out.
            most: bytes after which it is left out too.
        """
        try:
            process = subprocess.Popen(
                self._command(arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        except OSError:
            return
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        rest = b""
        try:
            assert process.stdout
            while most > 0 and (chunk := os.read(process.stdout.fileno(), _CHUNK)):
                most -= len(chunk)
                *pieces, rest = (rest + chunk).split(end)
                yield from (piece.decode("utf-8", "surrogateescape") for piece in pieces)
                time.sleep(_PAUSE)
            if rest and most > 0 and not process.wait():  # not cut off
                yield rest.decode("utf-8", "surrogateescape")
        finally:
            timer.cancel()
            process.kill()
            process.communicate()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return ["git", "-C", str(self.top), "--no-pager", *_SAFE, *arguments]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _LOCATIONS}
    return kept | _ENVIRONMENT
