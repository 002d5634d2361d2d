"""Make a fact of a sentence worth keeping, naming its speaker.  Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.sentences import (
    Asserted,
    find_verb,
    is_past,
    orders,
    speaks_of_self,
)
from memtier_plugin.text.dates.reading import Tense
from memtier_plugin.text.dates.spans import (
    annotate_dates,
    find_dates,
    find_validity,
    has_date,
    names_weekdays_only,
)
from memtier_plugin.text.lexicon import irregular_verbs, lexicon, word_set, words_of
from memtier_plugin.text.phrases import Words, is_standing_instruction, without_since_now

# -- Rephrase a simple first-person statement as one about its speaker.  Pure
#
# Only "I <verb> ..." and "my <thing> ..." are rephrased, if nothing else in them is first-person
# except a possessive: nobody who is quoted is misquoted.  What "we" do, no single person does.

_OPENING: Final = re.compile(
    r"[Ii](?:(?P<short>['’](?:m|ve|ll|d)\b)|\s+(?P<adverb>(?:(?:almost|always|never|also|only|"
    r"usually|still|now|really|just|often|no longer|already|sometimes|[a-z]{3,}ly) )*)"
    r"(?P<verb>[a-z]+(?:['’]t)?)(?!\w))"
)
_OWNED: Final = re.compile(r"[Mm]y\s+")
_FIRST: Final = re.compile(
    r"(?i)(?<![\w'’./-])(?:I|me|mine|we|us|ours|myself|ourselves)(?![\w-])|[\"“”«»]"
)
_POSSESSIVE: Final = re.compile(r"(?i)(?<![\w'’./-])(?:my|our)(?![\w'’-])")
_JOINED: Final = re.compile(r"\b(?:and|but|or|then)\b")
_FORMS: Final = {
    "'m": "is", "'re": "is", "'ve": "has", "'ll": "will", "'d": "would", "am": "is", "are": "is",
    "have": "has", "do": "does", "don't": "doesn't", "haven't": "hasn't", "aren't": "isn't",
    "weren't": "wasn't", "were": "was", "dont": "doesn't", "be": "is",
}  # fmt: skip
_SAME: Final = word_set(
    """can can't cannot will won't must mustn't shall should shouldn't may might could couldn't
    would wouldn't had hadn't was wasn't did didn't used"""
)
_PREFIX: Final = re.compile(r"(?:re|over|under|out|un|fore|mis|with)(?=\w{3})")
_NO_PAST: Final = word_set(
    """need feed speed breed seed exceed proceed embed read put set cut let hit hurt shut quit cost
    bet spread run come ground wound bore bound rose bit shot beat split burst"""
)


def in_third_person(core: str, who: str) -> str:
    """Return an English sentence about its speaker, by name; "" if uncertain."""
    opening = _OPENING.match(core)
    if owned := _OWNED.match(core):
        start, head = owned.end(), f"{who}'s "
    elif opening is None:
        return ""
    elif opening["short"]:
        start, head = opening.end(), f"{who} {_FORMS[opening['short'].replace('’', chr(39))]}"
    else:
        start = opening.end()
        verb = _third_form(opening["verb"], core[start:])
        if not verb:
            return ""
        head = f"{who} {opening['adverb']}{verb}"
    rest = core[start:]
    return "" if _FIRST.search(rest) else head + _POSSESSIVE.sub("their", rest)


def _third_form(verb: str, rest: str) -> str:
    """Return a verb in the third person; "" if its form or tense is uncertain."""
    plain = verb.replace("’", "'")
    if form := _FORMS.get(plain):
        return form
    if plain in _SAME:
        return verb
    if plain in words_of("stop_words") - lexicon("english").stating_verbs:
        return ""  # "I myself run it", "I for one like it"
    past, stem = irregular_verbs().past, _PREFIX.sub("", plain, count=1)
    if plain not in _NO_PAST and (plain in past or stem in past or plain.endswith("ed")):
        return verb
    if plain in _NO_PAST or _JOINED.search(rest):  # "I hit": then or now; "I read and write"
        return "needs" if plain == "need" and not _JOINED.search(rest) else ""
    if plain.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y\Z", plain) else f"{verb}s"


# -- Make a fact of a sentence worth keeping.  Pure
#
# Its text is the sentence with its speaker named and its dates resolved; subject, relation and
# value come from its grammar, so that a later sentence about the same can supersede it; the
# relation is *states* if the grammar reveals none.

CONFIDENCE: Final = 0.75
_MAX_SUBJECT: Final = 80
_STOPS: Final = " \t.!。！;；,，:："
_END_MARKS: Final = _STOPS + "\"'"
_PORT: Final = re.compile(
    r"(?i)\bport\s+(?P<value>\d{2,5})\b|(?P<zh>\d{2,5})\s?端口|端口\s?(?P<after>\d{2,5})"
)
_PATH: Final = re.compile(
    r"`?(?P<value>(?:[~.]{0,2}/|https?://|s3://|(?<![\w.-]))[\w.-]+/[^\s,;`]+|/[^\s,;`]+)"
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
    r"(?i)(?:ends?|finish(?:es|ed|ing)?|closes?|expires?|endet|enden|schließt|termina|acaba|vence|"
    r"caduca|finit|ferme|expire|截止|到期|结束)\Z"
)
_CHANGES: Final = re.compile(
    r"(?:We|I)(?:['’]ve| have)? (?:just )?(?P<verb>moved|changed|renamed|switched|pushed|"
    r"postponed|raised|lowered|increased|reduced|shifted|rescheduled|set|bumped|extended|put) "
    r"(?P<whose>the|our|my) (?P<thing>\w[^,;]{1,60}?) (?:from [^,;]{1,40} )?(?:up |down |back )?to "
    r"(?P<value>[^,;]+)\Z"
)
_IN_TIME: Final = frozenset(["moved", "pushed", "postponed", "shifted", "rescheduled"])
_HOUR: Final = re.compile(r"(?:[01]?\d|2[0-4])(?: o['’]clock)?\Z")
_TIMED: Final = re.compile(
    r"\s+(?:now )?(?:at|um|à|a las) (?P<value>\d{1,2}(?::\d\d| ?[ap]m\b|\Z).*)"
)
_EMPHASIS: Final = re.compile(r"\*{1,3}(?=\S)([^*\n]+?)(?<=\S)\*{1,3}")
_USER: Final = "The user"
_CLOCK: Final = re.compile(r"\d{1,2}(?::\d\d| ?[ap]m)\b")
_PLACE: Final = r"(?P<value>(?:the )?[A-Z][\w'’.-]+(?:(?:,? | of | de )[A-Z][\w'’.-]+){0,4})"
_ADVERB: Final = r"(?: (?:now|currently|still|also|just|recently|really|always|actually))*"
_AM: Final = rf"[Ii](?:['’]m| am){_ADVERB}"
_HAVE: Final = r"(?:[Ii]|[Ww]e)(?:['’]ve| have)?"
_SIMPLE: Final = r"(?P<value>[^,;]+)\Z"
# Statements about oneself that one relation expresses.
_OWN: Final = tuple(
    (relation, re.compile(pattern))
    for relation, pattern in (
        ("lives_in", rf"(?:(?:[Ii]|[Ww]e){_ADVERB} live in|{_AM} (?:based|living) in) {_PLACE}"),
        (
            "moved_to",
            rf"(?:[Ii]|[Ww]e)(?:['’]ve| have)?{_ADVERB} moved (?:from [^,]+? )?to {_PLACE}",
        ),
        ("from", rf"(?:{_AM}(?: originally)? from|[Ii] grew up in) {_PLACE}"),
        ("works_at", rf"[Ii]{_ADVERB} work (?:at|for) {_SIMPLE}"),
        ("works_as", rf"[Ii]{_ADVERB} work as {_SIMPLE}"),
        ("born", rf"[Ii] was born {_SIMPLE}"),
        ("birthday", r"[Mm]y birthday is (?:on )?(?P<value>[^,;]+)\Z"),
        ("age", rf"{_AM} (?P<value>\d{{1,3}})(?: years old)?\Z"),
        ("allergic_to", rf"{_AM}(?: \w+ly)? allergic to {_SIMPLE}"),
        ("diet", rf"{_AM} (?:an? )?(?P<value>vegan|vegetarian|(?:gluten|lactose)[ -]\w+)\Z"),
        ("favorite", rf"[Mm]y (?P<own>fav(?:ou?rite|e) [^,;]{{2,40}}?) (?:is|are) {_SIMPLE}"),
        ("prefers", rf"[Ii]{_ADVERB} prefer {_SIMPLE}"),
        ("likes", rf"[Ii]{_ADVERB} (?:like|love|enjoy|adore) {_SIMPLE}"),
        ("dislikes", rf"[Ii]{_ADVERB} (?:don['’]t (?:like|enjoy)|hate|dislike) {_SIMPLE}"),
        ("uses", rf"(?:[Ii]|[Ww]e){_ADVERB} use {_SIMPLE}"),
        (
            "decided",
            rf"(?:[Ii]|[Ww]e)(?:['’]ve| have)?{_ADVERB} (?:decided|agreed|chose) {_SIMPLE}",
        ),
        (
            "plans",
            rf"(?:[Ii]|[Ww]e)(?:['’](?:m|re)| am| are){_ADVERB} "
            r"(?P<value>(?:going to|planning|moving|flying|travel+ing) .+)",
        ),
        ("decided", r"[Ll]et['’]?s (?P<value>(?:use|go with|stick with|switch to) [^,;]+)\Z"),
    )
)


_ONCE: Final = frozenset(["moved_to", "born", "decided", "plans"])  # "now" may be its moment


class Slots(NamedTuple):
    """The subject of a sentence, and its statement about it."""

    subject: str
    relation: str
    value: str


def draft_statement(entry: Entry, sentence: Asserted) -> FactDraft:
    """Return the draft of a sentence without its introduction, or of two that belong together."""
    words, start = sentence.words, sentence.start
    core = words.text.rstrip()
    verb = find_verb(words)
    who = entry.speaker or _USER
    slots = Slots(*map(_plain, _slots(words, verb, entry.speaker or "user", who)))
    slots = slots._replace(value=without_since_now(slots.value, words.language))
    tense = _tense(words)
    since, until = find_validity(
        core, entry.observed_at, words.language, tense, verb[0] if verb else 0
    )
    text = _plain(_text(words, _named(who, words.language)))
    # "Never deploy on a Friday" applies to each.
    if not (orders(words) and names_weekdays_only(core, entry.observed_at, words.language)):
        text = annotate_dates(text, entry.observed_at, words.language, tense)
    text += "" if text.endswith((".'", '."', ".”")) else _stop(words.language)
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


def without_now(words: Words) -> Words:
    """Return a lasting statement about oneself without its "now": "I now like tea" stays true."""
    text = words.text.strip(_END_MARKS)
    if words.language != "english" or not any(
        pattern.match(text) for relation, pattern in _OWN if relation not in _ONCE
    ):
        return words
    phrases = "|".join(map(re.escape, sorted(lexicon(words.language).since_now, key=len)[::-1]))
    return Words.of(re.sub(rf"(?i),? \b(?:{phrases})\b", "", words.text), words.language)


def _plain(text: str) -> str:
    """Return a text without emphasis marks."""
    return _EMPHASIS.sub(r"\1", text)


# -- text ------------------------------------------------------------------------------------------


def _text(words: Words, who: str) -> str:
    """Return a sentence as one about its speaker, or in the speaker's own words if impossible."""
    core = words.text.strip(_STOPS)
    if orders(words):
        return _quoted(words.language, who, "asks", core)
    if not speaks_of_self(words) and words.words[:2] != ("let", "s"):
        return core[0].upper() + core[1:]
    if words.language == "english" and (rephrased := in_third_person(core, who)):
        return rephrased
    return _quoted(words.language, who, "says", core)


