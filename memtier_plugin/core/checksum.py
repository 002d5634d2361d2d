"""The checksum at the end of a ledger line: it shows that a line is no longer what was written.

``"crc32"`` is the last field of a line: eight hexadecimal digits over the bytes before it.  Lines
of `CHECKED_SCHEMA` and later have one; older ones need not.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

FIELD: Final = "crc32"
CHECKED_SCHEMA: Final = 2
CUT_OFF: Final = "a write was cut off by a crash"  # why a line is bad that nobody was promised

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
    """Tell whether a line has the checksum of what stands before it, or is too old to have one."""
    sealed = _SEAL.search(line)
    if sealed:
        return zlib.crc32(line[: sealed.start()]) == int(sealed[1], 16)
    schema = _SCHEMA.match(line)
    return b'"crc32"' not in line[-40:] and (schema is None or int(schema[1]) < CHECKED_SCHEMA)
