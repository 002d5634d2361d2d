"""Select the content of summaries: the most informative sentences, and timelines.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact, Source, count_tokens
from memtier_plugin.facts.extraction.sentences import CODE_LINE
from memtier_plugin.retrieval.pasted_text import is_pasted
from memtier_plugin.text.dates.spans import RELATIVE
from memtier_plugin.text.lexicon import small_talk
from memtier_plugin.text.passages import OMISSION
from memtier_plugin.text.phrases import TOOL_CALL_MARK, is_quotable, is_standing_instruction
from memtier_plugin.text.tokenizer import normalise

# -- Extractive summaries: the few most informative sentences of a session or a day.  Pure
#
# Extractive, so that a summary contains nothing that nobody said.  A sentence is worth the rare
# words that no previously selected sentence has; numbers, names, decisions and standing
# instructions increase its worth, and so does a part of the session without a sentence yet.  Only
# prose of the users and the assistant is read: no tool output, no code, nothing tainted.

SESSION_SUMMARY: Final = "session_summary"
DAY_SUMMARY: Final = "day_summary"
MONTH_SUMMARY: Final = "month_summary"
PERSON_SUMMARY: Final = "person_summary"
MAX_TOKENS: Final = 150  # of a summary
HEADING_TOKENS: Final = 25  # of which for the heading
MIN_LINES: Final = 8  # of a session or a day worth summarising
MIN_MONTH_LINES: Final = 3  # of a month
MIN_PERSON_LINES: Final = 10  # of a person
MAX_LINES: Final = 2000  # newest lines read for a summary

_STEP: Final = 1.25  # a text about a person is rewritten when the lines grow by this factor
_MAX_ENTRY_CHARS: Final = 8_000  # of an entry that are read
_MAX_QUOTE_CHARS: Final = 240  # of a quotation; longer ones are truncated
_BASE_COST: Final = 12  # added to each sentence's cost, so that short ones do not win
_MIN_WORDS: Final = 4  # in a sentence; a number counts as a word
_MIN_GAIN: Final = 0.3  # of the first sentence's worth, required of each further one
_PARTS: Final = 4  # of a session, each of which should have a sentence
_MAX_NAME_CHARS: Final = 40  # of a session's or a speaker's name

_SENTENCE: Final = regex.compile(r"[^\s](?:[^.!?\n。！？]|[.!?](?=[^\s]))*[.!?。！？]*")
_BULLET: Final = regex.compile(r"\s*(?:[-*•]|\d+[.)])\s+")
# Greetings and thanks carry no information.
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
    """A sentence of an entry, by its span."""

    entry: Entry
    start: int
    end: int

    @property
    def quote(self) -> str:
        """The verbatim text."""
        return self.entry.content[self.start : self.end]


def find_sentences(entries: Sequence[Entry]) -> Iterator[SourceSentence]:
    """Yield the sentences of quotable entries, without code and tool calls."""
    for entry in entries:
        if is_quotable(entry):
            typed = entry.role == "user"  # a tool's or an assistant's text is not pasted by anybody
            for start, end in _prose_spans(entry.content[:_MAX_ENTRY_CHARS]):
                if not (typed and is_pasted(entry.content, start, end)):
                    yield SourceSentence(entry, start, end)


def select_sentences(
    sentences: Sequence[SourceSentence],
    words: Callable[[str], Sequence[str]],
    rarity: Mapping[str, float],
    budget: int,
    *,
    filled: bool = False,
) -> list[SourceSentence]:
    """Return the most informative sentences within a token budget, in their order.

    Greedy: each step takes the sentence with the most new worth for its cost.

    Args:
        words: the tokenizer.
        rarity: the worth of each word, by how few lines have it.
        filled: use up the budget, even with sentences that add little.
    """
    word_sets = [set(words(sentence.quote)) for sentence in sentences]
    frequency = Counter(word for word_set in word_sets for word in word_set)
    # A repeated word is a topic of the session; one in most lines is no longer rare. Integers, so
    # that a sum does not depend on the order of its terms.
    worth = {
        word: round(1000 * rarity.get(word, 0.0) * min(count, 4) ** 0.5)
        for word, count in frequency.items()
    }
    costs = [count_tokens(format_quote(sentence)) + 1 for sentence in sentences]
    boosts = [_boost(*pair) for pair in zip(sentences, word_sets, strict=True)]
    covered: set[str] = set()
    parts: set[int] = set()
    quoted: set[str] = set()
    selected: list[int] = []
    first = 0.0
    while True:
        best, chosen = 0.0, -1
        for index, sentence in enumerate(sentences):
            if not boosts[index] or costs[index] > budget or index in selected:
                continue
            value = boosts[index] * sum(worth[word] for word in word_sets[index] - covered)
            value *= 1.0 if _PARTS * index // len(sentences) in parts else 1.4
            value *= 0.7 if sentence.entry.id in quoted else 1.0
            value /= costs[index] + _BASE_COST
            if value > best:
                best, chosen = value, index
        first = first or best
        if chosen < 0 or (best < _MIN_GAIN * first and not filled):
            return [sentences[index] for index in sorted(selected)]
        selected.append(chosen)
        covered |= word_sets[chosen]
        parts.add(_PARTS * chosen // len(sentences))
        quoted.add(sentences[chosen].entry.id)
        budget -= costs[chosen]


def step_of(lines: int) -> int:
    """Round a number of lines down to a step: 10, 12, 15, 19, 24 and so on."""
    step, following = MIN_PERSON_LINES, float(MIN_PERSON_LINES)
    while int(following) <= lines:
        step, following = int(following), following * _STEP
    return step


def is_telling(sentence: SourceSentence, words: Callable[[str], Sequence[str]]) -> bool:
    """Return whether a sentence is informative: no greeting, and long enough."""
    return _boost(sentence, set(words(sentence.quote))) > 0


def format_quote(sentence: SourceSentence) -> str:
    """Return a sentence with its speaker; a long one is truncated."""
    text = " ".join(sentence.quote.split())
    if len(text) > _MAX_QUOTE_CHARS:
        space = text.rfind(" ", _MAX_QUOTE_CHARS // 2, _MAX_QUOTE_CHARS)
        text = f"{text[: space if space > 0 else _MAX_QUOTE_CHARS]} {OMISSION}"
    return f"{speaker_name(sentence.entry)}: {text}"


def speaker_name(entry: Entry) -> str:
    """Return the displayed name of an entry's speaker."""
    return (entry.speaker or entry.role)[:_MAX_NAME_CHARS]


