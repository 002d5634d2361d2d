"""The `memtier` command, whose groups import a command's module when it is called."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click

from memtier_plugin import __version__
from memtier_plugin.cli.commands import COMMANDS, DESCRIPTION, find_commands, render_help
from memtier_plugin.cli.scope import CliGroup, common_options, scope_of
from memtier_plugin.core.entry_points import CommandSpec

# -- Groups of commands whose modules are imported when a command is called


class LazyGroup(CliGroup):
    """A group that imports a command's module when the command is needed.

    The command is the module's attribute of that name (``import_`` for `import`, ``self_check`` for
    `self-check`).  A plugin's name of two words, as in `people show`, adds to a group.

    Args:
        sections: the commands by heading, in help's order.
        added: returns the commands of plugins; called to list all commands, or for a name in no
            section.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, CommandSpec]],
        aliases: Mapping[str, str] | None = None,
        added: Callable[[], Mapping[str, CommandSpec]] = dict,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = {name: lazy for group in sections.values() for name, lazy in group.items()}
        self.aliases = aliases or {}
        self._sections = sections
        self._added = added

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*self._lazy, *(name for name in self._added() if " " not in name)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None for an unknown name."""
        name = self.aliases.get(cmd_name, cmd_name)
        lazy = self._lazy.get(name) or self._added().get(name)
        if lazy is None:
            return None
        attribute = "import_" if name == "import" else name.replace("-", "_")
        command: click.Command = getattr(import_module(lazy.module), attribute)
        if isinstance(command, click.Group):
            for words, spec in self._added().items():
                group, _, last = words.partition(" ")
                if group == name and last:
                    attribute = words.replace(" ", "_")
                    command.add_command(getattr(import_module(spec.module), attribute), last)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, spec.help) for name, spec in names.items()])


class MainGroup(LazyGroup):
    """The group of all commands, whose help needs no click (`memtier_plugin.cli.commands`)."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        return render_help(self._added())


# -- The `memtier` command: documents on stdout, everything else on stderr, exit 1 on an error

# Commands for people; `status` and `doctor` report silent hosts themselves.
_SAY_IT: Final = ("status", "doctor", "metrics")
_FOR_PEOPLE: Final = {*COMMANDS["Every day"], *COMMANDS["Look closer"], "search"}.difference(
    _SAY_IT
)
ALIASES: Final = {"search": "recall"}  # the name in hosts' commands and tools


@click.group(
    cls=MainGroup,
    sections=COMMANDS,
    aliases=ALIASES,
    added=find_commands,
    params=common_options(),
    invoke_without_command=True,
    help=DESCRIPTION,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="memtier %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    scope_of(ctx)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters the terminal cannot show
    if ctx.invoked_subcommand is None:
        from memtier_plugin.cli.status import show_overview

        show_overview(scope_of(ctx))
    elif ctx.invoked_subcommand in _FOR_PEOPLE:
        _warn_of_silent_hosts(ctx)


def _warn_of_silent_hosts(ctx: click.Context) -> None:
    """Warn about hosts that no longer call MemTier, as they cannot."""
    from datetime import UTC, datetime

    from memtier_plugin.core.errors import MemTierError
    from memtier_plugin.hosts.presence import describe_silent_hosts

    with suppress(MemTierError, OSError):  # the command itself reports problems of the home
        for line in describe_silent_hosts(scope_of(ctx).path, datetime.now(UTC)):
            click.echo(f"memtier: {line}", err=True)
