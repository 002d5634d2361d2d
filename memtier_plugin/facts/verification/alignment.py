"""Align the words of a claim with those of the passage that it is checked against.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.claim_lexicon import NONFACTUAL_CLASSES, REPORTING_WORDS
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.dates.stated import find_stated_dates
from memtier_plugin.text.grammar import common_words, verb_endings, verb_forms
from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.lexicon import Words, lexicon
from memtier_plugin.text.parsing import ParsedSentence, Word, parse_sentence


class Verdict(NamedTuple):
    """Verdict on a claim: may be active, may only be proposed, or is rejected; with the reason."""

    kind: Literal["active", "proposed", "rejected"]
    reason: str = ""


# Reasons for which a claim waits that may say the same in other words.
SAYS_MORE: Final = "says more than its source"
UNKNOWN_LANGUAGE: Final = "not word by word, in a language whose denials are not known"


@dataclass(frozen=True, slots=True)
class Passage:
    """The sentence of a quote, and the context that is needed to read it.

    Attributes:
        quote: the span of the quote in ``sentence``.
        said_on: the day of the utterance.
        before, after: the sentence before, and the beginning of what follows.
        language: None where it is not known.
        speaker_names, addressee_names: words that mean who spoke, and who was spoken to.
        known_names: words of the conversation that name somebody or something.
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
_WORDS: Final = regex.compile(r"[\p{L}\p{M}\p{N}]+")
# Endings of verbs in the past and in the future, which a stemmer conflates with the present.
_TENSE_ENDINGS: Final = {
    language: tuple(regex.compile(f"(?:{ending})$") for ending in endings)
    for language, endings in {
        "german": ("te[nst]?|test|tet",),
        "dutch": ("[dt]en?",),
        "spanish": ("ía[ns]?|aba[ns]?|é|ó|ieron|aron|aste|iste|[ai]do", "ré|rá[ns]?"),
        "french": ("ais|ait|aient|ée?s?|u|i", "rai|ras?|ront"),
        "italian": ("[aei]v[oai]|[aiu]to|ò|ai", "rò|rà"),
        "portuguese": ("ava[ms]?|ia[ms]?|ei|ou|eu|iu|[ai]do", "rei|rá"),
        "russian": ("л[аио]?(?:с[ья])?",),
    }.items()
}


@dataclass(slots=True)
class Alignment:
    """A claim next to its passage, word by word.

    Attributes:
        pairs: words of the claim, each with the index of its match in the source.
        missing: words of the claim without a match.
        clause_span: indexes of the source's clauses that contain the matches.
        antecedent: the words of the sentence before, where a pronoun refers to it.
    """

    claim: ParsedSentence
    source: ParsedSentence
    passage: Passage
    language: str
    claim_language: str
    pairs: list[tuple[Word, int]] = field(default_factory=list)
    missing: list[Word] = field(default_factory=list)
    clause_span: range = range(0)
    antecedent: tuple[Word, ...] = ()

    @property
    def coordinators(self) -> Words:
        """The words that join two statements in the language of the source."""
        return lexicon(self.language).conjunctions

    @property
    def matched(self) -> list[int]:
        """The indexes of the matched words of the source, in the order of the claim."""
        return [index for _, index in self.pairs]

    def clause_words(self) -> Sequence[Word]:
        """Return the words of the clauses that contain the matches."""
        return self.source.words[self.clause_span.start : self.clause_span.stop]

    def role(self, word: Word) -> str:
        """Return "me" or "you" for a word of the claim that means the speaker or the addressee."""
        if word.text in self.passage.speaker_names:
            return "me"
        if word.text in self.passage.addressee_names:
            return "you"
        bare = word.text.removesuffix("s").removesuffix("'")
        if self.claim_language != "english" and bare in self.passage.speaker_names:
            return "me"
        return ""

    def matches(self, word: Word, other: Word) -> bool:
        """Check whether a word of the claim states what a word of the source does."""
        if word.text == other.text:
            return True
        if word.key == other.key:
            return word.key[:1] in "=#" or self._same_tense(word.text, other.text)
        if word.kind == other.kind == "turn" or other.text == "going":
            group = NONFACTUAL_CLASSES.get(word.text)
            return group is not None and group == NONFACTUAL_CLASSES.get(other.text)
        same_language = self.claim_language == self.language
        return same_language and other.kind == "word" and self._is_third_person(word, other)

    def _same_tense(self, word: str, other: str) -> bool:
        """Check whether two words of one stem have the same tense, as far as endings tell."""
        if self.claim_language != self.language:
            return False
        endings = _TENSE_ENDINGS.get(self.language, ())
        return all(bool(end.search(word)) == bool(end.search(other)) for end in endings)

    def _is_third_person(self, word: Word, other: Word) -> bool:
        """Check whether a word is the third person of a verb in the first."""
        if verb_forms(self.language).get(other.text) == word.text:
            return True
        return any(
            other.text.endswith(first)
            and word.text.endswith(third)
            and len(root := other.text[: len(other.text) - len(first)]) >= 2
            and root == word.text[: len(word.text) - len(third)]
            for first, third in verb_endings(self.language)
        )


