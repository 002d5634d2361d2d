"""Make a fact of a whole sentence that is worth keeping.  Pure.

Its text is the sentence with its speaker named and its dates resolved; subject, relation and value
are what its grammar shows, so that a later sentence about the same can supersede it.  Of the
relations in ``pattern_table.py`` it states *name*, *always*, *never*, *decided*, *prefers*,
*scheduled_for*, *runs_on_port*, *located_at* and *amount*; besides these *ends_on*, *owns* and
*owned_by*, and *states* where the grammar shows no other.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.durable import Durable
from memtier_plugin.facts.extraction.frames import Asserted
from memtier_plugin.facts.extraction.rephrase import inflect_verb, to_third_person
from memtier_plugin.text.dates.annotate import annotate_dates, has_date
from memtier_plugin.text.dates.validity import Tense, find_dates, find_validity, names_weekdays_only
from memtier_plugin.text.grammar import auxiliary_forms, irregular_verbs, verb_forms
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.phrases import Words, without_since_now

CONFIDENCE: Final = 0.75
_MAX_SUBJECT: Final = 80
_END_MARKS: Final = " \t.!。！;；,，:：\"'"
_PORT: Final = re.compile(
    r"(?i)\bport\s+(?P<value>\d{2,5})\b|(?P<zh>\d{2,5})\s?端口|端口\s?(?P<after>\d{2,5})"
)
_PATH: Final = re.compile(
    r"`?(?P<value>(?:[~.]{0,2}/|https?://|s3://)?[\w.-]+/[^\s,;`]+|/[^\s,;`]+)"
)
_PLACED: Final = re.compile(
    r"(?i)\b(?:in|at|under|to|is|into|im|unter|en|bajo|dans|sous|à)\s+\Z|[在到]\s?\Z"
)
_AMOUNT: Final = re.compile(
    r"\s*(?:now |at |to |set to |limited to |capped at |about )*(?P<value>[$€£]?\s?\d[\d.,]*\s"
    r"?\S.*|[$€£]?\d[\d.,]*)\Z"
)
_CHANGED_TO: Final = re.compile(r"(?i)\b(?:to|auf|in|a|al|à|au|en)\s+(?P<value>[$€£]?\d[^,;]*)\Z")
_BY: Final = re.compile(r"\b(?:by|von|por|par)\s+(?P<value>[A-ZÄÖÜÉ][\w-]+(?: [A-ZÄÖÜÉ][\w-]+)?)")
_ENDING_VERBS: Final = re.compile(
    r"(?i)(?:ends?|finish\w*|closes?|expires?|endet|enden|schließt|termina|acaba|vence|"
    r"caduca|finit|ferme|expire|截止|到期|结束)\Z"
)
_BE: Final = {
    "am": "is", "are": "is", "m": "is", "re": "is", "ve": "has", "have": "has", "do": "does",
    "ll": "will", "d": "would", "haven't": "hasn't", "aren't": "isn't", "weren't": "wasn't",
}  # fmt: skip
_OPENING: Final = re.compile(
    r"(?P<i>[Ii]|[Ww]e)(?:(?P<short>['’](?:m|re|ve|ll|d)\b)|\s+(?P<verb>[a-z]+(?:['’]t)?)(?!\w))"
)
_OWNED: Final = re.compile(r"(?P<my>[Mm]y|[Oo]ur)\s+")
_CHANGES: Final = re.compile(
    r"(?:We|I)(?:['’]ve| have)? (?:just )?(?P<verb>moved|changed|renamed|switched|pushed|"
    r"postponed|raised|lowered|increased|reduced|shifted|rescheduled|set|bumped|extended|put) "
    r"(?:the|our|my) (?P<thing>\w[^,;]{1,60}?) (?:from [^,;]{1,40} )?(?:up |down |back )?to "
    r"(?P<value>[^,;]+)\Z"
)
_IN_TIME: Final = frozenset(["moved", "pushed", "postponed", "shifted", "rescheduled"])
_HOUR: Final = re.compile(r"(?:[01]?\d|2[0-4])(?: o['’]clock)?\Z")
_TIMED: Final = re.compile(
    r"\s+(?:now )?(?:at|um|à|a las) (?P<value>\d{1,2}(?::\d\d| ?[ap]m\b|\Z).*)"
)
_EMPHASIS: Final = re.compile(r"\*{1,3}(?=\S)([^*\n]+?)(?<=\S)\*{1,3}")
_USER: Final = "The user"
_PRONOUNS: Final = frozenset(["ich", "yo", "je", "j"])
_SAYS: Final = re.compile(r"^[^:]{1,60} says: ")
_CLOCK: Final = re.compile(r"\d{1,2}(?::\d\d| ?[ap]m)\b")
_MODAL: Final = frozenset(
    [
        "can",
        "can't",
        "cannot",
        "will",
        "won't",
        "must",
        "shall",
        "should",
        "may",
        "might",
        "could",
        "would",
        "had",
        "didn't",
        "couldn't",
    ]
)
_FIRST: Final = re.compile(
    r"(?<![\w'’./-])(?:I|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|[Oo]ur|[Oo]urs|us)(?![\w-])"
)
_ADVERBS: Final = re.compile(
    r"(?P<adverb>(?:always|never|also|only|usually|still|now|really|just|often|no longer|"
    r"already|seldom|sometimes|almost|even|once|ever|not yet|"
    r"both|all|[a-z]{3,}ly) )"
)


class Slots(NamedTuple):
    """What a sentence is about, and what it says of that."""

    subject: str
    relation: str
    value: str


def draft_statement(entry: Entry, sentence: Asserted, durable: Durable) -> FactDraft:
    """Return the draft of a whole sentence."""
    words = durable.words
    start = sentence.start + durable.offset
    core = words.text.rstrip()
    who = _named(entry.speaker or _USER, words.language)
    slots = Slots(*map(_plain, _slots(durable, entry.speaker or "user", entry.speaker or _USER)))
    slots = slots._replace(value=without_since_now(slots.value, words.language))
    tense = _tense(durable)
    verb = durable.verb[0] if durable.verb else 0
    since, until = find_validity(core, entry.observed_at, words.language, tense, verb)
    text = _plain(_text(durable, who))
    if durable.act == "order" and names_weekdays_only(core, entry.observed_at, words.language):
        text += _stop(words.language)  # "never deploy on a Friday" is about each
    else:
        text = _with_dates(text, entry.observed_at, words.language, tense)
    return FactDraft(
        subject=slots.subject,
        relation=slots.relation,
        value=slots.value,
        text=text,
        sources=(entry.source,),
        quote=core,
        span=(start, start + len(core)),
        valid_from=since or entry.observed_at,
        valid_to=until,
        confidence=CONFIDENCE,
    )


def is_rephrased(statement: FactDraft, durable: Durable) -> bool:
    """Tell whether a statement stands for itself, not as what somebody says (English)."""
    return durable.words.language != "english" or not _SAYS.search(
        statement.text.removesuffix(f" {statement.quote}")[:80]
    )


def _plain(text: str) -> str:
    """Return a text without the marks of emphasis."""
    return _EMPHASIS.sub(r"\1", text)


# -- text ------------------------------------------------------------------------------------------


def _text(durable: Durable, who: str) -> str:
    """Return a sentence as one about its speaker, in the speaker's words where it cannot be."""
    words, core = durable.words, durable.words.text.strip(_END_MARKS)
    if durable.act == "order":
        order = core if words.language != "english" else to_third_person(core[0].lower() + core[1:])
        return _quoted(words.language, who, "asks", order)
    if not durable.own and words.words[:2] != ("let", "s"):
        return core[0].upper() + core[1:]
    if words.language == "english" and (rephrased := _in_third_person(core, who)):
        return rephrased
    if words.language != "english" and (rephrased := _in_foreign_third_person(words, core, who)):
        return rephrased
    return _quoted(words.language, who, "says", core)


