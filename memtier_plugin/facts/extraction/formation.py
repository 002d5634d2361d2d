"""Form facts by tool calls of a chat model: create_fact, create_experience, update_persona.

The formation of Mem-T (3.1, phase I) as another way to ask for the same claims: each call has to
give the line and the words that prove it, and is verified like any claim.  The fourth tool of the
paper, update_summary, is the running summary's own request (`summaries.working`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memtier_plugin.facts.extraction.llm import PURPOSE, ChatExtractor
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.structured_output import STRING, ListedAnswer, object_of
from memtier_plugin.providers.tool_calls import ToolCall, parse_tool_calls

_ANY_LINE: Final[Mapping[str, Any]] = {"type": ["integer", "string", "null"]}
_TIME: Final[Mapping[str, Any]] = {"type": ["string", "null"]}


def _tool(*required: str) -> dict[str, Any]:
    schema = object_of(line=_ANY_LINE, start_time=_TIME, end_time=_TIME)
    named = dict.fromkeys(required, STRING)
    return {**schema, "required": [*required], "properties": {**schema["properties"], **named}}


TOOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "create_fact": _tool("fact", "subject", "relation", "value", "quote"),
    "create_experience": _tool("experience", "subject", "relation", "value", "quote"),
    "update_persona": _tool("name", "profile", "quote"),
}


class ToolExtractor(ChatExtractor):
    """Extracts claims by tool calls; use one instance per pass."""

    prompt_name = "form"

    def _items(self, text: str) -> ListedAnswer:
        """Return the claims of an answer's calls as items of the one JSON object.

        Raises:
            BadAnswer: there is no call; "nothing to keep" is a call of no tool, an empty list.
        """
        called = parse_tool_calls(text, TOOLS)
        return ListedAnswer(tuple(map(_item, called.calls)), called.rejected)

    def _request(self, user: str, max_tokens: int) -> ChatReply:
        messages = [
            {"role": "system", "content": self.prompt.text},
            {"role": "user", "content": user},
        ]
        return self.model.chat(messages, purpose=PURPOSE, max_tokens=max_tokens)


def _item(call: ToolCall) -> dict[str, Any]:
    """Return a call as the item that the JSON form has for it."""
    arguments = call.arguments
    common = {
        "quote": arguments["quote"],
        "line": arguments.get("line"),
        "since": arguments.get("start_time"),
    }
    if call.name == "update_persona":
        name, profile = arguments["name"], arguments["profile"]
        return {
            **common,
            "kind": "fact",
            "subject": name,
            "relation": "is",
            "value": profile,
            "text": profile,
        }
    text = arguments["fact" if call.name == "create_fact" else "experience"]
    kind = "fact" if call.name == "create_fact" else "experience"
    parts = {name: arguments[name] for name in ("subject", "relation", "value")}
    return {**common, **parts, "kind": kind, "text": text}
