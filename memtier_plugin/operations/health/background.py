"""Report the background of a project: backlog, failures, spending, limits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import (
    MemTierError,
)
from memtier_plugin.core.paths import (
    PROJECT_JOURNAL,
)
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.facts.backlog import MODEL, RULES, count_unread, find_oldest_unread
from memtier_plugin.facts.consolidation import list_extractors
from memtier_plugin.ingest.recorder import LIMIT_EVENT
from memtier_plugin.lifecycle.purge.rewrite import is_in_progress
from memtier_plugin.operations import job_state
from memtier_plugin.operations.health.finding import HealthFinding
from memtier_plugin.storage import quota
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.store import Store

NOTICE_PERIOD: Final = timedelta(days=7)  # how long what was surprising stays in `status`
MIN_FREE_BYTES: Final = 64 * 1024  # bytes; a disk that has less is full
OVERDUE_INTERVALS: Final = (
    6  # intervals without a consolidation, after which `doctor` asks for a daemon
)
FAILURES_IN_A_ROW: Final = 3  # runs in a row
_TOLD: Final = 5  # events of limits that `status` tells
PROPOSAL_PATIENCE: Final = timedelta(days=7)  # how long a proposal may wait
JOB_OF: Final = {RULES: "consolidation", MODEL: "model"}  # which job makes an extractor's pass


def report_facts(store: Store, now: datetime) -> dict[str, Any]:
    """Return how far the facts are: what waits to be read, what for a person, what it cost."""
    reader = store.reader()
    events = reader.events(["consolidate"], newest=1)
    last = events[0] if events else None
    left = {name: count_unread(store, name) for name in list_extractors(store)}
    known = job_state.read_background(store.folder)
    state = known.jobs.get("consolidation", job_state.JobState())
    ran = max(filter(None, (state.ok, to_iso(last.timestamp) if last else None)), default=None)
    proposed = [one.item for one in reader.facts(standing="waiting")]
    day = ChatBudget(store, PROJECT_JOURNAL, lambda: now).spent_today()
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
            for event in reader.reverts_after_recall_drop()
            if event.timestamp >= now - NOTICE_PERIOD
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
    known: job_state.BackgroundState,
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


def describe_troubles(store: Store, now: datetime) -> list[str]:
    known = job_state.read_background(store.folder)
    found = [
        f"{name}: {state.trouble}{_times(state)}" for name, state in sorted(known.jobs.items())
        if state.trouble and not (name == "embedding" and state.trouble.startswith("embedding "))
    ]  # fmt: skip
    if known.never_began(now):
        found.append(
            f"the daemon that a host started at {known.requested} did nothing: {_log(store)}"
        )
    if room := _no_room(store.folder):
        found.append(room)
    if is_in_progress(store.folder):
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
    if left >= MIN_FREE_BYTES:
        return None
    return f"the disk is full ({left} bytes are left): nothing is recorded until there is room"


def check_background(store: Store, now: datetime) -> Iterator[HealthFinding]:
    known = job_state.read_background(store.folder)
    if room := _no_room(store.folder):
        yield HealthFinding("error", room, str(store.folder), "make room on the disk")
    if known.never_began(now):
        yield HealthFinding(
            "error", f"the daemon that a host started at {known.requested} did nothing",
            str(store.home / "logs" / "daemon.log"), "the log says why; try memtier daemon --once",
        )  # fmt: skip
    for name, state in sorted(known.jobs.items()):
        if state.trouble and state.failures >= FAILURES_IN_A_ROW:
            yield HealthFinding(
                "error", f"{name} failed {state.failures} times in a row: {state.trouble}",
                store.project, "the message says what is wrong; memtier daemon --once tries again",
            )  # fmt: skip
    try:
        with store.session():
            facts = report_facts(store, now)
    except MemTierError:
        return  # the index's trouble is named above
    yield from _check_facts(store, facts, known, now)


def _check_facts(
    store: Store, facts: Mapping[str, Any], known: job_state.BackgroundState, now: datetime
) -> Iterator[HealthFinding]:
    wanted = store.settings.consolidation
    ran = facts["consolidation"]["last"]
    late = OVERDUE_INTERVALS * timedelta(minutes=wanted.interval_minutes)
    waits = facts["consolidation"]["backlog"].get(RULES, 0)
    since = find_oldest_unread(store) if waits else None
    overdue = since is not None and now - max(since, from_iso(ran) if ran else since) > late
    if wanted.enabled and overdue and not known.served:
        yield HealthFinding(
            "warn", f"{waits} entries wait to be consolidated, and no daemon is there"
            f" (the last consolidation: {ran or 'never'})",
            store.project, "memtier daemon, or memtier consolidate",
        )  # fmt: skip
    spending = facts["spending"]
    if spending["calls"] >= spending["most_calls"] and spending["model"] != "none":
        yield HealthFinding(
            "warn", f"all {spending['most_calls']} calls of today are made", spending["model"],
            "it goes on tomorrow; consolidation.max_calls_per_day allows more",
        )  # fmt: skip
    oldest = facts["proposals"]["oldest"]
    if oldest and now - from_iso(oldest) > PROPOSAL_PATIENCE:
        yield HealthFinding(
            "warn", f"{facts['proposals']['waiting']} proposals wait, since {oldest}",
            store.project, "memtier facts review",
        )  # fmt: skip
    if not waits:
        yield HealthFinding(
            "ok", f"everything is consolidated (last: {ran or 'never'})", store.project
        )


def report_limits(store: Store, now: datetime, report: dict[str, Any]) -> None:
    """Tell what is on the disk, and of limits that are near, reached, or have cut something."""
    usage = quota.measure_usage(store.folder, store.index.path, now)
    report["disk"] = usage.to_json()
    reached, near = quota.quota_warnings(usage, store.settings.limits)
    report["degraded"] += reached
    report["warnings"] += near
    try:
        with store.session() as reader:
            events = reader.events([LIMIT_EVENT], newest=_TOLD)
    except MemTierError:
        return  # told above
    for event in events:
        if event.timestamp >= now - NOTICE_PERIOD:
            report["warnings"].append(f"{to_iso(event.timestamp)} {_cut(event.data)}")


def _cut(data: Mapping[str, Any]) -> str:
    named = f"limits.{data.get('limit')} ({data.get('most')})"
    if near := data.get("near"):
        return f"{near} is near {named}, from where on it is cut off"
    if runs := data.get("runs"):
        return f"messages of {len(runs)} runs were left out: {named}"
    return f"{len(data.get('entries', ()))} entries were cut off: {named}"


def check_limits(store: Store, now: datetime) -> Iterator[HealthFinding]:
    usage = quota.measure_usage(store.folder, store.index.path, now)
    reached, near = quota.quota_warnings(usage, store.settings.limits)
    remedy = "raise the limit, or let `retention` forget what is old"
    yield from (HealthFinding("error", what, str(store.folder), remedy) for what in reached)
    yield from (HealthFinding("warn", what, str(store.folder), remedy) for what in near)
