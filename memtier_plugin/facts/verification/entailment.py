"""Whether a claim says what its source says, and no more.  Pure.

A claim agrees when every word of it that means something stands in the clauses it was taken from,
in their order and denied where they deny; when nothing is left out between them, and nothing that
turns the statement round; when it is about the same person and time; and when its numbers, dates
and names are the source's. What the words do not decide does not agree: it may wait for a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import regex

from memtier_plugin.facts.verification.alignment import (
    Alignment,
    Passage,
    Verdict,
    align,
    align_hyphens,
    blank_dates,
    is_content,
)
from memtier_plugin.facts.verification.dates import DATE_DIFFERS, check_dates
from memtier_plugin.facts.verification.tense import check_tense, is_verb_form
from memtier_plugin.facts.verification.verbatim import check_verbatim
from memtier_plugin.text import claim_lexicon, dates, grammar
from memtier_plugin.text.parsing import Word, parse_sentence

_ACTIVE: Final = Verdict("active")
_MORE: Final = Verdict("proposed", "says more than its source")
_LESS: Final = Verdict("proposed", "leaves out a part of its source")
_WHO: Final = Verdict("proposed", "not clear whom it is about")
_DOUBT: Final = Verdict("proposed", "said under a condition or with a doubt")
_DENIED: Final = Verdict("rejected", "negation differs")
_NUMBER: Final = Verdict("rejected", "number differs")

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


def check_entailment(text: str, value: str, passage: Passage) -> Verdict:
    """Return whether a claim's text and value say what the passage says."""
    rest = passage.sentence[passage.quote[1] :].lstrip(" ,-–—.!")
    if any(map(_TAKEN_BACK.match, (passage.after, rest))) or _IRONY.search(passage.sentence):
        return Verdict("proposed", "taken back")
    if passage.language is None:
        return check_verbatim(text, value, passage)
    verdict = check_dates(text, value, passage)
    if verdict is not None:
        return verdict
    case = align(text, passage, passage.language)
    for check in (_said, _asked, _denials, _turns, _order, _subject, _gaps, _light, check_tense):
        verdict = check(case)
        if verdict is not None:
            return verdict
    return _value(value, text, case) or _ACTIVE


def check_resemblance(text: str, passage: Passage) -> Verdict:
    """Return whether the words of a claim, whose quote is nowhere, are nearly those of a sentence.

    That is no evidence, but a reason to ask a person; numbers, names and denials must agree.
    """
    tongue = passage.language or "english"
    case = align(text, passage, tongue)
    wanted = len(case.pairs) + sum(
        w.text not in claim_lexicon.REPORTING_WORDS for w in case.missing
    )
    if not case.pairs or len(case.pairs) < 0.6 * wanted or len(case.pairs) < 2:
        return Verdict("rejected", "quote not found")
    if (
        any(word.kind == "number" for word in case.missing)
        or check_dates(text, "", passage) == DATE_DIFFERS
    ):
        return _NUMBER
    if any(word.capital for word in case.missing):
        return Verdict("rejected", "name differs")
    if _denials(case) or any(_opposed(word, case) for word in case.missing):
        return _DENIED
    return Verdict("proposed", "evidence by keywords")


def _said(case: Alignment) -> Verdict | None:
    """Return what is wrong with the words of a claim that its source does not have."""
    verdict: Verdict | None = None
    for word in case.missing:
        if word.kind == "number":
            if word.key == "#1" and _single(word, case):
                continue
            if word.key[1:] in regex.findall(r"\d+", case.passage.sentence) and len(word.key) == 5:
                continue  # a year, which stands there in a date
            return _NUMBER
        if word.text in claim_lexicon.REPORTING_WORDS and not word.capital:
            continue
        if word.text in ("years", "year", "old") and _aged(word, case):
            continue
        if _opposed(word, case):
            return _DENIED
        if _measures(word, case):
            return _NUMBER
        if word.capital and not _meant_before(word, case):
            known = word.text in case.passage.known_names
            others = any(w.capital and not w.first for w in _left(case))
            if not known and others:
                verdict = Verdict("rejected", "name differs")
            verdict = verdict or Verdict("proposed", "a name is not in the passage")
        elif not _meant_before(word, case):
            verdict = verdict or _MORE
    return verdict if verdict or case.pairs else _MORE


