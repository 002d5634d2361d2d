"""Check hosts and coding agents for problems that silently keep them from using MemTier."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.hosts import install, ownership, yaml_settings
from memtier_plugin.hosts.agent_canary import converse
from memtier_plugin.hosts.coding_agents import find_files, is_ours, read_hooks, read_server
from memtier_plugin.hosts.config_files import load_json, parse_json, section
from memtier_plugin.hosts.presence import (
    find_silent_hosts,
    hermes_selects_memtier,
)
from memtier_plugin.hosts.project import CODING_AGENTS, EVENTS, read_installed
from memtier_plugin.operations.background import HealthFinding, Level
from memtier_plugin.storage.home_files import count_queued_runs

# -- Check the command that a host starts MemTier with

COMMAND_SECONDS: Final = 20.0  # limit for `memtier --version` as a host runs it


def check_command(
    plugin_config: Mapping[str, Any], home: Path, where: str, again: str
) -> Iterator[HealthFinding]:
    """Yield reasons why a host would not reach this MemTier."""
    theirs = install.expand_user(plugin_config.get("home") or home)
    if theirs != home:
        yield HealthFinding(
            "warn",
            f"the host writes to the home {theirs}, and this is {home}",
            where,
            f"memtier --home {theirs} status shows its memory; or {again}",
        )
    command = plugin_config.get("command") or ["memtier"]
    if not isinstance(command, list) or not all(isinstance(argument, str) for argument in command):
        yield HealthFinding(
            "error", f"the command is {command!r}, not a list of strings", where, again
        )
        return
    if shutil.which(command[0]) is None:
        yield HealthFinding(
            "error", f"the host cannot start {command[0]}: it does not exist", where, again
        )
        return
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield HealthFinding("error", f"the host cannot start {command[0]}: {error}", where, again)
        return
    version = done.stdout.strip()
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        yield HealthFinding(
            "error", f"{' '.join(command)} ends with {done.returncode}: {last}", where, again
        )
    elif version.rpartition(" ")[2] != memtier_plugin.__version__:
        yield HealthFinding(
            "error",
            f"the host starts {version}, and this is {memtier_plugin.__version__}",
            where,
            again,
        )


# -- Check the coding agents that `memtier install` set up: their files and commands


def check_agents(home: Path) -> list[HealthFinding]:
    """Check the files of each coding agent that has, or had, MemTier installed."""
    installed = {record.get("host") for record in read_installed(home).values()}
    findings: list[HealthFinding] = []
    for host in CODING_AGENTS:
        if _is_set_up(host) or host in installed:
            where = str(find_files(host).servers)
            hooks = " and hooks" if host in EVENTS else ""
            fine = HealthFinding("ok", f"{host} has MemTier's tools{hooks}", where)
            findings += [*_check_agent(host, home, where)] or [fine]
    return findings


def try_agents(home: Path) -> list[HealthFinding]:
    """Test each agent's commands, which recall and record in a temporary project."""
    from memtier_plugin.hosts.agent_canary import run_agent_canary  # needed only here

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
    """Ask Codex whether it trusts our hooks, as it silently skips untrusted ones."""
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
        message = f"codex could not be asked whether it trusts MemTier's hooks ({error!r:.80})"
        return HealthFinding("warn", message, where, trusting)
    if left_out or not ours:
        message = f"codex runs no hook of MemTier at {', '.join(left_out) or 'any event'}"
        return HealthFinding("error", f"{message}: they are not trusted", where, trusting)
    return HealthFinding("ok", "codex trusts MemTier's hooks", where)


def _check_agent(host: str, home: Path, where: str) -> Iterator[HealthFinding]:
    again = f"memtier install {host}"
    try:
        server = read_server(host)
    except (OSError, ValueError, KeyError, TypeError):
        yield HealthFinding("error", f"{host} no longer has MemTier's server", where, again)
        return
    commands = {tuple(_launcher(server)): where}
    if host in EVENTS:
        path = str(find_files(host).hooks)
        try:
            hooks = read_hooks(host)
        except (OSError, ValueError, KeyError, TypeError):
            hooks = {}
        needed = [event for event, kind in EVENTS[host].items() if kind != "call"]
        if missing := [event for event in needed if not hooks.get(event)]:
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
    """Return the part of our command that starts MemTier, without options."""
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
    """Return whether Claude Code's settings enable this repository's plugin."""
    enabled = section(load_json(Path(settings)), "enabledPlugins")
    return any(on is True and name.startswith("memtier@") for name, on in enabled.items())


# -- Check hosts for misconfigurations that silently disable MemTier
#
# This reads configurations, starts one command, and asks the hosts on the path; `memtier install`
# tests the rest.


