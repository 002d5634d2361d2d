"""MemTier: a memory for agents that learns from how their tools fared."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pluggy

    from memtier_plugin.answering.answerer import Answer
    from memtier_plugin.async_memory import AsyncMemTier, Workers
    from memtier_plugin.core.errors import MemTierError
    from memtier_plugin.core.hookspecs import hookimpl
    from memtier_plugin.core.records import Entry, Fact, FactDraft, Message, Source, ToolCall
    from memtier_plugin.core.results import (
        Hit,
        PromptAddition,
        PromptEvent,
        Recall,
        RecallRequest,
        RunContext,
        RunEvent,
        Shown,
        Signal,
    )
    from memtier_plugin.core.settings.schema import Settings
    from memtier_plugin.lifecycle.selection import Selection
    from memtier_plugin.memory import MemTier
    from memtier_plugin.pool import MemoryPool

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncMemTier",
    "Entry",
    "Fact",
    "FactDraft",
    "Hit",
    "MemTier",
    "MemTierError",
    "MemoryPool",
    "Message",
    "PromptAddition",
    "PromptEvent",
    "Recall",
    "RecallRequest",
    "RunContext",
    "RunEvent",
    "Selection",
    "Settings",
    "Shown",
    "Signal",
    "Source",
    "ToolCall",
    "Workers",
    "hookimpl",
    "register",
]

# A wheel nests hooks/, daemon/ and config/ in this package; in a checkout or a dropped-in folder
# they lie beside it.  Either way: memtier_plugin.hooks, memtier_plugin.daemon, ...
_HERE = Path(__file__).parent
if not (_HERE / "hooks").is_dir():
    __path__.append(str(_HERE.parent))

_HOMES = {
    "Answer": "answering.answerer",
    "AsyncMemTier": "async_memory",
    "Hit": "core.results",
    "MemTier": "memory",
    "MemTierError": "core.errors",
    "MemoryPool": "pool",
    "PromptAddition": "core.results",
    "PromptEvent": "core.results",
    "Recall": "core.results",
    "RecallRequest": "core.results",
    "RunContext": "core.results",
    "RunEvent": "core.results",
    "Selection": "lifecycle.selection",
    "Settings": "core.settings.schema",
    "Shown": "core.results",
    "Signal": "core.results",
    "Workers": "async_memory",
    "hookimpl": "core.hookspecs",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562): a host that imports us pays for nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'core.records')}"), name)
    globals()[name] = value
    return value


def register(ctx: object) -> pluggy.PluginManager | None:
    """Make MemTier known to a host that loads this folder in place.

    Hermes Agent gets its memory provider, any other host MemTier's hooks.
    """
    if hasattr(ctx, "register_memory_provider"):
        import_module(f"{__name__}.hooks.hermes").register(ctx)
        return None
    manager: pluggy.PluginManager = import_module(f"{__name__}.core.plugins").manager()
    return manager
