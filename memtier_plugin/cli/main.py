"""The `memtier` command, whose groups import a command's module when it is called."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from memtier_plugin import __version__
from memtier_plugin.cli.scope import CliGroup, common_options, scope_of
from memtier_plugin.core.entry_points import COMMANDS_GROUP, may_be_installed

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import CommandSpec


# -- Groups of commands whose modules are imported when a command is called

# Commands of MemTier's other packages, by the package.
ELSEWHERE: Final = {
    "bench": "memtier-bench",
    "learn": "memtier-bench",
    "uplift": "memtier-papers",
}


class Lazy(NamedTuple):
    """A command that is not imported yet: its module and its line of help."""

    module: str
    help: str


class LazyGroup(CliGroup):
    """A group that imports a command's module when the command is needed.

    The command is the module's attribute of the same name (``import_`` for `import`,
    ``self_check`` for `self-check`).

    Args:
        sections: the commands by heading, in the order in which help lists them.
        added: returns the commands of plugins; called for a list of all commands, or a name that
            is in no section.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, Lazy]],
        aliases: Mapping[str, str] | None = None,
        added: Callable[[], Mapping[str, CommandSpec]] = dict,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = {name: lazy for group in sections.values() for name, lazy in group.items()}
        self._aliases = aliases or {}
        self._sections = sections
        self._added = added

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({**self._added(), **self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is no such command."""
        name = self._aliases.get(cmd_name, cmd_name)
        lazy = self._lazy.get(name) or self._added().get(name)
        if lazy is None:
            return None
        attribute = "import_" if name == "import" else name.replace("-", "_")
        command: click.Command = getattr(import_module(lazy.module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from their lines of help, importing none of them."""
        added = self._added()
        helps = {name: lazy.help for name, lazy in self._lazy.items()}
        helps |= {name: spec.help for name, spec in added.items()}
        sections = {title: [*names] for title, names in self._sections.items()}
        for name, spec in added.items():
            sections.setdefault(spec.section, []).append(name)
        longest = max(map(len, helps))
        limit = formatter.width - 6 - longest
        for title, names in sections.items():
            rows = [
                (
                    f"{name:<{longest}}",
                    click.Command(name, help=helps[name]).get_short_help_str(limit),
                )
                for name in sorted(names, key=lambda name: (name in added, names.index(name)))
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; of one that there is not, name its package or the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            if self.get_command(ctx, args[0]) is not None:
                raise
            if package := ELSEWHERE.get(args[0]):
                message = (
                    f"`memtier {args[0]}` is in a package of its own: `pip install {package}`,"
                    " or `make test` in a checkout, which installs all"
                )
                raise click.UsageError(message, ctx) from None
            near = get_close_matches(args[0], [*self.list_commands(ctx), *self._aliases], n=1)
            if not near:
                raise
            message = f"No such command {args[0]!r}. Did you mean {near[0]}?"
            raise click.UsageError(message, ctx) from None


# -- The `memtier` command: documents on stdout, everything else on stderr, exit 1 on an error
#
# A command's module is imported when the command is called; `memtier --help` imports none of them.

# By the heading in the list of all, those of a first day in its order.
COMMANDS: Final[Mapping[str, Mapping[str, Lazy]]] = {
    "Every day": {
        "install": Lazy(
            "memtier_plugin.cli.install",
            "Make HOST use MemTier, and prove it by a turn; without HOST, list the hosts here.",
        ),
        "init": Lazy("memtier_plugin.cli.settings", "Set up the home and this folder's project."),
        "status": Lazy(
            "memtier_plugin.cli.doctor",
            "Show what is stored, which hooks last ran, what is degraded.",
        ),
        "ask": Lazy(
            "memtier_plugin.cli.ask",
            "Answer QUESTION from what is remembered, with the lines it rests on.",
        ),
        "recall": Lazy(
            "memtier_plugin.cli.ask",
            "Recall the lines that matter for QUERY, each with its source.",
        ),
        "remember": Lazy(
            "memtier_plugin.cli.log", "Store a fact that all agents of the project recall."
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
            "memtier_plugin.cli.metrics",
            "Show what the memory costs in prompts, and what all of it in every prompt would.",
        ),
        "diff": Lazy(
            "memtier_plugin.cli.facts",
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
            "memtier_plugin.cli.listing",
            "List the people who spoke, and say which senders are one.",
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
            "memtier_plugin.cli.screens", "Review what waits and read the log, on a full screen."
        ),
        "web": Lazy(
            "memtier_plugin.cli.screens",
            "Show the memory in a browser: log, facts, review, recalls, health.",
        ),
    },
    "Correct and take back": {
        "edit": Lazy(
            "memtier_plugin.cli.edit", "Edit facts, or a day of the log, as a text in $EDITOR."
        ),
        "off": Lazy("memtier_plugin.cli.settings", "Pause recording and recall of the project."),
        "on": Lazy("memtier_plugin.cli.settings", "Resume recording and recall."),
        "private": Lazy(
            "memtier_plugin.cli.log",
            "Keep a session to its agent for good: no facts, nothing shared.",
        ),
        "purge": Lazy(
            "memtier_plugin.cli.forget", "Erase lines, or a text, from every file; with a receipt."
        ),
        "revert": Lazy(
            "memtier_plugin.cli.facts",
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
            "memtier_plugin.cli.log",
            "Write messages (JSON or JSON Lines; - for stdin) to the log.",
        ),
        "restore": Lazy(
            "memtier_plugin.cli.transfer",
            "Restore an archive as a new project; existing ones stay.",
        ),
    },
    "Keep running": {
        "consolidate": Lazy(
            "memtier_plugin.cli.background", "Consolidate new entries into facts now."
        ),
        "daemon": Lazy(
            "memtier_plugin.cli.background", "Run the background jobs: entries become facts."
        ),
        "embed": Lazy(
            "memtier_plugin.cli.background", "Make the missing vectors of embedding.model now."
        ),
        "hook": Lazy(
            "memtier_plugin.cli.hook", "Pass an event of AGENT (JSON on stdin) on to the memory."
        ),
        "mcp": Lazy(
            "memtier_plugin.cli.screens",
            "Serve the memory to clients of the Model Context Protocol.",
        ),
        "reindex": Lazy("memtier_plugin.cli.settings", "Rebuild the index from the ledgers."),
        "serve": Lazy(
            "memtier_plugin.cli.background",
            "Answer JSON-RPC of hosts, as the one resident of a home.",
        ),
        "shared": Lazy(
            "memtier_plugin.cli.shared", "Share the project's ledgers among machines, by a server."
        ),
        "token": Lazy(
            "memtier_plugin.cli.screens",
            "Let clients of `memtier serve --tcp` in, each to its own projects.",
        ),
    },
    "Set up and measure": {
        "config": Lazy("memtier_plugin.cli.settings", "Show and check the settings."),
        "demo": Lazy(
            "memtier_plugin.cli.demo",
            "Demonstrate MemTier on a small conversation, in ./memtier-demo.",
        ),
        "distill": Lazy(
            "memtier_plugin.cli.distill", "Distil an embedding model of TEACHER into FOLDER."
        ),
        "gate": Lazy(
            "memtier_plugin.cli.distill",
            "Tell whether a change makes answers worse; exit 1 if it does.",
        ),
        "self-check": Lazy(
            "memtier_plugin.cli.doctor",
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
    from memtier_plugin.hosts.presence import describe_silent_hosts

    with suppress(MemTierError, OSError):  # the command itself reports what ails the home
        for line in describe_silent_hosts(scope_of(ctx).path, datetime.now(UTC)):
            click.echo(f"memtier: {line}", err=True)
