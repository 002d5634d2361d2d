"""Find the entry points of plugins without `importlib.metadata`, which is slow to import."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

COMMANDS_GROUP: Final = "memtier.commands"  # of plugins that only the CLI loads


class CommandSpec(NamedTuple):
    """A command of `memtier`, imported only when it is called.

    Attributes:
        module: the module to import; it has an attribute of the command's name.
        help: the command's line in the list of commands.
        section: the heading it is listed under.
        examples: example arguments, keyed by the words of the command or subcommand.
    """

    module: str
    help: str
    section: str = ""
    examples: Mapping[str, str] = {}


def find_entry_points(group: str) -> dict[str, str]:
    """Return the references of a group, such as `package.module:attribute`, by name.

    If a distribution is installed in two folders of the path, the first one wins.
    """
    points: dict[str, str] = {}
    distributions: set[str] = set()
    for folder in filter(Path.exists, map(Path, sys.path)):
        if not folder.is_dir():
            return _read_slowly(group)  # an archive
        for pattern in ("*.dist-info/entry_points.txt", "*.egg-info/entry_points.txt"):
            for file in sorted(folder.glob(pattern)):
                distribution = file.parent.name.partition("-")[0]
                if distribution not in distributions:
                    distributions.add(distribution)
                    points = {**_read_group(file, group), **points}
    return points


def load_entry_point(reference: str) -> Any:
    """Import the object that an entry point refers to."""
    module, _, attributes = reference.partition("[")[0].partition(":")
    target: Any = import_module(module.strip())
    for name in filter(None, attributes.strip().split(".")):
        target = getattr(target, name)
    return target


def _read_group(file: Path, group: str) -> dict[str, str]:
    points: dict[str, str] = {}
    section = ""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError):  # another process is installing it
        return {}
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line[1:-1]
        elif section == group and line and line[0] not in "#;":
            name, _, reference = line.partition("=")
            points[name.strip()] = reference.strip()
    return points


def _read_slowly(group: str) -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=group)}
