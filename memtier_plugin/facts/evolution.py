"""What becomes of a new fact beside those that are known: add, update, supersede or ignore.  Pure.

In doubt it is added.  A fact is ignored only where one that is known says the same, and takes a
known one's place only where it says more of the same, where the relation has one value at a time,
or where the words themselves tell of a change.  Source: seeds 4.3, 4.4, 5.1; issue 4.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final, Literal

from memtier_plugin.core.records import Fact
from memtier_plugin.retrieval.contradictions import holds_since, may_replace
from memtier_plugin.text.dates.annotate import RELATIVE
from memtier_plugin.text.normalise import normalise

Action = Literal["add", "update", "supersede", "ignore"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done with a new fact, and the known fact that it concerns.

    ``late`` turns a supersession round: the new one is the older, and the ``target`` stays.
    ``others`` are superseded beside the target.
    """

    action: Action
    target: Fact | None = None
    why: str = ""
    late: bool = False
    others: tuple[Fact, ...] = ()


# Relations of which one is the other's contrary, and those whose values a change carries over.
_CONTRARY: Final = frozenset(
    {("likes", "dislikes"), ("dislikes", "likes"), ("always", "never"), ("never", "always")}
)
_TRANSFERS: Final = frozenset(
    {("moved_to", "lives_in"), ("lives_in", "moved_to"), ("decided", "uses")}
)
_EVENTS: Final = frozenset({"did", "decided"})  # they happen, and may happen again

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
    r"\b(?:no longer|not\b.{0,60}?\bany ?(?:more|longer)|used to|formerly|previously)\b",
    re.IGNORECASE,
)
_ENDED_WORDS: Final = re.compile(
    r"\b(?:no longer|any ?(?:more|longer)|used to|formerly|previously|not|\w+n['’]t|do|does|did)\b",
    re.IGNORECASE,
)
_FROM_TO: Final = re.compile(
    r"\b(?:moved|moving|switched|switching|migrated|migrating|changed|upgraded|downgraded"
    r"|transferred|relocated|renamed|went over|gone over)\b.{0,40}?\bfrom (?P<one>.{1,60}?) to\b"
    r"|\breplaced (?P<two>.{1,60}?) (?:with|by)\b|\binstead of (?P<three>[^.,;]{1,60})",
    re.IGNORECASE,
)
_CHANGED: Final = re.compile(
    r"\b(?:now|nowadays|these days|actually|correction|i meant|was wrong|that['’]s wrong|"
    r"changed my mind|scratch that|from now on|as of|instead|has changed|changed to|updated to)\b",
    re.IGNORECASE,
)
# How words go on that only add to what was said before them.
_CONTINUATION: Final = re.compile(
    r"\s*(?:[,;(—–]|(?:with|and|named|called|who|which|where|in|at|on|for|from|since|because|near|"
    r"during|together|every|by|as)\b)",
    re.IGNORECASE,
)
_SHARED: Final = 0.5  # of the words of two values, for a change to be about the same thing