def check_hosts(home: Path) -> list[HealthFinding]:
    """Check each host that has MemTier configured or installed."""
    return [
        *_check_openclaw(home),
        *_check_hermes(home),
        *check_agents(home),
        *find_silent_hosts(home, datetime.now(UTC)),
        *_check_queue(home),
    ]


def ask_hosts() -> list[HealthFinding]:
    """Ask each configured host who owns its tools and hooks; takes seconds."""
    findings: list[HealthFinding] = []
    path = install.openclaw_config_path()
    plugins = section(load_json(path), "plugins")
    if (
        section(plugins, "entries", "memtier")
        or section(plugins, "slots").get("memory") == "memtier"
    ):
        findings += ownership.ask_openclaw(path)
    if hermes_selects_memtier():
        findings += ownership.ask_hermes(install.hermes_home())
    return findings


# -- OpenClaw -----------------------------------------------------------------------------------


def _check_openclaw(home: Path) -> Iterator[HealthFinding]:
    path = install.openclaw_config_path()
    where, again = str(path), "memtier install openclaw"
    try:
        text = path.read_text("utf-8")
    except OSError:
        return
    try:
        config = parse_json(text or "{}")
    except ValueError:
        if "memtier" in text:
            yield _warn(
                "OpenClaw's configuration is not JSON and was not checked",
                where,
                "openclaw plugins inspect memtier --runtime --json",
            )
        return
    plugins = section(config, "plugins")
    entry = section(plugins, "entries", "memtier")
    if not entry and section(plugins, "slots").get("memory") != "memtier":
        return
    findings = [
        *_check_openclaw_plugin(plugins, entry, where, again),
        *_check_openclaw_paths(plugins, again),
        *check_command(section(entry, "config"), home, where, again),
    ]
    yield from yaml_settings.check_openclaw(config, entry, home, where)
    yield from findings or [
        HealthFinding("ok", "OpenClaw loads MemTier and lets its hooks run", where)
    ]


def _check_openclaw_plugin(
    plugins: Mapping[str, Any], entry: Mapping[str, Any], where: str, again: str
) -> Iterator[HealthFinding]:
    """Yield settings that keep OpenClaw from loading the plugin or calling its hooks."""
    hooks, slot = section(entry, "hooks"), section(plugins, "slots").get("memory")
    if plugins.get("enabled") is False:
        yield _error(
            "OpenClaw loads no plugin: plugins.enabled is false",
            where,
            "openclaw config set plugins.enabled true",
        )
    if "memtier" in (plugins.get("deny") or ()):
        yield _error(
            "OpenClaw does not load MemTier: plugins.deny names it",
            where,
            "take memtier out of plugins.deny",
        )
    allow = plugins.get("allow")
    if isinstance(allow, list) and "memtier" not in allow:
        yield _error("OpenClaw does not load MemTier: plugins.allow lacks it", where, again)
    if entry.get("enabled") is False:
        yield _error("OpenClaw does not load MemTier: it is switched off there", where, again)
    if slot != "memtier":
        holder = f"{slot} has it" if slot else "nothing has it"
        yield _error(f"OpenClaw's memory slot is not MemTier's: {holder}", where, again)
    if hooks.get("allowConversationAccess") is not True:
        yield _error(
            "OpenClaw drops before_prompt_build and agent_end: "
            "hooks.allowConversationAccess is not true",
            where,
            again,
        )
    if hooks.get("allowPromptInjection") is False:
        yield _error("OpenClaw drops recall: allowPromptInjection is false", where, again)
    limits = {**section(hooks, "timeouts"), "any hook": hooks.get("timeoutMs")}
    for name, limit in limits.items():
        if isinstance(limit, int | float) and limit < 2000:
            yield _warn(
                f"OpenClaw gives {name} {limit} ms: a recall may be cut off",
                where,
                "raise or remove plugins.entries.memtier.hooks.timeoutMs and timeouts",
            )
    accepted = section(
        install.read_plugin_manifest(install.openclaw_plugin_folder()), "configSchema", "properties"
    )
    if unknown := {*section(entry, "config")} - {*accepted}:
        yield _error(
            f"OpenClaw refuses MemTier's configuration: {', '.join(sorted(unknown))}",
            where,
            "take these keys out of plugins.entries.memtier.config",
        )


