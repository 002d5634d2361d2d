"""Load the prompts for chat models, and parse JSON and tool calls from their answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from memtier_plugin.core.errors import BadAnswer

# -- Parse JSON from chat models' answers, and check it against a schema.  Pure
#
# Models reason aloud, fence their JSON as code or write sentences before it. All of that is
# skipped; nothing is guessed from single letters or words.

EMPTY_ANSWER: Final = "empty answer"
NO_JSON: Final = "no whole JSON in the answer"
WRONG_SHAPE: Final = "JSON of another shape"

_THOUGHT: Final = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN: Final = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_CLOSE: Final = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCE: Final = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_BRACKET: Final = re.compile(r"[{\[]")
_ITEM_START: Final = re.compile(r"[\s,]*\{")
_MAX_STARTS: Final = 200  # brackets tried as the beginning of JSON
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}

STRING: Final[Mapping[str, Any]] = {"type": "string"}
INTEGER: Final[Mapping[str, Any]] = {"type": "integer"}


def choice_of(*values: str) -> dict[str, Any]:
    """Return the schema of a string that is one of these."""
    return {"type": "string", "enum": [*values]}


def list_of(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list whose items have this schema."""
    return {"type": "array", "items": items}


def object_of(title: str | None = None, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, all of them required."""
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [*properties],
        "properties": properties,
    }
    return {"title": title, **schema} if title else schema


@dataclass(frozen=True, slots=True)
class ListedAnswer:
    """The items of an answer that fit their schema, and the number of the others."""

    items: tuple[dict[str, Any], ...]
    rejected: int = 0


def strip_reasoning(text: str) -> str:
    """Remove the reasoning before an answer; unfinished reasoning is not an answer."""
    if _decode(text) is not None:
        return text.strip()  # a string in the JSON may contain such tags
    text = _THOUGHT.sub("", text)
    text = _CLOSE.sub("", text, count=1)  # the server's own template may contain the opening tag
    return "" if _OPEN.search(text) else text.strip()


def parse_json(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the first JSON value in an answer that fits a schema.

    Raises:
        BadAnswer: no value fits.
    """
    answer = strip_reasoning(text)
    if not answer:
        raise BadAnswer(EMPTY_ANSWER)
    has_json = False
    for value in _candidates(answer):
        if matches_schema(value, schema):
            return value
        has_json = True
    raise BadAnswer(WRONG_SHAPE if has_json else NO_JSON)


def parse_items(text: str, schema: Mapping[str, Any]) -> ListedAnswer:
    """Return the list in an answer: the only property of an object, or a bare list.

    Items that do not fit their schema are counted and dropped.

    Args:
        schema: of the object; its only property is the list.

    Raises:
        BadAnswer: the answer contains no such list.
    """
    [(name, items)] = schema["properties"].items()
    bare: Mapping[str, Any] = {"type": "array"}
    expected = {"type": "object", "required": [name], "properties": {name: bare}}
    try:
        listed = parse_json(text, expected)[name]
    except BadAnswer as error:
        if error.reason != WRONG_SHAPE:
            raise
        listed = _bare_list(text, items["items"])
    fitting = tuple(item for item in listed if matches_schema(item, items["items"]))
    return ListedAnswer(fitting, len(listed) - len(fitting))


def begun_items(text: str, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a list that was cut off, as far as they are whole and fit their schema.

    Args:
        schema: as for `parse_items`.
    """
    [items] = schema["properties"].values()
    answer = strip_reasoning(text)
    position, listed = answer.find("[") + 1, list[dict[str, Any]]()
    while position:
        start = _ITEM_START.match(answer, position)
        if start is None:
            break
        try:
            value, position = _DECODER.raw_decode(answer, start.end() - 1)
        except (ValueError, RecursionError):
            break
        if matches_schema(value, items["items"]):
            listed.append(value)
    return listed


def matches_schema(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value fits a JSON schema: types, required properties, items and choices.

    Properties missing from the schema are ignored.
    """
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_has_type(value, kind) for kind in kinds):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return all(name in value for name in schema.get("required", ())) and all(
            matches_schema(value[name], properties[name]) for name in properties if name in value
        )
    if isinstance(value, list) and "items" in schema:
        return all(matches_schema(item, schema["items"]) for item in value)
    return True


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # a number to Python, not to JSON
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _bare_list(text: str, item: Mapping[str, Any]) -> list[Any]:
    """Return a bare list if any of its items fits or it is empty."""
    for value in _candidates(strip_reasoning(text)):
        if isinstance(value, list) and (
            not value or any(matches_schema(element, item) for element in value)
        ):
            return value
    raise BadAnswer(WRONG_SHAPE)


def _candidates(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists in a text: the whole, fenced ones, and any others."""
    if (value := _decode(text)) is not None:
        yield value
        return
    for fence in _FENCE.finditer(text):
        if (value := _decode(fence[1])) is not None:
            yield value
    at = 0
    for _ in range(_MAX_STARTS):
        if (start := _BRACKET.search(text, at)) is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
        else:
            yield value


def _decode(text: str) -> Any:
    """Return the whole text as an object or a list, or None."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


# -- Parse the tool calls that a chat model writes into its answer, like Mem-T's models.  Pure
#
#     <tool_call>{"name": "create_fact", "arguments": {...}}</tool_call>
#
# Several calls may follow each other, or form a list in one block; a missing closing tag ends with
# the next call, or with the answer.  Calls of unknown tools, or of another form, are counted.

NO_CALL: Final = "no tool call in the answer"
_MAX_CALLS: Final = 100  # per answer
MARK: Final = "<tool_call>"


class ModelToolCall(NamedTuple):
    """A call of a known tool, with arguments that fit its schema."""

    name: str
    arguments: Mapping[str, Any]


class CalledTools(NamedTuple):
    """The valid calls of an answer, in order, and the number of invalid ones."""

    calls: tuple[ModelToolCall, ...]
    rejected: int


def parse_tool_calls(text: str, tools: Mapping[str, Mapping[str, Any]]) -> CalledTools:
    """Return the calls in an answer.

    Args:
        tools: the schema of each tool's arguments, by tool name.

    Raises:
        BadAnswer: there is no call.
    """
    written = written_calls(text)
    if not written:
        raise BadAnswer(NO_CALL)
    several = [call for each in written for call in (each if isinstance(each, list) else [each])]
    calls = [_call(call, tools) for call in several[:_MAX_CALLS]]
    fitting = tuple(call for call in calls if call is not None)
    return CalledTools(fitting, len(calls) - len(fitting))


def written_calls(text: str) -> list[Any]:
    """Return the JSON after each call mark, in order; None if it is invalid."""
    blocks = strip_reasoning(text).split(MARK)[1 : _MAX_CALLS + 1]
    return [decode(block) for block in blocks]


def decode(text: str) -> Any:
    """Return the JSON value at the start of a text; None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _call(written: Any, tools: Mapping[str, Mapping[str, Any]]) -> ModelToolCall | None:
    if not isinstance(written, dict) or not isinstance(written.get("name"), str):
        return None
    name, arguments = written["name"], written.get("arguments")
    if isinstance(arguments, str):  # as some servers write them
        arguments = decode(arguments)
    if name not in tools or arguments is None or not matches_schema(arguments, tools[name]):
        return None
    return ModelToolCall(name, arguments)


# -- Load prompts for chat models: files in `prompts/`, each identified by its text's hash

PROMPT_FOLDER: Final = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text and its hash, which is stored with the prompt's results."""

    name: str
    text: str
    hash: str


@cache
def load_prompt(name: str, folder: Path = PROMPT_FOLDER) -> Prompt:
    """Return the prompt with a name from a folder."""
    text = (folder / f"{name}.md").read_text("utf-8").strip()
    return Prompt(name, text, _digest(text))


def fence_data(lines: Sequence[str]) -> str:
    """Fence data for a model with marks containing its hash, which the data cannot imitate.

    Continuation lines are indented, so that they cannot pass for separate lines.
    """
    data = "\n".join("\n    ".join(line.splitlines()) for line in lines)
    mark = _digest(data)
    return f"<<<data {mark}\n{data}\n<<<end {mark}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