def format_summary(heading: str, quoted: Sequence[SourceSentence]) -> str:
    """Return a summary's text: its heading, and the sentences with their speakers."""
    return f"{heading}: {' | '.join(map(format_quote, quoted))}"


def format_session_heading(session: str, lines: Sequence[Entry]) -> str:
    """Return the heading of a session's summary: its name, its days and its size."""
    return format_heading(f"Session {session[:_MAX_NAME_CHARS]}", lines)


def format_heading(name: str, lines: Sequence[Entry]) -> str:
    """Return a heading: the subject, its days and its size."""
    first, last = _days(lines)
    days = first if first == last else f"{first} to {last}"
    return f"{name[: 2 * _MAX_NAME_CHARS]}, {days}, {len(lines)} lines"


def format_day_heading(lines: Sequence[Entry]) -> str:
    """Return the heading of a day's summary: the day, its lines and its sessions."""
    day, sessions = _days(lines)[0], len({line.session_id for line in lines})
    where = "one session" if sessions == 1 else f"{sessions} sessions"
    return f"{day}, {len(lines)} lines in {where}"


def _days(lines: Sequence[Entry]) -> tuple[str, str]:
    times = [line.observed_at for line in lines]
    return f"{min(times):%Y-%m-%d}", f"{max(times):%Y-%m-%d}"


def _boost(sentence: SourceSentence, words: set[str]) -> float:
    """Return the factor on a sentence's worth; 0 for an uninformative one."""
    text, is_user = sentence.quote, sentence.entry.role == "user"
    if _GREETING.match(text) and len(words) < 6:
        return 0.0
    has_number = bool(_NUMBER.search(text))
    spoken = sum(not word.isdecimal() and word[:1].isalpha() for word in words)
    if spoken + has_number < _MIN_WORDS or text.startswith("["):  # a description of a picture
        return 0.0
    value = 1.15 if is_user else 1.0
    value *= 1.2 if has_number else 1.0
    value *= 1.15 if _NAME.search(text) else 1.0
    value *= 1.5 if _DECIDED.search(text) else 1.0
    value *= 1.3 if is_user and is_standing_instruction(text) else 1.0
    value *= 1.2 if _OWN.search(text) else 1.0
    value *= 1.2 if _WHEN.search(text) else 1.0
    value *= 0.8 if _POINTING.match(text) else 1.0
    return value * (0.6 if text.rstrip().endswith(("?", "？")) else 1.0)


