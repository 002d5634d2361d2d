"""Credit what was injected for a question, as MemTier's benchmark does, or by a call of its own.

A question has no tools with an outcome.  In MemTier's benchmark a right answer takes their place
(section 3.2): items that share words with it earn eq. 1's reward of 1, and a wrong answer earns
nothing.  To measure what the credit of calls does, a question becomes a run with one call.
"""

from __future__ import annotations

import json
from datetime import datetime

from memtier_papers.memtier.run_credit import share_by_words
from memtier_plugin.core.formats import utc_now
from memtier_plugin.core.records import Message, ToolCall
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


def act_on_block(
    memory: MemTier,
    recall: Recall,
    session: str,
    taken: str,
    at: datetime | None,
    *,
    ok: bool,
    credits: bool,
) -> None:
    """Record a question as a run with one call, unless that takes nothing from the block.

    Args:
        session, at: of the question.
        taken: the lines whose words the call takes.
        ok: whether the call works.
        credits: whether its outcome counts.

    Raises:
        LedgerError: the run was not written.
    """
    if not taken:
        return
    call = ToolCall(name="act", call_id="1", arguments=json.dumps({"text": taken}))
    ended = ToolCall(name="act", call_id="1", ok=ok, exit_code=int(not ok))
    messages = [
        Message(role="user", content=recall.query),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="done" if ok else "refused", tool=ended),
    ]
    if credits:
        memory.end_run(messages, session_id=session, recall_ids=[recall.id], observed_at=at)
    else:
        memory.record(messages, session_id=session, observed_at=at)
