"""Purging: the one thing that rewrites ledgers, with a receipt (design 4.6).

First everything that is to go is found and written down (where, never what), then hidden by a
tombstone, then taken out of the files and the index, and then looked for again.  The receipt says
what was found before and after, and what cannot be reached from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.locks import hold_lock
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.lifecycle.purge import rewrite
from memtier_plugin.lifecycle.purge.files import count_in_files
from memtier_plugin.lifecycle.purge.plan import MIN_TEXT_CHARS, PURGED_MARK
from memtier_plugin.lifecycle.purge.rewrite import Progress
from memtier_plugin.lifecycle.purge.scan import Copies, CopyScan, CopyScanner
from memtier_plugin.lifecycle.selection import Selection, select_items
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.retrieval.query import Viewer
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage import export_register
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.scrub import index_files
from memtier_plugin.storage.store import LOCK_SECONDS, Store
from memtier_plugin.trust.redaction import Redactor

_ROUNDS: Final = 3  # passes over what others wrote meanwhile
_MAX_QUERIES: Final = 50  # texts that are asked for in the end
_UNREACHABLE: Final = (
    "the transcripts that the host itself keeps, and what it holds in memory",
    "backups and copies of the home that MemTier did not make",
    "what was sent to an endpoint (a chat model, an embedding model)",
    "blocks that a file system, a snapshot or an SSD has not yet overwritten",
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a purge found, did, and found again; ``found_after`` is by how it was looked for.

    ``done`` is False for what was only looked at; ``clean`` is False while another process holds
    the old index, and what is left is completed by the next purge or the daemon.
    """

    id: str
    at: datetime
    done: bool
    copies: Copies
    found_after: dict[str, int] = field(default_factory=dict)
    where_after: tuple[str, ...] = ()
    clean: bool = True
    beyond: tuple[str, ...] = ()

    @property
    def gone(self) -> bool:
        """Whether nothing was found any more."""
        return self.done and self.clean and not any(self.found_after.values())

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
        }


