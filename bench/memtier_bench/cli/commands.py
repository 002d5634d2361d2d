"""`memtier bench`: measure recall on a published data set, or cost at size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from memtier_bench.cli.answers import answers, model
from memtier_bench.cli.code import code
from memtier_bench.cli.facts import facts
from memtier_bench.cli.learning import gate_check, learners
from memtier_bench.cli.options import (
    DATASETS,
    EXISTING,
    EXISTING_FILE,
    FOLDER,
    OUTPUTS,
    PROFILE,
    READER,
    RETRIEVAL,
    VARIED,
    build_reader,
    count_option,
    data_option,
    dataset_option,
    facts_option,
    limit_option,
    run_bench,
    sample_option,
)
from memtier_bench.cli.peers import peers
from memtier_bench.cli.serve import serve
from memtier_bench.cli.shared import shared
from memtier_bench.cli.telemetry import telemetry
from memtier_bench.cli.work import work
from memtier_plugin.cli.scope import CliGroup, ExampleCommand, combine_options
from memtier_plugin.cli.views import parse_names, parse_sizes

TABLES: Final = (
    *("123456789E"),
    *("hmo-3", "hmo-4", "hmo-drift", "tm-4", "tm-5", "mem-t-4", "tm-6", "tm-7"),
    *("tiermem-3", "tiermem-13", "tiermem-14"),
)
JUDGED: Final = ("silence", "currency", "identity", "discretion", "keep")
ARMS: Final = ("none", "configured", "paper", "bandit")
PARTS: Final = (
    *("signals", "k", "token_budget", "sessions", "scope", "stage_one", "normalise"),
    *("fusion", "adaptive", "stores", "outcomes"),
)

_Run = Callable[..., Mapping[str, Any]]


@click.group(cls=CliGroup)
def bench() -> None:
    """Measure recall and cost, apart from your own memory."""


# Their --json takes a file, so they lack the common options.
_command: Final = partial(bench.command, cls=ExampleCommand)


# -- commands --------------------------------------------------------------------------------------


def _run_retrieval(dataset: str, **options: Any) -> None:
    from memtier_bench.retrieval import run_retrieval

    if not options["conditions"]:
        del options["conditions"]
    run_bench(run_retrieval, dataset, **build_reader(options))


_CONDITIONS: Final = click.option(
    "--condition",
    "conditions",
    type=click.Choice(["memory", "oracle", "sessions", "none", "full"]),
    multiple=True,
    help="The reader's input: the block, the gold turns, their whole sessions, nothing, all "
    "turns; can be given again [memory, oracle, none].",
)
_BASELINE: Final = click.option(
    "--baseline",
    type=click.Choice(["bm25", "bm25-stem"]),
    help="Measure plain BM25 over all turns instead of MemTier.",
)
for _name, _help in DATASETS.items():
    _options = combine_options(RETRIEVAL, _BASELINE, READER, _CONDITIONS, OUTPUTS)
    _callback = _options(partial(_run_retrieval, _name))
    _command(_name, help=_help)(_callback)


@_command()
@click.argument("folder", type=EXISTING)
@PROFILE
@click.option(
    "--facts",
    type=click.Choice(["none", "extracted"]),
    default="none",
    help="Give it facts: those a consolidation makes [none].",
)
@limit_option()
@sample_option("all")
@OUTPUTS
def sets(folder: Path, **options: Any) -> None:
    """Measure recall on each set of a folder (or one file), with stemmed BM25."""
    from memtier_bench.sets import run_sets

    run_bench(run_sets, folder, **options)


@_command()
@data_option()
@click.option(
    "--dataset",
    type=click.Choice([*DATASETS, "sets"]),
    default="locomo",
    help="What the file or folder is [locomo].",
)
@PROFILE
@click.option(
    "--floor",
    metavar="NAME",
    multiple=True,
    help="Measure with this retrieval.floor; can be given again [all, for an operating curve].",
)
@click.option(
    "--sizes",
    callback=parse_sizes,
    metavar="N,N,...",
    help="Measure stores of so many lines, too, such as 10,100,1000,10000 [none].",
)
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="CODE",
    help="Ask only this language's generic prompts; can be given again [all].",
)
@limit_option()
@sample_option("all")
@OUTPUTS
def silence(dataset: str, data: Path, **options: Any) -> None:
    """Measure when it keeps silent: own, foreign and generic prompts."""
    from memtier_bench.silence import run_silence

    run_bench(run_silence, dataset, data, **options)


@_command()
@click.argument("folder", type=FOLDER)
@click.option(
    "--sets",
    callback=parse_names,
    metavar="NAME,NAME,...",
    help=f"Only these, of {', '.join(JUDGED)} [all].",
)
@click.option(
    "--failures",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Show the first N failures of each set [0].",
)
@OUTPUTS
def judgement(folder: Path, **options: Any) -> None:
    """Judge what is shown and kept: silence, currency, identity, discretion, keep."""
    from memtier_bench.judgement import run_judgement

    run_bench(run_judgement, folder, **options)


@_command()
@click.argument("dataset", type=click.Choice([*DATASETS]), required=False)
@data_option(required=False)
@click.option(
    "--sets", type=EXISTING, metavar="FOLDER", help="Measure each set of this folder, too."
)
@click.option("--judgement", type=FOLDER, metavar="FOLDER", help="Judge these written cases, too.")
@VARIED
@click.option(
    "--only",
    type=click.Choice(PARTS),
    multiple=True,
    help="The parts to vary; can be given again [all that the profile has but `outcomes`].",
)
@click.option(
    "--silence",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Also ask N prompts that need no memory, of each data set [0].",
)
@READER
@OUTPUTS
def ablation(dataset: str | None, **options: Any) -> None:
    """Measure what each part adds: without each signal, and with other settings."""
    from memtier_bench.ablation_parts import run_ablations

    if bool(dataset) != bool(options["data"]):
        raise click.UsageError("a data set and its --data belong together")
    if not (dataset or options["sets"] or options["judgement"]):
        raise click.UsageError("name a data set, or give --sets or --judgement")
    run_bench(run_ablations, dataset, keeps=True, **build_reader(options))


@_command()
@click.argument("number", type=click.Choice(TABLES))
@data_option()
@click.option(
    "--dataset",
    type=click.Choice([*DATASETS]),
    help="The format of the file [for Table 3 locomo, else longmemeval].",
)
@facts_option("extracted")
@sample_option("as many as the paper took")
@click.option(
    "--entries",
    callback=parse_sizes,
    metavar="N,N,...",
    help="hmo-3: in stores of so many entries, such as 1000,10000 [as the conversations are].",
)
@READER
@OUTPUTS
def table(number: str, **options: Any) -> None:
    """Reproduce a table of the MemTier paper, or one of HMO, True Memory or Mem-T in kind."""
    from memtier_bench.paper_tables import run_table

    run_bench(run_table, number, **build_reader(options))


@_command()
@dataset_option()
@data_option()
@click.option(
    "--facts",
    type=click.Choice(["dataset", "extracted"]),
    default="dataset",
    help="The facts: those of the data set, or those a consolidation makes [dataset].",
)
@click.option("--k", type=click.IntRange(1), help="How many lines a block may have [16].")
@count_option("--epochs", 1, "Ask N times, with a write-back in between (TierMem, Table 5)")
@limit_option()
@sample_option("all")
@OUTPUTS
def router(**options: Any) -> None:
    """Measure what answering from facts saves and costs: facts only, always raw, routed."""
    from memtier_bench.router import run_router

    run_bench(run_router, **options)


@_command()
@dataset_option()
@data_option()
@limit_option()
@sample_option("all")
@OUTPUTS
def gate(**options: Any) -> None:
    """Measure what the encoding gate knows, saves and costs (`gate.mode: index`)."""
    from memtier_bench.gate import run_gate

    run_bench(run_gate, **options)


@_command()
@dataset_option()
@data_option()
@limit_option()
@sample_option("all")
@click.option(
    "--planner",
    type=click.Choice(("oracle", "rules")),
    default="oracle",
    show_default=True,
    help="What plans the searches.",
)
@OUTPUTS
def steps(**options: Any) -> None:
    """Measure searching step by step (`ask.mode: tools`) with a script in place of a model."""
    from memtier_bench.steps import run_steps

    run_bench(run_steps, **options)


@_command()
@dataset_option()
@data_option()
@facts_option("dataset")
@count_option("--seeds", 3, "Train N times")
@count_option("--updates", 60, "Train by N batches of 32 questions")
@click.option(
    "--export",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Also write retrieval.jsonl and construction.jsonl there, for trainers.",
)
@limit_option()
@sample_option("all")
@OUTPUTS
def trees(**options: Any) -> None:
    """Train the planner of searches by trees of rollouts, beside chains and none."""
    from memtier_bench.trees import run_trees

    run_bench(run_trees, **options)


@_command()
@count_option("--histories", 1_000, "How many histories are simulated of each world")
@dataset_option()
@click.option(
    "--data",
    type=EXISTING,
    metavar="PATH",
    help="Also measure the evidence that 5 % withheld keep out of blocks, on this data set.",
)
@limit_option()
@sample_option("all")
@OUTPUTS
def uplift(**options: Any) -> None:
    """Measure what the intervals of `memtier uplift` are worth, and what withholding costs."""
    from memtier_bench.uplift import run_uplift

    run_bench(run_uplift, **options)


@_command()
@count_option("--runs", 100, "How many runs are planted")
@click.option(
    "--endpoint",
    metavar="BASE_URL",
    help="Score by a model of this OpenAI-compatible server, which must echo log-probabilities "
    "[a bigram model that ships].",
)
@click.option("--model", metavar="NAME", help="The model at that endpoint.")
@click.option(
    "--key-env", metavar="VARIABLE", help="The environment variable that holds its key [none]."
)
@OUTPUTS
def attribution(**options: Any) -> None:
    """Measure which proxy of attribution names the line that an answer copies."""
    from memtier_bench.attribution import run_attribution

    run_bench(run_attribution, **options)


@_command()
@click.argument("ours", type=EXISTING_FILE, metavar="A.json")
@click.argument("theirs", type=EXISTING_FILE, metavar="B.json")
@OUTPUTS
def compare(ours: Path, theirs: Path, **files: Any) -> None:
    """Test whether A is better than B: two reports on the same questions."""
    from memtier_bench.compare import run_compare

    run_bench(run_compare, ours, theirs, **files)


@_command()
@click.option(
    "--entries",
    callback=parse_sizes,
    default="1000,10000",
    metavar="N,N,...",
    help="The sizes to grow to and measure at, ascending [1000,10000].",
)
@count_option("--recalls", 200, "How many warm recalls at each size")
@count_option("--agents", 20, "How many agents share it")
@click.option(
    "--data",
    type=EXISTING,
    metavar="PATH",
    help="Recombine the sentences of this LoCoMo file or BEAM folder [words as common as in a "
    "list that ships].",
)
@OUTPUTS
def scale(**options: Any) -> None:
    """Measure time, memory and what is found in a growing store of made-up entries."""
    from memtier_bench.scale import run_scale

    run_bench(run_scale, **options)


@_command()
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="NAME",
    help="Only this set; can be given again [all].",
)
@OUTPUTS
def languages(**options: Any) -> None:
    """Measure recall in seven languages and of identifiers, on sets that ship."""
    from memtier_bench.languages import run_languages

    run_bench(run_languages, **options)


@_command()
@count_option("--entries", 1000, "How many entries are consolidated")
@count_option("--recalls", 200, "How many recalls are to fall into consolidations, of each kind")
@OUTPUTS
def consolidation(**options: Any) -> None:
    """Measure one consolidation by rules, and recalls while it runs."""
    from memtier_bench.consolidation import run_consolidation

    run_bench(run_consolidation, **options)


@_command()
@count_option("--runs", 400, "How many runs end in each mode, of one writer and of several")
@count_option("--writers", 4, "How many write at once")
@click.option(
    "--folder",
    type=FOLDER,
    help="Make the homes there, on the disk to be measured [the folder for temporary files].",
)
@OUTPUTS
def durability(**options: Any) -> None:
    """Measure what it costs to survive a power cut: `ledger.durability` sync beside os."""
    from memtier_bench.durability import run_durability

    run_bench(run_durability, **options)


@_command()
@click.option(
    "--tasks",
    type=EXISTING_FILE,
    metavar="FILE.yaml",
    help="Tasks of your own [those that ship].",
)
@count_option("--worlds", 5, "Let agents work in N worlds")
@count_option("--rounds", 8, "How many days; half of the tasks change after the fourth")
@click.option("--seed", type=int, default=1, metavar="N", help="Of the worlds [1].")
@click.option(
    "--arms",
    callback=parse_names,
    metavar="NAME,NAME,...",
    help=f"Only these, of {', '.join(ARMS)} [all].",
)
@OUTPUTS
def recipes(**options: Any) -> None:
    """Measure whether outcomes of tool calls teach which of two recipes works."""
    from memtier_bench.recipes import run_recipes

    run_bench(run_recipes, **options)


for _other in (
    answers,
    code,
    facts,
    gate_check,
    learners,
    model,
    peers,
    serve,
    shared,
    telemetry,
    work,
):
    bench.add_command(_other)
