"""Choose the lines worth showing: by the kind of prompt, by currency, by the floor.

Each rule is a module of its own (`prompt_kind`, `replacement`, `non_answers`, `floor`, `standing`,
`session_lines`); here they meet.  A search shows what does not pass after what does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import FloorLevel, Hit
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.already_shown import AlreadyShown
from memtier_plugin.retrieval.candidates import FEW, MIN_COSINE
from memtier_plugin.retrieval.contradictions import hit_time
from memtier_plugin.retrieval.evidence import QueryEvidence
from memtier_plugin.retrieval.floor import Judged, apply_floor, block_bar, mark_nearest, refuse_all
from memtier_plugin.retrieval.non_answers import (
    find_non_answers,
    keep_answering,
    leave_out_letters,
    leave_out_restated,
    let_replies_answer,
)
from memtier_plugin.retrieval.plan import Candidates, Query, Selection
from memtier_plugin.retrieval.prompt_kind import SHORT_PROMPT_WORDS, PromptKinds
from memtier_plugin.retrieval.prompt_words import speaks_of_oneself
from memtier_plugin.retrieval.replacement import (
    CONSIDERED,
    Replacement,
    find_replacements,
    mark_replaced,
    newest_first,
    put_current_first,
)
from memtier_plugin.retrieval.routing import RoutedHits
from memtier_plugin.retrieval.session_lines import newest_of_session, select_last
from memtier_plugin.retrieval.standing import read_standing, select_standing
from memtier_plugin.retrieval.succession import Rarity
from memtier_plugin.retrieval.working_memory import NOTE, is_left_behind, read_working
from memtier_plugin.storage.sessions import DeadlineExceeded
from memtier_plugin.storage.store import Store

ASKED_LEVEL: Final[FloorLevel] = (
    "quiet"  # of what answers a question: a wrong answer is worse than none
)
_FIRST: Final = 3  # of the hits, by which is told whether what was found is the asker's own


class Judge:
    """Judges the lines of one agent's recalls."""

    def __init__(self, store: Store, settings: Settings, already_shown: AlreadyShown) -> None:
        self._store = store
        self._settings = settings
        self._already_shown = already_shown

    def judge(
        self,
        query: Query,
        candidates: Candidates,
        lines: RoutedHits,
        replaced: Mapping[str, Replacement],
        already_shown: Collection[str] = (),
    ) -> Judged:
        """Return the lines that are worth showing; a search shows the others after them, marked.

        Args:
            already_shown: the ids of what was found and stands in the conversation.
        """
        searching, asking = (query.request.purpose == p for p in ("search", "ask"))
        if not (query.ranker.merges or asking):
            return Judged(lines.hits)
        staying = _said_then(lines.hits, replaced)
        moving = {older: now for older, now in replaced.items() if older not in staying}
        current = put_current_first(mark_replaced(lines.hits, staying), moving)
        level, evidence = self._settings.retrieval.floor, candidates.result.query_evidence
        terms, words = candidates.result.terms, self._store.tokenizer.words
        no_answers, rivals = dict[str, str](), candidates.hits
        if not searching:
            no_answers = find_non_answers(
                current, terms, words, rivals=rivals, all_questions=asking
            )
        hits = tuple(hit for hit in current if hit.id not in no_answers)
        if asking:
            hits = let_replies_answer(hits, [hit for hit in current if hit.id in no_answers])
        if query.is_judged:
            in_sight = [hit for hit in candidates.hits if hit.id in already_shown]
            judged = self._judge_by_kind(query, evidence, hits, in_sight)
        else:
            judged = apply_floor(level, evidence, hits)
        if not _asks_of_oneself(query.kinds):
            judged = leave_out_letters(judged, terms, words)
        judged = mark_nearest(judged, hits) if searching else leave_out_restated(judged, words)
        if asking:
            judged = keep_answering(judged)
        if no_answers and not judged.hits and not judged.silent:
            judged = replace(judged, silent="nothing found answers anything")
        return replace(judged, left_out={**judged.left_out, **no_answers})

    def _judge_by_kind(
        self,
        query: Query,
        evidence: QueryEvidence,
        hits: tuple[Hit, ...],
        in_sight: Sequence[Hit],
    ) -> Judged:
        """Return what of the hits a prompt of this kind needs, after its own session's lines."""
        kinds, asking = query.resolved_kinds, query.request.purpose == "ask"
        level = self._settings.retrieval.floor
        bar = block_bar(ASKED_LEVEL, evidence) if asking else 0.0
        if kinds.silence:
            return refuse_all(hits, "talk", kinds.silence)
        if kinds.is_empty:
            why = "the prompt means this conversation alone" if hits else ""
            judged = refuse_all(hits, "follow_up", why)
        else:
            about_asker = is_about_asker(kinds, evidence, hits, query.request.sender or "")
            evidence = replace(evidence, kinds=kinds, about_asker=about_asker)
            leaning = self._leaning(query)
            judged = apply_floor(level, evidence, hits, bar, in_sight, leaning)
            if not any(hit.signals.get("time") for hit in judged.hits):
                judged = replace(judged, hits=newest_first(judged.hits))
        if asking:  # answered by what is found alone
            return judged
        vague = bool(query.kinds.follow_up)
        if vague or (kinds.is_short and not judged.hits):
            first = self._session_lines(query)
        else:
            first = self._standing_lines(query) if kinds.task else []
        return judged.preceded_by([*self._working_memory(query, vague=vague), *first])

    def _leaning(self, query: Query) -> float:
        """Return how much a prompt leans on lines of its own session that are in sight."""
        leaning, session = query.resolved_kinds.follow_up, query.request.session_id
        if not (leaning and session and query.request.shown):
            return 0.0
        with suppress(DeadlineExceeded), self._store.deadline(query.until):
            newest = newest_of_session(self._store.reader(), query.viewer, session)
            return leaning if self._already_shown.find_shown(query.request, newest) else 0.0
        return 0.0

    def _standing_lines(self, query: Query) -> list[Hit]:
        """Return the standing instructions that hold for a task, and are not in sight."""
        with suppress(DeadlineExceeded), self._store.deadline(query.until):
            hits = query.keep_allowed(read_standing(self._store.reader(), query.viewer))
            suited = select_standing(query.search_text, hits, query.token_budget)
            shown = self._already_shown.find_shown(query.request, suited)
            return [hit for hit in suited if hit.id not in shown][: query.k]
        return []

    def _session_lines(self, query: Query) -> list[Hit]:
        """Return the last lines of the prompt's own session; none where it has them in sight."""
        viewer, session = query.viewer, query.request.session_id
        if not session:
            return []
        with suppress(DeadlineExceeded), self._store.deadline(query.until):
            reader = self._store.reader()
            hits = query.keep_allowed(newest_of_session(reader, viewer, session))
            return select_last(
                hits, query.text, self._already_shown.find_shown(query.request, hits), query.k
            )
        return []

    def _working_memory(self, query: Query, *, vague: bool) -> list[Hit]:
        """Return the summary of the prompt's own session, if it needs it and does not show it."""
        viewer, request = query.viewer, query.request
        session, shown = request.session_id, request.shown
        if not session or not self._settings.summaries.working:
            return []
        with suppress(DeadlineExceeded), self._store.deadline(query.until):
            reader = self._store.reader()
            hit = read_working(reader, viewer, session)
            if (
                hit is None
                or not query.keep_allowed([hit])
                or self._already_shown.find_shown(query.request, [hit])
            ):
                return []
            resumed = False
            if not vague and shown is None:
                last = newest_of_session(reader, viewer, session)[:1]
                idle = timedelta(hours=self._settings.summaries.idle_hours)
                resumed = bool(last) and viewer.at - hit_time(last[0]) >= idle
            if vague or (
                is_left_behind(hit, resumed=resumed)
                and not self._already_shown.was_injected(session, hit.id)
            ):
                return [hit.with_note(NOTE)]
        return []

    def find_replaced(
        self, query: Query, candidates: Candidates, selection: Selection, lines: RoutedHits
    ) -> Mapping[str, Replacement]:
        """Return, by id, the lines that a later one, perhaps in the prompt already, may replace."""
        if not (query.ranker.merges and lines.hits):
            return {}
        shown = [hit for hit in candidates.hits if hit.id in selection.already_shown]
        hits = lines.hits[:CONSIDERED]
        entries = [hit.id for hit in (*hits, *shown) if isinstance(hit.item, Entry)]
        superseded = self._store.reader().superseded_entries(entries)
        reader, viewer = self._store.reader(), query.viewer
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)

        def rarity(words: Collection[str]) -> Rarity:
            items = candidates.result.query_evidence.items
            return Rarity(reader.word_frequencies(scopes, words), items)

        return find_replacements(hits, candidates.result.terms, rarity, superseded, shown)


