"""Credit or blame the items injected into a run, by the outcome of its tools (MemTier, eq. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from memtier_plugin.core.events import CreditEvent, OutcomeEvent, RecallEvent
from memtier_plugin.core.records import Entry, JournalEvent, Message
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.credit.outcomes import (
    PROXIES,
    STATED,
    Proxy,
    answer_words,
    compute_reward,
    judge_calls,
    share_reward,
)
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import last_attempts
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust import origins
from memtier_plugin.trust.external_text import missing_statement

_NO_OUTCOME: Final = (
    "no outcome of a tool is known: give tool messages an exit_code, ok or is_error"
)
_MIXED: Final = "a tool's last call failed, though not the run's last one: reward 0"
_FAILED_RUN: Final = "the run ended with an error"
_NO_RECALL: Final = "no recall with purpose='inject' belongs to this run; name it in recall_ids"
_NOTHING_INJECTED: Final = "its recalls injected nothing"
_REPEATED: Final = "the credits of this run are journalled already"
_UNUSED: Final = "it shares no word with the answer and the tools' arguments"
_STATES_NOTHING: Final = "it states nothing: a question, an acknowledgement or a call"
_GONE: Final = "it is no longer stored"
_DOUBTFUL: Final = "it rests on text from outside that nobody reviewed"
_CAPPED: Final = "its limit of credit for the day is reached"


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a finished run: its new entries, its reward, and the credit of each item.

    ``confidence`` is how certain the tools' outcome is: 1 if their messages state it, less if it
    was judged from their results; credits are scaled by it. ``reason`` is why nothing was credited,
    ``uncredited`` why each recall and item without credit has none.
    """

    entries: list[Entry]
    reward: float
    credits: Mapping[str, float]
    confidence: float = STATED
    reason: str = ""
    uncredited: Mapping[str, str] = field(default_factory=dict)


def assign_credit(
    actor: Actor,
    run: str,
    messages: Sequence[Message],
    recalls: Sequence[JournalEvent],
    *,
    entries: list[Entry],
    refused: Mapping[str, str],
    failed: bool,
) -> RunResult:
    """Reward a run by the outcome of its tools, and journal the credit of each injected item.

    A run that is delivered again is credited once: nothing is journalled if the credits would
    repeat those of the last attempt.

    Args:
        recalls: the recalls whose blocks were in the run's prompt.
        entries: the run's new entries.
        refused: why other recalls named for the run do not count.
        failed: the run ended with an error; it earns no reward.

    Raises:
        IndexProblem: the index cannot be used.
        LedgerError: the credits were not written.
    """
    calls, confidence = judge_calls(messages)
    reward = compute_reward(calls)
    reason = _why_no_reward(reward, confidence, failed=failed)
    reward = min(reward, 0.0) if failed else reward
    shares = RunShares(actor, run, recalls)
    with actor.store.session() as reader:
        events = shares.credits(reader, reward, confidence, shares.by_words(reader, messages))
        outcome = shares.outcome(reader, reward, confidence)
    journalled = [*outcome, *events]
    actor.store.append_events([actor.event(payload, run=run) for payload in journalled])
    credits = {credit.item: credit.delta for credit in events}
    uncredited = {item: reason or why for item, why in shares.uncredited.items()}
    if not recalls:
        reason = next(iter(refused.values()), _NO_RECALL)
    elif not shares.items:
        reason = _NOTHING_INJECTED
    elif shares.repeated:
        reason = _REPEATED
    elif not reason and not credits:
        reason = "; ".join(dict.fromkeys(uncredited.values()))
    return RunResult(
        entries,
        reward,
        credits,
        confidence=confidence,
        reason="" if credits else reason,
        uncredited={**refused, **uncredited},
    )


def _why_no_reward(reward: float, confidence: float, *, failed: bool) -> str:
    if failed and reward >= 0:
        return _FAILED_RUN
    if reward:
        return ""
    return _MIXED if confidence else _NO_OUTCOME


def _limits_credit(settings: Settings) -> bool:
    if settings.retrieval.ranker is None:
        return True
    from memtier_plugin.retrieval.search import find_ranker

    return find_ranker(settings).limits_credit


def _unless_stated(confidence: float) -> float | None:
    """Return a confidence as the journal stores it: None if the outcome was stated."""
    return confidence if confidence < STATED else None


