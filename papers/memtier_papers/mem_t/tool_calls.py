"""The tools of multi-turn retrieval, and parsing a model's calls of them.  Pure.

Mem-T, section 3.1 (phase II): one call per step, native or as ``<tool_call>`` text; of several
calls the first counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from memtier_plugin.answering.store_search import (
    DEFAULT_TURNS,
    EXPERIENCES,
    FACTS,
    MAX_TURNS,
    PERSONAS,
    SUMMARY,
    TURNS,
    BadCall,
    SearchCall,
    read_search,
)
from memtier_plugin.providers.prompting import MARK, decode, written_calls

FINISH: Final = "finish"
_MAX_CHARS: Final = 20_000  # of a model's answer
_TEXT: Final = {"type": "string"}
_PARAMETERS: Final[Mapping[str, Mapping[str, Any]]] = {
    SUMMARY: {"query": _TEXT},
    FACTS: {"query": _TEXT},
    EXPERIENCES: {"query": _TEXT},
    PERSONAS: {"name": _TEXT, "query": _TEXT},
    TURNS: {"query": _TEXT, "top_k": {"type": "integer", "minimum": 1, "maximum": MAX_TURNS}},
    FINISH: {"answer": _TEXT, "cites": {"type": "array", "items": {"type": "integer"}}},
}
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    FACTS: ("query",),
    EXPERIENCES: ("query",),
    TURNS: ("query",),
    FINISH: ("answer", "cites"),
}
TOOLS: Final = [  # in the format of OpenAI-compatible servers
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": dict(properties),
                "required": [*_REQUIRED.get(name, ())],
            },
        },
    }
    for name, properties in _PARAMETERS.items()
]


@dataclass(frozen=True, slots=True)
class FinishCall:
    """The answer, and the numbers of the lines that it cites."""

    answer: str
    cites: tuple[int, ...]


def render_call(name: str, arguments: Any) -> str:
    """Return a call as text."""
    return f"{MARK}{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def parse_call(text: str) -> SearchCall | FinishCall | BadCall:
    """Parse the first call in a model's answer."""
    matched = _first_call(text)
    if matched is None:
        return BadCall(f"no tool call was found; answer with {MARK}{{...}}</tool_call> alone")
    name, arguments = matched.get("name"), matched.get("arguments")
    if isinstance(arguments, str):  # some servers pass them as a string
        arguments = decode(arguments)
    if name not in _PARAMETERS:
        return BadCall(f"there is no tool {str(name)[:40]!r}; one of: {', '.join(_PARAMETERS)}")
    if not isinstance(arguments, dict):
        return BadCall(f"the arguments of {name} are no JSON object")
    if name == FINISH:
        return _finish(arguments)
    query = arguments.get("name") or arguments.get("query")
    return read_search(str(name), query, arguments.get("top_k", DEFAULT_TURNS))


def _finish(arguments: Mapping[str, Any]) -> FinishCall | BadCall:
    answer, cites = arguments.get("answer"), arguments.get("cites", [])
    if not isinstance(answer, str) or not answer.strip():
        return BadCall("finish needs an answer")
    if not isinstance(cites, list) or not all(type(number) is int for number in cites):
        return BadCall("cites is a list of the lines' numbers")
    return FinishCall(answer.strip(), tuple(dict.fromkeys(cites)))


def _first_call(text: str) -> Mapping[str, Any] | None:
    """Return the first object that follows a call mark; its closing mark may be missing."""
    calls = written_calls(text[:_MAX_CHARS])
    return next((call for call in calls if isinstance(call, dict)), None)
