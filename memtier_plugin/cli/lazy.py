"""Groups of commands whose modules are imported when a command is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from memtier_plugin.cli.scope import CliGroup

if TYPE_CHECKING:
    from memtier_plugin.core.hookspecs import CommandSpec

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