class RunShares:
    """The shares of the injected items in a run's reward."""

    def __init__(self, actor: Actor, run: str, recalls: Sequence[JournalEvent]) -> None:
        payloads = [RecallEvent.of(event) for event in recalls]
        self.items = list(dict.fromkeys(r.item for recall in payloads for r in recall.injected))
        self._events = tuple(event.id for event in recalls)
        self._withheld = any(recall.withheld for recall in payloads)
        self.uncredited: dict[str, str] = {}
        self.repeated = False
        self._actor, self._run = actor, run
        self._recalls = tuple(event.id for event in recalls if event.run_id != run) or None
        self._agent = recalls[0].agent_id if recalls else actor.agent

    def outcome(self, reader: Reader, reward: float, confidence: float) -> list[OutcomeEvent]:
        """Return the outcome to journal, if a job will need it and it differs from the last one."""
        by_plugin = self._actor.store.settings.attribution.proxy not in PROXIES and reward
        if not self._withheld and not (by_plugin and self.items):
            return []
        stated = _unless_stated(confidence)
        events = reader.events(agent=self._agent, run=self._run, kinds=[OutcomeEvent.KIND])
        earlier = [OutcomeEvent.of(event) for event in events]
        last = max(earlier, key=lambda each: each.attempt, default=None)
        if last and (last.reward, last.confidence) == (reward, stated):
            return []
        attempt = last.attempt + 1 if last else 1
        return [
            OutcomeEvent(attempt=attempt, reward=reward, confidence=stated, recalls=self._events)
        ]

    def credits(
        self,
        reader: Reader,
        reward: float,
        confidence: float,
        shares: Mapping[str, float],
        proxy: str | None = None,
    ) -> list[CreditEvent]:
        """Return the credits to journal, and record why other items have none.

        Args:
            shares: each item's share of the reward.
            proxy: the proxy by which a job computed them; None at the end of the run.
        """
        if not self.items:
            return []
        settings = self._actor.store.settings
        step = settings.attribution.alpha * reward * confidence
        deltas = {item: step * share for item, share in shares.items() if step and share}
        journalled = reader.events(agent=self._agent, run=self._run, kinds=[CreditEvent.KIND])
        if settings.trust.defence:
            # A run that is delivered again keeps the limits of its first delivery.
            now = journalled[0].timestamp if journalled else self._actor.clock()
            deltas = self._without_doubtful(reader, deltas)
            if deltas and _limits_credit(settings):
                deltas = self._cap_deltas(reader, now, deltas)
        earlier = [CreditEvent.of(event) for event in journalled]
        attempt = max((credit.attempt for credit in earlier), default=0)
        newest = [credit for credit in earlier if credit.attempt == attempt]
        last = {credit.item: credit.delta for credit in newest if credit.delta}
        stated = _unless_stated(confidence)
        # A run delivered again with the same outcome does not undo a job's credits.
        by_job = [(credit.reward, credit.confidence) for credit in newest if credit.proxy]
        self.uncredited |= {
            item: "" for item in self.items if not deltas.get(item) and item not in self.uncredited
        }
        if deltas == last or (proxy is None and (reward, stated) in by_job):
            self.repeated = bool(last)
            return []
        return [
            CreditEvent(
                item=item,
                attempt=attempt + 1,
                reward=reward,
                share=shares.get(item, 0.0),
                # A delta of 0 reverses a credit of an earlier attempt that this one does not give.
                delta=deltas.get(item, 0.0),
                confidence=stated,
                recalls=self._recalls,
                proxy=proxy,
            )
            for item in dict.fromkeys([*deltas, *last])
        ]

    def by_words(self, reader: Reader, messages: Sequence[Message]) -> dict[str, float]:
        """Return the share of each item, by the words that it shares with the answer."""
        if not self.items:
            return {}
        stored = {row.item.id: row.item for row in reader.items(self.items).values()}
        # Acknowledgements, questions and calls of the memory's own tools answer nothing.
        texts = {item.id: item.text for item in stored.values() if not missing_statement(item)}
        proxy = self._actor.store.settings.attribution.proxy
        by_words: Proxy = proxy if proxy in PROXIES else "jaccard"  # until a plugin's job has run
        answer = answer_words(messages)
        values = share_reward([texts.get(item, "") for item in self.items], answer, by_words)
        for item, share in zip(self.items, values, strict=True):
            if not share:
                stating = _UNUSED if item in texts else _STATES_NOTHING
                self.uncredited[item] = stating if item in stored else _GONE
        return dict(zip(self.items, values, strict=True))

    def _without_doubtful(self, reader: Reader, deltas: Mapping[str, float]) -> dict[str, float]:
        """Drop rewards for doubtful text; blame still applies."""
        stored = {row.item.id: row.item for row in reader.items([*deltas]).values()}
        doubtful = {
            item
            for item, delta in deltas.items()
            if delta > 0 and item in stored and origins.is_doubtful(stored[item])
        }
        self.uncredited |= dict.fromkeys(doubtful, _DOUBTFUL)
        return {item: delta for item, delta in deltas.items() if item not in doubtful}

    def _cap_deltas(
        self, reader: Reader, now: datetime, deltas: Mapping[str, float]
    ) -> dict[str, float]:
        """Limit credits to a daily maximum for each item."""
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        others: dict[str, list[JournalEvent]] = {}
        for event in reader.events(
            items=deltas, agent=self._agent, kinds=[CreditEvent.KIND], since=day, before=now
        ):
            others.setdefault(CreditEvent.of(event).item, []).append(event)
        capped = {}
        for item, delta in deltas.items():
            today = [credit.delta for _, credit in last_attempts(others.get(item, ()))]
            if allowed := origins.cap_daily_credit(delta, today):
                capped[item] = allowed
            else:
                self.uncredited[item] = _CAPPED
        return capped
