"""The job that credits the lines of finished runs by a model's log-probabilities.

At the end of a run, credit is assigned by shared words, as a host cannot wait for a model. This job
scores the answer again and journals the credits as a new attempt of the run, replacing the earlier
one. Pending runs are found in the journal: those with a reward and no later `attribute` event. If
the model is unavailable, the earlier credits stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from memtier_papers.memtier.events import OutcomeEvent
from memtier_papers.memtier.logprob import leave_one_out
from memtier_papers.memtier.run_credit import normalise_shares, share_out
from memtier_papers.memtier.scoring import score_within_budget
from memtier_papers.memtier.settings import ModelAttribution
from memtier_plugin.core.errors import ContextTooLong, EndpointRefused, SettingsError
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import Entry, EventPayload, JournalEvent
from memtier_plugin.core.results import Hit
from memtier_plugin.credit.assignment import RunShares
from memtier_plugin.credit.outcomes import STATED
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.retrieval.block import format_line
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import UNDO_KINDS, undone_runs
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.phrases import TOOL_CALL_MARK
from memtier_plugin.trust.external_text import missing_statement

PROXY: Final = "logprob"
PURPOSE: Final = "attribution"  # the calls' purpose in the journal
_LINE_CHARS: Final = 1_000  # of a line as the model sees it
_DIGITS: Final = 6


class AttributeEvent(EventPayload, frozen=True, kw_only=True):
    """A model scored the answer of a run with and without each line of its block.

    ``affinities`` maps items to how much likelier the line made each token of the answer, in nats,
    at least 0; ``problem`` is why the run was not scored.
    """

    KIND = "attribute"

    model: str
    affinities: Mapping[str, float] = {}
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AttributionReport:
    """The result of a pass: scored runs, unscorable runs, and whether more are pending."""

    scored: int = 0
    skipped: int = 0
    left: bool = False


class _Unscorable(Exception):
    """A run has nothing to score; the message says why."""


class LogprobCreditor:
    """Credits the finished runs of a project by log-probabilities."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def run(self, limit: int = 50, stop: Callable[[], bool] = lambda: False) -> AttributionReport:
        """Score up to ``limit`` runs, newest first.

        Args:
            stop: polled between runs; what was written by then is complete.

        Raises:
            SettingsError: no model is configured for it.
            CapReached: the day's calls, tokens or money are used up.
            EndpointError: the model is unavailable, or returns no log-probabilities.
            LedgerError, IndexProblem: the credits were not written.
        """
        if self._store.paused or self._store.settings.of(ModelAttribution).proxy != PROXY:
            return AttributionReport()
        scored = skipped = 0
        with self._store.exclusive(PURPOSE, 0.0):
            self._store.catch_up_all()
            with self._store.session() as reader:
                due = _due_runs(reader)
            model = self._model() if due else None
            for event in due[:limit]:
                if model is None or stop():
                    return AttributionReport(scored, skipped, left=True)
                done = self._score(model, event, tolerant=bool(scored))
                scored, skipped = scored + done, skipped + (not done)
        return AttributionReport(scored, skipped, left=len(due) > limit)

    def _model(self) -> ChatModel:
        budget = ChatBudget(self._store, self._actor.agent, self._actor.clock)
        key = "attribution.model"
        model = budget.chat_model(self._store.settings.of(ModelAttribution).model, key=key)
        if model is None:
            raise SettingsError("attribution.proxy is logprob, and attribution.model is none")
        return model

    def _score(self, model: ChatModel, event: JournalEvent, *, tolerant: bool) -> bool:
        """Write a run's credits together with the event that records them; False if none.

        Args:
            tolerant: the model has scored another run, so a refusal is due to this one.
        """
        actor, outcome = replace(self._actor, agent=event.agent_id), OutcomeEvent.of(event)
        with self._store.session() as reader:
            recalls = [recall for i in outcome.recalls if (recall := reader.event(i)) is not None]
            try:
                affinities = _affinities(reader, event, recalls, model)
            except _Unscorable as reason:
                problem = str(reason)
            except ContextTooLong as error:
                problem = str(error)
            except EndpointRefused as error:
                if not tolerant:
                    raise
                problem = str(error)
            else:
                problem = ""
            if problem:
                note = AttributeEvent(model=model.name, problem=problem)
                self._store.append_events([actor.event(note, run=event.run_id)])
                return False
            shares = dict(zip(affinities, normalise_shares([*affinities.values()]), strict=True))
            confidence = STATED if outcome.confidence is None else outcome.confidence
            run = RunShares(actor, event.run_id or "", recalls)
            credits = run.credits(reader, share_out(run, shares, outcome.reward, confidence), PROXY)
        rounded = {item: round(value, _DIGITS) for item, value in affinities.items()}
        events = [*credits, AttributeEvent(model=model.name, affinities=rounded)]
        self._store.append_events([actor.event(each, run=event.run_id) for each in events])
        return True


