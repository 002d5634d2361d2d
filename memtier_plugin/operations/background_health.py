"""How a project's background does: what waits, what failed, what a person should look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.facts.backlog import MODEL, RULES, waiting, waiting_since
from memtier_plugin.facts.consolidation import extractors
from memtier_plugin.ingest.recorder import LIMIT
from memtier_plugin.lifecycle.purge.rewrite import is_begun
from memtier_plugin.operations import job_state
from memtier_plugin.storage import quota
from memtier_plugin.storage.budget import Account
from memtier_plugin.storage.store import Store

NOTED: Final = timedelta(days=7)  # how long what was surprising stays in `status`
ROOM: Final = 64 * 1024  # bytes; a disk that has less is full
OVERDUE: Final = 6  # intervals without a consolidation, after which `doctor` asks for a daemon
FAILING: Final = 3  # runs in a row
_TOLD: Final = 5  # events of limits that `status` tells
PATIENT: Final = timedelta(days=7)  # how long a proposal may wait
JOB_OF: Final = {RULES: "consolidation", MODEL: "model"}  # which job makes an extractor's pass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `doctor` looked at."""

    level: Literal["ok", "warn", "error"]
    what: str
    where: str = ""
    remedy: str = ""


def facts_status(store: Store, now: datetime) -> dict[str, Any]:
    """Return how far the facts are: what waits to be read, what for a person, what it cost."""
    reader = store.reader()
    events = reader.events_of_kind("consolidate", 1)
    last = events[0] if events else None
    left = {name: waiting(store, name) for name in extractors(store)}
    known = job_state.look(store.folder)
    state = known.jobs.get("consolidation", job_state.JobState())
    ran = max(filter(None, (state.ok, to_iso(last.timestamp) if last else None)), default=None)
    proposed = [one.item for one in reader.waiting_facts()]
    day = Account(store, PROJECT_JOURNAL, lambda: now).today()
    wanted = store.settings.consolidation
    return {
        "backlog": sum(left.values()),
        "consolidation": {
            "last": ran,
            "next": state.next if known.served else None,
            "due": wanted.enabled and _is_due(store, left, known, ran, now),
            "backlog": left,
            "report": {k: v for k, v in last.data.items() if k != "cursors"} if last else None,
        },
        "proposals": {
            "waiting": len(proposed),
            "oldest": min((to_iso(fact.timestamp) for fact in proposed), default=None),
        },
        "held_back": [
            {"at": to_iso(event.timestamp), "run": event.run_id, "why": event.data.get("why")}
            for event in reader.held_back()
            if event.timestamp >= now - NOTED
        ],
        "spending": {
            "model": wanted.model,
            "calls": day.background.calls,
            "most_calls": day.most_calls,
            "asked": day.asked.calls,
            "cost": day.cost,
            "most_cost": day.most_cost,
        },
    }


def _is_due(
    store: Store,
    left: Mapping[str, int],
    known: job_state.Background,
    ran: str | None,
    now: datetime,
) -> bool:
    """Tell whether a pass has something to read and was not tried within the interval.

    A moment that is still to come counts for nothing: the clock was set back since.
    """
    interval = timedelta(minutes=store.settings.consolidation.interval_minutes)
    for name in (name for name, number in left.items() if number):
        state = known.jobs.get(JOB_OF.get(name, name), job_state.JobState())
        times = (state.ok, state.failed, ran if name == RULES else None)
        tried = max((from_iso(at) for at in times if at), default=None)
        if tried is None or not timedelta(0) <= now - tried < interval:
            return True
    return False


def troubles(store: Store, now: datetime) -> list[str]:
    known = job_state.look(store.folder)
    found = [
        f"{name}: {state.trouble}{_times(state)}" for name, state in sorted(known.jobs.items())
        if state.trouble and not (name == "embedding" and state.trouble.startswith("embedding "))
    ]  # fmt: skip
    if known.never_began(now):
        found.append(f"the daemon that a host started at {known.asked} did nothing: {_log(store)}")
    if room := _no_room(store.folder):
        found.append(room)
    if is_begun(store.folder):
        found.append("a purge is at work or was cut off: `memtier purge --resume` completes it")
    return found


def _times(state: job_state.JobState) -> str:
    return f" ({state.failures} times, last at {state.failed})" if state.failures > 1 else ""


