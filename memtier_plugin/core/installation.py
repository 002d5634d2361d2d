"""The commands that install what is missing, from the source of this MemTier.

No package index has MemTier, so a requirement names the folder, file or repository it came from.
Without `importlib.metadata`, which is slow to import: a recall's label may hold such a command.
"""

from __future__ import annotations

import shlex
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from memtier_plugin.core.formats import parse_json_text

_FOLDERS: Final = {"memtier": ".", "memtier-bench": "bench", "memtier-papers": "papers"}
_NEEDS: Final = {"memtier-bench": ("memtier-papers",)}  # besides `memtier` itself
_CHECKOUT: Final = Path(__file__).parents[2]  # where a host loads it in place


@cache
def install_command(requirement: str) -> str:
    """Return the shell command that installs a requirement into the Python that runs this.

    Args:
        requirement: a package of MemTier, such as ``memtier[web]`` or ``memtier-papers``; any other
            is taken from the index.
    """
    needed = _NEEDS.get(requirement.partition("[")[0], ())
    sources = [word for each in (*needed, requirement) for word in _locate(each)]
    if find_spec("pip") is None:  # `uv tool` makes environments without it
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *sources])
    return shlex.join([sys.executable, "-m", "pip", "install", *sources])


def _locate(requirement: str) -> list[str]:
    """Return pip's arguments for a requirement: its source, or its name where none is known."""
    name, bracket, extras = requirement.partition("[")
    if name not in _FOLDERS:
        return [requirement]
    own = _read_origin(name)
    record = own or _read_origin("memtier") or {"url": _CHECKOUT.as_uri()}
    url = urlsplit(record["url"])
    path = Path(unquote(url.path)) if url.scheme == "file" else None
    if path is not None and own is None:
        path /= _FOLDERS[name]
    if path is not None and (path / "pyproject.toml").is_file():
        editable = ["-e"] if record.get("dir_info", {}).get("editable") else []
        return [*editable, f"{path}{bracket}{extras}"]
    if own is None or (path is not None and not path.is_file()):
        return [requirement]
    vcs = own.get("vcs_info")
    source = f"{vcs['vcs']}+{own['url']}@{vcs['commit_id']}" if vcs else own["url"]
    return [f"{requirement} @ {source}"]


def _read_origin(name: str) -> dict[str, Any] | None:
    """Return what pip or uv noted of a distribution's source (PEP 610), if it is installed."""
    for folder in sys.path:
        for file in Path(folder).glob(f"{name.replace('-', '_')}-*.dist-info/direct_url.json"):
            try:
                record = parse_json_text(file.read_text("utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(record, dict) and isinstance(record.get("url"), str):
                return record
    return None
