"""Settings files: YAML that remembers the line of every key, and the table of valid keys."""

from __future__ import annotations

import io
import math
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import parse_qs, urlsplit

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.files import OPEN_FLAGS, check_ownership
from memtier_plugin.core.settings.schema import NO_KEYS, NOWHERE, Settings, Within
from memtier_plugin.core.structs import Record

if TYPE_CHECKING:
    from yaml import Node, SafeLoader


MAX_BYTES: Final = 64 * 1024
# What PyYAML lets out of int(), float(), datetime and its own tables on odd scalars.
_LEAKS: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


def read_config_text(path: Path, *, within: Path | None = None) -> str | None:
    """Return a file's text, or None if the file does not exist.

    Without ``within`` the file must be the user's own and no symlink; a file ``within`` a workspace
    may be anybody's, or a symlink that stays inside it.

    Raises:
        SettingsError: it cannot be read, is too large or is not UTF-8 text.
        UnsafePath: the path in the home is a symlink, or a file of another owner.
    """
    try:
        if within is not None:
            path = _resolved(path, within)
        else:
            check_ownership(path, path.lstat(), stat.S_IFREG)
        # Non-blocking, in case the path is a pipe.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | OPEN_FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SettingsError(f"{path} is not a plain file")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}; make {path.parent} a folder that you may "
            "read, or name another home: `memtier --home PATH`"
        ) from error
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{path} is larger than {MAX_BYTES} bytes, too large for settings")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: not UTF-8 text ({error.reason})") from None


def _resolved(path: Path, within: Path) -> Path:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(within)):
        raise SettingsError(
            f"{path} is a symlink leading out of its folder, to {real}; use a real file"
        )
    return real


