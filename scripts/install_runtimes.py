"""Install the hosts that the tests in tests/runtimes run.

OpenClaw with its node, Hermes, and the newest Claude Code, Codex and Gemini CLI.

    python scripts/install_runtimes.py [--all] [FOLDER]

They go to FOLDER, else to TEST_MEMTIER_RUNTIMES, else to ~/.cache/memtier-runtimes; what is there
in the right version stays.  OpenClaw wants node 24, which the npm package `node` brings, and
refuses to be installed by an older one: so that package comes first, and is first on the path from
then on.

With --all come an older OpenClaw, to be upgraded from, and the memories of others, to stand beside:
Mem0's plugin for OpenClaw (Apache-2.0) and Brain Memory's for Hermes (MIT).
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
OLDER_OPENCLAW = "2026.8.2"
MEM0 = "1.0.16"
BRAIN = "0.1.0"
AGENTS = {  # the newest that npm has, in folders of these names
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
}


def folder() -> Path:
    """Return where the hosts are kept."""
    named = [word for word in sys.argv[1:] if word != "--all"]
    default = os.environ.get("TEST_MEMTIER_RUNTIMES") or "~/.cache/memtier-runtimes"
    return Path(next(iter(named), default)).expanduser().absolute()


def installed_version(top: Path, name: str) -> str:
    """Return the version of a package of npm in a folder, or nothing."""
    manifest = top / "node_modules" / name / "package.json"
    return str(json.loads(manifest.read_text("utf-8"))["version"]) if manifest.is_file() else ""


def newest_version(name: str) -> str:
    """Return the newest version that npm has, or nothing where it cannot be asked."""
    asked = ["npm", "view", name, "version"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def npm(top: Path, name: str, version: str, node: str = NODE) -> None:
    """Install a package of npm and, unless it is "", a version of Node.js to run it."""
    if installed_version(top, name) == version:
        print(f"{name} {version} is in {top}")
        return
    top.mkdir(parents=True, exist_ok=True)
    (top / "package.json").write_text('{"private": true}\n', "utf-8")
    path = f"{top / 'node_modules' / '.bin'}:{os.environ['PATH']}"
    for package in (*([f"node@{node}"] if node else ()), f"{name}@{version}"):
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


def brain(top: Path) -> None:
    """Put Brain Memory's installer for Hermes into a folder; it needs nothing else."""
    if not (top / f"hermes_brain_memory-{BRAIN}.dist-info").is_dir():
        package = f"hermes-brain-memory=={BRAIN}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", package]
        subprocess.run([*command, "--target", str(top)], check=True)


if __name__ == "__main__":
    npm(folder() / "openclaw", "openclaw", OPENCLAW)
    hermes(folder() / "hermes")
    for agent, package in AGENTS.items():
        there = installed_version(folder() / agent, package)
        npm(folder() / agent, package, newest_version(package) or there or "latest", node="")
    if "--all" in sys.argv[1:]:
        npm(folder() / "openclaw-older", "openclaw", OLDER_OPENCLAW)
        npm(folder() / "mem0", "@mem0/openclaw-mem0", MEM0)
        brain(folder() / "brain")