class Purger:
    """Purges in one project, in the name of one agent."""

    def __init__(
        self, store: Store, agent: str, redactor: Redactor, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._agent = agent
        self._redactor = redactor
        self._clock = clock

    def purge(
        self,
        wanted: Selection | str,
        *,
        dry_run: bool = False,
        delete_exports: bool = False,
        progress: Progress | None = None,
    ) -> Receipt:
        """Take what is selected, or a text wherever it stands, out of everything.

        Args:
            dry_run: only say where copies are.
            delete_exports: delete files that MemTier exported and that hold it, also those whose
                text cannot be changed.

        Raises:
            MessageError: a text is too short to be told from others.
            NotFound: nothing is selected.
            LedgerError, IndexProblem: it is not, or not wholly, purged; do it again.
        """
        if isinstance(wanted, str) and len(wanted.strip()) < MIN_TEXT_CHARS:
            raise MessageError(f"a text of less than {MIN_TEXT_CHARS} characters stands everywhere")
        if dry_run:
            self._sweep()
            found = self._scan(wanted, delete_exports)
            return Receipt(
                found.plan.id,
                self._clock(),
                False,
                found.copies,
                beyond=self._unreachable(found.copies),
            )
        with hold_lock(self._store.folder / rewrite.LOCK_FILE, LOCK_SECONDS):
            self._complete(progress)
            self._sweep()
            return self._purge(wanted, delete_exports, progress)

    def complete(self, progress: Progress | None = None, *, wait: float = LOCK_SECONDS) -> bool:
        """Complete a purge that was cut off; tell whether there was one and it is now whole.

        Args:
            wait: seconds, for a process that is at work on it.

        Raises:
            LedgerError, IndexProblem: it is not yet.
        """
        if not rewrite.is_in_progress(self._store.folder):
            return False
        with hold_lock(self._store.folder / rewrite.LOCK_FILE, wait):
            return self._complete(progress)

    def _complete(self, progress: Progress | None) -> bool:
        plan = rewrite.load_plan(self._store.folder)
        if plan is None:
            return False
        self._hide(plan.stubs)
        clean = rewrite.execute_plan(self._store, plan, progress)
        if clean:
            rewrite.remove_plan(self._store)
        return clean

    def _sweep(self) -> None:
        # What was written ahead holds the texts of facts.
        FactWriter(self._store, self._agent, self._clock).recover()
        self._store.catch_up_all()

    def _scan(self, wanted: Selection | str, delete_exports: bool) -> CopyScan:
        tracker = CopyScanner(self._store, delete_exports=delete_exports)
        if isinstance(wanted, str):
            return tracker.scan_text(wanted)
        return tracker.scan_items(*select_items(self._store, wanted))

    def _purge(
        self, wanted: Selection | str, delete_exports: bool, progress: Progress | None
    ) -> Receipt:
        first = found = self._scan(wanted, delete_exports)
        clean, again = True, wanted
        for _ in range(_ROUNDS):
            if not found.plan:
                break
            rewrite.save_plan(self._store, found.plan)
            self._hide(found.plan.stubs)
            clean = rewrite.execute_plan(self._store, found.plan, progress)
            self._note_exports(found.copies)
            if clean:
                rewrite.remove_plan(self._store)
            if not isinstance(again, str):
                break  # stubs are stubs: only what repeats a text may come anew
            self._sweep()
            found = self._scan(again, delete_exports)
        after, where = self._verify(first)
        receipt = Receipt(
            first.plan.id, self._clock(), True, first.copies, after, where, clean,
            self._unreachable(first.copies),
        )  # fmt: skip
        self._journal("purge", receipt=_without_words(receipt))
        return receipt

    def _hide(self, items: Collection[str]) -> None:
        """Hide items at once, everywhere and for good."""
        if not items:
            return
        with self._store.session() as reader:
            shown = [item for item in sorted(items) if not reader.state(item).forgotten]
        if shown:
            self._journal("forget", items=shown, session=None)

    def _journal(self, kind: str, **data: Any) -> None:
        event = JournalEvent(
            id=new_id(), timestamp=self._clock(), kind=kind, agent_id=self._agent, data=data
        )
        self._store.append_events([event], shared=True)

    def _note_exports(self, copies: Copies) -> None:
        known = {str(one.path): one for one in export_register.list_exports(self._store.folder)}
        for one in copies.exports:
            if one["what"] == "rewritten" and one["path"] in known:
                export_register.register_export(
                    self._store.folder, Path(one["path"]), known[one["path"]].kind
                )

    # -- the proof -----------------------------------------------------------------------------

    def _verify(self, first: CopyScan) -> tuple[dict[str, int], tuple[str, ...]]:
        """Look for all of it again: in every line, by recall, and byte for byte."""
        self._store.catch_up_all()
        lines = CopyScanner(self._store).rescan(first)
        files = [path for path in self._store.home.rglob("*") if path.is_file()]
        files += [path for path in index_files(self._store.index) if path not in files]
        files += [Path(one["path"]) for one in first.copies.exports if Path(one["path"]).is_file()]
        seen = count_in_files(sorted(set(files)), first.needles)
        found = {
            "lines": lines.entries + lines.facts + lines.experiences + lines.summaries
            + lines.answers + lines.journal + lines.unreadable,
            "recalls": self._count_recalled(first),
            "vectors": lines.vectors,
            "ngrams": lines.ngrams,
            "bytes": sum(seen.values()),
        }  # fmt: skip
        return found, tuple(sorted({*seen, *(one["path"] for one in lines.left)}))

    def _count_recalled(self, first: CopyScan) -> int:
        """Ask for each text as its own agent would; count what still shows it."""
        count = 0
        # Nothing of this is journalled, and no endpoint gets the words once more.
        near = not isinstance(self._store.embedder, EndpointEmbedder)
        for agent, sender, text in first.queries[:_MAX_QUERIES]:
            recaller = Recaller(Actor(self._store, agent, self._clock, self._redactor))
            asker = Viewer(agent, sender or None, read_all=not agent, at=self._clock())
            hits = recaller.plan(text, asker, by_meaning=near).hits
            count += sum(
                hit.id in first.plan.stubs or any(n.casefold() in hit.text.casefold()
                                                  for n in first.needles if n != PURGED_MARK)
                for hit in hits
            )  # fmt: skip
        return count

    def _unreachable(self, copies: Copies) -> tuple[str, ...]:
        moved = [f"{one['path']}: {one['what']}" for one in copies.exports
                 if one["what"] not in ("rewritten", "deleted", "left")]  # fmt: skip
        left = [
            f"{one['path']}: an export that cannot be changed, or was changed since; delete it"
            for one in copies.exports if one["what"] == "left"
        ]  # fmt: skip
        other = [f"{one['path']}: {one['why']}" for one in copies.left]
        return (*left, *moved, *other, *_UNREACHABLE)


def _without_words(receipt: Receipt) -> dict[str, Any]:
    document = receipt.to_json()
    copies = {k: v for k, v in document["copies"].items() if isinstance(v, int)}
    return {"purge": receipt.id, "copies": copies, "found_after": receipt.found_after,
            "clean": receipt.clean, "gone": receipt.gone}  # fmt: skip
