"""`memtier tui`: review and log on a full screen."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.core.errors import Unsupported


@click.command(cls=CliCommand)
@click.pass_obj
def tui(scope: Scope) -> None:
    """Review what waits and read the log, on a full screen."""
    if find_spec("textual") is None:
        raise Unsupported("`memtier tui` needs Textual: pip install 'memtier[tui]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this is for a terminal; `memtier review` and `memtier log` are not")
    from memtier_plugin.tui.app import MemTierApp

    with scope.open(everybody=True) as memory:
        MemTierApp(memory, scope.agent).run()
