"""Compare a claim with its passage: its words, whom it is about, its tense.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.dates.relative import find_relative_dates
from memtier_plugin.text.languages import detect_language
from memtier_plugin.text.lexicon import (
    KINSHIP,
    NONFACTUAL_CLASSES,
    PRO_DROP,
    REPORTING_WORDS,
    REQUEST_WORDS,
    WordSet,
    common_words,
    irregular_verbs,
    lexicon,
    verb_endings,
    verb_forms,
    word_set,
)
from memtier_plugin.text.parsing import ParsedSentence, Word, parse_sentence

# -- Align the words of a claim with those of its passage.  Pure


class Verdict(NamedTuple):
    """Verdict on a claim: active, proposed at most, or rejected; with the reason."""

    kind: Literal["active", "proposed", "rejected"]
    reason: str = ""


# Reasons for which a paraphrased claim waits for review.
SAYS_MORE: Final = "says more than its source"
UNKNOWN_LANGUAGE: Final = "not word by word, in a language whose denials are not known"


@dataclass(frozen=True, slots=True)
class Passage:
    """The sentence of a quote, and the context needed to read it.

    Attributes:
        quote: the span of the quote in ``sentence``.
        said_on: the day of the utterance.
        before, after: the previous sentence, and the beginning of what follows.
        language: None if unknown.
        speaker_names, addressee_names: words that refer to the speaker, and to the addressee.
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
    """A claim aligned with its passage, word by word.

    Attributes:
        pairs: words of the claim, each with the index of its match in the source.
        missing: words of the claim without a match.
        clause_span: indexes of the source's clauses that contain the matches.
        antecedent: the words of the previous sentence, if a pronoun refers to it.
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
    def coordinators(self) -> WordSet:
        """The words that join two statements in the source's language."""
        return lexicon(self.language).conjunctions

    @property
    def matched(self) -> list[int]:
        """The indexes of the source's matched words, in the claim's order."""
        return [index for _, index in self.pairs]

    def clause_words(self) -> Sequence[Word]:
        """Return the words of the clauses that contain the matches."""
        return self.source.words[self.clause_span.start : self.clause_span.stop]

    def role(self, word: Word) -> str:
        """Return "me" or "you" for a claim's word that refers to the speaker or the addressee."""
        if word.text in self.passage.speaker_names:
            return "me"
        if word.text in self.passage.addressee_names:
            return "you"
        bare = word.text.removesuffix("s").removesuffix("'")
        if self.claim_language != "english" and bare in self.passage.speaker_names:
            return "me"
        return ""

    def matches(self, word: Word, other: Word) -> bool:
        """Return whether a word of the claim means the same as a word of the source."""
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
        """Return whether two words with one stem have the same tense, judging by their endings."""
        if self.claim_language != self.language:
            return False
        endings = _TENSE_ENDINGS.get(self.language, ())
        return all(bool(end.search(word)) == bool(end.search(other)) for end in endings)

    def _is_third_person(self, word: Word, other: Word) -> bool:
        """Return whether a word is the third person of a verb in the first."""
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
    """Return whether a word is a content word."""
    return word.kind in ("word", "number", "turn")


def align(text: str, passage: Passage, language: str) -> Alignment:
    """Parse a claim and its passage, and match the words of one with the other's."""
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
    """Return the indexes of the fewest neighbouring clauses with the most matches."""
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
    """Overwrite the dates of a text with spaces, since they are compared by meaning."""
    characters = [*text]
    for mention in [*find_stated_dates(text), *find_relative_dates(text, said_on)]:
        characters[mention.start : mention.end] = " " * (mention.end - mention.start)
    return str(_SAID_ON.sub(lambda match: " " * len(match[0]), "".join(characters)))


def align_hyphens(text: str, other: str) -> tuple[str, str]:
    """Hyphenate each compound in both texts if either hyphenates it."""
    for compound in {*regex.findall(r"\p{L}+(?:-\p{L}+)+", f"{text} {other}")}:
        if not compound.casefold().startswith("non-"):
            spaced = regex.compile(rf"(?i)\b{compound.replace('-', ' ')}\b")
            text, other = spaced.sub(compound, text), spaced.sub(compound, other)
    return text, other


def check_verbatim(text: str, value: str, passage: Passage) -> Verdict:
    """Check whether a claim in a language without a lexicon repeats its source verbatim."""
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


# -- Check whom a claim is about: the speaker, the addressee, or somebody else.  Pure

_UNCLEAR: Final = Verdict("proposed", "not clear whom it is about")
_NO_SUBJECT: Final = Verdict("proposed", SAYS_MORE)
_KINDS: Final = {"me": ("me", "my"), "you": ("you",)}  # words of the source, by role
_NOMINATIVE: Final = ("i", "we")


def subject_of(alignment: Alignment) -> Word | None:
    """Return the first word of the claim that carries meaning, or refers to a participant."""
    words = alignment.claim.words
    return next((word for word in words if is_content(word) or alignment.role(word)), None)


def check_subject(alignment: Alignment) -> Verdict | None:
    """Check that the claim is about the same person as its source."""
    subject = subject_of(alignment)
    if subject is None:
        return _NO_SUBJECT
    role = alignment.role(subject)
    if role == "you" and _reports(alignment, subject):
        return _UNCLEAR
    if _adds_person(alignment, role):
        return _UNCLEAR
    if not role:
        return None
    owns = _is_possessive(subject, alignment)
    if _owner_is_stated(alignment, role) if owns else _subject_is_stated(alignment, role):
        return None
    if any(map(_may_be_subject, _before_predicate(alignment))):
        return _UNCLEAR
    if any(word.text in REQUEST_WORDS for word in alignment.claim.words):
        return None if alignment.language == "english" else _UNCLEAR
    return None if not owns and role == "me" and _drops_subject(alignment) else _UNCLEAR


