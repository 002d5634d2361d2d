"""`memtier config`: what is configured, and where it was set."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import RenderableType

from memtier_plugin.cli.scope import CliGroup, Scope
from memtier_plugin.cli.views import Document, safe_text, table_view
from memtier_plugin.core.settings.load import load_settings, setting_sources


@click.group(cls=CliGroup)
def config() -> None:
    """Show and check the settings."""


@config.command("show")
@click.pass_obj
def config_show(scope: Scope) -> None:
    """List every value, and the file and line that set it."""
    sources = setting_sources(scope.path, scope.project_name, Path.cwd())
    rows = [{"key": key, "value": v.value, "from": v.source} for key, v in sources.items()]
    scope.show({"project": scope.project_name, "settings": rows}, settings_view)


@config.command("check")
@click.pass_obj
def config_check(scope: Scope) -> None:
    """Check the settings and report mistakes."""
    load_settings(scope.path, scope.project_name, Path.cwd())
    scope.show({"project": scope.project_name, "home": str(scope.path), "settings": "fine"})


def settings_view(document: Document) -> RenderableType:
    """Show every key, its value, and where the value came from."""
    rows = []
    for row in document["settings"]:
        style = "dim" if row["from"] == "default" else ""
        value = row["value"] if isinstance(row["value"], str) else json.dumps(row["value"])
        rows.append((safe_text(row["key"], style), safe_text(value, style), row["from"]))
    return table_view(("key", "value", "from"), rows, wide=["value"])
