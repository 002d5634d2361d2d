"""`memtier self-check`: check this installation, apart from any project."""

from __future__ import annotations

from dataclasses import asdict

import click

from memtier_plugin import __version__
from memtier_plugin.cli.doctor import doctor_view
from memtier_plugin.cli.scope import CliCommand, scope_of
from memtier_plugin.cli.views import make_console
from memtier_plugin.hosts.self_check import check_installation


@click.command("self-check", cls=CliCommand, example="--json")
@click.pass_context
def self_check(ctx: click.Context) -> None:
    """Check this installation, in a temporary home; exit 1 on an error."""
    with make_console(stderr=True).status("trying what is installed"):
        findings = [asdict(finding) for finding in check_installation()]
    ok = not any(finding["level"] == "error" for finding in findings)
    scope_of(ctx).show({"version": __version__, "ok": ok, "findings": findings}, doctor_view)
    if not ok:
        ctx.exit(1)
