"""One recall: understand the query, search, select, route, pack, journal.

Each step takes the frozen record of the step before it and returns the next: `Query`, `Candidates`,
`ChosenHits`, `RecallPlan`, and at last the `Recall`.  `MemTier.recall` is its public door.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import cached_property, partial
from typing import Final

from msgspec.structs import replace

from memtier_plugin.core import plugins
from memtier_plugin.core.concurrency import delayed_collection
from memtier_plugin.core.errors import NOT_RERANKED, RerankUnavailable
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import aware, new_id
from memtier_plugin.core.records import JournalEvent, count_tokens
from memtier_plugin.core.results import DUE, REMINDS, Hit, Recall, RecallRequest, Step
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.block import BlockPlan
from memtier_plugin.retrieval.call_history import mark_calls, with_histories
from memtier_plugin.retrieval.candidates import Expansion
from memtier_plugin.retrieval.corrections import SIGNAL
from memtier_plugin.retrieval.duplicates import (
    StatedValue,
    collapse_duplicates,
    find_copies,
    mark_ended,
    rank_newest_first,
    stated_values,
)
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.journal import RecallJournal, recall_event, recall_label
from memtier_plugin.retrieval.judgement import Judge
from memtier_plugin.retrieval.plan import Candidates, ChosenHits, Query, RecallPlan, Routed
from memtier_plugin.retrieval.prompt_kind import NO_KINDS, prompt_kinds
from memtier_plugin.retrieval.query import (
    MAX_QUERY_CHARS,
    clean_query,
    read_project_names,
    without_names,
)
from memtier_plugin.retrieval.replacement import mark_replaced
from memtier_plugin.retrieval.search import (
    Ranker,
    Search,
    SearchResult,
    add_unindexed,
    embed_newest,
    embed_query,
    find_ranker,
    plugin_signals,
    read_unindexed,
)
from memtier_plugin.retrieval.session import AlreadyShown, SubjectFinder, refresh_for
from memtier_plugin.retrieval.standing import find_unpasted_orders
from memtier_plugin.retrieval.visibility import Viewer, read_hits, view_of, with_added
from memtier_plugin.retrieval.workspace import find_workspace
from memtier_plugin.storage.sessions import DeadlineExceeded, from_new_index
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.passages import SPARED_CHARS, select_passage

DEDUPLICATION_WINDOW: Final = 40  # hits among which near-duplicates are looked for
CONTRADICTION_WINDOW: Final = 64  # hits among which contradicting facts are looked for
_OWN_WORDS: Final = (SIGNAL, REMINDS, DUE)  # signals of hits that keep their words
_TRIES: Final = 2  # hits that are tried for a line, for each line requested
_RERANKED: Final = 100  # the best hits, which a plugin may order anew
_RERANK_SECONDS: Final = 5.0  # for that, where a recall has no deadline
UNROUTED: Final = "depth auto needs memtier-papers: all that was found is shown"
_DEFAULTS: Final = RecallRequest()


class Recaller:
    """Answers the queries of one agent; keeps what it injected until the run is credited."""

    def __init__(self, actor: Actor, settings: Settings | None = None) -> None:
        self.stage: str | None = None  # of the ranker's; None lets it decide
        self._actor = actor
        self.store = actor.store
        self.settings = settings or actor.store.settings
        self.already_shown = AlreadyShown(actor.store, actor.agent)
        self._judge = Judge(actor.store, self.settings, self.already_shown)
        self.journal = RecallJournal(actor, self.already_shown)
        self.subjects = SubjectFinder(actor.store, self.journal.asked_in)
        self.workspace = find_workspace(actor.workspace)

    @property
    def reads_all(self) -> bool:
        """True if this agent may read every agent's entries."""
        rights = self.settings.agents.get(self._actor.agent)
        return self._actor.everybody or (rights is not None and rights.read_all)

    def viewer(self, sender: str | None, at: datetime, *, searches: bool = True) -> Viewer:
        """Return this agent as it asks for a sender, with what the project grants it.

        Args:
            searches: off leaves the index alone, and with it whom the sender is linked with.
        """
        return view_of(self._actor, self.settings, sender, at, searches=searches)

    @cached_property
    def ranker(self) -> Ranker:
        """The ranker of the profile."""
        return find_ranker(self.settings)

    @from_new_index
    def recall(
        self,
        text: str,
        request: RecallRequest = _DEFAULTS,
        *,
        by_meaning: bool = True,
        expands: bool = True,
    ) -> Recall:
        """Answer one query; see `MemTier.recall`.

        Args:
            by_meaning: off lets the search go by words alone.
            expands: off searches for the query alone, whatever plugins would add.
        """
        recall, event, recalled = self._answer(text, request, by_meaning, expands)
        if not self.store.paused:
            self.journal.write(event, recalled)
        return recall

    def rehearse(self, text: str, request: RecallRequest) -> JournalEvent:
        """Return the event of a recall as it would be made now; nothing is journalled."""
        return self._answer(text, request, True, True)[1]

    def _answer(
        self, text: str, request: RecallRequest, by_meaning: bool, expands: bool
    ) -> tuple[Recall, JournalEvent, RecallEvent]:
        """Return a recall, and its event with what that holds."""
        started = time.monotonic()
        recall_id, now = new_id(), self._actor.clock()
        mask = self._actor.mask_name
        request = replace(
            request,
            session_id=mask(request.session_id),
            run_id=mask(request.run_id),
            sender=mask(request.sender),
        )
        text, paused = clean_query(text), self.store.paused
        # Where nothing is searched, a broken index does no harm.
        session = self.store.session() if text and not paused else nullcontext()
        with delayed_collection(), session:
            viewer = self.viewer(request.sender, aware(request.at) or now, searches=bool(text))
            plan = self.plan(
                text,
                viewer,
                request,
                by_meaning=by_meaning,
                started=started,
                search_talk=False,
                expands=expands and by_meaning,
            )
            recall = self._pack(plan, recall_id, started)
        return recall, *self._event(recall, plan, now)

    def plan(
        self,
        text: str,
        viewer: Viewer,
        request: RecallRequest = _DEFAULTS,
        *,
        by_meaning: bool = True,
        started: float | None = None,
        search_talk: bool = True,
        expands: bool = False,
    ) -> RecallPlan:
        """Rank hits for a query, and put in order what a block may hold; nothing is journalled.

        Args:
            search_talk: off saves the search for a prompt that gets nothing, whatever is found.
            expands: whether plugins may add another text to search for.
        """
        started = time.monotonic() if started is None else started
        query = self._understand(text, viewer, request, by_meaning, started)
        if query.kinds is not NO_KINDS:
            query = replace(query, subject=self.subjects.find(text, viewer, request, query.until))
        if expands and text and not query.paused and self.ranker.refines:
            query = replace(query, expansion=self._expand(query))
        needless = query.kinds.silence and not search_talk
        candidates = Candidates((), SearchResult(), ()) if needless else self._search(query)
        searched = time.monotonic()
        selection = self._select(query, candidates)
        routed = self._route(query, candidates, selection)
        replaced = self._judge.find_replaced(query, candidates, selection, routed.hits)
        judged = self._judge.judge(
            query, candidates, routed.hits, replaced, selection.already_shown
        )
        all_hits = candidates.hits + routed.added
        read = candidates.result.postings + candidates.result.vectors
        expanding = (query.expansion.step,) if query.expansion else ()
        search_step = Step(name="search", ms=(searched - started) * 1000, read=read)
        return RecallPlan(
            query,
            with_added(mark_calls(mark_replaced(all_hits, replaced)), judged.added),
            candidates.result,
            candidates.degradations + routed.degradations,
            selection.values,
            self._block(query, candidates.result.terms, judged),
            routed.route,
            {**routed.left_out, **judged.left_out},
            (*expanding, search_step, *candidates.result.steps, *routed.steps),
            selection.already_shown,
            judged,
            frozenset(now.by.id for now in replaced.values() if now.is_proven),
        )

    # -- understand ----------------------------------------------------------------------------

    def _understand(
        self, text: str, viewer: Viewer, request: RecallRequest, by_meaning: bool, started: float
    ) -> Query:
        settings = self.settings
        size = self.ranker.size(settings)
        deadline_ms, budget = request.deadline_ms, request.token_budget
        budget = size.token_budget if budget is None else budget
        is_judged = (
            request.purpose != "search" and settings.retrieval.floor != "off" and self.ranker.merges
        )
        paused = self.store.paused
        has_kinds = text and not paused and is_judged
        return Query(
            text,
            viewer,
            request,
            depth=request.depth or settings.retrieval.depth,
            k=size.k if request.k is None else request.k,
            token_budget=budget,
            until=None if deadline_ms is None else started + deadline_ms / 1000,
            by_meaning=by_meaning,
            ranker=self.ranker,
            is_judged=is_judged,
            guarded=settings.trust.defence,
            paused=paused,
            kinds=prompt_kinds(text, request.kind) if has_kinds else NO_KINDS,
        )

    # -- search --------------------------------------------------------------------------------

    def _expand(self, query: Query) -> Expansion | None:
        expansion: Expansion | None = plugins.expand_query(
            self._actor, query.search_text, query.request, query.viewer, query.until
        )
        return expansion

    def _search(self, query: Query) -> Candidates:
        degradations = [*query.expansion.problems] if query.expansion else []
        hits, result = list[Hit](), SearchResult()
        if query.paused:
            degradations.append("the project is off")
        elif query.text:
            try:
                with self.store.deadline(query.until):
                    hits, result = self._search_index(
                        query, query.search_text, query.by_meaning, degradations
                    )
                hits = self._rerank(query, hits, degradations)
                if self.ranker.merges:
                    hits = with_histories(self.store.reader(), hits)
            except DeadlineExceeded:
                degradations.append("deadline")
        return Candidates(tuple(query.keep_depth(hits)), result, tuple(degradations))

    def _search_index(
        self, query: Query, text: str, by_meaning: bool, degradations: list[str]
    ) -> tuple[list[Hit], SearchResult]:
        """Search for a text; what makes the result less than it should be is added to a list."""
        store, viewer, until = self.store, query.viewer, query.until
        agent, build = self._actor.agent, store.reader().build_id()
        behind = refresh_for(store, viewer)
        # Before the index is searched: what it takes in meanwhile is seen twice, not never.
        unindexed = read_unindexed(store, agent, viewer) if behind else None
        degradations += [behind] if behind else []
        if store.stale_tokenizer:
            degradations.append("index made for other words")
        if self.ranker.refines:
            with suppress(DeadlineExceeded), store.deadline(until):
                embed_newest(store)
        names = self._project_names(viewer, text)
        topic = without_names(text, names)
        vector = (
            embed_query(self._actor, topic, viewer, until, degradations) if by_meaning else None
        )
        with store.snapshot() as reader:
            if unindexed is None and reader.build_id() != build:
                # A new index, made before the last lines were written.
                degradations.append("index replaced")
                unindexed = read_unindexed(store, agent, viewer)
            search = Search(reader, store.tokenizer, self.settings, viewer, until, names)
            # What is ready when the deadline comes is served: only the search is interrupted.
            result: SearchResult | None = None
            with suppress(DeadlineExceeded), store.deadline(until):
                more = query.expansion if text == query.search_text else None
                result = search.rank(text, vector, plugin_signals(store), more, self.stage)
            result = result or search.rank_by_words()
            limit = self.settings.retrieval.candidates
            hits = read_hits(reader, result.ranked[:limit], viewer, result.evidence)
        degradations += self._search_problems(result)
        if unindexed is not None:
            hits = add_unindexed(store, text, unindexed, hits)[:limit]
        if self.ranker.merges:
            hits = plugins.annotate_hits(mark_ended(hits, viewer.at), self.settings)
        return hits, result

    def _project_names(self, viewer: Viewer, text: str) -> tuple[str, ...]:
        """Return the words of a query that name the project: its own name, or one it is called."""
        if not self.ranker.merges:
            return ()
        reader = self.store.reader()
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
        return read_project_names(reader, scopes, text, (self.store.project, self._actor.agent))

    def _search_problems(self, result: SearchResult) -> Iterator[str]:
        if result.late:
            yield "deadline"
        if result.partly_embedded:
            yield "not embedded yet"
        embeds = self.store.embedder is not None
        yield from self.ranker.find_problems(self.settings, embeds=embeds)

    def _rerank(self, query: Query, hits: list[Hit], degradations: list[str]) -> list[Hit]:
        """Return the hits as a plugin orders the first of them."""
        if not self.ranker.refines:
            return hits
        until, text = query.until, query.search_text[:MAX_QUERY_CHARS]
        deadline = until if until is not None else time.monotonic() + _RERANK_SECONDS
        try:
            ordered = plugins.rerank_hits(
                text, hits[:_RERANKED], deadline, self.settings, self.redact
            )
        except RerankUnavailable as error:
            degradations.append(f"{NOT_RERANKED}: {error}")
            return hits
        return [*ordered, *hits[_RERANKED:]]

    # -- select --------------------------------------------------------------------------------

    def _select(self, query: Query, candidates: Candidates) -> ChosenHits:
        hits = query.keep_allowed(candidates.hits)
        if candidates.by_time and query.is_judged:
            hits = [hit for hit in hits if hit.evidence is None or hit.evidence.time == 1]
        already_shown: tuple[str, ...] = ()
        if shown := self.already_shown.find_shown(query.request, hits):
            if self.ranker.merges:  # and what says the same in another line
                first = hits[:DEDUPLICATION_WINDOW]
                shown |= find_copies(first, shown, self._stated_values(hits))
            already_shown = tuple(hit.id for hit in hits[: query.k] if hit.id in shown)
            hits = [hit for hit in hits if hit.id not in shown]
        values: dict[str, StatedValue] = {}
        if self.ranker.merges:
            values = self._stated_values(hits)
            hits = collapse_duplicates(hits, DEDUPLICATION_WINDOW, values)
            replacing = self._replacing(values, query.until)
            hits = rank_newest_first(hits, CONTRADICTION_WINDOW, values, replacing)
        return ChosenHits(tuple(hits), values, already_shown)

    def _stated_values(self, hits: Sequence[Hit]) -> dict[str, StatedValue]:
        return stated_values(hits[:CONTRADICTION_WINDOW], self.settings.facts.single_valued)

    def _replacing(self, values: Mapping[str, StatedValue], until: float | None) -> Collection[str]:
        if values:
            with suppress(DeadlineExceeded), self.store.deadline(until):
                about = {value.about for value in values.values()}
                return self.store.reader().replacement_facts(about)
        return ()

    # -- route ---------------------------------------------------------------------------------

    def _route(self, query: Query, candidates: Candidates, selection: ChosenHits) -> Routed:
        if query.depth != "auto":
            return Routed(selection.hits)
        routed: Routed | None = plugins.route_hits(self, query, candidates, selection)
        return routed or Routed(selection.hits, degradations=(UNROUTED,))

    def search_again(
        self, query: Query, text: str, *, by_meaning: bool, degradations: list[str]
    ) -> list[Hit]:
        """Search for another text in a query's place; its scores cannot be compared, and are 0.

        Args:
            degradations: gets what makes the result less than it should be.
        """
        hits, _ = self._search_index(query, text, by_meaning, degradations)
        return query.keep_allowed([replace(hit, score=0.0, signals={}) for hit in hits])

    # -- pack ----------------------------------------------------------------------------------

    def _block(self, query: Query, terms: Mapping[str, float], judged: Judged) -> BlockPlan:
        k, budget, guarded = query.k, query.token_budget, query.guarded
        if not self.ranker.refines:
            return BlockPlan(judged.hits, k, budget, guarded=guarded)
        tokens = self.settings.retrieval.passage_tokens
        size = 2 * tokens if query.several else 4 * tokens  # the members of a list have half
        select = partial(select_passage, weights=terms, words=self.store.tokenizer.words)
        rules = {
            hit.text: find_unpasted_orders(hit.text)
            for hit in judged.added
            if query.kinds.task and hit.signals.keys().isdisjoint(_OWN_WORDS)
        }

        def excerpt(text: str) -> str:
            text = rules.get(text) or text  # the order alone
            return text if len(text) <= size + SPARED_CHARS else select(text, size=size)

        plan = BlockPlan(judged.hits, k, budget, excerpt, _TRIES * k, guarded)
        return replace(plan, mark=self._mark_for(judged.added)) if self.workspace else plan

    def _mark_for(self, added: Sequence[Hit]) -> Callable[[Hit, str], Hit]:
        """Return a function that notes which names in a line the workspace no longer has.

        On a rule, it also notes that the workspace's own instructions outrank it.
        """
        marker, instructions = None, ""
        if self.workspace:
            marker = self.workspace.marker()
            if any(SIGNAL in hit.signals for hit in added):
                instructions = self.workspace.instructions()

        def mark(hit: Hit, text: str) -> Hit:
            if instructions and SIGNAL in hit.signals:
                hit = hit.with_note(f"unless {instructions} says otherwise")
            return marker.mark(hit, text) if marker else hit

        return mark

    def _pack(self, plan: RecallPlan, recall_id: str, started: float) -> Recall:
        packing, result = time.monotonic(), plan.result
        packed = plugins.pack_block(plan, recall_id, self._actor, self.journal)
        injected, block, withheld = packed or (*plan.block.fill(recall_id), None)
        tokens, now = count_tokens(block), time.monotonic()
        step = Step(
            name="pack", ms=(now - packing) * 1000, tokens=tokens, read=len(plan.block.hits)
        )
        return Recall(
            id=recall_id,
            query=plan.query.text,
            label=recall_label(plan, result.vectors),
            hits=plan.hits,
            injected=injected,
            text=block,
            tokens=tokens,
            ms=(now - started) * 1000,
            postings=result.postings,
            vectors=result.vectors,
            depth=plan.query.depth,
            route=plan.route,
            steps=(*plan.steps, step),
            probability=plan.judged.probability,
            silent=plan.judged.silent,
            withheld=withheld,
        )

    # -- journal -------------------------------------------------------------------------------

    def _event(
        self, recall: Recall, plan: RecallPlan, now: datetime
    ) -> tuple[JournalEvent, RecallEvent]:
        request, settings = plan.query.request, self.settings
        event = recall_event(
            recall,
            plan,
            query=self.redact(plan.query.full_text[:2000]),
            profile=settings.retrieval.profile,
            weights=self.ranker.weights(settings, plan.result.model),
        )
        written = self._actor.event(event, run=request.run_id, at=now, event_id=recall.id)
        return written, event

    def redact(self, text: str) -> str:
        """Return a text as it may be kept."""
        return self._actor.redactor.redact(text).text
