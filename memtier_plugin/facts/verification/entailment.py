"""Check whether a claim follows from its source, and says no more.  Pure.

A claim is entailed if each of its content words occurs in its source clauses, in order and with the
same negation; if nothing essential is omitted between them, and no nonfactual word; if it has the
same subject and time; and if its numbers, dates and names are the source's. If words do not decide
it, it is not entailed, but may be proposed for review.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.facts.verification.alignment import (
    SAYS_MORE,
    Alignment,
    Passage,
    Verdict,
    align,
    align_hyphens,
    blank_dates,
    check_subject,
    check_tense,
    check_verbatim,
    is_content,
    subject_of,
)
from memtier_plugin.facts.verification.passages import DATE_DIFFERS, check_dates
from memtier_plugin.text.dates.reading import find_stated_dates
from memtier_plugin.text.lexicon import (
    ANTONYMS,
    CLAUSE_FINAL,
    CONDITIONALS,
    FICTION_FRAMES,
    KINSHIP,
    LOCATIVES,
    NONFACTUAL_CLASSES,
    OMISSIBLE,
    PHRASE_STARTERS,
    REPORTING_WORDS,
)
from memtier_plugin.text.parsing import Word, parse_sentence

_ACTIVE: Final = Verdict("active")
_MORE: Final = Verdict("proposed", SAYS_MORE)
_LESS: Final = Verdict("proposed", "leaves out a part of its source")
_DOUBT: Final = Verdict("proposed", "said under a condition or with a doubt")
_DENIED: Final = Verdict("rejected", "negation differs")
_NUMBER: Final = Verdict("rejected", "number differs")
_RESEMBLES: Final = 0.6  # of the words of a claim whose quote was not found

_TAKEN_BACK: Final = regex.compile(
    r"(?i)^[\s\W]*(?:just kidding|j/?k\b|kidding|only joking|i['’]m joking|scratch that|correction"
    r"|no,? wait|wait,? no|actually,? no|sorry,? (?:i meant|no)|i mean(?:t)?\b|not really|not!"
    r"|psych|that['’]s (?:wrong|not true|a lie)|never ?mind|forget (?:that|it)|strike that|haha no"
    r"|or so i|nur spaß|quatsch|scherz|stimmt nicht|es broma|mentira|je plaisante|je rigole"
    r"|non,? en fait|шучу|шутка|нет,? вру|开玩笑|不对|说错了|冗談|嘘)"
)
_IRONY: Final = regex.compile(r"(?i)\b(?:yeah|sure|oh|ja),? right\b|/s\s*$|🙄|\bas if!")
_QUOTED: Final = regex.compile(
    r"\"[^\"]+\"|“[^”]+”|„[^“”]+[“”]|«[^»]+»|「[^」]+」|『[^』]+』|(?<!\w)['‘][^'’]+['’](?!\w)"
)
_ARTICLES: Final = ("a", "an", "ein", "eine", "einen", "un", "una", "une", "um", "uma", "een")


def check_entailment(text: str, value: str, passage: Passage) -> Verdict:
    """Decide whether a claim's text and value follow from the passage."""
    rest = passage.sentence[passage.quote[1] :].lstrip(" ,-–—.!")
    if any(map(_TAKEN_BACK.match, (passage.after, rest))) or _IRONY.search(passage.sentence):
        return Verdict("proposed", "taken back")
    if passage.language is None:
        return check_verbatim(text, value, passage)
    verdict = check_dates(text, value, passage)
    if verdict is not None:
        return verdict
    alignment = align(text, passage, passage.language)
    for check in _CHECKS:
        verdict = check(alignment)
        if verdict is not None:
            return verdict
    return _check_value(value, text, alignment) or _ACTIVE