@cache
def _plain_loader() -> type[SafeLoader]:
    """Return a loader without merge keys, since a few nested merges can exhaust the memory."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        def flatten_mapping(self, node: Node) -> None:  # called for each mapping
            pass

    return PlainLoader


class YamlFile:
    """One parsed YAML document whose top level is a mapping, or empty."""

    def __init__(self, name: str, loader: SafeLoader, root: Node | None) -> None:
        self.name = name
        self.root = root
        self._loader = loader

    @classmethod
    def parse(cls, name: str, text: str) -> Self:
        """Parse the text; errors call the file ``name``.

        Raises:
            SettingsError: with file, line and column.
        """
        import yaml

        try:
            loader = _plain_loader()(text)
            return cls(name, loader, loader.get_single_node())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            position = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
            reason = " ".join(filter(None, (error.context, error.problem)))
            raise SettingsError(f"{name}:{position}: malformed YAML: {reason}") from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
            reason = f"{error.reason}: {text[error.position]!r}"
            raise SettingsError(f"{name}:{line}:{column}: malformed YAML: {reason}") from None
        except RecursionError:
            raise SettingsError(f"{name}:1:1: malformed YAML: nested too deeply") from None
        except _LEAKS as error:
            raise SettingsError(f"{name}:1:1: malformed YAML: {error}") from None

    def pairs(self, node: Node | None, title: str = "the file") -> Iterator[tuple[str, Node, str]]:
        """Yield (key, value node, ``file:line``) of a mapping node; an empty node has no pairs.

        Raises:
            SettingsError: it is no mapping (``title`` names it), or a key is repeated or not a
        string.
        """
        import yaml

        if node is None or node.tag == "tag:yaml.org,2002:null":
            return
        source = self.location(node)
        if not isinstance(node, yaml.MappingNode):
            raise SettingsError(f"{source}: {title} must hold keys and values (`key: value`)")
        lines: dict[str, str] = {}
        for key_node, child in node.value:
            source, key = self.location(key_node), key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                raise SettingsError(f"{source}: a key must be a plain word")
            if key in lines:
                raise SettingsError(
                    f"{source}: {key!r} is set twice, first at {lines[key]}; keep one"
                )
            lines[key] = source
            yield key, child, source

    def value(self, node: Node) -> Any:
        """Return the Python value of a node.

        Raises:
            SettingsError: YAML cannot construct it.
        """
        import yaml

        try:
            return self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, *_LEAKS) as error:
            reason = getattr(error, "problem", None) or str(error) or "not a value"
            raise SettingsError(f"{self.location(node)}: malformed YAML: {reason}") from None

    def location(self, node: Node) -> str:
        """Return ``file:line`` of a node."""
        return f"{self.name}:{node.start_mark.line + 1}"


# -- Edit a YAML file, keeping its comments


def edit_yaml(text: str, where: str, change: Callable[[Any], None]) -> str:
    """Apply a change to a YAML text, keeping its comments.

    Unchanged lines stay as they are; if ruamel.yaml breaks lines differently from the text, the
    whole file is reformatted.

    Args:
        where: the file's name in errors.
        change: changes a mapping in place; called once with a plain mapping, once with
    ruamel.yaml's.

    Raises:
        SettingsError: the text cannot be edited safely.
    """
    import yaml
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    lines = text.replace("\r\n", "\n")
    editor = YAML()
    editor.preserve_quotes, editor.width = True, sys.maxsize
    step = len(match[1]) if (match := re.search(r"^( +)\S", lines, re.MULTILINE)) else 2
    offset = len(match[1]) if (match := re.search(r":[ \t]*\n( *)- ", lines)) else 0
    editor.indent(mapping=step, sequence=offset + 2, offset=offset)
    editor.representer.add_representer(str, _represent_text)

    def dump() -> str:
        editor.dump(document, written := io.StringIO())
        return written.getvalue()

    try:
        expected = yaml.safe_load(lines) or {}
        document = editor.load(lines)
        change(expected)
        if document is None:  # the file has only comments
            change(document := {})
            edited = f"{lines.rstrip()}\n{dump()}".lstrip()
        else:
            before = dump()
            change(document)
            edited = _keep_lines(lines, before, dump())
            if not _holds(edited, expected):
                edited = dump()
    except (yaml.YAMLError, YAMLError, *_LEAKS) as error:
        reason = " ".join(str(error).split())
        raise SettingsError(f"{where}: edit it by hand, it is not YAML: {reason}") from None
    if not _holds(edited, expected):
        raise SettingsError(f"{where} cannot be edited safely; edit it by hand")
    return edited.replace("\n", "\r\n") if "\r\n" in text else edited


def _holds(text: str, expected: Any) -> bool:
    import yaml

    try:
        return bool(yaml.safe_load(text) == expected)
    except (yaml.YAMLError, *_LEAKS):
        return False


def _keep_lines(text: str, before: str, after: str) -> str:
    """Return the changed text, in the original layout of all unchanged lines.

    Args:
        before: the original as ruamel.yaml lays it out.
        after: the same with the change.
    """
    old, was, new = (t.removesuffix("\n").split("\n") for t in (text, before, after))
    blocks = SequenceMatcher(None, old, was, autojunk=False).get_matching_blocks()
    lines = {there + n: here + n for here, there, size in blocks for n in range(size)}
    if len(old) == len(was):  # the layouts differ line by line
        lines = {n: n for n in range(len(was))}
    lines |= {-1: -1, len(was): len(old)}
    for tag, start, end, new_start, new_end in reversed(
        SequenceMatcher(None, was, new, autojunk=False).get_opcodes()
    ):
        if tag == "equal":
            continue
        if not (lines.keys() & {start - 1, start} and lines.keys() & {end - 1, end}):
            return after
        first, last = (lines.get(n, lines.get(n - 1, 0) + 1) for n in (start, end))
        added = new[new_start:new_end]
        # ruamel.yaml deletes the comments after a key with it.
        comments = [line for line in old[first:last] if line.lstrip()[:1] == "#"]
        old[first:last] = [*(line for line in comments if line not in added), *added]
    return "\n".join(old) + "\n"


def _represent_text(representer: Any, text: str) -> Any:
    """Quote what PyYAML would not read as text: YAML 1.1 has more spellings of true and false."""
    import yaml

    try:
        is_plain = yaml.safe_load(text) == text
    except (yaml.YAMLError, *_LEAKS):
        is_plain = False
    style = None if is_plain else '"'
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=style)


# -- The keys of all settings, with their types and limits

KeyPath = tuple[str, ...]
# Sections that hold names chosen by the user
USER_NAMED_SECTIONS: Final = ("agents", "endpoints", "prices")


# Sections, keys and values used by files of earlier versions, by the package that owns them now.
_ELSEWHERE: Final[Mapping[str, frozenset[str]]] = {
    "memtier-papers": frozenset(
        {
            *("ask.hypothetical", "ask.mode: tools", "ask.planner", "attribution.model"),
            *("attribution.proxy: jaccard", "attribution.proxy: overlap"),
            *("attribution.proxy: logprob", "causes", "consolidation.second_look"),
            *("consolidation.tools", "gate", "paper", "people", "priority", "rerank"),
            *("retrieval.profile: paper", "retrieval.profile: rrf", "retrieval.router"),
            *(
                "retrieval.search: tiers",
                "retrieval.weights.hypothetical",
                "retrieval.weights.surprise",
                "rrf",
            ),
        }
    )
}


class Key(NamedTuple):
    """The type and limits of one key."""

    kind: Any
    default: Any = None
    limits: Within | Literal["url", "server"] = Within(-math.inf, math.inf)

    def joined(self, known: Key) -> Key:
        """Return the key merged with a known one; of two choices, the known values come first."""
        if get_origin(self.kind) is not Literal:
            return self
        return self._replace(kind=Literal[(*get_args(known.kind), *get_args(self.kind))])

    def takes(self, value: Any) -> bool:
        """Return whether the key accepts a value."""
        try:
            self.accept(value)
        except ValueError:
            return False
        return True

    def accept(self, value: Any) -> Any:
        """Return the value as its section stores it.

        Raises:
            ValueError: says what is expected instead.
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
    """Return every key by its path, with a star in place of user-chosen names.

    Two are not part of `Settings`: ``project`` selects them, ``workspaces`` says which folder they
    are for.
    """
    choosing = {("project",): Key(str), ("workspaces", "*"): Key(str)}
    keys = dict(_declared(Settings, ())) | choosing
    for section, path in plugin_sections():
        for name, key in _declared(section, path):
            keys[name] = key.joined(keys[name]) if name in keys else key
    return keys


@cache
def plugin_sections() -> tuple[tuple[type[Record], KeyPath], ...]:
    """Return the sections that plugins declare, each with its path."""
    from memtier_plugin.core import plugins  # a circular import otherwise

    declared = plugins.find_settings()
    return tuple((section, tuple(path.split("."))) for section, path in declared.items())


def missing_package(path: KeyPath, value: Any = None) -> str | None:
    """Return the missing package that defines a key, or that accepts this value of a known key."""
    names = {".".join(path[:depth]) for depth in range(1, len(path) + 1)}
    known = {".".join(key[:depth]) for key in all_keys() for depth in range(1, len(key) + 1)}
    unknown = {name for name in names if name not in known}
    if isinstance(value, str):
        unknown.add(f"{'.'.join(path)}: {value}")
    return next((package for package, keys in _ELSEWHERE.items() if unknown & keys), None)


def key_pattern(path: KeyPath) -> KeyPath:
    """Return the path in the form that `all_keys` uses."""
    named = path[0] in (*USER_NAMED_SECTIONS, "workspaces") and len(path) > 1
    return (path[0], "*", *path[2:]) if named else path
