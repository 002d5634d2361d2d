"""Whether a claim is of the time of its source: what was is not what is.  Pure, and English."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_plugin.facts.verification.alignment import Alignment, Verdict
from memtier_plugin.text import claim_lexicon, grammar
from memtier_plugin.text.parsing import Word

_BE: Final = grammar.word_set("am is are was were be been being got gets get")


def is_verb_form(word: str) -> bool:
    """Tell whether an English word looks like a form of a verb after "has" or "is"."""
    return word.endswith(("ing", "ed")) or word in grammar.irregular_verbs()[1]


def check_tense(case: Alignment) -> Verdict | None:
    """Return what is wrong when what was is said to be, or what is to have been."""
    if case.claim_language != "english" or case.language != "english":
        return None
    for word, place in case.pairs:
        if word.capital or word.kind == "number" or word.text in claim_lexicon.KINSHIP:
            continue
        ours = _time(case.claim.words, case.claim.words.index(word))
        theirs = _time(case.source.words, place)
        if ours and theirs and ours != theirs and {ours, theirs} != {"past", "perfect"}:
            return Verdict("proposed", "its tense differs")
        if _passive(case.source.words, place) != _passive(
            case.claim.words, case.claim.words.index(word)
        ):
            return Verdict("proposed", "does and is done to are mixed up")
        if ours or theirs:
            return None  # the verb of the statement has been looked at
    return None


def _passive(words: Sequence[Word], place: int) -> bool:
    """Tell whether a word is what is done to somebody: "was invited", not "was inviting"."""
    word = words[place].text
    if not is_verb_form(word) or word.endswith("ing"):
        return False
    before = [w.text for w in words[max(0, place - 2) : place] if w.piece == words[place].piece]
    return any(text in _BE for text in before)


def _time(words: Sequence[Word], place: int) -> str:
    """Return the time of the verb that a word is, or that stands before it, in its clause."""
    word = words[place]
    before = [w.text for w in words[:place] if w.piece == word.piece][-4:]
    for text in reversed(before):
        if text in ("been",):
            return "perfect" if not word.text.endswith("ing") else "now"
        if text in ("was", "were", "had", "did"):
            return "past"
        if text in ("am", "is", "are", "do", "does"):
            return "now"
        if text in ("has", "have", "ve"):
            return "perfect" if is_verb_form(word.text) and not word.text.endswith("ing") else "now"
        if text in ("to", "will", "can", "would", "should", "must"):
            return ""
    if word.text in grammar.irregular_verbs()[1] or (
        word.text.endswith("ed") and len(word.text) > 4
    ):
        return "past"
    return (
        "now"
        if word.text in grammar.irregular_verbs()[0] or word.key in ("=live", "=work", "=like")
        else ""
    )
