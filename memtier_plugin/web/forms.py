"""Forms as browsers send them, without multipart."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from memtier_plugin.core.errors import MessageError

MAX_FORM_BYTES: Final = 256 * 1024
_MOST_FIELDS: Final = 2_000
_TARGET: Final = ("id", "agent", "session", "text")


class Form(dict[str, str]):
    """The last value of each field, and all of those that may come several times."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def text(self, name: str) -> str:
        """Return a field without spaces around it, "" where it is missing."""
        return self.get(name, "").strip()

    def target(self) -> list[tuple[str, str]]:
        """Return the fields that say what is meant, to be asked for once more."""
        return [pair for pair in self._pairs if pair[0] in _TARGET and pair[1]]

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a field that has one."""
        return tuple(value.strip() for key, value in self._pairs if key == name and value.strip())


async def read_form(request: Request) -> Form:
    """Read the form of a request.

    Raises:
        MessageError: it is too large, or none.
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