def _quoted(language: str, who: str, act: str, core: str) -> str:
    """Return somebody's statement or question as reported speech in the language."""
    verb = lexicon(language).speech_verbs.get(act, f"{act}:")
    return f"{who}{verb}{core}" if lexicon(language).unspaced else f"{who} {verb} {core}"


def _named(who: str, language: str) -> str:
    """Return the speaker, translated if it is the user."""
    nouns = lexicon(language).user_nouns
    if who != _USER or language == "english" or not nouns:
        return who
    first = nouns[0]
    return first.title() if language == "german" else first[0].upper() + first[1:]


def _stop(language: str) -> str:
    return "。" if lexicon(language).unspaced else "."


def _tense(words: Words) -> Tense | None:
    """Return whether a sentence is about the past or the future, if recognisable."""
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
            if token.text == "quit" or token.text in past - _UNCHANGED:
                return _told_tense(words)
            if len(token.text) > 4 and token.text.endswith("ed") and token.text[-3] != "e":
                return _told_tense(words)
        return "future"
    return "past" if _PAST_SIGNS.search(words.text) else "future"


def _told_tense(words: Words) -> Tense:
    """Return the tense that a past form implies: "moved to Friday" is about the future."""
    return "future" if _TO_DATE.search(words.text) else "past"


