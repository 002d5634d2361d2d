"""Pack a recall's journal line: about 1.2 kB instead of nine.  Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

from memtier_plugin.core.structs import Record, convert

# The full form has a record for each line of a block and each near miss, with every signal by name.
# The packed one has their ids, in their order, and beside them, by their position:
#
#     "injected": "01M842EQB5GE7BTT4EN4ABKPVB 01M842MR3Q5BQ0DRRCDQWR8VVG"
#     "near_misses": "P6AC1EJ8DM P61PJV67SP"    the ends of ids: only `explain` reads them
#     "scores": "12.54 11.02 9.41"              of the lines, then of the near misses
#     "signals": "words 1=fz; user 2: 1"        a signal's weight, and each line's value
#     "ranks": "1 3"                            where they do not simply count up from 1
#     "tiers": "es"                             first letters, where not all are episodic
#     "learned": {"1": 0.1}                     learned weights that are not 0
#     "notes": [["held until 2026-05-31", "0"]] each note, and which of them have it
#     "proofs": [["01M8...: same port", "0"]]   what a note rests on, likewise
#
# After "=" each line's value is one digit of 0-9, A-Z, a-z, the share of 61 parts; after ":" values
# are as they are, and a single one is that of all lines.  Not kept are signals that are 0 for every
# line, the signals of near misses, which `explain` computes again and says so, and what is as it is
# by default.

_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
STEPS: Final = len(_DIGITS) - 1  # between a journalled signal's 0 and 1
MISS_CHARS: Final = 10  # of the id of a near miss: 50 bits of those that are random
_SCORES: Final = "scores"  # is there in packed lines alone
PACKED_FIELDS: Final = frozenset(
    {_SCORES, "ranks", "tiers", "learned", "notes", "proofs", "signals"}
)
_SEPARATORS: Final = re.compile(r"[\s;:=]")  # may be in the name of a plugin's signal
_TIERS: Final = {"e": "episodic", "s": "semantic", "p": "procedural"}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "profile": "recall_first",
    "session_id": None,
    "sender": None,
    "repeats": [],
    "depth": "mixed",
    "steps": [],
    "vectors": 0,
}


_Texts = tuple[tuple[str, str], ...]


class _Packed(Record, frozen=True, kw_only=True):
    """The fields whose packed form differs from the full one."""

    injected: str = ""
    near_misses: str = ""
    scores: str
    signals: str = ""
    ranks: str = ""
    tiers: str = ""
    learned: Mapping[str, float] = {}
    notes: _Texts = ()
    proofs: _Texts = ()


def is_packed(data: Mapping[str, Any]) -> bool:
    """Return whether a recall's line is packed; those of earlier versions are not."""
    return _SCORES in data


def pack(full: Mapping[str, Any]) -> dict[str, Any]:
    """Return the packed form of a recall's fields."""
    packed = {name: value for name, value in full.items() if _is_kept(name, value)}
    weights = packed.pop("weights", {})
    lines, missed = full["injected"], full["near_misses"]
    items = [*lines, *missed]
    ranks = [hit["rank"] for hit in items]
    tiers = "".join(hit["tier"][0] for hit in items)
    learned = {str(n): round(hit["weight"], 4) for n, hit in enumerate(items) if hit["weight"]}
    optional = {
        "near_misses": " ".join(hit["item"][-MISS_CHARS:] for hit in missed),
        "ranks": " ".join(map(str, ranks)) if ranks != [*range(1, len(items) + 1)] else "",
        "tiers": tiers if tiers.strip("e") else "",
        "learned": learned,
        "notes": _pack_texts(items, "note"),
        "proofs": _pack_texts(items, "proof"),
        "signals": _pack_signals([hit["signals"] for hit in lines], weights) if lines else "",
    }
    packed.pop("near_misses", None)
    return {
        **packed,
        "ms": round(full["ms"], 1),
        "injected": " ".join(hit["item"] for hit in lines),
        _SCORES: " ".join(f"{hit['score']:.2f}" for hit in items),
        **{name: value for name, value in optional.items() if value},
    }


def _is_kept(name: str, value: Any) -> bool:
    """Return whether a field is written; without ``at`` it is the time of the line."""
    return bool(value != _DEFAULTS.get(name, "" if name == "at" else None))


def unpack(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the full form of a recall's line; of one that is not packed, the line as it is.

    Raises:
        KeyError, ValueError: the line is not as it was written.
    """
    if not is_packed(data):
        return data
    line = convert(data, _Packed)
    injected = line.injected.split()
    items = [*injected, *line.near_misses.split()]
    weights, signals = _unpack_signals(line.signals, len(injected))
    signals += [{}] * (len(items) - len(injected))
    ranks = [int(rank) for rank in line.ranks.split()] or range(1, len(items) + 1)
    tiers = line.tiers or "e" * len(items)
    notes, proofs = _unpack_texts(line.notes), _unpack_texts(line.proofs)
    columns = zip(items, ranks, tiers, line.scores.split(), signals, strict=True)
    hits = [
        {
            "item": item,
            "rank": rank,
            "tier": _TIERS[tier],
            "score": float(score),
            "weight": line.learned.get(str(n), 0.0),
            "signals": values,
            "note": notes.get(n),
            "proof": proofs.get(n),
        }
        for n, (item, rank, tier, score, values) in enumerate(columns)
    ]
    return {
        **_DEFAULTS,
        **data,
        "weights": weights,
        "injected": hits[: len(injected)],
        "near_misses": hits[len(injected) :],
    }


def _pack_texts(items: Sequence[Mapping[str, Any]], name: str) -> list[list[str]]:
    """Return each text of a field once, with the positions of the items that have it."""
    places: dict[str, list[str]] = {}
    for n, hit in enumerate(items):
        if text := hit.get(name):
            places.setdefault(text, []).append(str(n))
    return [[text, " ".join(positions)] for text, positions in places.items()]


def _unpack_texts(pairs: _Texts) -> dict[int, str]:
    return {int(n): text for text, positions in pairs for n in positions.split()}


def _pack_signals(rows: Sequence[Mapping[str, float]], weights: Mapping[str, float]) -> str:
    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name, 0.0) for row in rows]
        if not any(values):
            continue
        head = _SEPARATORS.sub("_", name) + (f" {weights[name]:g}" if name in weights else "")
        columns.append(head + _pack_values(values))
    return "; ".join(columns)


def _pack_values(values: Sequence[float]) -> str:
    if len(set(values)) == 1:
        return f": {values[0]:.3g}"
    if min(values) >= 0 and max(values) <= 1:
        return "=" + "".join(_DIGITS[round(value * STEPS)] for value in values)
    return ": " + " ".join(f"{value:.3g}" for value in values)


def _unpack_signals(signals: str, count: int) -> tuple[dict[str, float], list[Mapping[str, float]]]:
    """Return the weight of each signal, and of each line its signals."""
    weights: dict[str, float] = {}
    rows: list[dict[str, float]] = [{} for _ in range(count)]
    for column in signals.split("; ") if signals else ():
        head, coded, shown = re.split("([=:])", column, maxsplit=1)
        name, _, weight = head.partition(" ")
        if weight:
            weights[name] = float(weight)
        if coded == "=":
            values = [_DIGITS.index(digit) / STEPS for digit in shown]
        else:
            values = [float(value) for value in shown.split()]
            values = values * count if len(values) == 1 else values
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return weights, [*rows]
