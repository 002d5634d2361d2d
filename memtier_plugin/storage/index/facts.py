"""Reading the index: what is asked about facts as a whole, by run, subject, time and id."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from memtier_plugin.core.records import JournalEvent, Source
from memtier_plugin.storage.index.records import IndexRecords, Stored, parse_event, to_utf8

_ID_CHARACTERS: Final = 64  # of an id's end that are compared


class Confirmation(NamedTuple):
    """A source that a later promotion added to a fact: the event, and its run if it had one."""

    source: Source
    event: str
    run: str | None


class IndexFacts(IndexRecords):
    """Facts of one project's index, on one thread's connection."""

    def facts_of_run(self, run: str) -> list[Stored]:
        """Return the facts that one consolidation made, oldest first."""
        return self._facts("items.data ->> 'run' = ?", run)

    def facts_of_subject(self, subject: str) -> list[Stored]:
        """Return every fact about a (normalised) subject, oldest first; also what held once."""
        return self._facts("facts.subject = ?", subject)

    def facts_written(self, since: str, until: str) -> list[Stored]:
        """Return the facts written from one moment to another (both as on disk), oldest first."""
        return self._facts("items.data ->> 'timestamp' BETWEEN ? AND ?", since, until)

    def waiting_facts(self) -> list[Stored]:
        """Return the proposed facts that nobody has decided on and that still stand."""
        return self._facts(
            "NOT retrievable AND reviewed IS NULL AND NOT coalesce(reverted, 0)"
            " AND NOT coalesce(forgotten, 0) AND superseded_by IS NULL"
        )

    def reverted_facts(self) -> list[Stored]:
        """Return the facts of consolidations that were undone, oldest first."""
        return self._facts("reverted AND NOT forgotten")

    def _facts(self, where: str, *values: str) -> list[Stored]:
        rows = [
            int(row)
            for (row,) in self._db.execute(
                f"""SELECT items.row FROM facts CROSS JOIN items ON items.row = facts.row
                    LEFT JOIN states ON item = items.id WHERE {where} ORDER BY items.id""",  # noqa: S608
                tuple(map(to_utf8, values)),
            )
        ]
        stored = self.items_by_row(rows)
        return [stored[row] for row in rows]

    def subjects_like(self, part: str, limit: int) -> list[str]:
        """Return (normalised) subjects of which a text is a part, those with most facts first."""
        rows = self._db.execute(
            """SELECT subject FROM facts WHERE instr(subject, ?) GROUP BY subject
               ORDER BY count(*) DESC, subject LIMIT ?""",
            (to_utf8(part), limit),
        )
        return [str(row[0]) for row in rows]

    def superseded_by(self, facts: Collection[str]) -> list[str]:
        """Return the items in whose place these facts stand now."""
        rows = self._db.execute(
            """SELECT item FROM states
               WHERE superseded_by IN (SELECT value FROM json_each(?)) ORDER BY item""",
            (json.dumps([to_utf8(fact) for fact in facts]),),
        )
        return [str(row[0]) for row in rows]

    def confirmations(self, fact: str) -> list[Confirmation]:
        """Return the sources that later promotions added to a fact, in the order of these."""
        rows = self._db.execute(
            """SELECT sources.agent, session, entry, events.id, run FROM sources
               JOIN events ON events.id = via WHERE fact = ? ORDER BY stamp, events.id, entry""",
            (to_utf8(fact),),
        )
        return [Confirmation(Source(agent=a, session=s, entry=e), i, r) for a, s, e, i, r in rows]

    def events_in_run(self, run: str, kinds: Collection[str]) -> list[JournalEvent]:
        """Return what a consolidation wrote into the journal, in order."""
        rows = self._db.execute(
            """SELECT data FROM events
               WHERE run = ? AND kind IN (SELECT value FROM json_each(?)) ORDER BY stamp, id""",
            (to_utf8(run), json.dumps(list(kinds))),
        )
        return [parse_event(data) for (data,) in rows]

    def reverts_after_recall_drop(self) -> list[JournalEvent]:
        """Return the undoings of consolidations after which recall fell, in order."""
        rows = self._db.execute(
            """SELECT data FROM events WHERE kind = 'revert' AND data ->> 'probes' IS NOT NULL
               ORDER BY stamp, id"""
        )
        return [parse_event(data) for (data,) in rows]

    def events_between(self, kind: str, since: str, until: str) -> list[JournalEvent]:
        """Return the events of a kind from one moment to another (as on disk), in order."""
        rows = self._db.execute(
            "SELECT data FROM events WHERE kind = ? AND stamp BETWEEN ? AND ? ORDER BY stamp, id",
            (kind, since, until),
        )
        return [parse_event(data) for (data,) in rows]

    def ids_ending(self, end: str, limit: int) -> list[str]:
        """Return ids that end so, of what is not forgotten."""
        end = to_utf8(end)[-_ID_CHARACTERS:]
        rows = self._db.execute(
            """SELECT id FROM items LEFT JOIN states ON item = id
               WHERE substr(id, -?) = ? AND NOT coalesce(forgotten, 0) LIMIT ?""",
            (len(end), end, limit),
        )
        return [str(row[0]) for row in rows]

    # -- probes of the project's own history ---------------------------------------------------

    def all_sessions(self) -> dict[str, list[int]]:
        """Return the sessions of each agent, in the order of their names."""
        found: dict[str, list[int]] = {}
        for number, agent in self._db.execute(
            "SELECT id, agent FROM sessions ORDER BY agent, name"
        ):
            found.setdefault(str(agent), []).append(int(number))
        return found

    def user_entries(self, session: int, most: int) -> list[Stored]:
        """Return the first entries of a session's user that can be found, by their ids."""
        rows = [
            int(row)
            for (row,) in self._db.execute(
                """SELECT row FROM (SELECT row, id FROM items
                     WHERE session = ? AND indexed AND role = 'user' AND tier = 'episodic'
                     ORDER BY observed, turn, id LIMIT ?) ORDER BY id""",
                (session, most),
            )
        ]
        stored = self.items_by_row(rows)
        return [stored[row] for row in rows]

    def word_frequencies(self, scopes: Collection[int], words: Collection[str]) -> dict[str, int]:
        """Return how many items of these scopes have each of these index words."""
        rows = self._db.execute(
            """SELECT term, sum(df) FROM terms WHERE scope IN (SELECT value FROM json_each(?))
               AND term IN (SELECT value FROM json_each(?)) GROUP BY term""",
            (json.dumps(list(scopes)), json.dumps([to_utf8(word) for word in words])),
        )
        return {str(term): int(df) for term, df in rows}

    def evidence_ids(self, rows: Collection[int]) -> dict[int, list[str]]:
        """Return what each of these rows tells of: an entry of itself, a fact of its sources."""
        found: dict[int, list[str]] = {}
        for row, entry in self._db.execute(
            """SELECT row, coalesce(entry, id) FROM items LEFT JOIN sources ON fact = id
               WHERE row IN (SELECT value FROM json_each(?)) ORDER BY row, place, entry""",
            (json.dumps(list(rows)),),
        ):
            found.setdefault(int(row), []).append(str(entry))
        return found
