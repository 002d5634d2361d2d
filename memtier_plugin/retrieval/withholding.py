"""Leave one line out of a run's prompt now and then, to learn what the line changes.

What the lines of a run do cannot be told from how it ended: a line that is always there when things
go well may have nothing to do with it. So a lottery leaves one of them out, and `memtier uplift`
compares the runs. It goes by the run's id: asked again, a run has the same line left out.

A line that takes no part is always shown: a standing instruction, a line that says what is current
or no longer is, and the lines of the prompt's own session.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from memtier_plugin.core.cause_events import Withholding
from memtier_plugin.core.records import INJECTING, Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.text.traits import is_standing_instruction

if TYPE_CHECKING:
    from memtier_plugin.retrieval.journal import RecallJournal
    from memtier_plugin.retrieval.plan import RecallPlan

_STANDING_RELATIONS: Final = frozenset(
    {"standing_instruction", "instruction", "rule", "always", "never", "constraint"}
)
_HASHED: Final = 8  # bytes


class Withholder:
    """Fills the blocks of one agent's recalls, without a line where the lottery says so.

    Args:
        share: of the runs of which one line is withheld; 0 for none (`causes.withhold`).
    """

    def __init__(self, journal: RecallJournal, agent: str, share: float) -> None:
        self._journal = journal
        self._agent = agent
        self._share = share

    def fill(
        self, plan: RecallPlan, recall_id: str
    ) -> tuple[tuple[Hit, ...], str, Withholding | None]:
        """Return the injected hits, the packed block, and the draw that withheld a line, if any.

        Only a recall for the prompt of a named run takes part.
        """
        injected, block = plan.block.fill(recall_id)
        request = plan.query.request
        prompted = injected and request.purpose in INJECTING
        if not self._share or not request.run_id or not prompted:
            return injected, block, None
        exempt = tuple(hit.id for hit in injected if not may_be_withheld(hit, plan))
        lines = [hit.id for hit in injected if hit.id not in exempt]
        lottery = draw(f"{self._agent}\n{request.run_id}", lines, self._share, exempt)
        if lottery is None or lottery.item is None:
            return injected, block, lottery
        first = self._journal.first_withholding(request.run_id, request.session_id or "")
        if first is not None:  # a run misses one line, and misses it in all of its prompts
            if first.item not in lines:
                return injected, block, None
            lottery = Withholding(p=first.p, item=first.item, exempt=exempt or None)
        return *plan.block.fill(recall_id, without=lottery.item or ""), lottery


def draw(
    seed: str, lines: Sequence[str], share: float, exempt: tuple[str, ...] = ()
) -> Withholding | None:
    """Draw which of some lines a run goes without; None where no line takes part.

    Each is as likely as any other: with one of m withheld in a share p of the runs, p / m.
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


def is_standing(item: Entry | Fact) -> bool:
    """Tell whether an item is a rule or a standing instruction."""
    is_rule = isinstance(item, Fact) and item.relation in _STANDING_RELATIONS
    return is_rule or is_standing_instruction(item.text)


def _number(text: str) -> float:
    """Return a number in [0, 1) that is a function of a text."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()[:_HASHED]
    return int.from_bytes(digest, "big") / float(1 << 8 * _HASHED)
