"""Check what the set-up of a host needs, before anything is written."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from memtier_plugin.core.errors import SettingsError, Unsupported


def require_mcp() -> None:
    """Refuse without the MCP SDK, by which coding agents reach the memory.

    Raises:
        Unsupported: it is not installed.
    """
    if find_spec("mcp") is None or find_spec("mcp_types") is None:  # mcp_types: since SDK 2
        raise Unsupported(
            f"`memtier mcp` needs the MCP SDK 2, and {sys.prefix} lacks it: `./install.sh` in "
            "MemTier's checkout brings it; or pip install 'memtier[mcp]' (there: '.[mcp]')"
        )


def require_writable(paths: Iterable[Path]) -> None:
    """Refuse where one of these files could not be written.

    Raises:
        SettingsError: names the folder.
    """
    for path in paths:
        folder = path
        while not os.path.lexists(folder := folder.parent):
            pass
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise SettingsError(f"{path} cannot be written; see {folder}: {error}") from None
