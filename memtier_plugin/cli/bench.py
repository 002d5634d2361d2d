"""`memtier bench`: measure recall on a published data set, or cost at size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliGroup, progress_bar

DATASETS: Final = {
    "locomo": "Measure recall on LoCoMo: long talks between two people.",
    "beam": "Measure recall on BEAM: long chats with probing questions.",
    "longmemeval": "Measure recall on LongMemEval: one question over many sessions.",
}
TABLES: Final = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "E")
PARTS: Final = ("signals", "k", "token_budget", "sessions", "scope", "stage_one", "normalise")


def _output_option(flag: str, name: str, metavar: str, help_text: str) -> click.Option:
    kind = click.Path(dir_okay=False, writable=True, path_type=Path)
    return click.Option([flag, name], type=kind, metavar=metavar, help=help_text)


# Not the common --json: here it takes a file, and the tables go to stdout beside it.
OUTPUTS: Final = (
    _output_option("--json", "json_file", "FILE", "Write the whole report there."),
    _output_option("--markdown", "markdown_file", "FILE.md", "Write the tables there."),
    _output_option("--plot", "plot_file", "FILE.svg", "Draw the figures there (needs matplotlib)."),
)


@click.group(cls=CliGroup)
def bench() -> None:
    """Measure recall and cost, apart from your own memory."""


def _run_bench(function: str, *arguments: Any, **options: Any) -> None:
    """Run a function of `bench`, show its report, and write it into the files that are wanted."""
    files = {name: options.pop(name) for name in ("json_file", "markdown_file", "plot_file")}
    module, _, name = function.rpartition(".")
    if files["plot_file"]:  # what cannot be drawn is told before an hour of measuring
        import_module("memtier_plugin.bench.plot").require(files["plot_file"])
    with progress_bar() as tell:
        run = getattr(import_module(f"memtier_plugin.bench.{module}"), name)
        result: Mapping[str, Any] = run(*arguments, progress=tell, **options)
    shown = import_module("memtier_plugin.bench.report")
    if files["json_file"]:
        files["json_file"].write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if files["markdown_file"]:
        files["markdown_file"].write_text(shown.markdown(result), encoding="utf-8")
    if files["plot_file"]:
        import_module("memtier_plugin.bench.plot").draw(result, files["plot_file"])
    shown.print_report(result, views.make_console())


def _data_option() -> click.Option:
    return click.Option(
        ["--data"],
        required=True,
        type=click.Path(exists=True, path_type=Path),
        metavar="PATH",
        help="The data set as its authors publish it.",
    )


def _facts_option(default: str) -> click.Option:
    return click.Option(
        ["--facts"],
        type=click.Choice(["none", "dataset", "extracted"]),
        default=default,
        help=f"Give it facts: those of the data set, or those a consolidation makes [{default}].",
    )


def _sample_option(default: str) -> click.Option:
    return click.Option(
        ["--sample"],
        type=click.IntRange(1),
        metavar="N",
        help=f"Ask only N questions, of each category its share [{default}].",
    )


def _retrieval_options() -> list[click.Parameter]:
    return [
        _data_option(),
        click.Option(
            ["--profile"],
            type=click.Choice(["recall_first", "paper"]),
            help="The retrieval profile [the configured one].",
        ),
        _facts_option("none"),
        click.Option(
            ["--limit"], type=click.IntRange(1), metavar="N", help="Ask only the first N questions."
        ),
        _sample_option("all"),
    ]


def _baseline_option() -> click.Option:
    return click.Option(
        ["--baseline"],
        type=click.Choice(["bm25", "bm25-stem"]),
        help="Measure plain BM25 over all turns instead of MemTier.",
    )


def _reader_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--reader"],
            metavar="BASE_URL",
            help="Let a model answer, too: an OpenAI-compatible endpoint. It gets the questions "
            "and what is recalled for them.",
        ),
        click.Option(["--reader-model"], metavar="NAME", help="The model at that endpoint."),
        click.Option(
            ["--reader-key-env"],
            metavar="VARIABLE",
            help="The environment variable that holds its key [none].",
        ),
    ]


def _build_reader(options: dict[str, Any]) -> dict[str, Any]:
    """Replace what was said about the reader by the reader."""
    url, model, key = (options.pop(name) for name in ("reader", "reader_model", "reader_key_env"))
    if not url:
        if model or key:
            raise click.UsageError("--reader-model and --reader-key-env need --reader")
        return options
    if not model:
        raise click.UsageError("--reader needs --reader-model")
    reading = import_module("memtier_plugin.bench.reading")
    return {**options, "reader": reading.Reader(url, model, key)}


def _retrieval(dataset: str, **options: Any) -> None:
    if not options["conditions"]:
        del options["conditions"]
    _run_bench("retrieval.run_retrieval", dataset, **_build_reader(options))


for _name, _help in DATASETS.items():
    bench.add_command(
        click.Command(
            _name,
            params=[
                *_retrieval_options(),
                _baseline_option(),
                *_reader_options(),
                click.Option(
                    ["--condition", "conditions"],
                    type=click.Choice(["memory", "oracle", "none", "full"]),
                    multiple=True,
                    help="What the reader is given: the block, the gold turns, nothing, all "
                    "turns; can be given again [memory, oracle, none].",
                ),
                *OUTPUTS,
            ],
            callback=partial(_retrieval, _name),
            help=_help,
        )
    )


def _ablation(dataset: str, **options: Any) -> None:
    _run_bench("ablation.run_ablation", dataset, **_build_reader(options))


bench.add_command(
    click.Command(
        "ablation",
        params=[
            click.Argument(["dataset"], type=click.Choice([*DATASETS])),
            *_retrieval_options(),
            click.Option(
                ["--only"],
                type=click.Choice(PARTS),
                multiple=True,
                help="What to vary; can be given again [everything that the profile has].",
            ),
            *_reader_options(),
            *OUTPUTS,
        ],
        callback=_ablation,
        help="Measure what each part adds: without each signal, and with other settings.",
    )
)


def _table(number: str, **options: Any) -> None:
    _run_bench("paper_tables.run_table", number, **_build_reader(options))


bench.add_command(
    click.Command(
        "table",
        params=[
            click.Argument(["number"], type=click.Choice(TABLES)),
            _data_option(),
            click.Option(
                ["--dataset"],
                type=click.Choice([*DATASETS]),
                help="What the file is [for Table 3 locomo, else longmemeval].",
            ),
            _facts_option("extracted"),
            _sample_option("as many as the paper took"),
            *_reader_options(),
            *OUTPUTS,
        ],
        callback=_table,
        help="Measure a table of the MemTier paper anew, with its settings.",
    )
)


bench.add_command(
    click.Command(
        "facts",
        params=[
            click.Option(
                ["--dataset"],
                type=click.Choice([*DATASETS]),
                default="locomo",
                help="What the file is [locomo].",
            ),
            _data_option(),
            click.Option(
                ["--sample"],
                type=click.IntRange(1),
                default=50,
                metavar="N",
                help="Draw N facts of each conversation to be judged [50].",
            ),
            _output_option(
                "--sample-file",
                "sample_file",
                "FILE.jsonl",
                "Write them there, to be judged by the rubric.",
            ),
            click.Option(
                ["--judgements"],
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                metavar="FILE.jsonl",
                help="Count these judgements of the sample.",
            ),
            *OUTPUTS,
        ],
        callback=partial(_run_bench, "facts.run_facts"),
        help="Measure what a consolidation without a model makes: facts, their truth, recall.",
    )
)


bench.add_command(
    click.Command(
        "router",
        params=[
            click.Option(
                ["--dataset"],
                type=click.Choice([*DATASETS]),
                default="locomo",
                help="What the file is [locomo].",
            ),
            _data_option(),
            click.Option(
                ["--facts"],
                type=click.Choice(["dataset", "extracted"]),
                default="dataset",
                help="The facts: those of the data set, or those a consolidation makes [dataset].",
            ),
            click.Option(
                ["--k"], type=click.IntRange(1), help="How many lines a block may have [16]."
            ),
            click.Option(
                ["--limit"],
                type=click.IntRange(1),
                metavar="N",
                help="Ask only the first N questions.",
            ),
            _sample_option("all"),
            *OUTPUTS,
        ],
        callback=partial(_run_bench, "router.run_router"),
        help="Measure what answering from facts saves and costs: facts only, always raw, routed.",
    )
)


def _compare(ours: Path, theirs: Path, **files: Path | None) -> None:
    _run_bench("compare.run_compare", ours, theirs, **files)


bench.add_command(
    click.Command(
        "compare",
        params=[
            *(
                click.Argument(
                    [name],
                    type=click.Path(exists=True, dir_okay=False, path_type=Path),
                    metavar=metavar,
                )
                for name, metavar in (("ours", "A.json"), ("theirs", "B.json"))
            ),
            *OUTPUTS,
        ],
        callback=_compare,
        help="Tell whether A is really better than B: two reports on the same questions.",
    )
)


def _count_option(flag: str, default: int, help_text: str) -> click.Option:
    shown = f"{help_text} [{default:,}]."
    return click.Option([flag], type=click.IntRange(1), default=default, metavar="N", help=shown)


def _parse_sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Read ascending whole numbers with commas between them."""
    try:
        sizes = tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected whole numbers such as 1000,10000", ctx, param
        ) from None
    if sizes[0] < 1 or any(large <= small for small, large in pairwise(sizes)):
        raise click.BadParameter(f"{value!r}: expected ascending sizes above 0", ctx, param)
    return sizes


