"""One recall, from the query to the block and its line in the journal.

Where the index, the profiles, the extensions and the packing meet; `MemTier.recall` is its door.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from memtier_plugin import plugins
from memtier_plugin.conflicts import Stated, newest_first, stated
from memtier_plugin.embedding import NoEmbedder, quantise
from memtier_plugin.embedding_endpoint import EndpointEmbedder, encode_query
from memtier_plugin.errors import EmbeddingUnavailable, IndexProblem, LedgerError
from memtier_plugin.home import PROJECT_JOURNAL
from memtier_plugin.index_items import vectors_of
from memtier_plugin.packing import Offer, clean, distinct
from memtier_plugin.passages import best_passage
from memtier_plugin.records import (
    Entry,
    Fact,
    Hit,
    JournalEvent,
    Purpose,
    Recall,
    Signal,
    Source,
    count_tokens,
    new_id,
    to_iso,
)
from memtier_plugin.redaction import Redactor
from memtier_plugin.retrieval import MAX_QUERY, Asker, QueryVector, Search
from memtier_plugin.settings import Settings
from memtier_plugin.store import Late, Store

NEAR_MISSES: Final = 8
DISTINCT: Final = 40  # hits among which near-duplicates are looked for
CONTRADICTING: Final = 64  # hits among which facts that contradict each other are
_TRIES: Final = 2  # hits that are tried for a line, for each line wanted
_REMEMBER_RUNS: Final = 512  # recalls kept in mind for runs that have not ended
_REFRESH_MS: Final = 50  # how long a recall waits for the index's write lock
_EMBED: Final = 64  # texts embedded before a recall; the daemon does the rest
_NEWEST: Final = 256  # items looked at for that

_log = logging.getLogger("memtier")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query found, and what of it is offered to the block."""

    why: Sequence[str]
    search: Search | None
    hits: Sequence[Hit]
    values: Mapping[str, Stated]  # by id, what its facts of single-valued relations say
    offer: Offer


