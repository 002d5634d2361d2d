"""One recall, from the query to the block and its line in the journal.

Where the index, the profiles, the extensions and the packing meet; `MemTier.recall` is its door.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import EmbeddingUnavailable
from memtier_plugin.core.host import Shown
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Purpose, Source, count_tokens
from memtier_plugin.core.results import Depth, Hit, Recall, Route, Signal, Step
from memtier_plugin.core.settings.load import Settings
from memtier_plugin.core.times import aware, to_iso
from memtier_plugin.providers.embedding.remote import EndpointEmbedder, encode_query
from memtier_plugin.providers.embedding.static import UnavailableEmbedder, quantise
from memtier_plugin.retrieval import routing
from memtier_plugin.retrieval.already_shown import AlreadyShown
from memtier_plugin.retrieval.block import BlockPlan, collapse_duplicates, is_injectable
from memtier_plugin.retrieval.contradictions import StatedValue, rank_newest_first, stated_values
from memtier_plugin.retrieval.events import recall_event, recall_label
from memtier_plugin.retrieval.follow_up import follow_up
from memtier_plugin.retrieval.follow_up_budget import FollowUp
from memtier_plugin.retrieval.intent import MAX_QUERY_CHARS
from memtier_plugin.retrieval.journal import RecallJournal
from memtier_plugin.retrieval.pages import PageReader
from memtier_plugin.retrieval.search import QueryVector, Search, Viewer
from memtier_plugin.retrieval.unindexed import add_unindexed
from memtier_plugin.retrieval.unindexed import read_unindexed as unread_by
from memtier_plugin.retrieval.visibility import redact_for
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.store import DeadlineExceeded, Store
from memtier_plugin.text.passages import select_passage
from memtier_plugin.trust.fence import remove_blocks
from memtier_plugin.trust.redaction import Redactor

DEDUPLICATION_WINDOW: Final = 40  # hits among which near-duplicates are looked for
CONTRADICTION_WINDOW: Final = 64  # hits among which facts that contradict each other are
_TRIES: Final = 2  # hits that are tried for a line, for each line wanted
_REFRESH_MS: Final = 50  # how long a recall waits for the index's write lock
_EMBED: Final = 64  # texts embedded before a recall; the daemon does the rest
_NEWEST: Final = 256  # items looked at for that

_log = logging.getLogger("memtier")


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """What a query found, what of it is offered to the block, and what that took.

    ``left_out`` says why `routing` offers the others not.
    """

    degradations: Sequence[str]
    search: Search | None
    hits: Sequence[Hit]
    values: Mapping[str, StatedValue]  # by id, what its facts of single-valued relations say
    block: BlockPlan
    depth: Depth = "mixed"
    route: Route | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    already_shown: tuple[
        str, ...
    ] = ()  # what would have been offered but stands in the prompt already


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
        self._repeats = AlreadyShown(store, agent)
        self.journal = RecallJournal(store, agent)

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
        depth: Depth | None = None,
        meaning: bool = True,
        shown: Shown | None = None,
    ) -> Recall:
        """Answer one query; see `MemTier.recall`.  Without ``meaning`` it goes by words alone."""
        started = time.monotonic()
        until = None if deadline_ms is None else started + deadline_ms / 1000
        recall_id, now = new_id(), self._clock()
        asker = Viewer(self._agent, sender, self.reads_all, aware(at) or now)
        text = remove_blocks(query).strip()
        repeated = partial(self._repeats.find_shown, session_id, shown)
        asked = self.plan(text, asker, purpose, k, token_budget, until, depth, meaning, repeated)
        packing = time.monotonic()
        injected, block = asked.block.fill(recall_id)
        tokens = count_tokens(block)
        pack = Step(name="pack", ms=_since(packing), tokens=tokens, read=len(asked.block.hits))
        found = asked.search.result if asked.search else None
        recall = Recall(
            id=recall_id,
            query=text,
            label=recall_label(asked.degradations, asked.hits, found.vectors if found else 0),
            hits=tuple(asked.hits),
            injected=injected,
            text=block,
            tokens=tokens,
            ms=_since(started),
            postings=found.postings if found else 0,
            vectors=found.vectors if found else 0,
            depth=asked.depth,
            route=asked.route,
            steps=(*asked.steps, pack),
        )
        if not self._store.paused:
            size = {"sender": sender, "k": asked.block.k, "token_budget": asked.block.budget}
            known = {**size, "repeats": [*asked.already_shown]}
            self._journal_recall(recall, now, asker, session_id, run_id, purpose, known)
            if purpose == "inject" and session_id:
                self._repeats.record_injected(session_id, [hit.id for hit in injected], now)
        return recall

    def plan(
        self,
        text: str,
        asker: Viewer,
        purpose: Purpose = "search",
        k: int | None = None,
        token_budget: int | None = None,
        until: float | None = None,
        depth: Depth | None = None,
        meaning: bool = True,
        repeated: Callable[[Sequence[Hit]], set[str]] | None = None,
    ) -> RecallPlan:
        """Rank and put in order what a block may hold; nothing is journalled."""
        started, why = time.monotonic(), list[str]()
        search: Search | None = None
        hits: list[Hit] = []
        if self._store.paused:
            why.append("the project is off")
        elif text:
            try:
                with self._store.deadline(until):
                    search, hits = self._search(text, asker, until, why, near=meaning)
            except DeadlineExceeded:
                why.append("deadline")
        searched = time.monotonic()
        depth = depth or self._settings.retrieval.depth
        hits = routing.filter_depth(depth, hits)
        paper = self._settings.retrieval.profile == "paper"
        size = self._settings.paper if paper else self._settings.retrieval
        offered = self._offered(hits, purpose)
        k = size.k if k is None else k
        repeats = repeated(offered) if repeated else set()
        spared = tuple(hit.id for hit in offered[:k] if hit.id in repeats)
        offered = [hit for hit in offered if hit.id not in repeats]
        values: dict[str, StatedValue] = {}
        if not paper:
            values = stated_values(
                offered[:CONTRADICTION_WINDOW], self._settings.facts.single_valued
            )
            offered = collapse_duplicates(offered, DEDUPLICATION_WINDOW, values)
            offered = rank_newest_first(
                offered, CONTRADICTION_WINDOW, values, self._replacing(values, until)
            )
        terms = search.result.terms if search else {}
        route, lines = None, routing.RoutedHits(tuple(offered), {})
        if depth == "auto":
            tokens = self._store.tokenizer
            english = tokens.language == "english"
            found = routing.RoutingInput(text, offered, terms, tokens.words, values, english)
            route, lines = routing.route_hits(found)
        routed_at = time.monotonic()
        rounds: list[Step] = []
        if route and route.action == "R" and not paper:
            lines, rounds = self._further(found, lines, asker, purpose, until, why)
            repeats = repeated(lines.hits) if repeated else set()
            lines = replace(lines, hits=tuple(h for h in lines.hits if h.id not in repeats))
            hits += [hit for hit in lines.hits if hit.id not in {known.id for known in hits}]
        read = search.result.postings + search.result.vectors if search else 0
        steps = [Step(name="search", ms=(searched - started) * 1000, read=read)]
        if route:
            steps.append(Step(name="route", ms=(routed_at - searched) * 1000, read=len(offered)))
        budget = size.token_budget if token_budget is None else token_budget
        excerpt = str if paper else partial(self._excerpt, terms)
        tries = None if paper else _TRIES * k
        offer = BlockPlan(lines.hits, k, budget, excerpt, tries, self._settings.trust.defence)
        return RecallPlan(
            why,
            search,
            hits,
            values,
            offer,
            depth,
            route,
            lines.left_out,
            (*steps, *rounds),
            spared,
        )

    def _further(
        self,
        found: routing.RoutingInput,
        lines: routing.RoutedHits,
        asker: Viewer,
        purpose: Purpose,
        until: float | None,
        why: list[str],
    ) -> tuple[routing.RoutedHits, list[Step]]:
        """Add to the lines what further rounds find; with what there is where it is late."""

        def search(command: FollowUp) -> list[Hit]:
            near = command.kind == "semantic"
            _, hits = self._search(command.text, asker, until, why, near=near)
            # Another question's scores cannot be compared with this one's.
            hits = [replace(hit, score=0.0, signals={}) for hit in hits]
            return self._offered(hits, purpose)

        with suppress(DeadlineExceeded), self._store.deadline(until):
            pages = PageReader(self._store.reader(), asker)
            chosen, steps = follow_up(found, lines.hits, pages, search)
            return routing.RoutedHits(tuple(chosen), lines.left_out), steps
        return lines, []

    def _offered(self, hits: Sequence[Hit], purpose: Purpose) -> list[Hit]:
        guarded = self._settings.trust.defence
        return [hit for hit in hits if purpose == "search" or is_injectable(hit, guarded=guarded)]

    def _replacing(self, values: Mapping[str, StatedValue], until: float | None) -> Collection[str]:
        if values:
            with suppress(DeadlineExceeded), self._store.deadline(until):
                return self._store.reader().replacement_facts(
                    {one.about for one in values.values()}
                )
        return ()

    def _search(
        self, query: str, asker: Viewer, until: float | None, why: list[str], *, near: bool = True
    ) -> tuple[Search, list[Hit]]:
        built = self._store.reader().build_id()
        behind = self._store.refresh(self._agent, wait_ms=_REFRESH_MS, read_all=asker.read_all)
        unread: list[Entry] = []
        forgotten: set[str] = set()
        if behind:
            why.append(behind)
            # Before the index is searched: what it takes in meanwhile is seen twice, not never.
            unread, forgotten = unread_by(
                self._store, self._agent, asker.sender, read_all=asker.read_all
            )
        if self._store.stale_tokenizer:
            why.append("index made for other words")
        paper = self._settings.retrieval.profile == "paper"
        limit = self._settings.retrieval.candidates
        if not paper:
            with suppress(DeadlineExceeded), self._store.deadline(until):
                self._embed_newest()
        vector = self.embed_query(query, asker, until, why) if near else None
        with self._store.snapshot() as reader:
            if not behind and reader.build_id() != built:  # a new index, made before the last lines
                why.append(behind := "index replaced")
                unread, forgotten = unread_by(
                    self._store, self._agent, asker.sender, read_all=asker.read_all
                )
            search = Search(reader, self._store.tokenizer, self._settings, asker, until, vector)
            # What is ready when the deadline comes is served: only the search is interrupted.
            with suppress(DeadlineExceeded), self._store.deadline(until):
                if paper:
                    search.rank_as_published(query)
                else:
                    search.rank_recall_first(query, extra=self._extra())
            if search.result.late:
                search.rank_by_words()
            hits = self._hits(search.result.ranked[:limit], asker.read_all)
        if search.result.late:
            why.append("deadline")
        if search.result.partly_embedded:
            why.append("not embedded yet")
        if paper and self._settings.paper.stage_one != "bm25" and self._store.embedder is None:
            why.append("no embedding model for Stage 1")
        if behind:
            hits = add_unindexed(self._store, query, unread, forgotten, hits)[:limit]
        return search, self._reranked(query, hits, until)

    def _hits(
        self, ranked: Sequence[tuple[int, float, Mapping[str, float]]], read_all: bool
    ) -> list[Hit]:
        reader = self._store.reader()
        stored = reader.items_by_row([row for row, _, _ in ranked])
        hits = []
        for row, score, signals in ranked:
            one = stored.get(row)
            if one is None:
                continue
            sources: tuple[Source, ...]
            item = one.item
            if isinstance(item, Entry):
                entry = item
                sources = (
                    Source(
                        agent=entry.agent_id, session=entry.session_id, entry=entry.id,
                        file=one.file, line=one.line,
                    ),
                )  # fmt: skip
            else:
                # Where another agent's private line stands is not told, nor its very words; that
                # it exists, is.
                item = item if read_all else redact_for(item, self._agent)
                sources = tuple(
                    s if read_all or s.agent == self._agent else replace(s, file=None, line=None)
                    for s in reader.sources(item.id)
                )
            hits.append(
                Hit(
                    item=item, score=score, signals=signals, sources=sources,
                    weight=one.state.weight,
                )
            )  # fmt: skip
        return hits

    # -- extensions in the path of a recall ----------------------------------------------------

    def _extra(self) -> Callable[[str, Sequence[int]], Sequence[Signal]] | None:
        if not plugins.manager().hook.memtier_signals.get_hookimpls():
            return None

        def signals(query: str, rows: Sequence[int]) -> Sequence[Signal]:
            stored = self._store.reader().items_by_row(rows)
            return plugins.collect_signals(query, [stored[row].item for row in rows])

        return signals

    def embed_query(
        self, query: str, asker: Viewer, until: float | None, why: list[str]
    ) -> QueryVector | None:
        """Return the query as a vector, or None where there is none to compare with."""
        embedder = self._store.embedder
        if embedder is None:
            return None
        text = query[:MAX_QUERY_CHARS]
        if isinstance(embedder, EndpointEmbedder):
            # Nothing is sent before there is something to compare it with, and never a secret.
            reader = self._store.reader()
            mine = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)
            if not reader.vectors.is_covered(embedder.name, [*mine, *reader.shared_scopes()]):
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
        rest, and what was written under another model, is for `Reembedder`.
        """
        embedder = self._store.embedder
        if embedder is None or isinstance(embedder, EndpointEmbedder | UnavailableEmbedder):
            return
        missing = self._store.reader().rows_without_vector(embedder.name, _EMBED, _NEWEST)
        if missing:
            self._store.writer().add_vectors(embedder.name, embed_texts(embedder, missing))

    def _reranked(self, query: str, hits: list[Hit], until: float | None) -> list[Hit]:
        deadline = until if until is not None else time.monotonic() + 1.0
        first = self._settings.retrieval.k * 2
        return [*plugins.rerank_hits(query, hits[:first], deadline), *hits[first:]]

    def _excerpt(self, terms: Mapping[str, float], text: str) -> str:
        size = 4 * self._settings.retrieval.passage_tokens
        return select_passage(text, terms, self._store.tokenizer.words, size)

    def _weights(self) -> dict[str, float]:
        """Return what each signal of the profile counts."""
        paper = self._settings.retrieval.profile == "paper"
        return asdict(self._settings.paper.weights if paper else self._settings.retrieval.weights)

    def redact(self, text: str) -> str:
        """Return text as it may be kept."""
        return self._redactor.redact(text).text

    # -- the journal of recalls ----------------------------------------------------------------

    def _journal_recall(
        self,
        recall: Recall,
        now: datetime,
        asker: Viewer,
        session_id: str | None,
        run_id: str | None,
        purpose: Purpose,
        known: Mapping[str, Any],
    ) -> None:
        asked = {
            "query": self.redact(recall.query[:2000]),
            "purpose": purpose,
            "profile": self._settings.retrieval.profile,
            "weights": self._weights(),
            "session_id": session_id,
            "at": to_iso(asker.at),
            **known,
        }
        event = recall_event(recall, agent=self._agent, run_id=run_id, at=now, asked=asked)
        self.journal.write(event)


def _since(moment: float) -> float:
    return (time.monotonic() - moment) * 1000
