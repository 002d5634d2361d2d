"""`memtier embed`: the vectors that are missing, what they would cost, and making them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial

import click
from rich.console import RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import Command, Scope, progress
from memtier_plugin.operations.reembed import EmbeddingState, embedding_state
from memtier_plugin.providers.pricing import money


@click.command(cls=Command)
@click.option("--estimate", is_flag=True, help="Only tell what is missing and what it would cost.")
@click.option("--yes", is_flag=True, help="Allow what that costs, where the endpoint has a price.")
@click.option("--afresh", is_flag=True, help="Forget what this model has made, and begin anew.")
@click.pass_obj
def embed(scope: Scope, estimate: bool, yes: bool, afresh: bool) -> None:
    """Make the missing vectors of embedding.model now."""
    with scope.open() as memory:
        state = embedding_state(memory.store)
        if estimate or state.model is None:
            scope.show(state.to_json(), state_view)
            return
        job = memory.reembedding
        if state.paid and not yes and _asks(scope, state):
            yes = click.confirm(f"{_price(state)} Go on?", abort=True, err=True)
        if yes:
            job.approve()
        with progress() as report:
            done = job.run(progress=partial(report, "embedding"), afresh=afresh)
        state = embedding_state(memory.store)
    scope.show({**asdict(done), "state": state.to_json()}, done_view)


def _asks(scope: Scope, state: EmbeddingState) -> bool:
    enough = state.spent + state.cost <= state.allowed
    return bool(state.missing) and not enough and not scope.as_json and sys.stdin.isatty()


def _price(state: EmbeddingState) -> str:
    return (
        f"{state.missing} items, about {state.tokens} tokens, cost about {money(state.cost)}; "
        f"spent {money(state.spent)} of {money(state.allowed)} allowed."
    )


def state_view(state: views.Document) -> RenderableType:
    """Show how far the vectors are."""
    names = ["model", "items", "missing", "tokens", *(["error"] if state["error"] else [])]
    rows = [(name, views.said(state[name])) for name in names]
    prices = ["cost", "spent", "allowed"] if state["paid"] else []
    return views.pairs([*rows, *((name, money(state[name])) for name in prices)])


def done_view(document: views.Document) -> RenderableType:
    """Show what a pass did, and how far the vectors are now."""
    rows = [(name, views.said(document[name])) for name in ("embedded", "dropped", "left")]
    cost = [("cost", money(document["cost"]))] if document["cost"] else []
    return views.pairs([("model", views.said(document["state"]["model"])), *rows, *cost])
