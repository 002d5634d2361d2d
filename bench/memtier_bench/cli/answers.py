"""`memtier bench answers` and `bench model`: a reader's answers, and a model to be that reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from memtier_bench.cli.options import (
    EXISTING,
    FILE,
    OUTPUTS,
    count_option,
    facts_option,
    run_bench,
    sample_option,
)
from memtier_plugin.cli.scope import ExampleCommand, Scope, progress_bar
from memtier_plugin.core.settings.schema import ENDPOINT_PREFIX

if TYPE_CHECKING:
    from memtier_bench.reading import ReaderModel

LOCAL: Final = "local"  # the reader that `memtier bench model` brings


@click.command(cls=ExampleCommand)
@click.option(
    "--dataset",
    type=click.Choice(["locomo", "longmemeval", "judgement"]),
    default="locomo",
    help="The format of the file [locomo].",
)
@click.option(
    "--data",
    required=True,
    type=EXISTING,
    metavar="PATH",
    help="The data set as its authors publish it.",
)
@click.option(
    "--reader",
    default=LOCAL,
    metavar="endpoint:NAME/MODEL",
    help="What answers: a model of an endpoint in your config.yaml, which gets the questions and "
    "what is recalled for them [the one that `memtier bench model` brings].",
)
@click.option(
    "--replies",
    type=FILE,
    metavar="FILE.jsonl",
    help="Keep each reply there, and ask no more for what it has: a run that was cut off goes on.",
)
@click.option("--ask", is_flag=True, help="Have `memtier ask` answer with that reader, too.")
@facts_option("none")
@sample_option("all")
@click.option("--seed", type=int, default=42, metavar="N", help="Of the questions' order [42].")
@count_option("--threads", 1, "On how many idle cores the local model runs")
@OUTPUTS
@click.pass_obj
def answers(
    scope: Scope, /, reader: str, threads: int, replies: Path | None, **options: Any
) -> None:
    """Measure a reader's answers: without memory, by BM25, by MemTier, by the gold lines."""
    from memtier_bench.reader_arms import READER_INSTRUCTION, run_answers

    with open_reader(scope, reader, threads, READER_INSTRUCTION, replies) as model:
        run_bench(run_answers, reader=model, keeps=True, **options)


@contextmanager
def open_reader(
    scope: Scope, name: str | None, threads: int, *options: Any
) -> Iterator[ReaderModel | None]:
    """Yield a model by its name; serve the local one as long.

    Args:
        name: None for no model.
        options: of `ReaderModel`, from its instruction on.
    """
    from memtier_bench.local_model import MODEL, fetch_model, serve_model
    from memtier_bench.reading import ReaderModel
    from memtier_plugin.core.settings.load import load_settings
    from memtier_plugin.providers.endpoint import resolve_model

    if name is None:
        yield None
    elif name == LOCAL:
        with progress_bar() as tell:
            path = fetch_model(tell)
        with serve_model(path, threads=threads) as base_url:
            yield ReaderModel(base_url, MODEL, None, *options)
    elif name.startswith(ENDPOINT_PREFIX):
        endpoints = load_settings(scope.path, scope.project_name).endpoints
        _, endpoint, model = resolve_model(name, endpoints, "a reader")
        yield ReaderModel(endpoint.base_url, model, endpoint.key_env, *options)
    else:
        raise click.UsageError(f"a model is 'endpoint:NAME/MODEL' or {LOCAL!r}, not {name!r}")


@click.command(cls=ExampleCommand)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8321, metavar="N", help="Where [8321]."
)
@count_option("--threads", 1, "On how many idle cores it runs; more make it far slower")
@click.option("--fetch-only", is_flag=True, help="Bring it, and do not serve it.")
def model(port: int, threads: int, fetch_only: bool) -> None:
    """Bring a small language model (Qwen2.5-Coder-1.5B, 1.1 GB) and serve it on this machine."""
    from memtier_bench.local_model import MODEL, fetch_model, serve_model

    with progress_bar() as tell:
        path = fetch_model(tell)
    click.echo(f"{MODEL} is in {path}")
    if fetch_only:
        return
    with serve_model(path, port=port, threads=threads) as base_url:
        click.echo(f"It answers at {base_url} until you press Ctrl-C. In config.yaml:\n")
        click.echo(f"endpoints:\n  local:\n    base_url: {base_url}\n    timeout_s: 600\n")
        click.echo(f"consolidation:\n  model: endpoint:local/{MODEL}")
        while True:
            time.sleep(3600)
