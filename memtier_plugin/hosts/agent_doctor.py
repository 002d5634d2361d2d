"""Check the coding agents that `memtier install` set up: their files, and what these start."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from memtier_plugin.hosts.agent_events import CODING_AGENTS, EVENTS
from memtier_plugin.hosts.coding_agents import find_files, is_ours, read_hooks, read_server
from memtier_plugin.hosts.command_check import check_command
from memtier_plugin.hosts.configured import read_json, section
from memtier_plugin.hosts.conversation import converse
from memtier_plugin.hosts.project import read_installed
from memtier_plugin.operations.health.finding import HealthFinding, Level


def check_agents(home: Path) -> list[HealthFinding]:
    """Check the files of each coding agent that has MemTier, or had it installed."""
    installed = {record.get("host") for record in read_installed(home).values()}
    findings: list[HealthFinding] = []
    for host in CODING_AGENTS:
        if _is_set_up(host) or host in installed:
            where = str(find_files(host).servers)
            fine = HealthFinding("ok", f"{host} has MemTier's tools{_and_hooks(host)}", where)
            findings += [*_check_agent(host, home, where)] or [fine]
    return findings


def try_agents(home: Path) -> list[HealthFinding]:
    """Let each agent's own files recall and record in a temporary project of this home."""
    from memtier_plugin.hosts.agent_canary import run_agent_canary  # which only this needs

    findings = []
    for host in CODING_AGENTS:
        where = str(find_files(host).servers)
        if not _is_set_up(host) or any(f.level == "error" for f in _check_agent(host, home, where)):
            continue
        proof = run_agent_canary(host, home)
        remedy = "" if proof.ok else proof.remedy or f"memtier install {host}"
        level: Level = "ok" if proof.ok else "error"
        findings.append(HealthFinding(level, f"{host}: {proof.what}", where, remedy))
        if host == "codex":
            findings.append(ask_codex())
    return findings


def ask_codex() -> HealthFinding:
    """Ask Codex whether it trusts our hooks: it leaves out in silence what it does not."""
    where = str(find_files("codex").hooks)
    trusting = "enter /hooks in Codex and trust those of memtier"
    try:
        with converse([shutil.which("codex") or "codex", "app-server"]) as ask:
            ask("initialize", {"clientInfo": {"name": "memtier", "version": "1"}})
            listed = ask("hooks/list", {"cwds": [str(Path.home())]})["result"]["data"]
        ours = [hook for each in listed for hook in each["hooks"] if is_ours(hook, "codex")]
        left_out = [
            hook["eventName"]
            for hook in ours
            if not hook["enabled"] or hook["trustStatus"] not in ("trusted", "managed")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"codex could not be asked whether it trusts the hooks of MemTier ({error!r:.80})"
        return HealthFinding("warn", message, where, trusting)
    if left_out or not ours:
        message = f"codex runs no hook of MemTier at {', '.join(left_out) or 'any event'}"
        return HealthFinding("error", f"{message}: they are not trusted", where, trusting)
    return HealthFinding("ok", "codex trusts the hooks of MemTier", where)


def _check_agent(host: str, home: Path, where: str) -> Iterator[HealthFinding]:
    again = f"memtier install {host}"
    try:
        server = read_server(host)
    except (OSError, ValueError, KeyError, TypeError):
        yield HealthFinding("error", f"{host} has no server of MemTier any more", where, again)
        return
    commands = {tuple(_launcher(server)): where}
    if host in EVENTS:
        path = str(find_files(host).hooks)
        try:
            hooks = read_hooks(host)
        except (OSError, ValueError, KeyError, TypeError):
            hooks = {}
        if missing := [event for event in EVENTS[host] if not hooks.get(event)]:
            message = f"{host} runs no hook of MemTier at {', '.join(missing)}"
            yield HealthFinding("error", message, path, again)
        if many := [event for event, ours in hooks.items() if len(ours) > 1]:
            message = f"{host} runs several hooks of MemTier at {', '.join(many)}"
            yield HealthFinding("warn", message, path, again)
        if hooks and host == "claude-code" and _has_plugin(path):
            message = "claude-code has MemTier's plugin too: it runs every hook twice"
            yield HealthFinding("warn", message, path, "claude plugin uninstall memtier")
        for line in {line for ours in hooks.values() for line in ours}:
            commands.setdefault(tuple(_launcher(shlex.split(line))), path)
    for command, file in commands.items():
        config = {"command": [*command], "home": _value(server, "--home")}
        yield from check_command(config, home, file, again)


def _launcher(command: Sequence[str]) -> Sequence[str]:
    """Return how a command of ours starts MemTier, without its options."""
    return command[: command.index("--home")] if "--home" in command else command


def _value(command: Sequence[str], option: str) -> str | None:
    return command[command.index(option) + 1] if option in command[:-1] else None


def _is_set_up(host: str) -> bool:
    try:
        read_server(host)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _has_plugin(settings: str) -> bool:
    """Return whether Claude Code's settings enable the plugin that this repository has."""
    enabled = section(read_json(Path(settings)), "enabledPlugins")
    return any(on is True and name.startswith("memtier@") for name, on in enabled.items())


def _and_hooks(host: str) -> str:
    return " and hooks" if host in EVENTS else ""