def _due_runs(reader: Reader) -> list[JournalEvent]:
    """Return the outcomes of runs to score, newest first."""
    hidden, uncredited = undone_runs(reader.events(kinds=[*UNDO_KINDS]))
    last: dict[tuple[str, str | None], JournalEvent] = {}
    done: dict[tuple[str, str | None], JournalEvent] = {}
    for event in reader.events(kinds=[OutcomeEvent.KIND]):
        last[event.agent_id, event.run_id] = event
    for event in reader.events(kinds=[AttributeEvent.KIND]):
        done[event.agent_id, event.run_id] = event
    due = [
        event
        for run, event in last.items()
        if run not in hidden | uncredited
        and OutcomeEvent.of(event).reward
        and (run not in done or _at(done[run]) < _at(event))
    ]
    return sorted(due, key=_at, reverse=True)


def _at(event: JournalEvent) -> tuple[float, str]:
    return event.timestamp.timestamp(), event.id


def _affinities(
    reader: Reader, event: JournalEvent, recalls: Sequence[JournalEvent], model: ChatModel
) -> dict[str, float]:
    """Return each item's affinity to the run's answer.

    Raises:
        _Unscorable: there is no answer or no line, or one of them is a confidence.
        EndpointError, CapReached: see `ChatModel.score`.
    """
    payloads = [RecallEvent.of(recall) for recall in recalls]
    injected = dict.fromkeys(ranked.item for recall in payloads for ranked in recall.injected)
    rows = reader.items(injected)
    # Lines that state nothing, or are forgotten, are skipped.
    stored = {
        item: rows[item]
        for item in injected
        if item in rows
        and not rows[item].state.withdrawn
        and not missing_statement(rows[item].item)
    }
    spoken = list(reader.items(reader.entries(agent=event.agent_id, run=event.run_id)).values())
    answers = [row for row in spoken if _is_answer(row)]
    if not stored or not answers:
        raise _Unscorable("no line that states something" if answers else "no answer in words")
    if any(_is_confidence(row) for row in [*stored.values(), *spoken]):
        raise _Unscorable("a confidence, which no other model reads")
    lines = [_line(row) for row in stored.values()]
    answer = answers[-1].item.text
    try:
        values = leave_one_out(
            lines,
            payloads[-1].query,
            answer,
            lambda text: score_within_budget(model, text, PURPOSE),
        )
    except ValueError as error:
        raise _Unscorable(str(error)) from None
    return dict(zip(stored, values, strict=True))


def _line(row: Stored) -> str:
    """Return the line of an item in a block."""
    hit = Hit(item=row.item, score=0.0, signals={}, sources=())
    return format_line(hit, row.item.text[:_LINE_CHARS])


def _is_answer(row: Stored) -> bool:
    item = row.item
    is_own = isinstance(item, Entry) and item.role == "assistant" and not row.state.forgotten
    return is_own and bool(item.text.strip()) and not item.text.startswith(TOOL_CALL_MARK)


def _is_confidence(row: Stored) -> bool:
    return isinstance(row.item, Entry) and (row.item.private or row.state.private)
