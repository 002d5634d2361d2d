"""What agent frameworks call a message is read by its shape: one run is the same in every form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import Message
from memtier_plugin.ingest.messages import parse_messages, unknown_keys
from tests.cases import each_case
from tests.frameworks import one_run


@each_case("name", one_run.FORMS)
def test_one_run_in_the_form_of_each_framework(name: str) -> None:
    """As the real package dumped it, the run has its words, its call, its failure and no more."""
    payload = json.loads((one_run.PAYLOADS / f"{name}.json").read_text("utf-8"))
    assert one_run.summary(payload["messages"]) == one_run.RUN
    assert unknown_keys(payload["messages"]) == ()


@pytest.mark.parametrize("form", [one_run.chat_completions, one_run.responses])
def test_openai_objects(form: Any) -> None:
    """The openai client's objects are taken as they are, not only as dictionaries."""
    assert one_run.summary(form()) == one_run.RUN


def test_a_run_of_objects_is_recorded_once(home: Path) -> None:
    """`end_run` takes them, credits by their outcome, and knows them when they come again."""
    with MemTier.open(home, "p") as memory:
        memory.record(
            [{"role": "user", "content": "To restart the queue run dockctl flush."}], session_id="a"
        )
        memory.recall("restart the queue", session_id="s", run_id="r", purpose="inject")
        first = memory.end_run(one_run.responses(), session_id="s", run_id="r")
        assert (len(first.entries), first.reward) == (4, -0.5)
        again = memory.end_run(one_run.responses(), session_id="s", run_id="r")
        assert not again.entries


def brief(*messages: Any) -> list[tuple[Any, ...]]:
    """Return role, content and what is known of calls and results."""
    return [
        (m.role, m.content, *((c.name, c.arguments) for c in m.tool_calls))
        if m.tool is None
        else (m.role, m.content, m.tool.name, m.tool.ok, m.tool.exit_code)
        for m in parse_messages(messages)
    ]


def test_shell_of_the_responses_api() -> None:
    """A shell's result has the exit code that the command had."""
    call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls /nix"]}}
    outcome = {"type": "exit", "exit_code": 2}
    output = [{"stdout": "", "stderr": "no such file", "outcome": outcome}]
    result = {"type": "shell_call_output", "call_id": "c", "output": output}
    called, answered = brief(call, result)
    assert called == ("assistant", "", ("shell", '{"commands": ["ls /nix"]}'))
    assert "no such file" in answered[1] and answered[2:] == ("shell", False, 2)


def test_what_the_server_ran_itself() -> None:
    """A hosted call is a call and a result, though it is one item."""
    item = {"type": "mcp_call", "id": "m", "name": "lookup", "server_label": "crm"}
    from openai.types.responses.response_output_item import McpCall  # a second of each worker

    ran = McpCall.model_validate({**item, "arguments": "{}", "output": "Ada"})
    assert brief(ran) == [
        ("assistant", "", ("lookup", "{}")),
        ("tool", "Ada", "lookup", None, None),
    ]
    failed = brief({**item, "arguments": "{}", "error": "timed out"})
    assert failed[1] == ("tool", "timed out", "lookup", False, None)
    search = {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "tide"}}
    assert brief(search) == [
        ("assistant", "", ("web_search", '{"type": "search", "query": "tide"}'))
    ]
    picture = {"type": "image_generation_call", "id": "i", "result": "iVBORw0KGgo" * 99}
    assert "iVBOR" not in str(brief(picture))


@pytest.mark.parametrize("status", ["success", None])
def test_success_that_nobody_looked_at(status: str | None) -> None:
    """LangChain says "success" of whatever did not raise, so a result is judged by its words."""
    result = {"type": "tool", "content": "exit code: 3", "tool_call_id": "c", "status": status}
    assert brief(result) == [("tool", "exit code: 3", "tool", None, None)]


def test_results_that_come_together() -> None:
    """AG2 puts the results of several calls into one message: each is a result."""
    results = [{"tool_call_id": str(n), "role": "tool", "content": f"{n}"} for n in (1, 2)]
    message = {"role": "tool", "content": "1\n\n2", "tool_responses": results}
    assert [each[1] for each in brief(message)] == ["1", "2"]


def test_calls_among_the_parts() -> None:
    """Anthropic's calls stand among the parts of the content, and are calls nonetheless."""
    used = {"type": "tool_use", "id": "t", "name": "shell", "input": {"command": "ls"}}
    mixed = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, used]}
    done = {"type": "tool_result", "tool_use_id": "t", "content": "a b", "is_error": False}
    assert brief(mixed, {"role": "user", "content": [done]}) == [
        ("assistant", "I look.", ("shell", '{"command": "ls"}')),
        ("tool", "a b", "shell", True, None),
    ]


def test_pieces_of_a_stream_and_thoughts() -> None:
    """What is no word of anybody leaves nothing: pieces that come again whole, thoughts, lists."""
    content = {"role": "model", "parts": [{"text": "Go"}]}
    items = [
        {"content": content, "author": "ops", "partial": True},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "ModelClientStreamingChunkEvent", "source": "a", "content": "Go"},
        {"parts": [{"part_kind": "thinking", "content": "Hm."}], "kind": "response"},
        {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": []},
    ]
    assert parse_messages(items) == ()


def test_who_spoke() -> None:
    """Where several agents speak, each keeps its name; the user and the one assistant have none."""
    event = {"content": {"role": "model", "parts": [{"text": "Done."}]}, "author": "planner"}
    reply = {"type": "TextMessage", "source": "critic", "content": "No."}
    asked = {"type": "TextMessage", "source": "user", "content": "Go."}
    assert [(m.role, m.speaker) for m in parse_messages([event, reply, asked])] == [
        ("assistant", "planner"),
        ("assistant", "critic"),
        ("user", None),
    ]


def test_a_shape_that_nobody_knows_is_refused() -> None:
    """What is no message is named with its place, and nothing is guessed."""

    @dataclass
    class Note:
        text: str = "x"

    for nonsense in (Note(), object(), {"type": "note", "content": "x"}, 7, Note, None):
        with pytest.raises(MessageError, match="message 1: "):
            parse_messages([Message(role="user", content="x"), nonsense])


def test_endless_nesting_is_no_way_to_break_it() -> None:
    """A message that holds itself is refused, or read as far as anybody would read it."""
    loop: dict[str, Any] = {"role": "user", "content": "x"}
    loop["metadata"] = loop
    assert brief(loop) == [("user", "x")]
