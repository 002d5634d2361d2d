"""`memtier daemon`, `consolidate` and `embed`: the background jobs of a home."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar, scope_of
from memtier_plugin.cli.views import LengthOfTime
from memtier_plugin.core.records import Extractor
from memtier_plugin.facts.consolidation import ConsolidationReport, list_extractors
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.reembed import EmbeddingState, read_embedding_state
from memtier_plugin.providers.pricing import format_cost

# -- `memtier daemon`: the background jobs


@click.command(cls=CliCommand, example="--once")
@click.option("--once", is_flag=True, help="Run every job once and exit.")
@click.option(
    "--interval",
    type=LengthOfTime(min=0, min_open=True),
    metavar="SECONDS",
    help="Override the configured value.",
)
@click.option("--all", "everything", is_flag=True, help="Serve every project of the home.")
@click.pass_context
def daemon(ctx: click.Context, once: bool, interval: float | None, everything: bool) -> None:
    """Run the background jobs that turn entries into facts."""
    scope = scope_of(ctx)
    arguments = ["--home", str(scope.path), *(["--once"] if once else [])]
    arguments += ["--all"] if everything else ["--project", scope.project_name]
    arguments += ["--interval", str(interval)] if interval else []
    from memtier_plugin.daemon.__main__ import main

    code = main(arguments)
    if scope.as_json and not code:
        scope.show({"project": scope.project_name, "ended": True})
    ctx.exit(code)


# -- `memtier consolidate`: consolidate new entries into facts, or preview that


@click.command(cls=CliCommand, example="--dry-run")
@click.option("--limit", type=click.IntRange(1), help="The most entries to read.")
@click.option("--all", "everything", is_flag=True, help="Continue until every entry has been read.")
@click.option(
    "--dry-run", is_flag=True, help="Show what would be written and superseded, without writing."
)
@click.option(
    "--extractor",
    type=click.Choice(["rules", "model"]),
    help="Run only this pass [both, if consolidation.model is set].",
)
@click.pass_context
def consolidate(
    ctx: click.Context,
    limit: int | None,
    everything: bool,
    dry_run: bool,
    extractor: Extractor | None,
) -> None:
    """Turn new entries into facts now; exit 1 if a pass ends early."""
    scope: Scope = ctx.obj
    if everything and (limit or dry_run):
        raise click.UsageError("--all cannot be combined with --limit or --dry-run")
    with scope.open() as memory:
        if everything:
            report = _consolidate_all(memory, extractor)
        else:
            report = memory.consolidate(limit, extractor=extractor, dry_run=dry_run)
    scope.show(report_document(report, dry_run), report_view)
    ctx.exit(int(bool(report.problem)))


def _consolidate_all(memory: MemTier, extractor: Extractor | None) -> ConsolidationReport:
    """Consolidate batch by batch until nothing is left, showing progress."""
    overall = ConsolidationReport()
    with progress_bar() as show:
        for name in [extractor] if extractor else list_extractors(memory.store):
            done, left = 0, 1
            while left:

                def tell(read: int, total: int, name: str = name, done: int = done) -> None:
                    show(f"consolidating by {name}", done + read, done + total)

                step = memory.consolidate(extractor=name, progress=tell)
                done, left = done + step.read, step.left if step.read else 0
                # Each batch is in the journal; a report of all of them would grow without bound.
                overall = replace(overall + step, left=step.left, runs=(), drafts=(), replaced=())
    return overall


def report_document(report: ConsolidationReport, dry_run: bool) -> dict[str, Any]:
    """Return a report as a JSON document."""
    left_out = ("drafts", "replaced")
    document = {f.name: getattr(report, f.name) for f in fields(report) if f.name not in left_out}
    document |= {"rejected": dict(report.rejected), "dry_run": dry_run}
    if dry_run:
        document["drafts"] = [fact.to_json() for fact in report.drafts]
        document["replaced"] = [{"id": old, "by": new.id} for old, new in report.replaced]
    return document


def report_view(document: views.Document) -> RenderableType:
    """Render what a consolidation did, and what it left."""
    done = views.describe_report(document)
    rows = []
    if document["tokens"]:
        rows += [("tokens", str(document["tokens"])), ("cost", format_cost(document["cost"]))]
    rows += [
        (name.replace("_", " "), views.format_value(document[name]))
        for name in ("left", "waits", "held_back")
        if document[name]
    ]
    reasons = ", ".join(
        f"{count} {reason.replace('_', ' ')}"
        for reason, count in sorted(document["rejected"].items())
    )
    rows += [("rejected", reasons)] if reasons else []
    shown: list[RenderableType] = [
        views.safe_text(f"Nothing was written: {done}." if document["dry_run"] else f"{done}.")
    ]
    shown += [views.name_value_table(rows)] if rows else []
    if document["dry_run"] and document["drafts"]:
        replaced = {pair["by"]: pair["id"] for pair in document["replaced"]}
        drafts = [(f["text"], f["status"], replaced.get(f["id"], "")) for f in document["drafts"]]
        names = ("would be written", "status", "instead of")
        shown += ["", views.table_view(names, drafts, wide=names[:1])]
    return Group(*shown)


# -- `memtier embed`: estimate the cost of missing vectors, and make them


@click.command(cls=CliCommand)
@click.option(
    "--estimate",
    is_flag=True,
    help="Show what is missing and its cost, without computing anything.",
)
@click.option("--yes", is_flag=True, help="Accept the cost, even if answers get worse.")
@click.option("--afresh", is_flag=True, help="Discard this model's vectors and recompute them all.")
@click.pass_context
def embed(ctx: click.Context, estimate: bool, yes: bool, afresh: bool) -> None:
    """Compute the missing vectors of embedding.model now."""
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
        remedy = "the previous vectors are kept: restore embedding.model, or accept with --yes"
        rows.append(("refused", f"{document['refused']}; {remedy}"))
    cost = [("cost", format_cost(document["cost"]))] if document["cost"] else []
    return views.name_value_table(
        [("model", views.format_value(document["state"]["model"])), *rows, *cost]
    )
