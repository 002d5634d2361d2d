"""Pack a recall's journal line, from nine kB to about 1.2.  Pure."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

from memtier_plugin.core.structs import Record, convert

# The full form has a record for each line of a block and each near miss, with every signal by name.
# The packed form has their ids in order, and parallel lists for the rest:
#
#     "injected": "01M842EQB5GE7BTT4EN4ABKPVB 01M842MR3Q5BQ0DRRCDQWR8VVG"
#     "near_misses": "P6AC1EJ8DM P61PJV67SP"    ends of ids; only `explain` reads them
#     "scores": "12.54 11.02 9.41"              the lines', then the near misses'
#     "signals": "words 1=fz; user 2: 1"        each signal's weight, and its value per line
#     "ranks": "1 3"                            unless they simply count up from 1
#     "tiers": "es"                             first letters, unless all are episodic
#     "learned": {"1": 0.1}                     learned weights that are not 0
#     "notes": [["held until 2026-05-31", "0"]] each note, and the lines that have it
#     "proofs": [["01M8...: same port", "0"]]   the evidence for a note, likewise
#
# After "=" each line's value is one digit of 0-9, A-Z, a-z, in 61sts; after ":" values are written
# out, and a single one holds for all lines.  Omitted are signals that are 0 for every line, the
# signals of near misses (`explain` recomputes them and says so), and default values.

_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
STEPS: Final = len(_DIGITS) - 1  # steps between a journalled signal's 0 and 1
MISS_CHARS: Final = 10  # length of a near miss's shortened id: 50 of its random bits
_SCORES: Final = "scores"  # only packed lines have this field
PACKED_FIELDS: Final = frozenset(
    {_SCORES, "ranks", "tiers", "learned", "notes", "proofs", "signals"}
)
_SEPARATORS: Final = re.compile(r"[\s;:=]")  # characters that a plugin's signal name may contain
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
    """Return whether a recall's line is packed; lines of earlier versions are not."""
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
    """Return whether a field is written; a missing ``at`` means the time of the line."""
    return bool(value != _DEFAULTS.get(name, "" if name == "at" else None))


def unpack(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the full form of a recall's line; a line that is not packed is returned as it is.

    Raises:
        KeyError, ValueError: the line is damaged.
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
    """Return each distinct text of a field with the positions of the items that have it."""
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
    """Return the weight of each signal, and the signals of each line."""
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
