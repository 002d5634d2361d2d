"""`memtier metrics` and `memtier bill`: metrics, and what the memory costs and saves."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import Document, parse_time
from memtier_plugin.telemetry.bill import read_bill
from memtier_plugin.telemetry.prometheus import JournalMetrics

# -- `memtier metrics`: the project's metrics in Prometheus' text format


@click.command(cls=CliCommand)
@click.pass_obj
def metrics(scope: Scope) -> None:
    """Print the project's metrics in Prometheus' text format."""
    with scope.open() as memory:
        text = JournalMetrics(memory.store).render()
    if scope.as_json:
        scope.show({"metrics": text.splitlines()})
    else:
        click.echo(text, nl=False)


# -- `memtier bill`: the cost of memory in prompts, and what it saves


@click.command(cls=CliCommand, example="--since 7d")
@click.option("--since", metavar="TIME", help="Only turns since a time: 7d, 2026-03-14 [all].")
@click.pass_obj
def bill(scope: Scope, since: str | None) -> None:
    """Compare what memory costs with a full system prompt."""
    start = parse_time(since, datetime.now(UTC)) if since else None
    with scope.open() as memory:
        document = read_bill(memory.store, start).to_json()
    scope.show({"since": since, **document}, bill_view)


def bill_view(document: Document) -> RenderableType:
    """Render a bill: what was injected, what models took, and the comparison."""
    rows = [
        ("turns", f"{document['turns']}, {document['blocks']} of them with a block"),
        ("injected", f"{document['injected']} tokens in {document['lines']} lines"),
        (
            "repeats avoided",
            f"{document['repeats']} lines, about {document['repeats_tokens']} tokens",
        ),
    ]
    parts: list[RenderableType] = [views.name_value_table(rows)]
    counts = ("runs", "calls", "read anew", "cached", "cache share", "answered", "cost")
    models = [
        (
            model["model"],
            model["runs"],
            model["calls"],
            model["input"] + model["cache_write"],
            model["cached"],
            f"{model['cached_share']:.1%}",
            model["output"],
            _money(model["cost"]),
        )
        for model in document["models"]
    ]
    parts += [""] if models else []
    nothing = "No host has reported its model's usage yet."
    parts.append(views.table_view(("model", *counts), models, right=counts, nothing=nothing))
    compared = [
        (name, document[f"{key}_tokens"], _money(document[f"{key}_cost"]))
        for name, key in (("MemTier's blocks", "memory"), ("all of it, always", "system_prompt"))
    ]
    names = ("in all calls", "tokens", "cost")
    return Group(*parts, "", views.table_view(names, compared, right=names[1:]))


def _money(cost: float | None) -> str:
    return "no price" if cost is None else f"{cost:.4f}"
