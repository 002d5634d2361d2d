"""Models of each framework, all of which ask the loopback server what to say.

What speaks OpenAI's chat API is the framework's own client of it, over HTTP; LlamaIndex and ADK
have none that installs beside the others, so their models here ask the server's code.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from tests.loopback import Loopback


def openai_agents(server: Loopback) -> Any:
    """Return a model of the OpenAI Agents SDK."""
    from agents import OpenAIChatCompletionsModel, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=server.base_url, api_key="none")
    return OpenAIChatCompletionsModel("any", client)


def langchain(server: Loopback) -> Any:
    """Return a model of LangChain."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="any", base_url=server.base_url, api_key="none")


def pydantic_ai(server: Loopback) -> Any:
    """Return a model of pydantic-ai."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel("any", provider=OpenAIProvider(server.base_url, api_key="none"))


def autogen(server: Loopback) -> Any:
    """Return a model client of AutoGen."""
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info = {
        **dict.fromkeys(("vision", "json_output", "structured_output"), False),
        **{"function_calling": True, "family": "unknown"},
    }
    return OpenAIChatCompletionClient(
        model="any", base_url=server.base_url, api_key="none", model_info=info
    )


def ag2(server: Loopback) -> Any:
    """Return a model of AG2."""
    from ag2.config import OpenAIConfig

    return OpenAIConfig("any", base_url=server.base_url, api_key="none")


def crewai(server: Loopback) -> Any:
    """Return a model of CrewAI."""
    from crewai import LLM

    return LLM(model="openai/any", base_url=server.base_url, api_key="none")


def llama_index(server: Loopback) -> Any:
    """Return a model of LlamaIndex."""
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    def respond(messages: list[Any], *_: Any, **__: Any) -> Any:
        content = _ask(server, [(str(m.role.value), m.content or "") for m in messages])
        if isinstance(content, str):
            return ChatMessage(role="assistant", content=content)
        call = ToolCallBlock(tool_call_id="c1", tool_name=content[0], tool_kwargs=content[1])
        return ChatMessage(role="assistant", blocks=[call])

    return MockFunctionCallingLLM(response_generator=respond)


def google_adk(server: Loopback) -> Any:
    """Return a model of ADK."""
    from google.adk.models import BaseLlm, LlmResponse
    from google.genai.types import Content, FunctionCall, Part

    class Asking(BaseLlm):
        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[Any, None]:
            content = _ask(
                server,
                [
                    ("tool" if part.function_response else each.role, part.text or "")
                    for each in llm_request.contents
                    for part in each.parts
                ],
            )
            part = (
                Part(text=content)
                if isinstance(content, str)
                else Part(function_call=FunctionCall(name=content[0], args=content[1]))
            )
            yield LlmResponse(content=Content(role="model", parts=[part]))

    return Asking(model="any")


def _ask(server: Loopback, texts: list[tuple[str, str]]) -> Any:
    """Return what the server's model says to messages: a text, or a tool's name and arguments."""
    import json

    body = {"messages": [{"role": role, "content": text} for role, text in texts]}
    server.requests.append({"body": body})
    text = server.say(body)
    if not text.startswith("<tool_call>"):
        return text
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    return call["name"], call["arguments"]


MODELS: Final[dict[str, Callable[[Loopback], Any]]] = {
    "openai_agents": openai_agents,
    "langchain": langchain,
    "pydantic_ai": pydantic_ai,
    "llama_index": llama_index,
    "autogen": autogen,
    "ag2": ag2,
    "google_adk": google_adk,
    "crewai": crewai,
}
