"""`memtier learn router`: train how far facts are doubted, and apply what is better."""

from __future__ import annotations

from typing import Any, Final

import click

from memtier_bench.cli.learn import open_for_data
from memtier_bench.cli.options import (
    data_option,
    dataset_option,
    facts_option,
    limit_option,
    sample_option,
)
from memtier_papers.learn_log import LearnLog
from memtier_papers.tiermem.settings import RouterDoubts
from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.memory import MemTier

LEAST_QUESTIONS: Final = 100  # for a result to be applied


@click.command(cls=CliCommand)
@dataset_option()
@data_option()
@facts_option("dataset")
@limit_option()
@sample_option("all")
@click.option(
    "--apply", "applies", is_flag=True, help="Apply what is better, unless the gate rejects it."
)
@click.pass_obj
def router(scope: Scope, /, applies: bool, **options: Any) -> None:
    """Train the router of depth auto on a data set."""
    from memtier_bench.router_learning import GRPO, run_router_learning

    opened = open_for_data(scope, writes=applies)
    with opened as memory, LearnLog(memory.actor).exclusive(), progress_bar() as tell:
        report = run_router_learning("tiermem-3", progress=tell, **options)
        trained = report["strategies"][GRPO]
        figures = {"dataset": report["dataset"], "questions": report["questions"]}
        figures |= {name: trained[name] for name in ("reward", "right", "tokens")}
        figures["gain"] = trained["against_hand"]
        document = {"router": report["trained"], "figures": figures, "applied": None}
        document["why_not"] = find_obstacle(memory, report, figures["gain"]["low"])
        if applies and not document["why_not"]:
            section = ("retrieval", "router")
            values = report["trained"]
            document["applied"] = LearnLog(memory.actor).apply("router", section, values, figures)
    scope.show(document)


def find_obstacle(memory: MemTier, report: dict[str, Any], low: float) -> str:
    """Return why the result must not be applied; "" if it may be."""
    if report["questions"] < LEAST_QUESTIONS:
        return f"{report['questions']} questions are too few; at least {LEAST_QUESTIONS}"
    if low <= 0:
        return "it is not surely better than the hand-set router on held-out conversations"
    doubts = RouterDoubts(**report["trained"])
    candidate = memory.settings.having(doubts)
    memory.catch_up()
    if memory.regression.check_settings(candidate, "the trained router").verdict.refused:
        return "the project's own questions are answered worse (memtier gate)"
    return ""
