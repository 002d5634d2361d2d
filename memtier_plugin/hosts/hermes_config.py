"""Edit the memory provider in Hermes' configuration, leaving every other byte unchanged.

The text is edited in place, so that comments, order and style survive; the result is parsed again
and refused unless it holds exactly the intended values.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from memtier_plugin.core.errors import SettingsError

_ALONE: Final = r"^[ \t]*provider:[ \t]*memtier[ \t]*(?:#[^\n]*)?(?:\n|\Z)"


def read_provider(text: str, where: str) -> str | None:
    """Return the memory provider that a configuration selects.

    Raises:
        SettingsError: the text is not a valid configuration.
    """
    memory = _read(text, where).get("memory") or {}
    return str(memory["provider"]) if memory.get("provider") else None


def set_provider(text: str, where: str, provider: str) -> str:
    """Return the configuration with this memory provider.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    before = _read(text, where)
    memory = _value(yaml.compose(text, Loader=yaml.SafeLoader), "memory")
    existing = _value(memory, "provider")
    if existing is not None:
        new = text[: existing.start_mark.index] + provider + text[existing.end_mark.index :]
    elif memory is None and before:
        gap = "" if text.endswith("\n") else "\n"
        new = f"{text}{gap}memory:\n  provider: {provider}\n"
    elif memory is None:  # nothing but comments, or an empty mapping
        new = re.sub(r"\A(\s*)\{\s*\}", r"\1", text)
        gap = "" if not new or new.endswith("\n") else "\n"
        new = f"{new}{gap}memory:\n  provider: {provider}\n"
    elif isinstance(memory, yaml.MappingNode) and memory.value:
        first = memory.value[0][0].start_mark
        comma = ", " if memory.flow_style else "\n" + " " * first.column
        new = f"{text[: first.index]}provider: {provider}{comma}{text[first.index :]}"
    else:  # `memory:` with nothing in it, or `{}`
        start, end = memory.start_mark.index, memory.end_mark.index
        new = f"{text[:start].rstrip(' ')} {{provider: {provider}}}{text[end:]}"
    chosen = yaml.safe_load(provider)
    expected = {**before, "memory": {**(before.get("memory") or {}), "provider": chosen}}
    if _again(new) != expected:
        raise SettingsError(f"{where}: set memory.provider to {provider} by hand, then try again")
    return new


def restore_provider(text: str, where: str, before: str | None) -> str:
    """Return the configuration with the former provider, if it still selects MemTier.

    Args:
        before: the former provider, None for none.
    """
    if read_provider(text, where) != "memtier":
        return text
    if before is not None:
        return set_provider(text, where, before)
    now = _read(text, where)
    without = re.sub(_ALONE, "", text, count=1, flags=re.MULTILINE)
    rest = {key: value for key, value in now["memory"].items() if key != "provider"}
    if rest and _again(without) == {**now, "memory": rest}:
        return without
    return set_provider(text, where, '""')


def _read(text: str, where: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{where}: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{where}: expected a mapping")
    memory = document.get("memory")
    if memory is not None and not isinstance(memory, dict):
        raise SettingsError(f"{where}: memory is {memory!r:.40}, expected a mapping")
    return document


def _again(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _value(node: Any, name: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)
