"""Groups of commands whose modules are imported when a command is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from memtier_plugin.cli.scope import CliGroup


class Lazy(NamedTuple):
    """A command that is not imported yet: its module in this package, and its line of help."""

    module: str
    help: str


class LazyGroup(CliGroup):
    """A group that imports a command's module when the command is needed.

    The command is the module's attribute of the same name (``import_`` for `import`,
    ``self_check`` for `self-check`).
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Lazy],
        aliases: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is no such command."""
        lazy = self._lazy.get(cmd_name := self._aliases.get(cmd_name, cmd_name))
        if lazy is None:
            return None
        module = import_module(f"{__package__}.{lazy.module}")
        attribute = "import_" if cmd_name == "import" else cmd_name.replace("-", "_")
        command: click.Command = getattr(module, attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from their lines of help, importing none of them."""
        limit = formatter.width - 6 - max(map(len, self._lazy))
        rows = [
            (name, click.Command(name, help=self._lazy[name].help).get_short_help_str(limit))
            for name in sorted(self._lazy)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
