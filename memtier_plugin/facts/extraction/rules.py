"""Extract facts from the words of users by rules: no model, precise rather than broad.  Pure.

Only a user's own prose is read: no tainted entry, tool output, code, quotation, question, request
or hypothesis. Each rule matches one clause from its start, so that a fact quotes exactly what was
said. The relations and their rules stand in ``pattern_table.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_plugin.core.records import Entry, FactDraft, Source
from memtier_plugin.facts.extraction.clauses import find_clauses
from memtier_plugin.facts.extraction.patterns import Rule, candidate_rules
from memtier_plugin.facts.extraction.references import (
    TRAILING_FILLER,
    UNRESOLVED,
    explain_unclear,
    trim_to_self_contained,
)
from memtier_plugin.facts.extraction.rephrase import rephrase_in_third_person, to_third_person
from memtier_plugin.facts.extraction.vocabulary import KIN
from memtier_plugin.text.dates.annotate import annotate_dates, has_date
from memtier_plugin.text.lexicon import lexicon

MAX_PER_ENTRY: Final = 5

SINGLE_VALUED: Final = frozenset(
    {
        *("name", "lives_in", "works_at", "birthday", "age", "favorite"),
        *("version_of", "runs_on_port", "located_at", "scheduled_for"),
    }
)


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
_TIMELESS: Final = frozenset(["name", "birthday", "born"])
_IN_FUTURE: Final = {"did": False, "plans": True, "scheduled_for": True}
_EVENTS: Final = frozenset(["did", "plans", "considers", "has", "scheduled_for"])
_PLACES: Final = frozenset(["lives_in", "moved_to", "from", "born"])
_ENGLISH: Final = lexicon("english")
_CALENDAR: Final = "|".join(
    name[:3].title() for name in (*_ENGLISH.month_names, *_ENGLISH.weekday_names)
)
_CALLED: Final = re.compile(
    rf"\b(?:(?:[Mm]y|[Oo]ur) (?P<own>{KIN}),? |(?:an?|[Mm]y|[Oo]ur) (?P<other>{KIN}),? (?:named|"
    rf"called) )(?P<name>(?!(?:I|God|Day|Christmas|Easter|{_CALENDAR})[a-z]*\b)[A-Z][a-z]+)\b"
)
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
    """Yield the drafts of one entry: at most one per clause, and the names in it."""
    for front, start, end in find_clauses(entry.content, rejected):
        clause = entry.content[start:end]
        unsure = bool(_UNSURE.search(clause))
        for rule in candidate_rules(clause, unsure=unsure):
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
        sources=(Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id),),
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
    if relation not in _TIMELESS:
        text = annotate_dates(text, entry.observed_at, future=_IN_FUTURE.get(relation))
    return FactDraft(
        subject=subject,
        relation=relation,
        value=value,
        text=f"{text}.",
        sources=(Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id),),
        quote=content[start:end],
        span=(start, end),
        valid_from=entry.observed_at,
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
    """Return why a statement makes no fact, or nothing."""
    about_self = groups.get("i") is not None
    if entry.speaker and relation in ("always", "never", "remember") and not about_self:
        return "not told of oneself"  # people who talk to each other give advice, not instructions
    if reason := explain_unclear(relation, value, _is_ordered(relation, groups)):
        return reason
    if not entry.speaker and _TASK.match(f"{relation} {value}") and not has_date(value):
        return "task"  # said to an assistant, it is about the answer or the work of the moment
    if relation == "did" and groups.get("have") and value.startswith("got "):
        return "vague"  # "I've got" states a possession, not an act
    return ""
