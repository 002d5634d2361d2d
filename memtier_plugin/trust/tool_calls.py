"""Tell which tool a call is meant for: hosts call tools through tools, and rename ours.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from memtier_plugin.core import lazy_regex as regex

# The tools that MemTier offers, whatever a host puts before their names ("mcp__memtier__").
_OWN: Final = regex.compile(
    r"(?:.*[^\p{L}\p{N}])?(?:memtier_[a-z]+|memory_(?:search|get|store|forget|status))"
)
# The tools by which a host calls any tool, whatever it puts before their names.
_WRAPPER: Final = regex.compile(
    r"(?:.*[^\p{L}\p{N}])?(?:tool_(?:call|invoke|run|use)|(?:call|use|invoke|run|execute)_tool)"
)
_NAME_KEYS: Final = ("name", "tool", "tool_name", "toolName", "toolname", "id", "tool_id", "toolId")
_ARGUMENT_KEYS: Final = ("arguments", "args", "input", "params", "parameters", "tool_input")
# Where a wrapper names the tool, also in arguments that are cut off and parse no more.
_NAMED: Final = regex.compile(r'"(?:name|tool|tool_?name|(?:tool_?)?id)"\s*:\s*"([^"]+)"', regex.I)
_CATALOGUE: Final = regex.compile(r"[^:/]*$")  # the name in an id such as "core:exec"
_MAX_NESTED: Final = 3


def is_own_tool(name: str) -> bool:
    """Return whether a name is that of a memory tool of MemTier's."""
    return _OWN.fullmatch(name) is not None


def is_wrapper(name: str) -> bool:
    """Return whether a name is that of a tool by which a host calls any other."""
    return _WRAPPER.fullmatch(name) is not None


def unwrap_call(name: str, arguments: str) -> tuple[str, str]:
    """Return the tool that a call is meant for, and that tool's arguments as JSON.

    The arguments are empty where the wrapper's own are cut off.
    """
    for _ in range(_MAX_NESTED):
        if not is_wrapper(name):
            break
        fields = _parse(arguments)
        named = next((fields[key] for key in _NAME_KEYS if isinstance(fields.get(key), str)), None)
        if named is None:
            match = None if fields else _NAMED.search(arguments)
            return (_short(match[1]), "") if match else (name, arguments)
        inner: Any = next((fields[key] for key in _ARGUMENT_KEYS if key in fields), {})
        name, arguments = _short(named), inner if isinstance(inner, str) else json.dumps(inner)
    return name, arguments


def _parse(arguments: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _short(name: str) -> str:
    match = _CATALOGUE.search(name)
    return (match[0] if match else "") or name
