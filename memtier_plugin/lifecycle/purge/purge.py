"""Purge: the only operation that rewrites ledgers, with a receipt.

A purge finds all copies and writes a plan (positions, never words), hides the items by a tombstone,
removes them from the files and the index, and verifies the result.  The receipt lists the copies
found before and after, and those out of reach.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.events import ForgetEvent, PurgeEvent
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.lifecycle.purge import files as rewrite
from memtier_plugin.lifecycle.purge.encoded import MIN_CHARS, NOT_LOOKED_FOR
from memtier_plugin.lifecycle.purge.files import Progress, count_in_files, names_in_use
from memtier_plugin.lifecycle.purge.machines import reach_of
from memtier_plugin.lifecycle.purge.plan import MIN_TEXT_CHARS, PURGED_MARK, TextFinder
from memtier_plugin.lifecycle.purge.scan import Copies, CopyScan, CopyScanner
from memtier_plugin.lifecycle.selection import Selection, select_items
from memtier_plugin.providers.embedding.load import RemoteEmbedder
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.storage import home_files
from memtier_plugin.storage.protocol import LOCK_SECONDS
from memtier_plugin.storage.store import Actor

_ROUNDS: Final = 3  # passes over what other processes wrote meanwhile
_MAX_QUERIES: Final = 50  # texts that are recalled for verification
_UNREACHABLE: Final = (
    "the transcripts that the host itself keeps, and what it holds in memory",
    "backups and copies of the home that MemTier did not make",
    "what was sent to an endpoint (a chat model, an embedding model)",
    "blocks that a file system, a snapshot or an SSD has not yet overwritten",
)

_UNREACHABLE_SHARED: Final = (
    "the server's write-ahead log, standbys' archives and backups, until they expire",
    "old versions of its rows, until VACUUM",
    "copies on machines whose rights were revoked, or that left",
)
_ITEMS_ONLY: Final = "encoded copies in lines that were not selected: purge the text (--text-stdin)"
_TOO_SHORT: Final = f"line breaks inside texts of less than {MIN_CHARS} characters"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a purge: copies before and after; ``found_after`` has counts by method.

    ``done`` is False for a dry run; ``clean`` is False while another process holds the old index:
    the next purge or the daemon then completes the rest.  ``pending`` lists the machines of a
    shared project that may still have copies, with their last contact; None for an unshared
    project.
    """

    id: str
    at: datetime
    done: bool
    copies: Copies
    found_after: dict[str, int] = field(default_factory=dict)
    where_after: tuple[str, ...] = ()
    clean: bool = True
    beyond: tuple[str, ...] = ()
    pending: tuple[Mapping[str, Any], ...] | None = None

    @property
    def gone(self) -> bool:
        """Whether no copy is left, including in archives."""
        left = any(export["what"] == "left" for export in self.copies.exports)
        return self.done and self.clean and not left and not any(self.found_after.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "purge": self.id,
            "at": self.at.isoformat(),
            "done": self.done,
            "copies": self.copies.to_json(),
            "found_after": self.found_after,
            "where_after": list(self.where_after),
            "clean": self.clean,
            "gone": self.gone,
            "cannot_reach": list(self.beyond),
            **({} if self.pending is None else {"pending": list(self.pending)}),
        }