def _quoted(language: str, who: str, act: str, core: str) -> str:
    """Return what somebody says or asks, in the words of the language."""
    verb = lexicon(language).speech_verbs.get(act, f"{act}:")
    return f"{who}{verb}{core}" if lexicon(language).unspaced else f"{who} {verb} {core}"


def _named(who: str, language: str) -> str:
    """Return who speaks, in the words of the language where it is the user."""
    nouns = lexicon(language).user_nouns
    if who != _USER or language == "english" or not nouns:
        return who
    first = nouns[0]
    return first.title() if language == "german" else first[0].upper() + first[1:]


def _in_foreign_third_person(words: Words, core: str, who: str) -> str:
    """Return a sentence that opens with "ich" or its like as one about its speaker; "" if unsure.

    Only where nothing else in it is of the first person, and the form of its verb is known.
    """
    classes = lexicon(words.language)
    own = classes.first_person | classes.first_possessive
    if words.unspaced:
        rest = core.removeprefix("我")
        return "" if rest == core or any(word in rest for word in own) else who + rest
    forms = {**verb_forms(words.language), **auxiliary_forms(words.language)}
    first = 0 if classes.pro_drop and words.words[0] in forms else 1
    if (first and words.words[0] not in _PRONOUNS) or len(words.words) <= first + 1:
        return ""
    verb = words.tokens[first]
    third = forms.get(verb.text)
    if third is None or not own.isdisjoint(words.words[first + 1 :]):
        return ""
    return f"{who} {third}{core[verb.end :]}"


