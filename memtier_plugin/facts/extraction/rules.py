"""Extract facts from the words of users by rules: no model, precise rather than broad.  Pure.

Only a user's own prose is read: no tainted entry, tool output, code, quotation, question, request
or hypothesis. Each rule matches one clause from its start, so that a fact quotes exactly what was
said. The relations and their rules stand in ``pattern_table.py``.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.core.settings.schema import Facts
from memtier_plugin.facts.extraction.clauses import find_clauses
from memtier_plugin.facts.extraction.durable import read_statement
from memtier_plugin.facts.extraction.frames import Asserted, find_asserted
from memtier_plugin.facts.extraction.introductions import find_introduction
from memtier_plugin.facts.extraction.patterns import Rule, candidate_rules
from memtier_plugin.facts.extraction.references import (
    TRAILING_FILLER,
    UNRESOLVED,
    explain_unclear,
    trim_to_self_contained,
)
from memtier_plugin.facts.extraction.rephrase import rephrase_in_third_person, to_third_person
from memtier_plugin.facts.extraction.statement_drafts import draft_statement, is_rephrased
from memtier_plugin.facts.extraction.vocabulary import KIN, SPAN
from memtier_plugin.text.dates.annotate import annotate_dates, has_date
from memtier_plugin.text.dates.validity import Tense, find_validity, names_weekdays_only
from memtier_plugin.text.languages import iter_sentence_spans
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.phrases import Words, without_since_now

MAX_PER_ENTRY: Final = 5
_FEW: Final = 3  # sentences of a message that is about what they state
_REMARKS: Final = frozenset(["attribute", "change"])
_DOING: Final = frozenset(["plans", "does", "considers", "wants"])
_COVERED: Final = 0.8  # of a sentence's words that say all of it
_MARKS: Final = ".,;:!?\"'()“”’`"

SINGLE_VALUED: Final = frozenset(Facts().single_valued)


@dataclass(frozen=True, slots=True)
class Extraction:
    """The extracted drafts, and how many statements were left out, by reason."""

    drafts: tuple[FactDraft, ...]
    rejected: Mapping[str, int]


_UNSURE: Final = re.compile(
    r"\b(?:if|unless|suppose|imagine|maybe|perhaps|probably|might|would|could|should|wish|whether|"
    r"wonder\w*|hypothetical\w*|not sure|guess|assuming|thinking (?:of|about)|considering|hope|"
    r"hoping|dream of|supposed to|pretend|for example|e\.g|almost|nearly)\b|\w['’]d\b",
    re.IGNORECASE,
)
_VOCATIVE: Final = re.compile(r", [A-Z][a-z]+[.!\s]*\Z")
_TASK: Final = re.compile(
    r"wants |does (?:looking (?:for|to|into)|working (?:on|with)|focusing|finali[sz]ing|exploring|"
    r"targeting|updating|starting|getting|applying|considering|integrating|aiming|tracking|"
    r"advancing)\b|did (?:added|implemented|integrated|configured|set up|enabled|estimated|updated|"
    r"improved|achieved|reduced|increased|reached|installed|deployed|completed|created|designed|"
    r"built|spent|made|come)\b"
)
_STANDING: Final = frozenset(["always", "never"])
_TIMELESS: Final = frozenset(["name", "birthday", "born"])
_IN_FUTURE: Final = {"did": False, "plans": True, "scheduled_for": True}
_PAST: Final = frozenset(["did", "decided", "moved_to", "used_to"])
_EVENTS: Final = frozenset(["did", "plans", "considers", "has", "scheduled_for"])
_PLACES: Final = frozenset(["lives_in", "moved_to", "from", "born"])
_ENGLISH: Final = lexicon("english")
_FUNCTION: Final = _ENGLISH.stop_words | _ENGLISH.first_person | _ENGLISH.first_possessive
_CALENDAR: Final = "|".join(
    name[:3].title() for name in (*_ENGLISH.month_names, *_ENGLISH.weekday_names)
)
_CALLED: Final = re.compile(
    rf"\b(?:(?:[Mm]y|[Oo]ur) (?P<own>{KIN}),? |(?:an?|[Mm]y|[Oo]ur) (?P<other>{KIN}),? (?:named|"
    rf"called) )(?P<name>(?!(?:I|God|Day|Christmas|Easter|{_CALENDAR})[a-z]*\b)[A-Z][a-z]+)\b"
)
_TIMED: Final = re.compile(rf"(?i)(?:{SPAN}|in (?:19|20)\d\d)")
_LAST_TALK: Final = re.compile(
    r"(?i)\b(?:talk\w*|chat\w*|spoke|spoken|convers\w*|caught up|met up)\b"
)


def extract_facts(entries: Sequence[Entry], single_valued: Collection[str] = ()) -> Extraction:
    """Extract drafts from the users' own entries, in the entries' order.

    A repeated statement adds its source to the first draft. For a ``single_valued`` relation it
    does so only while no other value was stated in between: a return to an old value is a change.
    """
    drafts: list[FactDraft] = []
    indexes: dict[tuple[str, str, str], int] = {}
    current: dict[tuple[str, str], tuple[str, str, str]] = {}
    rejected: Counter[str] = Counter()
    for entry in entries:
        if reason := _skip_reason(entry):
            rejected[reason] += 1
            continue
        count = 0
        for draft in _drafts(entry, rejected):
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


def _drafts(entry: Entry, rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the drafts of one entry: whole statements, or the clauses that say all of them."""
    sentences = find_asserted(entry.content)
    clauses = [*_clause_drafts(entry, sentences, rejected)]
    spans = [draft.span[0] for draft in clauses if draft.span]
    first = 0
    in_passing = sum(1 for _ in islice(iter_sentence_spans(entry.content), _FEW + 1)) > _FEW
    for sentence in sentences:
        if introduction := find_introduction(entry, sentence.start, sentence.end):
            yield introduction
            _, name_end = introduction.span or (0, 0)
            if not entry.content[name_end : sentence.end].strip(f"{_MARKS} 。！"):
                continue
        first = bisect_left(spans, sentence.start)
        inside = clauses[first : bisect_left(spans, sentence.end)]
        durable = read_statement(
            sentence.words, among_people=entry.speaker is not None, in_passing=in_passing
        )
        if durable is None or _say_all(inside, _VOCATIVE.sub("", durable.words.text)):
            yield from inside
        else:
            statement = draft_statement(entry, sentence, durable)
            if durable.act in _REMARKS and not is_rephrased(statement, durable):
                continue
            yield _with_slots(statement, inside) if len(inside) == 1 else statement


