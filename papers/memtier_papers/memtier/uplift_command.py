"""`memtier uplift`: the effect of showing a line, by runs without it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click
from rich.console import Group, RenderableType

from memtier_papers.memtier.causes import Causes
from memtier_papers.memtier.retirement import Retirement
from memtier_papers.memtier.settings import CauseSettings
from memtier_papers.memtier.trials import LineUplift
from memtier_papers.memtier.uplift import LEAST_RUNS, Uplift
from memtier_plugin.cli.scope import CliCommand, Scope, complete_items, limit_option
from memtier_plugin.cli.views import Document, column_table, one_line, safe_text, short_id

_FIGURES: Final = ("shown", "withheld", "uplift", "95 %")


@click.command(
    cls=CliCommand,
    epilog="With `causes.withhold` a share of the runs goes without one line of its block. Both "
    "kinds of run are compared from 20 of either on.",
)
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_items)
@click.option("--kind", metavar="NAME", help="Only lines of a kind: user, assistant, fact, how-to.")
@limit_option(20, "How many lines to show.")
@click.option("--propose", is_flag=True, help="Also propose to forget lines that never helped.")
@click.pass_obj
def uplift(scope: Scope, ids: tuple[str, ...], kind: str | None, limit: int, propose: bool) -> None:
    """Show which lines help or harm, by runs that went without them."""
    with scope.open() as memory:
        chosen_ids = {memory.knowledge.person.full_id(each) for each in ids}
        report = Causes(memory.actor).uplift()
        proposed = Retirement(memory.actor).propose() if propose else ()
        withhold = memory.settings.of(CauseSettings).withhold
    lines = [
        line
        for line in report.lines
        if kind in (None, line.kind) and (not chosen_ids or line.id in chosen_ids)
    ]
    document = {
        "withhold": withhold,
        "runs": report.runs,
        "withheld": report.withheld,
        "unfinished": report.unfinished,
        "unfinished_withheld": report.unfinished_withheld,
        "kinds": [
            {"kind": name, **_figures(value)}
            for name, value in (report.kinds or {}).items()
            if kind in (None, name)
        ],
        "found": len(lines),
        "lines": [_line(line) for line in lines[:limit]],
        "proposed": list(proposed),
    }
    scope.show(document, uplift_view)


def _figures(value: Uplift) -> dict[str, object]:
    return {**asdict(value), "verdict": value.verdict}


def _line(line: LineUplift) -> dict[str, object]:
    return {"id": line.id, "kind": line.kind, "text": line.text, **_figures(line.uplift)}


def uplift_view(document: Document) -> RenderableType:
    """Render the uplift of kinds and lines."""
    parts: list[RenderableType] = [
        safe_text("{runs} runs took part, {withheld} went without a line".format(**document))
    ]
    if not document["withhold"]:
        parts.append(safe_text("`causes.withhold` is 0: no run goes without a line now", "yellow"))
    if document["unfinished"]:
        line = "{unfinished} more did not end, {unfinished_withheld} of them without a line"
        parts.append(safe_text(line.format(**document), "dim"))
    kinds = column_table("kind", *_FIGURES, "", right=_FIGURES)
    for row in document["kinds"]:
        kinds.add_row(safe_text(row["kind"]), *_cells(row))
    lines = column_table("line", *_FIGURES, "", "", right=_FIGURES, wide=[""])
    for row in document["lines"]:
        lines.add_row(short_id(row["id"]), *_cells(row), safe_text(one_line(row["text"], 80)))
    parts += [part for table in (kinds, lines) if table.row_count for part in ("", table)]
    if document["found"] > len(document["lines"]):
        rest = document["found"] - len(document["lines"])
        parts.append(safe_text(f"and {rest} lines more (--limit)", "dim"))
    if document["proposed"]:
        count = len(document["proposed"])
        parts.append(safe_text(f"{count} lines are proposed to be forgotten: memtier review"))
    return Group(*parts)


def _cells(row: Document) -> tuple[str, ...]:
    if row["mean"] is None:
        few = f"{row['verdict']}: {LEAST_RUNS} of either are needed"
        return str(row["shown"]), str(row["withheld"]), "", "", few
    interval = f"{row['low']:+.2f} to {row['high']:+.2f}"
    return (
        str(row["shown"]),
        str(row["withheld"]),
        f"{row['mean']:+.2f}",
        interval,
        str(row["verdict"]),
    )
