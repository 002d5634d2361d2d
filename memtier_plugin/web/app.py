"""The web application: its routes, its errors, and the server on a loopback port."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from memtier_plugin.core.asgi import deliver_refusals
from memtier_plugin.core.errors import (
    IndexProblem,
    LedgerError,
    MemTierError,
    NotFound,
    Paused,
)
from memtier_plugin.core.residents import LOOPBACK, listen_on_loopback
from memtier_plugin.memory import MemTier
from memtier_plugin.web.decision_pages import DecisionPages
from memtier_plugin.web.guard import TOKEN_PARAMETER, Guard, LedgerWatch
from memtier_plugin.web.home_page import HomePage
from memtier_plugin.web.pages import FactPages, HealthPages, InsightPages, LinePages, LogPages
from memtier_plugin.web.recall_pages import RecallPages
from memtier_plugin.web.rendering import Pages

# -- The application: its routes and its error pages

_PARTS: Final = (
    HomePage,
    LogPages,
    LinePages,
    FactPages,
    RecallPages,
    HealthPages,
    InsightPages,
    DecisionPages,
)
_STATUS: Final = ((NotFound, 404), (Paused, 409), ((LedgerError, IndexProblem), 503))


def build_app(memory: MemTier, watch: LedgerWatch, *, token: str, port: int) -> ASGIApp:
    """Return the guarded view of a project.

    Args:
        watch: knows when something was written.
        token: what the first request must carry to get the cookie.
        port: the port it is served on; any other in a Host header is refused.
    """
    return deliver_refusals(
        Guard(build_pages(memory, Pages(memory), watch), token=token, port=port)
    )


def build_pages(memory: MemTier, pages: Pages, watch: LedgerWatch) -> ASGIApp:
    """Return the view of a project without its guard."""

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


# -- Serve the web view on a loopback port until a signal


def serve(memory: MemTier, port: int, announce: Callable[[str], None]) -> None:
    """Serve a project's view.

    Args:
        port: 0 for any that is free.
        announce: called with the address, this start's token included, once the port is open.

    Raises:
        Unsupported: the port cannot be opened.
    """
    listener = listen_on_loopback(port)
    port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
    with listener:
        server = build_server(memory, token, port)
        announce(f"http://{LOOPBACK}:{port}/?{TOKEN_PARAMETER}={token}")
        with suppress(KeyboardInterrupt):  # how a user ends it; uvicorn passes it on
            server.run(sockets=[listener])


def build_server(memory: MemTier, token: str, port: int) -> uvicorn.Server:
    """Return the server of a project's view, which ends the live pages when it is to end."""
    watch = LedgerWatch(memory, lambda: server.should_exit)
    app = build_app(memory, watch, token=token, port=port)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=3)
    server = uvicorn.Server(config)
    return server