bench.add_command(
    click.Command(
        "scale",
        params=[
            click.Option(
                ["--entries"],
                callback=_parse_sizes,
                default="1000,10000",
                metavar="N,N,...",
                help="The sizes to grow to and measure at, ascending [1000,10000].",
            ),
            _count_option("--recalls", 200, "How many warm recalls at each size"),
            _count_option("--agents", 20, "How many agents share it"),
            click.Option(
                ["--data"],
                type=click.Path(exists=True, path_type=Path),
                metavar="PATH",
                help="Recombine the sentences of this LoCoMo file or BEAM folder [words as common "
                "as in a list that ships].",
            ),
            *OUTPUTS,
        ],
        callback=partial(_run_bench, "scale.run_scale"),
        help="Measure time, memory and what is found in a growing store of made-up entries.",
    )
)


bench.add_command(
    click.Command(
        "languages",
        params=[
            click.Option(
                ["--language", "languages"],
                multiple=True,
                metavar="NAME",
                help="Only this set; can be given again [all].",
            ),
            *OUTPUTS,
        ],
        callback=partial(_run_bench, "languages.run_languages"),
        help="Measure recall in seven languages and of identifiers, on sets that ship.",
    )
)


bench.add_command(
    click.Command(
        "consolidation",
        params=[
            _count_option("--entries", 1000, "How many entries are consolidated"),
            _count_option(
                "--recalls", 200, "How many recalls are to fall into consolidations, of each kind"
            ),
            *OUTPUTS,
        ],
        callback=partial(_run_bench, "consolidation.run_consolidation"),
        help="Measure one consolidation by rules, and recalls while it runs.",
    )
)
