"""Tool calls that a model writes into its answer: what counts as one, and that nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.providers.prompting import (
    INTEGER,
    STRING,
    CalledTools,
    ModelToolCall,
    object_of,
    parse_tool_calls,
)
from tests.cases import each_case

TOOLS = {"add": object_of(text=STRING), "drop": object_of(id=INTEGER)}
ADD: dict[str, Any] = {"name": "add", "arguments": {"text": "a"}}
DROP: dict[str, Any] = {"name": "drop", "arguments": {"id": 1}}


def block(value: Any) -> str:
    """Return calls as a model writes them."""
    return f"<tool_call>{json.dumps(value)}</tool_call>"


@each_case(
    ("text", "names", "rejected"),
    [
        (block(ADD), ["add"], 0),
        (block(ADD) + "\n" + block(DROP), ["add", "drop"], 0),
        (block([ADD, DROP]), ["add", "drop"], 0),
        (f"Well. {block(ADD)} Done.", ["add"], 0),
        (f"<think>{block(DROP)}</think>{block(ADD)}", ["add"], 0),
        (f"<tool_call>{json.dumps(ADD)}", ["add"], 0),
        (f"<tool_call>{json.dumps(ADD)}<tool_call>{json.dumps(DROP)}", ["add", "drop"], 0),
        (block({"name": "add", "arguments": '{"text": "a"}'}), ["add"], 0),
        (block([]), [], 0),
        (block({"name": "purge", "arguments": {}}), [], 1),
        (block({"name": "add", "arguments": {"text": 1}}), [], 1),
        (block({"name": "add"}), [], 1),
        ("<tool_call>{add}</tool_call>" + block(ADD), ["add"], 1),
    ],
)
def test_what_is_a_call(text: str, names: list[str], rejected: int) -> None:
    """Calls are read in their order, lists and missing tags included; what is none is counted."""
    called = parse_tool_calls(text, TOOLS)
    assert ([call.name for call in called.calls], called.rejected) == (names, rejected)


@pytest.mark.parametrize("text", ["", "add(a)", json.dumps(ADD), f"<think>{block(ADD)}"])
def test_an_answer_without_a_call_is_a_bad_one(text: str) -> None:
    """Neither bare JSON nor a call that was only thought of counts."""
    with pytest.raises(BadAnswer):
        parse_tool_calls(text, TOOLS)


@given(st.lists(st.text()), st.text())
def test_calls_with_any_text_are_read_back(texts: list[str], around: str) -> None:
    """What is written as calls is read as such, whatever its words, and nothing else is."""
    texts = [text.replace("tool_call>", "") for text in texts]
    around = around.replace("<", "")
    calls = tuple(ModelToolCall("add", {"text": text}) for text in texts)
    written = [{"name": call.name, "arguments": call.arguments} for call in calls]
    answer = around + block(written) + around
    assert parse_tool_calls(answer, TOOLS) == CalledTools(calls[:100], 0)
