"""A small YAML file that knows the line of every key, read safely and edited in place."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import OPEN_FLAGS, check_ownership

if TYPE_CHECKING:
    from yaml import Node, SafeLoader

MAX_BYTES: Final = 64 * 1024
# What PyYAML lets out of int(), float(), datetime and its own tables on odd scalars.
_LEAKS: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


def read_config_text(path: Path, *, within: Path | None = None) -> str | None:
    """Return a file's text, or None if there is no such file.

    Without ``within`` the file must be the user's own and no symlink; a file ``within`` a
    workspace may be anybody's, and a symlink that stays in it.

    Raises:
        SettingsError: it cannot be read, is too large or is not UTF-8 text.
        UnsafePath: a symlink, or a file of another owner, stands in the home.
    """
    try:
        if within is not None:
            path = _resolved(path, within)
        else:
            check_ownership(path, path.lstat(), stat.S_IFREG)
        # Not blocking: somebody may have put a pipe there.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | OPEN_FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SettingsError(f"{path} is not a plain file")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{path} is larger than {MAX_BYTES} bytes; settings never are")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: not UTF-8 text ({error.reason})") from None


def _resolved(path: Path, within: Path) -> Path:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(within)):
        raise SettingsError(f"{path} is a symlink out of its folder, to {real}; use a real file")
    return real


@cache
def _plain_loader() -> type[SafeLoader]:
    """Return a loader without merge keys: a few of merges of merges took a machine's memory."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        def flatten_mapping(self, node: Node) -> None:  # called for each mapping
            pass

    return PlainLoader


class YamlFile:
    """One parsed YAML document whose top level is a mapping, or empty."""

    def __init__(self, name: str, loader: SafeLoader, root: Node | None, text: str) -> None:
        self.name = name
        self.root = root
        self._loader = loader
        self._text = text

    @classmethod
    def parse(cls, name: str, text: str) -> Self:
        """Parse the text; ``name`` is what errors call the file.

        Raises:
            SettingsError: with file, line and column.
        """
        import yaml

        try:
            loader = _plain_loader()(text)
            return cls(name, loader, loader.get_single_node(), text)
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
        """Yield (key, value node, ``file:line``) of a mapping node; an empty one has none.

        Raises:
            SettingsError: it is no mapping (``title`` names it), or a key is no text or repeated.
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
                raise SettingsError(f"{source}: {key!r} is set twice, first at {lines[key]}")
            lines[key] = source
            yield key, child, source

    def value(self, node: Node) -> Any:
        """Return the Python value of a node.

        Raises:
            SettingsError: YAML cannot make one of it.
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

    def replace_block(self, key: str, values: Mapping[str, str]) -> str:
        """Return the text with one top-level mapping replaced or appended, the rest untouched.

        Comments inside the old mapping are lost.  In a file that is not written in block style
        the result may be no YAML at all: parse it before using it.
        """
        import yaml

        block = yaml.safe_dump({key: dict(values)}, default_flow_style=False).rstrip()
        for key_node, child in self.root.value if isinstance(self.root, yaml.MappingNode) else ():
            if key_node.value == key:
                # A block mapping ends where the next key begins, comments between them included.
                last = child.value[-1][1] if child.value and not child.flow_style else child
                start, end = key_node.start_mark.index, last.end_mark.index
                return self._text[:start] + block + (self._text[end:] or "\n")
        gap = "" if not self._text or self._text.endswith("\n") else "\n"
        return f"{self._text}{gap}{block}\n"
