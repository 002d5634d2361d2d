"""Read the turns around an entry in its session.

The cost is bounded by the turns asked for, whatever the length of a session.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from memtier_plugin.core.structs import parse_json
from memtier_plugin.storage.index.records import RecordReader

_WHOLE_SESSIONS: Final = 1.5  # times the turns wanted, up to which whole sessions are read
RowLengths = list[tuple[int, int]]  # row and length
Neighbours = dict[int, tuple[RowLengths, RowLengths]]  # by row: those before it and after it
_Turn = tuple[int, float, int, int]  # session, time, row and length


class NeighbourReader(RecordReader):
    """Reads the turns around entries, within the scopes that their viewer may see."""

    def neighbours(
        self, distances: Mapping[int, int], scopes: Sequence[int], gap: float = 0.0
    ) -> Neighbours:
        """Return the turns before and after each row in its session, nearest first.

        With a gap, in seconds, they end where so much time passed between two turns.

        Args:
            distances: by row, how many turns to return on either side.
        """
        # "+", so that SQLite looks for a session's turns by the session, not by scope and time.
        rows, only = json.dumps([*distances]), f"+scope IN ({', '.join(map(str, scopes))})"
        most = int(2 * _WHOLE_SESSIONS * sum(distances.values()))
        turns = self._whole_sessions(rows, only, most)
        around = _around_in(turns, distances, gap)
        by_distance: dict[int, list[int]] = {}
        for row in distances.keys() - around.keys():
            by_distance.setdefault(distances[row], []).append(row)
        for many, some in by_distance.items():
            around |= self._neighbours_by_row(some, only, many, gap)
        return around

    def _whole_sessions(self, rows: str, only: str, most: int) -> list[_Turn]:
        """Return all turns of the sessions of these rows (JSON); none if they may exceed a limit.

        Reading a session once takes a third of looking around each of many rows in it.
        """
        sessions = "SELECT session FROM items WHERE row IN (SELECT value FROM json_each(?))"
        count = self._count(
            f"""SELECT coalesce(sum((SELECT max(turn) FROM items WHERE session = here.session)), 0)
                FROM (SELECT DISTINCT session FROM ({sessions})) AS here""",  # noqa: S608
            (rows,),
        )
        if count > most:
            return []
        turns = self._db.execute(
            f"""SELECT session, observed, row, length FROM items
                WHERE session IN ({sessions}) AND indexed AND {only}
                ORDER BY session, observed, turn, id LIMIT ?""",  # noqa: S608
            (rows, most + 1),
        ).fetchall()
        return turns if len(turns) <= most else []  # not all hosts number their turns

    def _neighbours_by_row(
        self, rows: Collection[int], only: str, distance: int, gap: float
    ) -> Neighbours:
        before, after = (
            f"""(SELECT json_group_array(json_array(row, length, observed)) FROM (
                 SELECT row, length, observed FROM items
                 WHERE session = here.session AND indexed AND {only}
                   AND (observed, turn, id) {sign} (+here.observed, +here.turn, +here.id)
                 ORDER BY observed {order}, turn {order}, id {order} LIMIT {int(distance)}))"""  # noqa: S608
            for sign, order in (("<", "DESC"), (">", "ASC"))
        )
        # One statement for all rows: a thousand small ones cost more than the reads themselves.
        # "+" takes a column's affinity away, with which SQLite seeks by `observed` alone and passes
        # over every turn of a session that was recorded with one time.
        sides_of_rows = self._db.execute(
            f"""SELECT '[' || row || ',' || observed || ',' || {before} || ',' || {after} || ']'
                FROM items AS here
                WHERE row IN (SELECT value FROM json_each(?))""",  # noqa: S608
            (json.dumps(list(rows)),),
        )
        sides = parse_json(f"[{','.join(text for (text,) in sides_of_rows)}]")
        return {
            row: (_until_gap(preceding, observed, gap), _until_gap(following, observed, gap))
            for row, observed, preceding, following in sides
        }


def _around_in(turns: Sequence[_Turn], distances: Mapping[int, int], gap: float) -> Neighbours:
    """Return the neighbours of the rows that are among these turns, which are in order."""
    line = [(row, length) for _, _, row, length in turns]
    around: Neighbours = {}
    begin = 0  # of the turns that no other session and no gap is between
    while begin < len(turns):
        end = begin + 1
        session, observed, *_ = turns[begin]
        while end < len(turns) and turns[end][0] == session:
            if gap and turns[end][1] - observed > gap:
                break
            observed = turns[end][1]
            end += 1
        for index in range(begin, end):
            many = distances.get(line[index][0])
            if many is not None:
                before = line[max(begin, index - many) : index]
                around[line[index][0]] = before[::-1], line[index + 1 : min(end, index + 1 + many)]
        begin = end
    return around


def _until_gap(turns: Sequence[tuple[int, int, float]], observed: float, gap: float) -> RowLengths:
    """Return the rows and lengths of turns, up to the first that is a gap away from the last."""
    near: RowLengths = []
    for row, length, moment in turns:
        if gap and abs(moment - observed) > gap:
            break
        near.append((row, length))
        observed = moment
    return near
