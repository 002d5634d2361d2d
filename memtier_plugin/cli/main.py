"""The `memtier` command: documents on stdout, everything else on stderr, exit 1 on an error.

A command's module is imported when the command is called; `memtier --help` imports none of them.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from memtier_plugin import __version__
from memtier_plugin.cli.lazy import Lazy, LazyGroup
from memtier_plugin.cli.scope import common_options, scope_of
from memtier_plugin.core.entry_points import COMMANDS_GROUP, may_be_installed

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import CommandSpec

# By the heading in the list of all, those of a first day in its order.
COMMANDS: Final[Mapping[str, Mapping[str, Lazy]]] = {
    "Every day": {
        "install": Lazy(
            "memtier_plugin.cli.install",
            "Make HOST use MemTier, and prove it by a turn; without HOST, list the hosts here.",
        ),
        "init": Lazy("memtier_plugin.cli.project", "Set up the home and this folder's project."),
        "status": Lazy(
            "memtier_plugin.cli.status",
            "Show what is stored, which hooks last ran, what is degraded.",
        ),
        "ask": Lazy(
            "memtier_plugin.cli.ask",
            "Answer QUESTION from what is remembered, with the lines it rests on.",
        ),
        "recall": Lazy(
            "memtier_plugin.cli.recall",
            "Recall the lines that matter for QUERY, each with its source.",
        ),
        "remember": Lazy(
            "memtier_plugin.cli.record", "Store a fact that all agents of the project recall."
        ),
        "log": Lazy(
            "memtier_plugin.cli.log", "Read the daily log: who said what, and what happened to it."
        ),
        "review": Lazy(
            "memtier_plugin.cli.review", "Decide on what waits: facts, forgets and contradictions."
        ),
        "forget": Lazy(
            "memtier_plugin.cli.forget",
            "Hide lines everywhere: by id, words, session, sender, time.",
        ),
        "doctor": Lazy(
            "memtier_plugin.cli.doctor",
            "Check files, index, settings and hosts; exit 1 on an error.",
        ),
    },
    "Look closer": {
        "agents": Lazy(
            "memtier_plugin.cli.listing",
            "List the agents of the project, the last that spoke first.",
        ),
        "bill": Lazy(
            "memtier_plugin.cli.bill",
            "Show what the memory costs in prompts, and what all of it in every prompt would.",
        ),
        "diff": Lazy(
            "memtier_plugin.cli.time_travel",
            "Show what changed between two moments (2d, 2026-03-14).",
        ),
        "explain": Lazy(
            "memtier_plugin.cli.explain",
            "Explain the hits of a recall, or what became of one line.",
        ),
        "facts": Lazy("memtier_plugin.cli.facts", "List, search and review the project's facts."),
        "metrics": Lazy(
            "memtier_plugin.cli.metrics",
            "Print the project's metrics for Prometheus: recalls, tokens, silence, credits, costs.",
        ),
        "people": Lazy(
            "memtier_plugin.cli.people", "List the people who spoke, and say which senders are one."
        ),
        "projects": Lazy(
            "memtier_plugin.cli.listing",
            "List the projects of the home, and which one is this folder's.",
        ),
        "sessions": Lazy(
            "memtier_plugin.cli.listing",
            "List the sessions of the project, the last that spoke first.",
        ),
        "tui": Lazy(
            "memtier_plugin.cli.tui", "Review what waits and read the log, on a full screen."
        ),
        "web": Lazy(
            "memtier_plugin.cli.web",
            "Show the memory in a browser: log, facts, review, recalls, health.",
        ),
    },
    "Correct and take back": {
        "edit": Lazy(
            "memtier_plugin.cli.edit", "Edit facts, or a day of the log, as a text in $EDITOR."
        ),
        "off": Lazy("memtier_plugin.cli.project", "Pause recording and recall of the project."),
        "on": Lazy("memtier_plugin.cli.project", "Resume recording and recall."),
        "private": Lazy(
            "memtier_plugin.cli.record",
            "Keep a session to its agent for good: no facts, nothing shared.",
        ),
        "purge": Lazy(
            "memtier_plugin.cli.forget", "Erase lines, or a text, from every file; with a receipt."
        ),
        "revert": Lazy(
            "memtier_plugin.cli.time_travel",
            "Undo one consolidation or recorded run, keeping later work.",
        ),
        "unforget": Lazy(
            "memtier_plugin.cli.forget",
            "Bring back what `forget` hid, and the facts hidden with it; without IDS, list it.",
        ),
    },
    "Bring in and take out": {
        "backup": Lazy(
            "memtier_plugin.cli.transfer",
            "Back up the project into one archive, DEST, while others write.",
        ),
        "export": Lazy(
            "memtier_plugin.cli.transfer",
            "Export the memory of the project, or with --agent of one agent.",
        ),
        "import": Lazy(
            "memtier_plugin.cli.transfer",
            "Read conversations or memories of FILE (or a folder, or ZIP) into the log.",
        ),
        "record": Lazy(
            "memtier_plugin.cli.record",
            "Write messages (JSON or JSON Lines; - for stdin) to the log.",
        ),
        "restore": Lazy(
            "memtier_plugin.cli.transfer",
            "Restore an archive as a new project; existing ones stay.",
        ),
    },
    "Keep running": {
        "consolidate": Lazy(
            "memtier_plugin.cli.consolidate", "Consolidate new entries into facts now."
        ),
        "daemon": Lazy(
            "memtier_plugin.cli.background", "Run the background jobs: entries become facts."
        ),
        "embed": Lazy(
            "memtier_plugin.cli.embed", "Make the missing vectors of embedding.model now."
        ),
        "hook": Lazy(
            "memtier_plugin.cli.hook", "Pass an event of AGENT (JSON on stdin) on to the memory."
        ),
        "mcp": Lazy(
            "memtier_plugin.cli.mcp", "Serve the memory to clients of the Model Context Protocol."
        ),
        "reindex": Lazy("memtier_plugin.cli.project", "Rebuild the index from the ledgers."),
        "serve": Lazy(
            "memtier_plugin.cli.background",
            "Answer JSON-RPC of hosts, as the one resident of a home.",
        ),
        "shared": Lazy(
            "memtier_plugin.cli.shared", "Share the project's ledgers among machines, by a server."
        ),
        "token": Lazy(
            "memtier_plugin.cli.token",
            "Let clients of `memtier serve --tcp` in, each to its own projects.",
        ),
    },
    "Set up and measure": {
        "config": Lazy("memtier_plugin.cli.config", "Show and check the settings."),
        "demo": Lazy(
            "memtier_plugin.cli.demo",
            "Demonstrate MemTier on a small conversation, in ./memtier-demo.",
        ),
        "distill": Lazy(
            "memtier_plugin.cli.distill", "Distil an embedding model of TEACHER into FOLDER."
        ),
        "gate": Lazy(
            "memtier_plugin.cli.gate",
            "Tell whether a change makes answers worse; exit 1 if it does.",
        ),
        "self-check": Lazy(
            "memtier_plugin.cli.self_check",
            "Check this installation, in a temporary home; exit 1 on an error.",
        ),
    },
}

# What people call; `status` and `doctor` say it themselves, the others serve programs.
_SAY_IT: Final = ("status", "doctor", "metrics")
_FOR_PEOPLE: Final = {*COMMANDS["Every day"], *COMMANDS["Look closer"], "search"}.difference(
    _SAY_IT
)
ALIASES: Final = {"search": "recall"}  # by the name that the hosts' commands and tools have


def _find_commands() -> Mapping[str, CommandSpec]:
    if not may_be_installed(COMMANDS_GROUP):
        return {}
    from memtier_plugin.core.plugins import find_commands  # here: it takes longer than the rest

    return find_commands()


@click.group(
    cls=LazyGroup,
    sections=COMMANDS,
    aliases=ALIASES,
    added=_find_commands,
    params=common_options(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="memtier %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A memory for agents that tracks what was said, what helped, and the source of each line."""
    scope_of(ctx)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # for terminals that cannot show a character
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif ctx.invoked_subcommand in _FOR_PEOPLE:
        _warn_of_silent_hosts(ctx)


def _warn_of_silent_hosts(ctx: click.Context) -> None:
    """Say which host no longer calls MemTier: that host cannot."""
    from datetime import UTC, datetime

    from memtier_plugin.core.errors import MemTierError
    from memtier_plugin.hosts.silence import describe_silent_hosts

    with suppress(MemTierError, OSError):  # the command itself reports what ails the home
        for line in describe_silent_hosts(scope_of(ctx).path, datetime.now(UTC)):
            click.echo(f"memtier: {line}", err=True)
