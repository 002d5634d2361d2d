"""`memtier learn`: train what ranks and routes on the project's own use."""

from __future__ import annotations

from typing import Final

import click

from memtier_plugin.cli.main import LazyGroup
from memtier_plugin.core.entry_points import CommandSpec

# The command NAME is the attribute NAME of its module; its help must be the line given here.
_HERE: Final = __package__
COMMANDS: Final = {
    "log": CommandSpec(f"{_HERE}.learn_log", "Show what was learned and applied, newest first."),
    "policy": CommandSpec(
        f"{_HERE}.learn_policy", "Train a planner of the searches of `memtier ask` on a data set."
    ),
    "router": CommandSpec(f"{_HERE}.learn_router", "Train the router of depth auto on a data set."),
    "export": CommandSpec(
        f"{_HERE}.learn_export", "Write what trainers of real models read, from a data set."
    ),
    "revert": CommandSpec(
        f"{_HERE}.learn_log", "Undo what was learned last, or the line with this ID of the log."
    ),
    "weights": CommandSpec(
        f"{_HERE}.learn_weights", "Learn ranking weights, and test them on what is held out."
    ),
}


@click.group(cls=LazyGroup, sections={"Commands": dict(sorted(COMMANDS.items()))})
def learn() -> None:
    """Learn from this project's use, and show or undo what was learned."""
