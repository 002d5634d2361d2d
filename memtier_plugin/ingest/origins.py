"""Give messages their origin, where who hands them over does not say it.

Results that strangers wrote are external.  What MemTier itself showed is the system's word,
whoever hands it back: its tools' results, blocks and quoted lines prove nothing and are not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.text.speech import only_acknowledges
from memtier_plugin.trust.fence import remove_quotes, says_more
from memtier_plugin.trust.tool_calls import is_own_tool, unwrap_call
from memtier_plugin.trust.tool_origins import brings_external_text


def with_origins(messages: Sequence[Message], local: Sequence[str]) -> Sequence[Message]:
    """Return the messages of a run with their origins, and without what MemTier showed.

    Args:
        local: the tools of `trust.local_tools`.
    """
    calls: dict[str | None, ToolCall] = {}
    marked = []
    for message in messages:
        calls.update({call.call_id: call for call in message.tool_calls if call.call_id})
        marked.append(
            _result(message, calls, local) if message.role == "tool" else _spoken(message)
        )
    return marked


def _result(
    message: Message, calls: Mapping[str | None, ToolCall], local: Sequence[str]
) -> Message:
    tool = message.tool or ToolCall(name="tool")
    call = calls.get(tool.call_id, tool)
    origin = message.origin
    if origin is None and brings_external_text(
        call.name, call.arguments, message.content, local=local
    ):
        origin = "external"
    elif origin in (None, "tool") and (
        _is_own(call) or is_own_tool(tool.name) or remove_quotes(message.content) != message.content
    ):
        origin = "system"
    return message if origin == message.origin else replace(message, origin=origin)


def _spoken(message: Message) -> Message:
    if message.origin == "external":
        return message
    content = remove_quotes(message.content)
    if content != message.content:
        if not says_more(content):
            return replace(message, origin="system")
        message = replace(message, content=content)
    says = content.strip() and not only_acknowledges(content)
    if message.tool_calls and not says and all(map(_is_own, message.tool_calls)):
        return replace(message, origin="system")
    return message


def _is_own(call: ToolCall) -> bool:
    return is_own_tool(unwrap_call(call.name, call.arguments)[0])
