"""`memtier recall` and `explain`: run a recall, and explain its ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from memtier_plugin.cli.completion import complete_items, complete_recalls
from memtier_plugin.cli.scope import CliCommand, Scope, limit_option, progress_bar
from memtier_plugin.cli.times import parse_optional_time, written_option
from memtier_plugin.cli.views import (
    Document,
    column_table,
    format_time,
    format_value,
    name_value_table,
    one_line,
    safe_text,
    short_id,
)
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Depth, Hit, Recall, RecallRequest
from memtier_plugin.core.times import to_iso
from memtier_plugin.retrieval.contributions import RECOMPUTED
from memtier_plugin.views.recalls import describe_depth

HIDDEN: Final = "(forgotten, or another agent's)"
_INDENT: Final = 13  # columns before the text of a ranked line


@click.command(cls=CliCommand)
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
    with scope.open() as memory:
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
    document = recall_document(result, limit)
    document |= {"signals": signals, "text": result.text if inject_preview else ""}
    scope.show(document, recall_view)
    if inject_preview and withhold and not scope.as_json:
        click.echo(
            f"\nIn {withhold:.0%} of the runs a prompt goes without one line: memtier uplift"
        )
    if inject_preview and not scope.as_json:
        click.echo(f"\n{result.text}", nl=False)  # as a prompt gets it: no view folds or styles it


@click.command(cls=CliCommand)
@click.argument("recall_id", shell_complete=complete_recalls)
@click.option(
    "--why",
    metavar="ID",
    shell_complete=complete_items,
    help="Show why this entry or fact was left out.",
)
@click.pass_obj
def explain(scope: Scope, recall_id: str, why: str | None) -> None:
    """Explain the hits of a recall, and how weights changed since."""
    with scope.open() as memory:
        scope.show(memory.explain(recall_id, why), explain_view)


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
    for hit in hits:
        mark = Text("▸" if hit["injected"] else " ", "green")
        head = Text.assemble(mark, (f"{hit['rank']:>3} {hit['score']:.4f}  ", "bold"))
        shown = hit | {"id": short_id(hit["id"])}
        source = " · ".join(str(shown[name]) for name in ("tier", "date", "who", "id", "place"))
        parts += [head.append_text(safe_text(one_line(hit["text"], 400)))]
        parts.append(_indented(source, "cyan"))
        if hit["note"]:
            parts.append(_indented(hit["note"], "yellow"))
        if document["signals"]:
            values = (f"{name} {value:.3f}" for name, value in hit["signals"].items() if value)
            parts.append(_indented("  ".join(values), "dim"))
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
    if document["route"]:
        parts.append(
            safe_text("; ".join(": ".join(row) for row in describe_depth(document)[:2]), "dim")
        )
    return Lines(*parts)


def _indented(text: str, style: str = "") -> RenderableType:
    """Render a text below that of its ranked line."""
    return Padding(safe_text(text, style), (0, 0, 0, _INDENT), expand=False)


def _describe_withheld(document: Document) -> list[tuple[str, str]]:
    """Describe the line that was left out to measure what it changes."""
    if not (withheld := document["withheld"]):
        return []
    line = f"{short_id(withheld['item'])} {one_line(withheld['text'] or HIDDEN)}: "
    return [("withheld", (line if withheld["item"] else "") + withheld["said"])]


def explain_view(document: Document) -> RenderableType:
    """Render an explanation: each line's signals at recall time, its weight then and now."""
    head = name_value_table(
        [
            ("recall", short_id(document["id"])),
            ("query", one_line(document["query"])),
            (
                "made",
                f"{format_time(document['timestamp'])}, {document['label']}, "
                f"{document['ms']:.0f} ms",
            ),
            *describe_depth(document),
            *_describe_withheld(document),
        ]
    )
    if document.get("why"):
        return Lines(head, "", *_left_out_view(document["why"], document["weights"]))
    counted = document.get("weights", {})
    parts: list[RenderableType] = [head]
    for title, name in (("injected", "injected"), ("near misses", "near_misses")):
        again = any(row["signals_from"] == RECOMPUTED for row in document[name])
        title += " (the journal has their scores; their signals are computed again)" * again
        parts += ["", safe_text(title, "bold")]
        for row in document[name]:
            parts += _ranked_row_view(row, counted)
            if of_row := document.get("priorities", {}).get(row["id"]):
                parts.append(_indented(_format_priority(of_row), "dim"))
    credits = column_table("run", "line", "reward", "share", "change", right=["reward", "share"])
    for credit in document["credits"]:
        credits.add_row(
            safe_text(credit.get("run_id") or "-"),
            short_id(credit.get("item")),
            f"{credit.get('reward', 0):+.1f}",
            f"{credit.get('share', 0):.3f}",
            f"{credit.get('delta', 0):+.4f}",
        )
    if credits.row_count:
        parts += ["", credits]
    return Lines(*parts)


