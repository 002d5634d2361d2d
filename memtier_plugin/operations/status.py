"""Report the status of a project as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import NOT_RERANKED, MemTierError, SettingsError
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import INJECTING, JournalEvent
from memtier_plugin.credit.regression import read_baseline
from memtier_plugin.operations import hook_calls, job_state
from memtier_plugin.operations.background import (
    NOTICE_PERIOD,
    describe_troubles,
    report_facts,
    report_limits,
)
from memtier_plugin.operations.hook_calls import is_failing, read_hook_marks, silence_of
from memtier_plugin.operations.reembed import EmbeddingState, read_embedding_state
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.storage.home_files import count_queued_runs
from memtier_plugin.storage.index.vectors import COVERED_SHARE
from memtier_plugin.storage.store import Store
from memtier_plugin.telemetry.state import describe_export

_RECALLS: Final = 200  # newest recalls whose injections are totalled
_RERANKS: Final = 20  # newest recalls checked for reranker failures
_STALE_SECONDS: Final = 900.0  # since the last synchronisation with a shared ledger
_FULL_SHARE: Final = 0.9  # of the token budget, above which a block counts as full


def collect_status(store: Store, now: datetime) -> dict[str, Any]:
    """Return the status as JSON; a broken index is reported, not raised."""
    report: dict[str, Any] = {
        "project": store.project,
        "home": str(store.project_folder.home),
        "folder": str(store.project_folder.path),
        "paused": store.paused,
        "entries": 0,
        "facts": 0,
        "summaries": 0,
        "backlog": 0,
        "hooks": read_hook_marks(store),
        "waits": hook_calls.read_waits(store.project_folder.home, store.project),
        "prompts": hook_calls.count_prompts(store.project_folder.home, store.project),
        "agents": {},
        "degraded": [],
        "warnings": [],
        "plugins": plugin_errors(),
        "index": {"path": store.index_location},
        "consolidation": {"last": None, "due": False, "backlog": {}},
        "proposals": {"waiting": 0, "oldest": None},
        "review": {"facts": 0, "forgets": 0, "conflicts": 0},
        "held_back": [],
        "spending": {},
        "background": job_state.read_background(store.project_folder.path).to_json(),
        "embedding": EmbeddingState().to_json(),
        "disk": {},
    }
    try:
        with store.session():
            _index_status(store, now, report)
        _embedding_status(store, report)
    except SettingsError as error:
        report["degraded"].append(f"embedding: {error}")
    except (MemTierError, OSError) as error:
        report["degraded"].append(f"index: {error}")
    report["degraded"] += describe_troubles(store, now)
    if worse := read_baseline(store.project_folder.path).warning:
        report["warnings"].append(worse)
    report["warnings"] += store.settings.missing()
    report_limits(store, now, report)
    report["warnings"] += [
        f"plugin {plugin['plugin']!r} failed in {plugin['hook']}: {plugin['error']}"
        for plugin in report["plugins"]
    ]
    report["degraded"] += [*_failing_hooks(store, report["hooks"])]
    report["degraded"] += hook_calls.describe_unanswered(report["waits"])
    _queue_status(store, report)
    if store.settings.telemetry.enabled:
        report["warnings"] += filter(None, [describe_export(store.project_folder.home)])
    _shared_status(store, report)
    return report


def _not_reranked(recalls: Sequence[JournalEvent]) -> Iterator[str]:
    """Describe how many recalls kept the first order despite a configured reranker."""
    labels = [RecallEvent.of(recall).label for recall in recalls]
    if why := [label for label in labels if NOT_RERANKED in label]:
        reason = why[0].partition(NOT_RERANKED)[2].lstrip(": ")
        yield f"{len(why)} of the newest {len(labels)} recalls were {NOT_RERANKED}: {reason}"


def _failing_hooks(store: Store, hooks: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for agent, marks in hooks.items():
        for hook, mark in marks.items():
            if is_failing(mark):
                yield f"{agent} {hook}: {mark['error']}"
        if silence := silence_of(store, agent, marks):
            yield silence


def _shared_status(store: Store, report: dict[str, Any]) -> None:
    report["shared"] = state = store.sharing.shared_status() if store.sharing else None
    if state is None:
        return
    if state["error"]:
        report["degraded"].append(f"shared: {state['error']}; {state['waiting']} lines wait for it")
    elif state["age_s"] is None or state["age_s"] > _STALE_SECONDS:
        report["warnings"].append(
            f"shared: last synchronised {state['synced'] or 'never'}; "
            "a host or `memtier daemon` does it while it runs, or `memtier shared drain` once"
        )


def _queue_status(store: Store, report: dict[str, Any]) -> None:
    waiting, refused = count_queued_runs(store.project_folder.home)
    report["queue"] = {"waiting": waiting, "refused": refused}
    if waiting:
        report["warnings"].append(f"{waiting} runs of hosts wait to be stored")
    if refused:
        report["warnings"].append(f"{refused} runs of hosts were refused: `memtier doctor`")


def _index_status(store: Store, now: datetime, report: dict[str, Any]) -> None:
    why = store.catch_up(store.files_behind(), wait_ms=200)
    reader = store.reader()
    counts = reader.counts()
    report |= {name: counts[name] for name in ("entries", "facts", "summaries")}
    behind = store.files_behind()
    names = [segment.name for segment in behind]
    report["index"] |= {**counts, "bytes": store.index_size(), "behind": names}
    for agent, activity, when in reader.last_activity():
        name = "last_stored" if activity == "stored" else "last_recall"
        if activity == "stored":
            when = to_iso(datetime.fromtimestamp(float(when), UTC))
        report["hooks"].setdefault(agent, {})
        report["agents"].setdefault(agent, {})[name] = when
    recalls = reader.events(["recall"], newest=_RECALLS)
    for agent, injected in _injected(recalls).items():
        report["agents"].setdefault(agent, {})["injected"] = injected
    report |= plugins.describe_status(recalls, reader, store.settings)
    report["degraded"] += _not_reranked(recalls[:_RERANKS])
    report |= report_facts(store, now)
    if behind:
        reason = why or "new lines"
        report["degraded"].append(f"{len(behind)} ledger files are ahead of the index: {reason}")
    if store.stale_tokenizer:
        report["degraded"].append(
            f"the index was made for {store.stale_tokenizer!r}: run `memtier reindex`"
        )
    if counts["bad_lines"]:
        report["warnings"].append(
            f"{counts['bad_lines']} ledger lines could not be read: `memtier doctor` names them"
        )
    for when, path, change in reader.notices():
        if when >= to_iso(now - NOTICE_PERIOD):
            report["warnings"].append(f"{when} {path} was {change}")


def _injected(events: Sequence[JournalEvent]) -> dict[str, dict[str, Any]]:
    """Return for each agent what its latest prompts got injected, and the repeats avoided.

    ``late`` counts the prompts sent without a block, as reported by their hosts.
    """
    turns: dict[str, list[RecallEvent]] = {}
    late: Counter[str] = Counter()
    for event in events:
        recall = RecallEvent.of(event)
        if recall.purpose in INJECTING:
            injected_recalls = turns.setdefault(event.agent_id, [])
            injected_recalls += [recall] if recall.purpose == "inject" else []
            late[event.agent_id] += recall.purpose == "offer"
    return {
        agent: {
            "turns": len(recalls),
            "late": late[agent],
            "tokens_a_turn": round(sum(r.tokens for r in recalls) / max(1, len(recalls)), 1),
            "lines": sum(len(recall.injected) for recall in recalls),
            "repeats_avoided": sum(len(recall.repeats) for recall in recalls),
            "blocks": dict(Counter(map(_block_size, recalls))),
        }
        for agent, recalls in turns.items()
    }


def _block_size(recall: RecallEvent) -> str:
    """Return how much of its budget a block used: ``silent``, ``short`` or ``full``."""
    if not recall.injected:
        return "silent"
    full = recall.k is not None and len(recall.injected) >= recall.k
    full |= recall.token_budget is not None and recall.tokens >= _FULL_SHARE * recall.token_budget
    return "full" if full else "short"


def _embedding_status(store: Store, report: dict[str, Any]) -> None:
    state = read_embedding_state(store)
    report["embedding"] = state.to_json()
    if state.error:
        report["degraded"].append(f"embedding: {state.error}")
    elif state.items - state.missing < COVERED_SHARE * state.items:
        report["degraded"].append(
            f"embedding: {describe_missing_vectors(state)}; until then recalls use words only"
        )


def describe_missing_vectors(state: EmbeddingState) -> str:
    """Describe how many items lack a vector, and the estimated cost."""
    cost = f" (about {format_cost(state.cost)} to pay)" if state.paid else ""
    return f"{state.missing} of {state.items} items have no vector by {state.model} yet{cost}"


def plugin_errors() -> list[dict[str, Any]]:
    """Return the plugin failures of this process, as JSON."""
    return [asdict(error) for error in plugins.load_errors()]
