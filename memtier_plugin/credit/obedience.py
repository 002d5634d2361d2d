"""Tell by a run's tool calls whether it kept the rules that stood in its block.

What a rule forbids is what it names of the deed that it corrected ("yarn" of "yarn add dayjs");
what it wants is what else it names ("pnpm").  A call that has all of the one and nothing of the
other breaks the rule.  A rule that names nothing of the deed is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from memtier_plugin.core.events import ObeyEvent, RecallEvent
from memtier_plugin.core.records import JournalEvent
from memtier_plugin.credit.calls import JudgedCall
from memtier_plugin.retrieval.corrections import SIGNAL, Rule, content, read_rules
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor

Verdict = Literal["kept", "broken", ""]


def judge_rules(
    actor: Actor, reader: Reader, recalls: Sequence[JournalEvent], calls: Sequence[JudgedCall]
) -> Iterator[ObeyEvent]:
    """Yield what is to be journalled of each rule in a run's blocks that a call kept or broke."""
    shown = {
        ranked.item
        for event in recalls
        for ranked in RecallEvent.of(event).injected
        if SIGNAL in ranked.signals
    }
    for rule in read_rules(reader, sorted(shown)) if shown and calls else ():
        verdicts = {judge_call(rule, f"{call.name} {call.text}"): call for call in calls[::-1]}
        if call := verdicts.get("broken") or verdicts.get("kept"):
            yield ObeyEvent(
                items=(rule.item.id,),
                kept="broken" not in verdicts,
                tool=call.name,
                call=actor.redactor.redact(call.text).text,
            )


def judge_call(rule: Rule, call: str) -> Verdict:
    """Return whether a call keeps a rule or breaks it; "" where it does neither."""
    known = content(rule.request)
    names, deed, words = content(rule.item.text) - known, content(rule.deed), content(call)
    forbidden, wanted = names & deed, names - deed
    if not forbidden:
        return ""
    if wanted & words:
        return "kept"
    return "broken" if forbidden <= words else ""
