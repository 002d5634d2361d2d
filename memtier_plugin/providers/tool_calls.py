"""Parse the tool calls that a chat model writes into its answer, as Mem-T's models do.  Pure.

    <tool_call>{"name": "create_fact", "arguments": {...}}</tool_call>

Several calls may follow each other, or stand in one block as a list; a missing closing tag ends
with the next call, or with the answer.  What is no call of a known tool, or of another shape, is
counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.providers.structured_output import matches_schema, strip_reasoning

NO_CALL: Final = "no tool call in the answer"
_MAX_CALLS: Final = 100  # of an answer
_BLOCK: Final = re.compile(r"<tool_call>(.*?)(?=</tool_call>|<tool_call>|\Z)", re.DOTALL)


class ToolCall(NamedTuple):
    """A call of a known tool, with arguments of its shape."""

    name: str
    arguments: Mapping[str, Any]


class CalledTools(NamedTuple):
    """The calls of an answer, in order, and the number of those of another shape."""

    calls: tuple[ToolCall, ...]
    rejected: int


def parse_tool_calls(text: str, tools: Mapping[str, Mapping[str, Any]]) -> CalledTools:
    """Return the calls of an answer.

    Args:
        tools: the schema of each tool's arguments, by its name.

    Raises:
        BadAnswer: there is no call at all.
    """
    blocks = _BLOCK.findall(strip_reasoning(text))[:_MAX_CALLS]
    if not blocks:
        raise BadAnswer(NO_CALL)
    written = [call for block in blocks for call in _decoded(block)]
    calls = [_call(call, tools) for call in written[:_MAX_CALLS]]
    fitting = tuple(call for call in calls if call is not None)
    return CalledTools(fitting, len(calls) - len(fitting))


def _decoded(block: str) -> list[Any]:
    """Return the calls in a block: one, or a list; None stands for what is no JSON."""
    try:
        value = json.loads(block.strip())
    except (ValueError, RecursionError):
        return [None]
    return value if isinstance(value, list) else [value]


def _call(written: Any, tools: Mapping[str, Mapping[str, Any]]) -> ToolCall | None:
    if not isinstance(written, dict) or not isinstance(written.get("name"), str):
        return None
    name, arguments = written["name"], written.get("arguments")
    if isinstance(arguments, str):  # as some servers write them
        [arguments] = _decoded(arguments)[:1] or [None]
    if name not in tools or arguments is None or not matches_schema(arguments, tools[name]):
        return None
    return ToolCall(name, arguments)
