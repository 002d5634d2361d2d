"""Compare a project at two times: what was said, learned, forgotten and weighted differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from memtier_plugin.core.events import PurgeEvent, RevertEvent, UndoEvent, payload_of
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.structs import Record
from memtier_plugin.core.times import to_iso
from memtier_plugin.facts.changes import FactChange, list_changes
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import fold, touched_items

_WEIGHING: Final = ("credit", "uncredit", "reinstate", "uplift")
_RUNS: Final = {
    "consolidate": "consolidated",
    "revert": "reverted",
    "withdraw": "run taken back",
    "reinstate": "run brought back",
    "purge": "purged",
}
_MIN_CHANGE: Final = 1e-12  # by which a weight differs


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

    ``said`` counts the new entries of each agent; ``forgotten`` are entries, by id alone.
    """

    since: datetime
    until: datetime
    said: dict[str, int]
    facts: tuple[FactChange, ...]
    forgotten: tuple[str, ...]
    weights: tuple[WeightChange, ...]
    runs: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; ``counts`` says how often each thing happened."""
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
    """Return what happened after a time and until another, for the person at the machine.

    What was said, and what it taught, goes by the time at which it was said, or written.

    Forgotten texts are not shown, whenever they were forgotten.
    """
    events = {
        kind: [e for e in reader.events([kind], since=since, until=until) if e.timestamp > since]
        for kind in ("forget", "unforget", *_WEIGHING, *_RUNS)
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
        item for kind in _WEIGHING for event in events[kind] for item in touched_items(event)
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
    payload, what = payload_of(event), {"what": _RUNS[event.kind], "at": to_iso(event.timestamp)}
    if isinstance(payload, PurgeEvent):
        return {**what, "run": payload.receipt["purge"]}
    undone = payload.run if isinstance(payload, RevertEvent | UndoEvent) else None
    return {**what, "run": undone or event.run_id, "by": event.agent_id}
