"""A project over time: recall as of a time, compare two times, undo runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.events import PurgeEvent, RevertEvent, UndoEvent, payload_of
from memtier_plugin.core.formats import aware, to_iso
from memtier_plugin.core.records import JournalEvent, Purpose
from memtier_plugin.core.results import Depth, Recall, RecallRequest
from memtier_plugin.core.structs import Record, check_methods
from memtier_plugin.facts.rollback import Rollback
from memtier_plugin.facts.service import FactService
from memtier_plugin.facts.views import FactChange, list_changes
from memtier_plugin.lifecycle.edit import RunUndoer, UndoneRun
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.opening import open_as_of
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import CONSOLIDATION_KINDS, fold, touched_items, weighing_kinds
from memtier_plugin.storage.store import Actor

# -- Compare a project at two times: entries, facts, forgotten items and weights

_RUNS: Final = {
    "consolidate": "consolidated",
    "revert": "reverted",
    "withdraw": "run taken back",
    "reinstate": "run brought back",
    "purge": "purged",
}
_MIN_CHANGE: Final = 1e-12  # the smallest difference of weights that counts


class WeightChange(Record, frozen=True):
    """An item whose weight differs between the two times."""

    id: str
    tier: str
    text: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class ProjectDiff:
    """The changes after one time and up to another, each part oldest first.

    ``said`` counts the new entries of each agent; ``forgotten`` are entries, by id only.
    """

    since: datetime
    until: datetime
    said: dict[str, int]
    facts: tuple[FactChange, ...]
    forgotten: tuple[str, ...]
    weights: tuple[WeightChange, ...]
    runs: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; ``counts`` has the number of each kind of change."""
        counts = Counter(change.what for change in self.facts)
        return {
            "since": to_iso(self.since),
            "until": to_iso(self.until),
            "said": self.said,
            "facts": [change.to_json() for change in self.facts],
            "forgotten": list(self.forgotten),
            "weights": [weight.to_json() for weight in self.weights],
            "runs": list(self.runs),
            "counts": {
                "said": sum(self.said.values()),
                **dict(sorted(counts.items())),
                "entries_forgotten": len(self.forgotten),
                "re-weighted": len(self.weights),
            },
        }


def diff_project(
    reader: Reader, since: datetime, until: datetime, *, written: bool = False
) -> ProjectDiff:
    """Return the changes after one time and up to another, for the person at the machine.

    Entries, and facts derived from them, are dated by when they were said, or written.

    Forgotten texts are never shown, whenever they were forgotten.
    """
    events = {
        kind: [e for e in reader.events([kind], since=since, until=until) if e.timestamp > since]
        for kind in {"forget", "unforget", *weighing_kinds(), *_RUNS}
    }
    hidden = {
        item for event in (*events["forget"], *events["withdraw"]) for item in touched_items(event)
    }
    back = {item for event in events["unforget"] for item in touched_items(event)}
    hidden -= {item for item in back if not reader.state(item).forgotten}
    entries = {item.id for item in reader.list_items(hidden) if item.tier == "episodic"}
    changed = list_changes(reader, since, until, None, written=written)
    facts = [change for change in changed if change.at > since]
    return ProjectDiff(
        since=since,
        until=until,
        said=reader.count_entries(since, until, written=written),
        facts=tuple(facts),
        forgotten=tuple(sorted(entries)),
        weights=tuple(_weights(reader, events, since, until)),
        runs=tuple(_describe_run(event) for event in _in_order(events, _RUNS)),
    )


def _weights(
    reader: Reader,
    events: dict[str, list[JournalEvent]],
    since: datetime,
    until: datetime,
) -> list[WeightChange]:
    touched = {
        item for kind in weighing_kinds() for event in events[kind] for item in touched_items(event)
    }
    changes = []
    for item in reader.list_items(touched):
        history = reader.events(item=item.id)
        before = fold([event for event in history if event.timestamp <= since]).weight
        after = fold([event for event in history if event.timestamp <= until]).weight
        if abs(before - after) > _MIN_CHANGE:
            text = "" if reader.state(item.id).withdrawn else item.text
            changes.append(WeightChange(item.id, item.tier, text, before, after))
    return changes


