"""`memtier doctor` and `self-check`: check files, index and hosts."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from memtier_plugin import __version__
from memtier_plugin.cli.scope import CliCommand, progress_bar, scope_of
from memtier_plugin.cli.views import (
    LEVEL_COLOURS,
    LEVEL_MARKS,
    Document,
    escape_controls,
    make_console,
    name_value_table,
    safe_text,
)
from memtier_plugin.core.errors import HomeTooNew, NotFound
from memtier_plugin.hosts import doctor as hosts_doctor
from memtier_plugin.hosts.self_check import check_installation
from memtier_plugin.operations.background import HealthFinding

# -- `memtier doctor`: check files, index, settings and hosts


@click.command(cls=CliCommand, example="--fix")
@click.option("--fix", is_flag=True, help="First apply every repair that loses no data.")
@click.option("--skip-hosts", is_flag=True, help="Skip asking the hosts, which takes seconds.")
@click.pass_context
def doctor(ctx: click.Context, fix: bool, skip_hosts: bool) -> None:
    """Check files, index, settings and hosts; exit 1 on an error."""
    scope = scope_of(ctx)
    results, fixed = hosts_doctor.check_hosts(scope.path), []
    if not skip_hosts:
        with make_console(stderr=True).status(
            "asking the hosts which plugin owns the memory tools"
        ):
            results += [*hosts_doctor.ask_hosts(), *hosts_doctor.try_agents(scope.path)]
    try:
        with scope.open() as memory:
            if fix:
                with progress_bar() as report:
                    for repair in memory.repair(partial(report, "reading the ledgers")):
                        fixed.append(asdict(repair))
                        click.echo(
                            f"fixed: {repair.what}: {escape_controls(repair.where)}", err=True
                        )
            results = [*memory.doctor(), *results]
    except HomeTooNew as error:
        what, _, remedy = str(error).rpartition(": ")
        results.append(HealthFinding("error", what, str(scope.path), remedy))
    except NotFound as error:
        if not results:
            raise
        results.append(
            HealthFinding("warn", str(error), str(scope.path), "created by a host's first turn")
        )
    findings = [asdict(finding) for finding in results]
    scope.show({"findings": findings, **({"fixed": fixed} if fix else {})}, doctor_view)
    if any(finding["level"] == "error" for finding in findings):
        ctx.exit(1)


def doctor_view(document: Document) -> RenderableType:
    """Render findings; each problem with its location and remedy."""
    parts: list[RenderableType] = []
    for finding in document["findings"]:
        level = finding["level"]
        parts.append(
            Text.assemble(
                (LEVEL_MARKS[level] + " ", LEVEL_COLOURS[level]), safe_text(finding["what"])
            )
        )
        if level != "ok":
            rows = [(key, finding[key]) for key in ("where", "remedy") if finding[key]]
            parts.append(Padding(name_value_table(rows), (0, 0, 0, 4), expand=False))
    return Group(*parts)


# -- `memtier self-check`: check this installation, independent of any project


@click.command("self-check", cls=CliCommand, example="--json")
@click.pass_context
def self_check(ctx: click.Context) -> None:
    """Check the installation in a temporary home; exit 1 on errors."""
    with make_console(stderr=True).status("checking the installation"):
        findings = [asdict(finding) for finding in check_installation()]
    ok = not any(finding["level"] == "error" for finding in findings)
    scope_of(ctx).show({"version": __version__, "ok": ok, "findings": findings}, doctor_view)
    if not ok:
        ctx.exit(1)
