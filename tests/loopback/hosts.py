"""The loopback model that the real hosts talk to: what it answers stands in the user's own words.

A message may say RUN-OK or RUN-FAIL (a shell command that ends with 0 or 3), RUN: and a command,
STORE: and a text (by the host's memory tool), DELEGATE: and a task, CALL: a tool and its arguments.
What is said in the end is scripted, a sub-agent's words apart, and so is what RUN-OK and RUN-FAIL
take from an injected line.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from memtier_plugin.hosts.canary import CanaryModel, CanaryReply
from memtier_plugin.trust.escaping import remove_blocks
from tests.loopback.wires import WireHandler

SHELLS = ("exec", "terminal", "Bash", "exec_command", "run_shell_command")
INTERNAL = "BEGIN_OPENCLAW_INTERNAL"  # OpenClaw's own message after the user's


class LoopbackModel(CanaryModel):
    """A model with a script: one tool round a message, then the answer."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(self._answer, port)
        self._server.RequestHandlerClass = WireHandler
        self.says = self.sub_agent_says = "Noted."
        self.takes = ""  # what its commands take from the lines that it was given
        self._faults: deque[int] = deque()
        self._mutex = threading.Lock()
        self._before: deque[str] = deque(maxlen=100)  # prompts that a provider's cache would hold

    def fail(self, times: int, status: int = 500) -> None:
        """Answer the next requests with an error."""
        with self._mutex:
            self._faults.extend([status] * times)

    def asked(self) -> list[str]:
        """Return the user's side of each request: their messages, injected lines and all."""
        return [
            "\n".join(text(m) for m in request["messages"] if m["role"] == "user")
            for request in self.requests
        ]

    def instructed(self) -> list[str]:
        """Return the system's side of each request."""
        return [
            "\n".join(text(m) for m in request["messages"] if m["role"] in ("system", "developer"))
            for request in self.requests
        ]

    def _answer(self, request: Mapping[str, Any]) -> CanaryReply:
        with self._mutex:
            if self._faults:
                return CanaryReply(status=self._faults.popleft())
        messages, usage = request["messages"], self._take(request)
        tools = [tool["function"]["name"] for tool in request.get("tools", ())]
        users = [
            index
            for index, message in enumerate(messages)
            if message["role"] == "user" and INTERNAL not in text(message)
        ]
        prompt = remove_blocks(text(messages[users[-1]])) if users else ""  # not what was recalled
        rounds = sum(message["role"] == "tool" for message in messages[users[-1] :]) if users else 0
        call = _call(prompt, tools, self.takes) if not rounds else None
        if call:
            return CanaryReply(tool=call, usage=usage)
        says = self.sub_agent_says if "[Subagent Task]" in prompt else self.says
        return CanaryReply(text=says, usage=usage)

    def _take(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a request takes, if a cache keeps the prompts before it."""
        sent = serialised(request)
        with self._mutex:
            kept = max((common_prefix(before, sent) for before in self._before), default=0)
            self._before.append(sent)
        details = {"cached_tokens": kept // 4}
        prompt, answer = len(sent) // 4, len(self.says) // 4
        total = {"completion_tokens": answer, "total_tokens": prompt + answer}
        return {"prompt_tokens": prompt, "prompt_tokens_details": details, **total}


def serialised(request: Mapping[str, Any]) -> str:
    """Return a request as a provider's cache sees it: tools, then messages, in their order."""
    parts = [request.get("tools") or [], *request["messages"]]
    return "\n".join(json.dumps(part, ensure_ascii=False) for part in parts)


def common_prefix(before: str, after: str) -> int:
    """Return how many characters two texts have in common from their beginning."""
    low, high = 0, min(len(before), len(after))
    while low < high:  # comparing slices is much faster than comparing characters
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def text(message: Mapping[str, Any]) -> str:
    """Return what a message says, in parts or whole."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)


def _arguments(shell: str, line: str) -> dict[str, Any]:
    return {"cmd" if shell == "exec_command" else "command": line}


def _call(prompt: str, tools: list[str], takes: str) -> tuple[str, dict[str, Any]] | None:
    if (match := re.search(r"DELEGATE: (.+?) :END", prompt)) and "Agent" in tools:
        task = {"description": "a task", "prompt": match[1], "subagent_type": "general-purpose"}
        return "Agent", task  # Claude Code's; OpenClaw's has another name
    if (match := re.search(r"CALL: (\w+) (\{.+?\}) :END", prompt)) and match[1] in tools:
        return match[1], json.loads(match[2])
    shell = next((name for name in SHELLS if name in tools), None)
    command = {"RUN-OK": "echo fine", "RUN-FAIL": "sh -c 'exit 3'"}
    for word, line in command.items():
        if word in prompt and shell:
            return shell, _arguments(shell, f"{line} {takes}".rstrip())
    if (match := re.search(r"RUN: (.+?) :END", prompt)) and shell:
        return shell, _arguments(shell, match[1])
    if (match := re.search(r"DELEGATE: (.+?) :END", prompt)) and "sessions_spawn" in tools:
        return "sessions_spawn", {"task": match[1], "label": "kid"}
    store = next((name for name in tools if name in ("memory_store", "memtier_store")), None)
    if (match := re.search(r"STORE: (.+?) :END", prompt)) and store:
        return store, {"text": match[1]}
    return None
