"""Extract facts from users' words without a model: statements, names, requests to remember."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.sentences import (
    Asserted,
    asks_once,
    find_asserted,
    find_verb,
    holds,
    orders,
    points_back,
    read_words,
    speaks_of_self,
    without_lead,
)
from memtier_plugin.facts.extraction.statement_drafts import draft_statement, without_now
from memtier_plugin.retrieval.duplicates import DENIES
from memtier_plugin.retrieval.worth import amid, worth
from memtier_plugin.text.dates.spans import find_validity
from memtier_plugin.text.lexicon import common_words, lexicon, lexicons
from memtier_plugin.text.phrases import Words, only_asks

# -- Find the names by which people introduce themselves: "Hi, I'm Jonas", "me llamo Ana".  Pure
#
# A phrase used only with names ("my name is") suffices anywhere.  "I'm" and "this is" have other
# uses too, so they need a greeting before them, or must form the whole sentence with a name that is
# no word for a trade or a nation.

_FUNCTION: Final = common_words("english") | lexicon("english").stop_words | {"same", "me", "right"}
_MAX_CHARS: Final = 200  # of a sentence
_NAME: Final = r"(?P<name>\p{Lu}[\p{Ll}\p{M}]+(?:[ -]\p{Lu}[\p{Ll}\p{M}]+){0,2})"
_JOINS: Final = r"\b(?:from|and|here|again|und|aus|vom|von|y|de|del|et|du)\b"
_END: Final = rf"(?=\s*(?:[.,!;:)–—-]|$|{_JOINS}))"
_NAMING: Final = (
    r"(?:\b(?:[Mm]y (?:full )?name(?: is|['’]s)|[Ii]['’]m called|[Ii] go by|[Ii]ch hei(?:ß|ss)e|"
    r"[Mm]ein Name ist|(?:[Yy]o )?[Mm]e llamo|[Mm]i nombre es|[Jj]e m['’]appelle|"
    r"[Mm]on (?:pré)?nom est)|(?i:^(?:(?:please|just|everybody calls me|you can|bitte) )*"
    r"(?:call me|nenn(?:t)? mich|ll[aá]m[ae]me|appelle[sz]?-moi)))\s+"
)
_CHINESE: Final = (
    r"(?:我(?:的名字)?(?:叫做?|名叫)|叫我)(?P<name>\p{Han}{2,4}?)(?=就|吧|[，。！,.!\s]|$)"
)
_BEING: Final = r"(?:[Ii]['’]m|[Ii] am|[Tt]his is|[Ii]ch bin(?: der| die)?|[Ss]oy|[Jj]e suis)\s+"
_HERE: Final = r"\s+(?:here|speaking|hier|am Apparat|por aquí|à l['’]appareil)\b"
# Endings of words for nations, beliefs and trades, which English capitalises like names.
_TRAIT: Final = regex.compile(r"(?:ish|ese|[aei]an|man|ch|ic|ist|ite|im|ais|aise|ois|ien|ienne)$")


def find_introduction(entry: Entry, start: int, end: int) -> FactDraft | None:
    """Return a draft of the speaker's name if a sentence of an entry states it."""
    sentence = entry.content[start:end][:_MAX_CHARS]
    match = _naming().match(sentence) or _greeted().match(sentence) or _alone(sentence)
    if match is None or sentence.rstrip().endswith(("?", "？")):
        return None
    if match["name"].casefold() in _FUNCTION:  # "Same here!"
        return None
    return FactDraft(
        subject=entry.speaker or "user",
        relation="name",
        value=match["name"],
        text=f"{entry.speaker or 'The user'}'s name is {match['name']}.",
        sources=(entry.source,),
        quote=match[0],
        span=(start + match.start(), start + match.end()),
        valid_from=entry.observed_at,
    )


def _alone(content: str) -> regex.Match[str] | None:
    """Match a sentence that says little more than "I'm Jonas"; German nouns look like names."""
    match = _bare().match(content)
    return None if match is None or _TRAIT.search(match["name"]) else match


@cache
def _greeting() -> str:
    greetings = {phrase for words in lexicons() for phrase in words.greetings}
    longest_first = sorted(greetings, key=lambda phrase: (-len(phrase), phrase))
    phrases = "|".join(map(regex.escape, longest_first))
    return rf"(?i:{phrases})\b[^.?!\n]{{0,20}}?[,.!]?\s*"


@cache
def _naming() -> regex.Pattern[str]:
    opening = r"(?:[^\"'“”‘«„:]{0,40}?(?:[,;，]\s*|\b(?:and|und|y|et)\s+))?"
    return regex.compile(rf"{opening}(?:{_NAMING}{_NAME}{_END}|{_CHINESE})")