def _single(word: Word, case: Alignment) -> bool:
    """Tell whether "one cat" is "a cat" of the source."""
    after = next((place for other, place in case.pairs if other.at > word.at), None)
    if after is None:
        return False
    return any(w.text in ("a", "an", "ein", "eine", "einen", "un", "una", "une", "um", "uma", "een")
               for w in case.source.words[max(0, after - 2) : after])  # fmt: skip


def _aged(word: Word, case: Alignment) -> bool:
    """Tell whether a word is of an age: 34 is 34 years old."""
    words = [other.text for other in case.claim.words]
    place = case.claim.words.index(word)
    return "old" in words[place : place + 2] and any(
        other.kind == "number" for other in case.claim.words[max(0, place - 2) : place]
    )


def _opposed(word: Word, case: Alignment) -> bool:
    return any(claim_lexicon.ANTONYMS.get(word.key) == other.key for other in case.clause_words())


def _measures(word: Word, case: Alignment) -> bool:
    """Tell whether a word that is missing follows a number: its unit."""
    words = case.claim.words
    place = words.index(word)
    return bool(place and words[place - 1].kind == "number" and not word.capital
                and word.text not in ("year", "years"))  # fmt: skip


def _left(case: Alignment) -> Iterator[Word]:
    """Yield the words of the clauses that the claim does not have."""
    taken = {place for _, place in case.pairs}
    for place in case.clause_span:
        if place not in taken:
            yield case.source.words[place]


def _meant_before(word: Word, case: Alignment) -> bool:
    """Tell whether a pronoun of the passage means what the sentence before names.

    Only when that sentence names nobody else.
    """
    words = case.clause_words()
    if not any(w.kind == "third" for w in words):
        return False
    if any(w.kind == "me" for w in words) or not case.passage.before:
        return False
    before = parse_sentence(
        blank_dates(case.passage.before, case.passage.said_on), case.language
    ).words
    people = {
        w.text for w in before if is_content(w) and (w.capital or w.text in claim_lexicon.KINSHIP)
    }
    mine = {w.text for w in case.missing} | {w.text for w, _ in case.pairs}
    inside = {
        w.text for w in words if (w.capital and not w.first) or w.text in claim_lexicon.KINSHIP
    }
    held = any(case.matches(word, other) for other in before if is_content(other))
    if held and people <= mine and inside <= mine:
        case.antecedent = before
        return True
    return False


def _asked(case: Alignment) -> Verdict | None:
    asked = any(word.piece in case.source.questions for word in case.clause_words())
    return Verdict("proposed", "asked, not said") if asked else None


def _denials(case: Alignment) -> Verdict | None:
    for word, place in case.pairs:
        if word.denied != case.source.words[place].denied:
            return _DENIED
    return None


def _turns(case: Alignment) -> Verdict | None:
    """Return what is wrong when the source wishes, doubts, plans or ends what the claim states."""
    source, claims = case.source.words, claim_lexicon
    pieces = {word.piece for word in case.clause_words()}
    beside = {piece for one in pieces for piece in (one - 1, one + 1)} - pieces
    told = {claims.NONFACTUAL_CLASSES.get(w.text, w.key) for w in case.claim.words}
    last = max((place for _, place in case.pairs), default=len(source))
    after = next(
        (n for n in range(last, case.clause_span.stop) if source[n].text in case.coordinators),
        None,
    )
    for place, word in enumerate(source):
        if not _turn(source, place) or claims.NONFACTUAL_CLASSES.get(word.text, word.key) in told:
            continue
        if word.text in claims.CONDITIONALS:
            return _DOUBT
        mine = [other for other in source if other.piece == word.piece]
        short = sum(map(is_content, mine)) <= 2 and sum(w.text != "and" for w in mine) <= 4
        if word.piece in beside and short:
            return _DOUBT
        # What follows "and" is another statement: "I grew up in Oslo and miss it".
        other = after is not None and place > after and word.text not in claims.CLAUSE_FINAL
        if word.piece in pieces and not other:
            return _DOUBT
    return _quoting(case) or _framed(case)


def _turn(words: Sequence[Word], place: int) -> bool:
    """Tell whether a word turns a statement round, as "going to" does without its own verb."""
    if words[place].text != "going":
        return words[place].kind == "turn" or words[place].text in claim_lexicon.CONDITIONALS
    return any(word.text in ("am", "is", "are") for word in words[max(0, place - 3) : place])


