"""Words that a claim may add to its source or omit, and words that reverse it, in all languages."""

from __future__ import annotations

from typing import Final

from memtier_plugin.text.lexicon import LANGUAGES, lexicon, lexicons, word_set, words_of

_ENGLISH: Final = lexicon("english")

CONDITIONALS: Final = words_of("conditionals")
POSSESSION_VERBS: Final = words_of("possession_verbs")
COPULAS: Final = words_of("copulas")
KINSHIP: Final = words_of("kinship")  # and animals: subjects of a statement
OMISSIBLE: Final = words_of("omissible")
FICTION_FRAMES: Final = words_of("fiction_frames")
LOCATIVES: Final = words_of("locatives")
CLAUSE_FINAL: Final = words_of("clause_final")
CONCORD_NEGATIONS: Final = words_of("concord_negations")
PHRASE_STARTERS: Final = _ENGLISH.phrase_starters
REPORTING_WORDS: Final = _ENGLISH.reporting_words
REQUEST_WORDS: Final = _ENGLISH.request_words
POLAR: Final = _ENGLISH.polar
PRO_DROP: Final = frozenset(name for name in LANGUAGES if lexicon(name).pro_drop)
ANTONYMS: Final = {
    word: opposite
    for pair in _ENGLISH.antonyms
    for word, opposite in (pair.split(), pair.split()[::-1])
}
# Nonfactual words of one class: where the source has one, a claim may report it by another.
NONFACTUAL_CLASSES: Final = {
    word: name
    for words in lexicons()
    for name, members in words.nonfactual_classes.items()
    for word in members
}
# Denials of languages without a lexicon, which a short text must not hide.
FOREIGN_NEGATIONS: Final = word_set(
    """nie nigdy inte ikke ikkje aldrig aldri ej ei en et emme nem ne nu não tidak bukan hindi wala
    walang hapana si değil yok nikdy nikad nikada mai asnjë nuk ez inga"""
)
