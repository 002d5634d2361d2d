"""Separate pasted text from what its sender says, by its shape.  Pure.

Mails, chats, logs, code, tables, tool output, quotations, and whatever a message asks to have
worked on are not the words of who sent them.  What stands around them is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.retrieval import pasted_shapes as shapes
from memtier_plugin.retrieval.prompt_words import likeliest_language, split_words
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.passages import OMISSION
from memtier_plugin.text.phrases import Words

_MAX_CHARS: Final = 200_000  # of a text that are looked at
_MAX_LINES: Final = 4_000  # that are looked at: nobody writes as many, the rest was pasted too
_MAX_OPEN: Final = 20  # of what opens an enclosure and is not closed
_MAX_LINE: Final = 400  # characters of a line by which its shape is told
_REQUEST_WORDS: Final = 30  # of the user's own request beside a text
_BRIEF: Final = 4  # words of a request that can only be about what stands below: "tl;dr?"
_GAP: Final = 4  # lines between two of a log, or of code, that belong to it
_BETWEEN_RULES: Final = 60  # lines, at most
_LEAST_BODY: Final = 24  # characters of a text that a request is about
_MARK: Final = "[pasted: {}]"
_CELL: Final = 60  # characters of a table's cell, at most
MIN_PRINTED_LINES: Final = 2
_MIN_PRINTED_SHARE: Final = 0.5  # of the characters, of few lines
_SEPARATORS: Final = ("\t", ";", ",")


def mark_pasted(shown: str, content: str) -> str:
    """Return what is shown of a message with the parts that were pasted in marks.

    Args:
        shown: a run of the message, which may have an ellipsis before and behind it.
    """
    spans = pasted_spans(content)
    if not spans:
        return shown
    body = shown.removeprefix(OMISSION).removesuffix(OMISSION).strip()
    at = content.find(body)
    if at < 0:
        return _MARK.format(_bare(shown))
    parts, done = [], at
    for start, end in spans:
        start, end = max(start, at), min(end, at + len(body))
        if start >= end:
            continue
        parts += [content[done:start].strip(), _MARK.format(_bare(content[start:end]))]
        done = end
    parts.append(content[done : at + len(body)].strip())
    before = f"{OMISSION} " if shown.startswith(OMISSION) else ""
    after = f" {OMISSION}" if shown.endswith(OMISSION) else ""
    return before + "\n".join(filter(None, parts)) + after


def _bare(text: str) -> str:
    """Return a text without what could close its mark."""
    return text.strip().replace("[", "(").replace("]", ")")


def own_words(text: str) -> str:
    """Return a message without what was pasted into it."""
    spans = pasted_spans(text)
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    return "".join(text[start:end] for start, end in zip(starts, ends, strict=True))


def is_pasted(text: str, start: int, end: int) -> bool:
    """Return whether a part of a message touches what was pasted."""
    return any(start < last and first < end for first, last in pasted_spans(text))


@lru_cache(64)
def pasted_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the parts of a message that were pasted into it: start and end, in order."""
    bare = text.strip()
    if "\n" not in bare and not _is_lone(bare):
        return ()  # as most
    looks = (_enclosed, _quoted, _transcripts, _mails, _machine, _tables, _worked_on)
    return tuple(_look(text, looks).spans())


def split_printed(text: str) -> tuple[str, float]:
    """Return the words around logs, code and data, and their share; 0 where it is too little."""
    lines = _look(text, (_enclosed, _machine, _tables))
    around: list[str] = []
    printed = count = 0
    for pasted, line in zip(lines.pasted, lines.lines, strict=False):
        if bare := line.strip():
            count += pasted
            printed += pasted * len(bare)
            around += [] if pasted else [line]
    share = printed / (printed + sum(len(line.strip()) for line in around) or 1)
    least = 1 if len(lines) == 1 else MIN_PRINTED_LINES * (1 if share >= _MIN_PRINTED_SHARE else 2)
    return ("\n".join(around), share) if count >= least else (text, 0.0)


