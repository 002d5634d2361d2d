"""`memtier token`: who may ask this home's `memtier serve --tcp`, and for what."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from memtier_plugin.cli.scope import CliCommand, CliGroup, Scope
from memtier_plugin.cli.times import LengthOfTime
from memtier_plugin.server.tokens import Grant, Tokens

_MOST_DAYS: Final = 36_525  # a century: beyond, a date may be none


@click.group(cls=CliGroup, example="list")
def token() -> None:
    """Let clients of `memtier serve --tcp` in, each to its own projects."""


@token.command(cls=CliCommand, example="shop --name web-frontend")
@click.argument("projects", nargs=-1, metavar="[PROJECT...]")
@click.option("--name", default="", metavar="NAME", help="What it is for.")
@click.option("--only-agent", metavar="AGENT", help="It speaks for this agent alone.")
@click.option("--only-sender", metavar="ID", help="It speaks for this sender alone.")
@click.option(
    "--days",
    type=LengthOfTime(min=0, min_open=True, max=_MOST_DAYS),
    help="When it expires [never].",
)
@click.pass_obj
def new(
    scope: Scope,
    projects: tuple[str, ...],
    name: str,
    only_agent: str | None,
    only_sender: str | None,
    days: float | None,
) -> None:
    """Make a token for projects [this one]; `shop-*` means all that begin so. It is shown once."""
    if "" in projects:
        raise click.UsageError("a project has a name")
    expires = datetime.now(UTC) + timedelta(days=days) if days else None
    secret, grant = Tokens(scope.path).new(
        projects or (scope.project_name,),
        name=name,
        agent=only_agent,
        sender=only_sender,
        expires=expires,
    )
    scope.show({"token": secret, **_document(grant)})


@token.command("list", cls=CliCommand)
@click.pass_obj
def list_tokens(scope: Scope) -> None:
    """List the tokens: what each reaches, never the token itself."""
    now = datetime.now(UTC)
    grants = Tokens(scope.path).grants()
    scope.show({"tokens": [{**_document(grant), "over": grant.is_over(now)} for grant in grants]})


@token.command(cls=CliCommand, example="web-frontend")
@click.argument("key", metavar="ID")
@click.pass_obj
def revoke(scope: Scope, key: str) -> None:
    """End a token, by its id or name; clients that use it are refused from their next call on."""
    scope.show({"revoked": _document(Tokens(scope.path).revoke(key))})


def _document(grant: Grant) -> dict[str, Any]:
    return {**asdict(grant), "projects": [*grant.projects]}
