"""Decide how a new fact relates to existing ones: add, update, supersede or ignore.

When in doubt, it is added.  A fact is ignored only if an existing one says the same, and supersedes
an existing one only if it says more of the same, if the relation has one value at a time, if it
denies exactly the other's words, or if the fitted model (`retrieval.replacement`) finds that it
gives another value of the same attribute.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal

from memtier_plugin.core.records import OWN_WORDS, Entry, Fact, FactDraft
from memtier_plugin.facts.persons import comparable_subject
from memtier_plugin.retrieval.duplicates import holds_since, may_replace
from memtier_plugin.retrieval.replacement import fitted_model, replaces
from memtier_plugin.retrieval.statements import Rarity, Statement, find_cues, statements
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.dates.spans import RELATIVE
from memtier_plugin.text.phrases import only_acknowledges, only_asks
from memtier_plugin.text.tokenizer import normalise

Action = Literal["add", "update", "supersede", "ignore"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a new fact, and the existing fact that it concerns.

    ``late`` reverses a supersession: the new fact is the older one, and the ``target`` stays.
    ``others`` are superseded along with the target.
    """

    action: Action
    target: Fact | None = None
    why: str = ""
    late: bool = False
    others: tuple[Fact, ...] = ()


_ALONE: Final = Rarity({}, 0)  # no other line contains a word
# A unit may identify the attribute
_ANY_ATTRIBUTE: Final = frozenset({"states", "remember", "amount"})
_EVENTS: Final = frozenset({"did", "decided"})  # may happen more than once

_WORD: Final = re.compile(r"[^\W_]+(?:['’.:/-][^\W_]+)*")
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")
_STOP_WORDS: Final = frozenset(
    {
        *("a", "an", "the", "of", "to", "in", "on", "at", "it", "its", "that", "this", "and"),
        *("is", "am", "are", "was", "were", "be", "been", "being", "has", "have", "had"),
        *("do", "does", "did", "will", "also", "really", "very", "just", "still", "said"),
    }
)
_NEGATION: Final = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|without|cannot|can['’]?t|won['’]?t|"
    r"hardly|\w+n['’]t)\b",
    re.IGNORECASE,
)
_ENDED: Final = re.compile(
    r"\b(?:no longer|(?:not|\w+n['’]t)\b.{0,60}?\bany ?(?:more|longer)|used to|formerly|previously|"
    r"(?:gave|given) up|stopped|quit)\b",
    re.IGNORECASE,
)
_ENDED_WORDS: Final = re.compile(
    r"\b(?:no longer|any ?(?:more|longer)|used to|formerly|previously|not|never|\w+n['’]t|do|does|"
    r"did|(?:gave|given) up|stopped|quit)\b",
    re.IGNORECASE,
)
# Continuations that only add detail to the preceding words.
_CONTINUATION: Final = re.compile(
    r"\s*(?:[,;(—–]|(?:with|and|named|called|who|which|where|in|at|on|for|from|since|because|near|"
    r"during|together|every|by|as)\b)",
    re.IGNORECASE,
)
_SPEAKER: Final = frozenset(
    {"user", "i", "i'm", "i've", "my", "we", "we're", "we've", "our", "hav"}
)
_DETAILS: Final = re.compile(r" (?:called|named|who|which|that|with) ")
_CONTRARY: Final = ({"likes", "dislikes"}, {"always", "never"})
_CHANGE: Final = frozenset({"change", "present"})  # "switched to", "now"
_SHARED: Final = 0.5  # word overlap of two values from which they are about the same thing