def _in_order(
    events: dict[str, list[JournalEvent]], kinds: Collection[str]
) -> Sequence[JournalEvent]:
    chosen = [event for kind in kinds for event in events[kind]]
    return sorted(chosen, key=lambda event: (event.timestamp, event.id))


def _describe_run(event: JournalEvent) -> dict[str, Any]:
    payload, description = (
        payload_of(event),
        {"what": _RUNS[event.kind], "at": to_iso(event.timestamp)},
    )
    if isinstance(payload, PurgeEvent):
        return {**description, "run": payload.receipt["purge"]}
    undone = payload.run if isinstance(payload, RevertEvent | UndoEvent) else None
    return {**description, "run": undone or event.run_id, "by": event.agent_id}


# -- The history of a project: recall as of a time, differences between two times, undoing runs

Progress = Callable[[int, int], None]


@check_methods
class History:
    """The past of one project, and undoing it, for the person at the machine."""

    def __init__(self, actor: Actor, person: FactService) -> None:
        self._actor = actor
        self._store = actor.store
        self._person = person

    def recall(
        self,
        query: str,
        moment: datetime,
        *,
        sender: str | None = None,
        k: int | None = None,
        token_budget: int | None = None,
        depth: Depth | None = None,
        purpose: Purpose = "search",
        written: bool = False,
        progress: Progress | None = None,
    ) -> Recall:
        """Answer a query as it would have been answered at a time, from what was said by then.

        Uses the facts and weights of that time, but today's settings; what was forgotten since
        stays forgotten.  Reads every ledger, and journals nothing.

        Args:
            written: use what was written by then, even if it had been said much earlier (imports).

        Raises:
            IndexProblem, LedgerError: the index or a ledger cannot be read.
        """
        moment = aware(moment) or moment
        with open_as_of(self._store, moment, progress, written=written) as view:
            recaller = Recaller(replace(self._actor, store=view))
            request = RecallRequest(
                at=moment,
                sender=sender,
                k=k,
                token_budget=token_budget,
                depth=depth,
                purpose=purpose,
            )
            recall = recaller.recall(query, request)
        return replace(recall, label=f"as of {to_iso(moment)}: {recall.label}")

    def diff(
        self, since: datetime, until: datetime | None = None, *, written: bool = False
    ) -> ProjectDiff:
        """Return the entries, facts, forgotten items and weights that changed between two times.

        Args:
            written: date entries by when they were written, not by when they were said.
        """
        self._store.catch_up_all()
        end = aware(until) or self._actor.clock()
        with self._store.session() as reader:
            return diff_project(reader, aware(since) or since, end, written=written)

    def is_consolidation(self, run: str) -> bool:
        """Return whether a run is a consolidation that wrote something."""
        self._store.catch_up_all()
        with self._store.session() as reader:
            return bool(reader.facts(run=run) or reader.events(run=run, kinds=CONSOLIDATION_KINDS))

    def revert(
        self,
        run: str,
        *,
        agent: str | None = None,
        undo: bool = False,
        dry_run: bool = False,
        why: str = "asked for",
    ) -> Rollback | UndoneRun:
        """Undo one run but no later one: a consolidation or a recorded run, with its credits.

        Facts that also rest on other entries stay.

        Args:
            agent: whose recorded run, if several agents have one with this id.
            undo: restore the run instead; a consolidation's facts are then resolved like new ones.

        Raises:
            NotFound: there is no such run.
            LedgerError: it was not, or not completely, done; repeat it.
        """
        if not self.is_consolidation(run):
            undoer = RunUndoer(self._actor)
            return undoer.undo(run, agent=agent, redo=undo, dry_run=dry_run)
        if not undo:
            return self._person.revert(run, dry_run=dry_run, why=why)
        with self._store.session() as reader:
            removed = [fact.item.id for fact in reader.facts(run=run) if fact.state.reverted]
        outcomes = [] if dry_run else self._person.accept(removed)
        pairs = ((old, outcome.id) for outcome in outcomes for old in outcome.superseded)
        return Rollback(run, restored=tuple(removed), superseded=tuple(pairs))