def _framed(case: Alignment) -> Verdict | None:
    """Return what is wrong when the source says in what its statement holds: in my novel I ..."""
    source = case.source.words
    first = min(place for _, place in case.pairs)
    told = {word.key for word in case.claim.words}
    spoken = [
        n for n in range(first) if source[n].kind == "me" and source[n].piece == source[first].piece
    ]
    for place in range(case.clause_span.start, spoken[-1] if spoken else case.clause_span.start):
        word = source[place]
        if word.piece == source[first].piece and _counts(word) and word.key not in told:
            return _LESS
    before = [word for word in source if word.piece == source[first].piece - 1]
    frames = any(w.text in claim_lexicon.FICTION_FRAMES and w.key not in told for w in before)
    return _LESS if frames and before[0].text in claim_lexicon.LOCATIVES else None


def _quoting(case: Alignment) -> Verdict | None:
    """Return what is wrong when the source only quotes what the claim states."""
    for match in _QUOTED.finditer(case.passage.sentence):
        inside = [w for w in case.clause_words() if match.start() <= w.at < match.end()]
        if any(w.kind in ("me", "my") for w in inside):
            return Verdict("proposed", "quotes somebody else")
    return None


def _order(case: Alignment) -> Verdict | None:
    places = [place for _, place in case.pairs]
    if places != sorted(places):
        return Verdict("proposed", "its words stand in another order")
    return None


def _subject(case: Alignment) -> Verdict | None:
    """Return what is wrong with whom the claim is about."""
    first = next((w for w in case.claim.words if is_content(w) or case.role(w)), None)
    if first is None:
        return _MORE
    role, words = case.role(first), case.clause_words()
    if role == "you" and _reports(case, first):
        return _WHO
    # "Kenji and I climbed": the predicate is the first word found that is no name.
    said = [
        place
        for word, place in case.pairs
        if not word.capital and word.text not in claim_lexicon.KINSHIP
    ]
    start = min(
        said, default=min((place for _, place in case.pairs), default=case.clause_span.stop)
    )
    lead = case.source.words[case.clause_span.start : start]
    said_of = {case.role(word): word.text for word in case.claim.words if case.role(word)}
    for one, kinds in (("me", ("me", "my")), ("you", ("you",))):
        present = any(
            w.kind in kinds or w.text == said_of.get(one) for w in [*words, *case.antecedent]
        )
        if one in said_of and one != role and not present:
            return _WHO
    if not role:
        return None
    nominative = ("i", "we") if case.language == "english" else None
    owns = _possessive(first, case)
    if owns and case.antecedent and any(w.kind == "my" for w in case.antecedent):
        return None
    kinds = ("me", "my") if role == "me" else ("you",)
    if owns:
        found = any(w.kind in kinds for w in words)
    else:
        found = any(
            w.kind == kinds[0] and (role == "you" or nominative is None or w.text in nominative)
            for w in lead or words[:1]
        )
    if found:
        return None
    asking = any(w.text in claim_lexicon.REQUEST_WORDS for w in case.claim.words)
    if asking and not any(is_content(w) or w.kind in ("third", "my", "you") for w in lead):
        return None if case.language == "english" else _WHO
    if (
        case.language in claim_lexicon.PRO_DROP
        and not owns
        and role == "me"
        and not any(map(_personal, lead))
    ):
        word, place = min(case.pairs, key=lambda pair: pair[1])
        if word.text != case.source.words[place].text and case.claim_language == case.language:
            return None
    return _WHO


def _reports(case: Alignment, first: Word) -> bool:
    """Tell whether a claim says that its first word mentions what follows."""
    words = [word for word in case.claim.words if word.kind != "light"]
    after = words[words.index(first) + 1 :] if first in words else []
    return bool(after) and after[0].text in claim_lexicon.REPORTING_WORDS


def _personal(word: Word) -> bool:
    """Tell whether a word before the verb may be whom it is about."""
    return is_content(word) or word.kind in ("third", "you", "my")


def _possessive(word: Word, case: Alignment) -> bool:
    """Tell whether the claim speaks of what belongs to somebody: Ann's dog."""
    words = case.claim.words
    after = words[words.index(word) + 1 :]
    return (
        word.text.endswith(("'s", "'"))
        or word.owner
        or (case.claim_language != "english" and word.text not in case.passage.speaker_names)
        or bool(after and after[0].text in ("的", "の"))
    )