@dataclass(frozen=True)
class _ComparedFact:
    """A fact in the normalised forms used to compare it with others."""

    fact: Fact

    @cached_property
    def _normal(self) -> tuple[str, ...]:
        fact = self.fact
        return normalise(fact.subject, fact.relation, fact.value, fact.text)

    @cached_property
    def subject(self) -> str:
        return comparable_subject(self.fact)

    @property
    def relation(self) -> str:
        return self._normal[1]

    @property
    def slot(self) -> tuple[str, ...]:
        """The subject and the relation."""
        return self.subject, self.relation

    @property
    def value(self) -> str:
        return self._normal[2]

    @cached_property
    def text(self) -> str:
        """The text without its full stop."""
        return self._normal[3].rstrip(".! ")

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The content words of the text, in order, without those of its subject."""
        return content_words(self.fact.text, leave_out=content_words(self.fact.subject))

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        return tuple(sorted(_NUMBER.findall(self.fact.text)))

    @cached_property
    def negated(self) -> bool:
        return bool(_NEGATION.search(self.fact.text))

    @cached_property
    def is_denial(self) -> bool:
        """Whether it says that something is not so, or no longer."""
        return self.negated or _ENDED.search(self.fact.text) is not None

    @cached_property
    def only_denies(self) -> bool:
        """Whether its value only denies another ("is not 7444")."""
        denied = _NEGATION.search(self.value)
        return denied is not None and {*self.value[: denied.start()].split()} <= _STOP_WORDS

    @cached_property
    def is_event(self) -> bool:
        """Whether it is an event at a time: with another date it is another event."""
        return self.relation in _EVENTS or bool(
            re.search(rf"\b{RELATIVE}", self.fact.value, re.IGNORECASE)
        )


def decide(
    new: Fact,
    nearest: Sequence[Fact],
    single_valued: Collection[str],
    now: datetime,
    context: str = "",
    rarity: Rarity = _ALONE,
) -> Decision:
    """Decide how a new fact relates to the nearest current facts.

    Args:
        nearest: of the same audience, nearest first.
        single_valued: relations with one value at a time.
        now: a date after this is no evidence of being newer.
        context: the words before the quote, which it may correct.
        rarity: how rare each word is in the project.
    """
    fact = _ComparedFact(new)
    everything = [_ComparedFact(known) for known in nearest if known.id != new.id]
    # A rule and the statement in it stand side by side; only a rule says the same as a rule, and
    # only an intention the same as an intention.
    existing = [
        known
        for known in everything
        if known.subject == fact.subject
        and (known.relation == fact.relation or not OWN_WORDS & {known.relation, fact.relation})
    ]
    for known in existing:
        if _restates(fact, known):
            return Decision("ignore", known.fact, "says the same")
    if new.status == "proposed":
        return Decision("add", why="waits for review")
    replaceable = [known for known in existing if may_replace(new, known.fact)]
    for known in replaceable:
        if _extends(known, fact):
            return Decision("ignore", known.fact, "is said in more words already")
        if _extends(fact, known) and not _is_older(new, known.fact, now):
            return Decision("update", known.fact, "says more of the same")
    if fact.relation in normalise(*single_valued):
        rivals = [
            known.fact
            for known in everything
            if may_replace(new, known.fact)
            and (
                (known.slot == fact.slot and _differs(fact, known))
                or _replaces(fact, known, rarity, context)
            )
        ]
        return _supersede(new, rivals, now, "another value of a relation that has one at a time")
    ended = [known.fact for known in replaceable if _ends(fact, known)]
    ended += [
        known.fact
        for known in everything
        if known.fact not in ended
        if may_replace(new, known.fact) and _replaces(fact, known, rarity, context)
    ]
    if ended:
        return _supersede(new, ended, now, "tells of a change")
    return Decision("add")


def find_related(new: Fact, nearest: Sequence[Fact]) -> list[Fact]:
    """Return the nearest facts that may still concern a new one that the rules would add."""
    fact = _ComparedFact(new)
    return [
        candidate
        for candidate in nearest
        if (known := _ComparedFact(candidate)).subject == fact.subject
        and (known.slot == fact.slot or jaccard(fact.words, known.words) >= _SHARED)
    ]


def is_permitted(decision: Decision, new: Fact, nearest: Sequence[Fact]) -> bool:
    """Return whether a model may make a decision, given the nearest facts that it was shown.

    It may add anything.  It must not supersede one agent's words by another's, nor ignore a fact
    whose numbers or negation differ from those of the remaining one.
    """
    if decision.action == "add":
        return True
    target = decision.target
    if target is None or target.id not in {fact.id for fact in nearest} or decision.others:
        return False
    if decision.action == "ignore":
        fact, known = _ComparedFact(new), _ComparedFact(target)
        return (fact.negated, fact.numbers) == (known.negated, known.numbers)
    return new.status == "active" and may_replace(new, target)


def denies(denial: Fact, known: Fact) -> bool:
    """Return whether a denial (`contradictions.DENIES`) says that another fact is not so."""
    return may_replace(denial, known) and _denies(_ComparedFact(denial), _ComparedFact(known))


def content_words(text: str, leave_out: Collection[str] = ()) -> tuple[str, ...]:
    """Return the stems of a text's words, in order, without stop words."""
    stems = [_stem(word) for word in _WORD.findall(text.casefold())]
    return tuple(stem for stem in stems if stem not in _STOP_WORDS and stem not in leave_out)


