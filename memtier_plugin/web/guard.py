"""Admit only the user's own browser, and tell its pages when something is written."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier

# -- Tell open pages that something was written, by server-sent events

LOOK_SECONDS: Final = 1.0  # between two checks, however many pages are open
_HEARTBEAT_SECONDS: Final = 15.0


def ledger_sizes(memory: MemTier) -> object:
    """Return a value that changes whenever a project's ledgers do; None if they cannot be read."""
    try:
        usage = memory.store.measure_usage(datetime.now(UTC))
    except (MemTierError, OSError):
        return None
    return (usage.tiers, usage.files)


class LedgerWatch:
    """Knows when a project's ledgers last changed, by their sizes."""

    def __init__(self, memory: MemTier, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._memory = memory
        self._is_ending = is_ending
        self._sizes: object = None
        self._looked_at = -LOOK_SECONDS
        self._lock = asyncio.Lock()
        self.version = 0

    async def look(self) -> int:
        """Return a number that grows with each change; check once a second, however many ask."""
        async with self._lock:
            if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                sizes = await asyncio.to_thread(ledger_sizes, self._memory)
                self.version += sizes != self._sizes
                self._sizes, self._looked_at = sizes, time.monotonic()
        return self.version

    async def stream(self, _request: Request) -> StreamingResponse:
        """Send the event ``changed`` after each change, as long as the page is open."""
        return StreamingResponse(
            self._events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _events(self) -> AsyncIterator[str]:
        seen, sent = await self.look(), time.monotonic()
        yield "retry: 3000\n: open\n\n"
        while not self._is_ending():  # or it is cancelled, when the page is closed
            await asyncio.sleep(LOOK_SECONDS)
            if (version := await self.look()) != seen:
                seen, sent = version, time.monotonic()
                yield f"event: changed\ndata: {version}\n\n"
            elif time.monotonic() - sent > _HEARTBEAT_SECONDS:
                sent = time.monotonic()
                yield ": still here\n\n"


# -- Admit only the user's own browser: token, Host, Origin, and the headers of every answer
#
# A page on the web cannot read the view: its host name for 127.0.0.1 is not ours (DNS rebinding),
# and it has no cookie.  Nor can it write: its Origin and ``Sec-Fetch-Site`` give it away.  Those
# two also stop other servers on this machine: to a browser every port of 127.0.0.1 is one site.

TOKEN_PARAMETER: Final = "token"
COOKIE: Final = "memtier"
_READS: Final = ("GET", "HEAD")
_OWN_SITES: Final = ("same-origin", "none")  # "none": typed, or opened by another program
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # "no-referrer" would make the Origin of a form "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",  # purged text must not stay in the browser
}


class Guard:
    """An ASGI application that lets only the holder of the token through to another."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        """Take the start-up token, and the port that a valid ``Host`` names."""
        self._app = app
        self._token = token
        self._session = secrets.token_urlsafe(32)  # the cookie: it does not reveal the token
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        self._cookie = f"{COOKIE}-{port}"  # browsers send it to every port of the host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is refused or carries the token; pass on the rest."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(scope, Headers(scope=scope))
        await (answer or self._app)(scope, receive, send_guarded)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request that does not get through, or None."""
        if headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse(
                "Unknown host name; open the URL that `memtier web` printed.\n", 421
            )
        if refusal := self._refuse_foreign(scope, headers):
            return PlainTextResponse(f"{refusal}\n", 403)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if scope["method"] in _READS and TOKEN_PARAMETER in query:
            return self._exchange(scope["path"], query)
        if self._is_known(headers):
            return None
        return PlainTextResponse(
            "Open the URL that `memtier web` printed: it holds the token.\n",
            401,
            {"WWW-Authenticate": "Bearer"},
        )

    def _refuse_foreign(self, scope: Scope, headers: Headers) -> str | None:
        """Return why a request is refused; None if it is from our own pages, or typed."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self._hosts}:
            return "this request comes from another page"
        reads = scope["method"] in _READS
        opened = headers.get("sec-fetch-mode") == "navigate" and reads  # a link, without a cookie
        if site is not None and site not in _OWN_SITES and not opened:
            return "this request comes from another site"
        if not reads and origin is None:
            return "a request that changes something must have an Origin header"
        return None

    def _exchange(self, path: str, query: dict[str, str]) -> Response:
        """Exchange the token for the cookie, and redirect to the address without it."""
        if not hmac.compare_digest(query.pop(TOKEN_PARAMETER).encode(), self._token.encode()):
            return PlainTextResponse("This link has expired. Run `memtier web` again.\n", 401)
        target = "/" + path.lstrip("/\\") + (f"?{urlencode(query)}" if query else "")
        answer = RedirectResponse(target, 303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer

    def _is_known(self, headers: Headers) -> bool:
        """Return whether a request has our cookie, or the token as a bearer, as Prometheus does."""
        jar = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return False
        cookie = jar[self._cookie].value if self._cookie in jar else ""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(cookie.encode(), self._session.encode()) or (
            hmac.compare_digest(bearer.encode(), self._token.encode())
        )
