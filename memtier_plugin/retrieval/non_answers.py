"""Leave out of a block what answers nothing, and what repeats another line.  Pure.

An earlier question shares more words with a prompt than the statement that answers it.  As a
weight on all questions that would hurt, as many instructions are put as questions; in a block a
question loses its line only where it repeats the prompt and a statement competes for the line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.duplicates import find_restated
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.replacement import with_evidence_of
from memtier_plugin.text.speech import only_asks
from memtier_plugin.text.tokenizer import distinct_tokens, ngrams, plain_words
from memtier_plugin.text.traits import is_standing_instruction
from memtier_plugin.trust.statements import missing_statement

_JUDGED: Final = 40  # hits that are looked at: more never come into a block
_LEAST_COSINE: Final = 0.25  # below it meaning is no evidence
_REPEATED: Final = 0.6  # of a question's words that the prompt has, for it to repeat the prompt
_SIMILAR: Final = 0.65  # of the n-grams of two words (Dice), for one to be a form of the other
_MIN_LETTERS: Final = 5  # of a word that others are compared with

Split = Callable[[str], Sequence[str]]


def find_non_answers(
    hits: Sequence[Hit],
    terms: Collection[str],
    words: Split,
    *,
    rivals: Sequence[Hit] = (),
    all_questions: bool = False,
) -> dict[str, str]:
    """Return, by id, why a hit answers nothing.

    Args:
        terms: the words of the query.
        words: how a text is taken apart into such words.
        rivals: all that was found, with what the conversation shows already.
        all_questions: whether no question answers anything, whatever competes.
    """
    reasons: dict[str, str] = {}
    questions: list[Hit] = []
    for hit in hits[:_JUDGED]:
        missing = missing_statement(hit.item)
        if missing == "receipt":
            reasons[hit.id] = missing
        elif missing == "question":
            questions.append(hit)
    repeated = (h for h in questions if all_questions or _repeats(h.text, terms, words))
    if questions and (all_questions or any(map(_competes, (*hits, *rivals)[: 2 * _JUDGED]))):
        reasons.update((hit.id, "question") for hit in repeated)
    return reasons


def _competes(hit: Hit) -> bool:
    """Return whether a hit is a statement that may answer what an earlier question asks."""
    answers = hit.evidence is None or _has_own_evidence(hit)
    return answers and not missing_statement(hit.item)


def let_replies_answer(hits: Sequence[Hit], no_answers: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits in which the turn after a question has the question's evidence, too.

    Args:
        no_answers: the hits that answer nothing, questions among them.
    """
    questions = {
        (hit.item.session_id, hit.item.turn): hit
        for hit in no_answers
        if isinstance(hit.item, Entry) and only_asks(hit.text)
    }

    def question(hit: Hit) -> Sequence[Hit]:
        item = hit.item
        before = (item.session_id, item.turn - 1) if isinstance(item, Entry) else ("", 0)
        return [questions[before]] if before in questions else []

    return tuple(with_evidence_of(hit, question(hit)) for hit in hits)


def keep_answering(judged: Judged) -> Judged:
    """Return what was judged with no lines but those that share words or meaning with the query."""
    weak = {
        hit.id: "weak"
        for hit in judged.hits
        if hit.evidence is not None and not _has_own_evidence(hit)
    }
    hits = tuple(hit for hit in judged.hits if hit.id not in weak)
    silent = judged.silent or ("" if hits or not weak else "nothing found answers the question")
    return replace(judged, hits=hits, left_out={**judged.left_out, **weak}, silent=silent)


def leave_out_letters(judged: Judged, terms: Collection[str], words: Split) -> Judged:
    """Return what was judged without the hits that share no more than letters with the query.

    Not so a hit that has a form of one of its words: a typo, an inflection, a compound.
    """
    weak = [hit for hit in judged.hits[:_JUDGED] if _lacks_evidence(hit)]
    left_out = {hit.id: "letters" for hit in weak if not _resembles(hit.text, terms, words)}
    if not left_out:
        return judged
    hits = tuple(hit for hit in judged.hits if hit.id not in left_out)
    silent = judged.silent or ("" if hits else "nothing found shares a word with the prompt")
    return replace(judged, hits=hits, left_out={**judged.left_out, **left_out}, silent=silent)


def leave_out_restated(judged: Judged, words: Split) -> Judged:
    """Return what was judged with nothing said twice; what stays has the better of both places."""
    restated = find_restated(judged.hits[:_JUDGED], words)
    if not restated:
        return judged
    by_id = {hit.id: hit for hit in judged.hits}
    hits = {restated.get(hit.id, hit.id): None for hit in judged.hits}
    left_out = {**judged.left_out, **dict.fromkeys(restated, "restated")}
    return replace(judged, hits=tuple(by_id[item] for item in hits), left_out=left_out)


def _repeats(question: str, terms: Collection[str], words: Split) -> bool:
    """Return whether an earlier question asks about what the prompt is about."""
    wanted = {*words(question)}
    return bool(wanted) and len(wanted.intersection(terms)) >= _REPEATED * len(wanted)


def _has_own_evidence(hit: Hit) -> bool:
    evidence = hit.evidence
    return evidence is not None and (evidence.own_coverage > 0 or evidence.cosine >= _LEAST_COSINE)


def _lacks_evidence(hit: Hit) -> bool:
    """Return whether nothing speaks for a hit but letters that it shares with the query."""
    evidence, item = hit.evidence, hit.item
    is_page = isinstance(item, Fact) and bool(item.shelf)
    if evidence is None or is_page or is_standing_instruction(hit.text):
        return False
    return not (
        evidence.coverage
        or evidence.time
        or evidence.speaker
        or evidence.cosine >= _LEAST_COSINE
        or hit.signals.get("source")
    )


def _resembles(text: str, terms: Collection[str], words: Split) -> bool:
    """Return whether a text has a word that is a form of one of the query's.

    A typo, an inflection or a compound: most of their n-grams agree, or one ends or begins with
    the other.
    """
    text = distinct_tokens(text)
    theirs = {word for word in (*words(text), *plain_words(text)) if len(word) >= _MIN_LETTERS}
    return any(
        is_similar(term, word) for term in terms if len(term) >= _MIN_LETTERS for word in theirs
    )


def is_similar(first: str, second: str) -> bool:
    """Return whether two words, each of some length, are spelt alike."""
    short, long = sorted((first, second), key=len)
    if long.startswith(short) or long.endswith(short):
        return True
    of_first, of_second = ngrams(first), ngrams(second)
    shared = len(of_first & of_second)
    return 2 * shared >= _SIMILAR * (len(of_first) + len(of_second))
