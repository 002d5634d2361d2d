"""The `memtier` command: documents on stdout, everything else on stderr, exit 1 on an error.

A command's module is imported when the command is called; `memtier --help` imports none of them.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from memtier_plugin import __version__
from memtier_plugin.cli.lazy import Lazy, LazyGroup
from memtier_plugin.cli.scope import common_options, scope_of
from memtier_plugin.core.entry_points import COMMANDS_GROUP, may_be_installed

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import CommandSpec

COMMANDS: Final = {
    "agents": Lazy("listing", "List the agents of the project, the last that spoke first."),
    "ask": Lazy("ask", "Answer QUESTION from what is remembered, with the lines it rests on."),
    "backup": Lazy("transfer", "Back up the project into one archive, DEST, while others write."),
    "bill": Lazy(
        "bill",
        "Show what the memory costs in prompts, and what everything in the system prompt would.",
    ),
    "config": Lazy("config", "Show and check the settings."),
    "consolidate": Lazy("consolidate", "Consolidate new entries into facts now."),
    "daemon": Lazy("background", "Run the background jobs: entries become facts."),
    "demo": Lazy("demo", "Demonstrate MemTier on a small conversation, in ./memtier-demo."),
    "diff": Lazy("time_travel", "Show what changed between two moments (2d, 2026-03-14)."),
    "distill": Lazy("distill", "Distil an embedding model of TEACHER into FOLDER."),
    "doctor": Lazy("doctor", "Check files, index, settings and hosts; exit 1 on an error."),
    "edit": Lazy("edit", "Edit facts, or a day of the log, as a text in $EDITOR."),
    "embed": Lazy("embed", "Make the missing vectors of embedding.model now."),
    "explain": Lazy("explain", "Explain the hits of a recall, or what became of one line."),
    "export": Lazy(
        "transfer",
        "Export the memory of the project, or with --agent of one agent.",
    ),
    "facts": Lazy("facts", "List, search and review the project's facts."),
    "forget": Lazy("forget", "Hide lines everywhere: by id, words, session, sender, time."),
    "hook": Lazy("hook", "Pass an event of AGENT (JSON on stdin) on to the memory."),
    "import": Lazy(
        "transfer",
        "Read conversations or memories of FILE (or a folder, or ZIP) into the log.",
    ),
    "gate": Lazy("gate", "Tell whether a change makes answers worse; exit 1 if it does."),
    "init": Lazy("project", "Set up the home and this folder's project."),
    "install": Lazy(
        "install",
        "Make HOST use MemTier, and prove it by a turn; without HOST, list the hosts here.",
    ),
    "log": Lazy("log", "Read the daily log: who said what, and what happened to it."),
    "mcp": Lazy("mcp", "Serve the memory to clients of the Model Context Protocol."),
    "metrics": Lazy(
        "metrics",
        "Print the project's metrics for Prometheus: recalls, tokens, silence, credits, costs.",
    ),
    "off": Lazy("project", "Pause recording and recall of the project."),
    "on": Lazy("project", "Resume recording and recall."),
    "people": Lazy("people", "List the people who spoke, and say which senders are one."),
    "private": Lazy("record", "Keep a session to its agent for good: no facts, nothing shared."),
    "projects": Lazy("listing", "List the projects of the home, and which one is this folder's."),
    "purge": Lazy("forget", "Erase lines, or a text, from every file; with a receipt."),
    "recall": Lazy("recall", "Recall the lines that matter for QUERY, each with its source."),
    "record": Lazy("record", "Write messages (JSON or JSON Lines; - for stdin) to the log."),
    "reindex": Lazy("project", "Rebuild the index from the ledgers."),
    "remember": Lazy("record", "Store a fact that all agents of the project recall."),
    "restore": Lazy("transfer", "Restore an archive as a new project; existing ones stay."),
    "review": Lazy(
        "review",
        "Decide on what waits: facts, forgets and contradictions.",
    ),
    "revert": Lazy("time_travel", "Undo one consolidation or recorded run, keeping later work."),
    "self-check": Lazy(
        "self_check", "Check this installation, in a temporary home; exit 1 on an error."
    ),
    "serve": Lazy("background", "Answer JSON-RPC of hosts, as the one resident of a home."),
    "sessions": Lazy("listing", "List the sessions of the project, the last that spoke first."),
    "shared": Lazy("shared", "Share the project's ledgers among machines, by a server."),
    "status": Lazy("status", "Show what is stored, which hooks last ran, what is degraded."),
    "token": Lazy("token", "Let clients of `memtier serve --tcp` in, each to its own projects."),
    "tui": Lazy("tui", "Review what waits and read the log, on a full screen."),
    "web": Lazy("web", "Show the memory in a browser: log, facts, review, recalls, health."),
    "unforget": Lazy(
        "forget",
        "Bring back what `forget` hid, and the facts hidden with it; without IDS, list it.",
    ),
}


def _names(text: str) -> Sequence[str]:
    return text.split()


SECTIONS: Final = {
    # In the order of a first day.
    "Every day": _names("install init status ask recall remember log review forget doctor"),
    "Look closer": _names(
        "agents bill diff explain facts metrics people projects sessions tui web"
    ),
    "Correct and take back": _names("edit off on private purge revert unforget"),
    "Bring in and take out": _names("backup export import record restore"),
    "Keep running": _names("consolidate daemon embed hook mcp reindex serve shared token"),
    "Set up and measure": _names("config demo distill gate self-check"),
}
# What people call; `status` and `doctor` say it themselves, the others serve programs.
_SAY_IT: Final = ("status", "doctor", "metrics")
_FOR_PEOPLE: Final = {*SECTIONS["Every day"], *SECTIONS["Look closer"], "search"}.difference(
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
    lazy=COMMANDS,
    aliases=ALIASES,
    sections=SECTIONS,
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
