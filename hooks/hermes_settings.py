"""The configuration of Hermes' provider, and its use of Hermes' own interfaces."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol
from weakref import ref

from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import parse_json_text

from .resident_connection import Payload

# -- The configuration of Hermes' memory provider: `memtier.json`, next to Hermes' own

NAME: Final = "memtier"
HOST: Final = "hermes"


def agent_of(context: Mapping[str, Any]) -> str:
    """Return MemTier's name for the agent."""
    return f"{HOST}.{context.get('agent_identity') or 'default'}"


def config_path(hermes_home: str | Path | None = None) -> Path:
    """Return the path of the provider's configuration, next to Hermes' own."""
    home = hermes_home or os.environ.get("HERMES_HOME") or Path.home() / ".hermes"
    return Path(home) / f"{NAME}.json"


def read_config(hermes_home: str | Path | None = None) -> dict[str, Any]:
    """Return the configuration: command, home, project, environment; all have defaults."""
    config: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        config = dict(parse_json_text(config_path(hermes_home).read_text("utf-8")))
    config.setdefault("command", _command())
    config.setdefault("home", os.environ.get("MEMTIER_HOME") or str(Path.home() / ".memtier"))
    config.setdefault("project", "default")
    return config


def list_setup_fields() -> list[dict[str, Any]]:
    """Return the fields that `hermes memory setup` asks for."""
    defaults = read_config()
    return [
        {
            "key": "project",
            "description": "The project whose memory this is",
            "default": defaults["project"],
        },
        {
            "key": "home",
            "description": "Where MemTier keeps everything",
            "default": defaults["home"],
        },
        {
            "key": "command",
            "description": "How `memtier` is run, in its own environment",
            "default": shlex.join(defaults["command"]),
        },
    ]


def save_config(values: Mapping[str, Any], hermes_home: str) -> None:
    """Write the chosen configuration (mode 0600)."""
    config = {**read_config(hermes_home), **values}
    if isinstance(config["command"], str):
        config["command"] = shlex.split(config["command"])
    write_private_file(config_path(hermes_home), json.dumps(config, indent=1))


def _command() -> list[str]:
    """Return the command that runs `memtier`: this checkout's, one on PATH, or install.sh's."""
    checkout = str(Path(__file__).resolve().parents[1] / ".venv" / "bin")
    path = os.pathsep.join(
        [checkout, os.environ.get("PATH", ""), str(Path.home() / ".local" / "bin")]
    )
    return [shutil.which("memtier", path=path) or "memtier"]


def installer() -> Path | None:
    """Return the install script, if this is a checkout."""
    script = Path(__file__).resolve().parents[1] / "install.sh"
    return script if script.is_file() else None


# -- Hermes' own functions, through the interface of its plugins
#
# These are internals of Hermes, which may change; the provider works without any of them.

CHAT_FIELDS: Final = ("platform", "chat_type", "chat_id", "thread_id", "user_id", "user_id_alt")


class Listener(Protocol):
    """A provider as Hermes notifies it of tool and model calls, and of commands."""

    def chat(self) -> dict[str, Any]:
        """Return the fields of the chat that it serves; only the platform for a terminal."""

    def is_of(self, session: object) -> bool:
        """Return whether it serves a session."""

    def note_tool(self, details: Payload) -> None:
        """Store a tool call as it happens."""

    def note_request(self, details: Payload) -> None:
        """Store the token usage of a model call."""

    def answer_command(self, text: str, chat: Payload | None = None) -> str:
        """Answer a command that a person typed after `/memtier` in a chat."""


_attached: list[ref[Listener]] = []  # Hermes creates one per session, and again for some
_asking: ContextVar[dict[str, Any] | None] = ContextVar("memtier_chat", default=None)
_contexts: list[Any] = []  # Hermes' context of this plugin, once attached


def attach(provider: Listener) -> None:
    """Subscribe to tool and model calls as they happen, and answer `/memtier` in a chat.

    A compaction may drop a call's messages, and they do not show whether it succeeded.
    """
    host = import_module("hermes_cli.plugins")  # exists only inside Hermes
    _attached[:] = [*(each for each in _attached if each()), ref(provider)]
    if not _contexts:
        manifest = host.PluginManifest(name=NAME, source="user")
        context = host.PluginContext(manifest, host.get_plugin_manager())
        _contexts[:] = [context]
        context.register_hook("post_tool_call", _on_tool_call)
        context.register_hook("post_api_request", _on_request)
        context.register_hook("pre_gateway_dispatch", _on_message)
        context.register_command(
            NAME, _answer_command, "How this project's memory does; `review` decides on what waits"
        )


def is_attached() -> bool:
    """Return whether Hermes' plugin interface was available."""
    return bool(_contexts)


def is_selected() -> bool:
    """Return whether Hermes' configuration selects this provider."""
    with suppress(Exception):  # Hermes' internals may change
        return bool(import_module("plugins.memory")._get_active_memory_provider() == NAME)
    return False


def select(config: dict[str, Any]) -> None:
    """Select this as the memory provider in Hermes' configuration."""
    config.setdefault("memory", {})["provider"] = NAME
    import_module("hermes_cli.config").save_config(config)


def complete(request: Payload) -> dict[str, Any]:
    """Ask Hermes' configured model; Hermes keeps its keys and applies its policy."""
    answer = _contexts[0].llm.complete(
        [dict(message) for message in request["messages"]],
        temperature=request.get("temperature"),
        max_tokens=request.get("max_tokens"),
        timeout=request.get("seconds"),
        purpose=f"{NAME}.{request.get('purpose')}",
    )
    usage = answer.usage
    return {
        "text": answer.text,
        "model": f"{answer.provider}/{answer.model}",
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cost": usage.cost_usd,
    }


def _providers() -> list[Listener]:
    """Return Hermes' current providers, newest first."""
    return [provider for each in reversed(_attached) if (provider := each())]


def _provider_of(session: object) -> Listener | None:
    return next((provider for provider in _providers() if provider.is_of(session)), None)


def _on_tool_call(**details: Any) -> None:
    if provider := _provider_of(details.get("session_id")):
        provider.note_tool(details)


def _on_request(**details: Any) -> None:
    if provider := _provider_of(details.get("session_id")):
        provider.note_request(details)


def _on_message(event: Any = None, **_: Any) -> None:
    """Record the author of a message for a command, which Hermes handles in the same task."""
    source = getattr(event, "source", None)
    chat = {name: getattr(source, name, None) for name in (*CHAT_FIELDS, "user_name")}
    chat["platform"] = getattr(chat["platform"], "value", chat["platform"])
    _asking.set({name: value for name, value in chat.items() if value})


def _answer_command(arguments: str = "") -> str:
    providers, asking = _providers(), _asking.get()
    if not providers:
        return "MemTier begins with the first message to the agent."
    if asking is None:
        if "chat_type" in providers[0].chat():
            return "MemTier cannot tell who asks: type `hermes memtier review` on the machine."
        return providers[0].answer_command(arguments)
    chat = {name: value for name, value in asking.items() if name != "user_name"}
    of_chat = next((provider for provider in providers if provider.chat() == chat), None)
    return (
        of_chat.answer_command(arguments)
        if of_chat
        else providers[0].answer_command(arguments, asking)
    )
