"""Check the background of a project: backlog, failures, spending, limits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from memtier_plugin.core.errors import (
    MemTierError,
)
from memtier_plugin.core.events import LimitEvent, RevertEvent
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.paths import PROJECT_JOURNAL
from memtier_plugin.core.records import Extractor
from memtier_plugin.facts.backlog import MODEL, RULES, count_unread, find_oldest_unread
from memtier_plugin.facts.consolidation import list_extractors
from memtier_plugin.facts.review import count_queue
from memtier_plugin.operations import job_state
from memtier_plugin.storage import protocol
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.store import Store

# -- The finding of a check

Level = Literal["ok", "warn", "error"]


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """The finding of a check: severity, location, message and remedy."""

    level: Level
    what: str
    where: str = ""
    remedy: str = ""


# -- Report on a project's background: backlog, failures, spending, limits

NOTICE_PERIOD: Final = timedelta(days=7)  # how long notices stay in `status`
MIN_FREE_BYTES: Final = 64 * 1024  # a disk with less space counts as full
OVERDUE_INTERVALS: Final = 6  # without a consolidation before `doctor` asks for a daemon
FAILURES_IN_A_ROW: Final = 3  # failures before `doctor` reports a job
_MAX_LIMIT_EVENTS: Final = 5  # in `status`
PROPOSAL_PATIENCE: Final = timedelta(days=7)  # before `doctor` reminds of a proposal
JOB_OF: Final = {RULES: "consolidation", MODEL: "model"}  # the job that runs each extractor


def report_facts(store: Store, now: datetime) -> dict[str, Any]:
    """Report the backlog, the last consolidation, pending proposals and the day's spending."""
    reader = store.reader()
    events = reader.events(["consolidate"], newest=1)
    last = events[0] if events else None
    backlog = {name: count_unread(store, name) for name in list_extractors(store)}
    background = job_state.read_background(store.project_folder.path)
    state = background.jobs.get("consolidation", job_state.JobState())
    last_run = max(filter(None, (state.ok, to_iso(last.timestamp) if last else None)), default=None)
    proposed = [fact.item for fact in reader.facts(standing="waiting")]
    day = ChatBudget(store, PROJECT_JOURNAL, lambda: now).spent_today()
    settings = store.settings.consolidation
    return {
        "backlog": sum(backlog.values()),
        "consolidation": {
            "last": last_run,
            "next": state.next if background.served else None,
            "due": settings.enabled and _is_due(store, backlog, background, last_run, now),
            "backlog": backlog,
            "report": {k: v for k, v in last.data.items() if k != "cursors"} if last else None,
        },
        "proposals": {
            "waiting": len(proposed),
            "oldest": min((to_iso(fact.timestamp) for fact in proposed), default=None),
        },
        "review": count_queue(store, reader),
        "held_back": [
            {"at": to_iso(event.timestamp), "run": event.run_id, "why": RevertEvent.of(event).why}
            for event in reader.reverts_after_recall_drop()
            if event.timestamp >= now - NOTICE_PERIOD
        ],
        "spending": {
            "model": settings.model,
            "calls": day.background.calls,
            "most_calls": day.most_calls,
            "asked": day.asked.calls,
            "tokens": day.background.tokens,
            "most_tokens": day.most_tokens,
            "cost": day.cost,
            "most_cost": day.most_cost,
            "waits": background.jobs.get(JOB_OF[MODEL], job_state.JobState()).waits,
        },
    }


def _is_due(
    store: Store,
    backlog: Mapping[Extractor, int],
    background: job_state.BackgroundState,
    last_run: str | None,
    now: datetime,
) -> bool:
    """Return whether an extractor has a backlog and was not tried within the interval.

    Future times are ignored: the clock has been set back.
    """
    interval = timedelta(minutes=store.settings.consolidation.interval_minutes)
    for name in (name for name, number in backlog.items() if number):
        state = background.jobs.get(JOB_OF.get(name, name), job_state.JobState())
        times = (state.ok, state.failed, last_run if name == RULES else None)
        tried = max((from_iso(at) for at in times if at), default=None)
        if tried is None or not timedelta(0) <= now - tried < interval:
            return True
    return False


def describe_troubles(store: Store, now: datetime) -> list[str]:
    """Describe problems of the background: failing jobs, a dead daemon, a full disk."""
    background = job_state.read_background(store.project_folder.path)
    troubles = [
        f"{name}: {state.trouble}{_times(state)}"
        for name, state in sorted(background.jobs.items())
        if state.trouble and not (name == "embedding" and state.trouble.startswith("embedding "))
    ]
    if background.never_began(now):
        troubles.append(
            f"the daemon that a host started at {background.requested} did nothing: {_log(store)}"
        )
    if disk_full := _no_room(store.project_folder.path):
        troubles.append(disk_full)
    if store.project_folder.purge_plan.exists():
        troubles.append("a purge is at work or was cut off: `memtier purge --resume` completes it")
    return troubles