def _look(text: str, looks: Sequence[Callable[[_Lines], None]]) -> _Lines:
    """Return the lines of a text; mark those that a shape takes for pasted."""
    text = text[:_MAX_CHARS]
    lines = _Lines(text)
    if "\n" in text.strip():
        for look in looks:
            look(lines)
    elif _is_lone(text.strip()):
        lines.mark(0, len(lines))
    return lines


def _is_lone(text: str) -> bool:
    line = text[:_MAX_LINE]
    return bool(shapes.LOG.match(line) or shapes.TIMED.match(line)) and not text.rstrip().endswith(
        "?"
    )


class _Lines:
    """The lines of a message, and which of them were pasted."""

    def __init__(self, text: str) -> None:
        self.starts, self.lines, at = [], [], 0
        for line in text.splitlines(keepends=True):
            self.starts.append(at)
            self.lines.append(line.rstrip("\r\n")[:_MAX_LINE])
            at += len(line)
        self.starts.append(at)
        self.pasted = bytearray(len(self.lines))
        self.rest = len(text) if len(self.lines) > _MAX_LINES else 0
        del self.lines[_MAX_LINES:]

    def __len__(self) -> int:
        return len(self.lines)

    def blank(self, index: int) -> bool:
        return index >= len(self.lines) or not self.lines[index].strip()

    def mark(self, first: int, last: int) -> None:
        """Mark the lines from one up to, and without, another."""
        for index in range(first, min(last, len(self.lines))):
            self.pasted[index] = 1

    def paragraph_end(self, index: int) -> int:
        while index < len(self.lines) and not self.blank(index):
            index += 1
        return index

    def own_end(self, first: int) -> int:
        """Return where a text from a line on ends: before a request that closes the message."""
        last = len(self.lines)
        while last > first and self.blank(last - 1):
            last -= 1
        start = last
        while start > first and not self.blank(start - 1):
            start -= 1
        if start > first and is_request(" ".join(self.lines[start:last])):
            return start
        if last - 1 > first and is_request(self.lines[last - 1]):
            return last - 1
        return last

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the runs of lines that were pasted; blank lines between them join."""
        start: int | None = None
        end = 0
        for index, pasted in enumerate(self.pasted[: len(self.lines)]):
            if pasted and not self.blank(index):
                start = self.starts[index] if start is None else start
                end = self.starts[index] + len(self.lines[index])
                end = max(end, self.starts[index + 1] - 1)
            elif start is not None and not self.blank(index):
                yield start, end
                start = None
        if self.rest:
            yield (self.starts[len(self.lines)] if start is None else start), self.rest
        elif start is not None:
            yield start, end


def is_request(text: str) -> bool:
    """Return whether a short text asks the assistant for something."""
    units = split_words(text[:_MAX_LINE])
    if not units or len(units) > _REQUEST_WORDS:
        return False
    if text.rstrip().endswith(("?", "？")):
        return True
    words = Words.of(text[:_MAX_LINE].strip(), likeliest_language(text, units))
    if words.opens("keep_cues") is not None or not lexicon(
        words.language
    ).first_possessive.isdisjoint(words.words[:1]):
        return False
    polite = words.opens("politeness")
    asked = Words.of(words.text[polite or 0 :].lstrip(" ,，"), words.language)
    if asked.opens("keep_cues") is not None:
        return False
    return (
        any(asked.opens(name) is not None for name in ("task_verbs", "edit_verbs"))
        or shapes.WORK.match(asked.text) is not None
        or shapes.WORK.match(words.text) is not None
    )


def _enclosed(lines: _Lines) -> None:
    """Mark what stands in fences, tags, brackets or between two rules."""
    index = left_open = 0
    while index < len(lines) and left_open < _MAX_OPEN:
        for opens, closes in shapes.ENCLOSURES:
            if match := opens.match(lines.lines[index]):
                last = _close(lines, index, match, closes)
                left_open += last is None
                if last is not None:
                    lines.mark(index, last + 1)
                    index = last
                break
        index += 1


def _close(lines: _Lines, first: int, opened: regex.Match[str], closes: str) -> int | None:
    """Return the line that closes what another one opens, if it is one."""
    closing = regex.compile(closes.replace("{0}", regex.escape(opened[1])), regex.IGNORECASE)
    inline = closes.startswith(".*") and closing.match(lines.lines[first]) is not None
    if inline:
        return first
    places = (i for i in range(first + 1, len(lines)) if closing.match(lines.lines[i]))
    last = next(places, None)
    sign = opened[0].strip()[0]
    if sign in "-=*":  # two rules near each other, with a text between
        return last if last is not None and 2 <= last - first <= _BETWEEN_RULES else None
    if last is None and sign == "[":
        return _before_request(lines, first, lines.paragraph_end(first)) - 1
    return len(lines) - 1 if last is None and sign in "`~" else last


def _quoted(lines: _Lines) -> None:
    for index, line in enumerate(lines.lines):
        if line.lstrip().startswith(">"):
            lines.mark(index, index + 1)


def _transcripts(lines: _Lines) -> None:
    """Mark chats, comments and interviews, from the first turn to the last."""
    spoken = {i: line for i, line in enumerate(lines.lines) if not lines.pasted[i]}
    for index, line in spoken.items():
        if shapes.HEAD.match(line):
            lines.mark(index, _before_request(lines, index, lines.paragraph_end(index)))
    marks = (shapes.TIMED, shapes.IRC, shapes.PLACED)
    turns = [i for i, line in spoken.items() if any(mark.match(line) for mark in marks)]
    names = {
        i: match["who"]
        for i, line in spoken.items()
        if (match := shapes.SPOKEN.match(line)) and not shapes.CODE.match(line)
    }
    counts = Counter(names.values())
    repeated = len(counts) > 1 and max(counts.values()) > 1
    roles = (
        sum(n for name, n in counts.items() if len(name) > 1 and shapes.ROLES.fullmatch(name)) > 1
    )
    turns = turns if len(turns) > 1 else []
    if repeated or roles:
        turns = sorted({*turns, *names})
    if turns:
        first, last = turns[0], turns[-1]
        lines.mark(first, last)
        lines.mark(last, _before_request(lines, last, lines.paragraph_end(last)))


def _before_request(lines: _Lines, first: int, end: int) -> int:
    """Return where a text ends that the user's request may follow without a blank line."""
    return end - 1 if end - 1 > first and is_request(lines.lines[end - 1]) else end


