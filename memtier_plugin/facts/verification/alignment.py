"""A claim beside the passage it is held against, word by word.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal, NamedTuple

import regex

from memtier_plugin.text import claim_lexicon, dates, grammar
from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.parsing import ParsedSentence, Word, parse_sentence


class Verdict(NamedTuple):
    """Whether a claim may be active, may only be proposed, or is wrong, and why."""

    kind: Literal["active", "proposed", "rejected"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """What a claim is held against: a sentence, who said it and when, and what stands around it.

    ``quote`` is the span of the quote in ``sentence``. ``speaker_names`` and ``addressee_names``
    are the words by which the one who said it and the one it was said to are known; ``known_names``
    are the words of the talk that name somebody or something.
    """

    sentence: str
    quote: tuple[int, int]
    said_on: date
    before: str = ""
    after: str = ""
    language: str | None = None
    speaker_names: frozenset[str] = frozenset()
    addressee_names: frozenset[str] = frozenset()
    known_names: Collection[str] = field(default_factory=frozenset)


_SAID_ON: Final = regex.compile(r"(?i)\((?:said|asked|as) +(?:on|of)\s*\)|\bby the way\b")


@dataclass(slots=True)
class Alignment:
    """A claim beside its passage, word by word."""

    claim: ParsedSentence
    source: ParsedSentence
    passage: Passage
    language: str
    claim_language: str
    pairs: list[tuple[Word, int]] = field(default_factory=list)  # with places in the source
    missing: list[Word] = field(default_factory=list)
    clause_span: range = range(0)  # places of the clauses that hold what was found
    antecedent: tuple[Word, ...] = ()  # the sentence before, where a pronoun points there

    @property
    def coordinators(self) -> Collection[str]:
        """Return what joins two statements in the language of the source."""
        return grammar.COORDINATORS.get(self.language, ())

    def clause_words(self) -> Sequence[Word]:
        """Return the words of the clauses that the claim was found in."""
        return self.source.words[self.clause_span.start : self.clause_span.stop]

    def role(self, word: Word) -> str:
        """Return whether a word of the claim means who spoke, or whom they spoke to."""
        if word.text in self.passage.speaker_names:
            return "me"
        if word.text in self.passage.addressee_names:
            return "you"
        bare = word.text.removesuffix("s").removesuffix("'")
        if self.claim_language != "english" and bare in self.passage.speaker_names:
            return "me"
        return ""

    def matches(self, one: Word, other: Word) -> bool:
        """Tell whether a word of the claim is this one of the source."""
        if one.text == other.text:
            return True
        if one.key == other.key:
            return one.key[:1] in "=#" or _alike(
                one.text, other.text, self.claim_language, self.language
            )
        if one.kind == other.kind == "turn" or other.text == "going":
            group = claim_lexicon.NONFACTUAL_CLASSES.get(one.text)
            return group is not None and group == claim_lexicon.NONFACTUAL_CLASSES.get(other.text)
        return (
            self.claim_language == self.language
            and other.kind == "word"
            and self._inflected(one, other)
        )

    def _inflected(self, one: Word, other: Word) -> bool:
        wording = grammar.CLOSED_CLASSES[self.language]
        if wording.verb_forms.get(other.text) == one.text:
            return True
        return any(
            other.text.endswith(first)
            and one.text.endswith(third)
            and len(root := other.text[: len(other.text) - len(first)]) >= 2
            and root == one.text[: len(one.text) - len(third)]
            for first, third in wording.verb_endings
        )


# How verbs end in the past and in the future, where a stemmer takes these for the present.
_TIMES: Final = {
    "german": ("te[nst]?|test|tet", ""), "dutch": ("[dt]en?", ""),
    "spanish": ("ía[ns]?|aba[ns]?|é|ó|ieron|aron|aste|iste|[ai]do", "ré|rá[ns]?"),
    "french": ("ais|ait|aient|ée?s?|u|i", "rai|ras?|ront"),
    "italian": ("[aei]v[oai]|[aiu]to|ò|ai", "rò|rà"),
    "portuguese": ("ava[ms]?|ia[ms]?|ei|ou|eu|iu|[ai]do", "rei|rá"),
    "russian": ("л[аио]?(?:с[ья])?", ""),
}  # fmt: skip
_ENDED: Final = {
    tongue: tuple(regex.compile(f"(?:{ending})$") for ending in endings if ending)
    for tongue, endings in _TIMES.items()
}


def _alike(one: str, other: str, own: str, tongue: str) -> bool:
    """Tell whether two words of one stem are of one time, as far as their endings tell."""
    if own != tongue:
        return False
    return all(bool(e.search(one)) == bool(e.search(other)) for e in _ENDED.get(tongue, ()))


def align(text: str, passage: Passage, tongue: str) -> Alignment:
    """Read a claim and its passage, and find the words of the one in the other."""
    own = detect_language(text) or (tongue if tongue != "english" and not text.isascii() else None)
    own = own or _nearer(text, tongue)
    claim, sentence = align_hyphens(
        blank_dates(text, passage.said_on), blank_dates(passage.sentence, passage.said_on)
    )
    fact, source = parse_sentence(claim, own), parse_sentence(sentence, tongue)
    case = Alignment(fact, source, passage, tongue, own)
    wanted = [word for word in fact.words if is_content(word) and not case.role(word)]
    candidates = {
        place: [
            n
            for n, w in enumerate(source.words)
            if w.kind not in ("light", "no") or w.text == "going"
        ]
        for place in (0,)
    }[0]
    found = [[n for n in candidates if case.matches(word, source.words[n])] for word in wanted]
    case.clause_span = _run(found, source.words, passage.quote)
    last = -1
    for word, places in zip(wanted, found, strict=True):
        inside = [place for place in places if place in case.clause_span]
        if not inside:
            case.missing.append(word)
            continue
        alike = [n for n in inside if source.words[n].denied == word.denied] or inside
        last = next((n for n in alike if n > last), alike[0])
        case.pairs.append((word, last))
    return case


def _nearer(text: str, tongue: str) -> str:
    """Return the source's language, or English, by the small words of a short text."""
    words = regex.findall(r"\w+", text.casefold())
    ours = sum(word in grammar.CLOSED_CLASSES[tongue].common_words for word in words)
    return (
        "english"
        if sum(w in grammar.CLOSED_CLASSES["english"].common_words for w in words) > ours
        else tongue
    )


