"""The causal effect of lines, measured by withholding them: the report, and derived weights."""

from __future__ import annotations

from typing import Final

from memtier_papers.memtier.events import UpliftEvent
from memtier_papers.memtier.settings import CauseSettings
from memtier_papers.memtier.trials import UpliftReport, report_uplift
from memtier_papers.memtier.uplift import Uplift
from memtier_plugin.core.structs import check_methods
from memtier_plugin.storage.store import Actor

_DIGITS: Final = 4


@check_methods
class Causes:
    """The causal effects in one project, for the person at the machine."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    @property
    def withhold(self) -> float:
        """The share of runs from which a line is withheld (`causes.withhold`)."""
        return self._store.settings.of(CauseSettings).withhold

    def uplift(self, agent: str | None = None) -> UpliftReport:
        """Return the effect of showing a line on the reward of runs, by line and by kind.

        Args:
            agent: count only this agent's runs.

        Raises:
            IndexProblem, LedgerError: the journal cannot be read.
        """
        self._store.catch_up_all()
        with self._store.session() as reader:
            return report_uplift(reader, agent)

    def bound_weights(self) -> int:
        """Bound the weights of lines by their uplift, as `causes.weigh` says; return how many.

        A bound that no longer holds, or that the setting forbids, is withdrawn; a bound stays if
        the journal no longer has its runs.

        Raises:
            LedgerError, IndexProblem: it was not written.
        """
        uplifts: dict[str, Uplift] = {}
        if self._store.settings.of(CauseSettings).weigh:
            uplifts = {line.id: line.uplift for line in self.uplift().lines}
        else:
            self._store.catch_up_all()
        with self._store.session() as reader:
            bounds: dict[str, UpliftEvent] = {}
            for event in reader.events(kinds=[UpliftEvent.KIND]):
                payload = UpliftEvent.of(event)
                bounds |= dict.fromkeys(payload.items, payload)
        events = []
        for item in uplifts.keys() | bounds.keys():
            bound = _bound(item, uplifts.get(item))
            before = bounds.get(item, UpliftEvent(items=(item,)))
            expired = self._store.settings.of(CauseSettings).weigh and _is_unknown(
                uplifts.get(item)
            )
            if not expired and (bound.low, bound.high) != (before.low, before.high):
                events.append(bound)
        if events:
            events.sort(key=lambda event: event.items)
            self._store.append_events([self._actor.event(e) for e in events], shared=True)
        return len(events)


def _is_unknown(uplift: Uplift | None) -> bool:
    return uplift is None or uplift.verdict == "too few runs"


def _bound(item: str, uplift: Uplift | None) -> UpliftEvent:
    """Return the bound that an uplift implies; none if its interval includes zero."""
    if uplift is None or uplift.verdict not in ("helps", "harms"):
        return UpliftEvent(items=(item,))
    assert uplift.mean is not None and uplift.low is not None and uplift.high is not None
    return UpliftEvent(
        items=(item,),
        mean=round(uplift.mean, _DIGITS),
        low=round(uplift.low, _DIGITS),
        high=round(uplift.high, _DIGITS),
        shown=uplift.shown,
        withheld=uplift.withheld,
    )
