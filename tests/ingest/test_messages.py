"""What a caller may give as messages: the OpenAI chat shapes, and a clear no to everything else."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.ingest.messages import (
    ROLE_ALIASES,
    flatten_content,
    parse_message,
    parse_messages,
    unknown_keys,
)
from tests.cases import each_case

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["content", "name", "tool_calls", "tool_call_id", "observed_at", "origin", "exit_code"]


def test_openai_run() -> None:
    """A run as the chat API has it: calls with arguments, and each result by its call's name."""
    call = {"id": "c1", "type": "function", "function": {"name": "sh", "arguments": '{"x": 1}'}}
    parsed = parse_messages(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Deploy it.", "name": "Ada"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "done", "exit_code": 0},
            {"role": "assistant", "content": "Deployed."},
        ]
    )
    assert parsed == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="Deploy it.", speaker="Ada"),
        Message(
            role="assistant",
            content="",
            tool_calls=(ToolCall(name="sh", call_id="c1", arguments='{"x": 1}'),),
        ),
        Message(
            role="tool",
            content="done",
            tool=ToolCall(name="sh", call_id="c1", ok=True, exit_code=0),
        ),
        Message(role="assistant", content="Deployed."),
    )


@each_case(("given_role", "role"), ROLE_ALIASES.items())
def test_roles(given_role: str, role: str) -> None:
    """Every host's name of a role is known, in any case."""
    assert parse_message({"role": given_role.upper(), "content": "x"}).role == role


@each_case(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([], ""),
        (b"bytes \xff", "bytes \ufffd"),
        (["one", "two"], "one\ntwo"),
        ([{"type": "text", "text": "one"}, {"type": "input_text", "text": "two"}], "one\ntwo"),
        (
            [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
            "Look:\n[image]",
        ),
        ([{"type": "image", "caption": "a red bike"}], "[image: a red bike]"),
        ([{"type": "input_image", "alt": "a cat"}], "[image: a cat]"),
        ([{"type": "input_audio", "input_audio": {"data": "AAAA"}}], "[audio]"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes."}], "Yes."),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "name": "sh"}], ""),
    ],
)
def test_content(content: Any, text: str) -> None:
    """Text stays, parts are joined, pictures and sounds are named, thoughts are left out."""
    assert flatten_content(content) == text


@each_case(
    ("result", "ok", "code"),
    [
        ({}, None, None),
        ({"is_error": False}, True, None),
        ({"is_error": True}, False, None),
        ({"isError": True}, False, None),
        ({"ok": True}, True, None),
        ({"ok": False, "is_error": False}, False, None),
        ({"exit_code": 0}, True, 0),
        ({"exit_code": 3}, False, 3),
        ({"exit_code": 3, "is_error": False}, False, 3),
        ({"exit_code": 3, "ok": True}, False, 3),
        ({"exit_code": 0, "is_error": True}, False, 0),
        ({"exit_code": True}, None, None),
        ({"exit_code": None, "is_error": None}, None, None),
    ],
)
def test_outcome_of_a_tool(result: dict[str, Any], ok: bool | None, code: int | None) -> None:
    """A bad exit code beats an error flag; what nobody said is unknown, not a success."""
    tool = parse_message({"role": "tool", "content": "x", **result}).tool
    assert tool == ToolCall(name="tool", ok=ok, exit_code=code)


@each_case(
    "given_time",
    [
        "2026-01-05T09:00:00Z",
        "2026-01-05T10:00:00+01:00",
        "2026-01-05 09:00",
        1767603600,
        1767603600000,
        datetime(2026, 1, 5, 9),
        datetime(2026, 1, 5, 9, tzinfo=UTC),
    ],
)
@each_case("key", ["observed_at", "timestamp"])
def test_times(given_time: Any, key: str) -> None:
    """A time may be ISO text, seconds, milliseconds or a datetime; without a zone it is UTC."""
    parsed = parse_message({"role": "user", "content": "x", key: given_time})
    assert parsed.observed_at == datetime(2026, 1, 5, 9, tzinfo=UTC)


def test_tool_arguments_may_be_an_object() -> None:
    """Arguments given as an object are kept as JSON, and a flat call is read like a nested one."""
    calls = [{"name": "sh", "arguments": {"path": "/ü"}}, ToolCall(name="done")]
    parsed = parse_message({"role": "assistant", "tool_calls": calls})
    assert parsed.tool_calls == (ToolCall(name="sh", arguments='{"path": "/ü"}'), calls[1])


def test_a_tools_results_among_the_parts() -> None:
    """What a tool found is the tool's, though it comes as a part of what the user sends."""
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "9"}]}
    calls = [{"id": "c", "function": {"name": "count", "arguments": "{}"}}]
    parts = [{**result, "is_error": True}, {"type": "text", "text": "Is that so?"}]
    assistant, tool_message, user, later = parse_messages(
        [
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "user", "content": parts},
            {"role": "user", "content": [result]},
        ]
    )
    assert assistant.tool_calls and user.content == "Is that so?"
    assert (
        tool_message.role,
        tool_message.content,
        tool_message.tool and tool_message.tool.name,
    ) == ("tool", "9", "count")
    assert tool_message.tool and tool_message.tool.ok is False
    assert (later.role, later.content) == ("tool", "9")