def _said_then(hits: Sequence[Hit], replaced: Mapping[str, Replacement]) -> dict[str, Replacement]:
    """Return the replacements of what was said in the time that a question names.

    That stays where it is found, with its mark.  A time that belongs to the matter ("on the 3rd")
    is not when anything was said.
    """
    then = {hit.id for hit in hits if hit.evidence is not None and hit.evidence.time == 1}
    return {o: now for o, now in replaced.items() if o in then and now.by.id not in then}


def is_about_asker(
    kinds: PromptKinds, query: QueryEvidence, hits: Sequence[Hit], asker: str
) -> bool:
    """Return whether a prompt is about its sender, who said one of the first hits of themselves.

    That hit must be near the prompt, where there is anything to choose among: "got a riddle for
    me?" is not about the asker's "there's no wifi there, get us somewhere else".

    Args:
        asker: the sender; "" where there is only one person.
    """

    def is_near(hit: Hit) -> bool:
        line = hit.evidence
        if line is None or query.items <= FEW:
            return True
        return line.cosine >= MIN_COSINE if query.model else line.own_coverage > 0

    return _asks_of_oneself(kinds) and any(
        _is_own(hit, asker) and is_near(hit) for hit in hits[:_FIRST]
    )


def _asks_of_oneself(kinds: PromptKinds) -> bool:
    return bool(kinds.personal and not kinds.states and kinds.words <= SHORT_PROMPT_WORDS)


def _is_own(hit: Hit, asker: str) -> bool:
    """Return whether a hit is what its asker said of themselves: "My sister ...", "I ..."."""
    item = hit.item
    if isinstance(item, Fact):
        if item.personal:
            return (item.person or "") == asker
        return not asker and speaks_of_oneself(item.quote)
    return item.role == "user" and (item.sender or "") == asker and speaks_of_oneself(item.content)
