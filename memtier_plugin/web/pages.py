"""Serve the pages of the log, of single lines, of facts, of insights and of health."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.hookspecs import WebPage
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts.views import FactView
from memtier_plugin.hosts.presence import describe_silent_hosts
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import list_calls
from memtier_plugin.telemetry.bill import read_bill
from memtier_plugin.telemetry.prometheus import CONTENT_TYPE, JournalMetrics
from memtier_plugin.views.history import LineHistory
from memtier_plugin.views.journal import LogLine, list_days, summarise
from memtier_plugin.views.reading import read_line_history, read_log_lines, read_timeline
from memtier_plugin.web.rendering import PagePart, Pages, long_day, today

# -- The day's log: who said what, and what happened to it

LEAST_FOLDED: Final = 3  # events in a row that are one line until it is opened
PAGE_LINES: Final = 300  # of a day; the rest is on pages of its own


class LogPages(PagePart):
    """Shows the log of one day, or of one session."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of the log."""
        return [Route("/log", self.log)]

    def log(self, request: Request) -> Response:
        """Show a day, the newest one if none is named, of all agents or of one."""
        chosen = request.query_params
        agent, session = chosen.get("agent") or None, chosen.get("session") or None
        spans = self._pages.read_spans()
        matching = [
            span
            for span in spans
            if agent in (None, span.agent) and session in (None, span.session)
        ]
        days = list_days(matching)
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


