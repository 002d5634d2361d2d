"""Summaries that quote: the few lines of a session or a day that say most, and when one is wanted.

Extractive, so that nothing stands in a summary that nobody said.  A line is worth the rare words
that no line chosen before it has; numbers, names, decisions and standing instructions raise it,
and so does a part of the session that has no line yet.  Only the users' and the assistant's own
prose is read: no tool output, no code, nothing tainted.  Source: seeds 4.4 and 5.1.  Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.text.dates.annotate import RELATIVE
from memtier_plugin.text.lexicon import small_talk
from memtier_plugin.text.passages import OMISSION
from memtier_plugin.text.traits import TOOL_CALL_MARK, is_quotable, is_standing_instruction

SESSION_SUMMARY: Final = "session_summary"
DAY_SUMMARY: Final = "day_summary"
MAX_TOKENS: Final = 150  # tokens of a summary
HEADING_TOKENS: Final = 25  # tokens of these that are the heading's
MIN_LINES: Final = 8  # lines of what is worth one
MAX_LINES: Final = 2000  # lines that are read for one, the newest

_MAX_ENTRY_CHARS: Final = 8_000  # characters of one entry that are looked at
_MAX_QUOTE_CHARS: Final = 240  # characters of one quotation; what is longer is cut
_BASE_COST: Final = (
    12  # tokens that a line costs whatever its length, so that short ones do not win
)
_MIN_WORDS: Final = 4  # words, and a number, that a line must have
_MIN_GAIN: Final = 0.3  # of what the first line brought must the next bring, or it is filling
_PARTS: Final = 4  # of a session, each to have a line
_MAX_NAME_CHARS: Final = 40  # characters shown of a session's or a speaker's name

_SENTENCE: Final = regex.compile(r"[^\s](?:[^.!?\n。！？]|[.!?](?=[^\s]))*[.!?。！？]*")
_CODE: Final = regex.compile(
    r"\s*(?:[>$|<{}#@]|//|\(?\w+\)?[$#] |(?:    |\t)\S|at \S+\(|File \"|Traceback|import "
    r"|def |class |from \S+ import|(?:const|let|var|return|function|public|private|export) )"
    r"|[^\n]*(?:[;{}]|\(\):?|=>)\s*\Z"
)
_BULLET: Final = regex.compile(r"\s*(?:[-*•]|\d+[.)])\s+")
# What people say to each other before and after they say something.
_GREETING: Final = regex.compile(
    rf"(?i)(?:{'|'.join(map(regex.escape, small_talk()))}|cheers|sounds great|certainly|glad to"
    r"|happy to|let me know|how are you|how can i help|guten abend|buen[oa]s|de nada|bonsoir"
    r"|de rien|au revoir|您好|謝謝|不客气)(?!\w)"
)
_NUMBER: Final = regex.compile(r"\d")
_NAME: Final = regex.compile(r"(?<=[\p{L},;] )\p{Lu}\p{L}|\w[._/-]\w+[._/-]\w|`[^`]+`")
_DECIDED: Final = regex.compile(
    r"(?i)\b(?:decided?|agreed?|settled|chose|chosen|let['’]?s|we['’]?ll|going with|go with|switch"
    r"(?:ed)?|migrated?|moved to|from now on|deadline|must|never|always|remember|plan(?:ned)? to"
    r"|entschieden|beschlossen|ab jetzt|immer|niemals|decidi(?:mos|do|ó)|acordamos|siempre|nunca"
    r"|décidé|convenu|toujours|jamais)\b|决定|決定|必须|必須|一定|以后"
)
_OWN: Final = regex.compile(
    r"(?i)\b(?:I|we|my|our|ich|wir|mein|unser|yo|nosotros|mi|nuestr[oa]s?|je|nous|mon|notre)\b|我"
)
_WHEN: Final = regex.compile(
    rf"(?i)\b{RELATIVE}|\b(?:gestern|heute|morgen|ayer|hoy|mañana|hier|aujourd['’]hui|demain)\b"
    r"|昨天|今天|明天|上周|下周|上个月|下个月"
)
_POINTING: Final = regex.compile(
    r"(?i)(?:it|this|that|these|those|they|he|she|so|and|but|or|then|also|yes|no|yeah)\b"
)


@dataclass(frozen=True, slots=True)
class SourceSentence:
    """A sentence of an entry, by its place there."""

    entry: Entry
    start: int
    end: int

    @property
    def quote(self) -> str:
        """What stands there, to the letter."""
        return self.entry.content[self.start : self.end]


def find_sentences(entries: Sequence[Entry]) -> Iterator[SourceSentence]:
    """Yield the sentences of the entries that may be quoted, code and tool calls left out."""
    for entry in entries:
        if is_quotable(entry):
            for start, end in _prose_spans(entry.content[:_MAX_ENTRY_CHARS]):
                yield SourceSentence(entry, start, end)


def select_sentences(
    found: Sequence[SourceSentence],
    words: Callable[[str], Sequence[str]],
    rarity: Mapping[str, float],
    budget: int,
    *,
    filled: bool = False,
) -> list[SourceSentence]:
    """Return the units that say most within a budget of tokens, in their order.

    Args:
        words: the tokenizer.
        rarity: what each word is worth, by how few of all lines have it.
        filled: use up the budget, also with lines that bring little.
    """
    inside = [set(words(unit.quote)) for unit in found]
    often = Counter(word for one in inside for word in one)
    # A word that comes again is what the session is about; one that comes all the time is not
    # rare any more.  Whole numbers, so that a sum does not depend on the order of its parts.
    worth = {
        word: round(1000 * rarity.get(word, 0.0) * min(count, 4) ** 0.5)
        for word, count in often.items()
    }
    cost = [count_tokens(format_quote(unit)) + 1 for unit in found]
    raised = [_boost(unit, one) for unit, one in zip(found, inside, strict=True)]
    covered: set[str] = set()
    parts: set[int] = set()
    quoted: set[str] = set()
    taken: list[int] = []
    first = 0.0
    while True:
        best, place = 0.0, -1
        for i, unit in enumerate(found):
            if not raised[i] or cost[i] > budget or i in taken:
                continue
            value = raised[i] * sum(worth[word] for word in inside[i] - covered)
            value *= 1.0 if _PARTS * i // len(found) in parts else 1.4
            value *= 0.7 if unit.entry.id in quoted else 1.0
            value /= cost[i] + _BASE_COST
            if value > best:
                best, place = value, i
        first = first or best
        if place < 0 or (best < _MIN_GAIN * first and not filled):
            return [found[i] for i in sorted(taken)]
        taken.append(place)
        covered |= inside[place]
        parts.add(_PARTS * place // len(found))
        quoted.add(found[place].entry.id)
        budget -= cost[place]


def format_quote(unit: SourceSentence) -> str:
    """Return who said a unit, and its words; of a long one the beginning."""
    text = " ".join(unit.quote.split())
    if len(text) > _MAX_QUOTE_CHARS:
        space = text.rfind(" ", _MAX_QUOTE_CHARS // 2, _MAX_QUOTE_CHARS)
        text = f"{text[: space if space > 0 else _MAX_QUOTE_CHARS]} {OMISSION}"
    return f"{speaker_name(unit.entry)}: {text}"


def speaker_name(entry: Entry) -> str:
    """Return who said an entry, as it is shown."""
    return (entry.speaker or entry.role)[:_MAX_NAME_CHARS]


def format_summary(heading: str, quoted: Sequence[SourceSentence]) -> str:
    """Return a summary's text: its heading, and the units with who said them."""
    return f"{heading}: {' | '.join(map(format_quote, quoted))}"


