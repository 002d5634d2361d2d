"""The reading protocols of the index: what recalls, facts and maintenance may ask of a backend.

Rows and scopes are opaque numbers of the backend.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from memtier_plugin.core.records import JournalEvent, Source
from memtier_plugin.storage.index.candidate_reader import Candidate, Match
from memtier_plugin.storage.index.item_reader import (
    Confirmation,
    ListedItem,
    SessionSpan,
    Standing,
)
from memtier_plugin.storage.index.neighbours import Neighbours
from memtier_plugin.storage.index.pages import Page
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.index.vector_coverage import Coverage
from memtier_plugin.storage.index.vectors import Vectors
from memtier_plugin.storage.overview_reader import OverviewReader
from memtier_plugin.storage.priority_reader import PriorityReader
from memtier_plugin.storage.state import State


class RecordReader(Protocol):
    """Read stored items by their rows, which are opaque numbers of the backend."""

    def items_by_row(self, rows: Sequence[int]) -> dict[int, Stored]:
        """Return the records of these rows."""

    def rows_of(self, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of the ids that the index knows."""


class VectorReader(Protocol):
    """Compare a query's vector with those of a model."""

    def is_covered(self, model: str, scopes: Iterable[int]) -> bool:
        """Tell whether so much is embedded that a model may be used for these scopes."""

    def nearest(
        self, model: str, scopes: Sequence[int], query: bytes, cap: int, limit: int
    ) -> tuple[dict[int, float], int]:
        """Return the rows nearest to a query, each with its cosine, and the pieces compared.

        Up to `EXACT_PIECES` every piece is compared; beyond, only those of the shortlist are.

        Args:
            query: the int8 vector.
            cap: pieces that are compared at most, the newest.
            limit: pieces that are taken; between equals the newest.
        """

    def similarity(self, model: str, query: bytes, rows: Collection[int]) -> dict[int, float]:
        """Return the cosine of these rows' nearest piece to a query vector.

        Never below 0, which is also what a row has of which the model knows nothing; one without
        vectors is left out.
        """


class CandidateReader(RecordReader, Protocol):
    """Read a recall's candidates.

    Isolation is enforced in every query: only the scopes given are read.  Every read is bounded.
    """

    @property
    def vectors(self) -> VectorReader:
        """The vectors of the same connection."""

    def scopes(
        self, agent: str, sender: str | None, *, read_all: bool = False, shelf: str = ""
    ) -> list[int]:
        """Return the scopes whose entries a viewer may see, or those of one of its shelves.

        A shelf (`Fact.shelf`) has word counts of its own, so recalls that do not open it are not
        affected.
        """

    def shared_scopes(self, people: Collection[str] | None = (), shelf: str = "") -> list[int]:
        """Return the scopes of the facts that all agents share, and of those of these people.

        Args:
            people: senders, "" for the user where none is named; None for everybody's.
        """

    def match_words(
        self,
        scopes: Sequence[int],
        terms: Mapping[str, float],
        cap: int,
        within: Collection[int] | None = None,
    ) -> Match:
        """Look up words in these scopes, the rarest first, until ``cap`` postings are read.

        Args:
            terms: the weight of each query word.
            within: the only rows to look them up in; None for all.

        A word cut by the cap contributes its newest rows; it and the words after it are
        ``left_out`` (`complete_match` adds them for the final few rows).
        """

    def complete_match(self, match: Match, scopes: Sequence[int], rows: Collection[int]) -> int:
        """Look up the words left out by the cap, for these rows only; return the postings read."""

    def match_ngrams(
        self, scopes: Sequence[int], parts: Collection[str], cap: int
    ) -> tuple[dict[int, float], int]:
        """Return the summed idf of the n-grams that each row shares, and the postings read."""

    def first_rows(self, scopes: Collection[int], words: Collection[str]) -> dict[str, int]:
        """Return the first row, in the order of writing, that has each of these index words."""

    def word_frequencies(self, scopes: Collection[int], words: Collection[str]) -> dict[str, int]:
        """Return how many items of these scopes have each of these index words."""

    def similar_facts(
        self,
        words: Collection[str],
        *,
        private_to: tuple[str, str] | None = None,
        vector: tuple[str, bytes] | None = None,
        limit: int = 3,
    ) -> list[Stored]:
        """Return the current facts of one audience that are nearest by words and by vector.

        Both rankings weigh the same; the reads are bounded.

        Args:
            vector: the model's name and the text's int8 vector.
        """

    def candidates(self, rows: Iterable[int]) -> list[Candidate]:
        """Return the ranking properties of these rows."""

    def neighbours(
        self, reach: Mapping[int, int], scopes: Sequence[int], gap: float = 0.0
    ) -> Neighbours:
        """Return the turns before and after each row in its session, nearest first.

        With a gap, in seconds, they end where so much time passed between two turns.

        Args:
            reach: by row, how many turns to return on either side.
        """

    def fact_sources(self, facts: Sequence[str], scopes: Sequence[int]) -> dict[str, list[int]]:
        """Return, for each fact, the rows of its source entries that the viewer may see."""

    def fact_sessions(self, fact: str, scopes: Sequence[int]) -> list[int]:
        """Return the source sessions of a fact that hold an entry the viewer may see."""

    def visible_rows(
        self, scopes: Sequence[int], sessions: Sequence[int] | None = None
    ) -> list[int]:
        """Return all visible rows, of some sessions or (None) of all."""

    def rows_between(
        self, scopes: Sequence[int], start: float, end: float, limit: int
    ) -> list[int]:
        """Return the newest visible rows of each scope said between two moments."""

    def newest_in_session(
        self, agent: str, session: str, scopes: Sequence[int], limit: int
    ) -> list[int]:
        """Return the newest visible entries of an agent's session, the last one said first."""

    def standing_rows(self, scopes: Sequence[int], limit: int) -> list[int]:
        """Return the newest visible standing instructions of these scopes."""

    def rows_without_vector(
        self, model: str, limit: int, newest: int
    ) -> dict[int, tuple[str, ...]]:
        """Return the texts to embed of indexed rows without vectors of a model, newest first.

        Args:
            newest: the number of newest items examined.
        """


