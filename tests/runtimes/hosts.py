"""The real hosts, each in a throw-away folder, with a model on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.records import Entry
from memtier_plugin.core.residents import find_owner
from memtier_plugin.hosts import install as installing
from memtier_plugin.memory import MemTier
from tests.loopback.hosts import LoopbackModel
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
# Where `make test-runtimes` puts the hosts; read now, as tests see none of MemTier's variables.
RUNTIMES = Path(os.environ.get("TEST_MEMTIER_RUNTIMES") or "~/.cache/memtier-runtimes").expanduser()
OPENCLAW = RUNTIMES / "openclaw"
OLDER_OPENCLAW = RUNTIMES / "openclaw-older"  # with what is beside, by `make test-runtimes-all`
MEM0 = RUNTIMES / "mem0" / "node_modules" / "@mem0" / "openclaw-mem0"
BRAIN = RUNTIMES / "brain"
PROJECT = "shared"
TURN = 240.0  # seconds that a turn may take
READY_LINE = re.compile(r"\[gateway\](?!.*broker).*\bready\b")
HUNG: list[str] = []  # turns after which OpenClaw's node did not end by itself
READY = 180.0  # seconds that a Gateway may take to start


@dataclass
class Ground:
    """One test's folder, home and model; the hosts on it share them."""

    top: Path
    model: LoopbackModel
    command: list[str] = field(
        default_factory=lambda: [str(Path(sys.executable).parent / "memtier")]
    )

    def __post_init__(self) -> None:
        (self.top / "user").mkdir()

    @property
    def home(self) -> Path:
        """MemTier's home."""
        return self.top / "memtier"

    @property
    def environment(self) -> dict[str, str]:
        """What every process gets: no folder of the user's, no key."""
        names = ("PATH", "LANG", "TERM", "TMPDIR")
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        user = str(self.top / "user")
        return {**inherited, "HOME": user, "NO_COLOR": "1"}

    def memory(self, agent: str) -> MemTier:
        """Open the memory of an agent."""
        return MemTier.open(self.home, PROJECT, agent)

    def plant(self, agent: str, text: str) -> Entry:
        """Record what a user said to an agent in an earlier session."""
        with self.memory(agent) as memory:
            [entry] = memory.record([{"role": "user", "content": text}], session_id="earlier")
        return entry

    def entries(self, agent: str, session: str = "earlier") -> list[Entry]:
        """Return what an agent's ledger holds but for the planted session."""
        with self.memory(agent) as memory:
            return [e for e in memory.entries(agent=agent) if e.session_id != session]

    def said(self, agent: str) -> list[str]:
        """Return what users said to an agent."""
        return [entry.content for entry in self.entries(agent) if entry.role == "user"]

    def weight(self, agent: str, entry: Entry) -> float:
        """Return what an entry has earned, by itself or by the facts that rest on it."""
        with self.memory(agent) as memory:
            facts = memory.facts(include_superseded=True)
            resting = {f.id for f in facts if entry.id in {source.entry for source in f.sources}}
            credits = memory.events(kinds=["credit"])
        mine = {entry.id, *resting}
        return sum(event.data["delta"] for event in credits if event.data["item"] in mine)

    def status(self, agent: str = "openclaw.main") -> dict[str, Any]:
        """Return what `memtier status` says."""
        with self.memory(agent) as memory:
            return memory.status()

    def held(self, agent: str) -> dict[str, Any]:
        """Return how long each hook held an agent's host, as `memtier status` says."""
        return dict(self.status(agent)["waits"].get(agent, {}))

    def resident(self) -> int | None:
        """Return the process of the resident, if one listens."""
        owner = find_owner(self.home)
        return owner.pid if owner else None

    def queued(self) -> list[Path]:
        """Return what waits to be delivered."""
        return sorted((self.home / "queue").glob("*.json"))


