"""Facts from what users say, by rules: no model, precise rather than broad (seeds 1.6).

Only the user's own prose is read: no tainted entry, no tool output, no code, quotation, question,
request or hypothesis. Each rule matches one clause from its start, so that what a
fact quotes is exactly what was said. The relations and their rules stand in ``statements.py``, how
a fact is worded in ``wording.py``.
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

MAX_PER_ENTRY: Final = 5

SINGLE_VALUED: Final = frozenset(
    {
        *("name", "lives_in", "works_at", "birthday", "age", "favorite"),
        *("version_of", "runs_on_port", "located_at", "scheduled_for"),
    }
)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found, and how often something was left out, by reason."""

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
    r"wants |does (?:looking (?:for|to|into)|working (?:on|with)|focusing|finali[sz]ing|"
    r"exploring|targeting"
    r"|updating|starting|getting|applying|considering|integrating|aiming|tracking|advancing)\b"
    r"|did (?:added|implemented|integrated|configured|set up|enabled|estimated|updated|improved|"
    r"achieved"
    r"|reduced|increased|reached|installed|deployed|completed|created|designed|built|spent|made|"
    r"come)\b"
)
_TIMELESS: Final = frozenset(["name", "birthday", "born"])
_AHEAD: Final = {"did": False, "plans": True, "scheduled_for": True}
_EVENTS: Final = frozenset(["did", "plans", "considers", "has", "scheduled_for"])
_PLACES: Final = frozenset(["lives_in", "moved_to", "from", "born"])
_CALLED: Final = re.compile(
    rf"\b(?:(?:[Mm]y|[Oo]ur) (?P<own>{KIN}),? |(?:an?|[Mm]y|[Oo]ur) (?P<other>{KIN}),? (?:named|"
    rf"called) )"
    r"(?P<name>(?!(?:I|God|Day|Christmas|Easter|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|"
    r"Mon|Tue|Wed|Thu|Fri|"
    r"Sat|Sun)[a-z]*\b)[A-Z][a-z]+)\b"
)
_LAST_TALK: Final = re.compile(
    r"(?i)\b(?:talk\w*|chat\w*|spoke|spoken|convers\w*|caught up|met up)\b"
)


def extract_facts(entries: Sequence[Entry], single_valued: Collection[str] = ()) -> Extraction:
    """Return what the rules find in the users' own entries, in the entries' order.

    The same statement again adds its source to the first draft; for a ``single_valued`` relation
    only as long as nothing else was said between, since going back is a change of its own.
    """
    drafts: list[FactDraft] = []
    places: dict[tuple[str, str, str], int] = {}
    current: dict[tuple[str, str], tuple[str, str, str]] = {}
    rejected: Counter[str] = Counter()
    for entry in entries:
        if reason := _unread(entry):
            rejected[reason] += 1
            continue
        kept = 0
        for draft in _drafts(entry, rejected):
            slot = (draft.subject.casefold(), draft.relation)
            # "last week" is another week each time: such a value is the same on the same day only.
            same = draft.text if draft.relation in _EVENTS else draft.value
            key = (*slot, " ".join(same.casefold().split()))
            if (place := places.get(key)) is not None:
                drafts[place] = _seen_again(drafts[place], draft)
                rejected["duplicate"] += 1
            elif kept == MAX_PER_ENTRY:
                rejected["cap"] += 1
            else:
                if draft.relation in single_valued:
                    places.pop(current.get(slot, key), None)
                    current[slot] = key
                places[key] = len(drafts)
                drafts.append(draft)
                kept += 1
    return Extraction(tuple(drafts), dict(rejected))


def _seen_again(draft: FactDraft, again: FactDraft) -> FactDraft:
    new = [source for source in again.sources if source not in draft.sources]
    return replace(draft, sources=(*draft.sources, *new))


def _unread(entry: Entry) -> str:
    """Return why an entry is not read at all, or nothing."""
    if entry.role != "user" or entry.origin != "user":
        return "not_user"
    if entry.tainted:
        return "tainted"
    return "system" if entry.content.lstrip().startswith("[system]") else ""


def _drafts(entry: Entry, rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the drafts of one entry; each clause gives at most one, and the names in it."""
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
    """Return the draft of a match, or the reason against it."""
    groups, relation = match.groupdict(), rule.relation
    told_of_self = groups.get("i") is not None
    if entry.speaker and relation in ("always", "never", "remember") and not told_of_self:
        return "not told of oneself"  # people who talk to each other give advice, not instructions
    value = match["value"].rstrip()
    if entry.speaker and relation not in _PLACES:
        value = _VOCATIVE.sub("", value)
    ordered = relation == "remember" or not (told_of_self or groups.keys() & {"own", "thing"})
    value = TRAILING_FILLER.sub("", value) if ordered else trim_to_self_contained(value)
    if reason := explain_unclear(relation, value, ordered):
        return reason
    if not entry.speaker and _TASK.match(f"{relation} {value}") and not has_date(value):
        return "task"  # said to an assistant, it is about the answer or the work of the moment
    if relation == "did" and groups.get("have") and value.startswith("got "):
        return "vague"  # "I've got": it is had, not done
    subject, who = entry.speaker or "user", entry.speaker or "The user"
    if groups.get("own"):
        subject = f"{who}'s {groups['own']}"
    elif groups.get("thing"):
        subject = groups["thing"]
    said, begin = entry.content, offset
    end = offset + match.start("value") + len(value)
    if groups.get("mine"):
        end = offset + len(match[0].rstrip(" .,!;"))
    text = rephrase_in_third_person(rule.relation, match, said[begin:end], value, who)
    if front < offset and not _LAST_TALK.search(said, front, offset):
        before = said[front:offset].rstrip(" ,")
        if UNRESOLVED.search(before):
            return "vague"
        text, begin = f"{text} {before[0].lower()}{to_third_person(before[1:])}", front
    if relation not in _TIMELESS:
        text = annotate_dates(text, entry.observed_at, future=_AHEAD.get(relation))
    return FactDraft(
        subject=subject,
        relation=relation,
        value=value,
        text=f"{text}.",
        sources=(Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id),),
        quote=said[begin:end],
        span=(begin, end),
        valid_from=entry.observed_at,
    )