def _mails(lines: _Lines) -> None:
    """Mark mails, from the header or the greeting to the name at the end."""
    index = 0
    while index < len(lines):
        line, below = lines.lines[index], (*lines.lines, "")[index + 1]
        headed = shapes.TOPIC.match(line) or (
            shapes.HEADER.match(line) and shapes.HEADER.match(below)
        )
        ruled = shapes.MAIL_RULE.match(line) or shapes.WROTE.match(line)
        greeted = index > 0 and shapes.GREETING.match(line) and not is_request(line)
        if not lines.pasted[index] and (headed or ruled or greeted):
            end = _mail_end(lines, index)
            lines.mark(index, end)
            index = end
        index += 1


def _mail_end(lines: _Lines, first: int) -> int:
    for index in range(first + 1, len(lines)):
        if shapes.CLOSING.match(lines.lines[index]):
            end = index + 1
            while (
                end < len(lines)
                and end < index + 4
                and (
                    lines.blank(end)
                    or (_is_name(lines.lines[end]) and not is_request(lines.lines[end]))
                )
            ):
                end += 1
            return end
    return lines.own_end(first)


def _is_name(line: str) -> bool:
    return len(line.split()) <= 5 and not line.rstrip().endswith((".", "?", "!", ":"))


def _machine(lines: _Lines) -> None:
    """Mark logs, traces, diffs, commands with what they printed, code and data."""
    kinds = [
        next((kind for kind, shape in shapes.SHAPES if not pasted and shape.match(line)), "")
        for pasted, line in zip(lines.pasted, lines.lines, strict=False)
    ]
    for index, kind in enumerate(kinds):
        if kind in ("log", "json"):
            lines.mark(index, index + 1)
        elif kind in ("shell", "diff") and not lines.pasted[index]:
            lines.mark(index, _before_request(lines, index, lines.paragraph_end(index)))
    logs = [i for i, kind in enumerate(kinds) if kind == "log"]
    for first, last in _runs(logs, _GAP):
        lines.mark(first, last + 1)
    code = [i for i, kind in enumerate(kinds) if kind in ("code", "json") and not lines.pasted[i]]
    for first, last in _runs(code, _GAP):
        count = sum(kinds[i] in ("code", "json") for i in range(first, last + 1))
        if count > 1:
            end = last + 1
            while end < len(lines) and lines.lines[end][:1] in ("\t", " "):
                end += 1
            lines.mark(first, end)


