"""Runs with a tool that fails, in the real frameworks: its outcome blames the lines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.events import CreditEvent
from memtier_plugin.hooks import host_hooks
from memtier_plugin.trust.escaping import FENCE
from tests.frameworks.models import MODELS
from tests.loopback import Loopback
from tests.processes import PATIENCE

pytestmark = pytest.mark.framework

CALL = "<tool_call>" + json.dumps({"name": "shell", "arguments": {"command": "dockctl flush"}})
ASKED = "Please restart the queue with dockctl flush."


def shell(command: str) -> str:
    """Run a command."""
    raise ValueError(f"{command}: no such queue")


def openai_agents(model: Any) -> None:
    """Run an agent of the OpenAI Agents SDK."""
    from agents import Agent, Runner, function_tool

    from memtier_plugin.frameworks.openai_agents import MemTierSession

    memory = MemTierSession("s", project="harbor")
    agent = Agent(name="ops", model=model, tools=[function_tool(shell)])
    asyncio.run(Runner.run(agent, ASKED, session=memory, run_config=memory.run_config))


def langchain(model: Any) -> None:
    """Run an agent of LangChain."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import ToolCallLimitMiddleware, wrap_tool_call
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import tool

    from memtier_plugin.frameworks.langchain import MemTierMiddleware

    @wrap_tool_call
    def catch(request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except ValueError as error:
            return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")

    middleware = [MemTierMiddleware(project="harbor"), catch, ToolCallLimitMiddleware(run_limit=3)]
    create_agent(model, [tool(shell)], middleware=middleware).invoke(
        {"messages": [("user", ASKED)]}
    )


def pydantic_ai(model: Any) -> None:
    """Run an agent of pydantic-ai."""
    from pydantic_ai import Agent, ModelRetry

    from memtier_plugin.frameworks.pydantic_ai import MemTierCapability

    agent = Agent(model, capabilities=[MemTierCapability(project="harbor")])

    @agent.tool_plain(name="shell")
    def retry(command: str) -> str:
        raise ModelRetry(f"{command}: no such queue")

    agent.run_sync(ASKED)


def llama_index(model: Any) -> None:
    """Run an agent of LlamaIndex."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.tools import FunctionTool

    from memtier_plugin.frameworks.llama_index import MemTierMemory

    async def work() -> None:
        agent = FunctionAgent(llm=model, tools=[FunctionTool.from_defaults(shell)])
        await agent.run(ASKED, memory=MemTierMemory("s", project="harbor"))

    asyncio.run(work())


def autogen(model: Any) -> None:
    """Run an agent of AutoGen."""
    from autogen_agentchat.agents import AssistantAgent

    from memtier_plugin.frameworks.autogen import MemTierContext

    context = MemTierContext("s", project="harbor")
    agent = AssistantAgent(
        "ops", model, tools=[shell], model_context=context, reflect_on_tool_use=True
    )
    asyncio.run(agent.run(task=ASKED))


def ag2(model: Any) -> None:
    """Run an agent of AG2."""
    from ag2 import Agent

    from memtier_plugin.frameworks.ag2 import MemTierMiddleware

    middleware = [MemTierMiddleware(project="harbor")]
    asyncio.run(Agent("ops", config=model, tools=[shell], middleware=middleware).ask(ASKED))


def google_adk(model: Any) -> None:
    """Run an agent of ADK, whose tools say in a field that they failed."""
    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner

    from memtier_plugin.frameworks.google_adk import MemTierPlugin

    def failing(command: str) -> dict[str, str]:
        return {"error": f"{command}: no such queue"}

    failing.__name__ = "shell"
    agent = LlmAgent(name="ops", model=model, tools=[failing])
    runner = InMemoryRunner(agent, plugins=[MemTierPlugin(project="harbor")])
    asyncio.run(runner.run_debug(ASKED))


def crewai(model: Any) -> None:
    """Run a crew of CrewAI."""
    from crewai import Agent, Crew, Task
    from crewai.tools import tool

    from memtier_plugin.frameworks.crewai import MemTierHooks

    hooks = MemTierHooks(project="harbor")
    agent = Agent(
        role="ops", goal="Keep it running.", backstory="-", llm=model, tools=[tool("shell")(shell)]
    )
    task = Task(description=ASKED, expected_output="One sentence.", agent=agent)
    Crew(agents=[agent], tasks=[task]).kickoff()
    hooks.unregister()


RUNS: dict[str, Callable[[Any], None]] = {
    function.__name__: function
    for function in (
        *(openai_agents, langchain, pydantic_ai, llama_index, autogen, ag2, google_adk, crewai),
    )
}


@pytest.mark.parametrize("name", RUNS)
def test_a_tool_that_fails(name: str, home: Path) -> None:
    """Call, failure and answer are one run, each once, and the injected line is blamed for it."""
    with MemTier.open(home, "harbor", f"{name.replace('_', '-')}.main") as memory:
        memory.record(
            [{"role": "user", "content": "To restart the queue we run dockctl flush."}],
            session_id="monday",
            run_id="first",
            sender="debug_user_id" if name == "google_adk" else None,
        )

    def answer(body: dict[str, Any]) -> str:
        last = body["messages"][-1]
        failed = last["role"] == "tool" or "no such queue" in json.dumps(last)
        return "There is no such queue." if failed else f"{CALL}</tool_call>"

    with Loopback(native_calls=True) as server:
        server.answers(answer)
        try:
            RUNS[name](MODELS[name](server))
        except ModuleNotFoundError as error:
            pytest.skip(f"{error.name} is not installed")
        requests = [json.dumps(seen["body"]) for seen in server.requests]
    assert [request.count(f"<{FENCE}") for request in requests] == [1] * len(requests)
    host_hooks.workers.drain(PATIENCE)
    with MemTier.open(home, "harbor", f"{name.replace('_', '-')}.main") as memory:
        entries = [e for e in memory.entries() if e.run_id != "first" and e.role != "system"]
        assert [entry.role for entry in entries] == ["user", "assistant", "tool", "assistant"]
        asked, call, result, last = (entry.content for entry in entries)
        assert asked == ASKED and "dockctl flush" in call
        assert re.search("no such queue|error", result)  # some hide from the model what it was
        assert last == "There is no such queue."
        assert len({entry.run_id for entry in entries}) == 1
        credits = [CreditEvent.of(event) for event in memory.events(kinds=[CreditEvent.KIND])]
        # LlamaIndex tells its memory the words of an error alone, and these are any words.
        assert [credit.reward for credit in credits] == ([] if name == "llama_index" else [-0.5])
