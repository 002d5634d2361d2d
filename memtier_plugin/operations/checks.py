"""Check a project for problems that nothing else reports, with remedies, and repair them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from memtier_plugin.core.errors import (
    IndexProblem,
    LedgerError,
    MemTierError,
    SettingsError,
)
from memtier_plugin.core.events import DeliverEvent, RecallEvent
from memtier_plugin.core.files import release_lock, tighten_mode, try_acquire_lock
from memtier_plugin.core.formats import CUT_OFF, to_iso
from memtier_plugin.core.paths import is_on_network, socket_path
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.operations.background import (
    NOTICE_PERIOD,
    HealthFinding,
    Level,
    check_background,
    check_limits,
)
from memtier_plugin.operations.hook_calls import is_failing, read_hook_marks, silence_of
from memtier_plugin.operations.reembed import read_embedding_state
from memtier_plugin.operations.status import describe_missing_vectors, plugin_errors
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.storage.home_files import find_unfinished, remove_unfinished
from memtier_plugin.storage.protocol import format_bytes
from memtier_plugin.storage.store import Actor, Store

# Level, default description and remedy of each kind of damage in the log.
_LOG_FAULTS: Final[Mapping[str, tuple[Level, str, str]]] = {
    "unsafe folder": ("error", "", "move the real folder here"),
    "unsafe": ("error", "", "replace it by the real file, owned by you"),
    "unreadable": ("error", "", "make the file readable"),
    "torn": (
        "warn",
        "the last line is torn: a write was cut off by a crash",
        "nothing to do: it is skipped, later lines are unaffected",
    ),
    "altered": (
        "error",
        "the line was changed: its checksum differs",
        "restore it from a backup; if you edited it, remove `crc32` and set `schema` to 1",
    ),
}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def run_checks(store: Store, now: datetime) -> list[HealthFinding]:
    """Run all checks in order; each problem found has a remedy."""
    return [finding for check in CHECKS for finding in check(store, now)]


def _check_home(store: Store, now: datetime) -> Iterator[HealthFinding]:
    folder = store.project_folder
    try:
        folder.make()
    except LedgerError as error:
        yield HealthFinding(
            "error", str(error), str(folder.home), "give the folder back to its owner"
        )
        return
    if not os.access(folder.path, os.W_OK):
        yield HealthFinding(
            "error",
            "the home is read-only: nothing is recorded",
            str(folder.path),
            "make it writable, or set MEMTIER_HOME",
        )
    loose = folder.home.stat().st_mode & 0o077
    if loose:
        yield HealthFinding(
            "warn",
            f"other users can enter the home (mode {folder.home.stat().st_mode & 0o777:o})",
            str(folder.home),
            f"chmod 700 {folder.home}",
        )
    if is_on_network(folder.path):
        yield HealthFinding(
            "warn",
            "the home is on a network file system; the index is kept locally",
            store.index_location,
            "a local MEMTIER_HOME is faster",
        )
    yield from check_limits(store, now)
    if store.paused:
        yield HealthFinding("warn", "the project is switched off", str(folder.path), "memtier on")
    yield HealthFinding("ok", "the home is private and writable", str(folder.home))


def _check_ledgers(store: Store, _now: datetime) -> Iterator[HealthFinding]:
    verification = store.log.verify()
    for kind, where, message in verification.faults:
        level, description, remedy = _LOG_FAULTS[kind]
        yield HealthFinding(level, description or message, where, remedy)
    files = verification.segments
    yield HealthFinding("ok", f"{files} ledger files were read", str(store.project_folder.path))


def _check_index(store: Store, now: datetime) -> Iterator[HealthFinding]:
    try:
        with store.session() as reader:
            with suppress(LedgerError):  # `_check_ledgers` reports it, with its remedy
                store.catch_up_all()
            check = store.check_index()
            bad, notices = reader.bad_lines(), reader.notices()
            counts = reader.counts()
    except IndexProblem as error:
        yield HealthFinding("error", str(error), store.index_location, "memtier reindex")
        return
    if check != "ok":
        yield HealthFinding(
            "error", f"the index is damaged: {check}", store.index_location, "memtier reindex"
        )
    for name, line, reason in bad:
        yield HealthFinding(
            "warn" if reason == CUT_OFF else "error",
            f"a line cannot be read: {reason}",
            f"{store.locate(name)}:{line}",
            "correct or delete the line; it is skipped until then",
        )
    for when, name, change in notices:
        if when >= to_iso(now - NOTICE_PERIOD):
            ours = store.is_index(name)
            yield HealthFinding(
                "warn",
                f"{when}: the file was {change}",
                store.locate(name),
                "nothing to do: it is derived, the ledgers are untouched"
                if ours
                else "ledgers are append-only: use `memtier forget` to hide a line",
            )
    if store.stale_tokenizer:
        yield HealthFinding(
            "warn",
            f"the index was made for {store.stale_tokenizer!r}, settings say another language",
            store.index_location,
            "memtier reindex",
        )
    kinds = ("entries", "facts", "summaries", "forgotten")
    shown = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    yield HealthFinding("ok", f"the index is sound: {shown}", store.index_location)


def _check_embedding(store: Store, _now: datetime) -> Iterator[HealthFinding]:
    try:
        state = read_embedding_state(store)
    except SettingsError as error:
        yield HealthFinding("error", str(error), "embedding.model", "correct it in config.yaml")
        return
    except MemTierError:
        return  # `_check_index` reports the problem
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
        yield HealthFinding("warn", describe_missing_vectors(state), state.model, remedy)
    else:
        yield HealthFinding("ok", f"all {state.items} items have vectors", state.model)


def _check_endpoint(endpoint: Endpoint) -> Iterator[HealthFinding]:
    has_key = endpoint.key_env != "none"
    if has_key and not os.environ.get(endpoint.key_env):
        yield HealthFinding(
            "error",
            f"the environment variable {endpoint.key_env} is not set here: no key",
            endpoint.base_url,
            "set it where hosts and the daemon run",
        )
    address = urlsplit(endpoint.base_url)
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        exposed = "the key and all texts go" if has_key else "all texts go"
        yield HealthFinding(
            "warn",
            f"{exposed} to the endpoint unencrypted",
            endpoint.base_url,
            "use https",
        )


def _check_hooks(store: Store, _now: datetime) -> Iterator[HealthFinding]:
    hooks = read_hook_marks(store)
    for agent, marks in hooks.items():
        for hook, mark in marks.items():
            if is_failing(mark):
                yield HealthFinding(
                    "error",
                    f"{hook} of {agent} fails since {mark['last_error']}: {mark['error']}",
                    agent,
                    "the message says what is wrong; the host's log has the trace",
                )
        if silent := silence_of(store, agent, marks):
            yield HealthFinding("error", silent, agent, "run `memtier install` for its host again")
    for plugin in plugin_errors():
        yield HealthFinding(
            "warn",
            f"failed in {plugin['hook']}: {plugin['error']}",
            plugin["plugin"],
            "update or uninstall the plugin",
        )
    if not hooks:
        yield HealthFinding("ok", "no host has called a hook yet", store.project)


CHECKS: Final[tuple[Callable[[Store, datetime], Iterator[HealthFinding]], ...]] = (
    _check_home,
    _check_ledgers,
    _check_index,
    _check_embedding,
    check_background,
    _check_hooks,
)


# -- Lossless repairs for `doctor --fix`, each reported
#
# What needs a person's decision (an unreadable line, a foreign file) stays, and `doctor` reports
# it.

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair, and its location."""

    what: str
    where: str = ""


