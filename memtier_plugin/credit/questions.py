"""A project's questions with known answers: from its history, as probes, and as a guard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from itertools import chain, islice
from typing import Final, Literal

from memtier_plugin.core.events import AcceptEvent, AskEvent, CreditEvent, RecallEvent
from memtier_plugin.core.records import Entry, JournalEvent
from memtier_plugin.credit.verdict import judge
from memtier_plugin.providers.embedding.load import quantise
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.retrieval.query import QueryVector
from memtier_plugin.retrieval.search import Search
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Store
from memtier_plugin.text.tokenizer import plain_words

# -- Questions with known answers from a project's own history
#
# A journalled recall is such a question if an injected item was credited (the run succeeded and
# used the line), confirmed (a person accepted it) or, for a question that `ask` answered, cited.
# If the history is short, probes made from entries are added (`probes`).

Evidence = Literal["credited", "confirmed", "cited", "probe"]
_READ: Final = 20_000  # newest events of a kind that are searched for questions
# Of the largest share in a run's credit, above which a line counts as used
_USED_SHARE: Final = 0.8
_QUERY_CHARS: Final = 2_000  # characters of a query in the journal
# Share of the questions; an item that answers more of them is evidence for none.
_COMMON_SHARE: Final = 0.2
_COMMON: Final = 5  # questions that one item may answer, however few there are


@dataclass(frozen=True, slots=True)
class Question:
    """A query, its asker, and the items any of which answers it.

    Attributes:
        id: of the journalled event, or of the entry that a probe is made from.
        evidence: why its answer is known.
        session: where it was asked; questions of one session are held out together.
    """

    id: str
    query: str
    wanted: frozenset[str]
    agent: str
    sender: str | None = None
    evidence: Evidence = "probe"
    session: str = ""


@dataclass(frozen=True, slots=True)
class QuestionHistory:
    """The questions of a project's history, and what was excluded."""

    questions: tuple[Question, ...]
    common: tuple[str, ...] = ()  # items credited for nearly everything
    constant: tuple[str, ...] = ()  # agents whose credited runs all had the same outcome


def read_history(
    reader: Reader, limit: int, ids: Collection[str] = (), *, varied: bool = False
) -> QuestionHistory:
    """Return the newest questions, without duplicates, oldest first.

    An item credited for nearly every question is evidence for none, and may have been planted, so
    it is excluded.

    Args:
        ids: only questions with these ids, however many.
        varied: also exclude credits of agents that never failed: a reward without variance
            cannot tell what helped (MemTier, section 4.4).
    """
    recalls = reader.events(kinds=[RecallEvent.KIND], newest=_READ)
    credited, constant = _credited(reader, recalls, varied=varied)
    accepted = {
        item
        for event in reader.events(kinds=[AcceptEvent.KIND])
        for item in AcceptEvent.of(event).items
    }
    drawn = [*_questions_of_recalls(recalls, credited, accepted), *_questions_of_asks(reader)]
    common = _common_items(drawn)
    seen: set[tuple[str, str, str | None]] = set()
    questions: list[Question] = []
    for question in sorted(drawn, key=lambda question: question.id, reverse=True):
        wanted = question.wanted if question.evidence == "cited" else question.wanted - common
        key = (question.agent, question.query.casefold(), question.sender)
        if not wanted or key in seen or (ids and question.id not in ids):
            continue
        seen.add(key)
        questions.append(replace(question, wanted=wanted))
        if not ids and len(questions) == limit:
            break
    return QuestionHistory(
        tuple(reversed(questions)), tuple(sorted(common)), tuple(sorted(constant))
    )


