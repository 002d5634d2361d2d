"""`memtier learn weights`: train the ranking weights on history or on data sets."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Group, RenderableType

from memtier_bench.cli.learn import open_for_data
from memtier_papers.learn_log import LearnLog
from memtier_papers.memtier.fit import Example
from memtier_papers.memtier.weight_job import Progress, WeightLearner
from memtier_plugin.cli.distill import gate_view
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.cli.views import Document, column_table, name_value_table, safe_text

_EXISTING = click.Path(exists=True, path_type=Path)


@click.command(cls=CliCommand)
@click.option(
    "--data",
    type=_EXISTING,
    multiple=True,
    metavar="PATH",
    help="A data set of `memtier bench`; can be given again.",
)
@click.option(
    "--history",
    is_flag=True,
    help="Learn from this project's recalls that helped.",
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help="Ask only N questions of each data set."
)
@click.option(
    "--apply", "applies", is_flag=True, help="Apply what gains, unless the gate rejects it."
)
@click.pass_obj
def weights(
    scope: Scope, data: tuple[Path, ...], history: bool, sample: int | None, applies: bool
) -> None:
    """Learn ranking weights, and test them on held-out questions."""
    if bool(data) == history:
        raise click.UsageError("give either --data or --history")
    opened = scope.open() if history else open_for_data(scope, writes=applies)
    with opened as memory, progress_bar() as tell:
        memory.catch_up()
        learner = WeightLearner(memory.actor)
        if history:
            report = learner.learn_from_history(tell)
        else:
            report = learner.learn_from(_read(learner, data, sample, tell), tell)
        if applies:
            report = learner.apply(report, LearnLog(memory.actor), tell)
        document = report.to_json()
    scope.show(document, weights_view)


def _read(
    learner: WeightLearner, data: tuple[Path, ...], sample: int | None, tell: Progress
) -> list[list[Example]]:
    from memtier_bench.weights import collect_examples, load_any

    return [
        [*collect_examples(loaded, [*learner.start], learner.overrides, tell, sample)]
        for path in data
        for loaded in load_any(path)
    ]


def weights_view(document: Document) -> RenderableType:
    """Render what each learner gained, why one learned nothing, and what came of it."""
    rows: list[tuple[str, object]] = [
        ("profile", document["profile"]),
        ("questions", f"{document['questions']}, left out by {document['groups']} groups in turn"),
    ]
    rows += [("left out", why) for why in document["left_out"]]
    table = column_table("learner", "before", "after", "gain held out", "order changed")
    notes = []
    for learner in document["learners"]:
        gain = learner["gain"]
        shown = f"{gain[0]:+.4f} [{gain[1]:+.4f}, {gain[2]:+.4f}]" if gain else "nothing learned"
        before, after = f"{learner['before']:.4f}", f"{learner['after']:.4f}"
        table.add_row(learner["learner"], before, after, shown, f"{learner['changed']:.0%}")
        notes += [
            safe_text(f"{learner['learner']}: {trap['name']}: {trap['reason']}", "yellow")
            for trap in learner["traps"]
        ]
    parts: list[RenderableType] = [name_value_table(rows), "", table, *notes]
    if document["gate"]:
        parts += ["", gate_view(document["gate"])]
    if document["why"]:
        parts += ["", safe_text(document["why"], "bold")]
    return Group(*parts)
