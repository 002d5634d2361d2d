"""What commands refuse: numbers that mean nothing, and messages that would be left out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest

from memtier_plugin.cli.main import main
from tests.processes import run_memtier

_ANY_NUMBER = {("bench", "seed")}  # the start of a generator may be any


def numeric_options(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """Yield every option of every command that takes a number."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from numeric_options(command, (*path, name))
        for option in command.params:
            kind = option.type
            if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
                yield (*path, name), option


def test_every_number_has_a_range() -> None:
    """An option that takes a number says which numbers mean something."""
    options = [*numeric_options()]
    assert len(options) > 10
    for command, option in options:
        if (command[0], option.name) not in _ANY_NUMBER:
            ranged = isinstance(option.type, (click.IntRange, click.FloatRange))
            assert ranged and option.type.min is not None, f"{command}: {option.name}"


def test_no_number_is_nan_or_infinite() -> None:
    """A number that no clock and no limit can be set to is refused, whatever the option."""
    for command, option in numeric_options():
        if isinstance(option.type, click.types.FloatParamType):
            for value in ("nan", "inf"):
                with pytest.raises(click.BadParameter):
                    option.type.convert(value, option, None)
                    pytest.fail(f"{command}: {option.name} takes {value}")


@pytest.mark.parametrize("command", ["recall", "facts search"])
@pytest.mark.parametrize("limit", ["-3", "0"])
def test_a_limit_below_one_is_refused(command: str, limit: str) -> None:
    """A limit that could show nothing is refused by name."""
    refused = run_memtier(*command.split(), "ferry", "--limit", limit, code=2)
    assert "--limit" in refused.stderr


@pytest.mark.parametrize(
    "empty",
    [
        {"role": "user"},
        {"role": "user", "content": " "},
        {"role": "user", "text": "misnamed"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
    ],
)
def test_a_message_without_content_is_refused_with_its_line(empty: dict[str, object]) -> None:
    """Nothing is left out of a record in silence: the line is named, and nothing is written."""
    good = {"role": "user", "content": "The ferry leaves at seven."}
    lines = "\n".join(map(json.dumps, [good, good, empty]))
    refused = run_memtier("record", "-", "--session", "s", input=lines, code=1)
    assert "<stdin>:3: a message without content" in refused.stderr
    listed = json.dumps([good, empty])
    refused = run_memtier("record", "-", "--session", "s", input=listed, code=1)
    assert "<stdin>: message 2: a message without content" in refused.stderr
    assert "there is no project" in run_memtier("log", code=1).stderr


def test_a_call_of_a_tool_needs_no_content() -> None:
    """A message that only calls a tool says enough."""
    call = {"id": "c", "type": "function", "function": {"name": "timetable", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    shown = run_memtier("record", "-", "--session", "s", "--json", input=json.dumps(message))
    assert json.loads(shown.stdout)["recorded"] == 1
