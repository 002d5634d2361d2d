"""Find what takes a fact back or replaces its value.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.facts.extraction.sentences import find_asserted
from memtier_plugin.retrieval.duplicates import DENIES
from memtier_plugin.retrieval.statements import Statement, statements
from memtier_plugin.retrieval.succession import Rarity, fitted_model, replaces
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.speech import only_acknowledges, only_asks

# -- Find the sentences by which a user takes back what was so: no new value stands in them.  Pure
#
# "I no longer have a dog" leaves nothing to be kept, and something to be kept no longer (Mem-T,
# 3.1: DELETE).  Such a sentence becomes a draft of the relation `DENIES`, which no fact is made of:
# the writer retracts the facts that it denies (`evolution.denies`).  English.

MAX_CHARS: Final = 160  # of a sentence; a longer one says more than that something is not so
_DENIES: Final = regex.compile(
    r"(?i)\b(?:not|never|no longer|no more|\w+n['’]t|isn|gave up|given up|stopped|quit)\b"
)
_LEAD: Final = regex.compile(
    r"(?i)\A(?:(?:strike that|scratch that|that['’]s (?:wrong|not right|not true)|correction|no|"
    r"actually|sorry|wait|well|by the way|(?:it )?turn(?:s|ed) out(?: that)?|i was wrong)\b"
    r"[\s,:;.–-]*)+"
)
_OPEN: Final = regex.compile(
    r"(?i)\?\s*\Z|\b(?:if|unless|maybe|perhaps|might|would|could|should|whether|sure|think|today|"
    r"tonight|yet|right now|at the moment|always|only|just|because|when|until|so|let['’]?s)\b"
)
_THING: Final = regex.compile(
    r"(?i)\A(?:the |our |my )?(?P<thing>[\w' -]{2,60}?) (?:is|are|was|were|has|have|does|do|"
    r"no longer|never|\w+n['’]t)\b"
)
_OWN: Final = regex.compile(r"(?i)\A(?:I|we|my|our)\b")
_OTHERS: Final = regex.compile(r"(?i)\b(?:you|your|it|this|these|those|they|he|she)\b")


def find_denials(entry: Entry) -> Iterator[FactDraft]:
    """Yield the denials in a user's own words."""
    if entry.role != "user" or entry.origin != "user" or entry.tainted:
        return
    for sentence in find_asserted(entry.content):
        text = entry.content[sentence.start : sentence.end]
        if sentence.words.language != "english" or len(text) > MAX_CHARS:
            continue
        lead = _LEAD.match(text)
        start = sentence.start + (lead.end() if lead else 0)
        core = entry.content[start : sentence.end].rstrip()
        if not _DENIES.search(core) or _OPEN.search(core) or _OTHERS.search(core):
            continue
        yield FactDraft(
            subject=_subject(core, entry.speaker),
            relation=DENIES,
            value=core,
            text=core,
            sources=(entry.source,),
            quote=core,
            span=(start, start + len(core)),
            valid_from=entry.observed_at,
        )


def _subject(sentence: str, speaker: str | None) -> str:
    """Return what a sentence is about: its speaker, or the thing that it names first."""
    thing = None if _OWN.match(sentence) else _THING.match(sentence)
    return thing["thing"] if thing else speaker or "user"


# -- Make a fact of a message that is kept for what it changes: the value of an existing fact
#
# "No wait, Friday morning." and an assistant's "The backup now runs at 04:45." say little by
# themselves, but a fact that they replace must not go on holding for whoever sees facts alone.  A
# message that says more than one thing is about something else.

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
