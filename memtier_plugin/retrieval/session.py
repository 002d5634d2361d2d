"""A session's part in a recall: its last lines, those shown already, its summary, its subject."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import IndexProblem
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit, RecallRequest, Shown
from memtier_plugin.retrieval.block import keep_injectable
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.retrieval.prompt_kind import MAX_FOLLOW_UP_WORDS, PromptKinds, prompt_kinds
from memtier_plugin.retrieval.prompt_words import (
    likeliest_language,
    names_time,
    openers,
    split_words,
    vocabulary,
)
from memtier_plugin.retrieval.query import count_content
from memtier_plugin.retrieval.signals import ScoredRow
from memtier_plugin.retrieval.visibility import Viewer, entry_hit, read_hits
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.sessions import DeadlineExceeded
from memtier_plugin.storage.store import Store
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.passages import SPARED_CHARS
from memtier_plugin.text.phrases import Words

# -- A session's part in a recall: its last lines, those shown already, its summary

# -- The last lines of a session, for a prompt that means them and does not show them
#
# A follow-up ("make it shorter") shares no word with what it is about.  While the conversation is
# in sight it needs nothing; after a compaction, or in a resumed session, it needs what was said
# last.

MAX_LINES: Final = 4  # of a session that lead a block: two exchanges
_REFRESH_MS: Final = 50  # how long a recall waits for the index's write lock
_READ: Final = 12  # entries of it that are read; some may not stand in a prompt


def refresh_for(store: Store, viewer: Viewer) -> str | None:
    """Bring the index up to date for a viewer; return why some lines are still missing."""
    return store.refresh(
        viewer.agent, wait_ms=_REFRESH_MS, read_all=viewer.read_all, leave_recalls=True
    )


def newest_of_session(reader: Reader, viewer: Viewer, session: str) -> list[Hit]:
    """Return the newest entries of a viewer's own session, the last one first."""
    scopes = reader.scopes(viewer.agent, viewer.sender)
    rows = reader.newest_in_session(viewer.agent, session, scopes, _READ)
    stored = reader.items_by_row(rows)
    return [entry_hit(stored[row], 0.0, {}) for row in rows if row in stored]


def opens_session(reader: Reader, viewer: Viewer, session: str, idle: timedelta) -> bool:
    """Return whether a prompt begins a session, or goes on with one that was idle for so long."""
    newest = newest_of_session(reader, viewer, session)[:1] if session else []
    return all(viewer.at - hit_time(hit) >= idle for hit in newest)


def select_last(hits: Sequence[Hit], prompt: str, shown: Collection[str], k: int) -> list[Hit]:
    """Return the last lines of a session in the order said; none if its last one is in sight.

    Args:
        hits: the last one first.
        prompt: whose own entry, if it was recorded already, is no line.
        shown: ids of what the conversation shows.
        k: how many lines a block may have.
    """
    if hits and hits[0].text.strip() == prompt.strip():
        hits = hits[1:]
    if not hits or hits[0].id in shown:
        return []
    last = [hit for hit in hits if hit.id not in shown]
    return last[: min(k, MAX_LINES)][::-1]


# -- Lines that a conversation shows already: no prompt of it gets them twice
#
# A host's history holds what was said in the session since its last compaction, and where the host
# keeps what is injected (Hermes) those lines too.  Repeating it would cost tokens and add nothing.

CLOCK_SLACK: Final = timedelta(seconds=2)  # by which a host's two times of one message may differ
_STATED_HITS: Final = 40  # that are compared with the quotes of injected facts
_STATED_SHARE: Final = 0.8  # of a line's characters that a quote must have
_MAX_SESSIONS: Final = 256  # whose injected lines are kept in memory
_MAX_RECALLS: Final = 200  # journalled ones that are read for a session not in memory


