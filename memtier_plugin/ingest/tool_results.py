"""Give results of tools their origin, where who hands them over does not say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.trust.tool_origins import brings_external_text


def with_origins(messages: Sequence[Message], local: Sequence[str]) -> Sequence[Message]:
    """Return the messages of a run; results that strangers wrote are external.

    Args:
        local: the tools of `trust.local_tools`.
    """
    if all(message.tool is None or message.origin for message in messages):
        return messages
    asked: dict[str | None, ToolCall] = {}
    marked = []
    for message in messages:
        asked.update({call.call_id: call for call in message.tool_calls if call.call_id})
        if message.tool and message.origin is None:
            call = asked.get(message.tool.call_id, message.tool)
            if brings_external_text(call.name, call.arguments, message.content, local=local):
                message = replace(message, origin="external")
        marked.append(message)
    return marked
