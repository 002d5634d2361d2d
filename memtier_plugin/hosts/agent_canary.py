"""Test a coding agent's setup by talking to the server in its configuration."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.hosts.canary import QUESTION, CanaryProject, CanaryResult
from memtier_plugin.hosts.coding_agents import read_hooks, read_server
from memtier_plugin.hosts.project import EVENTS, agent_of

# -- Speak line-delimited JSON-RPC with a program started by a check

STEP_SECONDS: Final = 60.0  # for an answer
Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@contextmanager
def converse(command: Sequence[str]) -> Iterator[Ask]:
    """Speak line-delimited JSON-RPC with a program; yield a function that sends a request."""
    with subprocess.Popen(
        [*command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        stdin, stdout, stderr = program.stdin, program.stdout, program.stderr
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def read() -> None:
            for line in stdout:
                lines.put(line)
            lines.put(b"")

        threading.Thread(target=read, daemon=True).start()

        def ask(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
            request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            after = [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
            for message in (request, *(after if method == "initialize" else ())):
                with suppress(BrokenPipeError):
                    stdin.write(json.dumps(message).encode() + b"\n")
                    stdin.flush()
            while True:
                try:
                    line = lines.get(timeout=STEP_SECONDS)
                except queue.Empty:
                    return {"error": "no answer in time"}
                if not line and stderr is not None:
                    return {"error": stderr.read().decode("utf-8", "replace").strip()[-500:]}
                answer: dict[str, Any] = json.loads(line)
                if "method" not in answer:  # otherwise a notification
                    return answer

        try:
            yield ask
        finally:
            with suppress(OSError):
                stdin.close()
            try:
                program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()


# -- Test a coding agent's setup by doing what its configuration tells the agent to do
#
# The server is started by the configured command and used as the agent uses it; the hooks are run
# with a prompt and the end of a turn, in a temporary project of the user's home.  The agent itself
# is not run, as it needs an account.

_VERSION: Final = "2025-11-25"
_FOUND: Final = (
    "the server finds a planted line; without hooks, nothing is recalled or recorded automatically"
)
_REMEDY: Final = "run the command in the agent's file by hand: what it prints names the problem"
_PROVEN: Final = "the server and a prompt's hook find a planted line, and a turn is in the ledger"


def run_agent_canary(host: str, home: Path) -> CanaryResult:
    """Search through the server, then recall and record through the hooks, as the agent would."""
    started = time.monotonic()
    project = CanaryProject(agent_of(host), home)
    proof = CanaryResult(host=host, ran=True, ok=True, what=_PROVEN if host in EVENTS else _FOUND)
    try:
        project.plant()
        hooks = read_hooks(host)
        with converse(_with_project(read_server(host), project.name)) as ask:
            problem = _search(ask, project.word)  # the agent's server runs while its hooks do
            if hooks and not problem:
                problem = _take_turn(hooks, host, project)
        if problem:
            proof = replace(proof, ok=False, what=problem, remedy=_REMEDY)
    except (OSError, ValueError, KeyError, MemTierError) as error:
        proof = replace(proof, ok=False, what=f"{type(error).__name__}: {error}")
    finally:
        project.remove()
    return replace(proof, seconds=round(time.monotonic() - started, 1))


def _with_project(command: Sequence[str], project: str) -> list[str]:
    """Return our command with another project."""
    at = command.index("--project") + 1
    return [*command[:at], project, *command[at + 1 :]]


def _search(ask: Ask, word: str) -> str:
    """Search through the server; return the problem, or an empty string."""
    hello = {
        "protocolVersion": _VERSION,
        "capabilities": {},
        "clientInfo": {"name": "memtier-canary", "version": "1"},
    }
    started = ask("initialize", hello)
    if "result" not in started:
        return f"the server does not start: {started.get('error')}"
    answer = ask("tools/call", {"name": "memory_search", "arguments": {"query": QUESTION}})
    if word not in json.dumps(answer):
        return f"the server's search does not find a planted line: {str(answer)[:300]}"
    return ""


def _take_turn(hooks: Mapping[str, Sequence[str]], host: str, project: CanaryProject) -> str:
    """Run the hooks of a turn; return the problem, or an empty string."""
    names = {kind: event for event, kind in EVENTS[host].items()}

    def run(kind: str, **fields: str) -> str:
        event = {
            "session_id": project.name,
            "cwd": str(project.home),
            "hook_event_name": names[kind],
            "prompt": QUESTION,
            **fields,
        }
        command = _with_project(shlex.split(hooks[names[kind]][0]), project.name)
        done = subprocess.run(
            command,
            input=json.dumps(event),
            capture_output=True,
            text=True,
            check=False,
            timeout=STEP_SECONDS,
        )
        return done.stdout + done.stderr

    printed = run("prompt")
    if project.word not in printed:
        return f"a prompt's hook does not bring the planted line: {printed[-300:]}"
    run("turn_end", last_assistant_message=project.answer, prompt_response=project.answer)
    queue = project.home / "queue" / "turns" / host
    (queue / f"{project.name}.jsonl").unlink(missing_ok=True)
    return "" if project.has_answer() else "a turn's hooks ran, but the turn is not in the ledger"
