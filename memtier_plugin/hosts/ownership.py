"""Ask the hosts which plugin owns each memory tool and hook; files show only the intention.

Another plugin may own a tool's name, and a host may drop a hook.  A running Gateway is asked for
its tools; hooks, and everything if none runs, are asked of a fresh host process that loads the
same plugins with temporary state, leaving nothing in the user's folders.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memtier_plugin.hosts.config_files import parse_json, section
from memtier_plugin.operations.background import HealthFinding

TOOLS: Final = ("memtier_search", "memtier_get", "memtier_store", "memtier_forget")
OPENCLAW_HOOKS: Final = (
    "before_prompt_build",
    "agent_end",
    "before_compaction",
    "session_start",
    "session_end",
    "subagent_spawned",
)
ASK_SECONDS: Final = 60.0  # for a query; a cold start of OpenClaw takes 15
GATEWAY_SECONDS: Final = 120.0  # for a running Gateway, after its client's start
_OURS: Final = "memtier"
_GATEWAY_PORT: Final = 18789  # default port of a Gateway

# Load the provider like a Hermes turn, and print the owners of the tools.
_ASK_HERMES: Final = """
import json
from agent.memory_manager import MemoryManager
from plugins.memory import _get_active_memory_provider, load_memory_provider
name = _get_active_memory_provider()
provider = load_memory_provider(name) if name else None
manager = MemoryManager()
if provider is not None and provider.is_available():
    manager.add_provider(provider)
owners = {tool: owner.name for tool, owner in manager._tool_to_provider.items()}
print(json.dumps({"provider": name, "tools": owners}))
"""


def ask_openclaw(path: Path) -> Iterator[HealthFinding]:
    """Yield findings on who owns OpenClaw's tools and hooks; none if it is not on the path.

    Args:
        path: OpenClaw's readable configuration.
    """
    program, where = shutil.which("openclaw"), str(path)
    if program is None:
        return
    with tempfile.TemporaryDirectory(prefix="memtier-ask-", ignore_cleanup_errors=True) as top:
        environment = _openclaw_environment(path, Path(top))
        command = [program, "plugins", "inspect", _OURS, "--runtime", "--json"]
        inspected = _ask(command, environment)
    if inspected is None:
        yield _not_asked("OpenClaw", where, "openclaw plugins inspect memtier --runtime --json")
        return
    is_running = _listens(parse_json(path.read_text("utf-8")))
    catalog = _ask_gateway(program, "tools.catalog", {}) if is_running else None
    if catalog is None:
        by = "a fresh process; no Gateway answers"
        registered = [name for tool in _list(inspected, "tools") for name in _list(tool, "names")]
        owners = {str(name): _OURS for name in registered}
    else:
        by = "the running Gateway"
        owners = {
            str(tool.get("id")): str(tool.get("pluginId") or tool.get("source"))
            for group in _list(catalog, "groups")
            for tool in _list(group, "tools")
        }
        yield from _judge_grant(
            _ask_gateway(program, "plugins.inspect", {"pluginId": _OURS}), where
        )
    yield from _judge_tools("OpenClaw", by, owners, where)
    hooks = [str(hook.get("name")) for hook in _list(inspected, "typedHooks")]
    if missing := [hook for hook in OPENCLAW_HOOKS if hook not in hooks]:
        yield HealthFinding(
            "error",
            f"OpenClaw does not call MemTier's {', '.join(missing)}: it dropped them",
            where,
            "memtier install openclaw, then restart the Gateway",
        )
    else:
        yield HealthFinding("ok", f"OpenClaw calls MemTier's {', '.join(OPENCLAW_HOOKS)}", where)


def ask_hermes(home: Path) -> Iterator[HealthFinding]:
    """Yield findings on who owns Hermes' tools and memory; none if it is not on the path."""
    program, where = shutil.which("hermes"), str(home / "config.yaml")
    if program is None:
        return
    python = _interpreter_of(program)
    with tempfile.TemporaryDirectory(prefix="memtier-ask-", ignore_cleanup_errors=True) as top:
        environment = _hermes_environment(home, Path(top))
        answer = _ask([python, "-c", _ASK_HERMES], environment) if python else None
    if answer is None:
        yield _not_asked("Hermes", where, "hermes memory status")
    elif answer.get("provider") != _OURS:
        loaded = answer.get("provider") or "none"
        yield HealthFinding(
            "error",
            f"the memory that Hermes loads is {loaded}",
            where,
            "memtier install hermes",
        )
    else:
        owners = answer.get("tools")
        by = "a fresh process; it calls prefetch and sync_turn of the memory that it loads"
        yield from _judge_tools("Hermes", by, owners if isinstance(owners, dict) else {}, where)