@dataclass(frozen=True)
class _ComparedFact:
    """A fact as it is compared with others."""

    fact: Fact

    @cached_property
    def about(self) -> tuple[str, ...]:
        return normalise(self.fact.subject, self.fact.relation)

    @cached_property
    def value(self) -> str:
        return normalise(self.fact.value)[0]

    @cached_property
    def text(self) -> str:
        """The text as it is compared: one case, one space, no full stop."""
        return normalise(self.fact.text)[0].rstrip(".! ")

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words that say something, of the text without its subject, in their order."""
        return content_words(self.fact.text, leave_out=content_words(self.fact.subject))

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        return tuple(sorted(_NUMBER.findall(self.fact.text)))

    @cached_property
    def negated(self) -> bool:
        return bool(_NEGATION.search(self.fact.text))

    @cached_property
    def is_event(self) -> bool:
        """Whether it is an event, which is another one when it is told with another date."""
        return self.about[1] in _EVENTS or bool(
            re.search(rf"\b{RELATIVE}", self.fact.value, re.IGNORECASE)
        )


def decide(
    new: Fact,
    nearest: Sequence[Fact],
    single_valued: Collection[str],
    now: datetime,
    context: str = "",
) -> Decision:
    """Return what is to be done with a fact beside the nearest that hold.

    Args:
        nearest: of the same audience, the nearest first.
        single_valued: relations with one value at a time.
        now: what a date is future to, and so no sign of being newer.
        context: the words around the quote, which may tell that something is corrected.
    """
    said, known = _ComparedFact(new), [_ComparedFact(fact) for fact in nearest if fact.id != new.id]
    known = [other for other in known if other.about[0] == said.about[0]]
    for other in known:
        if _restates(said, other):
            return Decision("ignore", other.fact, "says the same")
    if new.status == "proposed":
        return Decision("add", why="waits for review")
    mine = [other for other in known if may_replace(new, other.fact)]
    for other in mine:
        if _extends(other, said):
            return Decision("ignore", other.fact, "is said in more words already")
        if _extends(said, other) and not _is_older(new, other.fact, now):
            return Decision("update", other.fact, "says more of the same")
    if said.about[1] in {normalise(relation)[0] for relation in single_valued}:
        rivals = [
            other.fact for other in mine if other.about == said.about and _differs(said, other)
        ]
        return _supersede(new, rivals, now, "another value of a relation that has one at a time")
    if gone := [other.fact for other in mine if _ends(said, other, context)]:
        return _supersede(new, gone, now, "tells of a change")
    return Decision("add")


def _restates(one: _ComparedFact, other: _ComparedFact) -> bool:
    """Tell whether two facts of a subject say the same: numbers and negation never differ."""
    if one.negated != other.negated or one.numbers != other.numbers:
        return False
    if one.text == other.text:
        return True
    if one.is_event or other.is_event:
        return False
    if one.about == other.about and one.value == other.value:
        return True
    return bool(one.words) and one.words == other.words


def find_related(new: Fact, nearest: Sequence[Fact]) -> list[Fact]:
    """Return the facts that a new one, which the rules would add, may still have to do with."""
    said = _ComparedFact(new)
    return [
        fact
        for fact in nearest
        if (other := _ComparedFact(fact)).about[0] == said.about[0]
        and (other.about == said.about or jaccard(said.words, other.words) >= _SHARED)
    ]


def is_permitted(decision: Decision, new: Fact, nearest: Sequence[Fact]) -> bool:
    """Tell whether a model may decide so of a fact, given the nearest that it was shown.

    It may add anything.  It must not put one agent's words in the place of another's, nor drop a
    fact whose numbers or negation are not those of the one that is kept.
    """
    if decision.action == "add":
        return True
    target = decision.target
    if target is None or target.id not in {fact.id for fact in nearest} or decision.others:
        return False
    said, other = _ComparedFact(new), _ComparedFact(target)
    if decision.action == "ignore":
        return (said.negated, said.numbers) == (other.negated, other.numbers)
    return new.status == "active" and may_replace(new, target)


def content_words(text: str, leave_out: Collection[str] = ()) -> tuple[str, ...]:
    """Return the words of a text that say something, cut to what their forms have in common."""
    found = (_stem(word) for word in _WORD.findall(text.casefold()))
    return tuple(word for word in found if word not in _STOP_WORDS and word not in leave_out)


def jaccard(one: Collection[str], other: Collection[str]) -> float:
    """Return the share of words that two texts have in common (Jaccard)."""
    together = set(one) | set(other)
    return len(set(one) & set(other)) / len(together) if together else 0.0


def _stem(word: str) -> str:
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""), ("e", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + rest
    return word


def _differs(one: _ComparedFact, other: _ComparedFact) -> bool:
    """Tell whether the value is another one; the same may be told with other details."""
    return one.value != other.value or one.negated != other.negated


def _is_older(new: Fact, other: Fact, now: datetime) -> bool:
    """Tell whether a fact is of an earlier time than a known one.

    A time that is yet to come was written by a clock that went wrong, and proves nothing.
    """
    return holds_since(new)[0] < holds_since(other)[0] <= now


def _supersede(new: Fact, rivals: Sequence[Fact], now: datetime, why: str) -> Decision:
    newer = [other for other in rivals if _is_older(new, other, now)]
    older = tuple(other for other in rivals if other not in newer)
    if newer:
        return Decision("supersede", max(newer, key=holds_since), why, late=True, others=older)
    if not older:
        return Decision("add")
    return Decision("supersede", older[0], why, others=older[1:])


def _extends(one: _ComparedFact, other: _ComparedFact) -> bool:
    """Tell whether one says what the other does, and more: it begins so and goes on."""
    if one.about != other.about or one.is_event or one.negated != other.negated:
        return False
    value = one.value.removeprefix(other.value)
    if value in ("", one.value) or not _CONTINUATION.match(value):
        return False
    text = one.text.removeprefix(other.text)
    return text not in ("", one.text) and set(other.numbers) <= set(one.numbers)


def _ends(one: _ComparedFact, other: _ComparedFact, context: str) -> bool:
    """Tell whether one says that the other holds no more."""
    told = f"{context}\n{one.fact.quote}\n{one.fact.text}"
    if _contradicts(one, other):
        return True
    if _ENDED.search(one.fact.text) and not _ENDED.search(other.fact.text):
        left = set(content_words(_ENDED_WORDS.sub(" ", one.fact.text)))
        return bool(other.words) and set(other.words) <= left
    carried = one.about[1] == other.about[1] or (one.about[1], other.about[1]) in _TRANSFERS
    if carried and any(_names_value(match, other) for match in _FROM_TO.finditer(told)):
        return True
    if one.about != other.about or not _CHANGED.search(told) or one.is_event:
        return False
    return jaccard(content_words(one.fact.value), content_words(other.fact.value)) >= _SHARED


def _contradicts(one: _ComparedFact, other: _ComparedFact) -> bool:
    """Tell whether two say the contrary of the very same thing."""
    pair = one.about[1], other.about[1]
    if pair in _CONTRARY:
        return one.value == other.value
    if one.negated == other.negated or one.is_event or one.numbers != other.numbers:
        return False
    return bool(bare := _without_negation(one)) and bare == _without_negation(other)


def _without_negation(said: _ComparedFact) -> tuple[str, ...]:
    text = _NEGATION.sub(" ", said.fact.text)
    return content_words(text, leave_out=content_words(said.fact.subject))


def _names_value(match: re.Match[str], other: _ComparedFact) -> bool:
    """Tell whether what a change leads away from is what a fact states."""
    named = set(content_words(next(filter(None, match.groups()))))
    stated = set(content_words(other.fact.value))
    return bool(named) and bool(stated) and (named <= stated or stated <= named)
