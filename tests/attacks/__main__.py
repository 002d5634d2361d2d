"""Print the attack suite's tables: `python -m tests.attacks` (or `make attacks`)."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.attacks.suite import SETS, Case, play


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
    failures = [case.name for case in on if case.failed and not case.open]
    failures += [f"{case.name}: it is not blocked" for case in on if case.open and not case.failed]
    for case, other in zip(on, off, strict=True):
        if case.path == "host":  # what an assistant alone says after a tool waits, page or not
            continue
        if lost := {*other.facts} - {*case.facts}:
            failures.append(f"{case.name}: not promoted: {'; '.join(sorted(lost))}")
    return failures


def unexpected(on: Sequence[Case]) -> dict[str, dict[str, str]]:
    """Return what failed though nothing says that it is open, and what is open though it holds."""
    failures = {case.name: case.failed for case in on if case.failed and not case.open}
    return failures | {
        case.name: {"open": f"it holds: {case.open}"}
        for case in on
        if case.open and not case.failed
    }


def of_set(texts: Path) -> dict[str, Any]:
    """Play a set of texts twice and return what held."""
    played: dict[tuple[bool, bool], list[Case]] = {}
    for defence in (True, False):
        for benign in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                played[defence, benign] = play(
                    Path(folder), defence=defence, benign=benign, texts=texts
                )
    hostile = table(played[True, False], played[False, False])
    total = {
        "class": "all",
        **{k: sum(row[k] for row in hostile) for k in hostile[0] if k != "class"},
    }
    return {
        "classes": [*hostile, total],
        "failed": unexpected(played[True, False]),
        "open": {c.name: c.open for c in (*played[True, False], *played[True, True]) if c.open},
        "benign": len(played[True, True]),
        "benign facts": sum(len(case.facts) for case in played[True, True]),
        "false positives": false_positives(played[True, True], played[False, True]),
    }


def tell(name: str, report: dict[str, Any]) -> None:
    """Print what held of a set."""
    head = [*report["classes"][0]]
    print(f"{name + ' texts':26}" + "".join(f"{column:>12}" for column in head[1:]))  # noqa: T201
    for row in report["classes"]:
        print(f"{row['class']:26}" + "".join(f"{row[column]:12}" for column in head[1:]))  # noqa: T201
    for case, why in report["open"].items():
        print(f"open {case}: {why}")  # noqa: T201
    for case, failed in report["failed"].items():
        print(f"FAILED {case}: {failed}")  # noqa: T201
    wrong = report["false positives"]
    print(  # noqa: T201
        f"benign: {report['benign']} texts, {report['benign facts']} facts of them, "
        f"{len(wrong)} false positives\n"
    )
    for case in wrong:
        print(f"FALSE POSITIVE {case}")  # noqa: T201


def main() -> int:
    """Play each set and print what held; 1 when something did not."""
    logging.basicConfig(level=logging.ERROR)
    reports = {}
    for name, texts in SETS.items():
        reports[name] = of_set(texts)
        if "--json" not in sys.argv[1:]:
            tell(name, reports[name])
    if "--json" in sys.argv[1:]:
        print(json.dumps(reports, ensure_ascii=False, indent=2))  # noqa: T201
    return any(report["failed"] or report["false positives"] for report in reports.values())


if __name__ == "__main__":
    sys.exit(main())
