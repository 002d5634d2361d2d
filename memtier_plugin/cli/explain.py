"""`memtier explain`: why a recall chose its lines, or the history of one line; `memtier why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memtier_plugin.cli.scope import CliCommand, Scope, complete_items, complete_recalls
from memtier_plugin.cli.views import (
    Document,
    draws,
    format_time,
    format_value,
    indented,
    name_value_table,
    one_line,
    safe_text,
    short_id,
    table_view,
)
from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import describe_call
from memtier_plugin.views.history import LineHistory, signed_sparkline, sparkline
from memtier_plugin.views.journal import Bar, RankedRow, RecallView, recall_view
from memtier_plugin.views.reading import read_curves, read_line_history

HIDDEN: Final = "(forgotten, or another agent's)"
_OTHERS: Final = 5  # lines beside the one that `why` is about
_SHOWN: Final = 20  # newest recalls and credits of a line

Curves = Mapping[str, Sequence[float]]


@click.command(cls=CliCommand, example="4QRY442D --why 5H61N2FJ")
@click.argument("item_id", metavar="ID", shell_complete=complete_recalls)
@click.option(
    "--why",
    metavar="ID",
    shell_complete=complete_items,
    help="Show why this entry or fact was not recalled.",
)
@click.pass_obj
def explain(scope: Scope, item_id: str, why: str | None) -> None:
    """Explain the hits of a recall, or the history of a line."""
    with scope.open(everybody=True) as memory:
        try:
            document = memory.explain(item_id, why)
        except NotFound as no_recall:
            try:
                history = None if why else read_line_history(memory, item_id)
            except NotFound:
                history = None
            if history is None:
                raise no_recall from None
            scope.show(history.to_json(), lambda _: history_view(history))
            return
        hits = [row["id"] for row in (*document["injected"], *document["near_misses"])]
        curves = read_curves(memory, hits) if draws() else {}
    scope.show(document, partial(explain_view, curves=curves))


@click.command(cls=CliCommand, example='"use pnpm" --prompt "Install lodash"')
@click.argument("text", metavar="TEXT", shell_complete=complete_items)
@click.option("--prompt", metavar="TEXT", help="The prompt [the newest].")
@click.option("--sender", metavar="ID", help="The person whose prompt it was.")
@click.pass_obj
def why(scope: Scope, text: str, prompt: str | None, sender: str | None) -> None:
    """Explain why a line was not used for a prompt, and what to do."""
    with replace(scope, agent=None).open(everybody=True) as memory:
        scope.show(memory.why(text, prompt, agent=scope.agent, sender=sender), why_view)


def why_view(document: Document) -> RenderableType:
    """Render the stage at which a line stopped, the line, the prompt, and what to do."""
    line, recall = document["line"], document["recall"]
    rows = [(document["stage"], document["said"])]
    if line:
        who = "as a fact" if line["who"] == "fact" else f"by {line['who']}"
        source = f"{who}, session {line['session']} of {line['agent']}"
        rows.append(("line", f"{short_id(line['id'])}  {one_line(line['text'] or HIDDEN)}"))
        rows.append(("recorded", f"{format_time(line['at'])} {source}"))
        rows.append(("in", f"{line['file']}:{line['line']}"))
    made = f"{format_time(recall['at'])} as {short_id(recall['id'])}, {recall['label']}"
    made = made if recall["id"] else "as it would be recalled now"
    if recall["query"]:
        rows.append(("prompt", f"{one_line(recall['query'])} ({recall['agent']}, {made})"))
    rows += [
        ("also", f"{short_id(other['id'])}  {one_line(other['text'], 60)}: {other['stage']}")
        for other in document["others"][:_OTHERS]
    ]
    return name_value_table([*rows, ("next", document["next"])])


def explain_view(document: Document, curves: Curves | None = None) -> RenderableType:
    """Render an explanation: each line's signals at recall time, its weight then and now.

    Args:
        curves: of each line, its weights over time.
    """
    recall = recall_view(document)
    head = _head_view(recall)
    if document.get("why"):
        return Group(head, "", *_left_out_view(document["why"], document["weights"]))
    parts: list[RenderableType] = [head]
    again = " (scores are from the journal; signals are recomputed)"
    for title, rows in (
        ("injected", recall.injected),
        ("near misses" + again * recall.recomputed, recall.near_misses),
    ):
        parts += ["", safe_text(title, "bold")]
        for row in rows:
            parts += _ranked_row_view(row, (curves or {}).get(row.id, ()))
    credits = [
        (
            credit.get("run_id") or "-",
            short_id(credit.get("item")),
            f"{credit.get('reward', 0):+.1f}",
            f"{credit.get('share', 0):.3f}",
            f"{credit.get('delta', 0):+.4f}",
            describe_call(credit),
        )
        for credit in recall.credits
    ]
    names = ("run", "line", "reward", "share", "change", "call")
    parts += ["", table_view(names, credits, right=names[2:4])] if credits else []
    return Group(*parts, *_block_view(recall))


def _head_view(recall: RecallView) -> RenderableType:
    made = f"{format_time(recall.at)}, {recall.label}, {recall.ms:.0f} ms"
    rows = [("recall", short_id(recall.id)), ("query", one_line(recall.query)), ("made", made)]
    if recall.silence:
        rows.append(("silent", recall.silence))
    if recall.probability is not None:
        rows.append(("likely", f"{recall.probability:.2f} that it contains what the prompt needs"))
    rows += recall.depth
    for name, note in recall.notes.items():
        item = note.get("item")
        line = f"{short_id(item)} {one_line(note['text'] or HIDDEN)}: " if item else ""
        rows.append((name, line + note["said"]))
    return name_value_table(rows)


def _block_view(recall: RecallView) -> Sequence[RenderableType]:
    """Render the injected block, marking lines that are gone."""
    if not recall.block or not recall.block["text"]:
        return ()
    fates = {"inject": "the prompt received", "offer": "came too late for the prompt"}
    got = fates.get(recall.purpose, "a prompt would have received")
    sure = (
        ""
        if recall.block["exact"]
        else f", of {recall.tokens} then: some of it has since been deleted"
    )
    title = f"{got} ({recall.block['tokens']} tokens{sure})"
    return "", safe_text(title, "bold"), safe_text(recall.block["text"].rstrip("\n"), "dim")


def _ranked_row_view(row: RankedRow, curve: Sequence[float]) -> Sequence[RenderableType]:
    """Render one ranked line with the contribution of each signal."""
    said_then = one_line(row.text or HIDDEN, 300)
    head = Text.assemble((f"{row.rank:>4} {row.score:.4f}  ", "bold"), safe_text(said_then))
    source = f"{row.file}:{row.line}" if row.file else row.tier
    weight = f"learned weight {row.weight:+.3f}, now {row.weight_now:+.3f}"
    drawn = f" {signed_sparkline(curve)}" if len(curve) > 1 else ""
    behind = f" · {row.behind:.3f} behind" if row.behind and row.behind > 0 else ""
    note = f" · {row.note}" if row.note else ""
    note += f" · proof: {row.proof}" if row.proof else ""
    details = f"{short_id(row.id)} · {source} · {weight}{drawn}{behind}{note}"
    signals = "  ".join(map(_format_bar, row.bars))
    rows = [head, indented(details, "cyan"), indented(signals, "dim")]
    return [*rows, *(indented(note, "dim") for note in row.said)]


def _format_bar(bar: Bar) -> str:
    """Format a signal's contribution to a score: weight × signal."""
    if bar.name == "other":
        return f"other {bar.added:+.3f}"
    if bar.weight is None:
        return f"{bar.name} {bar.value:.3f}"
    drawn = f"{sparkline([bar.share], 0, 1)} " if draws() else ""
    return f"{drawn}{bar.name} {bar.added:.3f} ({bar.weight:g}×{bar.value:.3f})"


