"""`memtier bench facts`: measure the facts that a consolidation without a model extracts.

Each conversation is recorded and consolidated through the public API.  A sample of the facts is
written with their source lines, for a person or a model to judge by `RUBRIC`; the judgements are
read back and become shares.  A judgement refers to its fact by a hash, so that judgements of other
or since reworded facts do not count.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.bench.compare import compare_metrics
from memtier_plugin.bench.datasets import Conversation, Dataset
from memtier_plugin.bench.intervals import wilson_interval
from memtier_plugin.bench.metrics import QuestionOutcome, question_figures, summarise_outcomes
from memtier_plugin.bench.progress import Progress, no_progress
from memtier_plugin.bench.retrieval import BenchRun, dataset_fingerprint, prepare_dataset
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Fact
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.importers.sessions import read_text_lines

RUBRIC: Final = Path(__file__).with_name("rubric") / "facts.md"
CRITERIA: Final = ("true", "self_contained", "useful")
SAMPLE_SIZE: Final = 50  # facts drawn of each conversation
SEED: Final = 42


@dataclass(slots=True, kw_only=True)
class _ConsolidationTally:
    """The results of the consolidations of all conversations."""

    each: int
    seed: int
    turns: int = 0
    read: int = 0
    seconds: float = 0.0
    relations: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    sample: list[dict[str, Any]] = field(default_factory=list)
    by_conversation: dict[str, dict[str, int]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def run_facts(
    dataset: str,
    data: Path,
    sample: int = SAMPLE_SIZE,
    seed: int = SEED,
    sample_file: Path | None = None,
    judgements: Path | None = None,
    limit: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Consolidate a data set without a model and measure the facts; return a JSON report.

    Args:
        dataset: `locomo`, `beam` or `longmemeval`.
        data: the file or folder of the data set.
        sample: how many facts of each conversation are drawn to be judged; all if it has fewer.
        seed: of the sample.
        sample_file: write the sample there as JSON Lines.
        judgements: count the judgements in this file of JSON Lines.
        limit: ask only the first so many questions.
        overrides: settings for the run, by dotted key.
        progress: told of each step.

    Raises:
        ImportFileError: the data set or the judgements are malformed.
        SettingsError: an override is not a setting.
    """
    given = load_judgements(judgements) if judgements else None
    loaded = prepare_dataset(dataset, data, limit=limit)
    tally = _ConsolidationTally(each=sample, seed=seed)
    tell = progress or no_progress
    outcomes = {"none": _ask_dataset(loaded, "none", None, overrides, tell)}
    outcomes["extracted"] = _ask_dataset(loaded, "none", tally, overrides, tell)
    if any(conversation.facts for conversation in loaded.conversations):
        outcomes["dataset"] = _ask_dataset(loaded, "dataset", None, overrides, tell)
    if sample_file:
        rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in tally.sample)
        sample_file.write_text("".join(rows), encoding="utf-8")
    facts = tally.relations.total()
    return {
        "kind": "facts",
        "dataset": dataset,
        "conversations": tally.by_conversation,
        "turns": tally.turns,
        "facts": facts,
        "per_100_turns": round(100 * facts / max(1, tally.turns), 2),
        "relations": dict(tally.relations.most_common()),
        "rejected": dict(tally.rejected.most_common()),
        "consolidation": {"entries": tally.read, "seconds": round(tally.seconds, 3)},
        "questions": len(outcomes["none"]),
        "recall": _compare_recalls(outcomes),
        "sample": {"each": sample, "seed": seed, "facts": len(tally.sample)},
        "judged": None if given is None else judged_shares(tally.sample, given),
        "version": memtier_plugin.__version__,
        "settings": tally.settings,
        "fingerprint": dataset_fingerprint(loaded),
    }


def _compare_recalls(outcomes: Mapping[str, Sequence[QuestionOutcome]]) -> dict[str, Any]:
    """Summarise the recalls with each kind of facts, and compare them with those without any."""
    figures = {name: [*map(question_figures, results)] for name, results in outcomes.items()}
    return {
        name: {
            **summarise_outcomes(results),
            "than_none": compare_metrics(figures[name], figures["none"]),
        }
        for name, results in outcomes.items()
    }


def _ask_dataset(
    loaded: Dataset,
    facts: str,
    tally: _ConsolidationTally | None,
    overrides: Mapping[str, Any] | None,
    progress: Progress,
) -> list[QuestionOutcome]:
    """Record each conversation, consolidate it if a tally is given, and ask its questions."""
    run = BenchRun(loaded=loaded, facts=facts, progress=progress)
    outcomes: list[QuestionOutcome] = []
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        home = Path(folder) / "home"
        for conversation in loaded.conversations:
            with MemTier.open(home, conversation.id, settings=overrides) as memory:
                recorded = run.record(memory, conversation)
                if tally:
                    _consolidate(memory, conversation, recorded.names, tally)
                    tally.settings = flatten_settings(memory.settings)
                outcomes += run.ask(memory, conversation, recorded)
    if tally:
        tally.turns = run.turns
    return outcomes


