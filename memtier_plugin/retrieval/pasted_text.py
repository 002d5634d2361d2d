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
from memtier_plugin.retrieval.prompt_words import introduces_text, is_request
from memtier_plugin.text.passages import OMISSION

_MAX_CHARS: Final = 200_000  # of a text that are looked at
_MAX_LINES: Final = 4_000  # that are looked at: nobody writes as many, the rest was pasted too
_MAX_OPEN: Final = 20  # of what opens an enclosure and is not closed
_MAX_LINE: Final = 400  # characters of a line by which its shape is told
_GAP: Final = 4  # lines between two of a log, or of code, that belong to it
_BETWEEN_RULES: Final = 60  # lines, at most
_LEAST_BODY: Final = 24  # characters of a text that a request is about
_MARK: Final = "[pasted: {}]"
_CELL: Final = 60  # characters of a table's cell, at most
MIN_PRINTED_LINES: Final = 2
_MIN_PRINTED_SHARE: Final = 0.5  # of the characters, of few lines
_SEPARATORS: Final = ("\t", ";", ",")

# The shapes of lines.
_ENCLOSURES: Final = (  # what opens, what closes
    (regex.compile(r"\A\s*+(```|~~~)"), r"\s*{0}"),
    (regex.compile(r"\A\s*+(\"\"\"|'''|«««)\s*$"), r"\s*{0}\s*$"),
    (regex.compile(r"\A\s*+<([A-Za-z][\w-]{0,40})(?:\s[^<>]{0,200})?>"), r".*</{0}>"),
    (regex.compile(r"\A\s*+\[([\p{L}][\p{L} _-]{2,40})\]\s*$"), r"\s*\[(?:/|end (?:of )?){0}\]"),
    (regex.compile(r"\A\s*+(-{3,}|={3,}|\*{3,})\s*$"), r"\s*{0}\s*$"),
)
_HEADER: Final = regex.compile(
    r"(?i)\A[ \t>]*+(?:from|to|cc|subject|date|sent|reply-to|von|an|gesendet|betreff|datum|de|à"
    r"|objet|envoyé|para|asunto|fecha|enviado|da|oggetto|inviato|van|aan|onderwerp|verzonden|assunto|от"
    r"|кому|тема|дата|发件人|收件人|主题|日期|差出人|宛先|件名)[ \t]*[:：][ \t]*\S"
)
_TOPIC: Final = regex.compile(
    r"(?i)\A\s*+(?:subject|betreff|objet|asunto|oggetto|assunto|onderwerp|тема|主题|件名|fwd?|wg|tr|rv|转发)"
    r"[ \t]*[:：][ \t]*\S"
)
_MAIL_RULE: Final = regex.compile(r"\A\s*+[-_]{3,}\s?\p{L}[^\n]{2,60}[^-_\s]\s?[-_]{3,}\s*$")
_WROTE: Final = regex.compile(
    r"(?i)\A(?=[^\n]*[\d<@])\s*+[^\n]{4,160}\b(?:wrote|writes|schrieb|a écrit|escribió|ha scritto"
    r"|escreveu|schreef|пишет|написала?|写道)\s*[:：]\s*$"
)
_GREETING: Final = regex.compile(
    r"(?i)\A\s*+(?:dear|hello|hi|hey|good (?:morning|day|evening)|sehr geehrte[rs]?|liebe[rs]?"
    r"|hallo|guten (?:tag|morgen)|cher|chère|bonjour|estimad[oa]s?|querid[oa]s?|hola|gentile"
    r"|car[oa]|prezad[oa]|ol[áa]|beste|geachte|уважаем\w+|здравствуйте|добрый день"
    r"|尊敬的|您好|拝啓)\b[^.!?\n]{0,60}[,:!，：]?\s*$"
)
_CLOSING: Final = regex.compile(
    r"(?i)\A\s*+(?:(?:kind|best|warm)?\s*regards|best(?: wishes)?|cheers|many thanks|thanks"
    r"|thank you|love|yours\b.*|sincerely|see you|mit (?:freundlichen|besten|lieben) gr.*"
    r"|(?:viele|liebe|beste) gr.*|gruß|lg|vg|cordialement|bien à (?:vous|toi)|salutations.*"
    r"|saludos|un saludo|atentamente|cordiali saluti|saluti|atenciosamente|abraços"
    r"|met vriendelijke.*|groet(?:en|jes)?|с уважением|с приветом|此致|敬上|谢谢)[ ,.!\p{L}]{0,40}$"
)
_TIME: Final = (
    r"(?:\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?[ T])?\d{1,2}[:.]\d\d(?:[:.]\d\d)?"
    r"(?:\s?[AaPp]\.?[Mm]\.?)?"
)
_WHO: Final = r"(?P<who>[\p{L}@][\w.'-]*(?: [\p{L}\d][\w.'-]*){0,2})"
_TIMED: Final = regex.compile(  # a turn with its time
    rf"\A\s*+(?:[\[(]\s?{_TIME}\s?[\])]|{_TIME})(?:\s?[-–—|]\s?|\s+){_WHO}(?:\s?\([^)\n]{{1,30}}\))?[:：>]\s*\S"
    rf"|\A\s*+\[?{_WHO}[\s,(\[]{{1,2}}{_TIME}[\])]?\s?[:：]\s*[^\s\d]"
)
_SPOKEN: Final = regex.compile(rf"\A\s*+(?:[*_]{{0,2}}<?{_WHO}>?[*_]{{0,2}})[:：][*_]{{0,2}}\s+\S")
_IRC: Final = regex.compile(r"\A\s*+<[@+]?[\w.-]{2,30}>\s+\S")
_HEAD: Final = regex.compile(  # whose words follow on the next lines
    rf"\A\s*+{_WHO}\s{{2,}}{_TIME}\s*$"
    r"|\A\s*+(?:@|(?=[^\n]*(?:\d|ago|yesterday)))[\w.-]{2,40}\s"
    r"(?:commented|replied|reviewed|wrote|said|suggested|requested changes)"
    r"\b[^\n.!?]{0,60}$"
    r"|\A\s*+(?:\#{1,4}\s|\*\*)(?:customer|agent|user|assistant|human|ai|bot|system|support|client|kunde)"
    r"\b[^\n]{0,30}$",
    regex.IGNORECASE,
)
_PLACED: Final = regex.compile(
    r"\A\s*+[\w./-]+\.\w{1,5}:\d+(?::\d+)?[:\s]\s?\S"
)  # src/app.py:40: ...
_ROLES: Final = regex.compile(
    r"(?i)(?:user|human|assistant|ai|bot|system|customer|agent|support|client|kunde|interviewer"
    r"|candidate|speaker|doctor|patient|host|guest|caller|q|a|usuario|asistente|utilisateur)\s?\d{0,2}"
)
_LOG: Final = regex.compile(
    r"""(?x)\A\s*+(?:
      Traceback\ \(most\ recent | Exception\ in\ thread | File\ "[^"]+",\ line\ \d
    | at\ [\w.$<>/]+\s?\( | Caused\ by: | [\w.]*(?:Error|Exception)\b[^.?!]{0,40}:
    | npm\ (?:ERR!|WARN) | panic: | fatal:
    | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d
    | \d{1,3}(?:\.\d{1,3}){3}\s.*\[ | \[\s*\d+\.\d+\]\s
    | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL)\]?[\s:|]
    )"""
)
_SHELL: Final = regex.compile(
    r"\A\s*+(?:[\w.@~:/-]{0,40}\$|[\w.-]+@[\w.~:/-]{1,60}#|PS [^>\n]{1,80}>)"
    r"\s[a-z./][^\n]*[^.?!\s]\s*$"
)
_DIFF: Final = regex.compile(r"\A\s*+(?:diff --git |--- [\w./]|\+\+\+ [\w./]|@@ -\d)")
_CODE: Final = regex.compile(
    r"\A\s*+(?://|/\*|\*/|#include\b|#!/|(?:public|private|protected|static|export|async)\s+\w|(?:def|class"
    r"|func|fn|function)\s[\w$]+\s?[({:]|(?:const|let|var)\s+[\w${\[]|import\s[\w{*\"'.]+(?:\s|$|;)"
    r"|from\s[\w.]+\simport\s|return\b.*[;\w)\]]$|package\s[\w.]+;?$|(?i:insert\s+into|select\s.+\sfrom"
    r"|create\s+table|update\s+\w+\s+set)\s|[\]})]+[;,]?\s*$|@\w+(?:\(.*\))?\s*$)"
    r"|\A(?!\s*+(?:[-*•]|\w{1,3}[.)])\s)(?:(?=[^\n]*[={}()\[\]<>])[^\n]*;|[^\n]*(?:[{}]|\(\):?|=>))\s*$"
)
_JSON: Final = regex.compile(r"\A\s*+[\[{.*\"[\w $-]+\"\s?:")
_SHAPES: Final = (
    ("log", _LOG),
    ("shell", _SHELL),
    ("diff", _DIFF),
    ("json", _JSON),
    ("code", _CODE),
)
_ROW: Final = regex.compile(r"\A\s*+\|.*\|\s*$")
_RULE_LINE: Final = regex.compile(r"\A\s*+(?:[-=+:|]{2,}+\s*+){2,}+$|\A\s*+[-=+|]{6,}\s*$")
_COLUMNS: Final = regex.compile(r"\S {2,}\S")


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


