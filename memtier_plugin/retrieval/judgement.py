"""Choose the lines worth showing: by kind of prompt and currency; none that answers nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import FloorLevel, Hit
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.call_history import (
    add_what_worked,
    mark_calls,
    order_by_calls,
)
from memtier_plugin.retrieval.candidates import FEW, MIN_COSINE
from memtier_plugin.retrieval.corrections import (
    find_rules,
    leave_out_closed,
    leave_out_same,
    others,
    read_own_words,
)
from memtier_plugin.retrieval.dialogue_acts import can_weigh
from memtier_plugin.retrieval.duplicates import find_restated
from memtier_plugin.retrieval.floor import (
    Judged,
    QueryEvidence,
    apply_floor,
    block_bar,
    mark_nearest,
    refuse_all,
)
from memtier_plugin.retrieval.intentions import Moment, find_reminders, lines_about
from memtier_plugin.retrieval.plan import Candidates, ChosenHits, Query
from memtier_plugin.retrieval.prompt_kind import SHORT_PROMPT_WORDS, PromptKinds
from memtier_plugin.retrieval.prompt_words import speaks_of_oneself
from memtier_plugin.retrieval.query import QueryVector
from memtier_plugin.retrieval.replacement import (
    CONSIDERED,
    Replacement,
    find_replacements,
    join_evidence,
    mark_replaced,
    newest_first,
    put_current_first,
)
from memtier_plugin.retrieval.session import (
    NOTE,
    AlreadyShown,
    is_left_behind,
    newest_of_session,
    opens_session,
    read_working,
    select_last,
)
from memtier_plugin.retrieval.standing import read_standing, select_standing
from memtier_plugin.retrieval.statements import Rarity
from memtier_plugin.storage.sessions import DeadlineExceeded
from memtier_plugin.storage.store import Store
from memtier_plugin.text.phrases import is_standing_instruction, only_asks
from memtier_plugin.text.tokenizer import distinct_tokens, ngrams, plain_words
from memtier_plugin.trust.external_text import missing_statement

# -- Leave out of a block what answers nothing, and what repeats another line.  Pure
#
# An earlier question shares more words with a prompt than the statement that answers it.  As a
# weight on all questions that would hurt, as many instructions are put as questions; in a block a
# question loses its line only where it repeats the prompt and a statement competes for the line.

_JUDGED: Final = 40  # hits that are looked at: more never come into a block
_LEAST_COSINE: Final = 0.25  # below it meaning is no evidence
_REPEATED: Final = 0.6  # of a question's words that the prompt has, for it to repeat the prompt
_SIMILAR: Final = 0.65  # of the n-grams of two words (Dice), for one to be a form of the other
_MIN_LETTERS: Final = 5  # of a word that others are compared with

Split = Callable[[str], Sequence[str]]


def find_non_answers(
    hits: Sequence[Hit],
    terms: Collection[str],
    words: Split,
    *,
    rivals: Sequence[Hit] = (),
    all_questions: bool = False,
) -> dict[str, str]:
    """Return, by id, why a hit answers nothing.

    Args:
        terms: the words of the query.
        words: how a text is taken apart into such words.
        rivals: all that was found, with what the conversation shows already.
        all_questions: whether no question answers anything, whatever competes.
    """
    reasons: dict[str, str] = {}
    questions: list[Hit] = []
    for hit in hits[:_JUDGED]:
        missing = missing_statement(hit.item)
        if missing == "receipt":
            reasons[hit.id] = missing
        elif missing == "question":
            questions.append(hit)
    repeated = (h for h in questions if all_questions or _repeats(h.text, terms, words))
    if questions and (all_questions or any(map(_competes, (*hits, *rivals)[: 2 * _JUDGED]))):
        reasons.update((hit.id, "question") for hit in repeated)
    return reasons


def _competes(hit: Hit) -> bool:
    """Return whether a hit is a statement that may answer what an earlier question asks."""
    answers = hit.evidence is None or _has_own_evidence(hit)
    return answers and not missing_statement(hit.item)


def let_replies_answer(hits: Sequence[Hit], no_answers: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits in which the turn after a question has the question's evidence, too.

    Args:
        no_answers: the hits that answer nothing, questions among them.
    """
    questions = {
        (hit.item.session_id, hit.item.turn): hit
        for hit in no_answers
        if isinstance(hit.item, Entry) and only_asks(hit.text)
    }

    def question(hit: Hit) -> Sequence[Hit]:
        item = hit.item
        before = (item.session_id, item.turn - 1) if isinstance(item, Entry) else ("", 0)
        return [questions[before]] if before in questions else []

    return tuple(join_evidence(hit, question(hit)) for hit in hits)


