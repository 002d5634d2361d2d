"""Encode every text of rows once, for `train_pairs.py`.

    python scripts/models/encode_rows.py ENCODER FOLDER [--public RELEVANCE.jsonl]

FOLDER has the files of `candidates.py`; each gets a file of tensors beside it: groups of a query,
its lines and which of them answer it, and the token vectors of all texts.  RELEVANCE has rows
``{q, pos, neg, lang, source}``, of which some are drawn, in English and from sources without
share-alike (`SOURCES`).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from pair_model import Encoder

SEED: Final = 7
# Shares.  Neither share-alike (xquad, squad2, disfl-qa, cmrc2018; clinc-oos, whose lines are of
# sgd) nor other languages.
SOURCES: Final = {
    "irc-ubuntu": 0.3,
    "dstc9-faq": 0.25,
    "molweni": 0.2,
    "medquad": 0.1,
    "qmsum": 0.15,
}
LINES: Final = 5  # that do not answer a public query
_NAMES: Final = (
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Elena",
    "Farid",
    "Grace",
    "Hugo",
    "Iris",
    "Jonas",
)
_MONTHS: Final = ("January", "March", "May", "June", "July", "August", "October", "December")


def read_public(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield groups of public rows; half of them dressed as a memory's lines, with who and when."""
    by_source: dict[str, list[Any]] = {source: [] for source in SOURCES}
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["lang"] == "en" and row["source"] in by_source:
                by_source[row["source"]].append(row)
    chance = random.Random(SEED)
    for source, share in SOURCES.items():
        for row in chance.sample(
            by_source[source], min(len(by_source[source]), int(share * count))
        ):
            pos = chance.sample(row["pos"], min(1, len(row["pos"])))
            neg = chance.sample(row["neg"], min(LINES, len(row["neg"])))
            dressed = chance.random() < 0.5
            lines = [_dress(line, chance) if dressed else line for line in (*pos, *neg)]
            yield {
                "set": source,
                "kind": "own" if pos else "foreign",
                "query": row["q"],
                "lines": lines,
                "gold": [[0]] * len(pos) + [[]] * len(neg),
                "count": len(pos),
            }


def _dress(line: str, chance: random.Random) -> str:
    day, month, year = chance.randint(1, 28), chance.choice(_MONTHS), chance.randint(2019, 2026)
    return f"{chance.choice(_NAMES)}, {day} {month} {year}: {line}"


def read_candidates(path: Path) -> Iterator[dict[str, Any]]:
    """Yield groups of what recalls found."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield {
            **{
                name: row[name]
                for name in ("set", "kind", "id", "query", "probability", "injected")
            },
            "lines": [hit["line"] for hit in row["hits"]],
            "units": [hit["units"] for hit in row["hits"]],
            "scores": [hit["score"] for hit in row["hits"]],
            "gold": [hit["gold"] for hit in row["hits"]],
            "count": row["gold"],
        }


def write_groups(encoder: Encoder, groups: list[dict[str, Any]], out: Path) -> None:
    """Write groups with the vectors of their texts."""
    texts = sorted({text for group in groups for text in (group["query"], *group["lines"])})
    numbers = {text: number for number, text in enumerate(texts)}
    for group in groups:
        group["query"] = numbers[group["query"]]
        group["lines"] = [numbers[line] for line in group["lines"]]
    torch.save({"groups": groups, "states": encoder.encode(texts)}, out)
    print(f"{out}: {len(groups)} groups, {len(texts)} texts", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--rows", type=int, default=2_000, help="of the public ones")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    encoder = Encoder(arguments.encoder)
    for path in sorted(arguments.folder.glob("*.jsonl")):
        write_groups(encoder, [*read_candidates(path)], path.with_suffix(".pt"))
    if arguments.public:
        groups = [*read_public(arguments.public, arguments.rows)]
        write_groups(encoder, groups, arguments.folder / "public.pt")


if __name__ == "__main__":
    main()