_UNCHANGED: Final = frozenset(["set", "put", "cut", "read", "hit", "let"])
_TO_DATE: Final = re.compile(
    r"(?i)\b(?:to|for|until|by) (?:the |next |early |late )?(?:\d{1,2}(?:st|nd|rd|th|[:.]\d\d| "
    r"?[ap]m)\b|(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b)"
)
_PAST_SIGNS: Final = re.compile(
    r"(?i)\b(?:gestern|letzte[nrs]?|vorgestern|seit|ayer|anteayer|pasad[oa]|hier|avant-hier|"
    r"derni(?:er|ère)|"
    r"depuis|desde)\b|昨天|前天|上周|上个月|去年|自从"
)


# -- slots -----------------------------------------------------------------------------------------


def _slots(words: Words, verb: tuple[int, int] | None, subject: str, who: str) -> Slots:
    """Return a sentence's subject, relation and value."""
    sentence = words.text.strip(_END_MARKS)
    if orders(words):
        if words.has_word("negations") or words.words[:1] == ("don",):
            return Slots(subject, "never", sentence)
        lasts = words.has("rule_cues") or is_standing_instruction(words.text)
        return Slots(subject, "always" if lasts else "asks", sentence)
    for relation, pattern in _OWN if words.language == "english" else ():
        if match := pattern.match(sentence):
            possession = match.groupdict().get("own")
            return Slots(
                f"{who}'s {possession}" if possession else subject, relation, match["value"]
            )
    if moved := _CHANGES.match(sentence):
        changed = _changed(moved)
        mine = moved["whose"] == "my"
        return changed._replace(subject=f"{who}'s {changed.subject}") if mine else changed
    if words.has("preference_cues") and speaks_of_self(words) and not _of_kin(words):
        return Slots(subject, "prefers", sentence)
    about = _subject(words, verb, subject, who)
    if verb is None or about == subject:
        return Slots(about, "did" if verb and is_past(words, verb) else "states", sentence)
    relation, value = _relation(words, verb)
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