def _credited(
    reader: Reader, recalls: Sequence[JournalEvent], *, varied: bool
) -> tuple[dict[str, set[str]], set[str]]:
    """Return the items that each recall's run used most, and the agents to exclude."""
    by_run: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for event in recalls:
        by_run[event.agent_id, event.run_id].append(event.id)
    runs: dict[tuple[str, str | None], list[CreditEvent]] = defaultdict(list)
    for event in reader.events(kinds=[CreditEvent.KIND], newest=_READ):
        runs[event.agent_id, event.run_id].append(CreditEvent.of(event))
    rewards: dict[str, set[bool]] = defaultdict(set)
    for (agent, _), credits in runs.items():
        rewards[agent] |= {credit.reward > 0 for credit in credits}
    constant = {agent for agent, outcomes in rewards.items() if varied and len(outcomes) < 2}
    items: dict[str, set[str]] = defaultdict(set)
    for run, credits in runs.items():
        last = max(credit.attempt for credit in credits)
        used = [credit for credit in credits if credit.attempt == last and credit.delta > 0]
        least = _USED_SHARE * max((credit.share for credit in used), default=0.0)
        for credit in used if run[0] not in constant else ():
            if credit.share >= least:
                for recall in credit.recalls or by_run[run]:
                    items[recall].add(credit.item)
    return items, constant


def _questions_of_recalls(
    recalls: Sequence[JournalEvent], credited: dict[str, set[str]], accepted: Collection[str]
) -> Iterator[Question]:
    for event in recalls:
        recall = RecallEvent.of(event)
        shown = {ranked.item for ranked in recall.injected}
        if recall.purpose != "inject" or not recall.query.strip():
            continue
        for evidence, items in (("credited", credited.get(event.id, ())), ("confirmed", accepted)):
            if answering := shown & {*items}:
                yield Question(
                    event.id,
                    recall.query[:_QUERY_CHARS],
                    frozenset(answering),
                    event.agent_id,
                    recall.sender,
                    "credited" if evidence == "credited" else "confirmed",
                    recall.session_id or "",
                )
                break


def _questions_of_asks(reader: Reader) -> Iterator[Question]:
    for event in reader.events(kinds=[AskEvent.KIND], newest=_READ):
        answer = AskEvent.of(event)
        if answer.answered and answer.citations and answer.question.strip():
            yield Question(
                event.id,
                answer.question[:_QUERY_CHARS],
                frozenset(answer.citations),
                event.agent_id,
                evidence="cited",
                session=f"asked {event.timestamp:%Y-%m-%d}",
            )


def _common_items(questions: Sequence[Question]) -> frozenset[str]:
    """Return the items credited for too many questions to be evidence for any."""
    counts: dict[str, int] = defaultdict(int)
    for question in questions:
        if question.evidence == "credited":
            for item in question.wanted:
                counts[item] += 1
    most = max(_COMMON, _COMMON_SHARE * len(questions))
    return frozenset(item for item, count in counts.items() if count > most)


# -- Probes: questions made from a project's own entries, and how many of them find their entry
#
# A probe asks for something that a user once said, by as few of its words as find it, preferring
# words that about eight entries share, so that an entry pushed out of the results is noticed.  A
# probe succeeds if its entry is among the first ten entries that the hits refer to; a fact refers
# to its sources.  So a fact faithful to its source pushes nothing out, while a fact with a wrong
# source does.  No model is asked, and nothing is journalled.

DEPTH: Final = 10  # entries among which a probe's entry must be
TARGET_FREQUENCY: Final = 8  # ideal number of entries that share a probe's word: less than `DEPTH`
MAX_QUERY_WORDS: Final = 4  # at most half of the entry's words
_RANKED: Final = 60  # hits read to find the first ten entries
_INITIAL_DEPTH: Final = 8  # stricter for new probes, to leave some slack
_SESSION_ENTRIES: Final = 64  # sampled from a session
_ENTRY_CHARS: Final = 2_000  # of an entry read for its words
_MAX_SEARCHES: Final = 6  # per requested probe


def make_probes(store: Store, limit: int, at: datetime, *, untried: bool = False) -> list[Question]:
    """Return up to ``limit`` probes over all agents and sessions; repeated calls return the same.

    Args:
        untried: return probes of the maximum length, whether they succeed now or not.  To compare
            two rankings, neither may select the questions; by default the present one does.

    Raises:
        IndexProblem: the index cannot be used.
    """
    if not limit:
        return []
    with store.session(), store.snapshot() as reader:
        searcher = ProbeSearch(store, reader, at, untried=untried)
        tried = islice(_candidates(searcher, limit), limit * _MAX_SEARCHES)
        return [*islice(filter(None, tried), limit)]


