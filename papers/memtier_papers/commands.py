"""The papers' commands, which only the CLI loads."""

from __future__ import annotations

from collections.abc import Mapping

from memtier_plugin.core.entry_points import CommandSpec


def memtier_commands() -> Mapping[str, CommandSpec]:
    """Return `memtier uplift` and `memtier people show`."""
    return {
        "uplift": CommandSpec(
            "memtier_papers.memtier.uplift_command",
            "Show which lines help or harm, by runs that went without them.",
            "Look closer",
            {"uplift": "--kind fact"},
        ),
        "people show": CommandSpec(
            "memtier_papers.true_memory.people_command",
            "Show what is known about a person, or everyone.",
        ),
    }