def jaccard(words: Collection[str], others: Collection[str]) -> float:
    """Return the Jaccard index of two sets of words: intersection over union."""
    union = set(words) | set(others)
    return len(set(words) & set(others)) / len(union) if union else 0.0


def _stem(word: str) -> str:
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + rest
    return word


def _restates(fact: _ComparedFact, known: _ComparedFact) -> bool:
    """Return whether two facts of a subject say the same, with equal numbers and negation."""
    if fact.negated != known.negated or fact.numbers != known.numbers:
        return False
    if fact.text == known.text:
        return True
    if fact.is_event or known.is_event:
        return False
    if fact.slot == known.slot and fact.value == known.value:
        return True
    return bool(fact.words) and fact.words == known.words


def _differs(fact: _ComparedFact, known: _ComparedFact) -> bool:
    """Return whether two facts have different values, not just different details.

    A denied value ("is not 7444") is not a different one.
    """
    if fact.only_denies and not known.is_denial:
        return False
    return fact.value != known.value or fact.negated != known.negated


def _is_older(new: Fact, known: Fact, now: datetime) -> bool:
    """Return whether a new fact is from an earlier time than an existing one.

    A future time was written by a wrong clock and proves nothing.
    """
    return holds_since(new)[0] < holds_since(known)[0] <= now


def _supersede(new: Fact, rivals: Sequence[Fact], now: datetime, why: str) -> Decision:
    newer = [known for known in rivals if _is_older(new, known, now)]
    older = tuple(known for known in rivals if known not in newer)
    if newer:
        return Decision("supersede", max(newer, key=holds_since), why, late=True, others=older)
    if not older:
        return Decision("add")
    return Decision("supersede", older[0], why, others=older[1:])


def _extends(fact: _ComparedFact, known: _ComparedFact) -> bool:
    """Return whether a fact begins with another's statement, and adds to it."""
    if fact.slot != known.slot or fact.is_event or fact.negated != known.negated:
        return False
    value = fact.value.removeprefix(known.value)
    if value in ("", fact.value) or not _CONTINUATION.match(value):
        return False
    text = fact.text.removeprefix(known.text)
    return text not in ("", fact.text) and set(known.numbers) <= set(fact.numbers)


def _ends(fact: _ComparedFact, known: _ComparedFact) -> bool:
    """Return whether two facts are contraries, or one denies the other, in either order."""
    if {fact.relation, known.relation} in _CONTRARY and fact.value == known.value:
        return True
    return (fact.is_denial and _denies(fact, known)) or (known.is_denial and _denies(known, fact))