def keep_answering(judged: Judged) -> Judged:
    """Return what was judged with no lines but those that share words or meaning with the query."""
    weak = {
        hit.id: "weak"
        for hit in judged.hits
        if hit.evidence is not None and not _has_own_evidence(hit)
    }
    hits = tuple(hit for hit in judged.hits if hit.id not in weak)
    silent = judged.silent or ("" if hits or not weak else "nothing found answers the question")
    return replace(judged, hits=hits, left_out={**judged.left_out, **weak}, silent=silent)


def leave_out_letters(judged: Judged, terms: Collection[str], words: Split) -> Judged:
    """Return what was judged without the hits that share no more than letters with the query.

    Not so a hit that has a form of one of its words: a typo, an inflection, a compound.
    """
    weak = [hit for hit in judged.hits[:_JUDGED] if _lacks_evidence(hit)]
    left_out = {hit.id: "letters" for hit in weak if not _resembles(hit.text, terms, words)}
    if not left_out:
        return judged
    hits = tuple(hit for hit in judged.hits if hit.id not in left_out)
    silent = judged.silent or ("" if hits else "nothing found shares a word with the prompt")
    return replace(judged, hits=hits, left_out={**judged.left_out, **left_out}, silent=silent)


def leave_out_restated(judged: Judged, words: Split) -> Judged:
    """Return what was judged with nothing said twice; what stays has the better of both places."""
    restated = find_restated(judged.hits[:_JUDGED], words)
    if not restated:
        return judged
    by_id = {hit.id: hit for hit in judged.hits}
    hits = {restated.get(hit.id, hit.id): None for hit in judged.hits}
    left_out = {**judged.left_out, **dict.fromkeys(restated, "restated")}
    return replace(judged, hits=tuple(by_id[item] for item in hits), left_out=left_out)


def _repeats(question: str, terms: Collection[str], words: Split) -> bool:
    """Return whether an earlier question asks about what the prompt is about."""
    wanted = {*words(question)}
    return bool(wanted) and len(wanted.intersection(terms)) >= _REPEATED * len(wanted)


def _has_own_evidence(hit: Hit) -> bool:
    evidence = hit.evidence
    return evidence is not None and (evidence.own_coverage > 0 or evidence.cosine >= _LEAST_COSINE)


def _lacks_evidence(hit: Hit) -> bool:
    """Return whether nothing speaks for a hit but letters that it shares with the query."""
    evidence, item = hit.evidence, hit.item
    is_page = isinstance(item, Fact) and bool(item.shelf)
    if evidence is None or is_page or is_standing_instruction(hit.text):
        return False
    return not (
        evidence.coverage
        or evidence.time
        or evidence.speaker
        or evidence.cosine >= _LEAST_COSINE
        or hit.signals.get("source")
    )


def _resembles(text: str, terms: Collection[str], words: Split) -> bool:
    """Return whether a text has a word that is a form of one of the query's.

    A typo, an inflection or a compound: most of their n-grams agree, or one ends or begins with
    the other.
    """
    text = distinct_tokens(text)
    theirs = {word for word in (*words(text), *plain_words(text)) if len(word) >= _MIN_LETTERS}
    return any(
        is_similar(term, word) for term in terms if len(term) >= _MIN_LETTERS for word in theirs
    )


def is_similar(first: str, second: str) -> bool:
    """Return whether two long enough words are spelt similarly."""
    short, long = sorted((first, second), key=len)
    if long.startswith(short) or long.endswith(short):
        return True
    of_first, of_second = ngrams(first), ngrams(second)
    shared = len(of_first & of_second)
    return 2 * shared >= _SIMILAR * (len(of_first) + len(of_second))