class ItemReader(RecordReader, Protocol):
    """Read entries and facts with their state: for facts, lifecycle and answering."""

    def items(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Return the items of these ids that are in the index, oldest first."""

    def facts(
        self,
        *,
        run: str | None = None,
        subject: str | None = None,
        relation: str | None = None,
        value: str | None = None,
        standing: Standing | None = None,
        audience: tuple[str, str] | None = None,
        readable_by: str | None = None,
        written_since: datetime | None = None,
        written_until: datetime | None = None,
        valid_since: float | None = None,
        valid_until: float | None = None,
    ) -> list[Stored]:
        """Return the facts that meet every condition, oldest first.

        Args:
            run: the consolidation that recorded them.
            subject: normalised, like ``relation`` and ``value``.
            audience: as `Fact.audience` has it; summaries and timelines are left out.
            readable_by: leave out facts private to other agents.
            written_since: inclusive, like all time limits.
            valid_since: bound on the start of validity, in seconds since 1970.
        """

    def entries(
        self,
        *,
        agent: str | None = None,
        sender: str | None = None,
        session: str | None = None,
        run: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[str]:
        """Return the ids of the entries that meet every condition, oldest first.

        Args:
            since: bound on the observation time, in seconds since 1970; inclusive, like ``until``.
        """

    def people(self) -> dict[str, tuple[int, int]]:
        """Return every sender with the number of their lines and of their own facts.

        The sender "" is the user where none is named.
        """

    def list_items(self, ids: Collection[str]) -> Iterator[ListedItem]:
        """Yield these items with their texts."""

    def ids_in_session(self, agent: str, session: str) -> list[str]:
        """Return the ids of an agent's entries of one session, in order."""

    def user_entries(self, session: int, most: int) -> list[Stored]:
        """Return the first retrievable user entries of a session, ordered by id."""

    def all_sessions(self) -> dict[str, list[int]]:
        """Return the sessions of each agent, ordered by name."""

    def session_spans(self, agent: str | None = None) -> list[SessionSpan]:
        """Return every session, of one agent or of all, with what was said last first."""

    def newest_ids(
        self, limit: int, *, tier: str | None = None, forgotten: bool = False
    ) -> list[str]:
        """Return the newest items of a tier, or of all, that are forgotten or are not."""

    def ids_ending(self, end: str, limit: int, *, forgotten: bool = False) -> list[str]:
        """Return ids that end in these characters, of items that are forgotten or are not."""

    def state(self, identity: str) -> State:
        """Return an item's current state."""

    def gate_backlog(self, verdicts: Collection[str], limit: int) -> list[tuple[str, str]]:
        """Return the oldest entries with one of these verdicts of the gate, or none ("")."""

    def sources(self, fact: str) -> list[Source]:
        """Return a fact's sources, its own first, then those of later promotions."""

    def confirmations(self, fact: str) -> list[Confirmation]:
        """Return the sources that later promotions added to a fact, in promotion order."""

    def dependent_facts(self, entries: Collection[str]) -> list[str]:
        """Return the facts all of whose sources are among these entries or already forgotten."""

    def facts_citing(self, items: Collection[str]) -> list[str]:
        """Return the facts that have any of these items among their sources."""

    def excluded_from_facts(self, entries: Collection[str]) -> set[str]:
        """Return the entries that are forgotten or were promoted by an explicit request."""

    def evidence_ids(self, rows: Collection[int]) -> dict[int, list[str]]:
        """Return the evidence of each row: the entry itself, or the sources of a fact."""

    def superseded_by(self, facts: Collection[str]) -> list[str]:
        """Return the items that these facts supersede now."""

    def superseded_entries(self, entries: Collection[str]) -> list[tuple[str, str]]:
        """Return pairs of these entries: one whose fact was superseded, and one that it is by."""

    def replacement_facts(self, about: Collection[Sequence[str]]) -> set[str]:
        """Return the facts of these (normalised) subjects and relations that replaced an older one.

        Forgotten facts do not count: their former existence must not be revealed.
        """

    def contested_facts(self, relations: Collection[str]) -> list[Stored]:
        """Return the current facts of these relations of which a subject has several values.

        Subjects, relations and values are compared normalised, within one audience.
        """

    def subjects_like(self, part: str, limit: int) -> list[str]:
        """Return the (normalised) subjects that contain a text, those with most facts first."""

    def ids_of_keys(self, keys: Collection[str]) -> dict[str, str]:
        """Return the ids of the entries that exist, by key."""

    def last_turn(self, agent: str, session: str) -> int:
        """Return the highest turn of a session; 0 when it has none."""

    def count_since(self, event: str, scopes: Collection[int]) -> int:
        """Count the retrievable items of these scopes written after a journal event."""

    def count_entries(
        self, since: datetime, until: datetime, *, written: bool = False
    ) -> dict[str, int]:
        """Count the entries of each agent said, or written, after ``since`` and up to ``until``."""

    def said_times(self) -> dict[str, datetime]:
        """Return when each fact was said: when the last of the entries that it rests on was."""

    def count_sessions(self, ids: Collection[str]) -> int:
        """Count the sessions that contain these entries."""

    def derived_counts(self, ids: Collection[str]) -> dict[str, int]:
        """Count the vectors and n-gram rows that the index has of these items."""


class JournalReader(Protocol):
    """Read the journal, and how far the index and the extractors have read the log."""

    def event(self, identity: str) -> JournalEvent | None:
        """Return a journal event by its id."""

    def settle(self, events: Sequence[JournalEvent]) -> list[JournalEvent]:
        """Return events, the offers among them that a host acknowledged as injected.

        All that a reader returns is settled; ``events`` may be ones that the index has not read.
        """

    def recalls_ending(self, end: str) -> list[JournalEvent]:
        """Return the journalled recalls whose ids end so."""

    def events(
        self,
        kinds: Collection[str] = (),
        *,
        agent: str | None = None,
        run: str | None = None,
        item: str | None = None,
        items: Collection[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        before: datetime | None = None,
        newest: int | None = None,
    ) -> list[JournalEvent]:
        """Return the journal events that meet every condition, in order.

        Args:
            kinds: any, unless some are named.
            item: an item whose state they may change; ``items`` likewise, any of several.
            since: included, like ``until``; ``before`` is excluded.
            newest: only so many, the newest first.
        """

    def reverts_after_recall_drop(self) -> list[JournalEvent]:
        """Return the undoings of consolidations after which recall fell, in order."""

    def existing_events(self, ids: Collection[str]) -> set[str]:
        """Return those of these ids that are journal events."""

    def cursors(self, extractor: str = "rules") -> dict[str, int]:
        """Return how far each episodic ledger file was consolidated, in bytes.

        A file that has become shorter than that was rewritten by somebody: it begins anew.
        """

    def last_pass(self, extractor: str) -> int:
        """Return the number of an extractor's last consolidation; 0 before the first."""

    def offsets(self) -> dict[str, int]:
        """Return how many bytes of complete lines of each ledger file are in the index."""

    def line_counts(self) -> dict[str, int]:
        """Return how many lines of each ledger file are in the index."""

    def counts(self) -> dict[str, int]:
        """Return the numbers that `status` shows."""

    def bad_lines(self, limit: int = 50) -> list[tuple[str, int, str]]:
        """Return (file, line, reason) of lines that could not be read."""

    def notices(self, limit: int = 20) -> list[tuple[str, str, str]]:
        """Return (time, file, change) of the newest unexpected ledger changes."""

    def last_activity(self) -> list[tuple[str, str, str]]:
        """Return (agent, "stored" or "recalled", when) of each agent's newest run and recall."""

    def build_id(self) -> str:
        """Return the id of this build of the index; "" for the first one."""


class PageReader(Protocol):
    """Read the pages of sessions."""

    def pages_of(self, rows: Sequence[int], scopes: Sequence[int]) -> dict[int, Page]:
        """Return the page of each row that is an entry of these scopes and on a page."""

    def visible_rows(self, rows: Sequence[int], scopes: Sequence[int]) -> set[int]:
        """Return the rows that are retrievable entries of these scopes."""

    def find_page(self, identity: str, scopes: Sequence[int]) -> Page | None:
        """Return the page of this id, or None if these scopes have no such page."""

    def session_pages(self, agent: str, session: str, scopes: Sequence[int]) -> Iterator[Page]:
        """Yield every page of a session that these scopes may see, by sender and turn."""


class VectorCoverage(Protocol):
    """Track and complete the vectors of each model."""

    def coverage(self, model: str) -> Coverage:
        """Measure a model's coverage; reads every item once if some lack vectors."""

    def pieces_without_vectors(
        self, model: str, limit: int, before: int | None = None
    ) -> dict[int, tuple[str, ...]]:
        """Return the pieces to embed of rows without vectors, newest first.

        Args:
            before: only rows below this one, so that a pass visits each row once.
        """

    def vector_length(self, model: str) -> int | None:
        """Return the length of a model's vectors, None if there is none yet."""

    def probe_vector(self, model: str) -> bytes | None:
        """Return the vector of a fixed text, embedded together with the model's first vectors."""

    def set_probe_vector(self, model: str, vector: bytes | None) -> None:
        """Store or clear the probe vector."""

    def last_error(self) -> str | None:
        """Return why the last pass ended early, if it did."""

    def set_last_error(self, why: str | None) -> None:
        """Store or clear the last error."""

    def put_vectors(self, model: str, vectors: Vectors) -> None:
        """Store vectors of the rows that are still retrievable."""

    def drop_model(self, model: str, limit: int) -> Generator[int]:
        """Delete a model's vectors in steps of at most ``limit``; yield the size of each step.

        The search data is deleted first, in one transaction, so a partly deleted model is never
        searched.  A mark (`models_being_dropped`) stays until the end, as the remaining vectors
        do not show that some are missing.
        """

    def models_being_dropped(self) -> list[str]:
        """Return the models whose deletion was started but not finished."""

    def models(self) -> list[str]:
        """Return the models that have vectors here."""


class Reader(CandidateReader, ItemReader, JournalReader, Protocol):
    """One view of the index, for everything that an operation reads."""

    @property
    def pages(self) -> PageReader:
        """The pages of sessions."""

    @property
    def overviews(self) -> OverviewReader:
        """Groups of lines, and shelves."""

    @property
    def priorities(self) -> PriorityReader:
        """Importance and tiers."""

    @property
    def coverage(self) -> VectorCoverage:
        """The vectors of each model."""
