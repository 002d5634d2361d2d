"""How a tool call fared, by what it returned (tool messages without an outcome)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.credit.outcomes import judge_outcome, judge_results, reward_run
from memtier_plugin.ingest.messages import parse_messages
from tests.cases import each_case

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 4'
JAVASCRIPT = "TypeError: x is undefined\n    at run (/srv/index.js:12:7)\n    at main (a.js:1:1)"
FAILED = [
    '{"error": "no such host"}',
    json.dumps({"error": TRACEBACK}),
    '{"success": false, "output": ""}',
    '{"ok": false}',
    '{"status": "failed"}',
    '{"isError": true, "content": "x"}',
    '{"stdout": "", "stderr": "boom", "exit_code": 2}',
    '{"returncode": 1, "success": true}',
    TRACEBACK,
    "Collected 4 items\n" + TRACEBACK,
    JAVASCRIPT,
    "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds",
    'Exception in thread "main" java.lang.NullPointerException',
    "make: *** [all] failed\nexit code: 2",
    "Command exited with code 127",
    "[exit status 1]",
    "process exited with 3",
    "Error: ENOENT: no such file or directory, open 'a.json'",
    "ValueError: could not convert string to float",
    "requests.exceptions.ConnectionError: refused",
    "bash: frobnicate: command not found",
    "ls: cannot access 'x': No such file or directory",
    "sh: 1: frobnicate: not found",
    "one line\nand another\nfatal: not a git repository",
]
SUCCEEDED = [
    '{"exit_code": 0, "stderr": "warning: error: this is noise"}',
    '{"success": true, "error": null}',
    '{"ok": true}',
    '{"status": "completed"}',
    '{"temperature": 21.5, "unit": "C"}',
    '[{"id": 1}, {"id": 2}]',
    "3 passed in 0.2 s\nexit code: 0",
    "[exit status 0]",
    "Process exited with code 0",
]
UNDECIDED = [
    "",
    "{}",
    "flushed",
    "The article explains how errors propagate, and why a traceback is not enough.",
    "def f():\n    raise ValueError('x')  # exit codes: see below",
    "In 2024 the exit code of conduct was adopted.",
    "Section 4: failed states: a reader",
    "404 pages were printed.",
    '"just a text"',
    "17",
]


@each_case("content", FAILED)
def test_failures_are_recognised(content: str) -> None:
    """A JSON error, a traceback, an exit code or an error message is a failure."""
    outcome = judge_outcome(ToolCall(name="sh"), content)
    assert outcome.ok is False
    assert 0.5 < outcome.confidence < 1


@each_case("content", SUCCEEDED)
def test_successes_are_recognised(content: str) -> None:
    """An exit code of 0, a field that says so, or structured output without an error succeeded."""
    outcome = judge_outcome(ToolCall(name="sh"), content)
    assert outcome.ok is True
    assert 0.5 < outcome.confidence < 1


@each_case("content", UNDECIDED)
def test_plain_text_decides_nothing(content: str) -> None:
    """A text that says nothing of how the call fared leaves it open, though it speaks of errors."""
    assert judge_outcome(ToolCall(name="sh"), content).ok is None


@given(st.sampled_from(FAILED + SUCCEEDED + UNDECIDED), st.booleans())
def test_stated_outcome_wins(content: str, ok: bool) -> None:
    """What the host states of a call is not judged again by its content."""
    outcome = judge_outcome(ToolCall(name="sh", ok=ok), content)
    assert (outcome.ok, outcome.confidence) == (ok, 1.0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("memtier_serach", "Tool memtier_serach not found"),
        ("terminl", "Tool 'terminl' does not exist. Available tools: terminal, read_file"),
        ("Bsah", "<tool_use_error>Error: No such tool available: Bsah</tool_use_error>"),
        ("fs.raed", '{"error": "unknown function `fs.raed`"}'),
    ],
)
def test_a_mistyped_name_blames_nobody(name: str, content: str) -> None:
    """A call of a tool that is not there counts for nothing, whatever the host states."""
    for ok in (False, None):
        assert judge_outcome(ToolCall(name=name, ok=ok), content).ok is None
    messages = [
        Message(role="tool", content=content, tool=ToolCall(name=name, ok=False)),
        Message(role="tool", content="3 lines", tool=ToolCall(name="right", ok=True)),
    ]
    for order in (messages, messages[::-1]):
        assert reward_run(order, judge_results(order))[0] == 1.0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("read", "Error: tool config not found: read.json"),
        ("exec", "Tool executor not found"),
        ("exec", "exec: sh: 1: make: not found"),
        ("call", "x" * 300 + " Tool call not found"),
    ],
)
def test_a_tool_that_does_not_find_something(name: str, content: str) -> None:
    """A tool that is there and misses something has failed, as its host states."""
    assert judge_outcome(ToolCall(name=name, ok=False), content).ok is False


def test_confidence_is_that_of_the_weakest_deciding_call() -> None:
    """The last call of every tool decides; the run is no surer than the least sure of them."""
    messages = parse_messages(
        [
            {"role": "tool", "name": "sh", "content": "Error: no"},
            {"role": "tool", "name": "sh", "content": "x", "exit_code": 0},
            {"role": "tool", "name": "get", "content": '{"error": "gone"}'},
            {"role": "tool", "name": "read", "content": "a text"},
        ]
    )
    outcomes = judge_results(messages)
    assert [outcome.ok for outcome in outcomes.values()] == [False, True, False, None]
    assert reward_run(messages, outcomes) == (-0.5, 0.9)
    assert judge_results([Message(role="user", content="Error: x")]) == {}
    assert reward_run([], {}) == (0.0, 0.0)


@given(st.text(alphabet="{}[]:\" \n\terorxit0code1aTb/.'", max_size=400), st.integers(1, 60))
def test_any_content_is_judged(text: str, times: int) -> None:
    """Whatever a tool returned is judged without an exception, and confidence fits the outcome."""
    outcome = judge_outcome(ToolCall(name="sh"), text * times)
    assert (outcome.ok is None) == (outcome.confidence == 0)
    assert judge_outcome(ToolCall(name="sh"), "[" * 90_000).ok is None
