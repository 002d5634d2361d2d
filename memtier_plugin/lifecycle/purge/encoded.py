"""Find copies of a text in other forms: encoded, wrapped, normalised.  Pure.

A text is read as a person or a program would: escapes (JSON's, also nested; of bytes, HTML,
percent, quoted-printable) are resolved, base64, hexadecimal runs and lists of numbers are decoded,
also within each other, and invisible characters, accents and emphasis marks are dropped. Words may
be joined as in a name, and a word may continue after a line end.  Every character keeps its
original position.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from memtier_plugin.trust.secret_formats import UNSEEN

MIN_CHARS: Final = 8  # of a text matched across breaks, since short words often match by chance
NOT_LOOKED_FOR: Final = (
    "copies that are compressed, encrypted, hashed, scrambled, in pictures, translated, reworded, "
    "in base32, base85, uuencode or rotated letters, letter by letter, or a table of bytes"
)
_SHORTEST_NEEDLE: Final = 4
_SHORTEST_RUN: Final = 6  # the base64 letters of `MIN_CHARS` characters
_PASSES: Final = 3  # levels of nested encodings
_LINES_BEHIND: Final = 4  # lines of words after a run of base64 that may look like part of it
_CHUNK: Final = 1024 * 1024  # characters read at a time
_ESCAPE: Final = re.compile(
    r"(?P<percent>(?:%[0-9A-Fa-f]{2})+)|(?P<soft>=\r?\n)|(?P<quoted>(?:=[0-9A-F]{2})+)"
    r"|(?P<bytes>(?<!\\)(?:\\++(?:x[0-9A-Fa-f]{2}|[0-3][0-7]{2}))+)"
    r"|(?P<json>(?<!\\)\\++(?:u[0-9A-Fa-f]{4}(?:\\++u[dD][c-fC-F][0-9A-Fa-f]{2})?"
    r"|u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}|[\"'/bfnrt]))"
    r"|(?P<html>&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});)"
)
_BYTE: Final = re.compile(r"x([0-9A-Fa-f]{2})|([0-3][0-7]{2})")
_CODE: Final = re.compile(r"u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]+)\}|U([0-9A-Fa-f]{8})")
_SHORT_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_RUN: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{6,}+"
    r"(?:[ \t]{0,8}(?:\\++[rn]|\r?\n){1,4}[ \t>]{0,8}[A-Za-z0-9+/_-]{4,})*={0,2}"
)
_HEX: Final = re.compile(r"[0-9A-Fa-f]{8,}")
_BYTE_LISTS: Final = tuple(  # by base and maximum digits of a byte
    (
        base,
        re.compile(
            rf"(?<![{digits}])(?:0{prefix})?[{digits}]{{1,{most}}}+(?!\w)"
            rf"(?:(?:[\s,:;-]|\\++[nrt]){{1,16}}+(?:0{prefix})?[{digits}]{{1,{most}}}+(?!\w)){{3,}}+"
        ),
        re.compile(rf"(?:0{prefix})?([{digits}]+)"),
    )
    for base, digits, prefix, most in (
        (16, "0-9A-Fa-f", "[xX]", 2),
        (10, "0-9", "d", 3),
        (8, "0-7", "[oO]", 3),
        (2, "01", "[bB]", 8),
    )
)
_LINE_END: Final = re.compile(r"[ \t]*(?:\\++[rn]|\r?\n)+[ \t>]*")
# Characters that separate words, also in names and URLs, or that mark them.
_COLOUR: Final = r"\x1b\[[0-9;?]{0,40}[A-Za-z]|\x00"
_EMPHASIS: Final = r"[*_~`]|</?[A-Za-z][^<>]{0,60}>"
_GAP: Final = re.compile(rf"(?:{_COLOUR}|{_EMPHASIS}|[\s+>|#/-]|\.(?=\S))+")
_NOT_SEEN: Final = re.compile(rf"(?:{_COLOUR})+")
_MARKED: Final = re.compile(rf"(?:{_COLOUR}|{_EMPHASIS})+")


class Reading(NamedTuple):
    """A decoded text, with the start and end of each character in the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class EncodedFinder:
    """Finds texts in other forms.

    Percent-encoded, quoted-printable, with HTML, JSON or byte escapes; in base64, hexadecimal or
    byte numbers, in UTF-8 or UTF-16; nested up to three deep.  In any case and normal form,
    coloured, emphasised, wrapped, quoted as in mail, or joined as in names.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        texts = [*texts]
        needles = {needle for text in texts if (needle := _needle(text))}
        self._needles = sorted(needles, key=lambda needle: needle[0])
        shortest = min((len(needle) for needle, _ in needles), default=0)
        self._shortest_run = max(_SHORTEST_RUN, shortest * 4 // 3 - 2)
        self._wide = wide_forms(texts)

    def __bool__(self) -> bool:
        return bool(self._needles)

    def find_all(self, value: str) -> list[tuple[int, int]]:
        """Return the spans of the copies, in order and disjoint."""
        if not self._needles:
            return []
        overlap = min(_CHUNK // 2, 16 * max(len(text) for text, _ in self._needles) + 1024)
        spans = set[tuple[int, int]]()
        for at in range(0, max(1, len(value)), _CHUNK - overlap):
            piece = value[at : at + _CHUNK]
            spans |= {(at + start, at + end) for start, end in self._find(piece, _PASSES)}
            if at + _CHUNK >= len(value):
                break
        return merge_spans(spans)

    def _find(self, value: str, depth: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of copies within at most ``depth`` levels of encoding."""
        reading = Reading(value, range(len(value)), range(1, len(value) + 1))
        for count in range(_PASSES + 1):
            yield from self._search(reading)
            if count == _PASSES or not _ESCAPE.search(reading.text):
                break
            reading = _unescape(reading)
        if not depth:
            return
        for run in _RUN.finditer(value):
            if self._count_in_run(run[0], depth):
                yield run.start(), run.start() + self._needed(run[0], depth)
        for base, numbers, number in _BYTE_LISTS:
            for run in numbers.finditer(value):
                numerals = [*number.finditer(run[0])]
                data = [int(figure[1], base) for figure in numerals]
                for first in (1, 0):  # the end of a word may look like a number
                    if max(data) < 256 and self._count_in(bytes(data[first:]), depth):
                        yield run.start() + numerals[first].start(), run.end()
                        break

    def _search(self, reading: Reading) -> Iterator[tuple[int, int]]:
        plain = _normalise(reading)
        squeezed, gaps = _squeeze(plain)
        for needle, breaks in self._needles:
            at = squeezed.text.find(needle)
            while at >= 0:
                end = at + len(needle)
                if all(
                    gap - at in breaks or _may_part(gaps[gap], len(needle))
                    for gap in range(at + 1, end)
                    if gap in gaps
                ):
                    yield squeezed.starts[at], squeezed.ends[end - 1]
                at = squeezed.text.find(needle, at + 1)

    def _needed(self, run: str, depth: int) -> int:
        """Return the length of a run without trailing lines that are not part of it."""
        end, copies = len(run), self._count_in_run(run, depth)
        for line in [*_LINE_END.finditer(run)][: -_LINES_BEHIND - 1 : -1]:
            if self._count_in_run(run[: line.start()], depth) < copies:
                break
            end = line.start()
        return end

    def _count_in_run(self, run: str, depth: int) -> int:
        """Return how often a run of base64 or hexadecimal digits contains one of the texts."""
        letters = _LINE_END.sub("", run).rstrip("=")
        if len(letters) < self._shortest_run:
            return 0
        return max((self._count_in(data, depth) for data in _decodings(letters)), default=0)

    def _count_in(self, data: bytes, depth: int) -> int:
        """Return how often bytes contain one of the texts."""
        wide = sum(data.count(form) for form in self._wide)
        return wide or len({*self._find(data.decode("utf-8", "replace"), depth - 1)})


