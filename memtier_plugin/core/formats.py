"""Formats on disk: untrusted JSON, ISO 8601 times, ULIDs, and line checksums."""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))  # seconds

# -- Parse JSON that somebody else wrote or may have changed; standard library only


def parse_json_text(text: str | bytes) -> Any:
    """Parse a JSON document as `json.loads` does.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# -- Times: the clock, ISO 8601 text, and zones


def to_iso(moment: datetime) -> str:
    """Return the fixed-width UTC form used on disk, which sorts by time."""
    # Not strftime, which writes the year 800 with three digits on some platforms.
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


@lru_cache(1024)  # the entries of a session share their times
def from_iso(text: str) -> datetime:
    """Parse an ISO-8601 time; one without an offset is UTC.

    Raises:
        ValueError: the text is not a time.
    """
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"the time {text!r} is out of range") from error


def describe_age(since: str, now: str) -> str:
    """Describe how long ago an ISO time was, in its largest unit: "3 minutes ago"."""
    passed = max(timedelta(0), from_iso(now) - from_iso(since))  # clocks differ
    for seconds, unit in _UNITS:
        if count := passed // timedelta(seconds=seconds):
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


def aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone; a naive one is UTC."""
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def utc_now() -> datetime:
    # Milliseconds, as on disk, so that a time survives a round trip unchanged.
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


Clock = Callable[[], datetime]


# -- Sortable ids (ULID)

ID_LENGTH: Final = 26  # characters of an id
MIN_ID_END: Final = 6  # the fewest final characters that may stand for an id


def new_id() -> str:
    """Return a ULID: 26 characters that sort by time, and by order of creation within a process."""
    from ulid import ULID  # imported here, so that importing the package loads no third party

    return str(ULID())


def _renew_after_fork() -> None:
    """Give a forked child its own generator: the parent's may be locked, or yield the same ids."""
    library: Any = sys.modules.get("ulid")
    if library is not None and hasattr(library, "default_generator"):
        library.default_generator = library.ULIDGenerator()


os.register_at_fork(after_in_child=_renew_after_fork)


# -- The checksum that ends a ledger line and reveals later changes
#
# ``"crc32"`` is the last field of a line: eight hexadecimal digits over the bytes before it.  Lines
# of `CHECKED_SCHEMA` and later have one; older ones may lack it.

FIELD: Final = "crc32"
CHECKED_SCHEMA: Final = 2
# why a damaged line that was never acknowledged is bad
CUT_OFF: Final = "a write was cut off by a crash"

_TO_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(", ", ": ")).encode
_SEAL: Final = re.compile(rb', "crc32": "([0-9a-f]{8})"\}\s*\Z')
_SCHEMA: Final = re.compile(rb'\{"schema": (\d+)')


def encode(record: Mapping[str, Any]) -> bytes:
    """Encode a record as a line's JSON; lone surrogates, which UTF-8 cannot hold, are escaped."""
    try:
        return _TO_JSON(record).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(record, separators=(", ", ": ")).encode("ascii")


def seal(record: Mapping[str, Any]) -> bytes:
    """Encode a record as a line's JSON with its checksum, without the newline."""
    record = {name: value for name, value in record.items() if name != FIELD}
    opened = encode(record)[:-1]
    return b'%b%b"crc32": "%08x"}' % (opened, b", " if record else b"", zlib.crc32(opened))


def is_intact(line: bytes) -> bool:
    """Return whether a line matches its checksum, or is too old to have one."""
    sealed = _SEAL.search(line)
    if sealed:
        return zlib.crc32(line[: sealed.start()]) == int(sealed[1], 16)
    schema = _SCHEMA.match(line)
    return b'"crc32"' not in line[-40:] and (schema is None or int(schema[1]) < CHECKED_SCHEMA)
