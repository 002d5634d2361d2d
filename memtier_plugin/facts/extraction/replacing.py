"""Make a fact of a message that is kept for what it changes: the value of an existing fact.

"No wait, Friday morning." and an assistant's "The backup now runs at 04:45." say little by
themselves, but a fact that they replace must not go on holding for whoever sees facts alone.  A
message that says more than one thing is about something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.retrieval.statements import Statement, statements
from memtier_plugin.retrieval.succession import Rarity, fitted_model, replaces
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.speech import only_acknowledges, only_asks

CONFIDENCE: Final = 0.7
_NEAREST: Final = 12  # facts that a statement is compared with
_MOST: Final = 60  # drafts with a word, beyond which it tells nothing


def only_statement(entry: Entry) -> Statement | None:
    """Return what a message states if that is one thing."""
    if entry.role not in ("user", "assistant") or entry.tainted or not entry.retrievable:
        return None
    stated = statements(entry.content)
    if len(stated) != 1 or stated[0].text not in entry.content:
        return None
    text = stated[0].text
    return None if only_asks(text) or only_acknowledges(text) else stated[0]


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

    def draft_replacing(
        self, entry: Entry, part: Statement, before: str = ""
    ) -> tuple[FactDraft, str] | None:
        """Return the draft of a statement that replaces a known fact, with that one's words.

        Args:
            before: what the same person said right before it.
        """
        older = self._nearest(part, entry)
        words = part.content.union(*map(_words_of, older))
        rarity = Rarity(self._reader.word_frequencies(self._scopes, words), self._items)

        def likely(fact: Fact | FactDraft) -> float:
            adjacent = bool(before) and _words(fact) in before
            return replaces(_words(fact), part.text, rarity, adjacent=adjacent)

        probabilities = [likely(fact) for fact in older]
        highest = max(probabilities, default=0.0)
        if highest < fitted_model().mark:
            return None
        best = older[probabilities.index(highest)]
        start = entry.content.find(part.text)
        draft = FactDraft(
            subject=best.subject,
            relation=best.relation,
            value=part.text,
            text=part.text,
            sources=(entry.source,),
            quote=part.text,
            span=(start, start + len(part.text)),
            valid_from=entry.observed_at,
            confidence=CONFIDENCE,
            origin=entry.origin,
        )
        return draft, _words(best)

    def _nearest(self, part: Statement, entry: Entry) -> list[Fact | FactDraft]:
        """Return the older facts of the same agent nearest to a statement."""
        alike: Counter[int] = Counter()
        by_id: dict[int, Fact | FactDraft] = {}
        for word in part.content:
            for draft in self._drafts.get(word, ())[-_MOST:]:
                by_id[id(draft)] = draft
                alike[id(draft)] += 1
        near = [by_id[key] for key, _ in alike.most_common(_NEAREST)]
        stored = self._reader.similar_facts([*part.content], limit=_NEAREST)
        near += [each.item for each in stored if isinstance(each.item, Fact)]
        return [
            fact
            for fact in near
            if fact.tier == "semantic"
            and fact.sources[0].agent == entry.agent_id
            and fact.sources[0].entry != entry.id
            and (fact.valid_from or entry.observed_at) < entry.observed_at
        ]


def _words(fact: Fact | FactDraft) -> str:
    return fact.quote or fact.text


def _words_of(fact: Fact | FactDraft) -> frozenset[str]:
    return frozenset[str]().union(*(part.content for part in statements(_words(fact))))