def wide_forms(texts: Iterable[str]) -> set[bytes]:
    """Return the texts in UTF-16, in both byte orders and the usual cases."""
    stripped = [text.strip() for text in texts]
    cased = {form for text in stripped for form in (text, text.lower(), text.upper()) if form}
    return {
        form.encode(encoding, "surrogatepass")
        for form in cased
        for encoding in ("utf-16-le", "utf-16-be")
    }


def _may_part(gap: str, size: int) -> bool:
    """Return whether a gap inside a word is one that does not change the word."""
    if _NOT_SEEN.fullmatch(gap):
        return True
    return size >= MIN_CHARS and ("\n" in gap or bool(_MARKED.fullmatch(gap)))


def merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, with overlapping ones merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _needle(text: str) -> tuple[str, frozenset[int]] | None:
    """Return a text without its word separators, and the positions where they were."""
    stripped = text.strip()
    plain = _normalise(Reading(stripped, range(len(stripped)), range(1, len(stripped) + 1)))
    squeezed, gaps = _squeeze(plain)
    return (squeezed.text, frozenset(gaps)) if len(squeezed.text) >= _SHORTEST_NEEDLE else None


def _unescape(reading: Reading) -> Reading:
    """Resolve one level of a text's escapes."""
    text: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for match in _ESCAPE.finditer(reading.text):
        begin, end = match.span()
        text.append(reading.text[done:begin])
        starts += reading.starts[done:begin]
        ends += reading.ends[done:begin]
        meaning = _meaning(match)
        text.append(meaning)
        starts += [reading.starts[begin]] * len(meaning)
        ends += [reading.ends[end - 1]] * len(meaning)
        done = end
    text.append(reading.text[done:])
    starts += reading.starts[done:]
    ends += reading.ends[done:]
    return Reading("".join(text), starts, ends)