def _ranked_row_view(row: Document, counted: Document) -> Sequence[RenderableType]:
    """Render one ranked line with the contribution of each signal."""
    said_then = one_line(row["text"] or HIDDEN, 300)
    head = Text.assemble((f"{row['rank']:>4} {row['score']:.4f}  ", "bold"), safe_text(said_then))
    source = f"{row['file']}:{row['line']}" if row["file"] else row["tier"]
    now = row.get("weight_now", row["weight"])
    weight = f"learned weight {row['weight']:+.3f}, now {now:+.3f}"
    note = f" · {row['note']}" if row.get("note") else ""
    details = f"{short_id(row['id'])} · {source} · {weight}{note}"
    return (
        head,
        _indented(details, "cyan"),
        _indented(_format_contributions(row, counted), "dim"),
    )


def _format_priority(priority: Document) -> str:
    """Format the priority of an entry with the parts that it rests on."""
    parts = "importance {importance}, alignment {alignment:.2f}, {uses} uses"
    return f"{{tier}}: priority {{priority:.3f}} ({parts})".format(**priority)


def _format_contributions(row: Document, counted: Document) -> str:
    """Format a score as the sum of its contributions (weight × signal), largest first."""
    signals = row["signals"]
    parts = [
        f"{name} {value:.3f} ({counted[name]:g}×{signals[name]:.3f})"
        for name, value in row["contributions"].items()
    ]
    uncounted = [f"{name} {v:.3f}" for name, v in signals.items() if v and name not in counted]
    other = [f"other {row['other']:+.3f}"] if row["other"] else []
    return "  ".join([*parts, *uncounted, *other])


def _left_out_view(why: Document, counted_then: Document) -> Sequence[RenderableType]:
    """Render why a line was left out, with its scores at recall time and now."""
    parts: list[RenderableType] = [
        safe_text(f"{short_id(why['id'])}: {why['reason']}", "bold"),
        safe_text(why["said"]),
    ]
    if why["text"] is not None:
        parts.append(safe_text(one_line(why["text"], 300), "dim"))
        parts.append(safe_text(f"{why['file']}:{why['line']}", "cyan"))
    then, now, last = why["then"], why["now"], why["last_line"]
    if then:
        parts += [
            "",
            safe_text(f"journalled then: rank {then['rank']}, {then['score']:.4f}", "bold"),
        ]
        parts.append(_indented(_format_contributions(then, counted_then)))
    if now:
        where = f"rank {now['rank']} of {now['of']}, {now['score']:.4f}"
        parts += ["", safe_text(f"recomputed now: {where}", "bold")]
        parts.append(_indented(_format_contributions(now, now["weights"])))
    if last:
        where = f"rank {last['rank']}, {last['score']:.4f}, {short_id(last['id'])}"
        parts.append(safe_text(f"last line now: {where}", "bold"))
        parts.append(_indented(_format_contributions(last, now["weights"])))
        lacked = "  ".join(f"{name} {value:+.3f}" for name, value in last["lacked"].items())
        parts.append(_indented(f"ahead by: {lacked or '-'}", "yellow"))
    if why["words"]:
        words = why["words"]
        rows = [(name, format_value(words[name])) for name in ("query", "entry", "shared")]
        parts += ["", name_value_table(rows)]
    parts += [safe_text(f"! {line}", "yellow") for line in why["differences"]]
    return parts
