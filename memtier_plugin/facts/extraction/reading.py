"""Read what a sentence is about and how definite it is, by the closed classes of its language.

Pure.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from typing import Final

from memtier_plugin.retrieval.prompt_words import names_time
from memtier_plugin.retrieval.statements import find_cues
from memtier_plugin.text.dates.annotate import has_date
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.stated import find_stated_dates
from memtier_plugin.text.grammar import common_words, irregular_verbs
from memtier_plugin.text.lexicon import lexicon, words_of
from memtier_plugin.text.phrases import Words

MIN_WORDS: Final = 3
_ANY_DAY: Final = date(2024, 5, 15)
_SUBJECT: Final = 9  # words within which the verb of a sentence stands
_SPECIFIC: Final = re.compile(r"\d|`[^`]+`|(?:[\w.-]*/)+[\w.-]+|\w\.\w|[$€£¥%]")
_NAME: Final = re.compile(
    r"(?<=[\w,'’] )(?!I\b|I['’])[A-ZÄÖÜÀÉÈ][\w-]+|\b[A-Z]{2,}\b|\b\w+[A-Z]\w*"
)
_LABEL: Final = re.compile(r":\s|\s[-–—]\s")
_LOOSE_MARK: Final = re.compile(r":(?:\s+\d+)?\Z|\A\d{1,2}:\d\d\s")  # of a list, of a transcript
_EXACT: Final = re.compile(r"(?i)(?:is|are|was|were) (?:now )?[\w#/-]*\d[\w/.-]*\W*\Z")
_LATIN: Final = re.compile(r"[A-Za-z]{2,}")
_CAPITAL: Final = re.compile(r"\W*[A-ZÄÖÜÉÀÈ0-9]")
CONTRAST: Final = re.compile(
    r"(?i)\bit['’]s \S+(?: \S+)? (?:here|for us|at ours|in this \w+),? not \w"
)
_PAIRS: Final = (("(", ")"), ("[", "]"), ("“", "”"), ("「", "」"), ("«", "»"))
_CLOSING: Final = frozenset(")]}”»")
_PREPOSITIONS: Final = frozenset(["of", "in", "on", "for", "with", "about", "at", "from", "to"])
_CLITIC: Final = frozenset(["it", "that", "there", "here", "what", "who"])
_PLURALS: Final = frozenset(
    {"children", "people", "men", "women", "kids", "we", "you", "they"}
    | {"will", "can", "must", "may", "not"}
)
_UNSPACED_TIME: Final = re.compile(
    r"(?:周|星期|礼拜)[一二三四五六日天末]|[一二两三四五六七八九十百千\d]+[点号日月年天周分秒元块楼层岁个]|每[天周月年]|"
    r"上午|下午|早上|晚上|明[天年]|后天"
)
_AFTER_ORDER: Final = frozenset(["the", "a", "an", "my", "our", "your", "me", "us", "them"])
SINGULAR: Final = frozenset(["i", "ich", "yo", "je", "j"])
OWN: Final = SINGULAR | {"we", "wir", "nous", "nosotros", "nosotras"}
CONTRACTED_OWN: Final = frozenset({"i", "we"})
_NOW: Final = frozenset(
    [
        "think",
        "know",
        "understand",
        "see",
        "guess",
        "feel",
        "wonder",
        "wondered",
        "believe",
        "suppose",
        "mean",
        "hope",
        "wish",
        "remember",
        "forgot",
        "trying",
        "looking",
        "wondering",
        "thinking",
        "hoping",
        "asking",
        "talking",
        "feeling",
        "help",
        "question",
        "questions",
        "idea",
        "ideas",
        "error",
        "problem",
        "issue",
        "weiß",
        "glaube",
        "denke",
        "verstehe",
        "meine",
        "hoffe",
        "frage",
        "finde",
        "creo",
        "pienso",
        "entiendo",
        "sé",
        "espero",
        "quiero",
        "pense",
        "crois",
        "comprends",
        "sais",
        "espère",
        "veux",
    ]
)


class SentenceReader:
    """Reads one sentence of one language."""

    def __init__(self, words: Words, among_people: bool) -> None:
        self.words = words
        self.among_people = among_people
        self.lexicon = lexicon(words.language)
        self.plain = _without_dates(words.text)
        self.cues = find_cues(self.plain)
        self.tokens = words.words
        self.first = self.tokens[0] if self.tokens else ""
        self.verb = self.find_verb()

    def is_named(self) -> bool:
        """Tell whether it opens with something that can be told without its context."""
        if self.words.unspaced:
            text = self.words.text
            if text.startswith(("你", "您", "它", "这", "那", "他", "她")):
                return False
            return (self.verb is not None and 0 < self.verb[0] <= 16) or text.startswith(
                tuple(self.lexicon.definite)
            )
        if self.first in self.lexicon.first_person or self.first in CONTRACTED_OWN:
            return True
        if self.words.opens("decision_cues") is not None:
            return True
        if self.is_definite():
            return self.verb is not None or len(self.tokens) >= 5
        if self.lexicon.pro_drop and self.first in self.lexicon.stating_verbs:
            return True
        return self.is_bare()

    def is_definite(self) -> bool:
        """Tell whether it opens with "the", "our" or "every" and a noun of its own."""
        if self.first not in self.lexicon.definite | self.lexicon.first_possessive:
            return False
        second = self.tokens[1]
        if second in self.lexicon.copulas or self.is_abstract():
            return False
        noun = self.words.text[self.words.tokens[1].start].isupper()
        return noun or second not in self.lexicon.stating_verbs or self.first != "das"

    def is_bare(self) -> bool:
        """Tell whether it opens with a name or a plural, which its verb follows."""
        first = self.first
        if first in function(self.words.language) or first in words_of("question_openers"):
            return False
        if first in self.lexicon.passing | self.lexicon.abstract_subjects:
            return False
        if first in self.lexicon.answer_parts:
            return False
        if first in self.lexicon.anaphors or first in self.lexicon.third_person:
            return False
        if self.tokens[1] in self.lexicon.determiners | _AFTER_ORDER:  # "show the", "send me"
            return False
        if first == "let" or f"{first}s" in self.lexicon.stating_verbs:  # an order
            return False
        if self.verb is None or not _CAPITAL.match(self.words.text):
            return False
        if first.endswith("ing") and not self.words.has("rule_cues"):
            return False
        return self.verb[0] > 0

    def is_own_singular(self) -> bool:
        if self.words.unspaced:
            return self.words.text.startswith("我") and not self.words.text.startswith(
                ("我们", "我的", "我家")
            )
        return self.first in SINGULAR

    def is_abstract(self) -> bool:
        """Tell whether its subject points into the conversation ("the second paragraph")."""
        end = self.verb[0] if self.verb else len(self.words.text)
        subject = [token.text for token in self.words.tokens if token.start < end][1:]
        names = self.lexicon.abstract_subjects | self.lexicon.answer_parts
        if not subject:
            return False
        if self.words.language != "english":  # the noun stands first, or at both ends
            return subject[-1] in names or subject[0] in names
        stops = (index for index, word in enumerate(subject) if word in _PREPOSITIONS)
        head = max(next(stops, len(subject)) - 1, 0)  # not "the chat server"
        if subject[head] not in names:
            return False
        # "The door code is 4411" names a thing, "the second line is 40" a part of what is shown.
        modifier = subject[head - 1] if head else ""
        compound = bool(modifier) and modifier not in names | self.lexicon.pointing_ordinals
        return not (compound and _EXACT.match(self.words.text, end))

    def find_verb(self) -> tuple[int, int] | None:
        """Return where the verb stands that its subject is followed by."""
        if self.words.unspaced:
            return self.find_unspaced_verb()
        verbs = self.lexicon.stating_verbs | self.lexicon.copulas
        past = irregular_verbs().past if self.words.language == "english" else frozenset()
        determined = self.first in self.lexicon.definite | self.lexicon.first_possessive
        for index in range(2 if determined else 1, min(_SUBJECT, len(self.tokens))):
            token = self.words.tokens[index]
            known = token.text in verbs or token.text in past or self.is_regular_past(token.text)
            if known and not self._is_within_subject(index, verbs):
                return token.start, token.end
        return self.likely_verb()

    def _is_within_subject(self, index: int, verbs: frozenset[str]) -> bool:
        """Tell whether a word that may be a verb is part of a noun ("go-live", "Jo's visit")."""
        token, before = self.words.tokens[index], self.tokens[index - 1]
        text = self.words.text
        if text[token.start - 1] == "-" or text[token.end : token.end + 1] == "-":
            return True
        if self.words.language != "english" or self.first in OWN:
            return False
        if token.text == "s":
            return before not in _CLITIC
        plural = before.endswith("s") and before != "s"
        return f"{token.text}s" in verbs and not plural and before not in _PLURALS

    def likely_verb(self) -> tuple[int, int] | None:
        """Return the second word where it looks like an English verb ("Caddy serves ...")."""
        if self.words.language != "english" or len(self.tokens) < 2 * MIN_WORDS - 2:
            return None
        token = self.words.tokens[1]
        inflected = token.text.endswith("s") and not token.text.endswith(("ss", "us", "is"))
        likely = inflected and len(token.text) > 4 and self.is_specific()
        return (token.start, token.end) if likely else None

    def is_regular_past(self, word: str) -> bool:
        return self.words.language == "english" and len(word) > 4 and word.endswith("ed")

    def find_unspaced_verb(self) -> tuple[int, int] | None:
        text = self.words.text
        places = [
            (at, -len(verb)) for verb in self.lexicon.stating_verbs if (at := text.find(verb)) > 0
        ]
        at, size = min(places, default=(-1, 0))
        return (at, at - size) if at > 0 else None

    def has_kin(self) -> bool:
        """Tell whether it opens with a relative or a pet of the speaker."""
        kin = self.lexicon.kinship | self.lexicon.kin_words
        own = self.lexicon.first_possessive
        if self.words.unspaced:
            return any(word in self.words.text[:12] for word in kin)
        return self.first in own and not kin.isdisjoint(self.tokens[1:5])

    def states(self) -> bool:
        """Tell whether it has a verb that says how something is."""
        return self.words.unspaced or any(
            token in self.lexicon.stating_verbs for token in self.tokens[:_SUBJECT]
        )

    def predicate(self) -> list[str]:
        """Return the words after the verb, or after the subject's first where it has none."""
        end = self.verb[1] if self.verb else self.words.tokens[0].end
        after = [token.text for token in self.words.tokens if token.start >= end]
        if self.verb and not self.is_copula():  # the verb itself says something
            after.insert(0, self.words.text[slice(*self.verb)].casefold())
            return after if len(after) > 1 else []
        return after

    def is_copula(self) -> bool:
        if self.verb is None:
            return False
        verb = self.words.text[slice(*self.verb)].casefold()
        return verb in self.lexicon.copulas or verb in ("s", "re", "m")

    def is_past(self) -> bool:
        """Tell whether it tells of something past (English)."""
        if self.words.language != "english" or self.verb is None:
            return False
        verb = self.words.text[slice(*self.verb)].casefold()
        if verb in self.lexicon.stating_verbs and verb not in ("was", "were", "had"):
            return False
        return verb in irregular_verbs().past or verb in ("was", "were", "had") or verb[-2:] == "ed"

    def is_cognition(self) -> bool:
        """Tell whether it says what somebody thinks, means or asks for just now."""
        return not _NOW.isdisjoint(self.tokens[:6])

    def is_of_the_moment(self, words: Words) -> bool:
        """Tell whether some words are for just now: none makes the sentence one for good."""
        general = words_of("general_words")
        return general.isdisjoint(self.tokens) and words.has("moment_cues")

    def is_cut_off(self) -> bool:
        """Tell whether it is a part of a sentence, by its end or by its brackets."""
        text = self.words.text.rstrip(" .!。！")
        if any(text.count(left) != text.count(right) for left, right in _PAIRS):
            return True
        if _LOOSE_MARK.search(text) or text.count('"') % 2 or text[:1] in _CLOSING:
            return True
        return bool(self.tokens) and self.tokens[-1] in self.lexicon.loose_ends

    def is_condition(self) -> bool:
        return self.first in self.lexicon.conditionals

    def points(self) -> bool:
        """Tell whether it points to something that was said before."""
        if self.words.unspaced:
            return self.words.text.startswith(("它", "这", "那", "他", "她"))
        if CONTRAST.match(self.words.text):
            return False
        for index, word in enumerate(self.tokens):
            if word in self.lexicon.pointing_words:
                after = self.tokens[index + 1 : index + 2]
                if not (after and names_time((after[0], frozenset()), self.words.language)):
                    return True
        return False

    def is_vague(self) -> bool:
        """Tell whether its subject or its object is a word for what is talked about."""
        if self.words.unspaced:
            return any(word in self.words.text[:8] for word in self.lexicon.abstract_subjects)
        subject = self.words.text[: self.verb[0] if self.verb else len(self.words.text)]
        if _LABEL.search(subject) or (self.verb and "," in subject):
            return True  # "the bike, which I bought, ...", "Therefore: the dog ..."
        if self.first in self.lexicon.first_possessive and self.tokens[1] == "name":
            return True
        objects = {word.removesuffix("s") for word in self.tokens[2:6]}
        own = self.first in OWN and not self.lexicon.abstract_subjects.isdisjoint(objects)
        return own or self.is_abstract()

    def content(self) -> int:
        if self.words.unspaced:
            return len(self.words.text) // 3
        return sum(word not in function(self.words.language) for word in self.tokens)

    def is_timed(self) -> bool:
        """Tell whether it has a number, a date or a day."""
        if self.words.unspaced and _UNSPACED_TIME.search(self.words.text):
            return True
        if re.search(r"\d", self.words.text) or any(
            names_time((token, frozenset()), self.words.language) or token in _numbers()
            for token in self.tokens
        ):
            return True
        dates = find_relative_dates(self.words.text, _ANY_DAY)
        return any(mention.span != (_ANY_DAY, _ANY_DAY) for mention in dates)

    def has_date(self) -> bool:
        """Tell whether it has a date or a day, and not only a number."""
        return has_date(self.words.text) or any(
            names_time((token, frozenset()), self.words.language) for token in self.tokens
        )

    def is_dated(self) -> bool:
        """Tell whether it has a number or a date, and not only a word like "summer"."""
        return bool(re.search(r"\d", self.words.text)) or has_date(self.words.text)

    def is_specific(self) -> bool:
        """Tell whether it has a number, a date, a name or a path."""
        text = self.words.text
        if _SPECIFIC.search(text) or self.is_timed() or self.plain != text:
            return True
        if self.words.unspaced:
            return bool(_LATIN.search(text))
        return self.words.language != "german" and bool(_NAME.search(text, 1))


@cache
def function(language: str) -> frozenset[str]:
    words = lexicon(language)
    return common_words(language) | words.stop_words | words.copulas | words.definite


@cache
def _numbers() -> frozenset[str]:
    return words_of("numbers") - {"one", "a", "an", "ein", "eine", "un", "una", "une"}


def _without_dates(text: str) -> str:
    """Return a text without its dates: the name of a month may be a word of doubt."""
    dates = find_stated_dates(text)
    for mention in reversed(dates):
        text = f"{text[: mention.start]}0{text[mention.end :]}"
    return text