def _in_third_person(core: str, who: str) -> str:
    """Return an English sentence that opens with "I" or "my" as one about its speaker."""
    if owned := _OWNED.match(core):
        return f"{who}'s {to_third_person(core[owned.end() :])}"
    opening = _OPENING.match(core)
    if not opening:
        return ""
    if opening["short"]:
        verb, rest = _BE[opening["short"][1:]], core[opening.end() :]
        return f"{who} {verb}{to_third_person(rest)}"
    verb, start = opening["verb"], opening.end()
    before = ""
    if adverb := _ADVERBS.match(core, opening.start("verb")):
        before = adverb["adverb"]
        following = re.match(r"[a-z]+(?:['’]t)?", core[adverb.end() :])
        if not following:
            return ""
        verb, start = following[0], adverb.end() + following.end()
    plain = verb.replace("’", "'")
    if plain in _BE:
        verb = _BE[plain]
    elif plain not in _MODAL | irregular_verbs().past and not (
        plain.endswith("n't") and plain != "don't"
    ):
        verb = inflect_verb(verb)
    return f"{who} {before}{verb}{to_third_person(core[start:])}"


def _stop(language: str) -> str:
    return "。" if lexicon(language).unspaced else "."


def _with_dates(text: str, said_on: datetime, language: str, tense: Tense | None) -> str:
    """Return a text with the dates that its relative ones mean, and its full stop."""
    stop = _stop(language)
    if language == "english":
        ahead = None if tense is None else tense == "future"
        return f"{annotate_dates(text, said_on, future=ahead)}{stop}"
    open_ended = False
    for dated in reversed(find_dates(text, said_on, language, tense)):
        mention, period = dated.mention, dated.period
        if mention.year is not None:
            continue
        if period is None or period[0] != period[1]:
            open_ended = True
            continue
        text = f"{text[: mention.end]} ({period[0]:%Y-%m-%d}){text[mention.end :]}"
    return f"{text} (said on {said_on:%Y-%m-%d}){stop}" if open_ended else f"{text}{stop}"


def _tense(durable: Durable) -> Tense | None:
    """Return whether a sentence tells of the past or of what is to come, as far as that shows."""
    words = durable.words
    if words.language == "english":
        past = irregular_verbs().past
        for token in words.tokens[:10]:
            if token.text in (
                "is",
                "are",
                "will",
                "re",
                "m",
                "am",
                "ll",
                "comes",
                "starts",
                "begins",
            ):
                return "future"
            if token.text in ("was", "were"):
                return "past"
            if token.text in past and token.text not in ("set", "put", "cut", "read", "hit", "let"):
                return _told_tense(durable)
            if len(token.text) > 4 and token.text.endswith("ed") and token.text[-3] != "e":
                return _told_tense(durable)
        return "future"
    return "past" if _PAST_SIGNS.search(words.text) else "future"


def _told_tense(durable: Durable) -> Tense:
    """Return the tense of what a past form tells: "moved to Friday" is about what is to come."""
    return "future" if _TO_DATE.search(durable.words.text) else "past"


_TO_DATE: Final = re.compile(
    r"(?i)\b(?:to|for|until|by) (?:the |next |early |late )?(?:\d|(?:mon|tues|wednes|thurs|fri|"
    r"satur|sun)day|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b)"
)
_PAST_SIGNS: Final = re.compile(
    r"(?i)\b(?:gestern|letzte[nrs]?|vorgestern|seit|ayer|anteayer|pasad[oa]|hier|avant-hier|"
    r"derni(?:er|ère)|"
    r"depuis|desde)\b|昨天|前天|上周|上个月|去年|自从"
)


# -- slots -----------------------------------------------------------------------------------------


def _slots(durable: Durable, subject: str, who: str) -> Slots:
    """Return what a sentence is about, its relation, and its value."""
    words = durable.words
    sentence = words.text.strip(_END_MARKS)
    if durable.act == "order":
        negated = words.has_word("negations") or words.words[:1] == ("don",)
        return Slots(subject, "never" if negated else "always", sentence)
    if durable.act == "preference" and not _of_kin(words):
        return Slots(subject, "prefers", sentence)
    if durable.act == "decision":
        return Slots(subject, "decided", sentence)
    if moved := _CHANGES.match(words.text.rstrip(_END_MARKS)):
        return _changed(moved)
    about = _subject(durable, subject, who)
    if durable.verb is None or about == subject:
        return Slots(about, "states", sentence)
    relation, value = _relation(durable)
    return Slots(about, relation, value or sentence)


