"""The options shared by commands of `memtier bench`, and how the commands run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import OptionDecorator, combine_options, progress_bar

DATASETS: Final = {
    "locomo": "Measure recall on LoCoMo: long talks between two people.",
    "beam": "Measure recall on BEAM: long chats with probing questions.",
    "longmemeval": "Measure recall on LongMemEval: one question over many sessions.",
}
FILE: Final = click.Path(dir_okay=False, writable=True, path_type=Path)
FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
EXISTING: Final = click.Path(exists=True, path_type=Path)
EXISTING_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


def data_option(*, required: bool = True) -> OptionDecorator:
    return click.option(
        "--data",
        required=required,
        type=EXISTING,
        metavar="PATH",
        help="The data set as its authors publish it.",
    )


def dataset_option() -> OptionDecorator:
    return click.option(
        "--dataset",
        type=click.Choice([*DATASETS]),
        default="locomo",
        help="The format of the file [locomo].",
    )


def facts_option(default: str) -> OptionDecorator:
    return click.option(
        "--facts",
        type=click.Choice(["none", "dataset", "extracted"]),
        default=default,
        help=f"Facts to store: the data set's, or those a consolidation makes [{default}].",
    )


def limit_option() -> OptionDecorator:
    return click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="Ask only the first N questions."
    )


def sample_option(default: str) -> OptionDecorator:
    return click.option(
        "--sample",
        type=click.IntRange(1),
        metavar="N",
        help=f"Ask only N questions, of each category its share [{default}].",
    )


def count_option(flag: str, default: int, help_text: str) -> OptionDecorator:
    text = f"{help_text} [{default:,}]."
    return click.option(flag, type=click.IntRange(1), default=default, metavar="N", help=text)


OUTPUTS: Final = combine_options(
    click.option(
        "--json", "json_file", type=FILE, metavar="FILE", help="Write the whole report there."
    ),
    click.option(
        "--markdown",
        "markdown_file",
        type=FILE,
        metavar="FILE.md",
        help="Write the tables there.",
    ),
    click.option(
        "--plot",
        "plot_file",
        type=FILE,
        metavar="FILE.svg",
        help="Draw the figures there (needs matplotlib).",
    ),
)
PROFILE: Final = click.option(
    "--profile",
    type=click.Choice(["recall_first", "paper", "rrf"]),
    help="The retrieval profile [the configured one].",
)
LEARN: Final = click.option(
    "--learn", is_flag=True, help="Credit what was injected for each right answer."
)
VARIED: Final = combine_options(
    LEARN,
    PROFILE,
    facts_option("none"),
    limit_option(),
    sample_option("all"),
)
RETRIEVAL: Final = combine_options(data_option(), VARIED)
WORK_SET: Final = click.option(
    "--set",
    "chosen",
    default="held",
    metavar="tune|held|FILE.yaml",
    help="The projects: those to develop on, those held out, or your own [held].",
)
READER: Final = combine_options(
    click.option(
        "--reader",
        metavar="BASE_URL",
        help="Also have a model answer: an OpenAI-compatible endpoint. It gets the questions "
        "and what is recalled for them.",
    ),
    click.option("--reader-model", metavar="NAME", help="The model at that endpoint."),
    click.option(
        "--reader-key-env",
        metavar="VARIABLE",
        help="The environment variable that holds its key [none].",
    ),
)


def build_reader(options: dict[str, Any]) -> dict[str, Any]:
    """Replace the options of a reader by the reader."""
    url, model, key = (options.pop(name) for name in ("reader", "reader_model", "reader_key_env"))
    if not url:
        if model or key:
            raise click.UsageError("--reader-model and --reader-key-env need --reader")
        return options
    if not model:
        raise click.UsageError("--reader needs --reader-model")
    from memtier_bench.reading import ReaderModel

    return {**options, "reader": ReaderModel(url, model, key)}


def run_bench(
    run: Callable[..., Mapping[str, Any]],
    *arguments: Any,
    json_file: Path | None,
    markdown_file: Path | None,
    plot_file: Path | None,
    keeps: bool = False,
    **options: Any,
) -> None:
    """Run a benchmark, print its report, and write the requested files.

    Args:
        keeps: whether the benchmark reports intermediate results, which are also written.
    """
    from memtier_bench import plot, report

    def write(result: Mapping[str, Any]) -> None:
        if json_file:
            json_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        if markdown_file:
            markdown_file.write_text(report.markdown(result), encoding="utf-8")

    if plot_file:  # an hour of measuring must not fail because of a missing library
        plot.require(plot_file)
    if keeps:
        options["keep"] = write
    with progress_bar() as tell:
        result = run(*arguments, progress=tell, **options)
    write(result)
    if plot_file:
        plot.draw(result, plot_file)
    report.print_report(result, views.make_console())