def _check_openclaw_paths(plugins: Mapping[str, Any], again: str) -> Iterator[HealthFinding]:
    """Yield problems with the folders where OpenClaw finds the plugin."""
    paths = section(plugins, "load").get("paths") or ()
    ours = [install.expand_user(path) for path in paths if install.leads_to_plugin(path)]
    copies = [path for path in (install.openclaw_copy(),) if path.is_dir()]
    for path in ours:
        if not install.read_plugin_manifest(path):
            yield _error("OpenClaw's path to the plugin does not exist", str(path), again)
    for path in [*ours, *copies]:
        version = install.read_plugin_manifest(path).get("version")
        if version and version != memtier_plugin.__version__:
            yield HealthFinding(
                "error" if path in ours or not ours else "warn",
                f"OpenClaw's plugin is of version {version}, MemTier of "
                f"{memtier_plugin.__version__}",
                str(path),
                again,
            )
    if ours and copies:
        yield _warn(
            "OpenClaw has a second copy of the plugin besides the one in use",
            str(copies[0]),
            "openclaw plugins uninstall memtier, then memtier install openclaw",
        )
    if not ours and not copies:
        where = str(install.openclaw_state())
        yield _error("OpenClaw's configuration names no folder with the plugin", where, again)


# -- Hermes -------------------------------------------------------------------------------------


def _check_hermes(home: Path) -> Iterator[HealthFinding]:
    top = install.hermes_home()
    plugin, path, again = top / "plugins" / "memtier", top / "config.yaml", "memtier install hermes"
    try:
        text = path.read_text("utf-8")
    except OSError:
        text = ""
    try:
        provider = yaml_settings.read_value(text, str(path), *yaml_settings.PROVIDER)
    except SettingsError as error:
        if "memtier" in text or plugin.exists():
            yield _error(str(error), str(path), "correct it")
        return
    if provider != "memtier" and not plugin.exists():
        return
    findings: list[HealthFinding] = []
    if provider != "memtier":
        selected = f"it is {provider!r}" if provider else "there is none"
        findings.append(
            _error(f"Hermes' memory provider is not MemTier: {selected}", str(path), again)
        )
    entry = plugin / "__init__.py"
    if not entry.is_file():
        findings.append(_error("Hermes has no plugin of MemTier", str(plugin), again))
    elif "register_memory_provider" not in entry.read_text("utf-8", "replace")[:8192]:
        findings.append(
            _error("Hermes does not know the plugin for a memory provider", str(entry), again)
        )
    findings += _check_hermes_plugin(plugin, again)
    try:
        plugin_config = parse_json_text((top / "memtier.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        findings.append(
            _warn(
                f"Hermes' plugin uses defaults: {error}",
                str(top / "memtier.json"),
                again,
            )
        )
    else:
        where = str(top / "memtier.json")
        findings += check_command(plugin_config, home, where, again)
        yield from yaml_settings.check_hermes(plugin_config, home, where)
    yield from findings or [HealthFinding("ok", "Hermes uses MemTier as its memory", str(path))]


def _check_hermes_plugin(plugin: Path, again: str) -> Iterator[HealthFinding]:
    """Yield problems with the installed plugin and the code it loads."""
    manifest = plugin / "plugin.yaml"
    if not manifest.is_file():
        return
    lines = manifest.read_text("utf-8", "replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line and line[:1].isalpha())
    if "kind" in fields:
        yield _error(
            f"Hermes' plugin has kind {fields['kind']!r}: it is not loaded as a memory",
            str(manifest),
            again,
        )
    if fields.get("version") != memtier_plugin.__version__:
        yield HealthFinding(
            "error" if (plugin / "memtier_plugin").is_dir() else "warn",
            f"Hermes' plugin is of version {fields.get('version')}, MemTier of "
            f"{memtier_plugin.__version__}",
            str(manifest),
            again,
        )
    entry = plugin / "__init__.py"
    text = entry.read_text("utf-8", "replace") if entry.is_file() else ""
    for line in text.splitlines():
        _, separator, rest = line.partition('spec_from_file_location("memtier_plugin", ')
        code = Path(rest.strip().strip(")").strip("'\"")) if separator else None
        if code is not None and code.is_absolute() and not code.is_file():
            yield _error("Hermes' plugin points to code that no longer exists", str(code), again)


# -- both ---------------------------------------------------------------------------------------


def _check_queue(home: Path) -> Iterator[HealthFinding]:
    """Yield findings on undelivered runs."""
    waits, refused = count_queued_runs(home)
    if waits:
        yield _warn(
            f"{waits} runs are waiting to be stored",
            str(home / "queue"),
            "the host's next turn delivers them",
        )
    if refused:
        yield _error(
            f"{refused} runs were refused",
            str(home / "queue"),
            "look at the *.refused files: each is the JSON that a host sent",
        )


def _error(message: str, where: str, remedy: str) -> HealthFinding:
    return HealthFinding("error", message, where, remedy)


def _warn(message: str, where: str, remedy: str) -> HealthFinding:
    return HealthFinding("warn", message, where, remedy)
