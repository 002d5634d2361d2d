"""Check whom a claim is about: the speaker, the addressee, or somebody else.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_plugin.facts.verification.alignment import SAYS_MORE, Alignment, Verdict, is_content
from memtier_plugin.text.claim_lexicon import KINSHIP, PRO_DROP, REPORTING_WORDS, REQUEST_WORDS
from memtier_plugin.text.parsing import Word

_UNCLEAR: Final = Verdict("proposed", "not clear whom it is about")
_NO_SUBJECT: Final = Verdict("proposed", SAYS_MORE)
_KINDS: Final = {"me": ("me", "my"), "you": ("you",)}  # words of the source, by role
_NOMINATIVE: Final = ("i", "we")


def subject_of(alignment: Alignment) -> Word | None:
    """Return the first word of the claim that carries meaning, or means somebody who speaks."""
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
    """Check whether a claim says that its subject mentions what follows."""
    words = [word for word in alignment.claim.words if word.kind != "light"]
    after = words[words.index(subject) + 1 :] if subject in words else []
    return bool(after) and after[0].text in REPORTING_WORDS


def _adds_person(alignment: Alignment, role: str) -> bool:
    """Check whether a claim mentions the speaker or the addressee, and its source does not."""
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
    """Return the words before the predicate: the first match that is no name.

    "Kenji and I climbed" has its subject before "climbed", not before "Kenji".
    """
    predicates = [
        index for word, index in alignment.pairs if not word.capital and word.text not in KINSHIP
    ]
    span = alignment.clause_span
    start = min(predicates or alignment.matched, default=span.stop)
    return alignment.source.words[span.start : start]


def _drops_subject(alignment: Alignment) -> bool:
    """Check whether the verb alone says who: "vivo en Oslo", claimed in the third person."""
    if alignment.language not in PRO_DROP or alignment.claim_language != alignment.language:
        return False
    word, index = min(alignment.pairs, key=lambda pair: pair[1])
    return word.text != alignment.source.words[index].text


def _may_be_subject(word: Word) -> bool:
    """Check whether a word before the verb may be its subject."""
    return is_content(word) or word.kind in ("third", "you", "my")


def _is_possessive(word: Word, alignment: Alignment) -> bool:
    """Check whether the claim is about a possession of somebody: Ann's dog."""
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
