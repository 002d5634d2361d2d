"""Parse the tool calls that a chat model writes into its answer, as Mem-T's models do.  Pure.

    <tool_call>{"name": "create_fact", "arguments": {...}}</tool_call>

Several calls may follow each other, or stand in one block as a list; a missing closing tag ends
with the next call, or with the answer.  What is no call of a known tool, or of another shape, is
counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.providers.structured_output import matches_schema, strip_reasoning

NO_CALL: Final = "no tool call in the answer"
_MAX_CALLS: Final = 100  # of an answer
MARK: Final = "<tool_call>"


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
    written = written_calls(text)
    if not written:
        raise BadAnswer(NO_CALL)
    several = [call for each in written for call in (each if isinstance(each, list) else [each])]
    calls = [_call(call, tools) for call in several[:_MAX_CALLS]]
    fitting = tuple(call for call in calls if call is not None)
    return CalledTools(fitting, len(calls) - len(fitting))


def written_calls(text: str) -> list[Any]:
    """Return the JSON after each mark of a call, in order; None for what is none."""
    blocks = strip_reasoning(text).split(MARK)[1 : _MAX_CALLS + 1]
    return [decode(block) for block in blocks]


def decode(text: str) -> Any:
    """Return the JSON value that a text begins with; None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _call(written: Any, tools: Mapping[str, Mapping[str, Any]]) -> ToolCall | None:
    if not isinstance(written, dict) or not isinstance(written.get("name"), str):
        return None
    name, arguments = written["name"], written.get("arguments")
    if isinstance(arguments, str):  # as some servers write them
        arguments = decode(arguments)
    if name not in tools or arguments is None or not matches_schema(arguments, tools[name]):
        return None
    return ToolCall(name, arguments)