def is_content(word: Word) -> bool:
    """Check whether a word carries meaning of its own."""
    return word.kind in ("word", "number", "turn")


def align(text: str, passage: Passage, language: str) -> Alignment:
    """Parse a claim and its passage, and match the words of the one with the other's."""
    claim_language = detect_language(text) or _nearer_language(text, language)
    claim, sentence = align_hyphens(
        blank_dates(text, passage.said_on), blank_dates(passage.sentence, passage.said_on)
    )
    alignment = Alignment(
        parse_sentence(claim, claim_language),
        parse_sentence(sentence, language),
        passage,
        language,
        claim_language,
    )
    source = alignment.source.words
    content = [w for w in alignment.claim.words if is_content(w) and not alignment.role(w)]
    candidates = [
        n for n, w in enumerate(source) if w.kind not in ("light", "no") or w.text == "going"
    ]
    matches = [[n for n in candidates if alignment.matches(w, source[n])] for w in content]
    alignment.clause_span = _tightest_clauses(matches, source, passage.quote)
    last = -1
    for word, indexes in zip(content, matches, strict=True):
        inside = [index for index in indexes if index in alignment.clause_span]
        if not inside:
            alignment.missing.append(word)
            continue
        same_polarity = [n for n in inside if source[n].denied == word.denied] or inside
        last = next((n for n in same_polarity if n > last), same_polarity[0])
        alignment.pairs.append((word, last))
    return alignment


def _nearer_language(text: str, language: str) -> str:
    """Return the source's language, or English, by the common words of a short text."""
    if language != "english" and not text.isascii():
        return language
    words = regex.findall(r"\w+", text.casefold())
    ours = sum(word in common_words(language) for word in words)
    english = sum(word in common_words("english") for word in words)
    return "english" if english > ours else language


def _tightest_clauses(
    matches: Sequence[Sequence[int]], words: Sequence[Word], quote: tuple[int, int]
) -> range:
    """Return the indexes of the fewest neighbouring clauses that contain the most matches."""
    starts = [n for n, word in enumerate(words) if not n or word.clause != words[n - 1].clause]
    starts.append(len(words))
    best: tuple[tuple[int, int, int], range] | None = None
    for i in range(len(starts) - 1):
        for j in range(i + 1, len(starts)):
            span = range(starts[i], starts[j])
            held = sum(any(n in span for n in indexes) for indexes in matches)
            quoted = any(words[n].start < quote[1] and quote[0] < words[n].end for n in span)
            rank = (-held, not quoted, len(span))
            if best is None or rank < best[0]:
                best = rank, span
    return best[1] if best else range(0)


def blank_dates(text: str, said_on: date) -> str:
    """Overwrite the dates of a text with spaces, as they are compared by their meaning."""
    characters = [*text]
    for mention in [*find_stated_dates(text), *find_relative_dates(text, said_on)]:
        characters[mention.start : mention.end] = " " * (mention.end - mention.start)
    return str(_SAID_ON.sub(lambda match: " " * len(match[0]), "".join(characters)))


def align_hyphens(text: str, other: str) -> tuple[str, str]:
    """Hyphenate in both texts each compound that one of them hyphenates."""
    for compound in {*regex.findall(r"\p{L}+(?:-\p{L}+)+", f"{text} {other}")}:
        if not compound.casefold().startswith("non-"):
            spaced = regex.compile(rf"(?i)\b{compound.replace('-', ' ')}\b")
            text, other = spaced.sub(compound, text), spaced.sub(compound, other)
    return text, other


def check_verbatim(text: str, value: str, passage: Passage) -> Verdict:
    """Check whether a claim in a language without a lexicon repeats its source word by word."""
    claim = _WORDS.findall(text.casefold())
    source = _WORDS.findall(passage.sentence.casefold())
    if {w for w in claim if w.isdigit()} - {w for w in source if w.isdigit()}:
        return Verdict("rejected", "number differs")
    size = len(source)
    at = next((n for n in range(len(claim) - size + 1) if claim[n : n + size] == source), None)
    if at is not None and size and value.casefold().strip() in passage.sentence.casefold():
        added = {*claim[:at], *claim[at + size :]} - passage.speaker_names - {"the", "a", "that"}
        if not added - REPORTING_WORDS:
            return Verdict("active")
    return Verdict("proposed", UNKNOWN_LANGUAGE)