def find_leftovers(store: Store) -> Iterator[HealthFinding]:
    """Yield leftovers that `repair` would remove, or that need a person's decision."""
    fix = "memtier doctor --fix"
    for path in find_unfinished(store):
        yield HealthFinding("warn", "a process that died left this behind", str(path), fix)
    if pending := store.pending_commit():
        yield HealthFinding(
            "warn",
            "a write of facts was interrupted; the next consolidation completes it",
            pending,
            fix,
        )
    if unreadable := store.unreadable_commit():
        yield HealthFinding(
            "warn",
            "facts that were being written could not be read again",
            unreadable,
            "check whether any of them is missing, then delete it",
        )
    for aside in store.list_set_aside():
        size = format_bytes(aside.size)
        yield HealthFinding(
            "warn",
            f"an index set aside earlier still exists ({size})",
            aside.where,
            fix if aside.ours else "check what it is, then delete it: it is not a MemTier index",
        )


def repair(actor: Actor, progress: Progress) -> Iterator[Repair]:
    """Repair what can be repaired, yielding each repair as it is made.

    Raises:
        LedgerError, IndexProblem: a repair failed, and the rest was not tried.
    """
    store = actor.store
    yield from _modes(store.project_folder.home)
    for mended in store.mend_log():
        aside_name = f"moved a torn last line to {mended.aside}"
        ended = "ended the last line, which lacked its newline"
        yield Repair(aside_name if mended.aside else ended, str(mended.path))
    for path in remove_unfinished(store):
        yield Repair("removed leftovers of a process that died", str(path))
    yield from _socket(store.project_folder.home)
    yield from _index(store, progress)
    if store.pending_commit():
        FactWriter(actor).recover()
        where = str(store.project_folder.path)
        yield Repair("completed an interrupted write of facts", where)
    for where in store.remove_set_aside():
        yield Repair("removed the broken index, which has been rebuilt", where)


