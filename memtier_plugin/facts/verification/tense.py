"""Check the tense of a claim against that of its source: what was is not what is.  English only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memtier_plugin.facts.verification.alignment import Alignment, Verdict
from memtier_plugin.text.claim_lexicon import KINSHIP
from memtier_plugin.text.grammar import irregular_verbs
from memtier_plugin.text.lexicon import word_set
from memtier_plugin.text.parsing import Word

_PASSIVE_AUXILIARIES: Final = word_set("am is are was were be been being got gets get")
_PAST_AUXILIARIES: Final = ("was", "were", "had", "did")
_PRESENT_AUXILIARIES: Final = ("am", "is", "are", "do", "does")
_MODALS: Final = ("to", "will", "can", "would", "should", "must")
_PRESENT_KEYS: Final = ("=live", "=work", "=like")


def is_verb_form(word: str) -> bool:
    """Check whether an English word looks like a verb after "has" or "is"."""
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
    """Check whether a verb is passive: "was invited", not "was inviting"."""
    word = words[index]
    if not is_verb_form(word.text) or word.text.endswith("ing"):
        return False
    before = [w.text for w in words[max(0, index - 2) : index] if w.clause == word.clause]
    return any(text in _PASSIVE_AUXILIARIES for text in before)


def _tense(words: Sequence[Word], index: int) -> str:
    """Return the tense of the verb that a word is, or that stands before it in its clause."""
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
