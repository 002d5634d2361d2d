"""Set one value of a section in a YAML file, leaving every other byte unchanged.

The text is edited in place, so that comments, order and style survive; the result is parsed again
and refused unless it holds exactly the intended values.  ruamel.yaml's round trip rewrites lines
that are not edited: spaces, indents, the width of lists in braces.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from memtier_plugin.core.errors import SettingsError


def read_value(text: str, where: str, section: str, key: str) -> Any:
    """Return a value of a section, None if it is not there.

    Raises:
        SettingsError: the text is not a valid configuration.
    """
    return (_read(text, where, section).get(section) or {}).get(key)


def set_value(text: str, where: str, section: str, key: str, value: str) -> str:
    """Return the text with this value, written as it stands in YAML.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    before = _read(text, where, section)
    body = _value(yaml.compose(text, Loader=yaml.SafeLoader), section)
    existing = _value(body, key)
    if existing is not None:
        new = text[: existing.start_mark.index] + value + text[existing.end_mark.index :]
    elif body is None and before:
        gap = "" if text.endswith("\n") else "\n"
        new = f"{text}{gap}{section}:\n  {key}: {value}\n"
    elif body is None:  # nothing but comments, or an empty mapping
        new = re.sub(r"\A(\s*)\{\s*\}", r"\1", text)
        gap = "" if not new or new.endswith("\n") else "\n"
        new = f"{new}{gap}{section}:\n  {key}: {value}\n"
    elif isinstance(body, yaml.MappingNode) and body.value:
        first = body.value[0][0].start_mark
        comma = ", " if body.flow_style else "\n" + " " * first.column
        new = f"{text[: first.index]}{key}: {value}{comma}{text[first.index :]}"
    else:  # the section with nothing in it, or `{}`
        start, end = body.start_mark.index, body.end_mark.index
        new = f"{text[:start].rstrip(' ')} {{{key}: {value}}}{text[end:]}"
    expected = {**before, section: {**(before.get(section) or {}), key: yaml.safe_load(value)}}
    if _again(new) != expected:
        raise SettingsError(f"{where}: set {section}.{key} to {value} by hand, then try again")
    return new


def restore_value(
    text: str, where: str, section: str, key: str, ours: str, before: str | None, empty: str
) -> str:
    """Return the text with the former value, if it still holds ours.

    Args:
        before: the former value, None for none.
        empty: stands for no value where the key cannot be taken out of the text.
    """
    if read_value(text, where, section, key) != ours:
        return text
    if before is not None:
        return set_value(text, where, section, key, before)
    now = _read(text, where, section)
    line = rf"^[ \t]*{key}:[ \t]*{ours}[ \t]*(?:#[^\n]*)?(?:\n|\Z)"
    without = re.sub(line, "", text, count=1, flags=re.MULTILINE)
    rest = {name: value for name, value in now[section].items() if name != key}
    if rest and _again(without) == {**now, section: rest}:
        return without
    return set_value(text, where, section, key, empty)


def remove_value(text: str, where: str, section: str, key: str, former: str) -> str:
    """Return the text without a key of a section, or with what it held in a former text.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    now = _read(text, where, section)
    body = dict(now.get(section) or {})
    if body.pop(key, None) is None:
        return text
    if (held := read_value(former, where, section, key)) is not None:
        return set_value(text, where, section, key, json.dumps(held, ensure_ascii=False))
    top: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    emptied = not body and section not in _read(former, where, section)
    node, name = (top, section) if emptied else (_value(top, section), key)
    [(name_node, entry)] = [pair for pair in node.value if pair[0].value == name]
    start, end = name_node.start_mark, entry.end_mark
    last = end.index - end.column  # of a block: where the next line begins
    if entry.flow_style:
        last = f"{text}\n".index("\n", end.index) + 1
    new = text[: start.index - start.column] + text[last:]
    expected = {**now, section: body or None}
    if emptied:
        del expected[section]
    if (_again(new) or {}) != expected:
        raise SettingsError(f"{where}: take {section}.{key} out by hand, then try again")
    return new


def _read(text: str, where: str, section: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{where}: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{where}: expected a mapping")
    body = document.get(section)
    if body is not None and not isinstance(body, dict):
        raise SettingsError(f"{where}: {section} is {body!r:.40}, expected a mapping")
    return document


def _again(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _value(node: Any, name: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)