def _modes(home: Path) -> Iterator[Repair]:
    for top, folders, files in os.walk(home):
        for name in ["", *folders, *files] if top == str(home) else [*folders, *files]:
            path = Path(top, name)
            with suppress(OSError):
                status = path.lstat()
                if path.is_symlink() or status.st_uid != os.geteuid():
                    continue  # the checks report it
                if tighten_mode(path, status.st_mode):
                    modes = f"{status.st_mode & 0o777:o} → {path.lstat().st_mode & 0o777:o}"
                    yield Repair(f"closed to others ({modes})", str(path))


def _socket(home: Path) -> Iterator[Repair]:
    """Remove the socket of a dead server."""
    path = socket_path(home)
    if not path.is_socket():
        return
    held = try_acquire_lock(path.with_suffix(".lock"))
    if held is None:
        return  # the server is alive
    try:
        path.unlink(missing_ok=True)
    finally:
        release_lock(held)
    yield Repair("removed the socket of a server that no longer runs", str(path))


def _index(store: Store, progress: Progress) -> Iterator[Repair]:
    try:
        with store.session():
            check = store.check_index()
            why = "" if check == "ok" else f"the index was damaged: {check}"
        if store.stale_tokenizer:
            why = f"the index was made for {store.stale_tokenizer!r}"
    except IndexProblem as problem:
        why = str(problem)
    if why:
        store.reindex(progress)
        yield Repair("rebuilt the index", why)
        return
    with suppress(MemTierError):  # the checks report unreadable files
        behind = [file.name for file in store.files_behind()]
        if store.incomplete or behind:
            lines = store.catch_up_all()
            yield Repair(f"read {lines} lines that the index lacked", ", ".join(behind[:3]))


# -- Drop recalls beyond their retention from the journal


def expire_recalls(store: Store, now: datetime) -> int:
    """Remove recalls older than the retention from the journal; return how many."""
    days = timedelta(days=store.settings.journal.retention_days)
    dropped = store.expire_events(RecallEvent.KIND, now - days)
    store.expire_events(DeliverEvent.KIND, now - days)
    return dropped
