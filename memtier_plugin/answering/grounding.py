"""Give a model lines as findings, and find those that hold what its answer says.  Pure.

A small model cites a line that says nothing of its answer, or answers what nobody said.  So a cited
line must hold a word, a number or a date of the answer that the question does not, and every number
and date of the answer must stand in a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from memtier_plugin.answering.llm import FINDING_CHARS, AnswerFinding
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.facts.verification.passages import QuoteSpan
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.retrieval.query import count_content
from memtier_plugin.text.dates.mentions import DateMention, is_date_supported
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.spans import resolve_times
from memtier_plugin.text.passages import select_passage


def finding_of_line(hit: Hit, question: str, tokenize: Callable[[str], list[str]]) -> AnswerFinding:
    """Return a line as a finding: who said the passage that fits the question, times resolved."""
    item = hit.item
    if isinstance(item, Fact):
        return AnswerFinding(hit.text, hit_time(hit), (hit,), fact=item)
    weights = dict.fromkeys(tokenize(question), 1.0)
    passage = select_passage(hit.text, weights, tokenize, FINDING_CHARS)
    text = f"{item.speaker or item.role}: {resolve_times(passage, item.observed_at.date())}"
    quote = QuoteSpan(item, 0, len(item.content))
    return AnswerFinding(text, item.observed_at, (hit,), quote=quote)


def distinct(findings: Sequence[AnswerFinding]) -> list[AnswerFinding]:
    """Return findings without repeated statements about the same line."""
    kept: dict[tuple[str, str], AnswerFinding] = {}
    for finding in findings:
        entry = finding.quote.entry.id if finding.quote else ""
        kept.setdefault((entry, " ".join(finding.text.casefold().split())), finding)
    return list(kept.values())


def find_grounds(
    question: str,
    answer: str,
    cited: Sequence[AnswerFinding],
    shown: Iterable[AnswerFinding],
    tokenize: Callable[[str], list[str]],
) -> tuple[AnswerFinding, ...]:
    """Return the findings that hold what an answer says; none if they do not hold it.

    Those that were cited are taken first; others are added for what these do not hold.  An answer
    that says nothing beyond its question ("Yes.") rests on what was cited.

    Args:
        shown: all findings that the model was given.
        tokenize: returns a text's index words.
    """
    stated = find_stated_dates(answer)
    for mention in reversed(stated):
        answer = f"{answer[: mention.start]} {answer[mention.end :]}"
    new = _words(answer, tokenize) - _words(question, tokenize)
    asked = {_key(mention) for mention in find_stated_dates(question)}
    dates = {key: mention for mention in stated if (key := _key(mention)) not in asked}
    if not new and not dates:
        return tuple(cited)
    grounds: list[AnswerFinding] = []
    for finding in [*cited, *(finding for finding in shown if finding not in cited)]:
        held = new & set(tokenize(" ".join(map(_said, finding.sources))))
        held_dates = [
            key
            for key, mention in dates.items()
            if any(_holds_date(hit, mention) for hit in finding.sources)
        ]
        if held or held_dates:
            grounds.append(finding)
            new -= held
            for key in held_dates:
                del dates[key]
    left_out = dates or any(any(map(str.isdigit, word)) for word in new)
    return () if left_out else tuple(grounds)


def _words(text: str, tokenize: Callable[[str], list[str]]) -> set[str]:
    """Return the index words of a text's words of content."""
    return set(tokenize(" ".join(count_content(text)[1])))


def _key(mention: DateMention) -> tuple[int | None, int | None, int | None]:
    return mention.year, mention.month, mention.day


def _said(hit: Hit) -> str:
    item = hit.item
    return f"{item.speaker or item.role} {hit.text}" if isinstance(item, Entry) else hit.text


def _holds_date(hit: Hit, claimed: DateMention) -> bool:
    """Return whether a line names a date, or was said on it."""
    day = hit_time(hit).date()
    own = DateMention(0, 0, day.year, day.month, day.day)
    named = [*find_stated_dates(hit.text), *find_relative_dates(hit.text, day)]
    return any(is_date_supported(claimed, mention, day) for mention in [own, *named])
