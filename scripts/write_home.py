"""Write a small home with the code of an earlier commit, for `tests/homes`.

    python scripts/write_home.py 34cf4f67 tests/homes/34cf4f67

The commit's own `memtier` writes it, from a worktree of git: two sessions, facts of which a newer
one supersedes the older, a credited run, a line that is forgotten.  Beside the files lies what that
code reads of them (`expected.json`), and its index, compressed.  Needs the repository's history and
the dependencies of this checkout, no others.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT, AGENT, OTHER = "shop", "builder", "reviewer"
MONDAY = [
    "The health check listens on port 8443.",
    "To restart the tide service, flush it with dockctl first.",
    "To restart the tide service, drain it with pierctl first.",
    "The spare key hangs behind the stove.",
    "Die Prüfung läuft um 04:30 Uhr, “ohne Ausnahme” – 日本語もある。",
]
FRIDAY = ["The health check listens on port 9100."]
KEPT = "Releases are cut on Thursdays."
RESTART = "How do I restart the tide service?"
# Crediting a run is a host's part, which no command of every version plays: it asks, then reports.
CREDIT = """
import sys
from memtier_plugin import MemTier
home, project, agent, question = sys.argv[1:]
with MemTier.open(home, project, agent) as memory:
    for run, command, code in (("wed-1", "pierctl drain", 1), ("wed-2", "dockctl flush", 0)):
        memory.recall(question, session_id="wednesday", run_id=run, purpose="inject")
        call = {"id": f"call-{run}", "type": "function",
                "function": {"name": "shell", "arguments": '{"command": "%s"}' % command}}
        memory.end_run([
            {"role": "user", "content": question},
            {"role": "assistant", "content": f"I run {command} first.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call-{run}", "name": "shell",
             "tool_name": "shell", "ok": not code, "exit_code": code, "content": f"exit {code}"},
        ], session_id="wednesday", run_id=run)
"""
READ = """
import json, sys
from memtier_plugin import MemTier
home, project, agent = sys.argv[1:]
with MemTier.open(home, project, agent) as memory:
    facts, entries = memory.facts(include_superseded=True), memory.entries(limit=1000)
def ends(fact):
    return str(fact.valid_to)
print(json.dumps({
    "facts": sorted([f.id, f.text, getattr(f, "status", "active"), ends(f)] for f in facts),
    "weights": sorted([e.id, round(e.cognitive_weight, 6), e.promoted] for e in entries),
}))
"""


class Writer:
    """The code of a commit at work on a home."""

    def __init__(self, code: Path, home: Path, work: Path) -> None:
        self.code, self.home, self.work = code, home, work

    def run(self, *arguments: str) -> str:
        """Run the commit's Python; return what it printed."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.work), "LANG": "C.UTF-8"}
        environment |= {"PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, env=environment, cwd=self.work, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def memtier(self, *arguments: str, agent: str = AGENT) -> Any:
        """Run a command of the commit's terminal; return its JSON."""
        scope = ("--home", str(self.home), "--project", PROJECT, "--agent", agent, "--json")
        shown = self.run("-m", "memtier_plugin", *scope, *arguments)
        return json.loads(shown.splitlines()[-1]) if shown.strip() else None

    def record(self, session: str, texts: list[str]) -> None:
        """Record a session in which the user says these texts."""
        file = self.work / f"{session}.json"
        file.write_text(json.dumps([{"role": "user", "content": text} for text in texts]))
        self.memtier("record", str(file), "--session", session, "--run", f"{session}-1")


def write(code: Path, home: Path, work: Path) -> dict[str, Any]:
    """Fill the home with a week's use; return what the commit's code reads of it."""
    writer = Writer(code, home, work)
    writer.memtier("init")
    writer.record("monday", MONDAY)
    writer.memtier("consolidate")
    writer.memtier("remember", KEPT)
    writer.record("friday", FRIDAY)
    writer.memtier("consolidate")
    writer.run("-c", CREDIT, str(home), PROJECT, AGENT, RESTART)
    spare = [
        json.loads(line)
        for path in (home / "projects" / PROJECT / "episodic" / AGENT).glob("*.jsonl")
        for line in path.read_text("utf-8").splitlines()
        if "spare key" in line
    ]
    writer.memtier("forget", spare[0]["id"], "--yes")
    writer.memtier("recall", "health check", agent=OTHER)
    read: dict[str, Any] = json.loads(writer.run("-c", READ, str(home), PROJECT, AGENT))
    return {"project": PROJECT, "agent": AGENT, "other": OTHER, **read}


def keep(home: Path, target: Path, work: Path) -> None:
    """Copy a home's text files, and its index compressed; no path of this machine stays."""
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(path for path in home.rglob("*") if path.is_file()):
        copy = target / "home" / path.relative_to(home)
        data = path.read_bytes()
        if (path.name.startswith(".") and path.name != ".memtier-home") or "-shm" in path.name:
            continue  # locks
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "index.sqlite3":
            copy = copy.with_name("index.sqlite3.xz")
            data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        copy.write_bytes(data.replace(bytes(work), b"/home/mara"))


def main() -> None:
    """Write the home of the commit named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("commit")
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        code, home, work = Path(folder, "code"), Path(folder, "work/home"), Path(folder, "work")
        work.mkdir()
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", code, options.commit], check=True)
        try:
            expected = write(code, home, work)
        finally:
            subprocess.run([*git, "remove", "--force", code], check=True)
        keep(home, options.target, work)
    text = json.dumps(expected, indent=0, ensure_ascii=False)
    (options.target / "expected.json").write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