def _with_slots(statement: FactDraft, drafts: Sequence[FactDraft]) -> FactDraft:
    """Return a whole statement with what the rule of its only clause makes of it."""
    [draft] = drafts
    fits = statement.relation == "states" and draft.relation != "has"
    if not fits or draft.value not in statement.quote:
        return statement
    return replace(statement, subject=draft.subject, relation=draft.relation, value=draft.value)


def _say_all(drafts: Sequence[FactDraft], sentence: str) -> bool:
    """Tell whether drafts of clauses say, between them, nearly all that their sentence does."""
    quotes = " ".join(draft.quote for draft in drafts).casefold().split()
    stated = {word.strip(_MARKS) for word in quotes}
    words = [word.strip(_MARKS) for word in sentence.casefold().split()]
    content = [word for word in words if word and word not in _FUNCTION]
    return bool(drafts) and sum(word in stated for word in content) >= _COVERED * len(content)


def _clause_drafts(
    entry: Entry, sentences: Sequence[Asserted], rejected: Counter[str]
) -> Iterator[FactDraft]:
    """Yield the drafts of clauses in these sentences, and of the names in them."""
    starts = [sentence.start for sentence in sentences]
    for front, start, end in find_clauses(entry.content, rejected):
        index = bisect_right(starts, start) - 1
        if index < 0 or start >= sentences[index].end:
            rejected["not asserted"] += 1
            continue
        clause = entry.content[start:end]
        unsure = bool(_UNSURE.search(clause))
        timed = front < start and bool(_TIMED.match(entry.content, front, start))
        for rule in candidate_rules(clause, unsure=unsure, after_time=timed):
            if match := rule.pattern.match(clause):
                draft = _draft(entry, rule, match, front, start)
                if isinstance(draft, FactDraft):
                    yield draft
                else:
                    rejected[draft] += 1
                break
        else:
            rejected["hypothetical" if unsure else "no rule"] += 1
        for match in _CALLED.finditer(clause):
            yield _called(entry, match, start)


