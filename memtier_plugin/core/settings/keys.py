"""List the keys of all settings with the values that each takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs, urlsplit

from memtier_plugin.core.settings.schema import NO_KEYS, NOWHERE, Settings, Within
from memtier_plugin.core.structs import Record

KeyPath = tuple[str, ...]
USER_NAMED_SECTIONS: Final = ("agents", "endpoints", "prices")  # sections of the user's own names


# Sections, keys and values that files of earlier versions hold, by the package that knows them now.
_ELSEWHERE: Final[Mapping[str, frozenset[str]]] = {
    "memtier-papers": frozenset(
        {
            *("ask.hypothetical", "ask.planner", "attribution.model", "attribution.proxy: logprob"),
            *("causes", "consolidation.second_look", "consolidation.tools", "gate", "paper"),
            *("people", "priority", "rerank", "rrf"),
        }
    )
}


class Key(NamedTuple):
    """The type and limits of one key."""

    kind: Any
    default: Any = None
    limits: Within | Literal["url", "server"] = Within(-math.inf, math.inf)

    def takes(self, value: Any) -> bool:
        """Return whether a value is one that the key accepts."""
        try:
            self.accept(value)
        except ValueError:
            return False
        return True

    def accept(self, value: Any) -> Any:
        """Return the value as its section holds it.

        Raises:
            ValueError: with what is expected instead.
        """
        kind, choices = get_origin(self.kind) or self.kind, get_args(self.kind)
        if kind is Literal:
            fits, expected = value in choices, "one of " + ", ".join(choices)
        elif kind is tuple:
            fits, expected = _is_list_of_texts(value), "a list of texts"
        elif kind is bool:
            fits, expected = isinstance(value, bool), "true or false"
        elif self.limits == "url":
            fits, expected = _is_url(value), "an address such as https://host/v1, without a key"
        elif self.limits == "server":
            fits = value == NOWHERE or _is_server(value)
            expected = "none, or an address such as postgresql://name@host/database, no password"
        elif kind is str:
            fits, expected = isinstance(value, str) and bool(value.strip()), "a text"
        else:
            # By type(), as True is an int; a NaN is within no limits.
            low, high = self.limits
            fits = type(value) in (int, kind) and low <= value <= high
            expected = f"{'a whole' if kind is int else 'a'} number, {low} to {high}"
        if not fits:
            raise ValueError(f"expected {expected}")
        return value if kind is Literal else kind(value)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, str) and v for v in value)


def _is_url(value: Any) -> bool:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        plain = parts and not (parts.username or parts.password or parts.query or parts.fragment)
        return bool(plain and parts and parts.scheme in ("http", "https") and parts.hostname)
    except ValueError:
        return False


def _is_server(value: Any) -> bool:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        options = parse_qs(parts.query) if parts else {}
        return bool(
            parts
            and parts.scheme in ("postgresql", "postgres", "nats", "tls")
            and not (parts.password or parts.fragment or "password" in options)
        )
    except ValueError:
        return False


def _declared(section: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Key]]:
    hints = get_type_hints(section, include_extras=True)
    for f in fields(section):
        if section is Settings and f.name in NO_KEYS:
            continue
        hint, here = hints[f.name], (*path, f.name)
        if is_dataclass(hint):
            yield from _declared(hint, here)
        elif get_origin(hint) is Mapping:
            yield from _declared(get_args(hint)[1], (*here, "*"))
        else:
            kind, *limits = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            yield here, Key(kind, None if f.default is MISSING else f.default, *limits)


@cache
def all_keys() -> dict[KeyPath, Key]:
    """Return every key by its path, with a star where the user's own names stand.

    Two are no `Settings`: ``project`` chooses them, ``workspaces`` says which folder may.
    """
    choosing = {("project",): Key(str), ("workspaces", "*"): Key(str)}
    keys = dict(_declared(Settings, ())) | choosing
    for section, path in plugin_sections():
        keys |= dict(_declared(section, path))
    return keys


@cache
def plugin_sections() -> tuple[tuple[type[Record], KeyPath], ...]:
    """Return the sections that plugins declare, each with its path."""
    from memtier_plugin.core import plugins  # it needs the settings

    declared = plugins.find_settings()
    return tuple((section, tuple(path.split("."))) for section, path in declared.items())


def missing_package(path: KeyPath, value: Any = None) -> str | None:
    """Return the package that is missing and knows a key, or a value of it that ours does not."""
    names = {".".join(path[:depth]) for depth in range(1, len(path) + 1)}
    known = {".".join(key[:depth]) for key in all_keys() for depth in range(1, len(key) + 1)}
    wanted = {name for name in names if name not in known}
    if isinstance(value, str):
        wanted.add(f"{'.'.join(path)}: {value}")
    return next((package for package, keys in _ELSEWHERE.items() if wanted & keys), None)


def key_pattern(path: KeyPath) -> KeyPath:
    """Return the path as `all_keys` has it."""
    named = path[0] in (*USER_NAMED_SECTIONS, "workspaces") and len(path) > 1
    return (path[0], "*", *path[2:]) if named else path