def _judge_grant(inspected: Mapping[str, Any] | None, where: str) -> Iterator[HealthFinding]:
    """Yield an error if a running Gateway's settings hide conversations from MemTier."""
    grant = section(inspected, "grants", "hooks", "allowConversationAccess")
    if grant.get("effective") is False:
        yield HealthFinding(
            "error",
            "the running Gateway does not show conversations to MemTier",
            where,
            "memtier install openclaw, then restart the Gateway",
        )


def _ask_gateway(program: str, method: str, params: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return a running Gateway's answer, or None.

    It answers nobody while it loads plugins, which it does for its catalogue of tools: one of 211
    packages took it 68 s.  By itself the client leaves after 10 s, and the Gateway then logs an
    error for what it sends there.
    """
    patience = ("--timeout", str(round(1000 * GATEWAY_SECONDS)))
    arguments = (method, "--params", json.dumps(params), *patience, "--json")
    seconds = ASK_SECONDS + GATEWAY_SECONDS
    return _ask([program, "gateway", "call", *arguments], seconds=seconds)


def _judge_tools(
    host: str, by: str, owners: Mapping[str, str], where: str
) -> Iterator[HealthFinding]:
    """Yield an error for each tool that is missing or owned by another, else an ok.

    Other memories' tools are reported too.
    """
    wrong = {tool: owners.get(tool) for tool in TOOLS if owners.get(tool) != _OURS}
    for tool, owner in wrong.items():
        state = f"belongs to {owner}" if owner else "is not offered to the model"
        yield HealthFinding(
            "error",
            f"{tool} {state} in {host}, says {by}",
            where,
            f"switch off what else offers it, or permit it there; then restart {host}",
        )
    if not wrong:
        yield HealthFinding("ok", f"{', '.join(TOOLS)} are MemTier's in {host}, says {by}", where)
    if others := [f"{tool} of {owner}" for tool, owner in owners.items() if "memory" in tool]:
        yield HealthFinding("ok", f"beside them {host} offers {', '.join(others)}", where)


def _not_asked(host: str, where: str, remedy: str) -> HealthFinding:
    return HealthFinding("warn", f"{host} did not report who owns the memory tools", where, remedy)


def _openclaw_environment(path: Path, top: Path) -> dict[str, str]:
    """Return an environment for OpenClaw with the user's plugins and temporary state."""
    plugins = parse_json(path.read_text("utf-8")).get("plugins", {})
    state = Path(os.environ.get("OPENCLAW_STATE_DIR") or path.parent)
    installed = state / "extensions" / _OURS  # where `openclaw plugins install` puts it
    if installed.is_dir():
        load = plugins.get("load")
        paths = [*_list(load, "paths"), str(installed)]
        plugins["load"] = {**(load if isinstance(load, dict) else {}), "paths": paths}
    config = {"plugins": plugins, "logging": {"file": str(top / "openclaw.log")}}
    (top / "openclaw.json").write_text(json.dumps(config), "utf-8")
    isolated = {"OPENCLAW_CONFIG_PATH": top / "openclaw.json", "OPENCLAW_STATE_DIR": top / "state"}
    return {**os.environ, **{name: str(value) for name, value in isolated.items()}}


def _hermes_environment(home: Path, top: Path) -> dict[str, str]:
    """Return an environment for Hermes with the user's plugins and temporary state."""
    if (home / "plugins").is_dir():
        (top / "plugins").symlink_to(home / "plugins")
    for name in ("config.yaml", "memtier.json"):
        if (home / name).is_file():
            shutil.copy(home / name, top / name)
    return {**os.environ, "HERMES_HOME": str(top), "PYTHONDONTWRITEBYTECODE": "1"}


def _listens(config: Mapping[str, Any]) -> bool:
    """Return whether something listens at the Gateway's configured port."""
    port = section(config, "gateway").get("port")
    try:
        address = ("127.0.0.1", port if isinstance(port, int) else _GATEWAY_PORT)
        with socket.create_connection(address, timeout=1):
            return True
    except (OSError, OverflowError):
        return False


def _ask(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    seconds: float = ASK_SECONDS,
) -> Mapping[str, Any] | None:
    """Return the JSON object printed by a command, None if it fails."""
    try:
        done = subprocess.run(
            [*command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=seconds,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    start = done.stdout.find("{")
    if done.returncode or start < 0:
        return None
    try:
        answer, _ = json.JSONDecoder().raw_decode(done.stdout[start:])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _interpreter_of(program: str) -> str | None:
    """Return the Python interpreter of a console script."""
    try:
        first = Path(program).read_bytes().splitlines()[0].decode("utf-8", "replace")
    except (OSError, IndexError):
        return None
    python = first.removeprefix("#!").strip() if first.startswith("#!") else ""
    return python if Path(python).is_file() else None


def _list(value: Any, key: str) -> list[Any]:
    inner = section(value).get(key)
    return inner if isinstance(inner, list) else []