def _runs(places: Sequence[int], gap: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of places that are no further apart than a gap."""
    first = last = -1
    for index in places:
        if first >= 0 and index - last > gap:
            yield first, last
            first = index
        first = index if first < 0 else first
        last = index
    if first >= 0:
        yield first, last


def _tables(lines: _Lines) -> None:
    """Mark rows that have the same cells: between bars, by a separator, or in columns."""
    index = 0
    while index < len(lines):
        end = lines.paragraph_end(index)
        for shape in (_bar_rows, _separated_rows, _column_rows):
            if span := shape(lines.lines[index:end]):
                lines.mark(index + span[0], index + span[1])
                break
        index = max(end, index + 1)


def _bar_rows(block: Sequence[str]) -> tuple[int, int] | None:
    rows = [i for i, line in enumerate(block) if shapes.ROW.match(line)]
    return (rows[0], rows[-1] + 1) if len(rows) > 2 else None


def _separated_rows(block: Sequence[str]) -> tuple[int, int] | None:
    for separator in _SEPARATORS:
        counts = [line.count(separator) for line in block]
        for first, last in _runs([i for i, count in enumerate(counts) if count], 1):
            rows = block[first : last + 1]
            same = len({*counts[first : last + 1]}) == 1
            tight = separator != "," or all(", " not in row for row in rows)
            cells = [cell for row in rows for cell in row.split(separator)]
            least = 2 if separator == "\t" else 3
            enough = counts[first] > 1 or separator == "\t"
            if len(rows) >= least and same and enough and tight and max(map(len, cells)) <= _CELL:
                return first, last + 1
    return None


def _column_rows(block: Sequence[str]) -> tuple[int, int] | None:
    rules = [
        i for i, line in enumerate(block) if shapes.RULE_LINE.match(line) and " " in line.strip()
    ]
    rows = [i for i, line in enumerate(block) if shapes.COLUMNS.search(line.strip())]
    if rules and len(rows) > 1:
        return min(rows[0], rules[0]), max(rows[-1], rules[-1]) + 1
    return None


def _worked_on(lines: _Lines) -> None:
    """Mark what a request that opens the message is about: the text below it."""
    if any(lines.pasted):
        return
    first = next((i for i in range(len(lines)) if not lines.blank(i)), len(lines))
    request = lines.lines[first] if first < len(lines) else ""
    last = next((i for i in range(first + 1, len(lines)) if not lines.blank(i)), None)
    if last is None or not _introduces(request, lines.blank(first + 1)):
        return
    end = lines.own_end(last)
    if sum(map(len, lines.lines[last:end])) >= _LEAST_BODY:
        lines.mark(last, end)


def _introduces(request: str, apart: bool) -> bool:
    """Return whether a line introduces a text that is not its writer's.

    Args:
        apart: whether a blank line stands behind it.
    """
    request = shapes.SENTENCE_END.split(request.strip())[-1]
    units = split_words(request)
    if not units or len(units) > _REQUEST_WORDS:
        return False
    words = Words.of(request.strip(), likeliest_language(request, units))
    classes = lexicon(words.language)
    if words.opens("keep_cues") is not None or words.opens("rule_openers") is not None:
        return False
    open_end = request.rstrip().endswith((":", "："))
    points = shapes.BELOW.search(request) is not None
    if is_request(request):
        own = not classes.first_possessive.isdisjoint(words.words) and not shapes.THEIRS.search(
            request
        )
        brief = len(units) < _BRIEF and shapes.WORK.match(request) is not None
        return (open_end and not own) or ((points or brief) and apart)
    theirs = shapes.THEIRS.search(request) is not None and request.rstrip()[-1:] not in "。.!！:："
    return shapes.RECEIVED.search(request) is not None or (points and theirs and apart)
