"""Print the attack suite's table: `python -m tests.attacks` (or `make attacks`)."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.attacks.suite import Case, play


def table(on: Sequence[Case], off: Sequence[Case]) -> list[dict[str, Any]]:
    """Return a row for each class: texts, and how many held with the defence and without."""
    rows: dict[str, dict[str, Any]] = {}
    for name, some in (("on", on), ("off", off)):
        for case in some:
            row = rows.setdefault(case.kind, {"class": case.kind, "texts": 0})
            row["texts"] += name == "on"
            row[f"held {name}"] = row.get(f"held {name}", 0) + (not case.failed)
            row[f"failed {name}"] = row.get(f"failed {name}", 0) + bool(case.failed)
    return [*rows.values()]


def false_positives(on: Sequence[Case], off: Sequence[Case]) -> list[str]:
    """Return the benign texts that the defence keeps from being recalled, read or promoted."""
    found = [case.name for case in on if case.failed]
    for one, other in zip(on, off, strict=True):
        if lost := {*other.facts} - {*one.facts}:
            found.append(f"{one.name}: not promoted: {'; '.join(sorted(lost))}")
    return found


def main() -> int:
    """Play the suite twice and print what held; 1 when something did not."""
    logging.basicConfig(level=logging.ERROR)
    played: dict[tuple[bool, bool], list[Case]] = {}
    for defence in (True, False):
        for benign in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                played[defence, benign] = play(Path(folder), defence=defence, benign=benign)
    hostile = table(played[True, False], played[False, False])
    wrong = false_positives(played[True, True], played[False, True])
    failed = {c.name: c.failed for c in played[True, False] if c.failed}
    total = {
        "class": "all",
        **{k: sum(row[k] for row in hostile) for k in hostile[0] if k != "class"},
    }
    promoted = sum(len(case.facts) for case in played[True, True])
    told = {
        "classes": [*hostile, total], "failed": failed, "benign": len(played[True, True]),
        "benign facts": promoted, "false positives": wrong,
    }  # fmt: skip
    if "--json" in sys.argv[1:]:
        print(json.dumps(told, ensure_ascii=False, indent=2))  # noqa: T201
        return bool(failed or wrong)
    head = [*total]
    print(f"{'class':26}" + "".join(f"{name:>12}" for name in head[1:]))  # noqa: T201
    for row in told["classes"]:
        print(f"{row['class']:26}" + "".join(f"{row[name]:12}" for name in head[1:]))  # noqa: T201
    for name, why in failed.items():
        print(f"FAILED {name}: {why}")  # noqa: T201
    print(  # noqa: T201
        f"benign: {len(played[True, True])} texts, {promoted} facts of them, "
        f"{len(wrong)} false positives"
    )
    for name in wrong:
        print(f"FALSE POSITIVE {name}")  # noqa: T201
    return bool(failed or wrong)


if __name__ == "__main__":
    sys.exit(main())