@contextmanager
def environment(ground: Ground, more: Mapping[str, str]) -> Iterator[None]:
    """Let `installing` see a host's environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in more.items():
            patch.setenv(name, value)
        patch.setattr(installing, "launch_command", lambda: ground.command)
        yield


class OpenClaw:
    """The real OpenClaw."""

    agent = "openclaw.main"

    def __init__(self, ground: Ground, name: str = "openclaw", prefix: Path = OPENCLAW) -> None:
        self.ground = ground
        self.prefix = prefix  # where it is installed; another one is another version
        self.top = ground.top / name
        (self.top / "work").mkdir(parents=True)
        self.log = self.top / "openclaw.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.config = self.top / "openclaw.json"
        self.config.write_text(json.dumps(self._configuration(port)))
        self.install()

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get."""
        base = self.ground.environment
        # Every version runs on the newest one's node.
        bins = ":".join(str(top / "node_modules" / ".bin") for top in (self.prefix, OPENCLAW))
        return {
            **base,
            "PATH": f"{bins}:{base['PATH']}",
            "OPENCLAW_STATE_DIR": str(self.top / "state"),
            "OPENCLAW_CONFIG_PATH": str(self.config),
        }

    def install(self, **options: bool) -> None:
        """Do what `memtier install openclaw` does."""
        with environment(self.ground, self.environment):
            installing.install_host("openclaw", self.ground.home, PROJECT, **options)

    def configure(self, **config: Any) -> None:
        """Change MemTier's own part of the configuration."""
        document = json.loads(self.config.read_text())
        document["plugins"]["entries"]["memtier"]["config"].update(config)
        self.config.write_text(json.dumps(document))

    def say(
        self, text: str, *, key: str | None = None, gateway: bool = False, fails: bool = False
    ) -> str:
        """Have one turn and return what the host printed; one that fails is to be expected."""
        arguments = [] if gateway else ["--local"]
        arguments += ["--session-key", key] if key else []
        process = subprocess.Popen(
            ["openclaw", "agent", *arguments, "--agent", "main", "--message", text, "--json"],
            env=self.environment,
            cwd=self.top / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TURN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            # Its turn is over when its JSON is whole.  node may hang in process.exit after that,
            # whatever plugins there are: https://github.com/nodejs/node/issues/54918
            assert output.rstrip().endswith("}") and not fails, output[-3000:]
            HUNG.append(text)
            return output
        assert bool(process.returncode) == fails, output[-3000:]
        return output

    def post(self, text: str, key: str) -> str:
        """Have one turn of a Gateway by its HTTP interface, without a process of its own."""
        body = {"messages": [{"role": "user", "content": text}]}
        answer = self._request("chat/completions", body, {"X-OpenClaw-Session-Key": key})
        return str(answer["choices"][0]["message"]["content"])

    def post_as(self, user: str, text: str, *, anew: bool = False) -> str:
        """Have one turn of somebody's, by `user`; with ``anew`` in another session of theirs."""
        if anew:
            answer = self._request("responses", {"input": text, "user": user})
            return str(answer["output"][0]["content"][0]["text"])
        message = {"role": "user", "content": text}
        answer = self._request("chat/completions", {"messages": [message], "user": user})
        return str(answer["choices"][0]["message"]["content"])

    def _request(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        gateway = json.loads(self.config.read_text())["gateway"]
        request = urllib.request.Request(
            f"http://127.0.0.1:{gateway['port']}/v1/{path}",
            json.dumps({"model": "openclaw/main", **body}).encode(),
            {
                "Authorization": f"Bearer {gateway['auth']['token']}",
                "Content-Type": "application/json",
                **(headers or {}),
            },
        )
        with urllib.request.urlopen(request, timeout=TURN) as response:
            return json.load(response)

    @contextmanager
    def gateway(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the Gateway for a while."""
        out = (self.top / "gateway.out").open("ab")
        process = subprocess.Popen(
            ["openclaw", "gateway", "run"],
            env=self.environment,
            cwd=self.top / "work",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            log = self.top / "gateway.out"
            wait_until(lambda: READY_LINE.search(log.read_text("utf-8")), READY)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.close()

    def errors(self, level: str = "ERROR") -> list[str]:
        """Return the lines of the host's log of a level."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return [line for line in lines if f'"logLevelName":"{level}"' in line]

    def run(self, *arguments: str) -> str:
        """Run a command of OpenClaw's and return what it prints."""
        done = subprocess.run(
            ["openclaw", *arguments],
            env=self.environment,
            cwd=self.top / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TURN,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def hook_ms(self) -> list[int]:
        """Return what the recalls added to their turns, as the host's log has it."""
        text = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        return [int(ms) for ms in re.findall(r"before_prompt_build took (\d+) ms", text)]

    def _configuration(self, port: int) -> dict[str, Any]:
        free = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
        model = {
            "id": "m",
            "name": "m",
            "reasoning": False,
            "input": ["text"],
            "cost": free,
            "contextWindow": 128_000,
            "maxTokens": 4096,
        }
        provider = {
            "baseUrl": self.ground.model.base_url,
            "apiKey": "none",
            "api": "openai-completions",
            "models": [model],
        }
        return {
            "gateway": {
                "mode": "local",
                "bind": "loopback",
                "port": port,
                "auth": {"mode": "token", "token": "test"},
                "http": {
                    "endpoints": {
                        "chatCompletions": {"enabled": True},
                        "responses": {"enabled": True},
                    }
                },
            },
            "logging": {"file": str(self.log), "level": "debug"},
            "models": {"mode": "replace", "providers": {"loopback": provider}},
            "agents": {
                "defaults": {
                    "workspace": str(self.top / "work"),
                    "skipBootstrap": True,
                    "model": {"primary": "loopback/m"},
                }
            },
            "tools": {"toolSearch": False},
            "plugins": {"allow": []},
        }


class ClonedOpenClaw(OpenClaw):
    """OpenClaw that has this repository's folder as its plugin, by `openclaw plugins install`."""

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get: nothing else says where MemTier's command and home are."""
        base = super().environment
        path = f"{Path(self.ground.command[0]).parent}:{base['PATH']}"
        return {**base, "PATH": path, "MEMTIER_HOME": str(self.ground.home)}

    def install(self, *, use_host_model: bool | None = None) -> None:
        """Do what the page on hosts says."""
        copy_repository(self.top / "clone")
        self.place(self.top / "clone")
        self.run(
            *("config", "set", "plugins.entries.memtier.hooks.allowConversationAccess", "true")
        )
        self.run("config", "set", "plugins.entries.memtier.config.project", PROJECT)

    def place(self, clone: Path) -> None:
        """Bring a clone of the repository into OpenClaw."""
        self.run("plugins", "install", str(clone), "--force", "--accept-capabilities")


class DroppedIntoOpenClaw(ClonedOpenClaw):
    """OpenClaw that has this repository's folder among its plugins."""

    def place(self, clone: Path) -> None:
        """Move a clone of the repository into the folder of plugins, and select it."""
        extensions = self.top / "state" / "extensions"
        extensions.mkdir(parents=True)
        clone.rename(extensions / "memtier")
        self.run("config", "set", "plugins.slots.memory", "memtier")


def copy_repository(folder: Path) -> None:
    """Put what this repository has, without what is built, into a new folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())


def run_turn(command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """Run a host for one turn and return what it printed; a turn that fails fails the test."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TURN,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


class Hermes:
    """The real Hermes Agent."""

    agent = "hermes.default"

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.top = ground.top / "hermes"
        (self.top / "work").mkdir(parents=True)
        model = {
            "default": "m",
            "provider": "custom",
            "base_url": ground.model.base_url,
            "api_key": "none",
            "context_length": 131_072,
        }
        config = {"model": model, "memory": {"nudge_interval": 0}}
        (self.top / "config.yaml").write_text(json.dumps(config))
        self.install()

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get."""
        return {**self.ground.environment, "HERMES_HOME": str(self.top)}

    def install(self, *, use_host_model: bool | None = None) -> None:
        """Do what `memtier install hermes` does."""
        with environment(self.ground, self.environment):
            installing.install_host(
                "hermes", self.ground.home, PROJECT, use_host_model=use_host_model
            )

    def configure(self, **config: Any) -> None:
        """Change the provider's configuration."""
        path = self.top / "memtier.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))

    def say(self, text: str, *, chat: bool = False, resume: str | None = None) -> str:
        """Have one turn and return what the host printed; a turn that fails fails the test."""
        arguments = ["chat", "-q", text, "-Q", "--yolo"] if chat else ["-z", text]
        arguments += ["--resume", resume] if resume else []
        command = [str(RUNTIMES / "hermes" / "venv" / "bin" / "hermes"), *arguments]
        return run_turn(command, self.environment, self.top / "work")

    def errors(self) -> list[str]:
        """Return the lines of the host's logs of level ERROR."""
        logs = [path.read_text("utf-8", "replace") for path in (self.top / "logs").glob("*.log")]
        return [line for log in logs for line in log.splitlines() if re.search(r"\bERROR\b", line)]


Host = OpenClaw | Hermes
