"""`memtier recall`: run a recall, and show its ranking."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import Any

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from memtier_plugin.cli.reach import describe_reach, reach_view
from memtier_plugin.cli.scope import CliCommand, Scope, limit_option, progress_bar
from memtier_plugin.cli.times import parse_optional_time, written_option
from memtier_plugin.cli.views import (
    Document,
    indented,
    one_line,
    safe_text,
    short_id,
)
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Depth, Hit, Recall, RecallRequest
from memtier_plugin.core.times import to_iso
from memtier_plugin.views.recalls import describe_depth


@click.command(cls=CliCommand, example='"Where does Ines live?" --k 4')
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@click.option("--k", type=click.IntRange(1), help="How many lines may be injected.")
@click.option(
    "--budget", type=click.IntRange(1), metavar="TOKENS", help="How many tokens, at most."
)
@click.option("--at", metavar="TIME", help="The current time to assume, as 2026-03-14T09:00 (UTC).")
@click.option("--as-of", metavar="TIME", help="Recall as of this time, from what was said by then.")
@written_option
@click.option(
    "--depth",
    type=click.Choice(["mixed", "facts", "raw", "auto"]),
    help="Facts, the raw log, or both; auto decides by the question [retrieval.depth].",
)
@limit_option(10, "How many hits to show.")
@click.option("--explain", "signals", is_flag=True, help="Show the signals behind each score.")
@click.option("--inject-preview", is_flag=True, help="Show the block as a prompt would get it.")
@click.pass_obj
def recall(
    scope: Scope,
    words: tuple[str, ...],
    k: int | None,
    budget: int | None,
    at: str | None,
    as_of: str | None,
    written: bool,
    depth: Depth | None,
    limit: int,
    signals: bool,
    inject_preview: bool,
) -> None:
    """Recall the lines that matter for QUERY, each with its source."""
    query = " ".join(words)
    request = RecallRequest(
        at=parse_optional_time(at), k=k, token_budget=budget, depth=depth, purpose="preview"
    )
    with scope.open(everybody=True) as memory:
        withhold = memory.settings.causes.withhold
        if then := parse_optional_time(as_of):
            with progress_bar() as report:
                step = partial(report, "reading the ledgers")
                result = memory.history.recall(
                    query,
                    then,
                    k=k,
                    token_budget=budget,
                    depth=depth,
                    purpose="preview",
                    written=written,
                    progress=step,
                )
        else:
            result = memory.recall(query, request=request)
        reach = describe_reach(scope, memory, query, empty=not result.hits)
    document = recall_document(result, limit)
    document |= {"signals": signals, "text": result.text if inject_preview else ""}
    document["reach"] = reach
    scope.show(document, recall_view)
    if inject_preview and withhold and not scope.as_json:
        click.echo(
            f"\nIn {withhold:.0%} of the runs a prompt goes without one line: memtier uplift"
        )
    if inject_preview and not scope.as_json:
        click.echo(f"\n{result.text}", nl=False)  # as a prompt gets it: no view folds or styles it


def recall_document(recall: Recall, limit: int) -> dict[str, Any]:
    """Return a recall and its first hits as a JSON document."""
    injected = [hit.id for hit in recall.injected]
    notes = {hit.id: hit.note for hit in recall.injected}  # notes are added when lines are selected
    return {
        "id": recall.id,
        "query": recall.query,
        "label": recall.label,
        "silent": recall.silent,
        "found": len(recall.hits),
        "injected": injected,
        "tokens": recall.tokens,
        "ms": round(recall.ms, 3),
        "postings": recall.postings,
        "vectors": recall.vectors,
        "depth": recall.depth,
        "route": recall.route.to_json() if recall.route else None,
        "steps": [step.to_json() for step in recall.steps],
        "hits": [
            {
                **_hit_document(hit),
                "rank": rank,
                "injected": hit.id in injected,
                "note": notes.get(hit.id, hit.note),
            }
            for rank, hit in enumerate(recall.hits[:limit], 1)
        ],
    }


def _hit_document(hit: Hit) -> dict[str, Any]:
    item = hit.item
    when = item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp
    who = item.speaker or item.sender or item.role if isinstance(item, Entry) else "fact"
    first = hit.sources[0]
    return {
        "id": hit.id,
        "score": hit.score,
        "tier": hit.tier,
        "date": to_iso(when)[:10],
        "who": who,
        "text": hit.text,
        "place": f"{first.file}:{first.line}" if first.file else f"entry {first.entry}",
        "sources": [asdict(source) for source in hit.sources],
        "signals": dict(hit.signals),
        "weight": hit.weight,
        "note": hit.note,
    }


def recall_view(document: Document) -> RenderableType:
    """Render ranked hits with their ledger locations, and mark those that would be injected."""
    hits = document["hits"]
    parts: list[RenderableType] = []
    times = Counter(" ".join(hit["text"].split()).casefold() for hit in hits)
    for hit in hits:
        again = times.pop(" ".join(hit["text"].split()).casefold(), 0) - 1
        if again < 0:
            continue  # the same words again, as a fact or of another day
        mark = Text("▸" if hit["injected"] else " ", "green")
        head = Text.assemble(mark, (f"{hit['rank']:>3} {hit['score']:.4f}  ", "bold"))
        shown = hit | {"id": short_id(hit["id"])}
        source = " · ".join(str(shown[name]) for name in ("tier", "date", "who", "id", "place"))
        parts += [head.append_text(safe_text(one_line(hit["text"], 400)))]
        more = f" · {again} more with these words" if again else ""
        parts.append(indented(source + more, "cyan"))
        if hit["note"]:
            parts.append(indented(hit["note"], "yellow"))
        if document["signals"]:
            values = (f"{name} {value:.3f}" for name, value in hit["signals"].items() if value)
            parts.append(indented("  ".join(values), "dim"))
    parts.append(
        safe_text(
            f"{document['found']} found, {len(document['injected'])} (▸) would be injected: "
            f"{document['tokens']} tokens; {document['label']}, {document['ms']:.0f} ms, "
            f"{document['postings']} postings read; recall {short_id(document['id'])}",
            "dim",
        )
    )
    if document["silent"]:
        parts.append(safe_text(f"a prompt would get nothing: {document['silent']}", "yellow"))
    parts += reach_view(document)
    if document["route"]:
        parts.append(
            safe_text("; ".join(": ".join(row) for row in describe_depth(document)[:2]), "dim")
        )
    return Lines(*parts)
