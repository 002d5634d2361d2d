"""Tell whether a sentence states something that holds beyond the conversation.  Pure.

A sentence is kept for what it does: it gives a rule, tells of a decision, of a change, of what
somebody prefers or cannot take, asks to be remembered, or says how a thing or a person is.  The
words by which that is told are closed classes of its language (``text/data``).  Left alone are
questions, doubts, passing states, praise, and what points to something said before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from memtier_plugin.facts.extraction.clauses import skip_lead
from memtier_plugin.facts.extraction.reading import (
    CONTRACTED_OWN,
    CONTRAST,
    MIN_WORDS,
    OWN,
    SINGULAR,
    SentenceReader,
    function,
)
from memtier_plugin.retrieval.statements import CueClass
from memtier_plugin.text.dates.validity import find_dates
from memtier_plugin.text.lexicon import lexicon, words_of
from memtier_plugin.text.phrases import Words
from memtier_plugin.text.speech import without_receipts

Act = Literal["order", "rule", "decision", "change", "preference", "noted", "attribute"]

_MAX_CHARS: Final = 400
_MIN_LETTERS: Final = 5  # of a sentence without spaces between words
_FRONT_CHARS: Final = 60  # in which a date stands that opens a sentence
_FRONT_START: Final = 24
_ANY_DAY: Final = datetime(2024, 5, 15)
_THAT_DAY: Final = (_ANY_DAY.date(), _ANY_DAY.date())  # "today" says nothing for good
_EARLY: Final = 40  # characters within which a preference is named
_QUESTIONS: Final = re.compile(
    r"[?？]|吗|呢[。！]?\Z|什么|哪[里个些儿]|谁|怎么|如何|为什么|几点|是否|多少|要不要|能不能|是不是"
)
_TAG: Final = re.compile(r"[,;，；–—-]\s*(?=[^,;，；–—]{3,40}\Z)")
_AFTER_CUE: Final = re.compile(r"\s*(?:[,:：，–—-]|that\b|dass\b|daß\b|que\b|qu['’])\s*", re.I)
_SCOPE: Final = re.compile(
    r"(?i)\b(?:in|for|on|with|as|when|before|after|im|in|für|bei|auf|mit|en|para|con|dans|"
    r"pour|avec)\b"
    r" (?:the |our |my |all |every |each |any |den |der |die |das |allen? |unsere[nr]? "
    r"|el |la |los |"
    r"las |nuestr\w+ |todos |todas |le |les |nos |tous |toutes |commit\w*|code\b|doc\w*|test\w*)"
)
_PURPOSE: Final = re.compile(r"(?i)\b(?:to|um|para|pour) (?!the\b|our\b)\w+")
_NOT_THAT: Final = re.compile(
    r"(?i),? (?:not|instead of|rather than|statt|nicht|y no|en vez de|au lieu de|pas) \w"
)
_PROPOSING: Final = frozenset(["let", "lets"])
_BEING: Final = frozenset(["m", "am", "re", "are", "bin", "sind", "estoy", "suis", "sommes"])
_RATHER: Final = frozenset(["rather", "lieber", "plutôt", "mejor"])


@dataclass(frozen=True, slots=True)
class Durable:
    """A sentence worth keeping.

    Attributes:
        act: what is done by saying it.
        words: the sentence without what only leads to it ("For the record, ...").
        offset: where that begins in the sentence.
        verb: where its verb stands in that; None where that is not known.
        cues: the classes of change that it has a word of.
    """

    act: Act
    words: Words
    offset: int
    verb: tuple[int, int] | None
    cues: frozenset[CueClass]

    @property
    def own(self) -> bool:
        """Whether it speaks of its speaker anywhere."""
        words = lexicon(self.words.language)
        own = words.first_person | words.first_possessive
        if self.words.unspaced:
            return any(word in self.words.text for word in own)
        drops = words.pro_drop and self.words.words[0] in words.stating_verbs
        return drops or not own.isdisjoint(self.words.words)


def read_statement(
    sentence: Words, *, among_people: bool = False, in_passing: bool = False
) -> Durable | None:
    """Return what a sentence states for good, or None.

    Args:
        among_people: it was said to another person, who is told much that nobody need remember.
        in_passing: it stands in a message that says much else: what is not for good by its own
            words is about the matter at hand.
    """
    if len(sentence.text) > _MAX_CHARS or not lexicon(sentence.language).definite:
        return None
    words, offset, noted = _without_lead(sentence)
    if not _is_long_enough(words) or _QUESTIONS.search(words.text):
        return None
    reader = _Reader(words, among_people)
    if reader.is_cut_off():
        return None
    act = reader.act(noted=noted)
    if act is None and not among_people:
        act = _act_after_date(words)
        return Durable(act, words, offset, None, reader.cues) if act else None
    if act and in_passing and not noted and not reader.holds_for_good(act):
        return None
    return Durable(act, words, offset, reader.verb, reader.cues) if act else None


def _act_after_date(words: Words) -> Act | None:
    """Return what is done by a sentence that opens with a date: "From 1 June on, ..."."""
    if words.unspaced:
        return None
    dates = find_dates(words.text[:_FRONT_CHARS], _ANY_DAY, words.language, "future")
    if not dates or dates[0].mention.start > _FRONT_START or dates[0].period == _THAT_DAY:
        return None
    rest = words.text[dates[0].mention.end :].lstrip(" ,")
    following = Words.of(rest[:1].upper() + rest[1:], words.language)
    if len(following.words) < MIN_WORDS:
        return None
    classes = lexicon(words.language)
    inverted = following.words[0] in classes.stating_verbs | classes.copulas
    reader = _Reader(following, False)
    act = reader.act(noted=inverted)
    verbless = words.language == "english" and reader.verb is None
    return None if verbless and act != "order" else act


def _is_long_enough(words: Words) -> bool:
    if words.unspaced:
        return len(words.text.strip(" 。.!！")) >= _MIN_LETTERS
    return len(words.words) >= MIN_WORDS


def _without_lead(sentence: Words) -> tuple[Words, int, bool]:
    """Return a sentence without what only leads to it, where that begins, and if it was noted."""
    text, noted = sentence.text, False
    start = len(text) - len(without_receipts(text))
    for _ in range(3):
        rest = Words.of(text[start:], sentence.language)
        if sentence.language == "english" and rest.opens("rule_openers") is None:
            start = skip_lead(text, start, len(text))
            rest = Words.of(text[start:], sentence.language)
        end = rest.opens("keep_cues")
        if end is None and (polite := rest.opens("politeness")):
            asked = Words.of(rest.text[polite:], sentence.language)
            after = asked.opens("keep_cues")  # "please tell everyone that ..."
            end = None if after is None else polite + after
        if end is None:
            break
        led = _AFTER_CUE.match(rest.text, end)
        if not led and not sentence.unspaced:
            break
        start, noted = start + (led.end() if led else end), True
    end = len(text)
    if tag := _last_tag(text):
        asked = Words.of(text[tag.end() :], sentence.language)
        closed = max(asked.opens("keep_cues") or 0, asked.opens("politeness") or 0)
        rest = Words.of(asked.text[closed:], sentence.language)
        if closed and len(rest.words) <= 1 and (rest.opens("keep_cues") or asked.has("keep_cues")):
            end, noted = tag.start(), True
    return Words.of(text[start:end].rstrip(), sentence.language), start, noted


def _last_tag(text: str) -> re.Match[str] | None:
    return _TAG.search(text, max(0, len(text) - 44))


class _Reader(SentenceReader):
    """Tells what is done by saying a sentence."""

    def act(self, *, noted: bool) -> Act | None:
        """Return what is done by saying it, or None for what is not worth keeping."""
        if order := self._order():
            return None if self.among_people else order
        if self.words.has("doubt_cues") and not self._has_preference():
            return None
        if self.is_condition() or self.points():
            return None
        if self._has_preference() and not (self.among_people and self._is_to_hearer()):
            return "preference"
        if self._is_to_hearer():
            return None
        gave_up = "ending" in self.cues and self.first in OWN
        if "unsettled" in self.cues and not gave_up and not self.words.has("rule_cues"):
            return None
        if self._decides():
            return "decision"
        if self.first in _PROPOSING:
            return None
        if noted and not self.among_people:
            return "noted"
        return self._statement()

    def _decides(self) -> bool:
        cue = self.words.find("decision_cues")
        if cue is None or not self.is_named() or self.is_vague():
            return False
        decided = [token.text for token in self.words.tokens if token.start >= cue[1]]
        if decided and decided[0] in self.lexicon.idle_decisions and self.first in _PROPOSING:
            return False
        if self.first in SINGULAR and self.is_cognition():
            return False
        return not self.among_people or (self.first in OWN and self.is_dated())

    def holds_for_good(self, act: Act) -> bool:
        """Tell whether what is said in passing holds beyond the matter at hand."""
        if self.words.unspaced:
            return act != "attribute" or self.is_specific()
        if act == "order":
            return not words_of("standing_words").isdisjoint(self.tokens)
        if not self.lexicon.stance_words.isdisjoint(self.tokens):
            return False
        if self.words.has("moment_cues") and not self.is_dated():
            return False
        if act == "preference":
            return True
        if self.has_kin() or self._has_trait():
            return True
        if act == "attribute" and self._is_of_the_hour():
            return False
        own = self.lexicon.first_possessive | self.lexicon.first_person
        if act == "attribute" and own.isdisjoint(self.tokens[:1]) and not self.is_timed():
            return False  # a name alone says little: much that is talked about has one
        return self.is_specific() and not self._is_comment()

    def _is_of_the_hour(self) -> bool:
        """Tell whether somebody says what they will, can or need just now, without a date."""
        if len(self.tokens) < 3 or self.first not in OWN or self.has_date():
            return False
        _, verb, after = self.tokens[:3]
        intends = verb in self.lexicon.intending
        return intends or (verb in _BEING and after in self.lexicon.passing)

    def _is_comment(self) -> bool:
        """Tell whether it says how good or how far the matter at hand is."""
        rest = [word for word in self.predicate() if word not in function(self.words.language)]
        return self.is_copula() and bool(rest) and rest[0] in self.lexicon.passing

    def _is_to_hearer(self) -> bool:
        """Tell whether it is about who hears it."""
        if self.words.unspaced:
            return False
        return not self.lexicon.second_person.isdisjoint(self.tokens)

    def _statement(self) -> Act | None:
        if self._has_trait():
            return "attribute"
        if CONTRAST.match(self.words.text):
            return "decision"
        if not self.is_named():
            return None
        if self.is_own_singular():
            return self._own()
        if self.is_vague():
            return None
        if self.words.has("rule_cues") and self.content() >= 2 and not self.among_people:
            return "rule"
        passive = self.words.unspaced or (self.is_definite() and self.is_copula())
        if "ending" in self.cues and passive:
            return "change"  # "the launch is off"
        changed = bool(self.cues & {"change", "ending"}) and self.content() >= 2
        if changed and (self.is_specific() or self.is_definite()):
            return "change" if not self.among_people or self.is_dated() else None
        return "attribute" if self._describes() else None

    def _order(self) -> Act | None:
        """Return "order" for an instruction that holds for good."""
        words, text = self.words, self.words.text
        polite = words.opens("politeness")
        asked = words
        if polite is not None and words.opens("rule_openers") is None:
            asked = Words.of(text[polite:].lstrip(" ,，"), words.language)
        end = asked.opens("rule_openers")
        scoped = False
        if end is None:
            end = asked.opens("order_openers")
            if end is None or not self._has_scope(asked, end):
                return None
            scoped = True
        rest = Words.of(asked.text[end:], words.language)
        if not self._may_order(asked, rest):
            return None
        opener = asked.words[0] if asked.words else ""
        if opener in words_of("weak_openers") and not (
            self.is_specific() or words.has("rule_cues") or self.content() >= 3
        ):
            return None
        return None if scoped and self.among_people else "order"

    def _may_order(self, asked: Words, rest: Words) -> bool:
        """Tell whether what follows an opener is an order of its own."""
        idle = self.lexicon.idle_orders
        if self.words.unspaced:
            long = len(rest.text.strip(" 。.!！")) >= 2 and not self.is_of_the_moment(rest)
            return long and not rest.text.startswith(tuple(idle))
        following = [word for word in rest.words if word not in ("t", "not")]
        if not following or following[0] in idle:
            return False
        content = [word for word in following if word not in function(self.words.language)]
        if len(content) < 2 - (self.is_specific() and bool(content)):
            return False
        if self.is_of_the_moment(rest):
            return False
        general = not words_of("general_words").isdisjoint(asked.words)
        if not general and not self.lexicon.answer_parts.isdisjoint(following):
            return False
        return self.lexicon.pointing_words.isdisjoint(following) or (general and len(content) >= 3)

    def _has_scope(self, asked: Words, end: int) -> bool:
        """Tell whether an order says where it holds, and is not about one thing at hand."""
        rest = Words.of(asked.text[end:], asked.language)
        if asked.unspaced:
            return len(rest.text) >= 3 and not any(word in rest.text for word in ("这", "那"))
        if not rest.words or rest.words[0] in self.lexicon.definite | {*self.lexicon.articles}:
            return False
        if not words_of("general_words").isdisjoint(rest.words) or _NOT_THAT.search(rest.text):
            return True
        if rest.words[0] in self.lexicon.first_person:
            return False  # "write me the copy for the page"
        return bool(_SCOPE.search(rest.text)) and not _PURPOSE.search(rest.text)

    def _has_preference(self) -> bool:
        cue = self.words.find("preference_cues")
        if cue is None or cue[0] > _EARLY or self.points():
            return False
        if self.words.unspaced:
            return "我" in self.words.text or self.has_kin()
        own = self.lexicon.first_person | self.lexicon.first_possessive | CONTRACTED_OWN
        mine = not own.isdisjoint(self.tokens[:4]) or self.has_kin()
        drops = self.lexicon.pro_drop and self.tokens[0] in {"no", *self.lexicon.stating_verbs}
        named = self.is_bare()
        wished = "unsettled" in self.cues and _RATHER.isdisjoint(self.tokens)
        return (mine or drops or named) and not wished and not self.is_cognition()

    def _has_trait(self) -> bool:
        if not self.words.has_word("traits") or self.cues & {"unsettled"}:
            return False
        if self.words.unspaced:
            return "我" in self.words.text or self.has_kin()
        return self.is_named() and not self.is_cognition()

    def _own(self) -> Act | None:
        """Return what somebody says of themselves that somebody may ask for later."""
        if self.is_cognition() or self.is_vague() or self._is_of_the_hour():
            return None
        exact = self.is_dated() if self.among_people else self.is_specific()
        if self.cues & {"change", "ending"} and exact:
            return "change"
        return "attribute" if exact and self.states() and not self.is_past() else None

    def _describes(self) -> bool:
        """Tell whether it says how a thing or a person is, other than for the moment."""
        if self.cues & {"former"} and not self.is_specific():
            return False
        if self.words.unspaced:
            named = self.words.has("called_verbs") or self.has_kin()
            return self.is_specific() or (named and self.verb is not None)
        if self.verb is None and self.words.language == "english":
            return False
        rest = self.predicate()
        content = [word for word in rest if word not in function(self.words.language)]
        telling = [word for word in content if word not in self.lexicon.passing]
        if not telling or (self.is_past() and not self.is_timed()):
            return False
        if self.first in OWN and self._is_of_the_hour():
            return False
        if self._is_comment() and not self.is_timed():
            return False
        if content[0].endswith("ing") and self.is_copula() and not self.is_timed():
            return False
        if self.among_people:
            return self.is_dated() and not self.is_bare()
        plural = self.first in self.lexicon.first_person
        return self.is_specific() or not plural or self.states()
