"""Reading what chat models answer: what is passed over, what is refused, what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.providers.prompting import (
    EMPTY_ANSWER,
    NO_JSON,
    WRONG_SHAPE,
    ListedAnswer,
    matches_schema,
    parse_items,
    parse_json,
    strip_reasoning,
)
from tests.cases import each_case

ITEM = {
    "type": "object",
    "required": ["text", "line"],
    "properties": {
        "text": {"type": "string"},
        "line": {"type": "integer"},
        "since": {"type": ["string", "null"]},
        "kind": {"type": "string", "enum": ["fact", "experience"]},
    },
}
SCHEMA = {
    "type": "object",
    "required": ["facts"],
    "properties": {"facts": {"type": "array", "items": ITEM}},
}
ONE = {"text": "Ann lives in Oslo.", "line": 1}
WHOLE = json.dumps({"facts": [ONE]})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def refusal(text: str, schema: dict[str, Any] = SCHEMA) -> str:
    """Return why an answer cannot be used."""
    with pytest.raises(BadAnswer) as caught:
        parse_items(text, schema)
    return caught.value.reason


@each_case(
    "text",
    [
        WHOLE,
        f"\n  {WHOLE}\n",
        f"```json\n{WHOLE}\n```",
        f"Sure! Here they are:\n\n```\n{WHOLE}\n```\nAnything else?",
        f"The facts of line [1] in {{braces}} are: {WHOLE} and that is all.",
        f"<think>Is {{this}} one? [1] maybe.</think>{WHOLE}",
        f"<THINKING>\nnothing\n</THINKING>\n\n```json\n{WHOLE}```",
        f"so the first line says it.</think>\n{WHOLE}",  # the tag opens in the server's template
        f"<think>one</think><think>two</think>{WHOLE}",
        json.dumps([ONE]),
    ],
)
def test_the_json_is_found(text: str) -> None:
    """Thoughts, fences and sentences around the JSON are passed over; a bare list is one too."""
    assert parse_items(text, SCHEMA) == ListedAnswer((ONE,))


@each_case(
    ("text", "reason"),
    [
        ("", EMPTY_ANSWER),
        (" \n", EMPTY_ANSWER),
        ("<think>I was still thinking about [1] when", EMPTY_ANSWER),
        (f"<think>{WHOLE}", EMPTY_ANSWER),
        ("There is nothing to remember.", NO_JSON),
        ("Answer: R", NO_JSON),
        (WHOLE[:-20], NO_JSON),
        ('{"facts": [NaN]}', NO_JSON),
        ('{"memories": []}', WRONG_SHAPE),
        ('{"facts": {"text": "Ann"}}', WRONG_SHAPE),
        ('{"facts": null}', WRONG_SHAPE),
        (json.dumps(ONE), WRONG_SHAPE),
        ("[1, 2]", WRONG_SHAPE),
        ('"facts"', NO_JSON),
        ("{" * 5000, NO_JSON),
        ("[" * 1_000_000, NO_JSON),
        ("[" + "9" * 10_000 + "]", NO_JSON),
    ],
)
def test_what_cannot_be_used(text: str, reason: str) -> None:
    """Anything else is refused with a reason; no letter or word is ever taken for an answer."""
    assert refusal(text) == reason


def test_bad_items_are_counted() -> None:
    """An item of another shape costs only itself."""
    items = [
        ONE,
        {"text": 7, "line": 1},
        {"text": "no line"},
        "just words",
        None,
        {**ONE, "line": "1"},
        {**ONE, "line": True},
        {**ONE, "kind": "command"},
        {**ONE, "since": None, "kind": "fact", "more": ["is", "passed", "over"]},
    ]
    result = parse_items(json.dumps({"facts": items, "note": "hi"}), SCHEMA)
    assert [item["line"] for item in result.items] == [1, 1]
    assert result.rejected == 7


def test_an_empty_list_is_an_answer() -> None:
    """That there is nothing to keep is no failure."""
    assert parse_items('{"facts": []}', SCHEMA) == ListedAnswer(())
    assert parse_items("[]", SCHEMA) == ListedAnswer(())


def test_the_first_that_fits_is_taken() -> None:
    """JSON of another shape before the answer does not hide it; a later one does not replace it."""
    text = f'Given [1] and {{"x": 1}}: {WHOLE} or else {{"facts": []}}'
    assert parse_items(text, SCHEMA) == ListedAnswer((ONE,))
    assert parse_json(
        '{"action": "stop"} {"action": "S"}',
        {
            "type": "object",
            "required": ["action"],
            "properties": {"action": {"enum": ["S", "R"]}},
        },
    ) == {"action": "S"}


def test_json_may_speak_of_tags_and_fences() -> None:
    """What stands inside the JSON is data: a thought or a fence in it changes nothing."""
    item = {**ONE, "text": "Write ```json\n[]\n``` after </think>, never <think>."}
    assert parse_items(json.dumps({"facts": [item]}), SCHEMA).items == (item,)


@given(JSON)
def test_any_json_comes_back(value: Any) -> None:
    """Objects and lists are read as they are, alone and in a fence after a thought."""
    if not isinstance(value, dict | list):
        value = [value]
    text = json.dumps(value)
    assert parse_json(text, {}) == value
    assert parse_json(f"<think>hm</think>\n```json\n{text}\n```", {}) == value


@given(st.text(alphabet='{}[]",:`\n<>/think0 ', max_size=80))
def test_nothing_breaks_it(text: str) -> None:
    """Whatever is answered, the outcome is an item list or a reason."""
    try:
        result = parse_items(text, SCHEMA)
    except BadAnswer as error:
        assert error.reason in (EMPTY_ANSWER, NO_JSON, WRONG_SHAPE)
    else:
        assert all(matches_schema(item, ITEM) for item in result.items)


def test_visible() -> None:
    """What a model thinks before its answer is not its answer."""
    assert strip_reasoning("<think>S? R?</think> R") == "R"
    assert strip_reasoning("<think>S? R?") == ""
    assert strip_reasoning("plain") == "plain"
