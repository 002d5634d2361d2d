"""One line, an entry or a fact: its weight over time, its recalls and credits, what it rests on."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.times import from_iso
from memtier_plugin.views.history import LineHistory
from memtier_plugin.views.reading import read_line_history
from memtier_plugin.web.rendering import PagePart


class LinePages(PagePart):
    """Shows what became of a line."""

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
        """Return the entry itself and the facts made of it, or the fact and what it rests on."""
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
