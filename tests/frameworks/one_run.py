"""One run, written down in the message objects of each framework, by the framework itself.

`python -m tests.frameworks.one_run` writes what those that are installed dump to
tests/payloads/frameworks, with their versions; the fast tests read it there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.records import Message
from memtier_plugin.credit.outcomes import judge_outcome
from memtier_plugin.ingest.messages import parse_messages

PAYLOADS: Final = Path(__file__).parents[1] / "payloads" / "frameworks"
ASKED: Final = "Restart the queue."
ARGUMENTS: Final = {"command": "dockctl flush"}
FAILURE: Final = "no such queue: höhe"
ANSWER: Final = "There is no such queue."
# What each form says: who said what, the call with its arguments, and that it failed.
RUN: Final = [
    ("user", ASKED),
    ("assistant", "", "shell", ARGUMENTS),
    ("tool", FAILURE, "shell", False),
    ("assistant", ANSWER),
]


def summary(messages: list[Any]) -> list[tuple[Any, ...]]:
    """Return what messages say once they are parsed, as `RUN` has it; system messages are left."""
    return [_said(message) for message in parse_messages(messages) if message.role != "system"]


def _said(message: Message) -> tuple[Any, ...]:
    if message.tool:  # some state how it fared, some leave it to the content
        assert FAILURE in message.content
        ok = judge_outcome(message.tool, message.content).ok
        return (message.role, FAILURE, message.tool.name, ok)
    calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return (message.role, message.content, *(part for call in calls for part in call))


def chat_completions() -> list[Any]:
    """Return openai's own objects of the chat API; a result of a tool has no object there."""
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageFunctionToolCall

    function = {"name": "shell", "arguments": json.dumps(ARGUMENTS)}
    call = ChatCompletionMessageFunctionToolCall(id="c1", type="function", function=function)
    return [
        {"role": "user", "content": ASKED},
        ChatCompletionMessage(role="assistant", content=None, tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c1", "content": FAILURE, "is_error": True},
        ChatCompletionMessage(role="assistant", content=ANSWER),
    ]


def responses() -> list[Any]:
    """Return items of the Responses API, as a loop over `response.output` has them."""
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
        ResponseReasoningItem,
    )

    text = ResponseOutputText(type="output_text", text=ANSWER, annotations=[])
    return [
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        ResponseReasoningItem(id="rs", type="reasoning", summary=[]),
        ResponseFunctionToolCall(
            type="function_call", call_id="c1", name="shell", arguments=json.dumps(ARGUMENTS)
        ),
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": FAILURE,
            "status": "incomplete",
        },
        ResponseOutputMessage(
            id="m", type="message", role="assistant", status="completed", content=[text]
        ),
    ]


def openai_agents() -> list[Any]:
    """Return what `RunResult.new_items` has of these items, after the input."""
    from agents import Agent
    from agents.items import MessageOutputItem, ToolCallItem, ToolCallOutputItem

    asked, _, call, output, answer = responses()
    agent: Any = Agent(name="ops")
    return [
        asked,
        ToolCallItem(agent=agent, raw_item=call),
        ToolCallOutputItem(agent=agent, raw_item=output, output=FAILURE),
        MessageOutputItem(agent=agent, raw_item=answer),
    ]


def langchain() -> list[Any]:
    """Return LangChain's messages, as the state of a graph has them."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    call = {"name": "shell", "args": ARGUMENTS, "id": "c1"}
    return [
        SystemMessage("Be brief."),
        HumanMessage(ASKED),
        AIMessage("", tool_calls=[call]),
        ToolMessage(FAILURE, tool_call_id="c1", status="error"),
        AIMessage([{"type": "text", "text": ANSWER}]),
    ]


def pydantic_ai() -> list[Any]:
    """Return pydantic-ai's messages, as `result.new_messages()` has them."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    failed = ToolReturnPart("shell", FAILURE, "c1", outcome="failed")
    return [
        ModelRequest([SystemPromptPart("Be brief."), UserPromptPart([ASKED])]),
        ModelResponse([ThinkingPart("Hm."), ToolCallPart("shell", ARGUMENTS, "c1")]),
        ModelRequest([failed]),
        ModelResponse([TextPart(ANSWER)]),
    ]


def google_adk() -> list[Any]:
    """Return ADK's events, as a session has them."""
    from google.adk.events import Event
    from google.genai.types import Content, FunctionCall, FunctionResponse, Part

    called = FunctionCall(id="c1", name="shell", args=ARGUMENTS)
    failed = FunctionResponse(id="c1", name="shell", response={"error": FAILURE})
    contents = [
        ("user", Content(role="user", parts=[Part(text=ASKED)])),
        ("ops", Content(role="model", parts=[Part(function_call=called)])),
        ("ops", Content(role="user", parts=[Part(function_response=failed)])),
        ("ops", Content(role="model", parts=[Part(text="Hm.", thought=True), Part(text=ANSWER)])),
    ]
    return [Event(author=author, content=content) for author, content in contents]


