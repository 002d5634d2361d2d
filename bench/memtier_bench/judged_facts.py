"""Judge a sample of facts by the rubric: drawing it, valid judgements, and their agreement.

A judgement refers to its fact by a hash, so that judgements of other or since reworded facts do not
count.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memtier_bench.datasets import Conversation
from memtier_bench.intervals import wilson_interval
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.records import Fact
from memtier_plugin.transfer.importers.reading import read_text_lines

RUBRIC: Final = Path(__file__).with_name("rubric") / "facts.md"
CRITERIA: Final = ("true", "self_contained", "complete", "useful", "dated")
SAMPLE_SIZE: Final = 100  # facts
SEED: Final = 42


def list_rows(
    facts: Sequence[Fact], conversation: Conversation, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a conversation's facts as rows to judge, in the order they were said.

    Args:
        names: the turn that each entry came from.
    """
    turns = conversation.turns
    indexes: dict[str, list[int]] = {}
    for index, turn in enumerate(turns):
        indexes.setdefault(turn.id, []).append(index)
    rows = []
    for fact in facts:
        stated = [names[source.entry] for source in fact.sources if source.entry in names]
        if stated:
            index = next(
                (i for i in indexes[stated[0]] if fact.quote in turns[i].message.content),
                indexes[stated[0]][0],
            )
            rows.append((index, fact.text, fact, stated))
    rows.sort(key=lambda row: row[:2])
    return [_sample_row(*row, conversation) for row in rows]


def draw_sample(
    rows: Sequence[dict[str, Any]], size: int = SAMPLE_SIZE, seed: int = SEED
) -> list[dict[str, Any]]:
    """Return a random sample of rows in order; the same facts give the same sample."""
    chosen = random.Random(seed).sample(range(len(rows)), min(size, len(rows)))
    return [rows[number] for number in sorted(chosen)]


