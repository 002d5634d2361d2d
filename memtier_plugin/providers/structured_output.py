"""Reading JSON out of what a chat model answers, and checking it.  Pure.

Models think aloud, put code fences around their JSON or sentences before it.  All of that is passed
over; nothing is guessed from single letters or words.  Source: seeds 2.2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from memtier_plugin.core.errors import BadAnswer

EMPTY_ANSWER: Final = "empty answer"
NO_JSON: Final = "no whole JSON in the answer"
WRONG_SHAPE: Final = "JSON of another shape"

_THOUGHT: Final = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN: Final = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_CLOSE: Final = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCE: Final = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_BRACKET: Final = re.compile(r"[{\[]")
_MOST_STARTS: Final = 200  # brackets at which JSON may begin
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class ListedAnswer:
    """The items of an answer that are as they should be, and how many are not."""

    items: tuple[dict[str, Any], ...]
    rejected: int = 0


def strip_reasoning(text: str) -> str:
    """Return an answer without the thoughts before it; an unfinished thought is no answer."""
    if _whole(text) is not None:
        return text.strip()  # JSON may speak of such tags
    text = _THOUGHT.sub("", text)
    text = _CLOSE.sub("", text, count=1)  # the opening tag may stand in the server's own template
    return "" if _OPEN.search(text) else text.strip()


def parse_json(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the first JSON value in an answer that fits a schema.

    Raises:
        BadAnswer: there is none.
    """
    shown = strip_reasoning(text)
    if not shown:
        raise BadAnswer(EMPTY_ANSWER)
    found = False
    for value in _candidates(shown):
        if matches_schema(value, schema):
            return value
        found = True
    raise BadAnswer(WRONG_SHAPE if found else NO_JSON)


def parse_items(text: str, schema: Mapping[str, Any]) -> ListedAnswer:
    """Return the items of an answer that is to be an object with one list, or that list itself.

    An item that does not fit is left out and counted.

    Args:
        schema: of the whole answer; its one property is the list.

    Raises:
        BadAnswer: the answer has no such list.
    """
    [(name, items)] = schema["properties"].items()
    bare: Mapping[str, Any] = {"type": "array"}
    wanted = {"type": "object", "required": [name], "properties": {name: bare}}
    try:
        found = parse_json(text, wanted)[name]
    except BadAnswer as error:
        if error.reason != WRONG_SHAPE:
            raise
        found = _bare_list(text, items["items"])
    good = tuple(item for item in found if matches_schema(item, items["items"]))
    return ListedAnswer(good, len(found) - len(good))


def matches_schema(value: Any, schema: Mapping[str, Any]) -> bool:
    """Tell whether a value is as a JSON schema wants it: types, properties, items and choices.

    Properties that the schema does not name are passed over.
    """
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return all(name in value for name in schema.get("required", ())) and all(
            matches_schema(value[name], properties[name]) for name in properties if name in value
        )
    if isinstance(value, list) and "items" in schema:
        return all(matches_schema(item, schema["items"]) for item in value)
    return True


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # which Python takes for a number
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _bare_list(text: str, item: Mapping[str, Any]) -> list[Any]:
    """Return a list that stands alone, if anything in it is what is looked for."""
    for value in _candidates(strip_reasoning(text)):
        if isinstance(value, list) and (
            not value or any(matches_schema(one, item) for one in value)
        ):
            return value
    raise BadAnswer(WRONG_SHAPE)


def _candidates(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists of a text: itself, what is fenced, what begins anywhere."""
    if (value := _whole(text)) is not None:
        yield value
        return
    for fence in _FENCE.finditer(text):
        if (value := _whole(fence[1])) is not None:
            yield value
    at = 0
    for _ in range(_MOST_STARTS):
        if (start := _BRACKET.search(text, at)) is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
        else:
            yield value


def _whole(text: str) -> Any:
    """Return the object or list that a text is, or None."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)
