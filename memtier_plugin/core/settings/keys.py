"""List the keys of all settings with the values that each takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs, urlsplit

from memtier_plugin.core.settings.schema import NOWHERE, Settings, Within

KeyPath = tuple[str, ...]
USER_NAMED_SECTIONS: Final = ("agents", "endpoints", "prices")  # sections of the user's own names


class Key(NamedTuple):
    """The type and limits of one key."""

    kind: Any
    default: Any = None
    limits: Within | Literal["url", "server"] = Within(-math.inf, math.inf)

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
    return dict(_declared(Settings, ())) | choosing


def key_pattern(path: KeyPath) -> KeyPath:
    """Return the path as `all_keys` has it."""
    named = path[0] in (*USER_NAMED_SECTIONS, "workspaces") and len(path) > 1
    return (path[0], "*", *path[2:]) if named else path