def write_sample(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a sample as JSON Lines."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def read_sample(path: Path) -> list[dict[str, Any]]:
    """Read a sample written by `write_sample`.

    Raises:
        ImportFileError: a line is not a row of a sample; names file and line.
    """
    rows = []
    for number, line in read_text_lines(path):
        if not line.strip():
            continue
        try:
            row = parse_json_text(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {"fact", "conversation", "relation"} <= row.keys():
            raise ImportFileError(
                f"{path}:{number}: expected a line of --sample-file, found {line.strip():.60}"
            )
        rows.append(row)
    return rows


def _sample_row(
    index: int, text: str, fact: Fact, turns: Sequence[str], conversation: Conversation
) -> dict[str, Any]:
    all_turns = conversation.turns
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
        "valid_from": fact.valid_from.date().isoformat() if fact.valid_from else None,
        "valid_to": fact.valid_to.date().isoformat() if fact.valid_to else None,
        "before": lines[index - 1] if index else "",
        "source": lines[index],
        "after": lines[index + 1] if index + 1 < len(lines) else "",
    }


def judgement_key(conversation: str, turn: str, text: str, quote: str) -> str:
    """Return the key of a judgement: a hash of the fact's text and source."""
    return sha256(json.dumps([conversation, turn, text, quote]).encode()).hexdigest()[:16]


def load_judgements(path: Path) -> dict[str, dict[str, bool]]:
    """Read judgements by fact; a later one of the same fact replaces the earlier.

    Raises:
        ImportFileError: a line is not a judgement; names file and line.
    """
    judgements = {}
    for number, line in read_text_lines(path):
        if not line.strip():
            continue
        try:
            row = parse_json_text(line)
            judgements[str(row["fact"])] = {name: row[name] for name in CRITERIA}
        except (ValueError, KeyError, TypeError):
            row = None
        if row is None or not all(isinstance(row[name], bool) for name in CRITERIA):
            raise ImportFileError(
                f'{path}:{number}: expected {{"fact": "...", "true": true, ...}} with true or '
                f"false for each of {', '.join(CRITERIA)}, found {line.strip():.60}"
            )
    return judgements


def score_judgements(
    sample: Sequence[Mapping[str, Any]], files: Sequence[Path]
) -> dict[str, Any] | None:
    """Return the scores of a sample by each file of judgements, and the files' agreement.

    Raises:
        ImportFileError: a line is not a judgement; names file and line.
    """
    if not files:
        return None
    verdicts = [load_judgements(path) for path in files]
    judges = [
        {"file": f.name, **judged_shares(sample, v)} for f, v in zip(files, verdicts, strict=True)
    ]
    first, *others = verdicts
    drawn = {row["fact"] for row in sample}
    shared = [name for name in first if name in drawn and all(name in v for v in others)]
    return {
        "judges": judges,
        "agreement": _agreement([[v[name] for v in verdicts] for name in shared]),
    }


def _agreement(pairs: Sequence[Sequence[Mapping[str, bool]]]) -> dict[str, Any] | None:
    """Return the judges' agreement by criterion, and Cohen's kappa of the first two.

    None for fewer than two judges, or nothing that all of them judged.
    """
    if not pairs or len(pairs[0]) < 2:
        return None
    agreement: dict[str, Any] = {"facts": len(pairs)}
    for name in (*CRITERIA, "all"):
        votes = [[_meets(verdict, name) for verdict in verdicts] for verdicts in pairs]
        low, high = wilson_interval(sum(map(all, votes)), len(votes))
        agreement[name] = {
            "agreed": round(sum(len(set(vote)) == 1 for vote in votes) / len(votes), 4),
            "kappa": _kappa([vote[:2] for vote in votes]),
            "met_by_all": round(sum(map(all, votes)) / len(votes), 4),
            "interval": [round(low, 4), round(high, 4)],
        }
    return agreement


def _kappa(votes: Sequence[Sequence[bool]]) -> float | None:
    """Return Cohen's kappa (Cohen 1960) of two judges; None if chance explains everything."""
    size = len(votes)
    observed = sum(ours == theirs for ours, theirs in votes) / size
    ours, theirs = (sum(vote[judge] for vote in votes) / size for judge in (0, 1))
    expected = ours * theirs + (1 - ours) * (1 - theirs)
    return None if expected == 1 else round((observed - expected) / (1 - expected), 4)


def _meets(verdict: Mapping[str, bool], criterion: str) -> bool:
    """Return whether a judgement grants a criterion, or "all" of them."""
    return all(verdict[name] for name in (CRITERIA if criterion == "all" else (criterion,)))


def judged_shares(
    sample: Sequence[Mapping[str, Any]], judgements: Mapping[str, Mapping[str, bool]]
) -> dict[str, Any]:
    """Return the share of judged facts that meet each criterion, with 95 % intervals.

    A fact of the sample without a judgement is ``missing``; a judgement of a fact no longer in the
    sample is ``stale``.  Neither counts.
    """
    rows = {row["fact"]: row for row in sample}
    judged = {name: verdict for name, verdict in judgements.items() if name in rows}
    groups: dict[str, dict[str, list[Mapping[str, bool]]]] = {"conversation": {}, "relation": {}}
    for name, verdict in judged.items():
        for kind, members in groups.items():
            members.setdefault(rows[name][kind], []).append(verdict)
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
        name: {"facts": len(verdicts), **dict(_criterion_shares(verdicts))}
        for name, verdicts in groups.items()
    }


def _criterion_shares(
    verdicts: Sequence[Mapping[str, bool]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the share that meets each criterion, and that meeting all."""
    for name in (*CRITERIA, "all"):
        met = sum(_meets(judgement, name) for judgement in verdicts)
        low, high = wilson_interval(met, len(verdicts))
        yield (
            name,
            {
                "met": met,
                "share": round(met / len(verdicts), 4) if verdicts else None,
                "interval": [round(low, 4), round(high, 4)],
            },
        )
