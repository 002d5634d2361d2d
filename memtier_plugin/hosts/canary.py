"""Smoke-test a host's hooks with one turn of the real host and a fake model."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from memtier_plugin.core.paths import encode_file_name
from memtier_plugin.hosts import install
from memtier_plugin.hosts.config_files import parse_json
from memtier_plugin.memory import MemTier
from memtier_plugin.trust.escaping import FENCE

# -- A fake model server on this machine, for checking that a host's hooks work
#
# It implements the part of OpenAI's protocol that OpenClaw and Hermes use: models, and chat
# completions with and without streaming.  A function of the request decides the answer.

MODEL: Final = "canary"
_numbers: Final = count()  # of calls: Hermes rejects a second result for an id
_USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReply:
    """A model's answer: text, a tool call with arguments, or an HTTP error.

    ``usage`` is reported as by OpenAI's API.
    """

    text: str = ""
    tool: tuple[str, Mapping[str, Any]] | None = None
    status: int = 200
    usage: Mapping[str, Any] = field(default_factory=lambda: dict(_USAGE))


class CanaryModel:
    """The fake model server and the chat requests it received."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], CanaryReply], port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer = answer
        self._server = _CanaryServer(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"


class _CanaryServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], model: CanaryModel) -> None:
        super().__init__(address, _CanaryHandler)
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a killed host leaves broken connections."""


class _CanaryHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _CanaryServer
    timeout = 30

    def log_message(self, format: str, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        if not self.path.endswith("/chat/completions"):
            self._json(404, {"error": {"message": f"no such path {self.path}"}})
            return
        model = self.server.model
        model.requests.append(body)
        reply = model.answer(body)
        if reply.status != 200:
            self._json(reply.status, {"error": {"message": "as asked for", "type": "canary"}})
        elif body.get("stream"):
            self._stream(reply)
        else:
            self._json(200, _full_response(reply))

    def _stream(self, reply: CanaryReply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        content: dict[str, Any] = {"content": reply.text}
        if reply.tool:
            content = {"tool_calls": [{"index": 0, **_tool_call(*reply.tool)}]}
        for delta, reason in (
            ({"role": "assistant", "content": ""}, None),
            (content, None),
            ({}, "tool_calls" if reply.tool else "stop"),
        ):
            self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        self._event({"choices": [], "usage": reply.usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, fields: Mapping[str, Any]) -> None:
        event = {**_RESPONSE_HEAD, "object": "chat.completion.chunk", **fields}
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.flush()

    def _json(self, status: int, document: Mapping[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


_RESPONSE_HEAD: Final = {"id": "canary", "created": 0, "model": MODEL}


def _tool_call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}_{next(_numbers)}", "type": "function", "function": function}


def _full_response(reply: CanaryReply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool:
        message["tool_calls"] = [_tool_call(*reply.tool)]
    choice = {
        "index": 0,
        "finish_reason": "tool_calls" if reply.tool else "stop",
        "message": message,
    }
    return {
        **_RESPONSE_HEAD,
        "object": "chat.completion",
        "choices": [choice],
        "usage": reply.usage,
    }


# -- Smoke-test a host's hooks with one turn of the real host and a model on this machine
#
# The host gets temporary state and a configuration with the user's plugins but none of the user's
# models, channels or keys; MemTier gets a temporary project in the user's own home.  The line
# planted there must appear in the request that the model receives, and the turn in the ledger.

TURN_TIMEOUT: Final = 240.0  # for the host's turn; a cold start took 74
STORED_TIMEOUT: Final = 20.0  # for the run to appear in the ledger afterwards
QUESTION: Final = "What is the canary's word?"
AGENTS: Final = {"openclaw": "openclaw.main", "hermes": "hermes.default"}
_REMOVALS: Final = 10  # half a second apart
_MAX_OUTPUT_CHARS: Final = 1500  # characters of the host's output to show


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryResult:
    """The outcome of a canary; ``remedy`` says what to do after a failure.

    ``ran`` is False if the host is not installed.
    """

    host: str
    ran: bool
    ok: bool
    what: str
    remedy: str = ""
    said: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class CanaryProject:
    """The temporary project of a canary, with its random words."""

    agent: str
    home: Path
    name: str = field(default_factory=lambda: f"canary-{secrets.token_hex(4)}")
    word: str = field(default_factory=lambda: f"zwq{secrets.token_hex(5)}")
    answer: str = field(default_factory=lambda: f"Noted as {secrets.token_hex(5)}.")

    def plant(self) -> None:
        """Record the line to be recalled."""
        line = {"role": "user", "content": f"The canary's word is {self.word}."}
        with MemTier.open(self.home, self.name, self.agent) as memory:
            memory.record([line], session_id="canary")

    def has_answer(self, seconds: float = 0.0) -> bool:
        """Return whether the model's answer reached the ledger, waiting some seconds."""
        until = time.monotonic() + seconds
        while True:
            with MemTier.open(self.home, self.name, self.agent) as memory:
                if any(self.answer in entry.content for entry in memory.entries(agent=self.agent)):
                    return True
            if time.monotonic() > until:
                return False
            time.sleep(0.2)

    def remove(self) -> None:
        """Remove the project for good, although a resident may still write to it."""
        folder = self.home / "projects" / encode_file_name(self.name)
        for _ in range(_REMOVALS):
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.5)
            if not folder.exists():
                return


@dataclass(frozen=True, slots=True)
class _Turn:
    """A host's turn: its project, state folder and model address."""

    host: str
    project: CanaryProject
    top: Path
    url: str