def _log(store: Store) -> str:
    return f"{store.home / 'logs' / 'daemon.log'} says why"


def _no_room(folder: Path) -> str | None:
    """Say that the disk is full, where it is."""
    try:
        left = shutil.disk_usage(folder).free
    except OSError:
        return None
    if left >= ROOM:
        return None
    return f"the disk is full ({left} bytes are left): nothing is recorded until there is room"


def check_background(store: Store, now: datetime) -> Iterator[Finding]:
    known = job_state.look(store.folder)
    if room := _no_room(store.folder):
        yield Finding("error", room, str(store.folder), "make room on the disk")
    if known.never_began(now):
        yield Finding(
            "error", f"the daemon that a host started at {known.asked} did nothing",
            str(store.home / "logs" / "daemon.log"), "the log says why; try memtier daemon --once",
        )  # fmt: skip
    for name, state in sorted(known.jobs.items()):
        if state.trouble and state.failures >= FAILING:
            yield Finding(
                "error", f"{name} failed {state.failures} times in a row: {state.trouble}",
                store.project, "the message says what is wrong; memtier daemon --once tries again",
            )  # fmt: skip
    try:
        with store.reading():
            facts = facts_status(store, now)
    except MemTierError:
        return  # the index's trouble is named above
    yield from _check_facts(store, facts, known, now)


def _check_facts(
    store: Store, facts: Mapping[str, Any], known: job_state.Background, now: datetime
) -> Iterator[Finding]:
    wanted = store.settings.consolidation
    ran = facts["consolidation"]["last"]
    late = OVERDUE * timedelta(minutes=wanted.interval_minutes)
    waits = facts["consolidation"]["backlog"].get(RULES, 0)
    since = waiting_since(store) if waits else None
    overdue = since is not None and now - max(since, from_iso(ran) if ran else since) > late
    if wanted.enabled and overdue and not known.served:
        yield Finding(
            "warn", f"{waits} entries wait to be consolidated, and no daemon is there"
            f" (the last consolidation: {ran or 'never'})",
            store.project, "memtier daemon, or memtier consolidate",
        )  # fmt: skip
    spending = facts["spending"]
    if spending["calls"] >= spending["most_calls"] and spending["model"] != "none":
        yield Finding(
            "warn", f"all {spending['most_calls']} calls of today are made", spending["model"],
            "it goes on tomorrow; consolidation.max_calls_per_day allows more",
        )  # fmt: skip
    oldest = facts["proposals"]["oldest"]
    if oldest and now - from_iso(oldest) > PATIENT:
        yield Finding(
            "warn", f"{facts['proposals']['waiting']} proposals wait, since {oldest}",
            store.project, "memtier facts review",
        )  # fmt: skip
    if not waits:
        yield Finding("ok", f"everything is consolidated (last: {ran or 'never'})", store.project)


def limits_status(store: Store, now: datetime, report: dict[str, Any]) -> None:
    """Tell what is on the disk, and of limits that are near, reached, or have cut something."""
    usage = quota.measure(store.folder, store.index.path, now)
    report["disk"] = usage.to_json()
    reached, near = quota.troubles(usage, store.settings.limits)
    report["degraded"] += reached
    report["warnings"] += near
    try:
        with store.reading() as reader:
            events = reader.events_of_kind(LIMIT, _TOLD)
    except MemTierError:
        return  # told above
    for event in events:
        if event.timestamp >= now - NOTED:
            report["warnings"].append(f"{to_iso(event.timestamp)} {_cut(event.data)}")


def _cut(data: Mapping[str, Any]) -> str:
    named = f"limits.{data.get('limit')} ({data.get('most')})"
    if near := data.get("near"):
        return f"{near} is near {named}, from where on it is cut off"
    if runs := data.get("runs"):
        return f"messages of {len(runs)} runs were left out: {named}"
    return f"{len(data.get('entries', ()))} entries were cut off: {named}"


def check_limits(store: Store, now: datetime) -> Iterator[Finding]:
    usage = quota.measure(store.folder, store.index.path, now)
    reached, near = quota.troubles(usage, store.settings.limits)
    remedy = "raise the limit, or let `retention` forget what is old"
    yield from (Finding("error", what, str(store.folder), remedy) for what in reached)
    yield from (Finding("warn", what, str(store.folder), remedy) for what in near)
