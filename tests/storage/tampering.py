"""Ways in which a line of a ledger stops being what was written, drawn by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Tampering = Callable[[bytes, random.Random], bytes]

# What a field may hold instead: of other types, out of range, or hostile to a parser.
VALUES: Sequence[Any] = (
    *(None, True, 0, -1, 1.5, "", "x", [], {}, [1], {"a": 1}, [[]], "\x00", "\ud800"),
    *(10**30, -(10**30), 1e308, "2026-13-45T99:00:00Z", "9999-12-31T23:59:59.999Z", "../../etc"),
    *("x" * 300, [None], {"items": 1}, "0001-01-01T00:00:00+14:00"),
)
NOT_JSON: Sequence[bytes] = (
    *(b"NaN", b"-Infinity", b"1e999999", b"9" * 5000, b'"\\ud800"', b"[" * 3000, b"nul"),
    *(b'{"a":' * 2000, b"'x'", b"0x1F", b'"\xff\xfe"', b"\x00\x00\x00"),
)


def another_value(line: bytes, random_: random.Random) -> bytes:
    """Give a field, perhaps an inner one, another value."""
    record = json.loads(line)
    holder: Any = record
    while True:
        keys = [*holder] if isinstance(holder, dict) else [*range(len(holder))]
        key = random_.choice([key for key in keys if key not in ("crc32", "schema")] or keys)
        if isinstance(holder[key], dict | list) and holder[key] and random_.random() < 0.6:
            holder = holder[key]
            continue
        holder[key] = random_.choice([v for v in VALUES if repr(v) != repr(holder[key])])
        return json.dumps(record).encode()


def without_a_field(line: bytes, random_: random.Random) -> bytes:
    """Remove a field, or add one twice."""
    record = json.loads(line)
    name = random_.choice([name for name in record if name not in ("crc32", "schema")])
    if random_.random() < 0.3:
        return line[:-1] + b', "%b": 7}' % name.encode()
    del record[name]
    return json.dumps(record).encode()


def not_json(line: bytes, random_: random.Random) -> bytes:
    """Put something in the place of a value that is no JSON, or no JSON that can be read."""
    start = line.index(b": ", random_.randrange(len(line) // 2)) + 2
    return line[:start] + random_.choice(NOT_JSON) + line[line.find(b", ", start) :]


def flipped(line: bytes, random_: random.Random) -> bytes:
    """Flip bits of up to three bytes, but for making a line end of one."""
    data = bytearray(line)
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(data))
        changed = data[at] ^ (1 << random_.randrange(8))
        data[at] = changed if changed != 10 else 11
    return bytes(data) if bytes(data) != line else flipped(line, random_)


def cut(line: bytes, random_: random.Random) -> bytes:
    """Leave the first or the last part only."""
    at = random_.randrange(1, len(line) - 1)
    return random_.choice((line[:at], line[at:]))


def broken_in_two(line: bytes, random_: random.Random) -> bytes:
    """Put a line end into the middle."""
    at = random_.randrange(1, len(line) - 1)
    return line[:at] + b"\n" + line[at:]


def filled(line: bytes, random_: random.Random) -> bytes:
    """Put other bytes in its place: noughts, noise, another text."""
    noise = random_.randbytes(len(line)).replace(b"\n", b"\r")
    return random_.choice((bytes(len(line)), noise, b"# a note", b"[]", b"7", b'"x"', b"null"))


def surrounded(line: bytes, random_: random.Random) -> bytes:
    """Put something before or behind it."""
    extra = random_.choice((b"\xef\xbb\xbf", b"x", b"{}", b",", b"\x00", b"//"))
    return random_.choice((extra + line, line + extra))


TAMPERINGS: Sequence[Tampering] = (
    *(another_value, another_value, another_value, without_a_field, not_json, flipped, flipped),
    *(cut, broken_in_two, filled, surrounded),
)
