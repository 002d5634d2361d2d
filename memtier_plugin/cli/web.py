"""`memtier web`: show the memory in a browser on this machine."""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec

import click

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.core.errors import Unsupported


@click.command(cls=CliCommand, example="--open")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8767,
    show_default=True,
    help="The port on 127.0.0.1; 0 for any that is free.",
)
@click.option("--open", "opened", is_flag=True, help="Open the browser.")
@click.pass_obj
def web(scope: Scope, port: int, opened: bool) -> None:
    """Show the memory in a browser: log, facts, review, recalls, health."""
    require_web("`memtier web`")
    from memtier_plugin.web.server import serve

    def announce(address: str) -> None:
        click.echo(f"MemTier's web view: {address}", err=True)
        if opened:
            webbrowser.open(address)

    with scope.open(everybody=True) as memory:
        serve(memory, port, announce)


def require_web(feature: str) -> None:
    """Refuse without the extra.

    Raises:
        Unsupported: its packages are not installed.
    """
    if any(find_spec(package) is None for package in ("starlette", "jinja2", "uvicorn")):
        raise Unsupported(f"{feature} needs some packages: pip install 'memtier[web]'")