def _times(state: job_state.JobState) -> str:
    return f" ({state.failures} times, last at {state.failed})" if state.failures > 1 else ""


def _log(store: Store) -> str:
    return f"{store.project_folder.home / 'logs' / 'daemon.log'} says why"


def _no_room(folder: Path) -> str | None:
    """Return a message if the disk is full."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= MIN_FREE_BYTES:
        return None
    return f"the disk is full ({free} bytes are left): nothing is recorded until there is room"


def check_background(store: Store, now: datetime) -> Iterator[HealthFinding]:
    """Check the disk, the daemon, its jobs, and pending facts."""
    folder = store.project_folder
    background = job_state.read_background(folder.path)
    if disk_full := _no_room(folder.path):
        yield HealthFinding("error", disk_full, str(folder.path), "free some disk space")
    if background.never_began(now):
        yield HealthFinding(
            "error",
            f"the daemon that a host started at {background.requested} did nothing",
            str(folder.home / "logs" / "daemon.log"),
            "the log says why; try memtier daemon --once",
        )
    for name, state in sorted(background.jobs.items()):
        if state.trouble and state.failures >= FAILURES_IN_A_ROW:
            yield HealthFinding(
                "error",
                f"{name} failed {state.failures} times in a row: {state.trouble}",
                store.project,
                "the message says what is wrong; memtier daemon --once tries again",
            )
    try:
        with store.session():
            facts = report_facts(store, now)
    except MemTierError:
        return  # the index check reports the problem
    yield from _check_facts(store, facts, background, now)


def _check_facts(
    store: Store, facts: Mapping[str, Any], background: job_state.BackgroundState, now: datetime
) -> Iterator[HealthFinding]:
    settings = store.settings.consolidation
    last_run = facts["consolidation"]["last"]
    patience = OVERDUE_INTERVALS * timedelta(minutes=settings.interval_minutes)
    unread = facts["consolidation"]["backlog"].get(RULES, 0)
    since = find_oldest_unread(store) if unread else None
    overdue = (
        since is not None and now - max(since, from_iso(last_run) if last_run else since) > patience
    )
    if settings.enabled and overdue and not background.served:
        yield HealthFinding(
            "warn",
            f"{unread} entries wait to be consolidated, and no daemon is running"
            f" (the last consolidation: {last_run or 'never'})",
            store.project,
            "memtier daemon, or memtier consolidate",
        )
    spending = facts["spending"]
    if spending["calls"] >= spending["most_calls"] and spending["model"] != "none":
        yield HealthFinding(
            "warn",
            f"all {spending['most_calls']} calls allowed today have been made",
            spending["model"],
            "it continues tomorrow; raise consolidation.max_calls_per_day to allow more",
        )
    oldest = facts["proposals"]["oldest"]
    if oldest and now - from_iso(oldest) > PROPOSAL_PATIENCE:
        yield HealthFinding(
            "warn",
            f"{facts['proposals']['waiting']} proposals wait, since {oldest}",
            store.project,
            "memtier review",
        )
    if not unread:
        yield HealthFinding(
            "ok", f"everything is consolidated (last: {last_run or 'never'})", store.project
        )


def report_limits(store: Store, now: datetime, report: dict[str, Any]) -> None:
    """Report the disk usage, and limits that are near, reached, or have cut something off."""
    usage = store.measure_usage(now)
    report["disk"] = usage.to_json()
    reached, near = protocol.quota_warnings(usage, store.settings.limits)
    report["degraded"] += reached
    report["warnings"] += near
    try:
        with store.session() as reader:
            events = reader.events([LimitEvent.KIND], newest=_MAX_LIMIT_EVENTS)
    except MemTierError:
        return  # reported by the index check
    for event in events:
        if event.timestamp >= now - NOTICE_PERIOD:
            notice = _describe_limit(LimitEvent.of(event))
            report["warnings"].append(f"{to_iso(event.timestamp)} {notice}")


def _describe_limit(event: LimitEvent) -> str:
    setting = f"limits.{event.limit} ({event.most})"
    if event.near:
        return f"{event.near} is near {setting}, above which it is cut off"
    if event.runs:
        return f"messages of {len(event.runs)} runs were left out: {setting}"
    return f"{len(event.entries or ())} entries were cut off: {setting}"


def check_limits(store: Store, now: datetime) -> Iterator[HealthFinding]:
    """Check the size of the project against its limits."""
    where = str(store.project_folder.path)
    usage = store.measure_usage(now)
    reached, near = protocol.quota_warnings(usage, store.settings.limits)
    remedy = "raise the limit, or set `retention` to forget old entries"
    yield from (HealthFinding("error", limit, where, remedy) for limit in reached)
    yield from (HealthFinding("warn", limit, where, remedy) for limit in near)