def _gaps(case: Alignment) -> Verdict | None:
    """Return what is wrong when something that counts is left out between the words of a claim."""
    source = case.source.words
    places = sorted({place for _, place in case.pairs})
    first = next((w for w in case.claim.words if is_content(w) or case.role(w)), None)
    spoken = first is not None and bool(case.role(first))
    anchor = case.clause_span.start
    for place in range(case.clause_span.start, places[0]):
        word = source[place]
        if word.kind in ("me", "my") or word.text in case.coordinators:
            anchor = place + 1
    lead = range(anchor, places[0])
    if not spoken and source[places[0]].capital:
        lead = range(max(anchor, places[0] - 3), places[0])
        beside = places[0] - 1 if source[places[0] - 1].text in claim_lexicon.KINSHIP else -1
        if any(_counts(source[n]) and n != beside for n in lead):
            return _LESS
    elif any(
        _counts(source[place]) or (source[place].kind == "third" and not case.antecedent)
        for place in lead
    ):
        return _LESS
    for left, right in pairwise(places):
        for place in range(left + 1, right):
            word = source[place]
            if (
                word.kind == "me"
                and (source[left].capital or source[left].text in claim_lexicon.KINSHIP)
                and source[place - 1].text in grammar.COORDINATORS.get(case.language, ())
            ):
                continue  # Kenji and I
            if _counts(word) or (word.kind in ("me", "third") and word.piece != source[left].piece):
                return _LESS
    return _tail(case, places[-1])


def _tail(case: Alignment, last: int) -> Verdict | None:
    """Return what is wrong when the last word of a claim goes on in the source: coffee cake."""
    source = case.source.words
    word = source[last]
    if last + 1 >= len(source) or source[last + 1].piece != word.piece:
        return None
    after = source[last + 1]
    between = case.passage.sentence[word.end : after.at]
    if after.text in claim_lexicon.PHRASE_STARTERS:
        return None
    if _counts(after) and not between.strip() and len(between) <= 1:
        return _LESS
    if _counts(after) and case.passage.sentence[word.at : word.end].endswith(("'s", "’s")):
        return _LESS
    return None


def _counts(word: Word) -> bool:
    """Tell whether a word may not be left out between others."""
    if not is_content(word) or word.text in claim_lexicon.OMISSIBLE:
        return False
    return not (word.text.endswith("ly") and len(word.text) > 4 and not word.capital)


def _light(case: Alignment) -> Verdict | None:
    """Return what is wrong when a claim says "has" or "is" and its source says neither."""
    said = {word.text for word in case.clause_words()}
    words = case.claim.words
    for place, word in enumerate(words):
        if (
            word.kind != "light"
            or word.text not in (claim_lexicon.POSSESSION_VERBS | claim_lexicon.COPULAS)
            or word.text in ("a", "es", "en")
        ):
            continue
        after = next((w for w in words[place + 1 :] if w.kind != "light"), None)
        if after is None or after.kind == "turn" or is_verb_form(after.text):
            continue
        wanted = (
            claim_lexicon.POSSESSION_VERBS
            if word.text in claim_lexicon.POSSESSION_VERBS
            else claim_lexicon.COPULAS
        )
        named = any(w.text in ("named", "called") for w in words)
        if not said & wanted and not (named and wanted is claim_lexicon.COPULAS):
            return _MORE
    return None


def _value(value: str, text: str, case: Alignment) -> Verdict | None:
    """Return what is wrong with a value: it must be in the claim's own text, and in the quote."""
    wanted = parse_sentence(
        align_hyphens(blank_dates(value, case.passage.said_on), case.passage.sentence)[0],
        case.claim_language,
    ).words
    found = [w for w in wanted if is_content(w)]
    told = case.claim.words
    if value.strip(" .") in {str(one.year) for one in dates.find_stated_dates(text)}:
        return None
    if any(
        not any(case.matches(w, t) or t.key == w.key for t in told) and not case.role(w)
        for w in found
    ):
        return Verdict("proposed", "its value is not in its text")
    if not found:
        return None
    start, end = case.passage.quote
    inside = [
        place
        for word, place in case.pairs
        if any(case.matches(w, word) or w.key == word.key for w in found)
        and case.source.words[place].at < end
        and start < case.source.words[place].end
    ]
    return (
        None
        if inside or dates.find_stated_dates(value)
        else Verdict("proposed", "its value is not in its quote")
    )