# -- Choose the lines worth showing: by the kind of prompt, by currency, by the floor
#
# Each rule has a home of its own (`prompt_kind`, `replacement`, `floor`, `standing`, `session`;
# above, what answers nothing); here they meet.  A search shows what does not pass after what does.

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
        self._idle = timedelta(hours=settings.summaries.idle_hours)

    def judge(
        self,
        query: Query,
        candidates: Candidates,
        lines: tuple[Hit, ...],
        replaced: Mapping[str, Replacement],
        already_shown: Collection[str] = (),
    ) -> Judged:
        """Return the lines that are worth showing; a search shows the others after them, marked.

        Args:
            already_shown: the ids of what was found and stands in the conversation.
        """
        searching, asking = (query.request.purpose == p for p in ("search", "ask"))
        if not (query.ranker.merges or asking):
            return Judged(lines)
        known = {hit.id for hit in lines}
        lines, worked = self._with_worked(query, lines)
        staying = _replaced_then(lines, replaced)
        moving = {older: now for older, now in replaced.items() if older not in staying}
        current = put_current_first(mark_replaced(lines, staying), moving)
        level = self._settings.retrieval.floor
        evidence = replace(candidates.result.query_evidence, is_served=bool(worked))
        terms, words = candidates.result.terms, self._store.tokenizer.words
        no_answers, rivals = dict[str, str](), candidates.hits
        if not searching:
            no_answers = find_non_answers(
                current, terms, words, rivals=rivals, all_questions=asking
            )
        hits = current
        if no_answers:
            hits = tuple(hit for hit in current if hit.id not in no_answers)
            if asking:
                hits = let_replies_answer(hits, [hit for hit in current if hit.id in no_answers])
        if query.is_judged:
            in_sight = candidates.among(already_shown)
            vector = candidates.result.vector
            judged = self._judge_by_kind(query, vector, evidence, hits, in_sight)
        else:
            judged = apply_floor(level, evidence, hits)
        if not _asks_of_oneself(query.kinds):
            judged = leave_out_letters(judged, terms, words)
        if searching:
            judged = mark_nearest(replace(judged, hits=mark_calls(judged.hits)), mark_calls(hits))
        else:
            judged = leave_out_restated(judged, words)
            ordered, failing = order_by_calls(judged.hits, terms, words, worked)
            added = tuple(hit for hit in ordered if hit.id not in known)
            left_out = {**judged.left_out, **failing}
            judged = replace(judged, hits=ordered, left_out=left_out, added=judged.added + added)
        if asking:
            judged = keep_answering(judged)
        if no_answers and not judged.hits and not judged.silent:
            judged = replace(judged, silent="nothing found answers anything")
        return replace(judged, left_out={**judged.left_out, **no_answers})

    def _with_worked(
        self, query: Query, lines: tuple[Hit, ...]
    ) -> tuple[tuple[Hit, ...], frozenset[str]]:
        """Return lines with what worked for a like request, and its ids."""
        if query.is_judged:
            with suppress(DeadlineExceeded), self._store.deadline(query.until):
                reader, allowed = self._store.reader(), partial(self._unseen, query)
                return add_what_worked(reader, query.viewer, lines, allowed)
        return lines, frozenset()

    def _unseen(self, query: Query, hits: Iterable[Hit]) -> list[Hit]:
        """Return the hits that may stand in the block, and do not stand in sight already."""
        allowed = query.keep_allowed(hits)
        shown = self._already_shown.find_shown(query.request, allowed)
        return [hit for hit in allowed if hit.id not in shown]

    def _judge_by_kind(
        self,
        query: Query,
        vector: QueryVector | None,
        evidence: QueryEvidence,
        hits: tuple[Hit, ...],
        in_sight: Sequence[Hit],
    ) -> Judged:
        """Return what of the hits a prompt of this kind needs, after its own session's lines."""
        kinds, asking = query.resolved_kinds, query.request.purpose == "ask"
        level = self._settings.retrieval.floor
        bar = block_bar(ASKED_LEVEL, evidence) if asking else 0.0
        if kinds.silence:
            judged = refuse_all(hits, "talk", kinds.silence)
            return judged if asking else judged.preceded_by(self._own_words(query, None, (), 0))
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
        with suppress(DeadlineExceeded), self._store.deadline(query.until):
            judged = leave_out_closed(self._store.reader(), judged)
        own_words = self._own_words(query, vector, hits, evidence.items)
        first = [*self._working_memory(query, vague=vague), *others(own_words, first)]
        judged = leave_out_same(own_words, judged)
        return judged.preceded_by([*own_words, *first])

    def _own_words(
        self, query: Query, vector: QueryVector | None, hits: Sequence[Hit], lines: int
    ) -> list[Hit]:
        """Return what a user is to be reminded of, and the rules set for a like request."""
        kept, kinds, first = self._settings.facts, query.resolved_kinds, list[Hit]()
        with suppress(DeadlineExceeded), self._store.deadline(query.until):
            reader, request, viewer = self._store.reader(), query.request, query.viewer
            own_words = read_own_words(reader, viewer)
            if not own_words or not can_weigh(query.text, query.until):
                return []
            if kept.intentions:
                by = Moment(request.session_id or "", request.run_id or "", self._idle)
                near = lines_about(hits, lines)
                first += find_reminders(reader, viewer, query.search_text, own_words, by, near)
            if kept.corrections and not (kinds.silence or kinds.is_empty):
                first += find_rules(reader, viewer, query.search_text, vector, own_words)
            return self._unseen(query, first)
        return []

    def _leaning(self, query: Query) -> float:
        """Return how much a prompt relies on visible lines of its session."""
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
        viewer, session, shown = query.viewer, query.request.session_id, query.request.shown
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
            if vague:
                return [hit.with_note(NOTE)]
            resumed = shown is None and opens_session(reader, viewer, session, self._idle)
            injected = self._already_shown.was_injected(session, hit.id)
            if is_left_behind(hit, resumed=resumed) and not injected:
                return [hit.with_note(NOTE)]
        return []

    def find_replaced(
        self, query: Query, candidates: Candidates, selection: ChosenHits, lines: Sequence[Hit]
    ) -> Mapping[str, Replacement]:
        """Return, by id, the lines that a later one, perhaps in the prompt already, may replace."""
        if not (query.ranker.merges and lines):
            return {}
        shown = candidates.among(selection.already_shown)
        hits = lines[:CONSIDERED]
        entries = [hit.item.id for hit in (*hits, *shown) if isinstance(hit.item, Entry)]
        superseded = self._store.reader().superseded_entries(entries)
        reader, viewer = self._store.reader(), query.viewer
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)

        def rarity(words: Collection[str]) -> Rarity:
            items = candidates.result.query_evidence.items
            return Rarity(reader.word_frequencies(scopes, words), items)

        return find_replacements(hits, candidates.result.terms, rarity, superseded, shown)


def _replaced_then(
    hits: Sequence[Hit], replaced: Mapping[str, Replacement]
) -> dict[str, Replacement]:
    """Return the replacements of what was said in the time that a question names.

    That stays where it is found, with its mark.  A time that belongs to the matter ("on the 3rd")
    is not when anything was said.
    """
    if not replaced:
        return {}
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
        _is_of_asker(hit, asker) and is_near(hit) for hit in hits[:_FIRST]
    )


def _asks_of_oneself(kinds: PromptKinds) -> bool:
    return bool(kinds.personal and not kinds.states and kinds.words <= SHORT_PROMPT_WORDS)


def _is_of_asker(hit: Hit, asker: str) -> bool:
    """Return whether a hit is what its asker said of themselves: "My sister ...", "I ..."."""
    item = hit.item
    if isinstance(item, Fact):
        if item.personal:
            return (item.person or "") == asker
        return not asker and speaks_of_oneself(item.quote)
    return item.role == "user" and (item.sender or "") == asker and speaks_of_oneself(item.content)
