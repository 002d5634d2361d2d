"""`memtier embed`: estimate the cost of missing vectors, and make them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial

import click
from rich.console import RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.operations.reembed import EmbeddingState, read_embedding_state
from memtier_plugin.providers.pricing import format_cost


@click.command(cls=CliCommand)
@click.option("--estimate", is_flag=True, help="Only show what is missing and what it would cost.")
@click.option("--yes", is_flag=True, help="Accept the cost, and answers that got worse.")
@click.option(
    "--afresh", is_flag=True, help="Discard this model's vectors and compute all of them again."
)
@click.pass_context
def embed(ctx: click.Context, estimate: bool, yes: bool, afresh: bool) -> None:
    """Make the missing vectors of embedding.model now."""
    scope: Scope = ctx.obj
    with scope.open() as memory:
        state = read_embedding_state(memory.store)
        if estimate or state.model is None:
            scope.show(state.to_json(), embedding_state_view)
            return
        job = memory.reembedding
        if state.paid and not yes and _needs_consent(scope, state):
            yes = click.confirm(f"{_describe_price(state)} Go on?", abort=True, err=True)
        if yes:
            job.approve()
        with progress_bar() as report:
            done = job.run(progress=partial(report, "embedding"), afresh=afresh, accept=yes)
        state = read_embedding_state(memory.store)
    scope.show({**asdict(done), "state": state.to_json()}, embedding_done_view)
    ctx.exit(int(bool(done.refused)))


def _needs_consent(scope: Scope, state: EmbeddingState) -> bool:
    enough = state.spent + state.cost <= state.allowed
    return bool(state.missing) and not enough and not scope.as_json and sys.stdin.isatty()


def _describe_price(state: EmbeddingState) -> str:
    return (
        f"{state.missing} items, about {state.tokens} tokens, "
        f"cost about {format_cost(state.cost)}; "
        f"spent {format_cost(state.spent)} of {format_cost(state.allowed)} allowed."
    )


def embedding_state_view(state: views.Document) -> RenderableType:
    """Render the embedding state."""
    names = ["model", "items", "missing", "tokens", *(["error"] if state["error"] else [])]
    rows = [(name, views.format_value(state[name])) for name in names]
    prices = ["cost", "spent", "allowed"] if state["paid"] else []
    return views.name_value_table([*rows, *((name, format_cost(state[name])) for name in prices)])


def embedding_done_view(document: views.Document) -> RenderableType:
    """Render the result of an embedding pass."""
    rows = [(name, views.format_value(document[name])) for name in ("embedded", "dropped", "left")]
    if document["refused"]:
        kept = "the vectors before are kept: set embedding.model back, or accept with --yes"
        rows.append(("refused", f"{document['refused']}; {kept}"))
    cost = [("cost", format_cost(document["cost"]))] if document["cost"] else []
    return views.name_value_table(
        [("model", views.format_value(document["state"]["model"])), *rows, *cost]
    )