def _consolidate(
    memory: MemTier,
    conversation: Conversation,
    names: Mapping[str, str],
    tally: _ConsolidationTally,
) -> None:
    """Consolidate a conversation to the end and draw the sample of its facts."""
    started = time.perf_counter()
    while (report := memory.consolidate()).read:
        tally.read += report.read
        tally.rejected.update(report.rejected)
    tally.seconds += time.perf_counter() - started
    facts = memory.facts(include_superseded=True)
    tally.relations.update(fact.relation for fact in facts)
    turns = len(conversation.turns)
    tally.by_conversation[conversation.id] = {"turns": turns, "facts": len(facts)}
    tally.sample += draw_sample(facts, conversation, names, tally.each, tally.seed)


def draw_sample(
    facts: Sequence[Fact],
    conversation: Conversation,
    names: Mapping[str, str],
    each: int = SAMPLE_SIZE,
    seed: int = SEED,
) -> list[dict[str, Any]]:
    """Return a sample of a conversation's facts, each as a row to be judged.

    The same facts give the same sample, regardless of their ids.

    Args:
        names: the turn that each entry came from.
        each: the size of the sample, at most.
        seed: of the random choice.
    """
    places = {turn.id: index for index, turn in enumerate(conversation.turns)}
    rows = []
    for fact in facts:
        turns = [names[source.entry] for source in fact.sources if source.entry in names]
        if turns:
            rows.append((places[turns[0]], fact.text, fact, turns))
    rows.sort(key=lambda row: row[:2])
    chance = random.Random(f"{seed}/{conversation.id}")
    chosen = chance.sample(range(len(rows)), min(each, len(rows)))
    return [_sample_row(*rows[number], conversation) for number in sorted(chosen)]


def _sample_row(
    index: int, text: str, fact: Fact, turns: Sequence[str], conversation: Conversation
) -> dict[str, Any]:
    all_turns = [*conversation.turns]
    when = all_turns[index].message.observed_at or next(
        (s.observed_at for s in conversation.sessions if all_turns[index] in s.turns), None
    )
    lines = [
        f"{turn.message.speaker or turn.message.role}: {turn.message.content}" for turn in all_turns
    ]
    return {
        "fact": judgement_key(conversation.id, turns[0], text, fact.quote),
        "conversation": conversation.id,
        "turns": list(turns),
        "subject": fact.subject,
        "relation": fact.relation,
        "text": text,
        "quote": fact.quote,
        "said_on": when.date().isoformat() if when else None,
        "before": lines[index - 1] if index else "",
        "source": lines[index],
        "after": lines[index + 1] if index + 1 < len(lines) else "",
    }


def judgement_key(conversation: str, turn: str, text: str, quote: str) -> str:
    """Return the key of a judgement: a hash of the fact's text and source."""
    return sha256(json.dumps([conversation, turn, text, quote]).encode()).hexdigest()[:16]


def load_judgements(path: Path) -> dict[str, dict[str, bool]]:
    """Read judgements, by the fact they judge; a later one of the same fact replaces the earlier.

    Raises:
        ImportFileError: a line is not a judgement; names file and line.
    """
    judgements = {}
    for number, line in read_text_lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            judgements[str(row["fact"])] = {name: row[name] for name in CRITERIA}
        except (ValueError, KeyError, TypeError):
            row = None
        if row is None or not all(isinstance(row[name], bool) for name in CRITERIA):
            raise ImportFileError(
                f'{path}:{number}: expected {{"fact": "...", "true": true, "self_contained": true, '
                f'"useful": false}}, found {line.strip():.60}'
            )
    return judgements


def judged_shares(
    sample: Sequence[Mapping[str, Any]], judgements: Mapping[str, Mapping[str, bool]]
) -> dict[str, Any]:
    """Return the share of the judged facts that meet each criterion, with intervals of 95 %.

    A fact of the sample without a judgement is ``missing``; a judgement of a fact that is not in
    the sample as it reads now is ``stale``.  Neither counts.
    """
    rows = {row["fact"]: row for row in sample}
    judged = {name: given for name, given in judgements.items() if name in rows}
    groups: dict[str, dict[str, list[Mapping[str, bool]]]] = {"conversation": {}, "relation": {}}
    for name, given in judged.items():
        for kind, members in groups.items():
            members.setdefault(rows[name][kind], []).append(given)
    return {
        "facts": len(judged),
        "missing": len(rows) - len(judged),
        "stale": len(judgements) - len(judged),
        **dict(_criterion_shares([*judged.values()])),
        "by_conversation": _shares_by_group(groups["conversation"]),
        "by_relation": _shares_by_group(groups["relation"]),
    }


def _shares_by_group(
    groups: Mapping[str, Sequence[Mapping[str, bool]]],
) -> dict[str, dict[str, Any]]:
    return {
        name: {"facts": len(given), **dict(_criterion_shares(given))}
        for name, given in groups.items()
    }


def _criterion_shares(given: Sequence[Mapping[str, bool]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the share that meets each criterion, and all of them together."""
    for name in (*CRITERIA, "all"):
        criteria = CRITERIA if name == "all" else (name,)
        met = sum(all(judgement[criterion] for criterion in criteria) for judgement in given)
        low, high = wilson_interval(met, len(given))
        yield (
            name,
            {
                "met": met,
                "share": round(met / len(given), 4) if given else None,
                "interval": [round(low, 4), round(high, 4)],
            },
        )
