"""What the provider asks of Hermes itself, by the interface that Hermes' plugins have.

These are internals of Hermes, which may change; the provider works without each of them.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

from .hermes_settings import NAME
from .resident_connection import Payload


class Listener(Protocol):
    """What a provider does when Hermes tells it of a call of a tool or model, or a command."""

    def note_tool(self, details: Payload) -> None:
        """Keep a tool call as it happens."""

    def note_request(self, details: Payload) -> None:
        """Keep what a call of the model took."""

    def answer_command(self, text: str) -> str:
        """Answer what a person typed after `/memtier`."""


_attached: list[Listener] = []
_contexts: list[Any] = []  # Hermes' context of this plugin, once attached


def attach(provider: Listener) -> None:
    """Subscribe to calls of tools and of the model as they happen, and answer `/memtier` in a chat.

    A compaction may drop a call's messages, and they do not tell whether it succeeded.
    """
    host = import_module("hermes_cli.plugins")  # exists inside Hermes only
    first = not _attached
    _attached[:] = [provider]
    if first:
        manifest = host.PluginManifest(name=NAME, source="user")
        context = host.PluginContext(manifest, host.get_plugin_manager())
        _contexts[:] = [context]
        context.register_hook("post_tool_call", _on_tool_call)
        context.register_hook("post_api_request", _on_request)
        context.register_command(
            NAME, _answer_command, "How this project's memory does; `review` decides on what waits"
        )


def is_attached() -> bool:
    """Tell whether Hermes' own plugin interface was reached."""
    return bool(_contexts)


def is_selected() -> bool:
    """Tell whether Hermes' configuration names this provider."""
    with suppress(Exception):  # Hermes' internals may change
        return bool(import_module("plugins.memory")._get_active_memory_provider() == NAME)
    return False


def select(config: dict[str, Any]) -> None:
    """Make this the memory provider in Hermes' configuration."""
    config.setdefault("memory", {})["provider"] = NAME
    import_module("hermes_cli.config").save_config(config)


def complete(request: Payload) -> dict[str, Any]:
    """Ask the model that Hermes is configured with; Hermes keeps its keys and its policy."""
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


def _on_tool_call(**details: Any) -> None:
    for provider in _attached:
        provider.note_tool(details)


def _on_request(**details: Any) -> None:
    for provider in _attached:
        provider.note_request(details)


def _answer_command(arguments: str = "") -> str:
    return _attached[0].answer_command(arguments)
