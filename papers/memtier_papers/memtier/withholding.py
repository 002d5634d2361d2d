"""Occasionally leave one line out of a run's prompt, to learn the line's effect.

A run's outcome does not reveal the effect of its lines: a line that is always present in successful
runs may have nothing to do with their success. So a lottery leaves one of them out, and `memtier
uplift` compares the runs. The draw depends on the run's id, so that a repeated prompt omits the
same line.

Exempt lines are always shown: standing instructions, lines that say what is current or no longer
is, and the lines of the prompt's own session.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from memtier_papers.memtier.events import Withholding
from memtier_papers.memtier.settings import CauseSettings
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.records import INJECTING, JournalEvent
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.standing import is_standing

if TYPE_CHECKING:
    from memtier_plugin.retrieval.journal import RecallJournal
    from memtier_plugin.retrieval.plan import RecallPlan
    from memtier_plugin.storage.readers import Reader
    from memtier_plugin.storage.store import Actor

_HASHED: Final = 8  # bytes


def pack_without_a_line(
    plan: RecallPlan, recall_id: str, actor: Actor, journal: RecallJournal
) -> tuple[tuple[Hit, ...], str, Withholding | None] | None:
    """Return the injected hits, the packed block, and the draw that withheld a line, if any.

    Only recalls for the prompt of a named run take part; for others it returns None.
    """
    share, request = actor.store.settings.of(CauseSettings).withhold, plan.query.request
    if not share or not request.run_id or request.purpose not in INJECTING:
        return None
    injected, block = plan.block.fill(recall_id)
    if not injected:
        return injected, block, None
    exempt = tuple(hit.id for hit in injected if not may_be_withheld(hit, plan))
    lines = [hit.id for hit in injected if hit.id not in exempt]
    lottery = draw(f"{actor.agent}\n{request.run_id}", lines, share, exempt)
    if lottery is None or lottery.item is None:
        return injected, block, lottery
    before = journal.recalls_before(request.run_id, request.session_id or "")
    first = next(filter(None, map(Withholding.of, before)), None)
    if first is not None:  # a run misses one line, and misses it in all of its prompts
        if first.item not in lines:
            return injected, block, None
        lottery = Withholding(p=first.p, item=first.item, exempt=exempt or None)
    return *plan.block.fill(recall_id, without=lottery.item or ""), lottery


def draw(
    seed: str, lines: Sequence[str], share: float, exempt: tuple[str, ...] = ()
) -> Withholding | None:
    """Draw which line a run goes without; None if no line takes part.

    All lines are equally likely: with one of m withheld in a share p of the runs, p / m.
    """
    if not lines:
        return None
    drawn = _number(seed) < share
    item = min(lines, key=lambda line: _number(f"{seed}\n{line}")) if drawn else None
    return Withholding(p=share / len(lines), item=item, exempt=exempt or None)


def may_be_withheld(hit: Hit, plan: RecallPlan) -> bool:
    """Return whether a line may be withheld: nothing else rests on its being shown."""
    led = any(hit.id == first.id for first in plan.judged.added)
    current = bool(hit.note) or hit.id in plan.current
    return not (led or current or is_standing(hit.item))


def explain_withheld(recall: JournalEvent, reader: Reader) -> dict[str, Any] | None:
    """Return what a recall withheld, with its text; None if it took no part in the lottery."""
    lottery = Withholding.of(RecallEvent.of(recall))
    if lottery is None:
        return None
    row = reader.items([lottery.item]).get(lottery.item) if lottery.item else None
    text = row.item.text if row and not row.state.forgotten else ""
    return {"item": lottery.item, "p": lottery.p, "text": text, "said": describe_withheld(lottery)}


def describe_withheld(lottery: Withholding) -> str:
    """Describe the lottery of a recall in words."""
    if lottery.item is None:
        return f"each line might have been left out, to measure it ({lottery.p:.2%} each)"
    return f"it was left out to measure what it changes (`causes.withhold`; {lottery.p:.2%} a line)"


def _number(text: str) -> float:
    """Return a number in [0, 1) derived from a text."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()[:_HASHED]
    return int.from_bytes(digest, "big") / float(1 << 8 * _HASHED)
