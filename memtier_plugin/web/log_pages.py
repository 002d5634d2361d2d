"""The day's log: who said what, and what happened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.index.item_reader import SessionSpan
from memtier_plugin.views.log import LogLine, list_days, summarise
from memtier_plugin.views.reading import read_log_lines
from memtier_plugin.web.live import ledger_sizes
from memtier_plugin.web.rendering import PagePart, Pages, long_day, today

LEAST_FOLDED: Final = 3  # events in a row that are one line until it is opened
PAGE_LINES: Final = 300  # of a day; the rest is on pages of its own


class LogPages(PagePart):
    """Shows the log of one day, or of one session."""

    def __init__(self, memory: MemTier, pages: Pages) -> None:
        super().__init__(memory, pages)
        self._spans: tuple[object, Sequence[SessionSpan]] = (None, ())

    @property
    def routes(self) -> list[Route]:
        """The addresses of the log."""
        return [Route("/", self.log)]

    def log(self, request: Request) -> Response:
        """Show a day, the newest one if none is named, of all agents or of one."""
        chosen = request.query_params
        agent, session = chosen.get("agent") or None, chosen.get("session") or None
        spans = self._read_spans()
        mine = [
            span
            for span in spans
            if agent in (None, span.agent) and session in (None, span.session)
        ]
        days = list_days(mine)
        day = parse_day(chosen.get("day")) or (days[-1] if days else today())
        lines = [*read_log_lines(self._memory, agent=agent, date=day, session=session)]
        last = max(1, -(-len(lines) // PAGE_LINES))
        page = min(parse_page(chosen.get("page")) or last, last)
        shown = lines[(page - 1) * PAGE_LINES : page * PAGE_LINES]
        return self._pages.page(
            request,
            "log.html",
            title=long_day(day),
            chosen={"agent": agent or "", "session": session or "", "day": day},
            day=day,
            agents=sorted({span.agent for span in spans}),
            before=max((each for each in days if each < day), default=None),
            after=min((each for each in days if each > day), default=None),
            summary=summarise(lines),
            groups=group_lines(shown),
            page=page,
            pages=last,
            address=address_of(request),
        )

    def _read_spans(self) -> Sequence[SessionSpan]:
        """Return the sessions, read again only where something was written: it takes a while."""
        sizes = ledger_sizes(self._memory)
        seen, spans = self._spans
        if sizes is None or sizes != seen:
            self._memory.store.catch_up_all()
            with self._memory.store.session() as reader:
                spans = reader.session_spans()
            self._spans = (sizes, spans)
        return spans


def group_lines(lines: Sequence[LogLine]) -> list[dict[str, Any]]:
    """Return lines in groups, each with the session and agent that its entries are of."""
    groups: list[dict[str, Any]] = []
    for line in fold_events(lines):
        is_entry = line["kind"] == "entry"
        key = (line["session_id"], line["agent_id"]) if is_entry else None
        if not groups or (key and groups[-1]["key"] not in (None, key)):
            groups.append({"key": key, "lines": []})
        if groups[-1]["key"] is None:
            groups[-1]["key"] = key
        groups[-1]["lines"].append(line)
    return groups


def fold_events(lines: Sequence[LogLine]) -> Iterator[LogLine]:
    """Yield lines, with many events in a row as one line of the kind ``several``."""
    for is_small, run in groupby(lines, key=lambda line: line["kind"] not in ("entry", "recall")):
        events = [*run]
        if not is_small or len(events) < LEAST_FOLDED:
            yield from events
            continue
        counts = Counter(event["kind"].replace("_", " ") for event in events)
        text = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items())
        when = events[0]["timestamp"]
        yield {"kind": "several", "timestamp": when, "text": text, "lines": events}


def address_of(request: Request) -> str:
    """Return the path and query by which a page is asked for again."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def parse_day(text: str | None) -> str | None:
    """Return the day that a text names, as 2026-11-23; None where there is none.

    Raises:
        MessageError: it is none.
    """
    try:
        return to_iso(from_iso(text))[:10] if text else None
    except ValueError:
        raise MessageError("a day is written as 2026-11-23") from None


def parse_page(text: str | None) -> int | None:
    """Return a page's number, from 1.

    Raises:
        MessageError: it is none.
    """
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 10**6:
        raise MessageError("a page is a number from 1 on")
    return int(text)
