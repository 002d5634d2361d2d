"""`memtier learn`: train what ranks and routes on the project's own use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from memtier_plugin.cli.main import LazyGroup
from memtier_plugin.cli.scope import Scope
from memtier_plugin.core.entry_points import CommandSpec
from memtier_plugin.core.errors import NotFound
from memtier_plugin.memory import MemTier

# The command NAME is the attribute NAME of its module; its help must be the line given here.
_HERE: Final = __package__
COMMANDS: Final = {
    "log": CommandSpec(f"{_HERE}.learn_log", "Show what was learned and applied, newest first."),
    "policy": CommandSpec(
        f"{_HERE}.learn_policy", "Train a planner of the searches of `memtier ask` on a data set."
    ),
    "router": CommandSpec(f"{_HERE}.learn_router", "Train the router of depth auto on a data set."),
    "export": CommandSpec(
        f"{_HERE}.learn_export", "Write training data for other trainers, from a data set."
    ),
    "revert": CommandSpec(
        f"{_HERE}.learn_log", "Undo what was learned last, or the line with this ID of the log."
    ),
    "weights": CommandSpec(
        f"{_HERE}.learn_weights", "Learn ranking weights, and test them on held-out questions."
    ),
}


@click.group(cls=LazyGroup, sections={"Commands": dict(sorted(COMMANDS.items()))})
def learn() -> None:
    """Learn from this project's use; show or undo what was learned."""


@contextmanager
def open_for_data(scope: Scope, *, writes: bool) -> Iterator[MemTier]:
    """Open the project for which a command learns from data sets.

    Args:
        writes: whether something is kept in it: where there is none it is made.  Otherwise the
            command then runs in a home that is gone afterwards.
    """
    from memtier_plugin.cli.distill import temporary_home  # what `learn log` need not load

    try:
        opened = scope.open(create=writes)
    except NotFound:
        with (
            temporary_home(scope) as home,
            MemTier.open(home, workspace=Path.cwd()) as memory,
        ):
            yield memory
        return
    with opened as memory:
        yield memory
