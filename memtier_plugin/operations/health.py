"""How a project is doing: what `status` and `doctor` tell, and the watermarks they read.

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
from memtier_plugin.core.paths import (
    file_name,
    ledger_folders,
    on_network,
    outside_name,
    private_folder,
    write_private,
)
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.core.settings.load import Endpoint
from memtier_plugin.core.times import to_iso
from memtier_plugin.operations import hook_latency, job_state
from memtier_plugin.operations.background_health import (
    NOTED,
    Finding,
    check_background,
    check_limits,
    facts_status,
    limits_status,
    troubles,
)
from memtier_plugin.operations.reembed import EmbeddingState, embedding_state
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.providers.pricing import money
from memtier_plugin.storage.index.vectors import COVERED
from memtier_plugin.storage.ledger import jsonl
from memtier_plugin.storage.store import LOCK_SECONDS, Store

__all__ = ["Finding", "doctor", "expire_recalls", "note_hook", "status"]

_RECALLS = 200  # of which `status` tells what they injected
NOT_STORED = 3  # turns with a recall and no run stored, after which something is wrong
NOT_RECALLED = 10  # runs stored without a recall before them; announcements are such
_HERE = ("localhost", "127.0.0.1", "::1")


def status(store: Store, now: datetime) -> dict[str, Any]:
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
        "waits": hook_latency.noted(store.home, store.project),
        "agents": {},
        "degraded": [],
        "warnings": [],
        "plugins": _plugin_errors(),
        "index": {"path": str(store.index.path)},
        "consolidation": {"last": None, "due": False, "backlog": {}},
        "proposals": {"waiting": 0, "oldest": None},
        "held_back": [],
        "spending": {},
        "background": job_state.look(store.folder).to_json(),
        "embedding": EmbeddingState().to_json(),
        "disk": {},
    }
    try:
        with store.reading():
            _index_status(store, now, report)
        _embedding_status(store, report)
    except SettingsError as error:
        report["degraded"].append(f"embedding: {error}")
    except (MemTierError, OSError) as error:
        report["degraded"].append(f"index: {error}")
    report["degraded"] += troubles(store, now)
    limits_status(store, now, report)
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
    report["degraded"] += hook_latency.unanswered(report["waits"])
    waiting_runs, refused = waiting(store.home)
    report["queue"] = {"waiting": waiting_runs, "refused": refused}
    if waiting_runs:
        report["warnings"].append(f"{waiting_runs} runs of hosts wait to be stored")
    if refused:
        report["warnings"].append(f"{refused} runs of hosts were refused: `memtier doctor`")
    return report


def _index_status(store: Store, now: datetime, report: dict[str, Any]) -> None:
    why = store.catch_up(store.behind(), wait_ms=200)
    reader = store.reader()
    counts = reader.counts()
    report["entries"], report["facts"] = counts["entries"], counts["facts"]
    behind = store.behind()
    files = [Path(f"{store.index.path}{suffix}") for suffix in ("", "-wal")]
    size = sum(path.stat().st_size for path in files if path.exists())
    report["index"] |= {**counts, "bytes": size, "behind": [file.name for file in behind]}
    for agent, what, when in reader.last_seen():
        name = "last_stored" if what == "stored" else "last_recall"
        if what == "stored":
            when = to_iso(datetime.fromtimestamp(float(when), UTC))
        report["hooks"].setdefault(agent, {})
        report["agents"].setdefault(agent, {})[name] = when
    for agent, injected in _injected(reader.events_of_kind("recall", _RECALLS)).items():
        report["agents"].setdefault(agent, {})["injected"] = injected
    report |= facts_status(store, now)
    if behind:
        reason = why or "new lines"
        report["degraded"].append(f"{len(behind)} ledger files are ahead of the index: {reason}")
    if store.stale_words:
        report["degraded"].append(
            f"the index was made for {store.stale_words!r}: run `memtier reindex`"
        )
    if counts["bad_lines"]:
        report["warnings"].append(
            f"{counts['bad_lines']} ledger lines could not be read: `memtier doctor` names them"
        )
    for when, path, what in reader.notices():
        if when >= to_iso(now - NOTED):
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
    state = embedding_state(store)
    report["embedding"] = state.to_json()
    if state.error:
        report["degraded"].append(f"embedding: {state.error}")
    elif state.items - state.missing < COVERED * state.items:
        report["degraded"].append(f"embedding: {_missing(state)}; until then recalls go by words")


def _missing(state: EmbeddingState) -> str:
    cost = f" (about {money(state.cost)} to pay)" if state.paid else ""
    return f"{state.missing} of {state.items} items have no vector by {state.model} yet{cost}"


def doctor(store: Store, now: datetime) -> list[Finding]:
    """Look at everything that fails silently elsewhere; one finding each, with its remedy."""
    return [
        *_check_home(store, now),
        *_check_ledgers(store),
        *_check_index(store, now),
        *_check_embedding(store),
        *check_background(store, now),
        *_check_hooks(store, now),
    ]


def _check_home(store: Store, now: datetime) -> Iterator[Finding]:
    try:
        private_folder(store.home, "projects", store.folder.name)
    except LedgerError as error:
        yield Finding("error", str(error), str(store.home), "give the folder back to its owner")
        return
    if not os.access(store.folder, os.W_OK):
        yield Finding(
            "error", "the home is read-only: nothing is recorded", str(store.folder),
            "make it writable, or set MEMTIER_HOME",
        )  # fmt: skip
    loose = store.home.stat().st_mode & 0o077
    if loose:
        yield Finding(
            "warn", f"others may enter the home (mode {store.home.stat().st_mode & 0o777:o})",
            str(store.home), f"chmod 700 {store.home}",
        )  # fmt: skip
    if on_network(store.folder):
        yield Finding(
            "warn", "the home is on a network file system; the index is kept locally",
            str(store.index.path), "a local MEMTIER_HOME is faster",
        )  # fmt: skip
    yield from check_limits(store, now)
    if store.paused:
        yield Finding("warn", "the project is switched off", str(store.folder), "memtier on")
    yield Finding("ok", "the home is private and writable", str(store.home))


def _check_ledgers(store: Store) -> Iterator[Finding]:
    files = 0
    try:
        folders = [*ledger_folders(store.folder)]
    except UnsafePath as error:
        yield Finding("error", str(error), str(store.folder), "move the real folder here")
        folders = []
    for _, _, folder in folders:
        for path in jsonl.day_files(folder):
            files += 1
            try:
                _, mark = jsonl.read(path)
                if jsonl.torn_tail(path, mark):
                    yield Finding(
                        "warn", "the last line is torn: a write was cut off by a crash",
                        f"{path}:{mark.lines + 1}",
                        "nothing to do: it is skipped, the next line stands alone",
                    )  # fmt: skip
            except UnsafePath as error:
                yield Finding(
                    "error", str(error), str(path), "replace it by the real file, owned by you"
                )
            except LedgerError as error:
                yield Finding("error", str(error), str(path), "make the file readable")
    yield Finding("ok", f"{files} ledger files were read", str(store.folder))


def _check_index(store: Store, now: datetime) -> Iterator[Finding]:
    try:
        with store.reading() as reader:
            with suppress(LedgerError):  # named above, with its remedy
                store.sweep()
            [check] = [str(r[0]) for r in store.index.connection().execute("PRAGMA quick_check(1)")]
            bad, notices = reader.bad_lines(), reader.notices()
            counts = ", ".join(f"{number} {what}" for what, number in reader.counts().items())
    except IndexProblem as error:
        yield Finding("error", str(error), str(store.index.path), "memtier reindex")
        return
    if check != "ok":
        yield Finding(
            "error", f"the index is damaged: {check}", str(store.index.path), "memtier reindex"
        )
    for name, line, reason in bad:
        yield Finding(
            "warn", f"a line cannot be read: {reason}", f"{store.folder / name}:{line}",
            "correct or delete the line; it is skipped until then",
        )  # fmt: skip
    for when, name, what in notices:
        if when >= to_iso(now - NOTED):
            ours = name == store.index.path.name
            yield Finding(
                "warn", f"{when}: the file was {what}", str(store.folder / name),
                "nothing to do: it is derived, the ledgers are untouched" if ours
                else "ledgers are append-only: use `memtier forget` to hide a line",
            )  # fmt: skip
    if store.stale_words:
        yield Finding(
            "warn", f"the index was made for {store.stale_words!r}, settings say another language",
            str(store.index.path), "memtier reindex",
        )  # fmt: skip
    yield Finding("ok", f"the index is sound: {counts}", str(store.index.path))


def _check_embedding(store: Store) -> Iterator[Finding]:
    try:
        state = embedding_state(store)
    except SettingsError as error:
        yield Finding("error", str(error), "embedding.model", "correct it in config.yaml")
        return
    except MemTierError:
        return  # the index's trouble is named above
    embedder = store.embedder
    if embedder is None or state.model is None:
        return
    if isinstance(embedder, EndpointEmbedder):
        yield from _check_endpoint(embedder.endpoint)
    if state.error:
        yield Finding("error", state.error, state.model, "memtier embed")
    elif state.missing:
        unpaid = state.paid and not state.due
        remedy = "memtier embed --yes" if unpaid else "memtier embed, or wait for the daemon"
        yield Finding("warn", _missing(state), state.model, remedy)
    else:
        yield Finding("ok", f"all {state.items} items have vectors", state.model)


def _check_endpoint(endpoint: Endpoint) -> Iterator[Finding]:
    key = endpoint.key_env != "none"
    if key and not os.environ.get(endpoint.key_env):
        yield Finding(
            "error", f"the environment variable {endpoint.key_env} is not set here: no key",
            endpoint.base_url, "set it where hosts and the daemon run",
        )  # fmt: skip
    where = urlsplit(endpoint.base_url)
    if where.scheme == "http" and where.hostname not in _HERE:
        what = "the key and all texts go" if key else "all texts go"
        yield Finding(
            "warn", f"{what} to the endpoint unencrypted", endpoint.base_url, "use https",
        )  # fmt: skip


def _check_hooks(store: Store, now: datetime) -> Iterator[Finding]:
    hooks = _hooks(store)
    for agent, seen in hooks.items():
        for hook, how in seen.items():
            if how.get("last_error") and how["last_error"] > (how.get("last_ok") or ""):
                yield Finding(
                    "error", f"{hook} of {agent} fails since {how['last_error']}: {how['error']}",
                    agent, "the message says what is wrong; the host's log has the trace",
                )  # fmt: skip
        if silent := _silent(agent, seen):
            yield Finding(
                "error", silent, agent, "`memtier install` for its host sets what it needs again"
            )
    for plugin in _plugin_errors():
        yield Finding(
            "warn", f"failed in {plugin['hook']}: {plugin['error']}", plugin["plugin"],
            "update or uninstall the plugin",
        )  # fmt: skip
    if not hooks:
        yield Finding("ok", "no host has called a hook yet", store.project)


def note_hook(
    store: Store, agent: str, hook: str, error: str | None, ms: int | None, now: datetime
) -> None:
    """Keep when a hook last went well for an agent and how long, and when and why it failed."""
    folder = private_folder(store.home, "projects", store.folder.name, "hooks")
    path = folder / f"{file_name(agent)}.json"
    with jsonl.locked(folder / ".lock", 1.0):  # hosts of the same agent note at the same time
        seen = _load(path)
        new = {"last_ok": None, "last_error": None, "error": None, "runs": 0}
        mine = seen.setdefault(hook, new)
        mine["runs"] += 1
        mine |= hook_latency.timed(mine, ms, now) if ms is not None else {}
        if error is None:
            mine |= {"last_ok": to_iso(now), "missed": 0}
            if hook in _PAIRED:
                other = seen.setdefault(_PAIRED[hook], dict(new))
                other["missed"] = other.get("missed", 0) + 1
        else:
            mine |= {"last_error": to_iso(now), "error": error[:500]}
        write_private(path, json.dumps(seen, indent=1))


_PAIRED = {"before_prompt_build": "agent_end", "agent_end": "before_prompt_build"}


def silence(store: Store, agent: str) -> str | None:
    """Return what goes wrong without an error for an agent of a host, or None."""
    return _silent(agent, _load(store.folder / "hooks" / f"{file_name(agent)}.json"))


def _silent(agent: str, hooks: Mapping[str, Any]) -> str | None:
    def missed(hook: str) -> int:
        return int(hooks.get(hook, {}).get("missed", 0))

    if missed("agent_end") >= NOT_STORED:
        number = missed("agent_end")
        return f"{agent}: {number} turns passed and none was stored; `memtier doctor` looks why"
    if missed("before_prompt_build") >= NOT_RECALLED:
        number = missed("before_prompt_build")
        return f"{agent}: {number} runs were stored without a recall; `memtier doctor` looks why"
    return None


def waiting(home: Path) -> tuple[int, int]:
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
    for kind, _, folder in ledger_folders(store.folder):
        for path in jsonl.day_files(folder) if kind == "journal" else ():
            if path.stem < f"{limit:%Y-%m-%d}":
                dropped += _without_recalls(path)
                store.follow(path, ours=True)
    return dropped


def _without_recalls(path: Path) -> int:
    with jsonl.locked(path, LOCK_SECONDS):
        lines, _ = jsonl.read(path)
        kept = [line.data for line in lines if not _is_recall(line)]
        if len(kept) < len(lines):
            # A new file in its place, not an edit: the index sees that it was replaced.
            write_private(path, b"".join(kept).decode("utf-8", "surrogateescape"), durable=True)
    return len(lines) - len(kept)


def _is_recall(line: jsonl.Line) -> bool:
    try:
        return jsonl.parse(line).get("kind") == "recall"
    except ValueError:
        return False


def _hooks(store: Store) -> dict[str, dict[str, Any]]:
    folder = store.folder / "hooks"
    try:
        names = sorted(e.name for e in os.scandir(folder) if e.name.endswith(".json"))
    except OSError:
        return {}
    return {outside_name(folder, n.removesuffix(".json")): _load(folder / n) for n in names}


def _load(path: Path) -> dict[str, Any]:
    try:
        seen = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return seen if isinstance(seen, dict) else {}


def _plugin_errors() -> list[dict[str, Any]]:
    from memtier_plugin.core import plugins

    return [asdict(error) for error in plugins.load_errors()]