@cache
def _greeted() -> regex.Pattern[str]:
    return regex.compile(
        rf"{_greeting()}(?:{_BEING}{_NAME}{_END}|{_NAME}{_HERE})|\s*{_NAME}{_HERE}(?=\s*(?:[.,!;:–—-]|$))"
    )


@cache
def _bare() -> regex.Pattern[str]:
    being = _BEING.replace("|[Ii]ch bin(?: der| die)?", "").replace("|[Tt]his is", "")
    opening = r"(?:[Tt]his is|[Ii]['’]m|[Ii] am)\s+"
    return regex.compile(
        rf"\s*(?:{being}{_NAME}(?:, by the way|, btw)?[.!\s]*$|{opening}{_NAME}"
        r"(?:,? (?:from|and I)\b))"
    )


# -- Extract facts from the words of users without a model.  Pure
#
# Only a user's own prose is read: no tainted entry, tool output, code, quotation, question, request
# or hypothesis.  A fact is one sentence worth keeping (``worth.py``), in its speaker's words,
# whoever speaks and whether or not they are named.

MAX_PER_ENTRY: Final = 5
_MIN_LETTERS: Final = 4  # letters in a sentence without spaces between words
_MIN_WORDS: Final = 2
_MAX_SENTENCE_CHARS: Final = 400
_QUESTIONS: Final = re.compile(
    r"[?？]|吗|呢[。！]?\Z|什么|哪[里个些儿]|谁|怎么|如何|为什么|几点|是否|多少|要不要|能不能|是不是"
)
_ASKING: Final = re.compile(
    r"(?i)(?:[,;–-]|\b(?:and|so|but|und|y|et)\b)\s+(?=(?:can|could|would|will|do|does|did|is|are|how|"
    r"what|why|which|where|when|who|should|kannst|könntest|wie|was|puedes|cómo|qué|peux-tu|comment)"
    r"\b[^?]*\?\s*\Z)"
)
_MARKS: Final = ".,;:!?\"'()“”’` 。！"
_PAIRS: Final = (("(", ")"), ("[", "]"), ("“", "”"), ("「", "」"), ("«", "»"))
_LOOSE_MARK: Final = re.compile(r":(?:\s+\d+)?\Z|\A\d{1,2}:\d\d\s")  # of a list or a transcript
_EVENTS: Final = frozenset(["did", "moved_to"])  # the same words may report another day
_SURELY: Final = 1.5  # odds for a sentence without a known verb
_FEW: Final = 4  # words in a fragment that stands alone


@dataclass(frozen=True, slots=True)
class Extraction:
    """The extracted drafts, and how many statements were skipped, by reason."""

    drafts: tuple[FactDraft, ...]
    rejected: Mapping[str, int]


def extract_facts(entries: Sequence[Entry], single_valued: Collection[str] = ()) -> Extraction:
    """Extract drafts from the users' own entries, in the entries' order.

    A repeated statement adds its source to the first draft. For a ``single_valued`` relation it
    does so only while no other value was stated in between: a return to an old value is a change.
    """
    drafts: list[FactDraft] = []
    indexes: dict[tuple[str, str, str], int] = {}
    current: dict[tuple[str, str], tuple[str, str, str]] = {}
    rejected: Counter[str] = Counter()
    answered = {entry.session_id for entry in entries if entry.role == "assistant"}
    for entry in entries:
        if reason := _skip_reason(entry):
            rejected[reason] += 1
            continue
        count = 0
        for draft in _drafts(entry, entry.session_id in answered, rejected):
            slot = (draft.subject.casefold(), draft.relation)
            # "last week" means another week each time: an event is the same by its annotated text.
            same = draft.text if draft.relation in _EVENTS else draft.value
            key = (*slot, " ".join(same.casefold().split()))
            if (index := indexes.get(key)) is not None:
                drafts[index] = _with_sources(drafts[index], draft)
                rejected["duplicate"] += 1
            elif count == MAX_PER_ENTRY:
                rejected["cap"] += 1
            else:
                if draft.relation in single_valued:
                    indexes.pop(current.get(slot, key), None)
                    current[slot] = key
                indexes[key] = len(drafts)
                drafts.append(draft)
                count += 1
    return Extraction(tuple(drafts), dict(rejected))


def _with_sources(draft: FactDraft, repeated: FactDraft) -> FactDraft:
    new = [source for source in repeated.sources if source not in draft.sources]
    return replace(draft, sources=(*draft.sources, *new))


