"""Export the web view as one self-contained file: the same pages, to be read without a server.

The pages are requested from the application itself, link by link.  What only a server
can do (forms, live pages) is left out, and links lead to pages within the file.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from html import unescape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.types import Message

from memtier_plugin.memory import MemTier
from memtier_plugin.web.app import build_pages
from memtier_plugin.web.guard import LedgerWatch
from memtier_plugin.web.rendering import NAVIGATION, Pages

START: Final = ("/", "/facts", "/facts?state=all", "/recalls", "/log")
MOST_LINES: Final = 1_000  # pages of single lines; the log has the others
MOST_PAGES: Final = 10_000
_LINE_PATH: Final = "/lines/"
_EXPORTED_PATHS: Final = (
    *("/", "/facts", "/recalls", "/log", "/lines"),
    *("/health", "/people", "/bill"),
)
# A page with one of these shows part of what another shows.
_FILTERS: Final = {"agent", "session", "query", "all", "days"}
# Remembered text is escaped: what looks like a tag or an attribute in a page is one of ours.
_LINK: Final = re.compile(r' href="([^"]*)"')
_SERVED: Final = re.compile(
    r'<details class="change">.*?</details>|<form\b.*?</form>| hx-[\w-]+="[^"]*"', re.DOTALL
)


def export_html(memory: MemTier, report: Callable[[int], None] = lambda _: None) -> Iterator[str]:
    """Yield the parts of the file.

    Args:
        report: called with the number of pages that are done.
    """
    pages = Pages(memory)
    parts = asyncio.run(_collect(memory, pages, report))
    script = _static("vendor/uPlot.iife.min.js") + _static("app.js")
    style = _static("vendor/uPlot.min.css") + _static("style.css")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    anchors = {address: f"p{number}" for number, address in enumerate(parts)}
    navigation = [(anchors[path], name) for path, name in NAVIGATION if path in anchors]
    frame = pages.render("snapshot.html", policy=policy, navigation=navigation)
    opening, closing = frame.split("<!-- pages -->")
    yield opening.replace("/* style */", style)
    for address, part in parts.items():
        yield f'<article class="page" id="{anchors[address]}">\n{_detach(part, address, anchors)}'
        yield "</article>\n"
    yield closing.replace("/* script */", script)


async def _collect(memory: MemTier, pages: Pages, report: Callable[[int], None]) -> dict[str, str]:
    """Return the content of each page by its address, in the order of the links."""
    app, parts = build_pages(memory, pages, LedgerWatch(memory)), dict[str, str]()
    waiting, known, lines = deque(START), set(START), 0
    exported_paths = {*_EXPORTED_PATHS, *(page.path for page in pages.added)}
    while waiting and len(parts) < MOST_PAGES:
        address = waiting.popleft()
        status, part = await _get(app, address)
        if status != 200:
            continue
        parts[address] = part
        report(len(parts))
        for link in _links(part, address):
            is_line = link.startswith(_LINE_PATH)
            if (
                link in known
                or not _is_kept(link, exported_paths)
                or (is_line and lines >= MOST_LINES)
            ):
                continue
            known.add(link)
            lines += is_line
            waiting.append(link)
    return parts


async def _get(app: Any, address: str) -> tuple[int, str]:
    """Request a page's content from the application."""
    status, body = 500, bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        body.extend(message.get("body", b""))

    path = urlsplit(address)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path.path),
        "query_string": path.query.encode(),
        "headers": [(b"hx-request", b"true")],
    }
    await app(scope, receive, send)
    return status, body.decode("utf-8")


def _links(part: str, address: str) -> Iterator[str]:
    for match in _LINK.finditer(part):
        yield _absolute(unescape(match[1]), address)


def _absolute(link: str, address: str) -> str:
    return urlsplit(address).path + link if link.startswith("?") else link


def _is_kept(link: str, exported_paths: Collection[str]) -> bool:
    """Return whether a page is exported: it only reads, and no other shows more of the same."""
    path, query = urlsplit(link).path, parse_qs(urlsplit(link).query)
    return ("/" + path.split("/")[1]) in exported_paths and not _FILTERS & query.keys()


def _detach(part: str, address: str, anchors: dict[str, str]) -> str:
    """Return a page without what needs a server; its links lead to pages in the file."""

    def anchor(match: re.Match[str]) -> str:
        target = anchors.get(_absolute(unescape(match[1]), address))
        return f' href="#{target}"' if target else ""

    return _LINK.sub(anchor, _SERVED.sub("", part))


def _static(name: str) -> str:
    return files("memtier_plugin.web").joinpath("static", name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
