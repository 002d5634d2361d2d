"""Install the hosts that the tests in tests/runtimes run: OpenClaw with its node, and Hermes.

    python scripts/install_runtimes.py [FOLDER]

They go to FOLDER, else to MEMTIER_RUNTIMES, else to ~/.cache/memtier-runtimes; what is there in the
right version stays.  OpenClaw wants node 24, which the npm package `node` brings, and refuses to be
installed by an older one: so that package comes first, and is first on the path from then on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

OPENCLAW = "2026.9.6"
NODE = "24"
HERMES = "0.19.0"


def folder() -> Path:
    """Return where the hosts are kept."""
    named = sys.argv[1:] or [os.environ.get("MEMTIER_RUNTIMES") or "~/.cache/memtier-runtimes"]
    return Path(named[0]).expanduser().absolute()


def openclaw(top: Path) -> None:
    """Install OpenClaw and the Node.js version that it needs."""
    manifest = top / "node_modules" / "openclaw" / "package.json"
    if manifest.is_file() and json.loads(manifest.read_text("utf-8"))["version"] == OPENCLAW:
        print(f"OpenClaw {OPENCLAW} is in {top}")
        return
    top.mkdir(parents=True, exist_ok=True)
    (top / "package.json").write_text('{"private": true}\n', "utf-8")
    path = f"{top / 'node_modules' / '.bin'}:{os.environ['PATH']}"
    for package in (f"node@{NODE}", f"openclaw@{OPENCLAW}"):
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", package]
        subprocess.run(command, cwd=top, env={**os.environ, "PATH": path}, check=True)


def hermes(top: Path) -> None:
    """Install Hermes in an environment of its own, which has nothing of ours."""
    python = top / "venv" / "bin" / "python"
    if python.is_file():
        listed = subprocess.run(
            [str(python), "-m", "pip", "freeze"], capture_output=True, text=True, check=True
        )
        if f"hermes-agent=={HERMES}" in listed.stdout:
            print(f"Hermes {HERMES} is in {top}")
            return
    venv.create(top / "venv", with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", f"hermes-agent=={HERMES}"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    openclaw(folder() / "openclaw")
    hermes(folder() / "hermes")
