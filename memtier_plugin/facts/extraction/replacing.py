"""Make facts of sentences that are kept for what they change: the value of an existing fact.

"No wait, Friday morning." and an assistant's "The backup now runs at 04:45." say little by
themselves, but a fact that they replace must not go on holding for whoever sees facts alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.retrieval.statements import Statement, statements
from memtier_plugin.retrieval.succession import Rarity, fitted_model, replaces
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.speech import only_acknowledges, only_asks

CONFIDENCE: Final = 0.7
_WHOLE: Final = 0.5  # of the older's words, from which the newer is understood without it

_NEAREST: Final = 12  # facts that a statement is compared with
_MOST: Final = 60  # drafts with a word, beyond which it tells nothing

Span = tuple[int, int]


def remaining_statements(entry: Entry, stated: Sequence[Span]) -> Iterator[tuple[int, Statement]]:
    """Yield what an entry states besides its facts, with where it begins.

    Args:
        stated: where its facts' quotes stand.
    """
    if entry.role not in ("user", "assistant") or entry.tainted or not entry.retrievable:
        return
    for part in statements(entry.content):
        start = entry.content.find(part.text)
        end = start + len(part.text)
        if start < 0 or any(start < until and since < end for since, until in stated):
            continue
        if not (only_asks(part.text) or only_acknowledges(part.text)):
            yield start, part


class KnownFacts:
    """The facts of a project and the drafts of a window that a statement may replace."""

    def __init__(self, reader: Reader, drafts: Iterable[FactDraft]) -> None:
        self._reader = reader
        self._scopes = reader.scopes("", None, read_all=True)
        self._items = reader.counts()["entries"]
        self._drafts: dict[str, list[FactDraft]] = {}
        for draft in drafts:
            for word in _words_of(draft):
                self._drafts.setdefault(word, []).append(draft)

    def nearest(self, part: Statement, entry: Entry) -> tuple[list[Fact | FactDraft], Rarity]:
        """Return the older facts of the same agent nearest to a statement; how rare words are."""
        alike: Counter[int] = Counter()
        by_id: dict[int, Fact | FactDraft] = {}
        for word in part.content:
            for draft in self._drafts.get(word, ())[-_MOST:]:
                by_id[id(draft)] = draft
                alike[id(draft)] += 1
        near = [by_id[key] for key, _ in alike.most_common(_NEAREST)]
        stored = self._reader.similar_facts([*part.content], limit=_NEAREST)
        near += [each.item for each in stored if isinstance(each.item, Fact)]
        older = [
            fact
            for fact in near
            if fact.tier == "semantic"
            and fact.sources[0].agent == entry.agent_id
            and fact.sources[0].entry != entry.id
            and (fact.valid_from or entry.observed_at) < entry.observed_at
        ]
        words = part.content.union(*map(_words_of, older))
        frequencies = self._reader.word_frequencies(self._scopes, words)
        return older, Rarity(frequencies, self._items)


def _words_of(fact: Fact | FactDraft) -> frozenset[str]:
    quoted = statements(fact.quote or fact.text)
    return frozenset[str]().union(*(part.content for part in quoted))


def draft_replacing(
    entry: Entry,
    start: int,
    part: Statement,
    known: Iterable[Fact | FactDraft],
    rarity: Rarity,
    before: str = "",
) -> tuple[FactDraft, str] | None:
    """Return the draft of a statement that replaces a known fact, with that one's words, or None.

    Args:
        known: the facts that it may replace, all older.
        before: what the same person said right before it.
    """
    best, most = None, fitted_model().mark
    for fact in known:
        quote = fact.quote or fact.text
        adjacent = bool(before) and quote in before
        likely = replaces(quote, part.text, rarity, adjacent=adjacent)
        if likely >= most:
            best, most = fact, likely
    if best is None:
        return None
    quote = best.quote or best.text
    old = _words_of(best)
    self_contained = len(old & part.content) >= _WHOLE * len(old)
    text = part.text if self_contained else f"{quote.rstrip()} {part.text}"
    draft = FactDraft(
        subject=best.subject,
        relation=best.relation,
        value=part.text,
        text=text,
        sources=(entry.source,),
        quote=part.text,
        span=(start, start + len(part.text)),
        valid_from=entry.observed_at,
        confidence=CONFIDENCE,
        origin=entry.origin,
    )
    return draft, quote
