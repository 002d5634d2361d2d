"""`memtier bench`: measure recall on a published data set, or cost at size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from memtier_plugin import cli_views as views
from memtier_plugin.cli_scope import Group, progress

DATASETS: Final = {
    "locomo": "Measure recall on LoCoMo: long talks between two people.",
    "beam": "Measure recall on BEAM: long chats with probing questions.",
    "longmemeval": "Measure recall on LongMemEval: one question over many sessions.",
}
# Not the common --json: here it takes a file, and the tables go to stdout beside it.
_JSON: Final = click.Option(
    ["--json", "file"],
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the whole report there.",
)


@click.group(cls=Group)
def bench() -> None:
    """Measure recall and cost, apart from your own memory."""


def _retrieval_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--data"],
            required=True,
            type=click.Path(exists=True, path_type=Path),
            metavar="PATH",
            help="The data set as its authors publish it.",
        ),
        click.Option(
            ["--profile"],
            type=click.Choice(["recall_first", "paper"]),
            help="The retrieval profile [the configured one].",
        ),
        click.Option(
            ["--facts"],
            type=click.Choice(["none", "dataset"]),
            default="none",
            help="Give it the facts that the data set states [none].",
        ),
        click.Option(
            ["--baseline"],
            type=click.Choice(["bm25", "bm25-stem"]),
            help="Measure plain BM25 over all turns instead of MemTier.",
        ),
        click.Option(
            ["--limit"], type=click.IntRange(1), metavar="N", help="Ask only the first N questions."
        ),
        click.Option(["--ablate"], is_flag=True, help="Repeat it without each signal."),
        _JSON,
    ]


def _retrieval(dataset: str, *, file: Path | None, **options: Any) -> None:
    retrieval = import_module("memtier_plugin.bench.retrieval")
    with progress() as report:
        _print(retrieval.run_retrieval(dataset, progress=report, **options), file)


for _name, _help in DATASETS.items():
    bench.add_command(
        click.Command(
            _name, params=_retrieval_options(), callback=partial(_retrieval, _name), help=_help
        )
    )


def _number(flag: str, default: int, help_text: str) -> click.Option:
    shown = f"{help_text} [{default:,}]."
    return click.Option([flag], type=click.IntRange(1), default=default, metavar="N", help=shown)


def _scale(*, file: Path | None, **options: Any) -> None:
    scale = import_module("memtier_plugin.bench.scale")
    with progress() as report:
        _print(scale.run_scale(progress=report, **options), file)


bench.add_command(
    click.Command(
        "scale",
        params=[
            _number("--entries", 10_000, "How large the store grows"),
            _number("--recalls", 1_000, "How many recalls at each size"),
            _number("--agents", 1, "How many agents share it"),
            _JSON,
        ],
        callback=_scale,
        help="Measure time, memory and bytes in a store of made-up entries.",
    )
)


def _print(report: Mapping[str, Any], file: Path | None) -> None:
    if file:
        file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    import_module("memtier_plugin.bench.report").print_report(report, views.console())
