"""Answer at a glance whether a project's memory works: who calls, what is stored, what is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.records import INJECTING, Entry
from memtier_plugin.core.structs import Record
from memtier_plugin.facts import service
from memtier_plugin.lifecycle import edit
from memtier_plugin.memory import REMEMBERED_SESSION, MemTier
from memtier_plugin.operations.hook_calls import is_failing
from memtier_plugin.storage.index.item_reader import SessionSpan
from memtier_plugin.storage.readers import Reader
from memtier_plugin.views.journal import LogSummary, newest_recall, summarise, why_silent
from memtier_plugin.views.reading import read_log_lines

_RUN_LINES: Final = 200  # last lines of a session, among which those of its last run are
# Sessions of what a person typed for MemTier itself, in no host's run.
_TYPED: Final = (REMEMBERED_SESSION, service.EDITED_SESSION, edit.EDITED_SESSION)
_COMMAND: Final = re.compile(r"`(memtier [^`]+)`")

Verdict = Literal["working", "not yet", "problem"]


class AgentActivity(Record, frozen=True):
    """An agent's last hook call, stored line and recall (ISO times), and a hook's error."""

    agent: str
    called: str | None = None
    stored: str | None = None
    recalled: str | None = None
    error: str = ""

    @property
    def latest(self) -> str | None:
        """The latest of these times."""
        return max(filter(None, (self.called, self.stored, self.recalled)), default=None)


class LastRun(Record, frozen=True):
    """The newest recorded run: its prompt, its answer ("" before it has one), its lines."""

    at: str
    agent: str
    session: str
    prompt: str
    answer: str
    lines: int


class LastRecall(Record, frozen=True):
    """The newest recall for a prompt; ``shown`` are the (id, text) of its lines.

    ``silence`` says why there are none; a text is None if the line was forgotten since.
    """

    id: str
    at: str
    agent: str
    prompt: str
    shown: tuple[tuple[str, str | None], ...]
    silence: str


class ProjectOverview(Record, frozen=True):
    """The state of a project at a glance.

    Attributes:
        why: the verdict's reason, in one sentence.
        remedy: the command that helps, or "".
        at: when this was read; ages refer to it.
        problems, warnings: as in the status.
        agents: latest first.
        idle_hosts: set up, but without a call.
        waiting: what waits for review.
    """

    verdict: Verdict
    why: str
    remedy: str
    at: str
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    agents: tuple[AgentActivity, ...]
    idle_hosts: tuple[str, ...]
    run: LastRun | None
    recall: LastRecall | None
    waiting: int
    lines: int
    facts: int
    today: LogSummary


def read_overview(
    memory: MemTier, spans: Sequence[SessionSpan], hosts: Sequence[str], silent: Sequence[str]
) -> ProjectOverview:
    """Read the overview of a project.

    Args:
        spans: the project's sessions, the newest first.
        hosts: those set up for the project.
        silent: descriptions of hosts that went silent.
    """
    now = memory.actor.clock()
    status = memory.status()
    agents = _list_agents(status)
    used = {each.agent.partition(".")[0] for each in agents}
    with memory.store.session() as reader:
        run, recall = _last_run(reader, spans), _last_recall(reader)
    problems = (*map(str, status["degraded"]), *silent)
    idle = tuple(sorted({*hosts} - used))
    verdict, why, remedy = _judge(status, problems, agents, idle, recall)
    return ProjectOverview(
        verdict=verdict,
        why=why,
        remedy=remedy,
        at=to_iso(now),
        problems=problems,
        warnings=tuple(map(str, status["warnings"])),
        agents=agents,
        idle_hosts=idle,
        run=run,
        recall=recall,
        waiting=sum(status["review"].values()),
        lines=status["entries"],
        facts=status["facts"],
        today=summarise(read_log_lines(memory, date=to_iso(now)[:10])),
    )


def _list_agents(status: Mapping[str, Any]) -> tuple[AgentActivity, ...]:
    """Return the agents that called, or of which something is stored, the latest first."""
    marks, waits, stored = status["hooks"], status["waits"], status["agents"]
    agents = []
    for agent in {*marks, *waits, *stored}:
        hooks = marks.get(agent, {}).values()
        calls = [mark.get(name) for mark in hooks for name in ("last_ok", "last_error")]
        calls += [mark["last"] for mark in waits.get(agent, {}).values()]
        errors = [str(mark["error"]) for mark in hooks if is_failing(mark)]
        activity = AgentActivity(
            agent=agent,
            called=max(filter(None, calls), default=None),
            stored=stored.get(agent, {}).get("last_stored"),
            recalled=stored.get(agent, {}).get("last_recall"),
            error=next(iter(errors), ""),
        )
        agents.append(activity)
    return tuple(sorted(agents, key=lambda each: each.latest or "", reverse=True))


def _last_run(reader: Reader, spans: Sequence[SessionSpan]) -> LastRun | None:
    span = next((span for span in spans if span.session not in _TYPED), None)
    if span is None:
        return None
    ids = reader.ids_in_session(span.agent, span.session)[-_RUN_LINES:]
    stored = reader.items(ids).values()
    entries = [
        each.item for each in stored if isinstance(each.item, Entry) and not each.state.forgotten
    ]
    if not entries:
        return None
    last = max(entries, key=lambda entry: (entry.observed_at, entry.id))
    entries = [entry for entry in entries if entry.run_id == last.run_id]
    prompt = next((entry.content for entry in entries if entry.role == "user"), "")
    answer = last.content if last.role == "assistant" else ""
    at = to_iso(last.observed_at)
    return LastRun(at, span.agent, span.session, prompt, answer, len(entries))


def _last_recall(reader: Reader) -> LastRecall | None:
    newest = newest_recall(reader)
    if newest is None or newest[1].purpose not in INJECTING:
        return None
    event, recall = newest
    ids = [ranked.item for ranked in recall.injected]
    stored = reader.items(ids)
    texts = {
        identity: None if each.state.forgotten else each.item.text
        for identity, each in stored.items()
    }
    return LastRecall(
        id=event.id,
        at=to_iso(event.timestamp),
        agent=event.agent_id,
        prompt=recall.query,
        shown=tuple((identity, texts.get(identity)) for identity in ids),
        silence=why_silent(recall.to_json()),
    )


def _judge(
    status: Mapping[str, Any],
    problems: Sequence[str],
    agents: Sequence[AgentActivity],
    idle_hosts: Sequence[str],
    recall: LastRecall | None,
) -> tuple[Verdict, str, str]:
    """Return the verdict, its reason and the command that helps, if any."""
    if status["paused"]:
        return "problem", "The project is off: nothing is recorded or recalled.", "memtier on"
    if problems:
        command = _COMMAND.search(problems[0])
        return "problem", problems[0], command[1] if command else "memtier doctor"
    if not status["entries"]:
        if any(each.called for each in agents):
            return "not yet", "A host calls MemTier. Its first turn is recorded when it ends.", ""
        if idle_hosts:
            names = " and ".join(idle_hosts)
            return "not yet", f"{names} is set up. Start a session there and say something.", ""
        return "not yet", "No host is connected, and nothing is recorded.", "memtier install"
    lines = f"{_count(status['entries'])} {'is' if status['entries'] == 1 else 'are'} recorded."
    if recall is None:
        return "not yet", f"{lines} No prompt has asked the memory yet.", ""
    if recall.shown:
        return "working", f"The last prompt got {_count(len(recall.shown))}. {lines}", ""
    return "working", f"The last prompt needed no line. {lines}", ""


def _count(lines: int) -> str:
    return f"{lines:,} line{'s' * (lines != 1)}"
