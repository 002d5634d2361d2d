"""Credit the items injected for a correctly answered question, as MemTier's benchmark does.

A question has no tools with an outcome, so a right answer takes their place (MemTier, section 3.2):
items that share words with it earn eq. 1's reward of 1.  A wrong answer earns nothing.
"""

from __future__ import annotations

from memtier_plugin.core.formats import utc_now
from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.core.results import Recall
from memtier_plugin.credit.assignment import assign_credit
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.redaction import Redactor


def credit_right_answer(memory: MemTier, recall: Recall, run: str, answer: str) -> bool:
    """Credit the items of a recall for a right answer; return whether any shared its words.

    Raises:
        IndexProblem, LedgerError: the credits were not written.
    """
    memory.store.refresh(memory.agent_id, wait_ms=2000)
    event = memory.store.reader().event(recall.id)
    if event is None:
        return False
    right = ToolCall(name="answer", ok=True)
    messages = [
        Message(role="tool", content="", tool=right),
        Message(role="assistant", content=answer),
    ]
    actor = Actor(memory.store, memory.agent_id, utc_now, Redactor())
    result = assign_credit(actor, run, messages, [event], entries=[], refused={}, failed=False)
    return any(delta > 0 for delta in result.credits.values())
