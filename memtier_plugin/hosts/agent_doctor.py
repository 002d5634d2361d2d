"""Check the coding agents that `memtier install` set up: their files, and what these start."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from memtier_plugin.hosts.agent_events import CODING_AGENTS, EVENTS
from memtier_plugin.hosts.coding_agents import find_files, read_hooks, read_server
from memtier_plugin.hosts.command_check import check_command
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
    return findings


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
            what = f"{host} runs no hook of MemTier at {', '.join(missing)}"
            yield HealthFinding("error", what, path, again)
        if many := [event for event, ours in hooks.items() if len(ours) > 1]:
            what = f"{host} runs several hooks of MemTier at {', '.join(many)}"
            yield HealthFinding("warn", what, path, again)
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


def _and_hooks(host: str) -> str:
    return " and runs its hooks" if host in EVENTS else ""