def _meaning(match: re.Match[str]) -> str:
    escape = match[0]
    if match["soft"]:
        return ""
    if match["percent"] or match["quoted"]:
        return bytes.fromhex(escape.replace(escape[0], "")).decode("utf-8", "replace")
    if match["bytes"]:
        data = bytes(int(h, 16) if h else int(o, 8) for h, o in _BYTE.findall(escape))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    if match["html"]:
        return html.unescape(escape)
    if codes := ["".join(code) for code in _CODE.findall(escape)]:
        units = "".join(chr(min(int(code, 16), 0x10FFFF)) for code in codes)
        return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _SHORT_ESCAPES.get(escape[-1], escape[-1])


def _normalise(reading: Reading) -> Reading:
    """Drop case, accents and invisible characters."""
    if reading.text.isascii():
        return Reading(reading.text.lower(), reading.starts, reading.ends)
    text: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for index, char in enumerate(reading.text):
        if char.isascii():
            plain = char.lower()
        elif UNSEEN.match(char):
            continue
        else:
            parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
            plain = "".join(part for part in parts if not unicodedata.combining(part))
        text.append(plain)
        starts += [reading.starts[index]] * len(plain)
        ends += [reading.ends[index]] * len(plain)
    return Reading("".join(text), starts, ends)


def _squeeze(reading: Reading) -> tuple[Reading, dict[int, str]]:
    """Drop word separators; return them too, keyed by the following position."""
    gaps: dict[int, str] = {}
    text: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for space in _GAP.finditer(reading.text):
        text.append(reading.text[done : space.start()])
        starts += reading.starts[done : space.start()]
        ends += reading.ends[done : space.start()]
        gaps[len(starts)] = space[0]
        done = space.end()
    text.append(reading.text[done:])
    starts += reading.starts[done:]
    ends += reading.ends[done:]
    return Reading("".join(text), starts, ends), gaps


def _decodings(letters: str) -> Iterator[bytes]:
    """Yield the possible decodings of a run, as its groups may start anywhere."""
    for figures in _HEX.findall(letters):
        for odd in (figures, figures[1:]):
            yield bytes.fromhex(odd[: len(odd) & ~1])
    standard = letters.replace("-", "+").replace("_", "/")
    for offset in range(4):
        group = standard[offset:]
        group = group[: len(group) - (len(group) % 4 == 1)]
        try:
            yield base64.b64decode(group + "=" * (-len(group) % 4))
        except (binascii.Error, ValueError):
            continue