class Recaller:
    """Answers the queries of one agent, and keeps what it injected until the run is settled."""

    def __init__(
        self,
        store: Store,
        agent: str,
        redactor: Redactor,
        clock: Callable[[], datetime],
        settings: Settings | None = None,
    ) -> None:
        self._store = store
        self._agent = agent
        self._redactor = redactor
        self._clock = clock
        self._settings = settings or store.settings
        self._waiting: dict[tuple[str, str], list[JournalEvent]] = {}
        self._mutex = threading.Lock()

    @property
    def reads_all(self) -> bool:
        """Whether the project grants this agent every agent's entries."""
        rights = self._settings.agents.get(self._agent)
        return rights is not None and rights.read_all

    def recall(
        self,
        query: str,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        purpose: Purpose = "search",
        k: int | None = None,
        token_budget: int | None = None,
        at: datetime | None = None,
        sender: str | None = None,
        deadline_ms: float | None = None,
    ) -> Recall:
        """Answer one query; see `MemTier.recall`."""
        started = time.monotonic()
        until = None if deadline_ms is None else started + deadline_ms / 1000
        recall_id, now = new_id(), self._clock()
        asker = Asker(self._agent, sender, self.reads_all, aware(at) or now)
        text = clean(query).strip()
        asked = self.ask(text, asker, purpose, k, token_budget, until)
        injected, block = asked.offer.filled(recall_id)
        found = asked.search.found if asked.search else None
        recall = Recall(
            id=recall_id,
            query=text,
            label=_label(asked.why, asked.hits, found.vectors if found else 0),
            hits=tuple(asked.hits),
            injected=injected,
            text=block,
            tokens=count_tokens(block),
            ms=(time.monotonic() - started) * 1000,
            postings=found.postings if found else 0,
            vectors=found.vectors if found else 0,
        )
        if not self._store.paused:
            size = {"sender": sender, "k": asked.offer.k, "token_budget": asked.offer.budget}
            self._journal_recall(recall, now, asker, session_id, run_id, purpose, size)
        return recall

    def ask(
        self,
        text: str,
        asker: Asker,
        purpose: Purpose = "search",
        k: int | None = None,
        token_budget: int | None = None,
        until: float | None = None,
    ) -> Asked:
        """Rank and put in order what a block may hold; nothing is journalled."""
        why: list[str] = []
        search: Search | None = None
        hits: list[Hit] = []
        if self._store.paused:
            why.append("the project is off")
        elif text:
            try:
                with self._store.deadline(until):
                    search, hits = self._search(text, asker, until, why)
            except Late:
                why.append("deadline")
        paper = self._settings.retrieval.profile == "paper"
        size = self._settings.paper if paper else self._settings.retrieval
        offered = [hit for hit in hits if purpose == "search" or injectable(hit)]
        values: dict[str, Stated] = {}
        if not paper:
            values = stated(offered[:CONTRADICTING], self._settings.facts.single_valued)
            offered = distinct(offered, DISTINCT, values)
            offered = newest_first(offered, CONTRADICTING, values, self._replacing(values, until))
        k = size.k if k is None else k
        budget = size.token_budget if token_budget is None else token_budget
        excerpt = str if paper else partial(self._excerpt, search.found.terms if search else {})
        offer = Offer(offered, k, budget, excerpt, None if paper else _TRIES * k)
        return Asked(why, search, hits, values, offer)

    def _replacing(self, values: Mapping[str, Stated], until: float | None) -> Collection[str]:
        if values:
            with suppress(Late), self._store.deadline(until):
                return self._store.reader().replacing({one.about for one in values.values()})
        return ()

    def _search(
        self, query: str, asker: Asker, until: float | None, why: list[str]
    ) -> tuple[Search, list[Hit]]:
        behind = self._store.refresh(self._agent, wait_ms=_REFRESH_MS, read_all=asker.read_all)
        unread: list[Entry] = []
        forgotten: set[str] = set()
        if behind:
            why.append(behind)
            # Before the index is searched: what it takes in meanwhile is seen twice, not never.
            unread, forgotten = self._unread(asker)
        if self._store.stale_words:
            why.append("index made for other words")
        paper = self._settings.retrieval.profile == "paper"
        limit = self._settings.retrieval.candidates
        if not paper:
            with suppress(Late), self._store.deadline(until):
                self._embed_newest()
        near = self.query_vector(query, asker, until, why)
        with self._store.snapshot() as reader:
            search = Search(reader, self._store.tokenizer, self._settings, asker, until, near)
            # What is ready when the deadline comes is served: only the search is interrupted.
            with suppress(Late), self._store.deadline(until):
                if paper:
                    search.as_published(query)
                else:
                    search.recall_first(query, extra=self._extra())
            if search.found.late:
                search.by_words()
            hits = self._hits(search.found.ranked[:limit], asker.read_all)
        if search.found.late:
            why.append("deadline")
        if search.found.half_embedded:
            why.append("not embedded yet")
        if paper and self._settings.paper.stage_one != "bm25" and self._store.embedder is None:
            why.append("no embedding model for Stage 1")
        if behind:
            hits = self._with_unread(query, unread, forgotten, hits)[:limit]
        return search, self._reranked(query, hits, until)

    def _hits(
        self, ranked: Sequence[tuple[int, float, Mapping[str, float]]], read_all: bool
    ) -> list[Hit]:
        reader = self._store.reader()
        stored = reader.stored([row for row, _, _ in ranked])
        hits = []
        for row, score, signals in ranked:
            one = stored.get(row)
            if one is None:
                continue
            sources: tuple[Source, ...]
            if isinstance(one.item, Entry):
                entry = one.item
                sources = (
                    Source(
                        agent=entry.agent_id, session=entry.session_id, entry=entry.id,
                        file=one.file, line=one.line,
                    ),
                )  # fmt: skip
            else:
                # Where another agent's private line stands is not told; that it exists, is.
                sources = tuple(
                    s if read_all or s.agent == self._agent else replace(s, file=None, line=None)
                    for s in reader.sources(one.item.id)
                )
            hits.append(
                Hit(
                    item=one.item, score=score, signals=signals, sources=sources,
                    weight=one.state.weight,
                )
            )  # fmt: skip
        return hits

    def _unread(self, asker: Asker) -> tuple[list[Entry], set[str]]:
        """Return what the index could not take yet: own entries, and what was forgotten."""
        try:
            events = self._store.unread_events(PROJECT_JOURNAL)
            entries = self._store.unread_entries(self._agent)
        except LedgerError as error:  # the label says that the index is behind
            _log.warning("%s: %s", self._agent, error)
            return [], set()
        visible = [
            entry
            for entry in entries
            if entry.retrievable
            and (asker.read_all or (entry.sender or "") == (asker.sender or ""))
        ]
        return visible, {
            item for event in events if event.kind == "forget" for item in event.data["items"]
        }

    def _with_unread(
        self, query: str, unread: Sequence[Entry], forgotten: set[str], hits: list[Hit]
    ) -> list[Hit]:
        reader, words = self._store.reader(), self._store.tokenizer.words
        hits = [hit for hit in hits if hit.id not in forgotten]
        out = forgotten | {hit.id for hit in hits}
        terms = set(words(query))
        for entry in unread:
            shared = terms.intersection(words(entry.content))
            if shared and entry.id not in out and not reader.state(entry.id).forgotten:
                part = len(shared) / len(terms)
                source = Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id)
                hits.append(Hit(item=entry, score=part, signals={"words": part}, sources=(source,)))
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))

    # -- extensions in the path of a recall ----------------------------------------------------

    def _extra(self) -> Callable[[str, Sequence[int]], Sequence[Signal]] | None:
        if not plugins.manager().hook.memtier_signals.get_hookimpls():
            return None

        def signals(query: str, rows: Sequence[int]) -> Sequence[Signal]:
            stored = self._store.reader().stored(rows)
            return plugins.signals(query, [stored[row].item for row in rows])

        return signals

    def query_vector(
        self, query: str, asker: Asker, until: float | None, why: list[str]
    ) -> QueryVector | None:
        """Return the query as a vector, or None where there is none to compare with."""
        embedder = self._store.embedder
        if embedder is None:
            return None
        text = query[:MAX_QUERY]
        if isinstance(embedder, EndpointEmbedder):
            # Nothing is sent before there is something to compare it with, and never a secret.
            reader = self._store.reader()
            mine = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)
            if not reader.vectors.enough(embedder.name, [*mine, *reader.shared()]):
                why.append("not embedded yet")
                return None
            text = self._redactor.redact(text).text
        try:
            [vector] = quantise([encode_query(embedder, text, until)])
        except EmbeddingUnavailable as error:
            why.append(f"embedding: {error}")
            return None
        return QueryVector(embedder.name, vector) if any(vector) else None

    def _embed_newest(self) -> None:
        """Embed some new items that have no vector of the current model.

        A static model embeds what is written at once; this is for models that plugins bring. The
        rest, and what was written under another model, is for `Reembedding`.
        """
        embedder = self._store.embedder
        if embedder is None or isinstance(embedder, EndpointEmbedder | NoEmbedder):
            return
        missing = self._store.reader().without_vector(embedder.name, _EMBED, _NEWEST)
        if missing:
            self._store.writer().add_vectors(embedder.name, vectors_of(embedder, missing))

    def _reranked(self, query: str, hits: list[Hit], until: float | None) -> list[Hit]:
        deadline = until if until is not None else time.monotonic() + 1.0
        first = self._settings.retrieval.k * 2
        return [*plugins.rerank(query, hits[:first], deadline), *hits[first:]]

    def _excerpt(self, terms: Mapping[str, float], text: str) -> str:
        size = 4 * self._settings.retrieval.passage_tokens
        return best_passage(text, terms, self._store.tokenizer.words, size)

    def _weights(self) -> dict[str, float]:
        """Return what each signal of the profile counts."""
        paper = self._settings.retrieval.profile == "paper"
        return asdict(self._settings.paper.weights if paper else self._settings.retrieval.weights)

    # -- the journal of recalls ----------------------------------------------------------------

    def _journal_recall(
        self,
        recall: Recall,
        now: datetime,
        asker: Asker,
        session_id: str | None,
        run_id: str | None,
        purpose: Purpose,
        size: Mapping[str, Any],
    ) -> None:
        shown = {hit.id for hit in recall.injected}
        near = [hit for hit in recall.hits if hit.id not in shown][:NEAR_MISSES]
        event = JournalEvent(
            id=recall.id,
            timestamp=now,
            kind="recall",
            agent_id=self._agent,
            run_id=run_id,
            data={
                "query": self._redactor.redact(recall.query[:2000]).text,
                "purpose": purpose,
                "profile": self._settings.retrieval.profile,
                "weights": self._weights(),
                "session_id": session_id,
                "at": to_iso(asker.at),
                **size,
                "label": recall.label,
                "ms": round(recall.ms, 3),
                "postings": recall.postings,
                "vectors": recall.vectors,
                "injected": [_journalled(hit, recall.hits) for hit in recall.injected],
                "near_misses": [_journalled(hit, recall.hits) for hit in near],
            },
        )
        try:
            self._store.journal([event], timeout=0.2)
        except LedgerError as error:
            _log.warning("recall %s is not in the journal: %s", recall.id, error)
        if purpose == "inject":
            with self._mutex:
                self._waiting.setdefault((run_id or "", session_id or ""), []).append(event)
                while len(self._waiting) > _REMEMBER_RUNS:  # runs that never ended
                    self._waiting.pop(next(iter(self._waiting)))

    def injected_into(
        self, run_id: str | None, session_id: str, recall_ids: Collection[str] | None
    ) -> list[JournalEvent]:
        """Return the recalls whose block a run had in its prompt, wherever they were made."""
        with self._mutex:
            mine = self._waiting.pop((run_id or "", session_id), [])
        found = {event.id: event for event in mine}
        try:
            reader = self._store.reader()
            written = self._store.unread_events(self._agent)
            if run_id:
                written += reader.events_of_run(self._agent, run_id, "recall")
                written = [event for event in written if event.run_id == run_id]
            else:
                written = []
            written += [event for i in recall_ids or () if (event := reader.event(i))]
            found |= {event.id: event for event in written if event.kind == "recall"}
        except IndexProblem as problem:
            _log.warning("only this process's recalls are credited: %s", problem)
        chosen = [e for i, e in found.items() if recall_ids is None or i in recall_ids]
        return [event for event in chosen if event.data["purpose"] == "inject"]


def aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone; one without is UTC."""
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def _label(why: Sequence[str], hits: Sequence[Hit], vectors: int) -> str:
    if why:
        return f"degraded: {', '.join(dict.fromkeys(why))}"
    if not hits:
        return "empty"
    return "hybrid" if vectors else "lexical"


def injectable(hit: Hit) -> bool:
    """Tell whether a hit may stand in a prompt that nobody asked to have it in."""
    item = hit.item
    if isinstance(item, Fact):
        return True
    return item.role in ("user", "assistant") and item.origin != "external"


def _journalled(hit: Hit, hits: Sequence[Hit]) -> dict[str, Any]:
    return {
        "item": hit.id,
        "rank": next(place for place, other in enumerate(hits, 1) if other.id == hit.id),
        "tier": hit.tier,
        "score": round(hit.score, 9),
        "weight": hit.weight,
        "signals": {name: round(value, 6) for name, value in hit.signals.items()},
        **({"note": hit.note} if hit.note else {}),
    }