def _reports(alignment: Alignment, subject: Word) -> bool:
    """Return whether a claim says that its subject mentions what follows."""
    words = [word for word in alignment.claim.words if word.kind != "light"]
    after = words[words.index(subject) + 1 :] if subject in words else []
    return bool(after) and after[0].text in REPORTING_WORDS


def _adds_person(alignment: Alignment, role: str) -> bool:
    """Return whether a claim mentions the speaker or the addressee and its source does not."""
    named = {alignment.role(word): word.text for word in alignment.claim.words}
    words = [*alignment.clause_words(), *alignment.antecedent]
    return any(
        other in named
        and other != role
        and not any(word.kind in kinds or word.text == named[other] for word in words)
        for other, kinds in _KINDS.items()
    )


def _owner_is_stated(alignment: Alignment, role: str) -> bool:
    if any(word.kind == "my" for word in alignment.antecedent):
        return True
    return any(word.kind in _KINDS[role] for word in alignment.clause_words())


def _subject_is_stated(alignment: Alignment, role: str) -> bool:
    nominative = role == "me" and alignment.language == "english"
    return any(
        word.kind == role and (not nominative or word.text in _NOMINATIVE)
        for word in _before_predicate(alignment) or alignment.clause_words()[:1]
    )


def _before_predicate(alignment: Alignment) -> Sequence[Word]:
    """Return the words before the predicate: the first match that is not a name.

    "Kenji and I climbed" has its subject before "climbed", not before "Kenji".
    """
    predicates = [
        index for word, index in alignment.pairs if not word.capital and word.text not in KINSHIP
    ]
    span = alignment.clause_span
    start = min(predicates or alignment.matched, default=span.stop)
    return alignment.source.words[span.start : start]


def _drops_subject(alignment: Alignment) -> bool:
    """Return whether the verb alone names the person: "vivo en Oslo" for a third person."""
    if alignment.language not in PRO_DROP or alignment.claim_language != alignment.language:
        return False
    word, index = min(alignment.pairs, key=lambda pair: pair[1])
    return word.text != alignment.source.words[index].text


def _may_be_subject(word: Word) -> bool:
    """Return whether a word before the verb may be its subject."""
    return is_content(word) or word.kind in ("third", "you", "my")


def _is_possessive(word: Word, alignment: Alignment) -> bool:
    """Return whether the claim is about somebody's possession: Ann's dog."""
    words = alignment.claim.words
    after = words[words.index(word) + 1 :]
    return (
        word.text.endswith(("'s", "'"))
        or word.owner
        or (
            alignment.claim_language != "english"
            and word.text not in alignment.passage.speaker_names
        )
        or bool(after and after[0].text in ("的", "の"))
    )


# -- Check the tense of a claim against that of its source.
#
# English only

_PASSIVE_AUXILIARIES: Final = word_set("am is are was were be been being got gets get")
_PAST_AUXILIARIES: Final = ("was", "were", "had", "did")
_PRESENT_AUXILIARIES: Final = ("am", "is", "are", "do", "does")
_MODALS: Final = ("to", "will", "can", "would", "should", "must")
_PRESENT_KEYS: Final = ("=live", "=work", "=like")


def is_verb_form(word: str) -> bool:
    """Return whether an English word looks like a verb after "has" or "is"."""
    return word.endswith(("ing", "ed")) or word in irregular_verbs().past


def check_tense(alignment: Alignment) -> Verdict | None:
    """Check the first verb of the claim: its tense, and whether it is active or passive."""
    if alignment.claim_language != "english" or alignment.language != "english":
        return None
    claim, source = alignment.claim.words, alignment.source.words
    for word, index in alignment.pairs:
        if word.capital or word.kind == "number" or word.text in KINSHIP:
            continue
        position = claim.index(word)
        claimed, stated = _tense(claim, position), _tense(source, index)
        if claimed and stated and claimed != stated and {claimed, stated} != {"past", "perfect"}:
            return Verdict("proposed", "its tense differs")
        if _is_passive(source, index) != _is_passive(claim, position):
            return Verdict("proposed", "does and is done to are mixed up")
        if claimed or stated:
            return None  # the verb of the statement has been checked
    return None


def _is_passive(words: Sequence[Word], index: int) -> bool:
    """Return whether a verb is passive: "was invited", not "was inviting"."""
    word = words[index]
    if not is_verb_form(word.text) or word.text.endswith("ing"):
        return False
    before = [w.text for w in words[max(0, index - 2) : index] if w.clause == word.clause]
    return any(text in _PASSIVE_AUXILIARIES for text in before)


def _tense(words: Sequence[Word], index: int) -> str:
    """Return the tense of a word that is a verb, or of the verb before it in its clause."""
    word = words[index]
    before = [w.text for w in words[:index] if w.clause == word.clause][-4:]
    for text in reversed(before):
        if text == "been":
            return "now" if word.text.endswith("ing") else "perfect"
        if text in _PAST_AUXILIARIES:
            return "past"
        if text in _PRESENT_AUXILIARIES:
            return "now"
        if text in ("has", "have", "ve"):
            participle = is_verb_form(word.text) and not word.text.endswith("ing")
            return "perfect" if participle else "now"
        if text in _MODALS:
            return ""
    verbs = irregular_verbs()
    if word.text in verbs.past or (word.text.endswith("ed") and len(word.text) > 4):
        return "past"
    return "now" if word.text in verbs.lemmas or word.key in _PRESENT_KEYS else ""