def run_canary(host: str, home: Path) -> CanaryResult:
    """Run one turn of a host and check that recall and recording both work."""
    binary = shutil.which(host)
    if binary is None:
        return CanaryResult(
            host=host,
            ran=False,
            ok=False,
            what=f"there is no command {host!r} on the path",
            remedy=f"install {host}, then run `memtier install {host}` again to test it",
        )
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="memtier-canary-", ignore_cleanup_errors=True) as top,
        CanaryModel(lambda _: CanaryReply(text=project.answer)) as model,
    ):
        project = CanaryProject(AGENTS[host], home)
        turn = _Turn(host, project, Path(top), model.base_url)
        try:
            project.plant()
            code, output = _run(binary, turn)
            proof = _judge(turn, model, code, output)
        finally:
            project.remove()
    return replace(proof, seconds=round(time.monotonic() - started, 1))


def _run(binary: str, turn: _Turn) -> tuple[int | None, str]:
    """Run the host's turn; return its exit code (None: timed out) and output."""
    prepare = _openclaw_invocation if turn.host == "openclaw" else _hermes_invocation
    arguments, environment = prepare(turn)
    work = turn.top / "work"
    work.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            [binary, *arguments],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TURN_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode("utf-8", "replace")
    except OSError as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _judge(turn: _Turn, model: CanaryModel, code: int | None, output: str) -> CanaryResult:
    """Judge how far the turn got, with a remedy."""
    host = turn.host

    def failed(problem: str, remedy: str) -> CanaryResult:
        end = output[-_MAX_OUTPUT_CHARS:]
        return CanaryResult(host=host, ran=True, ok=False, what=problem, remedy=remedy, said=end)

    check = "`memtier doctor` names what keeps the hooks from running"
    if not model.requests:
        how = "did not finish in time" if code is None else f"ended with {code}"
        return failed(
            f"{host} {how} and asked no model",
            f"run {host} once by hand; its output below names the problem",
        )
    requests = json.dumps(model.requests, ensure_ascii=False)
    if turn.project.word not in requests:
        return failed(f"{host} asked the model, but the planted line was not in the request", check)
    if FENCE not in requests:
        return failed("the planted line reached the model, but not through recall", check)
    if not turn.project.has_answer(STORED_TIMEOUT):
        return failed("the line was recalled, but the turn is not in the ledger", check)
    return CanaryResult(
        host=host,
        ran=True,
        ok=True,
        what="a planted line stood in the request, and the turn is in the ledger",
    )


# -- the hosts ----------------------------------------------------------------------------------


def _openclaw_invocation(turn: _Turn) -> tuple[list[str], Mapping[str, str]]:
    theirs = parse_json(install.openclaw_config_path().read_text("utf-8"))
    plugins = theirs["plugins"]
    plugins["entries"] = {
        "memtier": plugins["entries"]["memtier"]
    }  # other plugins hold keys and state
    plugins["entries"]["memtier"]["config"]["project"] = turn.project.name
    plugins["entries"]["memtier"]["config"].pop("hostModel", None)  # the model is scripted
    paths = plugins["load"]["paths"]
    if not any(map(install.leads_to_plugin, paths)):  # OpenClaw has it in a folder of its own
        paths.append(str(install.openclaw_copy()))
    model = {
        "id": MODEL,
        "name": MODEL,
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 128_000,
        "maxTokens": 4096,
    }
    provider = {
        "baseUrl": turn.url,
        "apiKey": "none",
        "api": "openai-completions",
        "models": [model],
    }
    config = {
        "gateway": {"mode": "local", "bind": "loopback"},
        "models": {"mode": "replace", "providers": {"memtier-canary": provider}},
        "agents": {
            "defaults": {
                "workspace": str(turn.top / "work"),
                "skipBootstrap": True,
                "model": {"primary": f"memtier-canary/{MODEL}"},
            }
        },
        "plugins": plugins,
    }
    path = turn.top / "openclaw.json"
    path.write_text(json.dumps(config), "utf-8")
    state = {"OPENCLAW_CONFIG_PATH": str(path), "OPENCLAW_STATE_DIR": str(turn.top / "state")}
    arguments = ["agent", "--local", "--agent", "main", "--message", QUESTION, "--json"]
    return arguments, {**os.environ, **state}


def _hermes_invocation(turn: _Turn) -> tuple[list[str], Mapping[str, str]]:
    import yaml

    theirs, ours = install.hermes_home(), turn.top / "hermes"
    shutil.copytree(theirs / "plugins" / "memtier", ours / "plugins" / "memtier")
    plugin_config = json.loads((theirs / "memtier.json").read_text("utf-8"))
    plugin_config.pop("host_model", None)  # the model is scripted
    (ours / "memtier.json").write_text(
        json.dumps({**plugin_config, "project": turn.project.name}), "utf-8"
    )
    with suppress(OSError):
        memory = (yaml.safe_load((theirs / "config.yaml").read_text("utf-8")) or {}).get("memory")
    config = {
        "model": {
            "default": MODEL,
            "provider": "custom",
            "base_url": turn.url,
            "api_key": "none",
            "context_length": 131_072,
        },
        "memory": {**(memory or {}), "nudge_interval": 0},
    }
    (ours / "config.yaml").write_text(json.dumps(config), "utf-8")  # JSON is YAML
    return ["-z", QUESTION], {**os.environ, "HERMES_HOME": str(ours)}
