"""`memtier bench attribution`: which proxy finds the line that an answer was copied from.

In each planted run the answer repeats the question and one of eight lines. In half of the runs
another line is a decoy: twice all words of the question and of the copied line, in another order.
The answer is scored by an endpoint's model, or by the bigram model that ships (`bigram`). A proxy
is right if the copied line alone has the largest affinity.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import memtier_plugin
from memtier_bench.bigram import score_tokens, tokenize
from memtier_bench.intervals import wilson_interval
from memtier_bench.progress import Progress, no_progress
from memtier_bench.synthetic import WordList
from memtier_bench.tables import Report, ReportTable, Section
from memtier_papers.memtier.logprob import leave_one_out
from memtier_papers.memtier.run_credit import affinity
from memtier_papers.memtier.scoring import ScoredText, score_text
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.providers.endpoint import EndpointClient
from memtier_plugin.text.tokenizer import plain_words

SEED: Final = 42
LINES: Final = 8  # in a block
_WORDS: Final = 12  # approximate length of a line

Score = Callable[[str], ScoredText]


@dataclass(frozen=True, slots=True)
class PlantedRun:
    """A block, a question and an answer that repeats the line at an index."""

    lines: tuple[str, ...]
    question: str
    answer: str
    copied: int
    decoy: int | None


def plant_run(chance: random.Random, words: WordList, *, decoy: bool) -> PlantedRun:
    """Return a run whose answer copies one of its lines."""
    lines = [words.text(chance, _WORDS) for _ in range(LINES)]
    question = words.question(chance)
    copied, other = chance.sample(range(LINES), 2)
    if decoy:
        mixed = 2 * [*lines[copied].split(), *question.split()]
        chance.shuffle(mixed)
        lines[other] = " ".join(mixed)
    answer = f"{question} {lines[copied]}"
    return PlantedRun(tuple(lines), question, answer, copied, other if decoy else None)


def run_attribution(
    runs: int = 100,
    endpoint: str | None = None,
    model: str | None = None,
    key_env: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Plant runs, and count which proxies give the copied line the largest share.

    Args:
        endpoint: the base URL of a server that echoes log-probabilities, with its ``model``.

    Raises:
        NoLogprobs: the server does not echo.
        EndpointError: the server does not answer.
    """
    tell, chance, words = progress or no_progress, random.Random(SEED), WordList()
    score, scorer = _scorer(endpoint, model, key_env)
    right = {proxy: {True: 0, False: 0} for proxy in ("logprob", "jaccard", "overlap")}
    fooled = dict.fromkeys(right, 0)
    for number in range(runs):
        run = plant_run(chance, words, decoy=number % 2 == 1)
        affinities = {
            "logprob": leave_one_out(run.lines, run.question, run.answer, score),
            "jaccard": _by_words(run, "jaccard"),
            "overlap": _by_words(run, "overlap"),
        }
        for proxy, values in affinities.items():
            best = max(values)
            first = [index for index, value in enumerate(values) if value == best]
            right[proxy][run.decoy is not None] += first == [run.copied]
            fooled[proxy] += run.decoy in first
        tell("scoring planted runs", number + 1, runs)
    half = {True: runs // 2, False: runs - runs // 2}
    return {
        "kind": "attribution",
        "dataset": "planted",
        "runs": runs,
        "model": scorer,
        "proxies": {
            proxy: {
                "top1": round(sum(hits.values()) / runs, 4),
                "interval": [round(each, 4) for each in wilson_interval(sum(hits.values()), runs)],
                "plain": round(hits[False] / max(1, half[False]), 4),
                "decoy": round(hits[True] / max(1, half[True]), 4),
                "fooled": fooled[proxy],
            }
            for proxy, hits in right.items()
        },
        "version": memtier_plugin.__version__,
    }


def _by_words(run: PlantedRun, proxy: Any) -> list[float]:
    answer = plain_words(run.answer)
    return [affinity(plain_words(line), answer, proxy) for line in run.lines]


def _scorer(url: str | None, model: str | None, key_env: str | None) -> tuple[Score, str]:
    if not url:
        return score_by_bigrams, "bigram"
    client = EndpointClient(Endpoint(base_url=url, key_env=key_env or "none"))
    return lambda text: score_text(client, model or "", text), model or ""


def score_by_bigrams(text: str) -> ScoredText:
    """Return a text scored by the bigram model."""
    tokens = tokenize(text)
    scored = ScoredText.of(text, tokens, score_tokens(tokens), None)
    assert scored is not None, "its tokens are the text"
    return scored


def attribution_view(report: Report) -> list[Section]:
    """Return the table of a report."""
    table = ReportTable(
        ("proxy", "top-1", "95 % interval", "without a decoy", "with a decoy", "decoy first")
    )
    for proxy, row in report["proxies"].items():
        low, high = row["interval"]
        table.add_row(
            proxy,
            f"{row['top1']:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{row['plain']:.3f}",
            f"{row['decoy']:.3f}",
            str(row["fooled"]),
        )
    head = f"{report['runs']} planted runs, {LINES} lines each, scored by {report['model']}"
    return [head, table]
