"""MemTier's plugin for its own paper: the profile `paper`, a lottery, and the credit of runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memtier_papers.memtier.settings import (
    CauseSettings,
    ModelAttribution,
    Paper,
    PublishedProfile,
    credits_runs,
)
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.hookspecs import JobSpec, WebPage, hookimpl, off_while
from memtier_plugin.core.records import EventPayload, JournalEvent, Message
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import Record

if TYPE_CHECKING:
    from memtier_papers.learn_log import LearnLog
    from memtier_papers.memtier.causes import Causes
    from memtier_papers.memtier.logprob_credit import LogprobCreditor
    from memtier_papers.memtier.retirement import Retirement
    from memtier_plugin.credit.assignment import RunCredit
    from memtier_plugin.memory import MemTier
    from memtier_plugin.retrieval.search import Ranker

_log = logging.getLogger("memtier")
_SHOWN_LINES: Final = 100  # on the page of `memtier web`


@hookimpl
def memtier_settings() -> Mapping[type[Record], str]:
    """Return the settings of the profile `paper`, of causes, and of log-probabilities."""
    return {
        PublishedProfile: "retrieval",
        Paper: "paper",
        CauseSettings: "causes",
        ModelAttribution: "attribution",
    }


@hookimpl
def memtier_ranker(profile: str) -> Ranker | None:
    """Return the ranker of the profile `paper`."""
    if profile != "paper":
        return None
    from memtier_papers.memtier.ranker import PAPER

    return PAPER


@hookimpl
@off_while(CauseSettings, withhold=0)
def memtier_pack(plan: Any, recall_id: str, actor: Any, journal: Any) -> Any | None:
    """Fill a block without the line drawn by the lottery."""
    from memtier_papers.memtier.withholding import pack_without_a_line

    return pack_without_a_line(plan, recall_id, actor, journal)


@hookimpl
def memtier_credit_run(
    run: Any, reader: Any, messages: Sequence[Message], reward: float, confidence: float
) -> RunCredit | None:
    """Return what a run earns by the published rule, and its outcome for the jobs."""
    by_run = credits_runs(run.actor.store.settings)
    if not by_run and not any(recall.withheld for recall in run.recalls.values()):
        return None
    from memtier_papers.memtier.run_credit import credit_run

    return credit_run(run, reader, messages, reward, confidence)


@hookimpl
def memtier_explain(
    recall: JournalEvent, items: Mapping[str, Any], reader: Any, settings: Settings, now: datetime
) -> Mapping[str, Any]:
    """Return what a recall withheld."""
    from memtier_papers.memtier.withholding import explain_withheld

    return {"withheld": explain_withheld(recall, reader)}


@hookimpl
def memtier_status(
    recalls: Sequence[JournalEvent], reader: Any, settings: Settings
) -> Mapping[str, Any]:
    """Return how many of the newest recalls joined the lottery, and how many withheld a line."""
    from memtier_papers.memtier.events import Withholding

    lotteries = [*filter(None, map(Withholding.of, map(RecallEvent.of, recalls)))]
    share = settings.of(CauseSettings).withhold
    if not lotteries and not share:
        return {"causes": None}
    withheld = sum(lottery.item is not None for lottery in lotteries)
    counts = f"{withheld} of the newest {len(lotteries)} prompts lacked it"
    causes = {
        "withhold": share,
        "recalls": len(lotteries),
        "withheld": withheld,
        "said": f"one line is left out in {share:.0%} of the runs; {counts}: memtier uplift",
    }
    if share:
        line = f"In {share:.0%} of the runs a prompt goes without one line: memtier uplift"
        causes["preview"] = line
    return {"causes": causes}


@hookimpl
def memtier_why(recall: JournalEvent, item_id: str) -> tuple[str, str] | None:
    """Return that a line was withheld."""
    from memtier_papers.memtier.events import Withholding
    from memtier_papers.memtier.withholding import describe_withheld

    lottery = Withholding.of(RecallEvent.of(recall))
    if lottery is None or lottery.item != item_id:
        return None

    return "withheld", describe_withheld(lottery)


@hookimpl
def memtier_jobs() -> Sequence[JobSpec]:
    """Return the jobs `attribution` and `causes`."""
    return [
        JobSpec(
            "attribution",
            _when_scored,
            _attribute,
        ),
        JobSpec("causes", _when_causes, lambda memory, _run: follow_causes(memory)),
    ]


@hookimpl
def memtier_event_kinds() -> Sequence[type[EventPayload]]:
    """Return the events of runs' rewards, scored runs, bounded weights, and learned settings."""
    from memtier_papers.learn_log import LearnEvent
    from memtier_papers.memtier.events import OutcomeEvent, UpliftEvent
    from memtier_papers.memtier.logprob_credit import AttributeEvent

    return [AttributeEvent, LearnEvent, OutcomeEvent, UpliftEvent]


@hookimpl
def memtier_web_pages() -> Sequence[WebPage]:
    """Return the page on the effects of lines, measured by runs without them."""
    return [
        WebPage(
            "/uplift",
            "What lines change",
            "what lines change in the reward of runs",
            Path(__file__).with_name("uplift.html"),
            _show_uplift,
        )
    ]


@hookimpl
def memtier_services() -> Mapping[str, Callable[[MemTier], Any]]:
    """Return the services that this plugin adds to a memory, by name."""
    return {
        "causes": causes_of,
        "retirement": retirement_of,
        "learned": learned_of,
        "logprob_creditor": logprob_creditor_of,
    }


def _show_uplift(memory: MemTier) -> Mapping[str, Any]:
    causes = causes_of(memory)
    report = causes.uplift()
    return {
        "report": report,
        "kinds": dict(report.kinds or {}),
        "lines": report.lines[:_SHOWN_LINES],
        "withhold": causes.withhold,
    }


def causes_of(memory: MemTier) -> Causes:
    """Return the service for the effects of lines, for the person at the machine."""
    from memtier_papers.memtier.causes import Causes

    return Causes(memory.actor)


def retirement_of(memory: MemTier) -> Retirement:
    """Return the service that proposes to forget lines that never helped."""
    from memtier_papers.memtier.retirement import Retirement

    return Retirement(memory.actor)


def learned_of(memory: MemTier) -> LearnLog:
    """Return the log of learned settings."""
    from memtier_papers.learn_log import LearnLog

    return LearnLog(memory.actor)


def logprob_creditor_of(memory: MemTier) -> LogprobCreditor:
    """Return the service that credits finished runs by a model's log-probabilities."""
    from memtier_papers.memtier.logprob_credit import LogprobCreditor

    return LogprobCreditor(memory.actor)


def follow_causes(memory: MemTier) -> None:
    """Bound weights by measured uplift, and propose forgetting unhelpful lines, as configured."""
    if memory.paused:
        return
    if bounded := causes_of(memory).bound_weights():
        _log.info("project %r: %d weights follow their uplift", memory.project, bounded)
    if memory.settings.of(CauseSettings).propose:
        retirement_of(memory).propose()


def _when_scored(settings: Settings) -> str | None:
    return "endpoint" if settings.of(ModelAttribution).proxy == "logprob" else None


def _when_causes(settings: Settings) -> str | None:
    return "daily" if settings.of(CauseSettings) != CauseSettings() else None


def _attribute(memory: MemTier, run: Any) -> None:
    creditor = logprob_creditor_of(memory)
    while creditor.run(stop=run.stop.is_set).left and not run.stop.is_set():
        pass