class AlreadyShown:
    """Knows what the sessions of one agent show; thread-safe."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent
        # A text of so many characters was injected whole, in a list, too.
        self._excerpt_chars = 2 * store.settings.retrieval.passage_tokens + SPARED_CHARS
        self._injected: dict[str, dict[str, datetime]] = {}  # by session and item: when
        self._mutex = Mutex()

    def find_shown(self, request: RecallRequest, hits: Sequence[Hit]) -> set[str]:
        """Return the ids of hits that the conversation shows already."""
        session, shown = request.session_id, request.shown
        if shown is None or not session:
            return set()
        try:
            return self._find_shown(session, shown, hits)
        except IndexProblem:
            return set()  # then a line may stand there twice

    def _find_shown(self, session: str, shown: Shown, hits: Sequence[Hit]) -> set[str]:
        since = shown.since - CLOCK_SLACK
        injected: set[str] = set()
        if shown.injected:
            times = self._injected_into(session)
            injected = {item for item, time in times.items() if time >= shown.since}
            injected |= self._stated_by(injected, hits)
        return {
            hit.id
            for hit in hits
            if hit.id in injected or self._is_hit_shown(hit, session, since, injected)
        }

    def _stated_by(self, injected: Collection[str], hits: Sequence[Hit]) -> set[str]:
        """Return the ids of the entries most of whose text an injected fact quotes."""
        lines = {
            hit.id: len(hit.item.content)
            for hit in hits[:_STATED_HITS]
            if isinstance(hit.item, Entry)
        }
        if not injected or not lines:
            return set()
        reader = self._store.reader()
        facts = reader.items(set(reader.facts_citing(lines)) & set(injected))
        return {
            source.entry
            for stored in facts.values()
            if isinstance(stored.item, Fact)
            for source in stored.item.sources
            if len(stored.item.quote) >= _STATED_SHARE * lines.get(source.entry, math.inf)
        }

    def was_injected(self, session: str, item: str) -> bool:
        """Return whether an item was injected into a session before."""
        return item in self._injected_into(session)

    def record_injected(self, recall: RecallEvent, at: datetime) -> None:
        """Remember what was injected into a session."""
        with self._mutex:
            if recall.session_id in self._injected:
                ids = [ranked.item for ranked in recall.injected]
                self._injected[recall.session_id] |= dict.fromkeys(ids, at)

    def _is_hit_shown(
        self, hit: Hit, session: str, since: datetime, injected: Collection[str]
    ) -> bool:
        """Return whether the conversation shows an entry, or all sources of a fact."""
        if isinstance(hit.item, Entry):
            return self._is_shown(hit.item, session, since)
        if any(
            s.entry not in injected and (s.agent, s.session) != (self._agent, session)
            for s in hit.sources
        ):
            return False
        stored = self._store.reader().items(source.entry for source in hit.sources)
        return len(stored) == len(hit.sources) and all(
            isinstance(source.item, Entry)
            and (
                self._is_shown(source.item, session, since)
                or (source.item.id in injected and len(source.item.content) <= self._excerpt_chars)
            )
            for source in stored.values()
        )

    def _is_shown(self, entry: Entry, session: str, since: datetime) -> bool:
        return (
            entry.agent_id == self._agent
            and entry.session_id == session
            and entry.observed_at >= since
        )

    def _injected_into(self, session: str) -> dict[str, datetime]:
        """Return what was injected into a session and when; the journal is read once."""
        with self._mutex:
            if session in self._injected:
                return dict(self._injected[session])
        with self._store.session() as reader:
            # The journal first: what is indexed in between is then seen twice, not never.
            waiting = self._store.unindexed_events(self._agent)
            events = reader.events(kinds=[RecallEvent.KIND], newest=_MAX_RECALLS)
            settled = reader.settle([*reversed(events), *waiting])
        recalls = [
            (event.timestamp, RecallEvent.of(event))
            for event in settled
            if event.agent_id == self._agent and event.kind == RecallEvent.KIND
        ]
        injected = {
            ranked.item: timestamp
            for timestamp, recall in recalls
            if recall.session_id == session and recall.purpose == "inject"
            for ranked in recall.injected
        }
        with self._mutex:
            self._injected.setdefault(session, injected)
            while len(self._injected) > _MAX_SESSIONS:
                self._injected.pop(next(iter(self._injected)))
        return injected


# -- The running summary of a session, for a prompt whose session is out of sight
#
# It stands in the first prompt after a compaction, or after a session was left alone for long, and
# in a vague follow-up ("go on") while what it sums up is out of sight.  A plain prompt of a session
# that is going on gets none.  (Mem-T's working memory, 3.1.)

SHELF: Final = "working"
RELATION: Final = "working_summary"
AT_COMPACTION: Final = "compaction_summary"  # the same, written when a host compacted the session
NOTE: Final = "of this session, out of sight"


def read_working(reader: Reader, viewer: Viewer, session: str) -> Hit | None:
    """Return the current summary of a viewer's session, or None."""
    about = viewer.agent, viewer.sender or "", session
    facts = reader.overviews.shelved_facts(SHELF, about)
    current = [fact.id for fact in facts if fact.in_place and fact.indexed][-1:]
    rows: list[ScoredRow] = [(item.row, 0.0, {}) for item in reader.items(current).values()]
    return next(iter(read_hits(reader, rows, viewer, {})), None)


