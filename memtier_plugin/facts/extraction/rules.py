"""Extract facts from the words of users without a model.  Pure.

Only a user's own prose is read: no tainted entry, tool output, code, quotation, question, request
or hypothesis.  A fact is one sentence that is worth keeping (``worth.py``), in its speaker's words;
who speaks, or whether they are named, makes no difference to that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.core.settings.schema import Facts
from memtier_plugin.facts.extraction.frames import Asserted, find_asserted
from memtier_plugin.facts.extraction.introductions import find_introduction
from memtier_plugin.facts.extraction.reading import (
    asks_once,
    find_verb,
    holds,
    orders,
    points_back,
    speaks_of_self,
    without_lead,
)
from memtier_plugin.facts.extraction.statement_drafts import draft_statement, without_now
from memtier_plugin.retrieval.worth import amid, worth
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.phrases import Words
from memtier_plugin.text.speech import only_asks

MAX_PER_ENTRY: Final = 5
_MIN_LETTERS: Final = 4  # of a sentence without spaces between words
_MIN_WORDS: Final = 2
_MAX_CHARS: Final = 400
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
_LOOSE_MARK: Final = re.compile(r":(?:\s+\d+)?\Z|\A\d{1,2}:\d\d\s")  # of a list, of a transcript
_EVENTS: Final = frozenset(["did", "moved_to"])  # the same words may tell of another day
_JOINT: Final = re.compile(r"(?:,|;|,? (?:and|but)) (?=(?:I|we|my|our)\b(?! [^ ]+ly\b))")
_SURELY: Final = 1.5  # odds of what has no verb that is known
_FEW: Final = 4  # words of a part that stands alone

SINGLE_VALUED: Final = frozenset(Facts().single_valued)


@dataclass(frozen=True, slots=True)
class Extraction:
    """The extracted drafts, and how many statements were left out, by reason."""

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
    """Return why an entry is not read at all, or nothing."""
    if entry.role != "user" or entry.origin != "user":
        return "not_user"
    if entry.tainted:
        return "tainted"
    return "system" if entry.content.lstrip().startswith("[system]") else ""


def _drafts(entry: Entry, answered: bool, rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the drafts of one entry: introductions, and the sentences worth keeping.

    Args:
        answered: whether an assistant speaks in its session, which is about a task, then.
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
            for part in _parts(core):
                yield draft_statement(entry, part)


def _after(sentence: Asserted, introduction: FactDraft) -> Asserted:
    """Return what a sentence says of its speaker after their name; all where it goes on in it."""
    _, end = introduction.span or (0, 0)
    rest = sentence.words.text[end - sentence.start :]
    start = sentence.end - len(rest.lstrip(_MARKS + " "))
    words = without_lead(Words.of(rest.strip(_MARKS + " "), sentence.words.language))[0]
    own = lexicon(words.language).first_person
    if words.text and own.isdisjoint(words.words[:1]):
        return sentence
    return Asserted(start, sentence.end, Words.of(rest.lstrip(_MARKS + " "), words.language))


def _without_question(words: Words) -> Words:
    """Return a sentence without the question that it ends in: "We use Vue, can you ...?"."""
    asking = _ASKING.search(words.text)
    return Words.of(words.text[: asking.start()], words.language) if asking else words


def _unfit_reason(words: Words) -> str:
    """Return why a sentence cannot be a fact whatever it says, or nothing."""
    text = words.text.strip(_MARKS)
    if len(words.text) > _MAX_CHARS or not lexicon(words.language).definite:
        return "long" if len(words.text) > _MAX_CHARS else "language"
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
    """Tell whether it is a part of a sentence, by its end or by its brackets."""
    text = words.text.rstrip(" .!。！")
    if any(text.count(left) != text.count(right) for left, right in _PAIRS):
        return True
    last = text.split()[-1:]  # not "sign-on"
    ends = not lexicon(words.language).loose_ends.isdisjoint(last)
    return ends or bool(_LOOSE_MARK.search(text)) or text.count('"') % 2 == 1


def _states(words: Words) -> bool:
    """Tell whether a sentence says or orders something, and is no title and no piece of work."""
    if orders(words) or speaks_of_self(words):
        return words.opens("task_verbs") is None
    return find_verb(words) is not None or worth(words) > _SURELY


def _needs(words: Words, before: Words) -> bool:
    """Tell whether a sentence is only understood with the one before it.

    It is about what that names, or it says what to do where that says what not to do.
    """
    if points_back(words):
        return not _QUESTIONS.search(before.text)
    return orders(before) and before.has_word("negations") and orders(words)


def _contrasts(words: Words) -> bool:
    """Tell whether a sentence says what a thing is and what it is not: "It's npm, not yarn"."""
    return words.has_word("negations") and len(words.words) > _FEW


def _parts(sentence: Asserted) -> Iterator[Asserted]:
    """Yield the statements of oneself that one sentence joins: "I live in Porto and I ..."."""
    words, start = sentence.words, 0
    joints = _JOINT.finditer(words.text) if words.language == "english" else ()
    for joint in joints:
        left, right = words.text[start : joint.start()], words.text[joint.end() :]
        if min(len(left.split()), len(right.split())) > _FEW and left[:3].strip() in _SELF:
            yield _part(sentence, start, joint.start())
            start = joint.end()
    yield _part(sentence, start, len(words.text)) if start else sentence


_SELF: Final = frozenset(["I", "We", "we", "My", "my", "Our", "our", "I'm", "I’m"])


def _part(sentence: Asserted, start: int, end: int) -> Asserted:
    words = Words.of(sentence.words.text[start:end], sentence.words.language)
    return Asserted(sentence.start + start, sentence.start + end, words)
