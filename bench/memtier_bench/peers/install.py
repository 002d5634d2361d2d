"""Install peers, each pinned and in an environment of its own, in a folder that is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NODE: Final = "node@24"  # which OpenClaw wants


class PeerUnavailable(Exception):
    """A peer cannot be installed, started or asked; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What an environment has: packages of PyPI, or of npm; ``bare`` come without their own.

    ``least`` is the oldest Python that they accept.
    """

    pip: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    least: tuple[int, int] = (3, 11)

    @property
    def versions(self) -> str:
        """The pinned packages."""
        return ", ".join(p.replace("==", " ") for p in (*self.pip, *self.bare, *self.npm))


def install(folder: Path, wanted: Requirements) -> Path:
    """Install what is not there yet; return the interpreter, Python or node, that has it.

    Raises:
        PeerUnavailable: an interpreter or a package cannot be had; says which.
    """
    interpreter = folder / ("node_modules/.bin/node" if wanted.npm else "bin/python")
    installed = folder / "installed.txt"  # written last: what was cut off is installed again
    if installed.is_file() and installed.read_text("utf-8") == str(wanted):
        return interpreter
    folder.mkdir(parents=True, exist_ok=True)
    if wanted.npm:
        path = f"{folder / 'node_modules/.bin'}{os.pathsep}{os.environ['PATH']}"
        (folder / "package.json").write_text('{"private": true}\n', "utf-8")
        for package in (NODE, *wanted.npm):
            _run(["npm", "install", "--no-audit", "--no-fund", package], folder, path)
    else:
        _run([_python(wanted.least), "-m", "venv", "--clear", str(folder)], folder)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet"]
        _run([*pip, *wanted.pip], folder)
        if wanted.bare:
            _run([*pip, "--no-deps", *wanted.bare], folder)
    installed.write_text(str(wanted), "utf-8")
    return interpreter


def _python(least: tuple[int, int]) -> str:
    """Return a Python that is new enough."""
    if sys.version_info >= least:
        return sys.executable
    for minor in range(14, least[1] - 1, -1):
        name = shutil.which(f"python3.{minor}")
        if (
            name
            and not subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode
        ):
            return name
    raise PeerUnavailable(f"needs Python {least[0]}.{least[1]}, which is not on the path")


def _run(command: Sequence[str], folder: Path, path: str | None = None) -> None:
    environment = {**os.environ, "PATH": path or os.environ["PATH"]}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise PeerUnavailable(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        last = (errors or done.stderr.splitlines() or ["no message"])[-1]
        raise PeerUnavailable(f"{Path(command[0]).name} cannot install: {last.strip()[:200]}")
