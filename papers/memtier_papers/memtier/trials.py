"""Read from the journal the runs that took part in the lottery, and their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memtier_papers.memtier.events import OutcomeEvent, Withholding
from memtier_papers.memtier.uplift import Observation, Uplift, estimate_uplift
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import UNDO_KINDS, undone_runs

RunKey = tuple[str, str | None]  # the agent and its run

_ORDER: Final = ("helps", "harms", "unclear", "too few runs")


@dataclass(frozen=True, slots=True)
class LineUplift:
    """A line, its text, and the effect of showing it."""

    id: str
    kind: str
    text: str
    uplift: Uplift


@dataclass(frozen=True, slots=True)
class UpliftReport:
    """What the journal's runs reveal about the effects of lines.

    Attributes:
        runs: finished runs that took part in the lottery.
        withheld: those among them that withheld a line.
        unfinished: participating runs with unknown outcome; ``unfinished_withheld`` of them
            withheld a line. If their shares differ much, withholding changed which runs finish.
        kinds: the uplift of all lines of a kind together.
        lines: those with the most certain result first.
    """

    runs: int = 0
    withheld: int = 0
    unfinished: int = 0
    unfinished_withheld: int = 0
    kinds: Mapping[str, Uplift] | None = None
    lines: Sequence[LineUplift] = ()


def kind_of(item: Entry | Fact) -> str:
    """Return what kind of line an item is: user, assistant, fact, how-to, summary and so on."""
    if isinstance(item, Fact):
        return item.shelf or ("fact" if item.tier == "semantic" else "how-to")
    return item.role


def outcomes(reader: Reader, agent: str | None = None) -> dict[RunKey, OutcomeEvent]:
    """Return the outcomes of runs by their last attempt, without undone runs."""
    ended: dict[RunKey, OutcomeEvent] = {}
    for event in reader.events(kinds=[OutcomeEvent.KIND], agent=agent):
        outcome, run = OutcomeEvent.of(event), (event.agent_id, event.run_id)
        if run not in ended or outcome.attempt >= ended[run].attempt:
            ended[run] = outcome
    hidden, uncredited = undone_runs(reader.events(kinds=[*UNDO_KINDS]))
    return {run: outcome for run, outcome in ended.items() if run not in hidden | uncredited}


def report_uplift(reader: Reader, agent: str | None = None) -> UpliftReport:
    """Return the uplift of every line in the lottery, and of every kind of line.

    Args:
        agent: count only this agent's runs; None for every agent's.
    """
    lotteries = _first_lotteries(reader.events(kinds=[RecallEvent.KIND], agent=agent))
    by_recall = {i: key for key, (_, _, ids) in lotteries.items() for i in ids}
    observed: dict[str, list[Observation]] = {}
    ended: dict[RunKey, bool] = {}  # whether it withheld a line
    for run, outcome in outcomes(reader, agent).items():
        keys = dict.fromkeys(by_recall[i] for i in outcome.recalls if i in by_recall)
        for key in keys:
            lottery, in_lottery, _ = lotteries[key]
            ended[key] = lottery.item is not None
            share = lottery.p * len(in_lottery)
            chance = 1 - share if lottery.item is None else lottery.p
            seen = Observation(f"{run[0]}\n{run[1]}", lottery.item is None, chance, outcome.reward)
            for line in in_lottery if lottery.item is None else [lottery.item]:
                observed.setdefault(line, []).append(seen)
    lines, kinds = _by_line_and_kind(reader, observed)
    open_runs = [lottery.item for key, (lottery, _, _) in lotteries.items() if key not in ended]
    return UpliftReport(
        runs=len(ended),
        withheld=sum(ended.values()),
        unfinished=len(open_runs),
        unfinished_withheld=sum(item is not None for item in open_runs),
        kinds=kinds,
        lines=lines,
    )


def _by_line_and_kind(
    reader: Reader, observed: Mapping[str, list[Observation]]
) -> tuple[list[LineUplift], dict[str, Uplift]]:
    """Return the uplift of each line that still exists, and of the kinds of these lines."""
    lines: list[LineUplift] = []
    by_kind: dict[str, list[Observation]] = {}
    for stored in reader.items(observed).values():
        if stored.state.withdrawn:
            continue
        item, seen = stored.item, observed[stored.item.id]
        by_kind.setdefault(kind_of(item), []).extend(seen)
        lines.append(LineUplift(item.id, kind_of(item), item.text, estimate_uplift(seen)))
    lines.sort(key=_sort_key)
    return lines, {kind: estimate_uplift(seen) for kind, seen in sorted(by_kind.items())}


def _sort_key(line: LineUplift) -> tuple[Any, ...]:
    uplift = line.uplift
    return _ORDER.index(uplift.verdict), -abs(uplift.mean or 0.0), -uplift.withheld, line.id


def _first_lotteries(
    events: Iterable[JournalEvent],
) -> dict[RunKey, tuple[Withholding, tuple[str, ...], list[str]]]:
    """Return the first lottery of each run, the lines in it, and the run's recalls.

    A run withholds at most one line, so its later lotteries are not independent.
    """
    first: dict[RunKey, tuple[Withholding, tuple[str, ...], list[str]]] = {}
    for event in events:
        recall = RecallEvent.of(event)
        lottery, key = Withholding.of(recall), (event.agent_id, event.run_id)
        if lottery is None:
            continue
        if key not in first:
            shown = [ranked.item for ranked in recall.injected]
            shown = [item for item in shown if item not in (lottery.exempt or ())]
            lines = (*shown, lottery.item) if lottery.item else tuple(shown)
            first[key] = lottery, lines, []
        first[key][2].append(event.id)
    return first
