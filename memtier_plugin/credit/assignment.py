"""Credit or blame the items injected into a run, by the outcome of its tools (MemTier, eq. 1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Final, NamedTuple

from memtier_plugin.core import plugins
from memtier_plugin.core.events import CallEvent, CreditEvent, RecallEvent
from memtier_plugin.core.records import Entry, EventPayload, JournalEvent, Message
from memtier_plugin.credit.calls import (
    JudgedCall,
    asked_text,
    find_basis,
    is_same_call,
    judge_each,
    last_outcomes,
    shares_words,
)
from memtier_plugin.credit.outcomes import FAILED, STATED, judge_results, reward_run
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import last_attempts, touched_items
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.phrases import TOOL_CALL_MARK
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
_UNUSED: Final = "it shares no word with the answer and the tools' arguments that others lack"
_OUTSIDE: Final = "the call that it was used for failed for a reason outside it: {}"
_STATES_NOTHING: Final = "it states nothing: a question, an acknowledgement or a call"
_GONE: Final = "it is no longer stored"
_DOUBTFUL: Final = "it rests on text from outside that nobody reviewed"
_CAPPED: Final = "its limit of credit for the day is reached"
_LATEST: Final = 100  # earlier credits by the same calls that are read


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
    outcomes = judge_results(messages)
    reward, confidence = reward_run(messages, outcomes)
    reason = _why_no_reward(reward, confidence, failed=failed)
    reward = min(reward, 0.0) if failed else reward
    shares = RunShares(actor, run, recalls)
    with actor.store.session() as reader:
        chosen = plugins.credit_run(shares, reader, messages, reward, confidence)
        rule: RunCredit = chosen or RunCredit()
        lines = list[CallEvent]()
        judged = judge_each(messages, outcomes, actor.store.settings.trust.local_tools)
        if rule.earned is None:
            earned, lines = _earn_by_calls(shares, reader, messages, entries, judged, failed=failed)
            rule, reason = rule._replace(earned=earned), "" if earned else reason
        events = shares.credits(reader, rule)
        journalled = [*rule.events, *events, *lines]
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


def _earn_by_calls(
    shares: RunShares,
    reader: Reader,
    messages: Sequence[Message],
    entries: Sequence[Entry],
    judged: Sequence[JudgedCall],
    *,
    failed: bool,
) -> tuple[dict[str, ItemCredit], list[CallEvent]]:
    """Return what each item earns by the calls that rest on it, and what the run's lines tell."""
    tries = [call for call in last_outcomes(judged) if not (failed and call.ok)]
    earned = shares.by_calls(reader, messages, tries)
    worked = shares.find_done(messages, tries)
    return earned, mark_calls(shares.actor, reader, messages, entries, judged, worked, earned)


def unless_stated(confidence: float) -> float | None:
    """Return a confidence as the journal stores it: None if the outcome was stated."""
    return confidence if confidence < STATED else None


class ItemCredit(NamedTuple):
    """What an item earns by a run: ``gain`` is reward times confidence times share, summed.

    The others are those of its `CreditEvent`, as the last call that rests on it decides them.
    """

    gain: float
    reward: float
    share: float
    confidence: float
    call: JudgedCall | None = None


_NOTHING: Final = ItemCredit(0.0, 0.0, 0.0, STATED)


class RunCredit(NamedTuple):
    """What a plugin makes of a finished run.

    Attributes:
        earned: what each item earns, before its limits; None: by the calls that rest on it.
        limited: whether a weight moves by at most so much a day.
        events: what to journal besides the credits.
    """

    earned: Mapping[str, ItemCredit] | None = None
    limited: bool = True
    events: Sequence[EventPayload] = ()


