"""The real coding agents, each in a throw-away folder, with a model on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memtier_plugin.core.paths import socket_path
from memtier_plugin.hosts import install as installing
from memtier_plugin.hosts.agent_canary import converse
from memtier_plugin.hosts.coding_agents import find_files, is_ours
from memtier_plugin.hosts.doctor import try_agents
from memtier_plugin.operations.background import HealthFinding
from tests.loopback.hosts import text
from tests.processes import running, wait_until
from tests.runtimes.hosts import OPENCLAW, PROJECT, RUNTIMES, Ground, environment, run_turn


class CodingAgent:
    """A coding agent of a host's name, run without a terminal; a subclass knows its options."""

    name = ""
    program = ""
    package = ""  # of npm

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.user = ground.top / "user"
        self.work = ground.top / "work"
        self.work.mkdir()
        self.setup()

    @property
    def agent(self) -> str:
        """The agent's name in MemTier."""
        return f"{self.name}.main"

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get; OpenClaw's node runs them."""
        base = self.ground.environment
        bins = [str(top / "node_modules" / ".bin") for top in (RUNTIMES / self.name, OPENCLAW)]
        return {**base, "PATH": ":".join([*bins, base["PATH"]]), **self.variables()}

    @property
    def root(self) -> str:
        """Where the model listens."""
        return self.ground.model.base_url.removesuffix("/v1")

    def setup(self) -> None:
        """Write what a user's own configuration has to hold."""

    def variables(self) -> Mapping[str, str]:
        """Return the variables that lead it to the model."""
        return {}

    def command(self, prompt: str, resume: bool) -> list[str]:
        """Return the command for one turn."""
        raise NotImplementedError

    def say(self, prompt: str, *, resume: bool = False) -> list[dict[str, Any]]:
        """Have one turn; return the requests that the model got with this prompt, oldest first."""
        already = len(self.ground.model.requests)
        run_turn(self.command(prompt, resume), self.environment, self.work)
        new = self.ground.model.requests[already:]
        return [r for r in new if any(prompt in text(m) for m in r["messages"])]

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Let MemTier's own code see the agent's environment."""
        with environment(self.ground, self.environment):
            yield

    def install(self, **options: bool) -> None:
        """Do what `memtier install` does."""
        with self.patched():
            installing.install_host(self.name, self.ground.home, PROJECT, **options)

    def uninstall(self) -> None:
        """Do what `memtier install --uninstall` does."""
        with self.patched():
            installing.uninstall_host(self.name, self.ground.home)

    def doctor(self) -> list[HealthFinding]:
        """Return what `memtier doctor` finds by trying."""
        with self.patched():
            return try_agents(self.ground.home)

    def files(self) -> dict[Path, bytes]:
        """Return the files that MemTier may change, where they exist."""
        with self.patched():
            read = find_files(self.name)
        paths = {read.servers, *([read.hooks] if read.hooks else [])}
        return {path: path.read_bytes() for path in sorted(paths) if path.exists()}


class ClaudeCode(CodingAgent):
    """Claude Code, which speaks Anthropic's Messages."""

    name, program, package = "claude-code", "claude", "@anthropic-ai/claude-code"

    def variables(self) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.root,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }

    def command(self, prompt: str, resume: bool) -> list[str]:
        kept = ["--continue"] if resume else []
        return ["claude", "-p", "--dangerously-skip-permissions", *kept, prompt]


class Codex(CodingAgent):
    """Codex, which speaks OpenAI's Responses."""

    name, program, package = "codex", "codex", "@openai/codex"
    more: tuple[str, ...] = ()  # options of the next turns

    def setup(self) -> None:
        path = self.user / ".codex" / "config.toml"
        path.parent.mkdir()
        path.write_text(
            f'# mine\nmodel = "m"\nmodel_provider = "loopback"\n\n[model_providers.loopback]\n'
            f'name = "loopback"\nbase_url = "{self.root}/v1"\nwire_api = "responses"\n'
            'env_key = "LOOPBACK_KEY"\n'
        )

    def variables(self) -> Mapping[str, str]:
        return {"LOOPBACK_KEY": "none"}

    def command(self, prompt: str, resume: bool) -> list[str]:
        kept = ["resume", "--last"] if resume else []
        free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["codex", "exec", *kept, *free, *self.more, prompt]

    def trust(self) -> None:
        """Do what a user does by /hooks: keep the hash of each of our hooks."""
        with self.patched(), converse(["codex", "app-server"]) as ask:
            ask("initialize", {"clientInfo": {"name": "test", "version": "1"}})
            [listed] = ask("hooks/list", {"cwds": [str(self.work)]})["result"]["data"]
        ours = [hook for hook in listed["hooks"] if is_ours(hook, "codex")]
        with (self.user / ".codex" / "config.toml").open("a") as file:
            for hook in ours:
                file.write(f'\n[hooks.state."{hook["key"]}"]\n')
                file.write(f'trusted_hash = "{hook["currentHash"]}"\n')


class Gemini(CodingAgent):
    """Gemini CLI, which speaks Gemini's own format."""

    name, program, package = "gemini", "gemini", "@google/gemini-cli"

    def setup(self) -> None:
        path = self.user / ".gemini" / "settings.json"
        path.parent.mkdir()
        auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        path.write_text(json.dumps(auth, indent=2))

    def variables(self) -> Mapping[str, str]:
        return {"GOOGLE_GEMINI_BASE_URL": self.root, "GEMINI_API_KEY": "none"}

    def command(self, prompt: str, resume: bool) -> list[str]:
        kept = ["-r", "latest"] if resume else []
        return ["gemini", "-y", "--skip-trust", *kept, "-m", "gemini-2.5-flash", "-p", prompt]


AGENTS: Mapping[str, type[CodingAgent]] = {each.name: each for each in (ClaudeCode, Codex, Gemini)}


@contextmanager
def resident(ground: Ground) -> Iterator[None]:
    """Keep a resident for a while, so that no turn waits for one to start."""
    process = subprocess.Popen(
        [*ground.command, "--home", str(ground.home), "serve"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **ground.environment},
    )
    with running(process):
        wait_until(lambda: socket_path(ground.home).exists())
        with ground.memory("warm.main") as memory:
            memory.recall("warm")
        yield
