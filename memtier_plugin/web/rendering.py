"""Render pages with every value escaped, and read the forms that they send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from jinja2 import ChoiceLoader, DictLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from memtier_plugin import __version__
from memtier_plugin.core import plugins
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.events import describe_call
from memtier_plugin.core.formats import describe_age, from_iso
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.storage.index.item_reader import SessionSpan
from memtier_plugin.storage.protocol import format_bytes
from memtier_plugin.trust.escaping import reveal_hidden
from memtier_plugin.web.guard import ledger_sizes

# -- Forms as browsers send them, without multipart

MAX_FORM_BYTES: Final = 256 * 1024
_MOST_FIELDS: Final = 2_000
_TARGET: Final = ("id", "agent", "session", "text")


class Form(dict[str, str]):
    """Holds the last value of each field; `all` has every value."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def text(self, name: str) -> str:
        """Return a field without surrounding spaces; "" if it is missing."""
        return self.get(name, "").strip()

    def target(self) -> list[tuple[str, str]]:
        """Return the fields that name the target, to be sent again to confirm."""
        return [pair for pair in self._pairs if pair[0] in _TARGET and pair[1]]

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a field but empty ones."""
        return tuple(value.strip() for key, value in self._pairs if key == name and value.strip())


async def read_form(request: Request) -> Form:
    """Read the form of a request.

    Raises:
        MessageError: it is too large, or not a form.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise MessageError(f"a form of more than {MAX_FORM_BYTES // 1024} kB is not read")
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise MessageError(f"this is not a form: {error}") from None
    return Form(pairs)


# -- Render pages: every value is escaped, and invisible characters are shown

NAVIGATION: Final = (
    ("/", "Home"),
    ("/facts", "Facts"),
    ("/review", "Review"),
    ("/recalls", "Recalls"),
    ("/log", "Log"),
    ("/search", "Search"),
)


def is_inline(request: Request) -> bool:
    """Return whether htmx puts the answer into an open page, without the frame."""
    return request.headers.get("hx-request") == "true"


class Pages:
    """Renders the templates for one project."""

    def __init__(self, memory: MemTier) -> None:
        self._memory = memory
        self._spans: tuple[object, Sequence[SessionSpan]] = (None, ())
        self.added = plugins.find_web_pages()
        theirs = {page.path: page.template.read_text("utf-8") for page in self.added}
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader("memtier_plugin.web"), DictLoader(theirs)]),
            autoescape=True,  # whatever a template is called
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "seen": seen,
            "short": lambda identity: seen(identity)[-SHORT_ID_CHARS:],
            "clock": lambda iso: str(iso or "")[11:16],
            "minute": lambda iso: str(iso)[:16].replace("T", " ") if iso else "–",
            "day": long_day,
            "age": describe_age,
            "size": format_bytes,
            "call": describe_call,
            "signed": lambda number: f"{number:+.3f}".replace("-", "−"),
            # A name may hold lone surrogates.
            "query": partial(urlencode, errors="replace"),
            "urlencode": partial(quote, errors="replace"),
        }
        self._templates.globals |= {
            "project": memory.project,
            "navigation": NAVIGATION,
            "added": self.added,
            "version": __version__,
        }

    def page(
        self, request: Request, template: str, code: int = 200, /, **values: Any
    ) -> HTMLResponse:
        """Return a page; for htmx, only the content of its ``main``."""
        part = is_inline(request)
        html = self.render(template, path=request.url.path, part=part, **values)
        return HTMLResponse(html, code, {"Vary": "HX-Request"})

    def read_spans(self) -> Sequence[SessionSpan]:
        """Return the sessions, the newest first; read again only after a write."""
        sizes = ledger_sizes(self._memory)
        seen, spans = self._spans
        if sizes is None or sizes != seen:
            self._memory.store.catch_up_all()
            with self._memory.store.session() as reader:
                spans = reader.session_spans()
            self._spans = (sizes, spans)
        return spans

    @staticmethod
    async def in_thread(work: Callable[..., Response], *arguments: Any) -> Response:
        """Answer a request in a thread, as the work may take a while."""
        return await asyncio.to_thread(work, *arguments)

    def render(self, template: str, /, **values: Any) -> str:
        """Render a template; what UTF-8 cannot encode becomes "?"."""
        html = self._templates.get_template(template).render(values)
        return html.encode("utf-8", "replace").decode("utf-8")


class PagePart:
    """A group of pages of one project."""

    def __init__(self, memory: MemTier, pages: Pages) -> None:
        self._memory = memory
        self._pages = pages


def seen(text: object) -> str:
    """Return a text with invisible characters shown as code points."""
    return reveal_hidden(str(text))


def long_day(iso: str) -> str:
    """Return a day as people write it: Monday 23 November 2026."""
    day = from_iso(iso[:10])
    return f"{day:%A} {day.day} {day:%B} {day.year}"


def today() -> str:
    """Return the UTC day."""
    return f"{datetime.now(UTC):%Y-%m-%d}"