def is_content(word: Word) -> bool:
    return word.kind in ("word", "number", "turn")


def _run(found: Sequence[Sequence[int]], words: Sequence[Word], quote: tuple[int, int]) -> range:
    """Return the places of the fewest neighbouring clauses that hold all that was found."""
    starts = [n for n, word in enumerate(words) if not n or word.piece != words[n - 1].piece]
    starts.append(len(words))
    best: tuple[tuple[int, int, int], range] | None = None
    for i in range(len(starts) - 1):
        for j in range(i + 1, len(starts)):
            run = range(starts[i], starts[j])
            held = sum(any(n in run for n in places) for places in found)
            inside = any(words[n].at < quote[1] and quote[0] < words[n].end for n in run)
            rank = (-held, not inside, len(run))
            if best is None or rank < best[0]:
                best = rank, run
    return best[1] if best else range(0)


def blank_dates(text: str, said: date | None) -> str:
    """Return a text with its dates blanked, as they are compared by what they mean."""
    found = dates.find_stated_dates(text)
    if said is not None:
        found += dates.find_relative_dates(text, said)
    for one in found:
        text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    return str(_SAID_ON.sub(lambda match: " " * len(match[0]), text))


def align_hyphens(one: str, other: str) -> tuple[str, str]:
    """Write in both texts with a hyphen what one of them writes so."""
    for compound in {*regex.findall(r"\p{L}+(?:-\p{L}+)+", f"{one} {other}")}:
        if not compound.casefold().startswith("non-"):
            spaced = regex.compile(rf"(?i)\b{compound.replace('-', ' ')}\b")
            one, other = spaced.sub(compound, one), spaced.sub(compound, other)
    return one, other
