"""Questions of a project's own history whose answers are known.

A journalled recall is a question where something of what it injected was credited (the run fared
well and used the line), confirmed (a person accepted it) or, for a question that `ask` answered,
cited.  Where history is short, probes made from entries are added (`probes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from memtier_plugin.core.events import AcceptEvent, AskEvent, CreditEvent, RecallEvent
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.storage.readers import Reader

Evidence = Literal["credited", "confirmed", "cited", "probe"]
_READ: Final = 20_000  # newest events of a kind that are read for questions
_USED_SHARE: Final = 0.8  # of the largest share of a run's credit, from which a line was used
_QUERY_CHARS: Final = 2_000  # of a query that the journal keeps
# Of the questions: an item that answers more of them says nothing about any of them.
_COMMON_SHARE: Final = 0.2
_COMMON: Final = 5  # questions that one item may answer, however few there are


@dataclass(frozen=True, slots=True)
class Question:
    """A query, who asks it, and the items any of which answers it.

    Attributes:
        id: of the journalled event, or of the entry that a probe is made from.
        evidence: how it is known what answers it.
        session: in which it was asked; questions of one session are held out together.
    """

    id: str
    query: str
    wanted: frozenset[str]
    agent: str
    sender: str | None = None
    evidence: Evidence = "probe"
    session: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The questions of a project's history, and what was left out of them."""

    questions: tuple[Question, ...]
    common: tuple[str, ...] = ()  # items that were credited for nearly everything
    constant: tuple[str, ...] = ()  # agents whose credited runs all had the same outcome


def read_history(
    reader: Reader, limit: int, ids: Collection[str] = (), *, varied: bool = False
) -> History:
    """Return the newest questions, no query twice, oldest first.

    An item that is credited for nearly every question says nothing of any of them, and somebody may
    have planted it: it is left out.

    Args:
        ids: only questions with these ids, whatever their number.
        varied: also leave out credits of agents that never failed: a reward without variance
            cannot tell what helped (MemTier, section 4.4).
    """
    recalls = reader.events(kinds=[RecallEvent.KIND], newest=_READ)
    credited, constant = _credited(reader, recalls, varied=varied)
    accepted = {
        item
        for event in reader.events(kinds=[AcceptEvent.KIND])
        for item in AcceptEvent.of(event).items
    }
    drawn = [*_questions_of_recalls(recalls, credited, accepted), *_questions_of_asks(reader)]
    common = _common_items(drawn)
    seen: set[tuple[str, str, str | None]] = set()
    questions: list[Question] = []
    for question in sorted(drawn, key=lambda question: question.id, reverse=True):
        wanted = question.wanted if question.evidence == "cited" else question.wanted - common
        key = (question.agent, question.query.casefold(), question.sender)
        if not wanted or key in seen or (ids and question.id not in ids):
            continue
        seen.add(key)
        questions.append(replace(question, wanted=wanted))
        if not ids and len(questions) == limit:
            break
    return History(tuple(reversed(questions)), tuple(sorted(common)), tuple(sorted(constant)))


def _credited(
    reader: Reader, recalls: Sequence[JournalEvent], *, varied: bool
) -> tuple[dict[str, set[str]], set[str]]:
    """Return the items that each recall's run used most, and the agents to leave out."""
    by_run: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for event in recalls:
        by_run[event.agent_id, event.run_id].append(event.id)
    runs: dict[tuple[str, str | None], list[CreditEvent]] = defaultdict(list)
    for event in reader.events(kinds=[CreditEvent.KIND], newest=_READ):
        runs[event.agent_id, event.run_id].append(CreditEvent.of(event))
    rewards: dict[str, set[bool]] = defaultdict(set)
    for (agent, _), credits in runs.items():
        rewards[agent] |= {credit.reward > 0 for credit in credits}
    constant = {agent for agent, outcomes in rewards.items() if varied and len(outcomes) < 2}
    items: dict[str, set[str]] = defaultdict(set)
    for run, credits in runs.items():
        last = max(credit.attempt for credit in credits)
        used = [credit for credit in credits if credit.attempt == last and credit.delta > 0]
        least = _USED_SHARE * max((credit.share for credit in used), default=0.0)
        for credit in used if run[0] not in constant else ():
            if credit.share >= least:
                for recall in credit.recalls or by_run[run]:
                    items[recall].add(credit.item)
    return items, constant


def _questions_of_recalls(
    recalls: Sequence[JournalEvent], credited: dict[str, set[str]], accepted: Collection[str]
) -> Iterator[Question]:
    for event in recalls:
        recall = RecallEvent.of(event)
        shown = {ranked.item for ranked in recall.injected}
        if recall.purpose != "inject" or not recall.query.strip():
            continue
        for evidence, items in (("credited", credited.get(event.id, ())), ("confirmed", accepted)):
            if wanted := shown & {*items}:
                yield Question(
                    event.id,
                    recall.query[:_QUERY_CHARS],
                    frozenset(wanted),
                    event.agent_id,
                    recall.sender,
                    "credited" if evidence == "credited" else "confirmed",
                    recall.session_id or "",
                )
                break


def _questions_of_asks(reader: Reader) -> Iterator[Question]:
    for event in reader.events(kinds=[AskEvent.KIND], newest=_READ):
        answer = AskEvent.of(event)
        if answer.answered and answer.citations and answer.question.strip():
            yield Question(
                event.id,
                answer.question[:_QUERY_CHARS],
                frozenset(answer.citations),
                event.agent_id,
                evidence="cited",
                session=f"asked {event.timestamp:%Y-%m-%d}",
            )


def _common_items(questions: Sequence[Question]) -> frozenset[str]:
    """Return the items that are credited for so many questions that they answer none of them."""
    counts: dict[str, int] = defaultdict(int)
    for question in questions:
        if question.evidence == "credited":
            for item in question.wanted:
                counts[item] += 1
    most = max(_COMMON, _COMMON_SHARE * len(questions))
    return frozenset(item for item, count in counts.items() if count > most)