def format_session_heading(session: str, lines: Sequence[Entry]) -> str:
    """Return what a session's summary begins with: its name, its days and its size."""
    first, last = _days(lines)
    days = first if first == last else f"{first} to {last}"
    return f"Session {session[:_MAX_NAME_CHARS]}, {days}, {len(lines)} lines"


def format_day_heading(lines: Sequence[Entry]) -> str:
    """Return what a day's summary begins with: the day, and how much was said in how many parts."""
    day, sessions = _days(lines)[0], len({line.session_id for line in lines})
    where = "one session" if sessions == 1 else f"{sessions} sessions"
    return f"{day}, {len(lines)} lines in {where}"


def _days(lines: Sequence[Entry]) -> tuple[str, str]:
    times = [line.observed_at for line in lines]
    return f"{min(times):%Y-%m-%d}", f"{max(times):%Y-%m-%d}"


def _boost(unit: SourceSentence, words: set[str]) -> float:
    """Return by how much a unit counts more than its words; 0 for what says nothing."""
    text = unit.quote
    if _GREETING.match(text) and len(words) < 6:
        return 0.0
    number = bool(_NUMBER.search(text))
    spoken = sum(not word.isdecimal() and word[:1].isalpha() for word in words)
    if spoken + number < _MIN_WORDS or text.startswith("["):  # a picture, in words
        return 0.0
    value = 1.15 if unit.entry.role == "user" else 1.0
    value *= 1.2 if number else 1.0
    value *= 1.15 if _NAME.search(text) else 1.0
    value *= 1.5 if _DECIDED.search(text) else 1.0
    value *= 1.3 if unit.entry.role == "user" and is_standing_instruction(text) else 1.0
    value *= 1.2 if _OWN.search(text) else 1.0
    value *= 1.2 if _WHEN.search(text) else 1.0
    value *= 0.8 if _POINTING.match(text) else 1.0
    return value * (0.6 if text.rstrip().endswith(("?", "？")) else 1.0)


def _prose_spans(content: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the sentences of a text that is no code and no tool call."""
    at, fenced, calling = 0, False, False
    for line in content.splitlines(keepends=True):
        start, at = at, at + len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        # The calls stand last, and their arguments may have lines of their own.
        calling = calling or line.startswith(TOOL_CALL_MARK)
        if fenced or calling or _CODE.match(line):
            continue
        if bullet := _BULLET.match(line):
            start += bullet.end()
        for sentence in _SENTENCE.finditer(content, start, at):
            yield sentence.span()
