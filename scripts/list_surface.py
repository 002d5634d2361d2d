"""List what a user can call or set: commands with their options, settings, JSON-RPC methods.

Usage::

    python scripts/list_surface.py > FILE

`tests/golden/surface_of_91fc2ae.json` is what it printed of that commit; `generate_docs.py` puts
today's list beside it in docs/surface.md.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

import memtier_plugin
from memtier_plugin.cli.main import main
from memtier_plugin.core.settings.yaml_file import all_keys
from memtier_plugin.server.methods import METHODS, Methods

Surface = dict[str, dict[str, dict[str, Any]]]


def list_surface() -> Surface:
    """Return each command, setting and method, with the file it lives in."""
    readers = {".".join(path): [*_find_readers(path)] for path in all_keys()}
    return {
        "commands": dict(_list_commands(main, "")),
        "settings": {key: {"in": files} for key, files in readers.items()},
        "methods": {name: {"in": [_file_of(getattr(Methods, name))]} for name in METHODS},
    }


def _list_commands(group: click.Group, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the commands that are not groups, with their options."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command, words = group.get_command(context, name), f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from _list_commands(command, words)
        elif command is not None:
            flags = ((*param.opts, *param.secondary_opts) for param in command.params)
            options = {flag for several in flags for flag in several}
            assert command.callback
            yield words, {"in": [_file_of(command.callback)], "options": sorted(options)}


def _find_readers(path: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that read a setting: those that name it with its group, or else both apart.

    The schema alone is named where no file does so, or more than five.
    """
    words = [word for word in path if word != "*"]
    together = re.compile(r"\.".join(map(re.escape, words[-2:])) + r"\b")
    readers = [name for name, text in _sources().items() if together.search(text)]
    apart = [re.compile(rf"\.{re.escape(word)}\b") for word in (words[0], words[-1])]
    readers = readers or [
        name for name, text in _sources().items() if all(each.search(text) for each in apart)
    ]
    yield from readers if 0 < len(readers) < 6 else ["memtier_plugin/core/settings/schema.py"]


@cache
def _sources() -> dict[str, str]:
    """Return the text of each file but the settings' own, by its name."""
    root = Path(memtier_plugin.__file__).parents[1]
    trees = ("memtier_plugin", "hooks", "daemon", "papers", "bench")
    paths = (path for tree in trees for path in sorted((root / tree).rglob("*.py")))
    texts = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}
    return {
        name: text
        for name, text in texts.items()
        if "/tests/" not in name and "core/settings" not in name
    }


def _file_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    path = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    root = Path(memtier_plugin.__file__).parents[1]
    return path.resolve().relative_to(root.resolve()).as_posix()


if __name__ == "__main__":
    print(json.dumps(list_surface(), indent=1, sort_keys=True))