def _changed(moved: re.Match[str]) -> Slots:
    """Return the thing that somebody says they changed, and its new value."""
    thing, value = moved["thing"], moved["value"]
    if moved["verb"].startswith("renam"):
        return Slots(thing, "name", value)
    if port := _PORT.search(value):
        return Slots(thing, "runs_on_port", next(filter(None, port.groups())))
    if has_date(value) or _CLOCK.match(value) or (moved["verb"] in _IN_TIME and _HOUR.match(value)):
        return Slots(thing, "scheduled_for", value)
    return Slots(thing, "amount" if value[:1].isdigit() else "states", value)


def _subject(durable: Durable, subject: str, who: str) -> str:
    """Return the subject of a sentence without its article: the speaker, or a thing."""
    words, verb = durable.words, durable.verb
    classes = lexicon(words.language)
    first = words.words[0] if words.words else ""
    if verb is None or (first in classes.first_person and not words.unspaced):
        return subject
    name = words.text[: verb[0]].strip(_END_MARKS)
    if words.unspaced:
        return _unspaced_subject(words, name, subject, who)
    parts = name.split()
    mine = first in classes.first_possessive
    while parts and parts[0].casefold() in classes.definite | classes.first_possessive:
        parts = parts[1:]
    if not parts or len(name) > _MAX_SUBJECT:
        return subject
    if classes.pro_drop and first in classes.stating_verbs:
        return subject
    name = re.sub(
        r"(?i)\s+(?:has|have|is|are|was|were|se|est|ist|wurde|ha|now|been)\Z", "", " ".join(parts)
    )
    return f"{who}'s {name}" if mine else name


def _unspaced_subject(words: Words, name: str, subject: str, who: str) -> str:
    """Return the subject of a sentence without spaces: "我女儿" is a relative of the speaker."""
    own = _OWN_UNSPACED.match(name)
    rest = name[own.end() :] if own else name
    kin = max(
        (w for w in lexicon(words.language).kin_words if rest.startswith(w)), key=len, default=""
    )
    if own and kin:
        return f"{who}'s {kin}"
    return subject if own and "的" not in own[0] else rest or subject


def _of_kin(words: Words) -> bool:
    """Tell whether a sentence is about a relative or a pet of its speaker."""
    classes = lexicon(words.language)
    kin = classes.kinship | classes.kin_words
    if words.unspaced:
        return any(word in words.text[:12] for word in kin)
    return words.words[0] in classes.first_possessive and not kin.isdisjoint(words.words[1:5])


def _relation(durable: Durable) -> tuple[str, str]:
    """Return the relation and the value of a sentence about a thing."""
    words = durable.words
    assert durable.verb is not None
    text = words.text.rstrip(_END_MARKS)
    begin, end = durable.verb
    verb, rest = text[begin:end], text[end:]
    called = words.find("called_verbs", begin)
    if called and (value := text[called[1] :].strip(_END_MARKS)):
        return "name", value
    if port := _PORT.search(text):
        return "runs_on_port", next(filter(None, port.groups()))
    if (path := _PATH.search(text, end)) and _PLACED.search(text[: path.start()]):
        return "located_at", path["value"].rstrip(_END_MARKS)
    when = "" if _tense(durable) == "past" else _when(words, text, end)
    if when:
        ends = _ENDING_VERBS.search(verb) or _is_end(words, text.removesuffix(when))
        return ("ends_on" if ends else "scheduled_for"), when
    owned = words.find("owning_verbs", begin)
    if owned and owned[0] == begin and (value := text[owned[1] :].strip(_END_MARKS)):
        return "owns", value
    if by := _BY.search(text, end):
        return "owned_by", by["value"]
    if clock := _TIMED.match(rest):
        return "scheduled_for", clock["value"].strip(_END_MARKS)
    amount = _AMOUNT.match(rest) if verb.casefold() in lexicon(words.language).copulas else None
    if amount or (amount := _CHANGED_TO.search(rest)):
        return "amount", amount["value"].strip(_END_MARKS)
    return "states", text[begin:].strip(_END_MARKS)


def _is_end(words: Words, before: str) -> bool:
    """Tell whether a word like "until" stands before a date."""
    closing = Words.of(before, words.language).words[-3:]
    return any(cue.split()[-1] in closing for cue in lexicon(words.language).valid_to_cues)


def _when(words: Words, text: str, start: int) -> str:
    """Return the date that a sentence gives for a thing, to its end; "" without one."""
    if _of_kin(words) or (words.language == "english" and not has_date(text)):
        return ""
    dates = find_dates(text, _ANY_DAY, words.language, "future")
    begins = [dated.mention.start for dated in dates if dated.mention.start >= start]
    return text[min(begins) :].strip(_END_MARKS) if begins else ""


_OWN_UNSPACED: Final = re.compile(r"(?:我们的|我们|咱们|我的|我)")
_ANY_DAY: Final = datetime(2024, 1, 1)