class RunShares:
    """The shares of the injected items in a run's rewards."""

    def __init__(self, actor: Actor, run: str, recalls: Sequence[JournalEvent]) -> None:
        self.recalls = {event.id: RecallEvent.of(event) for event in recalls}
        injected = [ranked.item for recall in self.recalls.values() for ranked in recall.injected]
        self.items = list(dict.fromkeys(injected))
        self.uncredited: dict[str, str] = {}
        self.repeated = False
        self._doubtful = set[str]()
        self._based = set[int]()  # the positions of calls that rest on items
        self.actor, self.run = actor, run
        self._others = tuple(event.id for event in recalls if event.run_id != run) or None
        self.agent = recalls[0].agent_id if recalls else actor.agent

    def credits(
        self, reader: Reader, rule: RunCredit, proxy: str | None = None
    ) -> list[CreditEvent]:
        """Return the credits to journal, and record why other items have none.

        Args:
            proxy: the proxy by which a job computed them; None at the end of the run.
        """
        if not self.items:
            return []
        earned, settings = rule.earned or {}, self.actor.store.settings
        alpha = settings.attribution.alpha
        deltas = {item: alpha * each.gain for item, each in earned.items() if alpha * each.gain}
        journalled = reader.events(agent=self.agent, run=self.run, kinds=[CreditEvent.KIND])
        if settings.trust.defence:
            # A run that is delivered again keeps the limits of its first delivery.
            now = journalled[0].timestamp if journalled else self.actor.clock()
            deltas = self._without_doubtful(reader, deltas)
            if deltas and rule.limited:
                deltas = self._cap_deltas(reader, now, deltas)
        earlier = [CreditEvent.of(event) for event in journalled]
        attempt = max((credit.attempt for credit in earlier), default=0)
        newest = [credit for credit in earlier if credit.attempt == attempt]
        last = {credit.item: credit.delta for credit in newest if credit.delta}
        # How a call ended counts, too, where the day's limit leaves no credit for it.
        ended = {
            key: e.call.ok for key, e in earned.items() if e.call and key not in self._doubtful
        }
        ended_before = {credit.item: credit.ok for credit in newest if credit.ok is not None}
        # A run delivered again with the same outcome does not undo a job's credits.
        by_job = [(credit.reward, credit.confidence) for credit in newest if credit.proxy]
        outcomes = {(each.reward, unless_stated(each.confidence)) for each in earned.values()}
        self.uncredited |= {
            item: "" for item in self.items if not deltas.get(item) and item not in self.uncredited
        }
        same = (deltas, ended) == (last, ended_before)
        if same or (proxy is None and by_job and outcomes.issubset(by_job)):
            self.repeated = bool(last or ended_before)
            return []
        return [
            self._event(item, attempt + 1, earned.get(item, _NOTHING), deltas.get(item, 0.0), proxy)
            for item in dict.fromkeys([*deltas, *last, *ended, *ended_before])
        ]

    def _event(
        self, item: str, attempt: int, earned: ItemCredit, delta: float, proxy: str | None
    ) -> CreditEvent:
        """Return a credit; a delta of 0 reverses one of an earlier attempt."""
        return CreditEvent(
            item=item,
            attempt=attempt,
            reward=earned.reward,
            share=earned.share,
            delta=delta,
            confidence=unless_stated(earned.confidence),
            recalls=self._others,
            proxy=proxy,
            tool=earned.call.name if earned.call else None,
            call=self.actor.redactor.redact(earned.call.text).text if earned.call else None,
            ok=earned.call.ok if earned.call else None,
            exit_code=earned.call.exit_code if earned.call else None,
        )

    def texts(self, reader: Reader) -> dict[str, str]:
        """Return the texts of the items that state something, and say why of the others."""
        stored = {row.item.id: row.item for row in reader.items(self.items).values()}
        # Acknowledgements, questions and calls of the memory's own tools answer nothing.
        texts = {item.id: item.text for item in stored.values() if not missing_statement(item)}
        for item in self.items:
            stating = _UNUSED if item in texts else _STATES_NOTHING
            self.uncredited[item] = stating if item in stored else _GONE
        return texts

    def by_calls(
        self, reader: Reader, messages: Sequence[Message], calls: Sequence[JudgedCall]
    ) -> dict[str, ItemCredit]:
        """Return what each item earns by the calls that rest on it (MemTier, section 3.2)."""
        if not (self.items and calls):
            return {}
        texts, words = self.texts(reader), cache(self.actor.store.tokenizer.words)
        asked = asked_text(messages)
        earned: dict[str, ItemCredit] = {}
        for call in calls:
            reward = 1.0 if call.ok else 0.0 if call.excuse else FAILED
            basis = find_basis(call, texts, asked, words)
            self._based |= {call.position} if basis else set()
            for item, share in basis.items():
                if call.excuse:
                    self.uncredited[item] = _OUTSIDE.format(call.excuse)
                    continue
                gain = reward * call.confidence * share
                before = earned[item].gain if item in earned else 0.0
                earned[item] = ItemCredit(
                    max(FAILED, min(1.0, before + gain)),
                    reward,
                    share,
                    call.confidence,
                    call,
                )
        for item in earned:
            self.uncredited.pop(item, None)
        return earned

    def find_done(self, messages: Sequence[Message], calls: Sequence[JudgedCall]) -> set[int]:
        """Return the positions of calls that did the job.

        They rest on an item, or were the first that worked after another of the tool had failed.
        """
        failing, done = set[str](), set[int]()
        for call in calls:
            if call.ok is False:
                failing.add(call.name)
            elif call.position in self._based:
                done.add(call.position)
            elif call.name in failing and shares_words(
                call, messages, self.actor.store.tokenizer.words
            ):
                done.add(call.position)
                failing.discard(call.name)
        return done

    def _without_doubtful(self, reader: Reader, deltas: Mapping[str, float]) -> dict[str, float]:
        """Drop rewards for doubtful text; blame still applies."""
        stored = {row.item.id: row.item for row in reader.items([*deltas]).values()}
        doubtful = {
            item
            for item, delta in deltas.items()
            if delta > 0 and item in stored and origins.is_doubtful(stored[item])
        }
        self._doubtful |= doubtful
        self.uncredited |= dict.fromkeys(doubtful, _DOUBTFUL)
        return {item: delta for item, delta in deltas.items() if item not in doubtful}

    def _cap_deltas(
        self, reader: Reader, now: datetime, deltas: Mapping[str, float]
    ) -> dict[str, float]:
        """Limit credits to a daily maximum for each item."""
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        others: dict[str, list[JournalEvent]] = {}
        for event in reader.events(
            items=deltas, agent=self.agent, kinds=[CreditEvent.KIND], since=day, before=now
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


# -- The log's own lines of calls: a failed one is never recalled as if it had worked


def mark_calls(
    actor: Actor,
    reader: Reader,
    messages: Sequence[Message],
    entries: Sequence[Entry],
    calls: Sequence[JudgedCall],
    worked: Collection[int],
    credited: Collection[str],
) -> list[CallEvent]:
    """Return what is to be journalled of a run's own lines.

    Those of a call that failed for good, those of one that did the job, and what recorded the same
    call in earlier runs, or was its basis there.

    Args:
        credited: ids of items that this run credits anyway.
        worked: the positions of calls that did what the user asked for.
        entries: the run's new entries: the last ones of its messages; none where it is delivered
            again.
    """
    if not entries:
        return []
    lines = _lines_of(messages, entries)
    last = last_outcomes(calls)
    ended: dict[str, JudgedCall] = {}
    for call in calls:
        final = next((each for each in last if is_same_call(each, call)), None)
        if final is not None and (final.ok is False or final.position in worked):
            for position in (call.asked_at, call.position):
                # Of several calls in one line, a failed one counts.
                if position in lines and (final.ok is False or lines[position] not in ended):
                    ended[lines[position]] = final
    redact = actor.redactor.redact
    by_text = {redact(call.text).text: call for call in last if call.text and not call.excuse}
    latest = reader.outcomes_of_calls(by_text, _LATEST) if by_text else []
    # Another agent's own lines are its own matter.
    known = {
        item: str(event.data["call"])
        for event in latest
        if event.kind == CreditEvent.KIND or event.agent_id == actor.agent
        for item in touched_items(event)
        if item not in credited
    }
    for item, state in reader.states(known).items():
        if not (by_text[known[item]].ok and state.calls.works):
            ended[item] = by_text[known[item]]
    items: dict[JudgedCall, list[str]] = {}
    for item, call in ended.items():
        items.setdefault(call, []).append(item)
    return [
        CallEvent(
            items=tuple(lines_of_call),
            tool=call.name,
            call=redact(call.text).text,
            ok=bool(call.ok),
            exit_code=call.exit_code,
            why=call.excuse or None,
        )
        for call, lines_of_call in items.items()
    ]


def _lines_of(messages: Sequence[Message], entries: Sequence[Entry]) -> dict[int, str]:
    """Return the new entries of calls and of their results, by the position of their message."""
    asking = [n for n, message in enumerate(messages) if message.tool_calls]
    asked = [
        entry.id for entry in entries if entry.role == "assistant" and TOOL_CALL_MARK in entry.text
    ]
    results = [n for n, m in enumerate(messages) if m.role == "tool" and m.content.strip()]
    shown = [entry.id for entry in entries if entry.role == "tool"]
    # From the end: of a run that is delivered again, only what follows is new.
    pairs = (
        *zip(asking[::-1], asked[::-1], strict=False),
        *zip(results[::-1], shown[::-1], strict=False),
    )
    return dict(pairs)
