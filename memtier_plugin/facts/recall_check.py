"""Whether a project still finds its own past: probes made of it, without a model.

A probe asks for something that a user once said, by as few of its words as find it, and by such as
about eight entries have: what crowds it out shows.  It is found while it is among the first ten
entries that the hits tell of, a fact telling of those that it rests on; so a fact that is true to
its source crowds nothing out, and one with a wrong source does.  Nothing of it is journalled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import Final

from memtier_plugin.core.records import Entry
from memtier_plugin.providers.embedding.static import StaticEmbedder, quantise
from memtier_plugin.retrieval.search import QueryVector, Search, Viewer
from memtier_plugin.storage.index.reader import IndexReader
from memtier_plugin.storage.store import Store
from memtier_plugin.text.tokenizer import plain_words

DEPTH: Final = 10  # how far down a probe is looked for
TARGET_FREQUENCY: Final = 8  # about so many entries have a word that a probe asks by: room for all
MAX_QUERY_WORDS: Final = (
    4  # of an entry that a probe asks by, at most; never more than half of them
)
_RANKED: Final = 60  # hits that are looked at for the first ten entries
_INITIAL_DEPTH: Final = (
    8  # how far down it is when it is made: the first ten have room for some more
)
_SESSION_ENTRIES: Final = 64  # entries of a session, of which some are chosen
_CHARACTERS: Final = 2_000  # of an entry that are read for its words
_MAX_SEARCHES: Final = 6  # searches for each probe wanted, at most
_TOLERATED: Final = 2  # probes that may get lost by chance, ...
_TOLERATED_SHARE: Final = 0.08  # ... or so great a part of them


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that finds a past entry, as its own agent and sender would ask it."""

    query: str
    entry: str
    agent: str
    sender: str | None


def make_probes(store: Store, limit: int, at: datetime) -> list[Probe]:
    """Return up to ``limit`` probes that are found now, spread over agents and sessions.

    The same project gives the same ones.

    Raises:
        IndexProblem: the index cannot be used.
    """
    if not limit:
        return []
    with store.session(), store.snapshot() as reader:
        searcher = _ProbeSearch(store, reader, at)
        tried = islice(_candidates(searcher, limit), limit * _MAX_SEARCHES)
        return [*islice(filter(None, tried), limit)]


def count_recalled(store: Store, probes: Sequence[Probe], at: datetime) -> int:
    """Return how many of the probes find their entry, or a fact that rests on it.

    Raises:
        IndexProblem: the index cannot be used.
    """
    if not probes:
        return 0
    with store.session(), store.snapshot() as reader:
        searcher = _ProbeSearch(store, reader, at)
        return sum(searcher.finds(probe, DEPTH) for probe in probes)


def has_regressed(before: int, after: int, probes: int) -> bool:
    """Tell whether so many fewer probes are found that it is no chance."""
    lost = before - after
    return lost > _TOLERATED and lost > _TOLERATED_SHARE * probes


class _ProbeSearch:
    """Asks probes in one state of the index."""

    def __init__(self, store: Store, reader: IndexReader, at: datetime) -> None:
        self.reader = reader
        self.tokenizer = store.tokenizer
        self._settings = store.settings
        self._at = at
        # Only where that costs nothing: no endpoint is asked.
        embedder = store.embedder
        self._embedder = embedder if isinstance(embedder, StaticEmbedder) else None

    def finds(self, probe: Probe, first: int) -> bool:
        """Tell whether a probe finds its entry, or a fact that rests on it, among the first."""
        near = None
        if self._embedder:
            [vector] = quantise(self._embedder.encode([probe.query]))
            near = QueryVector(self._embedder.name, vector)
        asker = Viewer(probe.agent, probe.sender, read_all=False, at=self._at)
        search = Search(self.reader, self.tokenizer, self._settings, asker, None, near)
        if self._settings.retrieval.profile == "paper":
            search.rank_as_published(probe.query)
        else:
            search.rank_recall_first(probe.query, extra=None)
        rows = [row for row, _, _ in search.result.ranked[:_RANKED]]
        told, seen, places = self.reader.evidence_ids(rows), set[str](), 0
        for row in rows:
            # A fact beside its own source takes no place of another's.
            places += seen.isdisjoint(told[row])
            seen.update(told[row])
            if places > first:
                return False
            if probe.entry in told[row]:
                return True
        return False


def _candidates(searcher: _ProbeSearch, limit: int) -> Iterator[Probe | None]:
    """Yield a probe of each of the sessions in turn, then a second one of each, ...

    None stands for a question that did not find its entry.
    """
    chosen = _choose_sessions(searcher.reader, limit)
    waiting = [_probes_of_session(searcher, session) for session in chosen]
    while waiting:
        for probes in [*waiting]:
            for probe in probes:
                yield probe
                if probe:
                    break
            else:
                waiting.remove(probes)


def _choose_sessions(reader: IndexReader, limit: int) -> list[int]:
    """Return up to ``limit`` sessions: as many of each agent, evenly over all that it has."""
    sessions = reader.all_sessions()
    chosen: list[int] = []
    left = limit
    for place, agent in enumerate(sorted(sessions, key=lambda a: (len(sessions[a]), a))):
        mine = sessions[agent]
        share = min(len(mine), max(1, left // (len(sessions) - place)), left)
        chosen += [mine[number * len(mine) // share] for number in range(share)]
        left -= share
    return chosen


def _probes_of_session(searcher: _ProbeSearch, session: int) -> Iterator[Probe | None]:
    """Yield, entry by entry in an order by chance, the shortest question that finds it."""
    said = searcher.reader.user_entries(session, _SESSION_ENTRIES)
    for one in sorted(said, key=lambda one: blake2b(one.item.id.encode()).digest()):
        entry = one.item
        if not isinstance(entry, Entry):
            continue
        for query in _queries(searcher, entry):
            probe = Probe(query, entry.id, entry.agent_id, entry.sender)
            found = searcher.finds(probe, _INITIAL_DEPTH)
            yield probe if found else None
            if found:
                break


def _queries(searcher: _ProbeSearch, entry: Entry) -> Iterator[str]:
    """Yield what an entry may be asked for by: ever more of its words.

    Those first that about as many entries have as there is room for; of commoner ones two are
    needed, or it would be chance which of all those entries come first.
    """
    words: dict[str, str] = {}
    for word in plain_words(entry.content[:_CHARACTERS]):
        stems = searcher.tokenizer.words(word)
        if len(stems) == 1:
            words.setdefault(stems[0], word)
    # Everybody's entries: the facts that come of them are for all agents.
    scopes = searcher.reader.scopes(entry.agent_id, entry.sender, read_all=True)
    common = searcher.reader.word_frequencies(scopes, words.keys())
    order = sorted(
        words,
        key=lambda stem: (
            common.get(stem, 0) > TARGET_FREQUENCY,
            abs(common.get(stem, 0) - TARGET_FREQUENCY),
            stem,
        ),
    )[: min(MAX_QUERY_WORDS, len(words) // 2)]
    fewest = 1 if order and common.get(order[0], 0) <= TARGET_FREQUENCY else 2
    for count in range(fewest, len(order) + 1):
        yield " ".join(words[stem] for stem in order[:count])