def _format_contributions(row: Document, counted: Document) -> str:
    """Format a score as the sum of its contributions (weight × signal), largest first."""
    signals = row["signals"]
    parts = [
        f"{name} {value:.3f} ({counted[name]:g}×{signals[name]:.3f})"
        for name, value in row["contributions"].items()
    ]
    uncounted = [f"{name} {v:.3f}" for name, v in signals.items() if v and name not in counted]
    remainder = [f"other {row['other']:+.3f}"] if row["other"] else []
    return "  ".join([*parts, *uncounted, *remainder])


def _left_out_view(why: Document, counted_then: Document) -> Sequence[RenderableType]:
    """Render why a line was not recalled, with its scores then and now."""
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
        parts.append(indented(_format_contributions(then, counted_then)))
    if now:
        where = f"rank {now['rank']} of {now['of']}, {now['score']:.4f}"
        parts += ["", safe_text(f"recomputed now: {where}", "bold")]
        parts.append(indented(_format_contributions(now, now["weights"])))
    if last:
        where = f"rank {last['rank']}, {last['score']:.4f}, {short_id(last['id'])}"
        parts.append(safe_text(f"last line now: {where}", "bold"))
        parts.append(indented(_format_contributions(last, now["weights"])))
        lacked = "  ".join(f"{name} {value:+.3f}" for name, value in last["lacked"].items())
        parts.append(indented(f"ahead by: {lacked or '-'}", "yellow"))
    if why["words"]:
        words = why["words"]
        rows = [(name, format_value(words[name])) for name in ("query", "entry", "shared")]
        parts += ["", name_value_table(rows)]
    parts += [safe_text(f"! {line}", "yellow") for line in why["differences"]]
    return parts


def history_view(history: LineHistory) -> RenderableType:
    """Render the history of a line: its weight over time, its credits and recalls."""
    curve = f"  {signed_sparkline(history.curve)}" if draws() and len(history.curve) > 1 else ""
    rows = [
        ("id", history.id),
        ("text", one_line(history.text or HIDDEN, 400)),
        ("from", f"{format_time(history.at)}, {history.who}, {history.file}:{history.line}"),
        ("state", f"{history.state}, {history.tier}"),
        ("weight", f"{history.weight:+.4f}{curve}"),
    ]
    parts: list[RenderableType] = [name_value_table(rows)]
    credits = (
        (
            format_time(credit.at),
            credit.run or "-",
            f"{credit.reward:+.1f}",
            f"{credit.share:.3f}",
            f"{credit.delta:+.4f}",
            credit.call,
            "" if credit.counts else "taken back",
        )
        for credit in history.credits[-_SHOWN:]
    )
    recalls = (
        (
            format_time(recall.at),
            short_id(recall.id),
            recall.rank,
            "injected" if recall.injected else "near miss",
            one_line(recall.query),
        )
        for recall in history.recalls[-_SHOWN:]
    )
    changes = (
        (format_time(change.at), change.what, change.agent, change.run or "-")
        for change in history.changes[-_SHOWN:]
    )
    for title, names, cells in (
        ("credits", ("when", "run", "reward", "share", "change", "call", ""), credits),
        ("recalls", ("when", "recall", "rank", "", "query"), recalls),
        ("changes", ("when", "what", "by", "run"), changes),
    ):
        table = table_view(names, cells, right=["change", "rank"], wide=["query"])
        if isinstance(table, Table):
            parts += ["", safe_text(title, "bold"), table]
    return Group(*parts)