def llama_index() -> list[Any]:
    """Return LlamaIndex' messages, as its memory has them."""
    from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock

    call = ToolCallBlock(tool_call_id="c1", tool_name="shell", tool_kwargs=ARGUMENTS)
    return [
        ChatMessage(role="user", content=ASKED),
        ChatMessage(role="assistant", blocks=[call]),
        ChatMessage(
            role="tool",
            content=f"Error: {FAILURE}",
            additional_kwargs={"tool_call_id": "c1"},
        ),
        ChatMessage(role="assistant", blocks=[TextBlock(text=ANSWER)]),
    ]


def autogen() -> list[Any]:
    """Return AutoGen's messages, as `TaskResult.messages` has them."""
    from autogen_agentchat.messages import (
        TextMessage,
        ThoughtEvent,
        ToolCallExecutionEvent,
        ToolCallRequestEvent,
    )
    from autogen_core import FunctionCall
    from autogen_core.models import FunctionExecutionResult

    call = FunctionCall(id="c1", name="shell", arguments=json.dumps(ARGUMENTS))
    result = FunctionExecutionResult(content=FAILURE, name="shell", call_id="c1", is_error=True)
    return [
        TextMessage(source="user", content=ASKED),
        ThoughtEvent(source="assistant", content="Hm."),
        ToolCallRequestEvent(source="assistant", content=[call]),
        ToolCallExecutionEvent(source="assistant", content=[result]),
        TextMessage(source="assistant", content=ANSWER),
    ]


def autogen_core() -> list[Any]:
    """Return AutoGen's messages, as the context of a model has them."""
    from autogen_core import FunctionCall
    from autogen_core.models import (
        AssistantMessage,
        FunctionExecutionResult,
        FunctionExecutionResultMessage,
        SystemMessage,
        UserMessage,
    )

    call = FunctionCall(id="c1", name="shell", arguments=json.dumps(ARGUMENTS))
    result = FunctionExecutionResult(content=FAILURE, name="shell", call_id="c1", is_error=True)
    return [
        SystemMessage(content="Be brief."),
        UserMessage(source="user", content=ASKED),
        AssistantMessage(source="assistant", content=[call], thought="Hm."),
        FunctionExecutionResultMessage(content=[result]),
        AssistantMessage(source="assistant", content=ANSWER),
    ]


def ag2() -> list[Any]:
    """Return AG2's events, as the history of a stream has them."""
    from ag2.events import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        ToolCallEvent,
        ToolCallsEvent,
        ToolErrorEvent,
        ToolResultsEvent,
    )

    call = ToolCallEvent("shell", id="c1", arguments=json.dumps(ARGUMENTS))
    return [
        ModelRequest.ensure_request([ASKED]),
        ModelResponse(tool_calls=ToolCallsEvent([call])),
        ToolResultsEvent([ToolErrorEvent.from_call(call, ValueError(FAILURE))]),
        ModelResponse(ModelMessage(ANSWER)),
    ]


# By the name of a payload: the distribution that it is of, and who writes it down.
FORMS: Final[dict[str, tuple[str, Callable[[], list[Any]]]]] = {
    "chat_completions": ("openai", chat_completions),
    "responses": ("openai", responses),
    "openai_agents": ("openai-agents", openai_agents),
    "langchain": ("langchain-core", langchain),
    "pydantic_ai": ("pydantic-ai-slim", pydantic_ai),
    "google_adk": ("google-adk", google_adk),
    "llama_index": ("llama-index-core", llama_index),
    "ag2": ("ag2", ag2),
    "autogen": ("autogen-agentchat", autogen),
    "autogen_core": ("autogen-core", autogen_core),
}


def dump(message: Any) -> Any:
    """Return a message as JSON has it, by the means of its own framework."""
    if isinstance(message, dict):
        return message
    if hasattr(message, "raw_item"):
        return {"type": message.type, "raw_item": dump(message.raw_item)}
    if hasattr(message, "to_dict"):
        return message.to_dict()
    if hasattr(message, "model_dump"):
        return message.model_dump(mode="json")
    from pydantic import TypeAdapter

    return TypeAdapter(type(message)).dump_python(message, mode="json")


def main() -> None:
    """Write the payloads of the frameworks that are installed."""
    for name, (distribution, form) in FORMS.items():
        try:
            messages = form()
        except ImportError:
            continue
        payload = {"of": distribution, "version": version(distribution)}
        payload["messages"] = [dump(message) for message in messages]
        path = PAYLOADS / f"{name}.json"
        path.write_text(json.dumps(payload, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