def check_resemblance(text: str, passage: Passage) -> Verdict:
    """Decide whether a claim without its quote may be proposed because of a similar sentence.

    That is no evidence, but a reason to ask a person; numbers, names and negations must agree.
    """
    alignment = align(text, passage, passage.language or "english")
    missing = alignment.missing
    words = len(alignment.pairs) + sum(word.text not in REPORTING_WORDS for word in missing)
    if len(alignment.pairs) < max(2, _RESEMBLES * words):
        return Verdict("rejected", "quote not found")
    differs = check_dates(text, "", passage) == DATE_DIFFERS
    if differs or any(word.kind == "number" for word in missing):
        return _NUMBER
    if any(word.capital for word in missing):
        return Verdict("rejected", "name differs")
    if _check_negation(alignment) or any(_is_opposed(word, alignment) for word in missing):
        return _DENIED
    return Verdict("proposed", "evidence by keywords")


def _check_missing(alignment: Alignment) -> Verdict | None:
    """Check the words of the claim that the source does not have."""
    verdict: Verdict | None = None
    for word in alignment.missing:
        if _is_harmless(word, alignment):
            continue
        if word.kind == "number":
            return _NUMBER
        if _is_opposed(word, alignment):
            return _DENIED
        if _is_unit(word, alignment):
            return _NUMBER
        if _resolves_pronoun(word, alignment):
            continue
        if word.capital:
            is_known_name = word.text in alignment.passage.known_names
            if not is_known_name and any(w.capital and not w.first for w in _unmatched(alignment)):
                verdict = Verdict("rejected", "name differs")
            verdict = verdict or Verdict("proposed", "a name is not in the passage")
        else:
            verdict = verdict or _MORE
    return verdict if verdict or alignment.pairs else _MORE


def _is_harmless(word: Word, alignment: Alignment) -> bool:
    """Return whether a claim may add a word: one that reports, or repeats another form."""
    if word.kind == "number":
        year = len(word.key) == 5  # in a date that the sentence has in digits
        digits = regex.findall(r"\d+", alignment.passage.sentence)
        return (word.key == "#1" and _is_article(word, alignment)) or (
            year and word.key[1:] in digits
        )
    if word.text in REPORTING_WORDS and not word.capital:
        return True
    return word.text in ("years", "year", "old") and _is_age(word, alignment)


def _is_article(word: Word, alignment: Alignment) -> bool:
    """Return whether "one cat" is "a cat" of the source."""
    after = next((index for other, index in alignment.pairs if other.start > word.start), None)
    if after is None:
        return False
    return any(w.text in _ARTICLES for w in alignment.source.words[max(0, after - 2) : after])


def _is_age(word: Word, alignment: Alignment) -> bool:
    """Return whether a word belongs to an age: 34 is 34 years old."""
    words = alignment.claim.words
    index = words.index(word)
    return "old" in [other.text for other in words[index : index + 2]] and any(
        other.kind == "number" for other in words[max(0, index - 2) : index]
    )


def _is_opposed(word: Word, alignment: Alignment) -> bool:
    opposite = ANTONYMS.get(word.key)
    return any(opposite == other.key for other in alignment.clause_words())


def _is_unit(word: Word, alignment: Alignment) -> bool:
    """Return whether a word is the unit of the number before it."""
    words = alignment.claim.words
    index = words.index(word)
    follows = bool(index) and words[index - 1].kind == "number"
    return follows and not word.capital and word.text not in ("year", "years")


def _unmatched(alignment: Alignment) -> Iterator[Word]:
    """Yield the words of the source's clauses that the claim does not have."""
    matched = {*alignment.matched}
    for index in alignment.clause_span:
        if index not in matched:
            yield alignment.source.words[index]


def _resolves_pronoun(word: Word, alignment: Alignment) -> bool:
    """Return whether a pronoun of the passage refers to a name in the previous sentence.

    It does only if that sentence names nobody else.
    """
    words, passage = alignment.clause_words(), alignment.passage
    if not any(w.kind == "third" for w in words):
        return False
    if any(w.kind == "me" for w in words) or not passage.before:
        return False
    text = blank_dates(passage.before, passage.said_on)
    before = parse_sentence(text, alignment.language).words
    people = {w.text for w in before if is_content(w) and (w.capital or w.text in KINSHIP)}
    claimed = {w.text for w in alignment.missing} | {w.text for w, _ in alignment.pairs}
    inside = {w.text for w in words if (w.capital and not w.first) or w.text in KINSHIP}
    named = any(alignment.matches(word, other) for other in before if is_content(other))
    if named and people <= claimed and inside <= claimed:
        alignment.antecedent = before
        return True
    return False


