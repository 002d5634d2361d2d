"""Check that the claims of a model or a plugin do not lower recall on the project's own history.

A case of the regression gate: probes that are found before the facts are written are searched for
again afterwards, and the paired bootstrap decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memtier_plugin.credit.questions import Question, find_probes, make_probes
from memtier_plugin.credit.verdict import judge
from memtier_plugin.storage.store import Store

_MAX_AGE: Final = 60  # seconds for which probes serve one window after another


@dataclass(frozen=True, slots=True)
class Regression:
    """A fall of recall: how many of the probes were found before and after a change."""

    probes: int
    before: int
    after: int

    def describe(self) -> str:
        """Return the sentence that the journal and the report keep."""
        return (
            f"recall on the project's own history fell: of {self.before} past entries that were"
            f" found before, {self.after} were found after it"
        )


@dataclass(slots=True)
class _Baseline:
    """Probes, the time as of which they search, and 1 for each that is found."""

    measured: float
    at: datetime
    probes: list[Question]
    values: list[float]


class RecallGuard:
    """Measures recall on a project's own history before and after a consolidation."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._baseline: _Baseline | None = None

    def measure(self) -> None:
        """Make the probes, unless those of a recent consolidation still serve.

        Raises:
            IndexProblem: the index cannot be used.
        """
        last = self._baseline.measured if self._baseline else -math.inf
        if time.monotonic() - last > _MAX_AGE:
            measured, at = time.monotonic(), self._clock()
            probes = make_probes(self._store, self._store.settings.consolidation.probes, at)
            self._baseline = _Baseline(measured, at, probes, [1.0] * len(probes))

    def find_regression(self) -> Regression | None:
        """Return how recall fell since it was measured, if it did.

        Raises:
            IndexProblem: the index cannot be used.
        """
        baseline = self._baseline
        if baseline is None or not baseline.probes:
            return None
        values = find_probes(self._store, baseline.probes, baseline.at)
        verdict = judge(baseline.values, values, self._store.settings.regression.tolerance)
        if verdict.refused:
            self._baseline = None
            return Regression(len(values), int(sum(baseline.values)), int(sum(values)))
        baseline.values = values  # the next window of a long backlog starts from here
        return None