class Purger:
    """Purges a project in an agent's name."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._shared = actor.store.sharing is not None

    def purge(
        self,
        target: Selection | str,
        *,
        dry_run: bool = False,
        delete_exports: bool = False,
        progress: Progress | None = None,
    ) -> Receipt:
        """Remove selected items, or all occurrences of a text, from every file.

        Args:
            dry_run: only report the copies.
            delete_exports: delete exported files that contain it, including those whose text cannot
                be changed.

        Raises:
            MessageError: the text is too short to be distinctive.
            NotFound: nothing is selected.
            LedgerError, IndexProblem: it was not, or not completely, purged; repeat it.
        """
        if isinstance(target, str) and len(target.strip()) < MIN_TEXT_CHARS:
            raise MessageError(f"a text of less than {MIN_TEXT_CHARS} characters occurs everywhere")
        if dry_run:
            self._catch_up()
            scan = self._scan(target, delete_exports)
            beyond = _list_unreachable(scan, self._shared)
            return Receipt(scan.plan.id, self._actor.clock(), False, scan.copies, beyond=beyond)
        with self._store.exclusive(rewrite.LOCK):
            self._complete(progress)
            self._catch_up()
            return self._purge(target, delete_exports, progress)

    def complete(self, progress: Progress | None = None, *, wait: float = LOCK_SECONDS) -> bool:
        """Complete an interrupted purge; return whether there was one and it is now complete.

        Args:
            wait: seconds to wait for another process that is completing it.

        Raises:
            LedgerError, IndexProblem: it is not complete; repeat it.
        """
        if not self._store.project_folder.purge_plan.exists():
            return False
        with self._store.exclusive(rewrite.LOCK, wait):
            return self._complete(progress)

    def _complete(self, progress: Progress | None) -> bool:
        plan = rewrite.load_plan(self._store)
        if plan is None:
            return False
        self._hide(plan.stubs)
        clean = rewrite.execute_plan(self._store, plan, progress)
        if clean:
            if plan.shared:
                receipt = {"purge": plan.id, "clean": True, "resumed": True}
                self._journal(PurgeEvent(receipt=receipt, shared=plan.shared))
            rewrite.remove_plan(self._store)
        return clean

    def _catch_up(self) -> None:
        # An interrupted write of facts contains their texts.
        FactWriter(self._actor).recover()
        if self._store.sharing:
            self._store.sharing.sync()  # otherwise lines delivered by others stay
        self._store.catch_up_all()

    def _scan(self, target: Selection | str, delete_exports: bool) -> CopyScan:
        scanner = CopyScanner(self._store, delete_exports=delete_exports)
        if isinstance(target, str):
            return scanner.scan_text(target)
        return scanner.scan_items(*select_items(self._store, target))

    def _purge(
        self, target: Selection | str, delete_exports: bool, progress: Progress | None
    ) -> Receipt:
        first = scan = self._scan(target, delete_exports)
        machines, clean = reach_of(self._actor), True
        shared = machines.describe(target, first) if machines else None
        for _ in range(_ROUNDS):
            if not scan.plan:
                break
            rewrite.save_plan(self._store, replace(scan.plan, shared=shared))
            self._hide(scan.plan.stubs)
            clean = rewrite.execute_plan(self._store, scan.plan, progress)
            self._register_exports(scan.copies)
            if clean and not machines:
                rewrite.remove_plan(self._store)
            if not isinstance(target, str):
                break  # stubs stay stubs: only a text may be written again meanwhile
            self._catch_up()
            scan = self._scan(target, delete_exports)
        after, where = self._verify(first)
        now, beyond = self._actor.clock(), _list_unreachable(first, self._shared)
        receipt = Receipt(first.plan.id, now, True, first.copies, after, where, clean, beyond)
        purged = self._journal(PurgeEvent(receipt=_without_words(receipt), shared=shared))
        if machines:
            if clean:
                rewrite.remove_plan(self._store)
            receipt = replace(receipt, pending=tuple(machines.pending(purged)))
        return receipt

    def _journal(self, payload: PurgeEvent) -> JournalEvent:
        """Journal that a purge is done; other machines then apply it when they follow."""
        event = self._actor.event(payload)
        self._store.append_events([event], shared=True)
        if machines := reach_of(self._actor):
            machines.confirm([payload.receipt["purge"]])
        return event

    def _hide(self, items: Collection[str]) -> None:
        """Hide items immediately, everywhere and permanently."""
        if not items:
            return
        with self._store.session() as reader:
            visible = [item for item in sorted(items) if not reader.state(item).forgotten]
        if visible:
            event = self._actor.event(ForgetEvent(items=tuple(visible)))
            self._store.append_events([event], shared=True)

    def _register_exports(self, copies: Copies) -> None:
        """Register edited exports with their new digests."""
        folder = self._store.project_folder.path
        registered = {str(file.path): file.kind for file in home_files.list_exports(folder)}
        for export in copies.exports:
            path = export["path"]
            if export["what"] == "rewritten" and path in registered:
                file = Path(path)
                home_files.register_export(folder, file, registered[path], content=file)

    # -- verification --------------------------------------------------------------------------

    def _verify(self, first: CopyScan) -> tuple[dict[str, int], tuple[str, ...]]:
        """Search for all copies again: in every line, by recall, and byte for byte."""
        self._store.catch_up_all()
        second = CopyScanner(self._store).rescan(first)
        copies = second.copies
        files = home_files.list_all_files(self._store)
        exported = [Path(export["path"]) for export in first.copies.exports]
        files.update(path for path in exported if path.is_file())
        encoded = isinstance(first.finder, TextFinder)  # a text, wherever it occurs
        by_file = count_in_files(sorted(files), first.needles, encoded=encoded)
        names = names_in_use(self._store, first.needles)
        lines = (
            copies.entries,
            copies.facts,
            copies.experiences,
            copies.summaries,
            copies.answers,
            copies.journal,
            copies.unreadable,
        )
        counts = {
            "lines": sum(lines),
            "recalls": self._count_recalled(first),
            "vectors": copies.vectors,
            "ngrams": copies.ngrams,
            "bytes": sum(by_file.values()),
            "files": len(second.plan.plain) + len(copies.left),
            "names": len(names),
        }
        return counts, tuple(sorted({*by_file, *names, *(left["path"] for left in copies.left)}))

    def _count_recalled(self, first: CopyScan) -> int:
        """Recall each text as its own agent would; count the hits that still show it."""
        needles = [needle.casefold() for needle in first.needles if needle != PURGED_MARK]
        count = 0
        # Nothing of this is journalled, and no endpoint receives the words again.
        by_meaning = not isinstance(self._store.embedder, RemoteEmbedder)
        for agent, sender, text in first.queries[:_MAX_QUERIES]:
            recaller = Recaller(replace(self._actor, agent=agent))
            viewer = Viewer(agent, sender or None, read_all=not agent, at=self._actor.clock())
            for hit in recaller.plan(text, viewer, by_meaning=by_meaning).hits:
                folded = hit.text.casefold()
                is_left = hit.id in first.plan.stubs or any(n in folded for n in needles)
                count += is_left
        return count


def _list_unreachable(scan: CopyScan, shared: bool) -> tuple[str, ...]:
    """Return the copies that a purge cannot remove, and the places it cannot check."""
    copies = scan.copies
    more = () if isinstance(scan.finder, TextFinder) else (_ITEMS_ONLY,)
    if scan.needles and min(map(len, scan.needles)) < MIN_CHARS:
        more = (*more, _TOO_SHORT)
    moved = [
        f"{export['path']}: {export['what']}"
        for export in copies.exports
        if export["what"] not in ("rewritten", "deleted", "left")
    ]
    left = [
        f"{export['path']}: an export that cannot be changed, or was changed since; delete it"
        for export in copies.exports
        if export["what"] == "left"
    ]
    untreated = [f"{file['path']}: {file['why']}" for file in copies.left]
    server = _UNREACHABLE_SHARED if shared else ()
    return (*left, *moved, *untreated, *_UNREACHABLE, *server, NOT_LOOKED_FOR, *more)


def _without_words(receipt: Receipt) -> dict[str, Any]:
    """Return the part of a receipt that the journal keeps: its counts."""
    copies = {k: v for k, v in receipt.copies.to_json().items() if isinstance(v, int)}
    return {
        "purge": receipt.id,
        "copies": copies,
        "found_after": receipt.found_after,
        "clean": receipt.clean,
        "gone": receipt.gone,
    }
