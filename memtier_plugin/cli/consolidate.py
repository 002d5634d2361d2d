"""`memtier consolidate`: consolidate new entries into facts, or preview that."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.core.records import Extractor
from memtier_plugin.facts.consolidation import ConsolidationReport, list_extractors
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.pricing import format_cost

_SHOWN_FIELDS = (
    "read",
    "facts",
    "proposed",
    "promoted",
    "superseded",
    "updated",
    "ignored",
    "left",
)


@click.command(cls=CliCommand)
@click.option("--limit", type=click.IntRange(1), help="How many entries to read, at most.")
@click.option("--all", "everything", is_flag=True, help="Continue until every entry has been read.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written and superseded.")
@click.option(
    "--extractor",
    type=click.Choice(["rules", "model"]),
    help="Only this one's pass [both, if consolidation.model is set].",
)
@click.pass_obj
def consolidate(
    scope: Scope,
    limit: int | None,
    everything: bool,
    dry_run: bool,
    extractor: Extractor | None,
) -> None:
    """Consolidate new entries into facts now."""
    if everything and (limit or dry_run):
        raise click.UsageError("--all goes with neither --limit nor --dry-run")
    with scope.open() as memory:
        if everything:
            report = _consolidate_all(memory, extractor)
        else:
            report = memory.consolidate(limit, extractor=extractor, dry_run=dry_run)
    scope.show(report_document(report, dry_run), report_view)


def _consolidate_all(memory: MemTier, extractor: Extractor | None) -> ConsolidationReport:
    """Consolidate batch by batch until nothing is left, showing how far it is."""
    overall = ConsolidationReport()
    with progress_bar() as show:
        for name in [extractor] if extractor else list_extractors(memory.store):
            done, left = 0, 1
            while left:

                def tell(read: int, total: int, name: str = name, done: int = done) -> None:
                    show(f"consolidating by {name}", done + read, done + total)

                step = memory.consolidate(extractor=name, progress=tell)
                done, left = done + step.read, step.left if step.read else 0
                # The journal has what each batch made; a report of them all would grow without end.
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
    """Render a report."""
    rows = [(name, str(document[name])) for name in _SHOWN_FIELDS]
    if document["tokens"]:
        rows += [("tokens", str(document["tokens"])), ("cost", format_cost(document["cost"]))]
    rows += [
        (name, views.format_value(document[name]))
        for name in ("problem", "waits", "held_back")
        if document[name]
    ]
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in sorted(document["rejected"].items())
    )
    rows += [("rejected", reasons)] if reasons else []
    shown: list[RenderableType] = [views.name_value_table(rows)]
    if document["dry_run"] and document["drafts"]:
        replaced = {pair["by"]: pair["id"] for pair in document["replaced"]}
        drafts = [(f["text"], f["status"], replaced.get(f["id"], "")) for f in document["drafts"]]
        names = ("would be written", "status", "instead of")
        shown += ["", views.table_view(names, drafts, wide=names[:1])]
    return Group(*shown)
