"""Groups of commands whose modules are imported when a command is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        sections: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy
        self._aliases = aliases or {}
        self._sections = sections or {"Commands": sorted(lazy)}

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
        longest = max(map(len, self._lazy))
        limit = formatter.width - 6 - longest
        for title, names in self._sections.items():
            rows = [
                (
                    f"{name:<{longest}}",
                    click.Command(name, help=self._lazy[name].help).get_short_help_str(limit),
                )
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; of one that there is not, name the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(args[0], [*self._lazy, *self._aliases], n=1)
            if not near or self.get_command(ctx, args[0]) is not None:
                raise
            message = f"No such command {args[0]!r}. Did you mean {near[0]}?"
            raise click.UsageError(message, ctx) from None
