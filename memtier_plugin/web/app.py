"""The application: its routes, and what an error looks like."""

from __future__ import annotations

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from memtier_plugin.core.errors import (
    IndexProblem,
    LedgerError,
    MemTierError,
    NotFound,
    Paused,
)
from memtier_plugin.memory import MemTier
from memtier_plugin.web.deciding import DecisionPages
from memtier_plugin.web.fact_pages import FactPages
from memtier_plugin.web.guard import Guard
from memtier_plugin.web.health_pages import HealthPages
from memtier_plugin.web.insight_pages import InsightPages
from memtier_plugin.web.line_pages import LinePages
from memtier_plugin.web.live import Watch
from memtier_plugin.web.log_pages import LogPages
from memtier_plugin.web.recall_pages import RecallPages
from memtier_plugin.web.rendering import Pages

_PARTS: Final = (
    LogPages,
    LinePages,
    FactPages,
    RecallPages,
    HealthPages,
    InsightPages,
    DecisionPages,
)
_STATUS: Final = ((NotFound, 404), (Paused, 409), ((LedgerError, IndexProblem), 503))


def build_app(memory: MemTier, watch: Watch, *, token: str, port: int) -> ASGIApp:
    """Return the guarded view of a project.

    Args:
        watch: knows when something was written.
        token: what the first request must have, for the cookie.
        port: the one that it is served on, by which a foreign Host is known.
    """
    return Guard(build_pages(memory, Pages(memory), watch), token=token, port=port)


def build_pages(memory: MemTier, pages: Pages, watch: Watch) -> ASGIApp:
    """Return the view of a project, open to whoever can call it."""

    def explain(request: Request, error: Exception) -> Response:
        status = next((code for kinds, code in _STATUS if isinstance(error, kinds)), 400)
        return pages.page(request, "error.html", status, title="That did not work", why=str(error))

    def answer_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        why = "There is no such page." if error.status_code == 404 else str(error.detail)
        return pages.page(request, "error.html", error.status_code, title="Not here", why=why)

    return Starlette(
        routes=[
            *(route for part in _PARTS for route in part(memory, pages).routes),
            Route("/live", watch.stream),
            Mount("/static", StaticFiles(packages=[("memtier_plugin.web", "static")])),
        ],
        exception_handlers={MemTierError: explain, OSError: explain, HTTPException: answer_http},
    )
