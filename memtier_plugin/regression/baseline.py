"""The outcomes of a project's questions under each version, to compare an upgrade with.

One small file a project, derived and without a text: ids of questions, and how well each was
answered.  The file can be deleted; then the next upgrade has nothing to be compared with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import write_private_file
from memtier_plugin.core.structs import convert

FILE: Final = "regression.json"
_KEPT: Final = 5  # versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How well each question (by id) was answered, and by which embedding model."""

    measured: str
    embedding: str  # the setting
    model: str  # the model's own name
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The outcomes by version, the oldest first, and the last comparison that was made unasked.

    ``change`` says what was compared, ``verdict`` is that of `verdict.Verdict.to_json`.
    """

    versions: Mapping[str, Outcomes] = field(default_factory=dict)
    change: str = ""
    verdict: Mapping[str, Any] = field(default_factory=dict)

    def before(self, version: str) -> str | None:
        """Return the newest other version that was measured."""
        others = [name for name in self.versions if name != version]
        return others[-1] if others and version not in self.versions else None

    def with_outcomes(self, version: str, outcomes: Outcomes) -> Mapping[str, Outcomes]:
        """Return the versions with the outcomes of one, which becomes the newest."""
        rest = {name: kept for name, kept in self.versions.items() if name != version}
        return dict([*rest.items(), (version, outcomes)][-_KEPT:])

    @property
    def warning(self) -> str | None:
        """The warning of `status` about the last comparison, if that was refused."""
        if not self.verdict.get("refused"):
            return None
        before, after = self.verdict.get("before"), self.verdict.get("after")
        return (
            f"{self.change}: answers from this project's history got worse ({before} before,"
            f" {after} after); `memtier gate` shows the questions"
        )


def read_baseline(folder: Path) -> Baseline:
    """Read the file of the project in a folder; a missing or damaged one is empty."""
    try:
        return convert(parse_json_text((folder / FILE).read_bytes()), Baseline)
    except (OSError, ValueError, KeyError, TypeError):
        return Baseline()


def write_baseline(folder: Path, baseline: Baseline) -> None:
    """Replace the file.

    Raises:
        LedgerWriteError: it cannot be written.
    """
    write_private_file(folder / FILE, json.dumps(asdict(baseline)))
