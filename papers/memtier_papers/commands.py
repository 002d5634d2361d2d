"""The commands of the papers' mechanisms, which only the terminal loads."""

from __future__ import annotations

from collections.abc import Mapping

from memtier_plugin.core.entry_points import CommandSpec


def memtier_commands() -> Mapping[str, CommandSpec]:
    """Return `memtier uplift`."""
    return {
        "uplift": CommandSpec(
            "memtier_papers.memtier.uplift_command",
            "Show which lines help or harm, by runs that went without them.",
            "Look closer",
            {"uplift": "--kind fact"},
        )
    }