def group_lines(lines: Sequence[LogLine]) -> list[dict[str, Any]]:
    """Return lines in groups, each with the session and agent of its entries."""
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
    """Yield lines; several events in a row become one line of the kind ``several``."""
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
    """Return the path and query of a request."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def parse_day(text: str | None) -> str | None:
    """Return the day that a text names, as 2026-11-23; None for an empty text.

    Raises:
        MessageError: it names no day.
    """
    try:
        return to_iso(from_iso(text))[:10] if text else None
    except ValueError:
        raise MessageError("a day is written as 2026-11-23") from None


def parse_page(text: str | None) -> int | None:
    """Return a page's number, from 1; None for an empty text.

    Raises:
        MessageError: it is no such number.
    """
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 10**6:
        raise MessageError("a page is a number, 1 or more")
    return int(text)


# -- Facts: the list, how a subject changed over time, rules and intentions

PAGE_FACTS: Final = 100
STATES: Final = ("current", "proposed", "superseded", "rejected", "all")


class FactPages(PagePart):
    """Shows facts, rules and intentions to the person at the machine."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of facts, rules and intentions."""
        return [
            Route("/facts", self.list_facts),
            Route("/facts/rules", self.rules),
            Route("/facts/todo", self.todo),
            Route("/facts/about/{subject:path}", self.timeline),
        ]

    def list_facts(self, request: Request) -> Response:
        """Show facts in one state, the newest first, or those that match a query."""
        chosen = request.query_params
        query, state = chosen.get("query", "").strip(), chosen.get("state", "current")
        facts = self._search(query) if query else self._facts(state)
        page = parse_page(chosen.get("page")) or 1
        start = (page - 1) * PAGE_FACTS
        return self._pages.page(
            request,
            "facts.html",
            title="Facts",
            facts=[view.to_json() for view in facts[start : start + PAGE_FACTS]],
            total=len(facts),
            query=query,
            state=state,
            states=STATES,
            page=page,
            pages=-(-len(facts) // PAGE_FACTS),
        )

    def _search(self, query: str) -> list[FactView]:
        person = self._memory.knowledge.person
        hits = [hit.id for hit in person.search(query, PAGE_FACTS).hits]
        views = {view.fact.id: view for view in person.facts_by_id(hits)}
        return [views[identity] for identity in hits if identity in views]

    def _facts(self, state: str) -> list[FactView]:
        person = self._memory.knowledge.person
        if state == "proposed":
            return person.proposals()[::-1]
        views = person.facts(include_superseded=state != "current", shelves=state == "all")
        if state not in ("current", "all"):
            views = [view for view in views if view.state == state]
        return views[::-1]

    def timeline(self, request: Request) -> Response:
        """Show what is known about a subject, and what was."""
        subject = request.path_params["subject"]
        return self._pages.page(
            request,
            "timeline.html",
            title=subject,
            timeline=read_timeline(self._memory, subject),
        )

    def rules(self, request: Request) -> Response:
        """Show the rules that corrections set, and whether they are kept."""
        rules = [rule.to_json() for rule in self._memory.knowledge.person.rules()]
        return self._pages.page(request, "rules.html", title="Rules", rules=rules)

    def todo(self, request: Request) -> Response:
        """Show what users want to be reminded of."""
        intentions = [each.to_json() for each in self._memory.knowledge.person.todo()]
        return self._pages.page(request, "todo.html", title="To do", intentions=intentions)


# -- One line, an entry or a fact: its weight over time, its recalls, credits and sources


class LinePages(PagePart):
    """Shows the history of a line."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of lines."""
        return [Route("/lines/{line}", self.show)]

    def show(self, request: Request) -> Response:
        """Show an entry or a fact by its id, or by the end of it."""
        line = read_line_history(self._memory, request.path_params["line"])
        return self._pages.page(
            request,
            "line.html",
            title=(line.text or "Forgotten")[:60],
            line=line,
            plot=json.dumps(plot_of(line, self._memory.actor.clock().timestamp())),
            **self._sources(line),
        )

    def _sources(self, line: LineHistory) -> dict[str, Any]:
        """Return an entry and the facts made from it, or a fact and its sources."""
        person = self._memory.knowledge.person
        with self._memory.store.session() as reader:
            item = reader.items([line.id])[line.id].item
            derived = reader.facts_citing([line.id])
        document: dict[str, Any] = {"entry": None, "fact": None, "reviews": (), "sources": ()}
        document["derived"] = [
            {"id": view.fact.id, "text": view.fact.text, "state": view.state}
            for view in person.facts_by_id(derived)
            if not view.fact.shelf
        ]
        if line.text is None:
            return document
        if isinstance(item, Entry):
            return {**document, "entry": item}
        assert isinstance(item, Fact)
        return {**document, **person.fact(line.id).to_document()}


def plot_of(line: LineHistory, now: float) -> list[list[float]]:
    """Return the times and weights that are plotted; the last weight holds until now."""
    times = [from_iso(point.at).timestamp() for point in line.weights]
    return [[*times, max(now, times[-1])], [*line.curve, line.curve[-1]]]


# -- Insights across all lines: who spoke, which lines help, and what the memory costs

MOST_DAYS: Final = 36_500  # how far back a bill may go


class InsightPages(PagePart):
    """Shows people, the bill, and what plugins add."""

    @property
    def routes(self) -> list[Route]:
        """The addresses of people, the bill, and the pages of plugins."""
        return [
            Route("/people", self.people),
            Route("/bill", self.bill),
            *(Route(page.path, partial(self.added, page)) for page in self._pages.added),
        ]

    def people(self, request: Request) -> Response:
        """Show who spoke, what they are called, and which senders are one person."""
        everybody = self._memory.people.everybody()
        return self._pages.page(request, "people.html", title="People", people=everybody)

    def added(self, page: WebPage, request: Request) -> Response:
        """Show the page of a plugin."""
        values = page.values(self._memory)
        return self._pages.page(request, page.path, title=page.title, **values)

    def bill(self, request: Request) -> Response:
        """Show the bill: tokens and money, compared with sending the whole memory."""
        days = parse_page(request.query_params.get("days"))
        start = self._memory.actor.clock() - timedelta(days=min(days, MOST_DAYS)) if days else None
        bill = read_bill(self._memory.store, start).to_json()
        return self._pages.page(request, "bill.html", title="The bill", bill=bill, days=days)


# -- Health: hooks and their latency, jobs, what is degraded, disk; the metrics for Prometheus


class HealthPages(PagePart):
    """Shows the status of the project."""

    def __init__(self, memory: MemTier, pages: Pages) -> None:
        super().__init__(memory, pages)
        self._metrics = JournalMetrics(memory.store)
        self._mutex = Mutex()

    @property
    def routes(self) -> list[Route]:
        """The addresses of the project's health."""
        return [Route("/health", self.health), Route("/metrics", self.metrics)]

    def metrics(self, _request: Request) -> Response:
        """Answer Prometheus, which sends the token as a bearer."""
        with self._mutex:
            return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    def health(self, request: Request) -> Response:
        """Show what `memtier status` does."""
        status = self._memory.status()
        now = self._memory.actor.clock()
        status["degraded"] += describe_silent_hosts(self._memory.home, now)
        latency = [
            {"agent": agent, "hook": hook, **mark}
            for agent, hook, mark in list_calls(status["hooks"], status["waits"])
            if "last_ms" in mark
        ]
        return self._pages.page(
            request, "health.html", title="Health", status=status, latency=latency
        )
