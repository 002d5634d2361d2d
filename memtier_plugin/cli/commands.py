"""The commands of `memtier` with their lines of help, kept free of click and of the commands."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from memtier_plugin.core.entry_points import (
    COMMANDS_GROUP,
    CommandSpec,
    find_entry_points,
    load_entry_point,
)

DESCRIPTION: Final = (
    "A memory for agents that tracks what was said, what helped, and the source of each line."
)
COMMON_OPTIONS: Final = (  # flag, metavar, help
    ("--home", "PATH", "The folder that holds all data [MEMTIER_HOME, ~/.memtier]."),
    ("--project", "NAME", "The project [MEMTIER_PROJECT, this folder's, the hosts']."),
    ("--agent", "NAME", "The agent whose memory to use [main; searches: all]."),
    ("--json", None, "Print one JSON document."),
    ("--no-pager", None, "Do not page long output [PAGER]."),
)
_OTHER_OPTIONS: Final = (
    ("--version", "Show the version and exit."),
    ("-h, --help", "Show this message and exit."),
)
_MOST_COLUMNS: Final = 80

# By section; the first is in the order of a first day.
COMMANDS: Final[Mapping[str, Mapping[str, CommandSpec]]] = {
    title: {
        name: CommandSpec(f"memtier_plugin.cli.{module}", text)
        for name, (module, text) in names.items()
    }
    for title, names in {
        "Every day": {
            "install": (
                "install",
                "Connect HOST to MemTier and test it; without HOST, list hosts.",
            ),
            "init": ("settings", "Set up the home and this folder's project."),
            "status": ("status", "Show what is stored, the last hook calls, and any problems."),
            "ask": ("ask", "Answer QUESTION from memory, and cite the lines used."),
            "recall": ("ask", "Recall the lines relevant to QUERY, each with its source."),
            "remember": ("log", "Store a fact for all agents of the project."),
            "log": ("log", "Read the daily log: who said what, and what happened to it."),
            "review": ("review", "Review pending facts, forgets and contradictions."),
            "forget": ("forget", "Hide lines by id, words, session, sender or time."),
            "doctor": ("doctor", "Check files, index, settings and hosts; exit 1 on an error."),
        },
        "Look closer": {
            "agents": ("listing", "List the project's agents, most recently active first."),
            "bill": ("metrics", "Compare what memory costs with a full system prompt."),
            "diff": ("facts", "Show what changed between two times (2d, 2026-03-14)."),
            "explain": ("explain", "Explain the hits of a recall, or the history of a line."),
            "facts": ("facts", "List, search and review the project's facts."),
            "metrics": ("metrics", "Print the project's metrics in Prometheus' text format."),
            "people": ("listing", "List the people who spoke, and merge their senders."),
            "projects": ("listing", "List the projects of the home, marking this folder's."),
            "rules": ("facts", "List rules set by corrections, and how often each was shown."),
            "sessions": ("listing", "List the project's sessions, most recently active first."),
            "todo": ("facts", "List what users want to be reminded of, or close items."),
            "tui": ("screens", "Review pending items and read the log, full screen."),
            "web": ("screens", "Browse the memory: log, facts, review, recalls, health."),
            "why": ("explain", "Explain why a line was not used for a prompt, and what to do."),
        },
        "Correct and take back": {
            "edit": ("edit", "Edit facts, or a day of the log, as text in $EDITOR."),
            "off": ("settings", "Pause recording and recall of the project."),
            "on": ("settings", "Resume recording and recall."),
            "private": ("log", "Keep a session private to its agent, for good."),
            "purge": ("forget", "Erase lines, or a text, from every file, with a receipt."),
            "revert": ("facts", "Undo one consolidation or recorded run, keeping later work."),
            "unforget": ("forget", "Restore what `forget` hid; without IDS, list it."),
        },
        "Bring in and take out": {
            "backup": ("transfer", "Back up the project into an archive, DEST, while it is used."),
            "export": ("transfer", "Export the project's memory, or one agent's with --agent."),
            "import": ("transfer", "Import conversations or memories from FILE, folder or ZIP."),
            "record": ("log", "Record messages (JSON or JSON Lines; - for stdin)."),
            "restore": ("transfer", "Restore an archive as a new project."),
            "share": ("team", "Share the project's facts with a team, in its git repository."),
        },
        "Keep running": {
            "consolidate": (
                "background",
                "Turn new entries into facts now; exit 1 if a pass ends early.",
            ),
            "daemon": ("background", "Run the background jobs that turn entries into facts."),
            "embed": ("background", "Compute the missing vectors of embedding.model now."),
            "hook": ("hook", "Pass an event from AGENT (JSON on stdin) to the memory."),
            "mcp": ("screens", "Serve the memory to clients of the Model Context Protocol."),
            "reindex": ("settings", "Rebuild the index from the ledgers."),
            "serve": ("serve", "Answer hosts' JSON-RPC as the resident process of a home."),
            "shared": ("shared", "Share the project's ledgers among machines, via a server."),
            "token": ("screens", "Manage tokens that admit clients of `memtier serve --tcp`."),
        },
        "Set up and measure": {
            "config": ("settings", "Show and check the settings."),
            "demo": ("demo", "Demonstrate MemTier on a small conversation."),
            "distill": ("distill", "Distil TEACHER into an embedding model in FOLDER."),
            "gate": ("distill", "Test whether a change makes answers worse; exit 1 if so."),
            "self-check": (
                "doctor",
                "Check the installation in a temporary home; exit 1 on errors.",
            ),
        },
    }.items()
}


@cache
def find_commands() -> dict[str, CommandSpec]:
    """Return the commands that installed packages add to `memtier`, by name.

    A package that cannot be loaded adds none; `memtier doctor` reports it.
    """
    commands: dict[str, CommandSpec] = {}
    for name, reference in find_entry_points(COMMANDS_GROUP).items():
        try:
            added = dict(load_entry_point(reference).memtier_commands())
            if not all(isinstance(spec, CommandSpec) for spec in added.values()):
                raise TypeError("a command is not a CommandSpec (module, help, section, examples)")
            commands |= added
        except Exception as error:  # a foreign module, it may raise anything
            from memtier_plugin.core.plugins import record_failure

            record_failure(name, "memtier_commands", error)
    return commands


def render_help(added: Mapping[str, CommandSpec]) -> str:
    """Return the text of `memtier --help`, with the commands of other packages."""
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS) - 2
    options = [
        (f"{flag} {metavar}" if metavar else flag, text) for flag, metavar, text in COMMON_OPTIONS
    ]
    sections = {title: [*names.items()] for title, names in COMMANDS.items()}
    for name, spec in added.items():
        if " " not in name:  # one of a group
            sections.setdefault(spec.section, []).append((name, spec))
    longest = max(len(name) for names in sections.values() for name, _ in names)
    parts = [
        "Usage: memtier [OPTIONS] [COMMAND] [ARGS]...",
        textwrap.fill(DESCRIPTION, width, initial_indent="  ", subsequent_indent="  "),
        "Options:\n" + _format_rows([*options, *_OTHER_OPTIONS], width),
    ]
    for title, names in sections.items():
        rows = [(f"{name:<{longest}}", spec.help) for name, spec in names]
        parts.append(f"{title}:\n{_format_rows(rows, width)}")
    return "\n\n".join(parts)


def _format_rows(rows: Sequence[tuple[str, str]], width: int) -> str:
    column = 4 + max(len(name) for name, _ in rows)
    return "\n".join(
        textwrap.fill(
            text,
            max(width, column + 10),
            initial_indent=f"  {name:<{column - 2}}",
            subsequent_indent=" " * column,
        )
        for name, text in rows
    )
