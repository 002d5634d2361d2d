"""The public surface: what `memtier_plugin` exports, and `memtier`, its other name."""

from __future__ import annotations

from importlib import import_module

import pytest

import memtier
import memtier_plugin
from tests.cases import each_case

PUBLIC = """
    Answer AsyncMemTier Entry Fact FactDraft Hit MemTier MemTierError MemoryPool Message
    PromptAddition PromptEvent Recall RecallRequest RunContext RunEvent Selection Settings Shown
    Signal Source ToolCall Workers hookimpl register
""".split()  # noqa: SIM905


def test_the_names_are_these() -> None:
    """No public name comes or goes by accident."""
    assert memtier_plugin.__all__ == PUBLIC
    assert memtier.__all__ == PUBLIC
    assert memtier.__version__ == memtier_plugin.__version__


@each_case("name", PUBLIC)
def test_a_name_is_the_same_under_both(name: str) -> None:
    """Both modules give the same object, documented."""
    assert getattr(memtier, name) is getattr(memtier_plugin, name)
    assert getattr(memtier, name).__doc__


def test_other_names_are_refused() -> None:
    """`memtier` has no submodules and no private names of its own."""
    with pytest.raises(AttributeError, match="no attribute 'Store'"):
        memtier.Store  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import_module("memtier.memory")