def _check_question(alignment: Alignment) -> Verdict | None:
    questions = alignment.source.questions
    if any(word.clause in questions for word in alignment.clause_words()):
        return Verdict("proposed", "asked, not said")
    return None


def _check_negation(alignment: Alignment) -> Verdict | None:
    source = alignment.source.words
    if any(word.denied != source[index].denied for word, index in alignment.pairs):
        return _DENIED
    return None


def _check_nonfactual(alignment: Alignment) -> Verdict | None:
    """Check that the source does not wish, doubt, plan, quote or end what the claim states."""
    source = alignment.source.words
    clauses = {word.clause for word in alignment.clause_words()}
    neighbours = {n for clause in clauses for n in (clause - 1, clause + 1)} - clauses
    claimed = {NONFACTUAL_CLASSES.get(w.text, w.key) for w in alignment.claim.words}
    last = max(alignment.matched, default=len(source))
    after = range(last, alignment.clause_span.stop)
    conjunctions = (n for n in after if source[n].text in alignment.coordinators)
    conjunction = next(conjunctions, len(source))
    for index, word in enumerate(source):
        if not _is_nonfactual(source, index):
            continue
        if NONFACTUAL_CLASSES.get(word.text, word.key) in claimed:
            continue
        # What follows "and" is another statement: "I grew up in Oslo and miss it".
        other = index > conjunction and word.text not in CLAUSE_FINAL
        if (
            word.text in CONDITIONALS
            or (word.clause in neighbours and _is_short_clause(source, word.clause))
            or (word.clause in clauses and not other)
        ):
            return _DOUBT
    return _check_quotation(alignment) or _check_frame(alignment)


def _is_nonfactual(words: Sequence[Word], index: int) -> bool:
    """Return whether a word makes a statement nonfactual: "going to" only with its own verb."""
    if words[index].text != "going":
        return words[index].kind == "turn" or words[index].text in CONDITIONALS
    return any(word.text in ("am", "is", "are") for word in words[max(0, index - 3) : index])


def _is_short_clause(words: Sequence[Word], clause: int) -> bool:
    """Return whether a clause only comments on its neighbour: "I guess"."""
    inside = [word for word in words if word.clause == clause]
    return sum(map(is_content, inside)) <= 2 and sum(word.text != "and" for word in inside) <= 4


def _check_quotation(alignment: Alignment) -> Verdict | None:
    """Check that the source does not quote somebody else who says what the claim states."""
    for match in _QUOTED.finditer(alignment.passage.sentence):
        inside = [w for w in alignment.clause_words() if match.start() <= w.start < match.end()]
        if any(word.kind in ("me", "my") for word in inside):
            return Verdict("proposed", "quotes somebody else")
    return None


def _check_frame(alignment: Alignment) -> Verdict | None:
    """Check that the claim keeps the frame in which its source is true: in my novel I ..."""
    source = alignment.source.words
    first = min(alignment.matched)
    clause = source[first].clause
    claimed = {word.key for word in alignment.claim.words}
    speakers = [n for n in range(first) if source[n].kind == "me" and source[n].clause == clause]
    start = alignment.clause_span.start
    for word in source[start : speakers[-1] if speakers else start]:
        if word.clause == clause and _is_essential(word) and word.key not in claimed:
            return _LESS
    before = [word for word in source if word.clause == clause - 1]
    framed = any(w.text in FICTION_FRAMES and w.key not in claimed for w in before)
    return _LESS if framed and before[0].text in LOCATIVES else None