def test_a_file_among_the_parts() -> None:
    """The text of a file that the user sends is from outside; what is said or spoken is not."""
    parts = [
        {"type": "file", "text": "The gate is open."},
        {"type": "input_text", "text": "Is it?"},
        {"type": "audio_transcription", "text": "I ask you."},
        {"type": "image_url"},
    ]
    file, question = parse_messages([{"role": "user", "name": "Mara", "content": parts}])
    assert (file.role, file.origin, file.content) == ("user", "external", "The gate is open.")
    assert (question.origin, question.content) == (None, "Is it?\nI ask you.\n[image]")


@pytest.mark.parametrize("key", ["speaker", "name"])
def test_who_spoke_has_two_names(key: str) -> None:
    """`speaker`, as our own records call it, and OpenAI's `name` are the same."""
    message = {"role": "user", "content": "I moved to Porto.", key: "Mara"}
    assert parse_message(message).speaker == "Mara"


def test_a_tools_name_is_no_speaker() -> None:
    """For a tool's result `name` is the tool; a `speaker` beside it changes nothing."""
    tool = parse_message({"role": "tool", "content": "x", "name": "sh", "speaker": "Mara"})
    assert (tool.speaker, tool.tool and tool.tool.name) == (None, "sh")


def test_unknown_keys_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """A misspelt key loses no turn: it is named in the log, once for each key."""
    caplog.set_level(logging.WARNING)
    turns = [{"role": "user", "content": "x", "spaeker": "Mara", "when": "today"}] * 2
    assert [message.content for message in parse_messages(turns)] == ["x", "x"]
    parse_messages(turns)
    assert unknown_keys(turns) == ("spaeker", "when")
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "messages have an unknown key 'spaeker'",
        "messages have an unknown key 'when'",
    ]


def test_what_chat_apis_and_hosts_add_is_no_unknown_key(caplog: pytest.LogCaptureFixture) -> None:
    """Answers of chat APIs, and every message of the observed payloads, are taken in silence."""
    caplog.set_level(logging.WARNING)
    answer = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "id": "1"}
    payloads = Path(__file__).parents[1] / "payloads"
    documents = [json.loads(file.read_text("utf-8")) for file in payloads.rglob("*.json")]
    observed = [*_messages_in(documents)]
    assert len(observed) > 20
    assert unknown_keys([answer, *observed]) == ()
    parse_messages([answer])
    assert not caplog.records


def _messages_in(document: Any) -> Iterator[dict[str, Any]]:
    """Yield every message of a JSON document."""
    if isinstance(document, dict):
        if "role" in document and "content" in document:
            yield document
        document = [*document.values()]
    if isinstance(document, list):
        for part in document:
            yield from _messages_in(part)


def test_own_records_pass() -> None:
    """A Message is taken as it is, also among mappings."""
    mine = Message(role="user", content="x", origin="external")
    assert parse_messages([mine, {"role": "user", "content": "y"}])[0] is mine


@each_case(
    ("broken", "message"),
    [
        ("text", "a str, not a mapping"),
        (None, "a NoneType, not a mapping"),
        ({}, "the role None is none of user"),
        ({"role": "robot", "content": "x"}, "the role 'robot' is none of"),
        ({"role": ["user"], "content": "x"}, "is none of"),
        ({"role": "user", "content": 5}, "the content is a int"),
        ({"role": "user", "content": {"text": "x"}}, "the content is a dict"),
        ({"role": "user", "content": ["x", 5]}, "a part of the content is a int"),
        ({"role": "user", "content": "x", "observed_at": "soon"}, "soon"),
        ({"role": "user", "content": "x", "observed_at": 1e30}, "out of range"),
        ({"role": "user", "content": "x", "observed_at": "0001-01-01T00:00+05:00"}, "out of range"),
        ({"role": "user", "content": "x", "origin": "mars"}, "the origin 'mars' is none of user"),
        ({"role": "assistant", "tool_calls": "sh"}, "a tool call is a str"),
        ({"role": "assistant", "tool_calls": 5}, "int"),
        ({"role": "assistant", "tool_calls": [{"function": "sh"}]}, "a tool call's function is"),
    ],
)
def test_no_message(broken: Any, message: str) -> None:
    """What is no message is refused with its place in the list and what is wrong."""
    with pytest.raises(MessageError, match=r"^message 1: ") as error:
        parse_messages([{"role": "user", "content": "good"}, broken])
    assert message in str(error.value)


@pytest.mark.parametrize("single", ["text", b"text", {"role": "user", "content": "x"}])
def test_a_single_message_is_no_list(single: Any) -> None:
    """A message, or a text, where a list belongs is refused and not taken apart."""
    with pytest.raises(MessageError, match="a list of messages"):
        parse_messages(single)


@given(st.dictionaries(st.sampled_from(KEYS), JSON), st.sampled_from(sorted(ROLE_ALIASES)))
def test_any_json_is_a_message_or_refused(fields: dict[str, Any], role: str) -> None:
    """Whatever stands in the fields, the answer is a Message of text or a MessageError."""
    try:
        [parsed] = parse_messages([{"role": role, **fields}])
    except MessageError as error:
        assert str(error).startswith("message 0: ")
    else:
        assert isinstance(parsed.content, str)
        assert all(isinstance(call.arguments, str) for call in parsed.tool_calls)