def _called(entry: Entry, match: re.Match[str], offset: int) -> FactDraft:
    """Return the draft of somebody named in passing: "my sister Eve"."""
    who, start, end = entry.speaker or "The user", offset + match.start(), offset + match.end()
    own = match["own"] or match["other"]
    return FactDraft(
        subject=entry.speaker or "user",
        relation="has",
        value=match[0],
        text=f"{who} has {'an' if own[0] in 'aeiou' else 'a'} {own} called {match['name']}.",
        sources=(entry.source,),
        quote=match[0],
        span=(start, end),
        valid_from=entry.observed_at,
    )


def _draft(
    entry: Entry, rule: Rule, match: re.Match[str], front: int, offset: int
) -> FactDraft | str:
    """Return the draft of a match, or the reason against it.

    Args:
        front: where a time or a place before the clause begins: "Last Friday, I went ...".
        offset: where the clause begins.
    """
    groups, relation = match.groupdict(), rule.relation
    value = _value(entry, relation, match)
    if reason := _refusal(entry, relation, groups, value):
        return reason
    subject, who = entry.speaker or "user", entry.speaker or "The user"
    if groups.get("own"):
        subject = f"{who}'s {groups['own']}"
    elif groups.get("thing"):
        subject = groups["thing"]
    content, start = entry.content, offset
    end = offset + match.start("value") + len(value)
    if groups.get("mine"):
        end = offset + len(match[0].rstrip(" .,!;"))
    text = rephrase_in_third_person(relation, match, content[start:end], value, who)
    if front < offset and not _LAST_TALK.search(content, front, offset):
        before = content[front:offset].rstrip(" ,")
        if UNRESOLVED.search(before):
            return "vague"
        text, start = f"{text} {before[0].lower()}{to_third_person(before[1:])}", front
    standing = relation in _STANDING and names_weekdays_only(text, entry.observed_at, "english")
    if relation not in _TIMELESS and not standing:
        text = annotate_dates(text, entry.observed_at, future=_IN_FUTURE.get(relation))
    future = _IN_FUTURE.get(relation, relation not in _PAST)
    tense: Tense = "future" if future else "past"
    since, until = find_validity(
        content[start : offset + len(match.string)], entry.observed_at, "english", tense
    )
    return FactDraft(
        subject=subject,
        relation=relation,
        value=without_since_now(value, "english"),
        text=f"{text}.",
        sources=(entry.source,),
        quote=content[start:end],
        span=(start, end),
        valid_from=since or entry.observed_at,
        valid_to=until,
    )


def _is_ordered(relation: str, groups: Mapping[str, str | None]) -> bool:
    """Check whether a statement is an instruction: without a subject of its own."""
    has_subject = groups.get("i") is not None or groups.keys() & {"own", "thing"}
    return relation == "remember" or not has_subject


def _value(entry: Entry, relation: str, match: re.Match[str]) -> str:
    """Return the stated value, without names addressed and without unresolved references."""
    value = match["value"].rstrip()
    if entry.speaker and relation not in _PLACES:
        value = _VOCATIVE.sub("", value)
    if _is_ordered(relation, match.groupdict()):
        return TRAILING_FILLER.sub("", value)
    return trim_to_self_contained(value)


def _refusal(entry: Entry, relation: str, groups: Mapping[str, str | None], value: str) -> str:
    """Return why a statement is no fact, or an empty string."""
    about_self = groups.get("i") is not None
    if entry.speaker and relation in ("always", "never", "remember") and not about_self:
        return "not told of oneself"  # people who talk to each other give advice, not instructions
    if reason := explain_unclear(relation, value, _is_ordered(relation, groups)):
        return reason
    doing = _TASK.match(f"{relation} {value}") or (
        relation in _DOING and Words.of(value, "english").has("moment_cues")
    )
    if not entry.speaker and doing and not has_date(value):
        return "task"  # said to an assistant, it is about the answer or the work of the moment
    if relation == "did" and groups.get("have") and value.startswith("got "):
        return "vague"  # "I've got" states a possession, not an act
    return ""