def find_probes(store: Store, probes: Sequence[Question], at: datetime) -> list[float]:
    """Return 1 for each probe that finds its entry or a fact derived from it, else 0.

    Raises:
        IndexProblem: the index cannot be used.
    """
    if not probes:
        return []
    with store.session(), store.snapshot() as reader:
        return [*map(float, ProbeSearch(store, reader, at).find_all(probes, DEPTH))]


def probes_of(store: Store, entries: Sequence[str], at: datetime) -> list[Question]:
    """Return the probes of these entries, whether they succeed now or not.

    Raises:
        IndexProblem: the index cannot be used.
    """
    with store.session(), store.snapshot() as reader:
        searcher = ProbeSearch(store, reader, at, untried=True)
        items = (stored.item for stored in reader.items(entries).values())
        drawn = (_probes_for(searcher, item) for item in items if isinstance(item, Entry))
        return [*filter(None, chain.from_iterable(drawn))]


class ProbeSearch:
    """Runs probes against one state of the index."""

    def __init__(
        self, store: Store, reader: Reader, at: datetime, *, untried: bool = False
    ) -> None:
        self.reader = reader
        self.untried = untried
        self.tokenizer = store.tokenizer
        flat = replace(store.settings.retrieval, profile="recall_first", search="flat")
        self._settings = replace(store.settings, retrieval=flat)
        self._at = at
        self._searches: dict[tuple[str, str | None], Search] = {}
        # A remote embedder costs money and time, so only words count.
        embedder = store.embedder
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None
        self._model = self._embedder.name if self._embedder else ""

    def find_all(self, probes: Sequence[Question], depth: int) -> list[bool]:
        """Return for each probe whether it finds its entry or a fact derived from it."""
        vectors: Sequence[QueryVector | None] = [None] * len(probes)
        if self._embedder:
            encoded = quantise(self._embedder.encode_many([probe.query for probe in probes]))
            vectors = [QueryVector(self._model, vector) for vector in encoded]
        return [
            self._finds(probe, near, depth) for probe, near in zip(probes, vectors, strict=True)
        ]

    def _finds(self, probe: Question, near: QueryVector | None, depth: int) -> bool:
        search = self._search_as(probe.agent, probe.sender)
        ranked = search.rank(probe.query, near).ranked
        rows = [row for row, _, _ in ranked[:_RANKED]]
        evidence = self.reader.evidence_ids(rows)
        return is_among((evidence[row] for row in rows), probe.wanted, depth)

    def _search_as(self, agent: str, sender: str | None) -> Search:
        search = self._searches.get((agent, sender))
        if search is None:
            viewer = Viewer(agent, sender, read_all=False, at=self._at)
            search = Search(self.reader, self.tokenizer, self._settings, viewer)
            self._searches[agent, sender] = search
        return search


def is_among(evidence: Iterable[Collection[str]], wanted: frozenset[str], depth: int) -> bool:
    """Return whether a wanted item is among the first entries that hits refer to.

    Args:
        evidence: the ids of each hit and its sources, best hit first.
    """
    seen, count = set[str](), 0
    for ids in evidence:
        # A fact next to its own source takes no other entry's rank.
        count += seen.isdisjoint(ids)
        seen.update(ids)
        if count > depth:
            return False
        if not wanted.isdisjoint(ids):
            return True
    return False


def _candidates(searcher: ProbeSearch, limit: int) -> Iterator[Question | None]:
    """Yield a probe from each session in turn, then a second from each, and so on.

    None stands for a query that did not find its entry.
    """
    sessions = _choose_sessions(searcher.reader, limit)
    remaining = [_probes_of_session(searcher, session) for session in sessions]
    while remaining:
        for probes in [*remaining]:
            for probe in probes:
                yield probe
                if probe:
                    break
            else:
                remaining.remove(probes)


