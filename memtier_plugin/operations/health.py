"""Report how a project is doing: `collect_status`, `run_checks`, and their watermarks.

A hook leaves one small file per agent behind, so that "loaded, healthy, nothing stored" shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memtier_plugin.core.errors import (
    IndexProblem,
    LedgerError,
    MemTierError,
    SettingsError,
    UnsafePath,
)
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.paths import (
    decode_file_name,
    encode_file_name,
    is_on_network,
    iter_ledger_folders,
    make_private_folder,
    write_private_file,
)
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.settings.load import Endpoint
from memtier_plugin.core.times import to_iso
from memtier_plugin.operations import hook_latency, job_state
from memtier_plugin.operations.background_health import (
    NOTICE_PERIOD,
    HealthFinding,
    check_background,
    check_limits,
    describe_troubles,
    report_facts,
    report_limits,
)
from memtier_plugin.operations.reembed import EmbeddingState, read_embedding_state
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.providers.pricing import format_cost
from memtier_plugin.storage.index.vectors import COVERED_SHARE
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.store import LOCK_SECONDS, Store

__all__ = ["HealthFinding", "collect_status", "expire_recalls", "note_hook", "run_checks"]

_RECALLS = 200  # of which `collect_status` tells what they injected
MAX_UNSTORED_TURNS = 3  # turns with a recall and no run stored, after which something is wrong
MAX_UNRECALLED_RUNS = 10  # runs stored without a recall before them; announcements are such
_HERE = ("localhost", "127.0.0.1", "::1")


def collect_status(store: Store, now: datetime) -> dict[str, Any]:
    """Return how things stand, as JSON; never raises for a broken index, it says so."""
    report: dict[str, Any] = {
        "project": store.project,
        "home": str(store.home),
        "folder": str(store.folder),
        "paused": store.paused,
        "entries": 0,
        "facts": 0,
        "backlog": 0,
        "hooks": _hooks(store),
        "waits": hook_latency.read_waits(store.home, store.project),
        "agents": {},
        "degraded": [],
        "warnings": [],
        "plugins": _plugin_errors(),
        "index": {"path": str(store.index.path)},
        "consolidation": {"last": None, "due": False, "backlog": {}},
        "proposals": {"waiting": 0, "oldest": None},
        "held_back": [],
        "spending": {},
        "background": job_state.read_background(store.folder).to_json(),
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
    report_limits(store, now, report)
    for plugin in report["plugins"]:
        report["warnings"].append(
            f"plugin {plugin['plugin']!r} failed in {plugin['hook']}: {plugin['error']}"
        )
    for agent, hooks in report["hooks"].items():
        for hook, seen in hooks.items():
            if seen.get("last_error") and seen["last_error"] > (seen.get("last_ok") or ""):
                report["degraded"].append(f"{agent} {hook}: {seen['error']}")
        if silent := _silent(agent, hooks):
            report["degraded"].append(silent)
    report["degraded"] += hook_latency.describe_unanswered(report["waits"])
    waiting_runs, refused = count_queued_runs(store.home)
    report["queue"] = {"waiting": waiting_runs, "refused": refused}
    if waiting_runs:
        report["warnings"].append(f"{waiting_runs} runs of hosts wait to be stored")
    if refused:
        report["warnings"].append(f"{refused} runs of hosts were refused: `memtier doctor`")
    return report


def _index_status(store: Store, now: datetime, report: dict[str, Any]) -> None:
    why = store.catch_up(store.files_behind(), wait_ms=200)
    reader = store.reader()
    counts = reader.counts()
    report["entries"], report["facts"] = counts["entries"], counts["facts"]
    behind = store.files_behind()
    files = [Path(f"{store.index.path}{suffix}") for suffix in ("", "-wal")]
    size = sum(path.stat().st_size for path in files if path.exists())
    report["index"] |= {**counts, "bytes": size, "behind": [file.name for file in behind]}
    for agent, what, when in reader.last_activity():
        name = "last_stored" if what == "stored" else "last_recall"
        if what == "stored":
            when = to_iso(datetime.fromtimestamp(float(when), UTC))
        report["hooks"].setdefault(agent, {})
        report["agents"].setdefault(agent, {})[name] = when
    for agent, injected in _injected(reader.events(["recall"], newest=_RECALLS)).items():
        report["agents"].setdefault(agent, {})["injected"] = injected
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
    for when, path, what in reader.notices():
        if when >= to_iso(now - NOTICE_PERIOD):
            report["warnings"].append(f"{when} {path} was {what}")


def _injected(recalls: Sequence[JournalEvent]) -> dict[str, dict[str, Any]]:
    """Return per agent what the newest turns had injected, and what they were spared."""
    found: dict[str, list[JournalEvent]] = {}
    for event in recalls:
        if event.data.get("purpose") == "inject":
            found.setdefault(event.agent_id, []).append(event)
    return {
        agent: {
            "turns": len(events),
            "tokens_a_turn": round(sum(e.data.get("tokens", 0) for e in events) / len(events), 1),
            "lines": sum(len(e.data["injected"]) for e in events),
            "repeats_avoided": sum(len(e.data.get("repeats", ())) for e in events),
        }
        for agent, events in found.items()
    }


def _embedding_status(store: Store, report: dict[str, Any]) -> None:
    state = read_embedding_state(store)
    report["embedding"] = state.to_json()
    if state.error:
        report["degraded"].append(f"embedding: {state.error}")
    elif state.items - state.missing < COVERED_SHARE * state.items:
        report["degraded"].append(f"embedding: {_missing(state)}; until then recalls go by words")


def _missing(state: EmbeddingState) -> str:
    cost = f" (about {format_cost(state.cost)} to pay)" if state.paid else ""
    return f"{state.missing} of {state.items} items have no vector by {state.model} yet{cost}"


def run_checks(store: Store, now: datetime) -> list[HealthFinding]:
    """Look at everything that fails silently elsewhere; one finding each, with its remedy."""
    return [
        *_check_home(store, now),
        *_check_ledgers(store),
        *_check_index(store, now),
        *_check_embedding(store),
        *check_background(store, now),
        *_check_hooks(store, now),
    ]


def _check_home(store: Store, now: datetime) -> Iterator[HealthFinding]:
    try:
        make_private_folder(store.home, "projects", store.folder.name)
    except LedgerError as error:
        yield HealthFinding(
            "error", str(error), str(store.home), "give the folder back to its owner"
        )
        return
    if not os.access(store.folder, os.W_OK):
        yield HealthFinding(
            "error", "the home is read-only: nothing is recorded", str(store.folder),
            "make it writable, or set MEMTIER_HOME",
        )  # fmt: skip
    loose = store.home.stat().st_mode & 0o077
    if loose:
        yield HealthFinding(
            "warn", f"others may enter the home (mode {store.home.stat().st_mode & 0o777:o})",
            str(store.home), f"chmod 700 {store.home}",
        )  # fmt: skip
    if is_on_network(store.folder):
        yield HealthFinding(
            "warn", "the home is on a network file system; the index is kept locally",
            str(store.index.path), "a local MEMTIER_HOME is faster",
        )  # fmt: skip
    yield from check_limits(store, now)
    if store.paused:
        yield HealthFinding("warn", "the project is switched off", str(store.folder), "memtier on")
    yield HealthFinding("ok", "the home is private and writable", str(store.home))


def _check_ledgers(store: Store) -> Iterator[HealthFinding]:
    files = 0
    try:
        folders = [*iter_ledger_folders(store.folder)]
    except UnsafePath as error:
        yield HealthFinding("error", str(error), str(store.folder), "move the real folder here")
        folders = []
    for _, _, folder in folders:
        for path in jsonl.list_day_files(folder):
            files += 1
            try:
                _, mark = jsonl.read_lines(path)
                if jsonl.has_torn_tail(path, mark):
                    yield HealthFinding(
                        "warn", "the last line is torn: a write was cut off by a crash",
                        f"{path}:{mark.lines + 1}",
                        "nothing to do: it is skipped, the next line stands alone",
                    )  # fmt: skip
            except UnsafePath as error:
                yield HealthFinding(
                    "error", str(error), str(path), "replace it by the real file, owned by you"
                )
            except LedgerError as error:
                yield HealthFinding("error", str(error), str(path), "make the file readable")
    yield HealthFinding("ok", f"{files} ledger files were read", str(store.folder))


def _check_index(store: Store, now: datetime) -> Iterator[HealthFinding]:
    try:
        with store.session() as reader:
            with suppress(LedgerError):  # named above, with its remedy
                store.catch_up_all()
            check = store.check_index()
            bad, notices = reader.bad_lines(), reader.notices()
            counts = ", ".join(f"{number} {what}" for what, number in reader.counts().items())
    except IndexProblem as error:
        yield HealthFinding("error", str(error), str(store.index.path), "memtier reindex")
        return
    if check != "ok":
        yield HealthFinding(
            "error", f"the index is damaged: {check}", str(store.index.path), "memtier reindex"
        )
    for name, line, reason in bad:
        yield HealthFinding(
            "warn", f"a line cannot be read: {reason}", f"{store.folder / name}:{line}",
            "correct or delete the line; it is skipped until then",
        )  # fmt: skip
    for when, name, what in notices:
        if when >= to_iso(now - NOTICE_PERIOD):
            ours = name == store.index.path.name
            yield HealthFinding(
                "warn", f"{when}: the file was {what}", str(store.folder / name),
                "nothing to do: it is derived, the ledgers are untouched" if ours
                else "ledgers are append-only: use `memtier forget` to hide a line",
            )  # fmt: skip
    if store.stale_tokenizer:
        yield HealthFinding(
            "warn",
            f"the index was made for {store.stale_tokenizer!r}, settings say another language",
            str(store.index.path),
            "memtier reindex",
        )
    yield HealthFinding("ok", f"the index is sound: {counts}", str(store.index.path))


def _check_embedding(store: Store) -> Iterator[HealthFinding]:
    try:
        state = read_embedding_state(store)
    except SettingsError as error:
        yield HealthFinding("error", str(error), "embedding.model", "correct it in config.yaml")
        return
    except MemTierError:
        return  # the index's trouble is named above
    embedder = store.embedder
    if embedder is None or state.model is None:
        return
    if isinstance(embedder, EndpointEmbedder):
        yield from _check_endpoint(embedder.endpoint)
    if state.error:
        yield HealthFinding("error", state.error, state.model, "memtier embed")
    elif state.missing:
        unpaid = state.paid and not state.due
        remedy = "memtier embed --yes" if unpaid else "memtier embed, or wait for the daemon"
        yield HealthFinding("warn", _missing(state), state.model, remedy)
    else:
        yield HealthFinding("ok", f"all {state.items} items have vectors", state.model)


def _check_endpoint(endpoint: Endpoint) -> Iterator[HealthFinding]:
    key = endpoint.key_env != "none"
    if key and not os.environ.get(endpoint.key_env):
        yield HealthFinding(
            "error", f"the environment variable {endpoint.key_env} is not set here: no key",
            endpoint.base_url, "set it where hosts and the daemon run",
        )  # fmt: skip
    where = urlsplit(endpoint.base_url)
    if where.scheme == "http" and where.hostname not in _HERE:
        what = "the key and all texts go" if key else "all texts go"
        yield HealthFinding(
            "warn", f"{what} to the endpoint unencrypted", endpoint.base_url, "use https",
        )  # fmt: skip


def _check_hooks(store: Store, now: datetime) -> Iterator[HealthFinding]:
    hooks = _hooks(store)
    for agent, seen in hooks.items():
        for hook, how in seen.items():
            if how.get("last_error") and how["last_error"] > (how.get("last_ok") or ""):
                yield HealthFinding(
                    "error", f"{hook} of {agent} fails since {how['last_error']}: {how['error']}",
                    agent, "the message says what is wrong; the host's log has the trace",
                )  # fmt: skip
        if silent := _silent(agent, seen):
            yield HealthFinding(
                "error", silent, agent, "`memtier install` for its host sets what it needs again"
            )
    for plugin in _plugin_errors():
        yield HealthFinding(
            "warn", f"failed in {plugin['hook']}: {plugin['error']}", plugin["plugin"],
            "update or uninstall the plugin",
        )  # fmt: skip
    if not hooks:
        yield HealthFinding("ok", "no host has called a hook yet", store.project)


def note_hook(
    store: Store, agent: str, hook: str, error: str | None, ms: int | None, now: datetime
) -> None:
    """Keep when a hook last went well for an agent and how long, and when and why it failed."""
    folder = make_private_folder(store.home, "projects", store.folder.name, "hooks")
    path = folder / f"{encode_file_name(agent)}.json"
    with hold_lock(folder / ".lock", 1.0):  # hosts of the same agent note at the same time
        seen = _load(path)
        new = {"last_ok": None, "last_error": None, "error": None, "runs": 0}
        mine = seen.setdefault(hook, new)
        mine["runs"] += 1
        mine |= hook_latency.add_timing(mine, ms, now) if ms is not None else {}
        if error is None:
            mine |= {"last_ok": to_iso(now), "missed": 0}
            if hook in _PAIRED:
                other = seen.setdefault(_PAIRED[hook], dict(new))
                other["missed"] = other.get("missed", 0) + 1
        else:
            mine |= {"last_error": to_iso(now), "error": error[:500]}
        write_private_file(path, json.dumps(seen, indent=1))


_PAIRED = {"before_prompt_build": "agent_end", "agent_end": "before_prompt_build"}


def describe_silence(store: Store, agent: str) -> str | None:
    """Return what goes wrong without an error for an agent of a host, or None."""
    return _silent(agent, _load(store.folder / "hooks" / f"{encode_file_name(agent)}.json"))


def _silent(agent: str, hooks: Mapping[str, Any]) -> str | None:
    def missed(hook: str) -> int:
        return int(hooks.get(hook, {}).get("missed", 0))

    if missed("agent_end") >= MAX_UNSTORED_TURNS:
        number = missed("agent_end")
        return f"{agent}: {number} turns passed and none was stored; `memtier doctor` looks why"
    if missed("before_prompt_build") >= MAX_UNRECALLED_RUNS:
        number = missed("before_prompt_build")
        return f"{agent}: {number} runs were stored without a recall; `memtier doctor` looks why"
    return None


def count_queued_runs(home: Path) -> tuple[int, int]:
    """Return how many runs wait to be delivered by the hosts, and how many were refused."""
    try:
        names = os.listdir(home / "queue")
    except OSError:
        return 0, 0
    return (
        sum(name.endswith(".json") and not name.startswith(".") for name in names),
        sum(name.endswith(".refused") for name in names),
    )


def expire_recalls(store: Store, now: datetime) -> int:
    """Write anew, without their old recalls, journal files older than the retention."""
    limit = now - timedelta(days=store.settings.journal.retention_days)
    dropped = 0
    for kind, _, folder in iter_ledger_folders(store.folder):
        for path in jsonl.list_day_files(folder) if kind == "journal" else ():
            if path.stem < f"{limit:%Y-%m-%d}":
                dropped += _without_recalls(path)
                store.catch_up_file(path, ours=True)
    return dropped


def _without_recalls(path: Path) -> int:
    with hold_lock(path, LOCK_SECONDS):
        lines, _ = jsonl.read_lines(path)
        kept = [line.data for line in lines if not _is_recall(line)]
        if len(kept) < len(lines):
            # A new file in its place, not an edit: the index sees that it was replaced.
            write_private_file(
                path, b"".join(kept).decode("utf-8", "surrogateescape"), durable=True
            )
    return len(lines) - len(kept)


def _is_recall(line: jsonl.LedgerLine) -> bool:
    try:
        return jsonl.parse_line(line).get("kind") == "recall"
    except ValueError:
        return False


def _hooks(store: Store) -> dict[str, dict[str, Any]]:
    folder = store.folder / "hooks"
    try:
        names = sorted(e.name for e in os.scandir(folder) if e.name.endswith(".json"))
    except OSError:
        return {}
    return {decode_file_name(folder, n.removesuffix(".json")): _load(folder / n) for n in names}


def _load(path: Path) -> dict[str, Any]:
    try:
        seen = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return seen if isinstance(seen, dict) else {}


def _plugin_errors() -> list[dict[str, Any]]:
    from memtier_plugin.core import plugins

    return [asdict(error) for error in plugins.load_errors()]