def _denies(denial: _ComparedFact, known: _ComparedFact) -> bool:
    """Return whether a denial has the words of a fact, apart from the negation.

    All of them, or those up to where details begin ("a dog called Rex").  Denials and one-off
    events are not denied again.
    """
    if known.is_denial or known.is_event:
        return False
    positive = _NEGATION.sub(" ", _ENDED_WORDS.sub(" ", denial.fact.text))
    words = set(content_words(positive, _SPEAKER))
    text = known.fact.text
    details = _DETAILS.search(text)
    stated = text[: details.start()] if details else text
    return (
        bool(words)
        and any(words == set(content_words(wording, _SPEAKER)) for wording in (text, stated))
        and denial.numbers in ((), known.numbers)
    )


def _replaces(fact: _ComparedFact, known: _ComparedFact, rarity: Rarity, context: str) -> bool:
    """Return whether two facts have one subject and attribute but different values.

    In either order, as a late pass finds the older one second.
    """
    if fact.text == known.text or not _differs(fact, known):
        return False  # the same value under another relation changes nothing
    if _is_older(fact.fact, known.fact, fact.fact.timestamp):
        fact, known, context = known, fact, ""
    if fact.relation == "moved_to" and known.relation not in {"lives_in", *_ANY_ATTRIBUTE}:
        return False  # a move ends where one lives, not what one likes there
    if not {s.entry for s in fact.fact.sources}.isdisjoint(s.entry for s in known.fact.sources):
        return False  # statements made in one breath hold together
    old, new = (f.fact.quote or f.fact.text for f in (known, fact))
    if fact.relation == known.relation and fact.relation not in _ANY_ATTRIBUTE:
        # a relation with several values: only a word of change ends one of them
        values = [set(content_words(f.value)) for f in (known, fact)]
        return (
            known.slot == fact.slot
            and not fact.is_event
            and not find_cues(new).isdisjoint(_CHANGE)
            and jaccard(*values) >= _SHARED
            and bool(values[0] - values[1])
            and bool(values[1] - values[0])
        )
    of_self = any(statement.of_speaker or statement.possessive for statement in statements(old))
    if of_self and known.subject != fact.subject and known.subject not in fact.text:
        return False  # only the person concerned may change a statement about themselves
    return replaces(old, new, rarity, adjacent=old in context) >= fitted_model().mark


# -- Make a fact of a message that replaces the value of an existing fact
#
# "No wait, Friday morning." and an assistant's "The backup now runs at 04:45." say little by
# themselves, but a fact that they replace must not remain current for whoever sees only facts.  A
# message with more than one statement is about something else.

_CONFIDENCE: Final = 0.7
_NEAREST: Final = 12  # facts compared with a statement
_MOST: Final = 60  # drafts with a word, above which it is not distinctive


def only_statement(entry: Entry) -> Statement | None:
    """Return the statement of a message that makes only one."""
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
            for word in _content_of(draft):
                self._drafts.setdefault(word, []).append(draft)

    def draft_replacing(
        self, entry: Entry, part: Statement, before: str = ""
    ) -> tuple[FactDraft, str] | None:
        """Return the draft of a statement that replaces a known fact, in that fact's words.

        Args:
            before: what the same person said right before it.
        """
        older = self._nearest(part, entry)
        words = part.content.union(*map(_content_of, older))
        rarity = Rarity(self._reader.word_frequencies(self._scopes, words), self._items)

        def likely(fact: Fact | FactDraft) -> float:
            adjacent = bool(before) and _said_words(fact) in before
            return replaces(_said_words(fact), part.text, rarity, adjacent=adjacent)

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
            confidence=_CONFIDENCE,
            origin=entry.origin,
        )
        return draft, _said_words(best)

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


def _said_words(fact: Fact | FactDraft) -> str:
    return fact.quote or fact.text


def _content_of(fact: Fact | FactDraft) -> frozenset[str]:
    return frozenset[str]().union(*(part.content for part in statements(_said_words(fact))))