def _skip_reason(entry: Entry) -> str:
    """Return why an entry is skipped, or an empty string."""
    if entry.role != "user" or entry.origin != "user":
        return "not_user"
    if entry.tainted:
        return "tainted"
    return "system" if entry.content.lstrip().startswith("[system]") else ""


def _drafts(entry: Entry, answered: bool, rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the drafts of one entry: introductions, and the sentences worth keeping.

    Args:
        answered: whether an assistant speaks in its session, which is then about a task.
    """
    before: Asserted | None = None
    sentences = find_asserted(entry.content)
    for sentence in sentences:
        if introduction := find_introduction(entry, sentence.start, sentence.end):
            yield introduction
            sentence = _after(sentence, introduction)
            if not sentence.words.text:
                continue
        words, offset = without_lead(_without_question(sentence.words))
        start = sentence.start + offset
        core = Asserted(start, start + len(words.text), words)
        earlier, before = before, core
        paired = earlier and _needs(words, earlier.words) and not points_back(earlier.words)
        if reason := _unfit_reason(words):
            rejected[reason] += 1
        elif asks_once(words):
            rejected["request"] += 1
        elif answered and not _states(words):
            rejected["fragment"] += 1
        elif worth(without_now(_without_question(sentence.words))) <= 0:
            rejected["not worth keeping"] += 1
        elif (
            len(sentences) > 1
            and (answered or not paired or len(sentences) > 2)
            and not (orders(words) and holds(words))
            and amid(words, len(sentences) - 1) <= 0
        ):
            rejected["in passing"] += 1
        elif earlier and paired:
            joined = entry.content[earlier.start : core.end]
            yield draft_statement(
                entry, Asserted(earlier.start, core.end, Words.of(joined, words.language))
            )
        elif points_back(words) and not _contrasts(words):
            rejected["vague"] += 1
        else:
            yield draft_statement(entry, core)


def _after(sentence: Asserted, introduction: FactDraft) -> Asserted:
    """Return the part of a sentence after the speaker's name; all if the name is longer."""
    _, end = introduction.span or (0, 0)
    rest = sentence.words.text[end - sentence.start :]
    start = sentence.end - len(rest.lstrip(_MARKS + " "))
    words = without_lead(Words.of(rest.strip(_MARKS + " "), sentence.words.language))[0]
    pronouns = lexicon(words.language).first_person
    if words.text and pronouns.isdisjoint(words.words[:1]):
        return sentence
    return Asserted(start, sentence.end, Words.of(rest.lstrip(_MARKS + " "), words.language))


def _without_question(words: Words) -> Words:
    """Return a sentence without the question at its end: "We use Vue, can you ...?"."""
    asking = _ASKING.search(words.text)
    return Words.of(words.text[: asking.start()], words.language) if asking else words


def _unfit_reason(words: Words) -> str:
    """Return why a sentence cannot be a fact, or an empty string."""
    text = words.text.strip(_MARKS)
    if len(words.text) > _MAX_SENTENCE_CHARS or not lexicon(words.language).definite:
        return "long" if len(words.text) > _MAX_SENTENCE_CHARS else "language"
    if _QUESTIONS.search(words.text) or only_asks(words.text):
        return "question"
    supposes = not lexicon(words.language).conditionals.isdisjoint(words.words[:1])
    if supposes or words.has("doubt_cues"):
        return "hypothetical"
    if _is_cut_off(words):
        return "cut off"
    short = len(text) < _MIN_LETTERS if words.unspaced else len(words.words) < _MIN_WORDS
    return "short" if short else ""


def _is_cut_off(words: Words) -> bool:
    """Return whether it is a fragment, judging by its end or its brackets."""
    text = words.text.rstrip(" .!。！")
    if any(text.count(left) != text.count(right) for left, right in _PAIRS):
        return True
    last = text.split()[-1:]  # not "sign-on"
    ends = not lexicon(words.language).loose_ends.isdisjoint(last)
    return ends or bool(_LOOSE_MARK.search(text)) or text.count('"') % 2 == 1


def _states(words: Words) -> bool:
    """Return whether a sentence states or orders something, and is not a title or an artefact."""
    if orders(words) or speaks_of_self(words):
        return words.opens("task_verbs") is None
    return find_verb(words) is not None or worth(words) > _SURELY


def _needs(words: Words, before: Words) -> bool:
    """Return whether a sentence is only understood with the previous one.

    It is about something named there, or says what to do where that says what not to do.
    """
    if points_back(words):
        return not _QUESTIONS.search(before.text)
    return orders(before) and before.has_word("negations") and orders(words)


def _contrasts(words: Words) -> bool:
    """Return whether a sentence says what something is and is not: "It's npm, not yarn"."""
    return words.has_word("negations") and len(words.words) > _FEW


# -- Make a fact of a text that somebody asks to remember: verbatim, parsed like a statement
#
# Pure.

EXTRACTOR: Final = "remember"
_COVERED: Final = 0.8  # of the text's characters that a parsed statement quotes


def draft_kept(entry: Entry) -> FactDraft:
    """Return the draft of an entry that somebody asked to remember.

    Its text is the entry's.  If that is one statement, it gets the statement's subject, relation,
    value and validity, so that it supersedes, and is superseded, like any other.
    """
    content = entry.content
    since, until = find_validity(content, entry.observed_at, read_words(content).language, None)
    draft = FactDraft(
        subject="user",
        relation=EXTRACTOR,
        value=content,
        text=content,
        sources=(entry.source,),
        quote=content,
        span=(0, len(content)),
        extractor=EXTRACTOR,
        confidence=1.0,
        origin=entry.origin,
        valid_from=since or entry.observed_at,
        valid_to=until,
    )
    own_words = replace(entry, role="user", origin="user", tainted=False, speaker=None)
    stated = extract_facts([own_words]).drafts
    if len(stated) != 1 or len(stated[0].quote) < _COVERED * len(content.strip()):
        return draft
    [parsed] = stated
    return replace(
        draft,
        subject=parsed.subject,
        relation=parsed.relation,
        value=parsed.value,
        valid_from=parsed.valid_from,
        valid_to=parsed.valid_to,
    )


# -- Find the sentences by which a user retracts something without a new value.  Pure
#
# "I no longer have a dog" adds no fact, but ends one (Mem-T, 3.1: DELETE).  Such a sentence becomes
# a draft with the relation `DENIES`, which is never stored as a fact: the writer retracts the facts
# that it denies (`evolution.denies`).  English.

_DENIAL_CHARS: Final = 160  # in a sentence; a longer one says more than that
_DENIES: Final = regex.compile(
    r"(?i)\b(?:not|never|no longer|no more|\w+n['’]t|isn|gave up|given up|stopped|quit)\b"
)
_DENIAL_LEAD: Final = regex.compile(
    r"(?i)\A(?:(?:strike that|scratch that|that['’]s (?:wrong|not right|not true)|correction|no|"
    r"actually|sorry|wait|well|by the way|(?:it )?turn(?:s|ed) out(?: that)?|i was wrong)\b"
    r"[\s,:;.–-]*)+"
)
_DOUBTED: Final = regex.compile(
    r"(?i)\?\s*\Z|\b(?:if|unless|maybe|perhaps|might|would|could|should|whether|sure|think|today|"
    r"tonight|yet|right now|at the moment|always|only|just|because|when|until|so|let['’]?s)\b"
)
_DENIED_THING: Final = regex.compile(
    r"(?i)\A(?:the |our |my )?(?P<thing>[\w' -]{2,60}?) (?:is|are|was|were|has|have|does|do|"
    r"no longer|never|\w+n['’]t)\b"
)
_OF_SPEAKER: Final = regex.compile(r"(?i)\A(?:I|we|my|our)\b")
_OTHERS: Final = regex.compile(r"(?i)\b(?:you|your|it|this|these|those|they|he|she)\b")


def find_denials(entry: Entry) -> Iterator[FactDraft]:
    """Yield the denials in a user's own words."""
    if entry.role != "user" or entry.origin != "user" or entry.tainted:
        return
    for sentence in find_asserted(entry.content):
        text = entry.content[sentence.start : sentence.end]
        if sentence.words.language != "english" or len(text) > _DENIAL_CHARS:
            continue
        lead = _DENIAL_LEAD.match(text)
        start = sentence.start + (lead.end() if lead else 0)
        core = entry.content[start : sentence.end].rstrip()
        if not _DENIES.search(core) or _DOUBTED.search(core) or _OTHERS.search(core):
            continue
        yield FactDraft(
            subject=_denied_subject(core, entry.speaker),
            relation=DENIES,
            value=core,
            text=core,
            sources=(entry.source,),
            quote=core,
            span=(start, start + len(core)),
            valid_from=entry.observed_at,
        )


def _denied_subject(sentence: str, speaker: str | None) -> str:
    """Return the subject of a sentence: its speaker, or the first thing it names."""
    thing = None if _OF_SPEAKER.match(sentence) else _DENIED_THING.match(sentence)
    return thing["thing"] if thing else speaker or "user"
