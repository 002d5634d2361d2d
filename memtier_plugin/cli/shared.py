"""`memtier shared`: one project on many machines, by a PostgreSQL server."""

from __future__ import annotations

import os

import click

from memtier_plugin.cli.scope import CliCommand, CliGroup, OptionDecorator, Scope
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import make_project_folder
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import NOWHERE
from memtier_plugin.daemon import lock
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.shared import admin
from memtier_plugin.storage.shared.connection import address
from memtier_plugin.storage.shared.postgres import PostgresLedger
from memtier_plugin.storage.shared.store import SharedStore, shared_name
from memtier_plugin.storage.shared.store import join as make_shared


@click.group(cls=CliGroup)
def shared() -> None:
    """Share the project's ledgers among machines, by a server."""


def _url_option() -> OptionDecorator:
    return click.option(
        "--url",
        metavar="URL",
        help="The database, as its owner [ledger.shared]; the password is in PGPASSWORD.",
    )


def _name_option() -> OptionDecorator:
    return click.option(
        "--name", metavar="NAME", help="The project's name on the server [its own]."
    )


@shared.command(cls=CliCommand)
@_url_option()
@click.pass_obj
def init(scope: Scope, url: str | None) -> None:
    """Make the shared ledger's tables in a database."""
    _migrate(scope, url)


@shared.command(cls=CliCommand)
@_url_option()
@click.pass_obj
def migrate(scope: Scope, url: str | None) -> None:
    """Bring the tables of the shared ledger up to date."""
    _migrate(scope, url)


def _migrate(scope: Scope, url: str | None) -> None:
    where = url or _server(scope)
    scope.show({"server": address(where), "migrations": admin.migrate(where)})


@shared.command(cls=CliCommand)
@click.argument("machine")
@_name_option()
@click.option("--only-agent", metavar="AGENT", help="Only this agent's private ledgers.")
@click.option("--read-only", is_flag=True, help="It may not write.")
@click.option("--password-env", metavar="VARIABLE", help="Set the password that is in VARIABLE.")
@_url_option()
@click.pass_obj
def grant(
    scope: Scope,
    machine: str,
    name: str | None,
    only_agent: str | None,
    read_only: bool,
    password_env: str | None,
    url: str | None,
) -> None:
    """Let MACHINE, a role of the database, take part in the project."""
    password = os.environ.get(password_env) if password_env else None
    if password_env and not password:
        raise SettingsError(f"the environment variable {password_env} is empty")
    what = admin.Grant(machine, name or scope.project_name, only_agent, read_only)
    new = admin.grant(url or _server(scope), what, password)
    scope.show({**what._asdict(), "new_role": new})


@shared.command(cls=CliCommand)
@click.argument("machine")
@_name_option()
@click.option("--only-agent", metavar="AGENT", help="Only what it was granted of this agent.")
@_url_option()
@click.pass_obj
def revoke(
    scope: Scope, machine: str, name: str | None, only_agent: str | None, url: str | None
) -> None:
    """Take MACHINE's rights in the project away; what it has copied stays on it."""
    project = name or scope.project_name
    removed = admin.revoke(url or _server(scope), machine, project, only_agent)
    scope.show({"machine": machine, "project": project, "revoked": removed})


@shared.command(cls=CliCommand)
@_name_option()
@click.pass_obj
def join(scope: Scope, name: str | None) -> None:
    """Share the project from this machine: deliver what it has, and fetch the others' part."""
    url, project = _server(scope), scope.project_name
    folder = ProjectFolder.of(scope.path, project)
    if shared_name(folder.path) is None:
        ledger = PostgresLedger(url, name or project)
        try:
            ledger.heads()  # before anything changes here
        finally:
            ledger.close()
        make_project_folder(scope.path, project)
        held = lock.acquire(scope.path, project)
        if held is None:
            raise SettingsError("stop the hosts and `memtier daemon` of this project first")
        try:
            make_shared(folder, name or project)
        finally:
            lock.release(held)
    _synchronise(scope)


@shared.command(cls=CliCommand)
@click.pass_obj
def drain(scope: Scope) -> None:
    """Deliver what waits for the server, and fetch what is new."""
    _synchronise(scope)


def _synchronise(scope: Scope) -> None:
    with scope.open() as memory:
        store = _store(memory.store)
        synced, state = store.sync(), store.shared_status()
    done = {"fetched": synced.pulled, "delivered": synced.delivered, "purged": synced.purged}
    scope.show({**done, "waiting": state["waiting"]})


@shared.command(cls=CliCommand)
@click.pass_obj
def status(scope: Scope) -> None:
    """Show how far this machine follows, and which machines a purge has not reached."""
    with scope.open() as memory:
        store = _store(memory.store)
        state, heads = store.shared_status(), store.ledger.heads()
        behind = sum(head.offset - store.replica.offset(stream) for stream, head in heads.items())
        pending = {machine for machine, *_ in store.ledger.pending()}
    lines = sum(head.offset for head in heads.values())
    figures = {"streams": len(heads), "lines": lines, "behind": behind}
    scope.show({**state, **figures, "purge_pending": sorted(pending)})


def _store(store: object) -> SharedStore:
    if not isinstance(store, SharedStore):
        raise SettingsError("this project is not shared from this machine: `memtier shared join`")
    return store


def _server(scope: Scope) -> str:
    url = load_settings(scope.path, scope.project_name).ledger.shared
    if url == NOWHERE:
        raise SettingsError(f"set ledger.shared in {scope.path / 'config.yaml'}")
    return url