def _subject(words: Words, verb: tuple[int, int] | None, subject: str, who: str) -> str:
    """Return the subject of a sentence without its article: the speaker, or a thing."""
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
    speaker = _OWN_UNSPACED.match(name)
    rest = name[speaker.end() :] if speaker else name
    kin = max(
        (w for w in lexicon(words.language).kin_words if rest.startswith(w)), key=len, default=""
    )
    if speaker and kin:
        return f"{who}'s {kin}"
    return subject if speaker and "的" not in speaker[0] else rest or subject


def _of_kin(words: Words) -> bool:
    """Return whether a sentence is about a relative or a pet of its speaker."""
    classes = lexicon(words.language)
    kin = classes.kinship | classes.kin_words
    if words.unspaced:
        return any(word in words.text[:12] for word in kin)
    return words.words[0] in classes.first_possessive and not kin.isdisjoint(words.words[1:5])


def _relation(words: Words, span: tuple[int, int]) -> tuple[str, str]:
    """Return the relation and the value of a sentence about a thing."""
    text = words.text.rstrip(_END_MARKS)
    begin, end = span
    verb, rest = text[begin:end], text[end:]
    called = words.find("called_verbs", begin)
    if called and (value := text[called[1] :].strip(_END_MARKS)):
        return "name", value
    if port := _PORT.search(text):
        return "runs_on_port", next(filter(None, port.groups()))
    if (path := _PATH.search(rest)) and _PLACED.search(text[: end + path.start()]):
        return "located_at", path["value"].rstrip(_END_MARKS)
    when = "" if _tense(words) == "past" else _when(words, text, end)
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
    if has_date(rest):
        return "states", text[begin:].strip(_END_MARKS)
    amount = _AMOUNT.match(rest) if verb.casefold() in lexicon(words.language).copulas else None
    if amount or (amount := _CHANGED_TO.search(rest)):
        return "amount", amount["value"].strip(_END_MARKS)
    return "states", text[begin:].strip(_END_MARKS)


def _is_end(words: Words, before: str) -> bool:
    """Return whether a word like "until" precedes a date."""
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