def is_left_behind(hit: Hit, *, resumed: bool) -> bool:
    """Return whether any prompt needs a summary: after a compaction, or in a resumed session."""
    assert isinstance(hit.item, Fact)
    return resumed or hit.item.relation == AT_COMPACTION


# -- The subject that a follow-up leaves to a pronoun: "and what is he allergic to?"
#
# It is taken from the newest words of the session that name one: a question, and its answer where
# that is short.  What only points back itself names none, so that one looks further back.

Line = tuple[str, str]  # a role, and its words
AskedIn = Callable[[str, str | None], list[str]]  # a sender's questions by `ask` in a session
_MAX_CHARS: Final = 400  # of a line that are read
_MAX_SUBJECT: Final = 6  # words of it
_NAME: Final = regex.compile(r"(?<![\w'’])\p{Lu}[\w-]*")
_OPENERS: Final = ("politeness", "task_verbs", "general_openers")


class SubjectFinder:
    """Finds what the sessions of one agent named last."""

    def __init__(self, store: Store, asked_in: AskedIn) -> None:
        self._store = store
        self._asked_in = asked_in

    def find(
        self, text: str, viewer: Viewer, request: RecallRequest, until: float | None = None
    ) -> str:
        """Return what a prompt's session named last, if the prompt only points at that; else "".

        A question to `ask` may point at the one before, too, which no ledger has.

        Args:
            until: the deadline, a moment of ``time.monotonic()``.
        """
        session = request.session_id
        if not session or not points_back(text, prompt_kinds(text, request.kind)):
            return ""
        lines: list[Line] = []
        with suppress(DeadlineExceeded), self._store.deadline(until):
            refresh_for(self._store, viewer)
            if request.purpose == "ask":
                lines += [("user", question) for question in self._asked_in(session, viewer.sender)]
            newest = newest_of_session(self._store.reader(), viewer, session)
            items = [hit.item for hit in keep_injectable(newest)]
            lines += [(item.role, item.content) for item in items if isinstance(item, Entry)]
        return find_subject(text, lines)


def points_back(prompt: str, kinds: PromptKinds) -> bool:
    """Return whether a prompt is a question about what was named before, and names nothing itself.

    One that says nothing by itself is so only with a pronoun of the third person: "what does he
    do?", not "are you sure of that?".
    """
    reading = _read(prompt)
    is_long = len(reading.words) > MAX_FOLLOW_UP_WORDS or len(prompt) > _MAX_CHARS
    if not reading.words or is_long or kinds.task or kinds.log:
        return False
    classes = lexicon(reading.language)
    first = next((word for word in reading.words if word not in classes.follow_openers), "")
    if not prompt.rstrip().endswith(("?", "？")) and first not in classes.question_openers:
        return False
    points = reading.has_word("third_person")
    if not points and not kinds.is_empty:
        points = first != reading.words[0] or reading.has_word("anaphors")
    # A German noun may be any word with a capital letter.
    return points and (reading.language == "german" or not any(_names(reading)))


def find_subject(prompt: str, lines: Iterable[Line]) -> str:
    """Return the words by which the last lines of a session name their subject; "" without any.

    Nor does a question about the world, or a task without a name, name any.

    Args:
        lines: the last one first; the prompt's own entry, if it was recorded already, is none.
    """
    answer, named = list[str](), list[str]()
    for role, text in lines:
        reading = _read(text[:_MAX_CHARS])
        if text.strip() == prompt.strip():
            continue
        names = [*_names(reading)]
        if role != "user":
            answer = names if len(reading.words) <= MAX_FOLLOW_UP_WORDS else []
            continue
        named, answer = [*named, *answer], []
        if reading.has_word("third_person") or reading.has_word("anaphors"):
            continue
        kinds = prompt_kinds(text)
        if kinds.general or (kinds.task and not names):
            return ""
        named = [*named, *names] or _content(reading)
        break
    return " ".join([*dict.fromkeys(named)][:_MAX_SUBJECT])


def _read(text: str) -> Words:
    return Words.of(text, likeliest_language(text, split_words(text)))


def _names(reading: Words) -> Iterator[str]:
    """Yield the names in a text: its words with a capital letter that are of no closed class."""
    language = reading.language
    known, numbers = vocabulary(language).phrases, lexicon(language).numbers
    for match in _NAME.finditer(reading.text):
        [word, *_] = split_words(match[0])
        common = (word,) in known or word in numbers or names_time((word, frozenset()), language)
        if not common and not any(word in openers(language, name) for name in _OPENERS):
            yield match[0]


def _content(reading: Words) -> list[str]:
    words = count_content(reading.text)[1]
    return ["".join(words)] if reading.unspaced else words