def _choose_sessions(reader: Reader, limit: int) -> list[int]:
    """Return up to ``limit`` sessions: as many per agent, spread evenly over each agent's."""
    sessions = reader.all_sessions()
    chosen: list[int] = []
    left = limit
    for index, agent in enumerate(sorted(sessions, key=lambda a: (len(sessions[a]), a))):
        candidates = sessions[agent]
        share = min(len(candidates), max(1, left // (len(sessions) - index)), left)
        chosen += [candidates[number * len(candidates) // share] for number in range(share)]
        left -= share
    return chosen


def _probes_of_session(searcher: ProbeSearch, session: int) -> Iterator[Question | None]:
    """Yield the shortest successful query for each entry, in a shuffled order."""
    stored = searcher.reader.user_entries(session, _SESSION_ENTRIES)
    entries = [item.item for item in stored if isinstance(item.item, Entry)]
    for entry in sorted(entries, key=_shuffled):
        yield from _probes_for(searcher, entry)


def _shuffled(entry: Entry) -> bytes:
    """Return a key that orders entries by what was said and when: ids differ by recording."""
    statement = f"{entry.observed_at.isoformat()} {entry.content}"
    return blake2b(statement.encode("utf-8", "surrogatepass")).digest()


def _probes_for(searcher: ProbeSearch, entry: Entry) -> Iterator[Question | None]:
    """Yield the shortest query that finds an entry; if untried, the longest one."""
    for query in _queries(searcher, entry):
        probe = Question(
            entry.id,
            query,
            frozenset([entry.id]),
            entry.agent_id,
            entry.sender,
            session=entry.session_id,
        )
        if searcher.untried:
            yield probe
            return
        [is_found] = searcher.find_all([probe], _INITIAL_DEPTH)
        yield probe if is_found else None
        if is_found:
            return


def _queries(searcher: ProbeSearch, entry: Entry) -> Iterator[str]:
    """Yield queries for an entry, with an increasing number of its words.

    Words with a frequency close to `TARGET_FREQUENCY` come first.  Of more common words at least
    two are used, as with one, chance would decide which of those entries ranks first.
    """
    words: dict[str, str] = {}
    plain = plain_words(entry.content[:_ENTRY_CHARS])
    for word, stems in zip(plain, searcher.tokenizer.words_of_each(plain), strict=True):
        if len(stems) == 1:
            words.setdefault(stems[0], word)
    # Frequencies over everybody's entries, as facts made of them serve all agents.
    scopes = searcher.reader.scopes(entry.agent_id, entry.sender, read_all=True)
    frequency = searcher.reader.word_frequencies(scopes, words.keys())

    def rarity(stem: str) -> tuple[bool, int, str]:
        count = frequency.get(stem, 0)
        return count > TARGET_FREQUENCY, abs(count - TARGET_FREQUENCY), stem

    order = sorted(words, key=rarity)[: min(MAX_QUERY_WORDS, len(words) // 2)]
    fewest = 1 if order and frequency.get(order[0], 0) <= TARGET_FREQUENCY else 2
    if searcher.untried:
        fewest = max(fewest, len(order))
    for count in range(fewest, len(order) + 1):
        yield " ".join(words[stem] for stem in order[:count])


# -- Check that a model's or plugin's claims do not lower recall on the project's own history
#
# A case of the regression gate: probes that succeed before the facts are written are run again
# afterwards, and the paired bootstrap decides.


@dataclass(frozen=True, slots=True)
class Regression:
    """A drop of recall: how many probes succeeded before and after a change."""

    probes: int
    before: int
    after: int

    def describe(self) -> str:
        """Return the sentence stored in the journal and the report."""
        return (
            f"recall on the project's own history fell: of {self.before} past entries that were"
            f" found before, {self.after} were found after it"
        )


class RecallGuard:
    """The same probes before and after facts are written, as of the same moment."""

    def __init__(self, store: Store, at: datetime) -> None:
        """Make the probes.

        Args:
            at: a moment of the project's own, such as that of its newest line: what is found must
                not depend on when somebody consolidates.

        Raises:
            IndexProblem: the index cannot be used.
        """
        self._store = store
        self._at = at
        self._probes = make_probes(store, store.settings.consolidation.probes, at)

    def measure(self) -> list[float]:
        """Return 1 for each probe that succeeds now, else 0.

        Raises:
            IndexProblem: the index cannot be used.
        """
        return find_probes(self._store, self._probes, self._at)

    def compare(self, before: Sequence[float], after: Sequence[float]) -> Regression | None:
        """Return how far recall fell between two measurements; None if it did not."""
        verdict = judge(before, after, self._store.settings.regression.tolerance)
        return (
            Regression(len(after), int(sum(before)), int(sum(after))) if verdict.refused else None
        )