def remove_pasted(text: str) -> str:
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
    return bool(_LOG.match(line) or _TIMED.match(line)) and not text.rstrip().endswith("?")


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

    def text_end(self, first: int) -> int:
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


def _enclosed(lines: _Lines) -> None:
    """Mark what stands in fences, tags, brackets or between two rules."""
    index = left_open = 0
    while index < len(lines) and left_open < _MAX_OPEN:
        for opens, closes in _ENCLOSURES:
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
        if _HEAD.match(line):
            lines.mark(index, _before_request(lines, index, lines.paragraph_end(index)))
    marks = (_TIMED, _IRC, _PLACED)
    turns = [i for i, line in spoken.items() if any(mark.match(line) for mark in marks)]
    names = {
        i: match["who"]
        for i, line in spoken.items()
        if (match := _SPOKEN.match(line)) and not _CODE.match(line)
    }
    counts = Counter(names.values())
    repeated = len(counts) > 1 and max(counts.values()) > 1
    roles = sum(n for name, n in counts.items() if len(name) > 1 and _ROLES.fullmatch(name)) > 1
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
        headed = _TOPIC.match(line) or (_HEADER.match(line) and _HEADER.match(below))
        ruled = _MAIL_RULE.match(line) or _WROTE.match(line)
        greeted = index > 0 and _GREETING.match(line) and not is_request(line)
        if not lines.pasted[index] and (headed or ruled or greeted):
            end = _mail_end(lines, index)
            lines.mark(index, end)
            index = end
        index += 1


def _mail_end(lines: _Lines, first: int) -> int:
    for index in range(first + 1, len(lines)):
        if _CLOSING.match(lines.lines[index]):
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
    return lines.text_end(first)


def _is_name(line: str) -> bool:
    return len(line.split()) <= 5 and not line.rstrip().endswith((".", "?", "!", ":"))


def _machine(lines: _Lines) -> None:
    """Mark logs, traces, diffs, commands with what they printed, code and data."""
    kinds = [
        next((kind for kind, shape in _SHAPES if not pasted and shape.match(line)), "")
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
    rows = [i for i, line in enumerate(block) if _ROW.match(line)]
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
    rules = [i for i, line in enumerate(block) if _RULE_LINE.match(line) and " " in line.strip()]
    rows = [i for i, line in enumerate(block) if _COLUMNS.search(line.strip())]
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
    if last is None or not introduces_text(request, lines.blank(first + 1)):
        return
    end = lines.text_end(last)
    if sum(map(len, lines.lines[last:end])) >= _LEAST_BODY:
        lines.mark(last, end)