def _check_order(alignment: Alignment) -> Verdict | None:
    if alignment.matched != sorted(alignment.matched):
        return Verdict("proposed", "its words stand in another order")
    return None


def _check_omissions(alignment: Alignment) -> Verdict | None:
    """Check that nothing essential is omitted before, between or after the matched words."""
    indexes = sorted({*alignment.matched})
    if _omits_before(alignment, indexes[0]):
        return _LESS
    if any(_omits_between(alignment, left, right) for left, right in pairwise(indexes)):
        return _LESS
    return _LESS if _omits_after(alignment, indexes[-1]) else None


def _omits_before(alignment: Alignment, first: int) -> bool:
    source = alignment.source.words
    anchor = alignment.clause_span.start
    for index in range(anchor, first):
        word = source[index]
        if word.kind in ("me", "my") or word.text in alignment.coordinators:
            anchor = index + 1
    subject = subject_of(alignment)
    if (subject and alignment.role(subject)) or not source[first].capital:
        return any(
            _is_essential(word) or (word.kind == "third" and not alignment.antecedent)
            for word in source[anchor:first]
        )
    # A name: its description is close before it, and "my sister Eve" is Eve.
    start = max(anchor, first - 3)
    end = first - 1 if first and source[first - 1].text in KINSHIP else first
    return any(map(_is_essential, source[start:end]))


def _omits_between(alignment: Alignment, left: int, right: int) -> bool:
    source = alignment.source.words
    named = source[left].capital or source[left].text in KINSHIP
    for index in range(left + 1, right):
        word = source[index]
        joined = source[index - 1].text in alignment.coordinators
        if word.kind == "me" and named and joined:
            continue  # Kenji and I
        if _is_essential(word):
            return True
        if word.kind in ("me", "third") and word.clause != source[left].clause:
            return True
    return False


def _omits_after(alignment: Alignment, last: int) -> bool:
    """Return whether the source continues the claim's last word: coffee cake."""
    source, sentence = alignment.source.words, alignment.passage.sentence
    word = source[last]
    if last + 1 >= len(source) or source[last + 1].clause != word.clause:
        return False
    after = source[last + 1]
    if after.text in PHRASE_STARTERS or not _is_essential(after):
        return False
    between = sentence[word.end : after.start]
    possessive = sentence[word.start : word.end].endswith(("'s", "’s"))
    return possessive or (not between.strip() and len(between) <= 1)


def _is_essential(word: Word) -> bool:
    """Return whether a word may not be omitted between others."""
    if not is_content(word) or word.text in OMISSIBLE:
        return False
    return not (word.text.endswith("ly") and len(word.text) > 4 and not word.capital)


def _check_value(value: str, text: str, alignment: Alignment) -> Verdict | None:
    """Check that a value occurs in the claim's own text, and in the quote."""
    passage = alignment.passage
    if value.strip(" .") in {str(date.year) for date in find_stated_dates(text)}:
        return None
    plain, _ = align_hyphens(blank_dates(value, passage.said_on), passage.sentence)
    parsed = parse_sentence(plain, alignment.claim_language).words
    content = [word for word in parsed if is_content(word)]

    def is_in(word: Word, words: Sequence[Word]) -> bool:
        return any(alignment.matches(word, w) or w.key == word.key for w in words)

    if any(not is_in(w, alignment.claim.words) and not alignment.role(w) for w in content):
        return Verdict("proposed", "its value is not in its text")
    if not content or find_stated_dates(value):
        return None
    start, end = passage.quote
    for word, index in alignment.pairs:
        match = alignment.source.words[index]
        quoted = match.start < end and start < match.end
        if quoted and any(alignment.matches(w, word) or w.key == word.key for w in content):
            return None
    return Verdict("proposed", "its value is not in its quote")


_CHECKS: Final = (
    _check_missing,
    _check_question,
    _check_negation,
    _check_nonfactual,
    _check_order,
    check_subject,
    _check_omissions,
    check_tense,
)
