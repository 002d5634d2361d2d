"""Credit the items injected for a correctly answered question, as MemTier's benchmark does.

A question has no tools with an outcome, so a right answer takes their place (MemTier, section 3.2):
items that share words with it earn eq. 1's reward of 1.  A wrong answer earns nothing.
"""

from __future__ import annotations

from memtier_papers.memtier.run_credit import share_by_words
from memtier_plugin.core.formats import utc_now
from memtier_plugin.core.records import Message
from memtier_plugin.core.results import Recall
from memtier_plugin.credit.assignment import RunShares
from memtier_plugin.credit.outcomes import STATED
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.redaction import Redactor


def credit_right_answer(memory: MemTier, recall: Recall, run: str, answer: str) -> bool:
    """Credit the items of a recall for a right answer; return whether any shared its words.

    Raises:
        IndexProblem, LedgerError: the credits were not written.
    """
    memory.store.refresh(memory.agent_id, wait_ms=2000)
    messages = [Message(role="assistant", content=answer)]
    actor = Actor(memory.store, memory.agent_id, utc_now, Redactor())
    with memory.store.session() as reader:
        event = reader.event(recall.id)
        if event is None:
            return False
        shares = RunShares(actor, run, [event])
        rule = share_by_words(shares, reader, messages, 1.0, STATED)
        credits = shares.credits(reader, rule)
    memory.store.append_events([actor.event(credit, run=run) for credit in credits])
    return any(credit.delta > 0 for credit in credits)
