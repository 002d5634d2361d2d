"""Configurations with comments are read, and edited where they differ and nowhere else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtier_plugin.hosts.config_files import edit_json, parse_json
from tests.cases import each_case

MINE = """\
// my gateway
{
  gateway: { port: 0x4965, auth: {mode: 'token', "token": 'it\\'s "mine"'} }, /* keep */
  "plugins": {
    // what I allow
    "allow": ["x", 'y'], // both
    entries: {},
    "load": {
      "paths": [
        "/elsewhere", // http://not.a.comment
      ],
    },
  },
}
"""


def edited(text: str, change: Any) -> str:
    """Return a text after its value was changed."""
    wanted = copy.deepcopy(parse_json(text))
    change(wanted)
    new = edit_json(text, wanted)
    assert parse_json(new) == wanted
    return new


def test_reading() -> None:
    """What JSON5 allows is read as OpenClaw reads it."""
    config = parse_json(MINE)
    assert config["gateway"] == {"port": 18789, "auth": {"mode": "token", "token": 'it\'s "mine"'}}
    assert config["plugins"]["load"]["paths"] == ["/elsewhere"]
    assert parse_json("[.5, +1, -0xF, Infinity, '\\x41\\\nb', null]") == [
        0.5, 1, -15, float("inf"), "Ab", None,
    ]  # fmt: skip


@each_case(
    ("text", "says"),
    [
        ("{", "line 1"),
        ("// x\n{a: }", "line 2: unexpected '}'"),
        ("{a: 1 b: 2}", "unexpected 'b'"),
        ("{a: 1}, 2", "unexpected ','"),
        ("{,}", "unexpected ','"),
        ("{a: x}", "unexpected 'x'"),
        ("/* open", "line 1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("// x\n" + "[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read(text: str, says: str) -> None:
    """A text that is neither is refused with its line, however deep it is nested."""
    with pytest.raises(ValueError, match=says):
        parse_json(text)


def test_only_what_differs_is_changed() -> None:
    """Adding, changing and removing leave every comment and every other line as it stands."""

    def add(config: Any) -> None:
        config["plugins"]["allow"].append("memtier")
        config["plugins"]["load"]["paths"].append("/ours")
        config["plugins"]["slots"] = {"memory": "memtier"}
        config["plugins"]["entries"]["memtier"] = {"enabled": True}

    new = edited(MINE, add)
    kept = [line for line in MINE.splitlines() if "allow" not in line and "entries" not in line]
    assert [line for line in kept if line not in new.splitlines()] == []
    assert """["x", 'y', "memtier"], // both""" in new
    assert '        "/ours",\n      ],' in new
    assert '    "slots": {\n      "memory": "memtier"\n    },\n  },\n}\n' in new

    def remove(config: Any) -> None:
        config["plugins"]["allow"].pop()
        config["plugins"]["load"]["paths"].pop()
        del config["plugins"]["slots"], config["plugins"]["entries"]["memtier"]

    assert "".join(edited(new, remove).split()) == "".join(MINE.split())


@each_case(
    ("text", "change", "result"),
    [
        ("{} // x", lambda c: c.update(a=1), '{"a": 1} // x'),
        ("{ // none yet\n}", lambda c: c.update(a=1), '{ // none yet\n  "a": 1\n}'),
        ("{\n\ta: 1 // one\n}", lambda c: c.update(b=2), '{\n\ta: 1, // one\n\t"b": 2\n}'),
        ("{\r\n  a: 1,\r\n}", lambda c: c.update(b=2), '{\r\n  a: 1,\r\n  "b": 2,\r\n}'),
        ("{a: 1, b: 2}", lambda c: c.pop("b"), "{a: 1}"),
        ("{a: 1, b: 2}", lambda c: c.pop("a"), "{ b: 2}"),
        ("{\n  a: 1, // one\n  b: 2 // two\n}", lambda c: c.pop("b"), "{\n  a: 1 // one // two\n}"),
        ("[1, /* x */ 2,]", lambda c: c.append(3), "[1, /* x */ 2, 3]"),
        ("{a: 1 /* x */, b: 2}", lambda c: c.pop("a"), "{ b: 2}"),
        ("{a: [1, 2] /* x */}", lambda c: c.update(a=[5]), "{a: [5] /* x */}"),
    ],
)
def test_styles(text: str, change: Any, result: str) -> None:
    """A value is added in the style of its neighbours; what is left stays valid without commas."""
    assert edited(text, change) == result


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@example({"a": None}, {"b": None, "a": None}, None)
@given(VALUES, VALUES, st.sampled_from([None, 2, "\t"]))
def test_any_change(old: Any, new: Any, indent: Any) -> None:
    """Whatever a document holds and becomes, it is read again as what was wanted."""
    text = "// mine\n" + json.dumps(old, indent=indent) + "\n// end\n"
    result = edit_json(text, new)
    # A key's place among the others is its own; 1 is no true.
    assert json.dumps(parse_json(result), sort_keys=True) == json.dumps(new, sort_keys=True)
    assert result.startswith("// mine\n") and result.endswith("// end\n")