def _prose_spans(content: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a text's sentences, without code and tool calls."""
    at, fenced, calling = 0, False, False
    for line in content.splitlines(keepends=True):
        start, at = at, at + len(line)
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        # Tool calls come last, and their arguments may span lines.
        calling = calling or line.startswith(TOOL_CALL_MARK)
        if fenced or calling or CODE_LINE.match(line):
            continue
        if bullet := _BULLET.match(line):
            start += bullet.end()
        for sentence in _SENTENCE.finditer(content, start, at):
            yield sentence.span()


# -- Build timelines: successive values of a subject's relation.  Pure
#
# Made from facts of one audience, superseded and current: whoever may see those may see it.

RELATION: Final = "timeline"
MAX_VALUES: Final = 12  # newest values on one line
_SOURCES_PER_VALUE: Final = 5  # sources of each value; the fact itself is one more
_MAX_VALUE_CHARS: Final = 80  # characters of a value


@dataclass(frozen=True, slots=True)
class PastValue:
    """A fact and the end of its validity; None while it holds."""

    fact: Fact
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The values of one subject and relation, as a line with its sources."""

    about: tuple[str, ...]  # subject and relation, normalised
    audience: tuple[str, str]
    person: str | None
    personal: bool
    subject: str
    value: str
    text: str
    sources: tuple[Source, ...]
    since: datetime
    confidence: float


def build_timelines(
    pasts: Iterable[PastValue], sources: Mapping[str, Sequence[Source]]
) -> list[Timeline]:
    """Return the timeline of each subject and relation that had more than one value.

    Args:
        pasts: the presentable facts, in any order; of several current ones the newest counts.
        sources: the sources of each fact, by its id.
    """
    together: dict[tuple[tuple[str, ...], tuple[str, str]], list[PastValue]] = {}
    for past in pasts:
        about = normalise(past.fact.subject, past.fact.relation)
        together.setdefault((about, past.fact.audience), []).append(past)
    return [
        line
        for about, audience in sorted(together)
        if (line := _build_timeline(about, together[about, audience], sources))
    ]


def is_about(value: str, relation: str) -> bool:
    """Return whether a (normalised) timeline's value is of this relation."""
    return value.startswith(f"{normalise(relation)[0]}:")


def _build_timeline(
    about: tuple[str, ...], pasts: Sequence[PastValue], sources: Mapping[str, Sequence[Source]]
) -> Timeline | None:
    steps: list[PastValue] = []
    ordered = sorted(pasts, key=lambda past: (_since(past.fact), past.fact.id))
    now = [past for past in ordered if past.until is None][-1:]
    for past in [*(past for past in ordered if past.until is not None), *now]:
        if steps and normalise(steps[-1].fact.value) == normalise(past.fact.value):
            steps[-1] = PastValue(steps[-1].fact, past.until)  # the same value continued
        else:
            steps.append(past)
    steps = steps[-MAX_VALUES:]
    if len(steps) < 2:
        return None
    newest = steps[-1].fact
    values = [_short(past.fact.value) for past in steps]
    periods = [_period(past, is_first=index == 0) for index, past in enumerate(steps)]
    dated = [f"{value} ({period})" for value, period in zip(values, periods, strict=True)]
    relation = newest.relation.replace("_", " ")
    cited = [
        source
        for past in steps
        for source in (
            *sources.get(past.fact.id, past.fact.sources)[:_SOURCES_PER_VALUE],
            _source_of_itself(past.fact),
        )
    ]
    return Timeline(
        about=about,
        audience=newest.audience,
        person=newest.person if newest.personal else None,
        personal=newest.personal,
        subject=newest.subject,
        value=f"{newest.relation}: {' > '.join(values)}",
        text=f"{newest.subject}, {relation} over time: {', then '.join(dated)}.",
        sources=tuple({source.entry: source for source in reversed(cited)}.values())[::-1],
        since=_since(steps[0].fact),
        confidence=min(past.fact.confidence for past in steps),
    )


def _source_of_itself(fact: Fact) -> Source:
    """Return a fact as a source of its timeline, which disappears with the fact."""
    first = fact.sources[0]
    return Source(agent=first.agent, session=first.session, entry=fact.id)


def _period(past: PastValue, *, is_first: bool) -> str:
    if past.until is None:
        return f"since {_since(past.fact):%Y-%m-%d}"
    if is_first:
        return f"until {past.until:%Y-%m-%d}"
    return f"{_since(past.fact):%Y-%m-%d} to {past.until:%Y-%m-%d}"


def _since(fact: Fact) -> datetime:
    return fact.valid_from or fact.timestamp


def _short(value: str) -> str:
    flat = " ".join(value.split())
    return flat if len(flat) <= _MAX_VALUE_CHARS else f"{flat[: _MAX_VALUE_CHARS - 3].rstrip()}..."
