"""MemTier under its own name: ``import memtier`` gives the public names of `memtier_plugin`.

Everything else lives in `memtier_plugin` alone; there are no submodules here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import memtier_plugin
from memtier_plugin import __all__
from memtier_plugin import __version__ as __version__

if TYPE_CHECKING:
    from memtier_plugin import *  # noqa: F403

__all__ = [*__all__]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, as `memtier_plugin` does."""
    return getattr(memtier_plugin, name)
