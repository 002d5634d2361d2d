"""`memtier learn policy`: train what plans the searches of `ask.mode: tools`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memtier_bench.cli.learn import open_for_data
from memtier_bench.cli.options import (
    count_option,
    data_option,
    dataset_option,
    limit_option,
    sample_option,
)
from memtier_papers.learn_log import LearnLog
from memtier_papers.mem_t.planner import read_policy
from memtier_papers.mem_t.planner_gate import check_planner
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.credit.regression import Progress
from memtier_plugin.memory import MemTier


@click.command(cls=CliCommand)
@dataset_option()
@data_option()
@count_option("--updates", 60, "Train by N batches of 32 questions")
@limit_option()
@sample_option("all")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the policy there [a new file in the project's folder].",
)
@click.option(
    "--apply", "applies", is_flag=True, help="Use it as ask.planner, unless the gate refuses it."
)
@click.pass_obj
def policy(scope: Scope, /, output: Path | None, applies: bool, **options: Any) -> None:
    """Train a planner of the searches of `memtier ask` on a data set."""
    from memtier_bench.planner_training import train_planner

    opened = open_for_data(scope, writes=applies or output is None)
    with opened as memory, LearnLog(memory.actor).exclusive(), progress_bar() as tell:
        path = (output or LearnLog(memory.actor).path.parent).expanduser().resolve()
        figures = train_planner(path, progress=tell, **options)
        document = {**figures, "applied": None, "why_not": ""}
        if not figures["file"]:
            document["why_not"] = "it is not surely better than an untrained one on held-out talks"
        elif applies:
            document |= apply_policy(memory, figures, tell)
    if figures["file"]:
        setting = "" if document["applied"] else f" and ask.planner to {figures['file']}"
        document["next"] = f"set ask.mode to tools{setting}"
    scope.show(document)


def apply_policy(memory: MemTier, figures: dict[str, Any], tell: Progress) -> dict[str, Any]:
    """Use a policy as `ask.planner` if the project's own questions are answered no worse."""
    memory.catch_up()
    report = check_planner(memory.actor, read_policy(Path(figures["file"])), tell)
    if report.verdict.refused:
        return {"why_not": f"worse than {report.against} on the project's own questions"}
    why = {**figures, "gate": report.verdict.to_json()}
    return {
        "applied": LearnLog(memory.actor).apply("policy", ("ask", "planner"), figures["file"], why),
        "gate": report.verdict.describe(),
    }
