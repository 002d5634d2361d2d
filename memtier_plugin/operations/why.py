"""Tell why something that was said did not reach a prompt: one answer, by stage.

`retrieval.explain` tells what one recall did with one line.  This finds the lines that say
something, and the recall of a prompt (or rehearses one), and asks about each; the line that came
furthest gives the answer.  Nothing is written.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.events import CreditEvent, PurgeEvent, RecallEvent, describe_call
from memtier_plugin.core.formats import ID_LENGTH, MIN_ID_END, to_iso
from memtier_plugin.core.paths import encode_file_name, list_projects
from memtier_plugin.core.records import INJECTING, Entry, Fact, JournalEvent
from memtier_plugin.core.results import RecallRequest
from memtier_plugin.facts import backlog
from memtier_plugin.facts.drafts import DraftBuilder
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.lifecycle.purge.plan import PURGED_MARK
from memtier_plugin.operations.hook_calls import describe_unanswered, read_waits
from memtier_plugin.retrieval.explain import Explainer, may_see
from memtier_plugin.retrieval.hidden import find_hidden
from memtier_plugin.retrieval.journal import credits_of, read_in_full
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor, open_log

_MOST_LINES: Final = 20  # newest lines with these words that are asked about
_MOST_RECALLS: Final = 5000  # newest ones among which that of a prompt is looked for
_LATE: Final = ("deadline", "no time is left")  # in the label of a recall

STAGES: Final = (  # in the order in which a line passes them
    *("unrecorded", "masked", "project", "purged", "paused", "owner", "unconsolidated", "no_fact"),
    *("forgotten", "withdrawn", "rejected", "review", "superseded", "later", "unindexed", "held"),
    *("kind", "unfound", "standard", "failed", "restated", "repeat", "room", "changed", "late"),
    *("unasked", "shown", "ignored", "credited"),
)
_COMMANDS: Final = {  # that help, by stage; at any other the recall is explained
    "remember {text}": "unrecorded, purged, owner, no_fact, held",
    "config show": "masked, room",
    "--project {project} why {text}": "project",
    "on": "paused",
    "consolidate": "unconsolidated",
    "unforget {id}": "forgotten",
    "review --accept {id}": "rejected, review",
    "explain {id}": "withdrawn, superseded, later, failed, credited",
    "reindex": "unindexed",
    "status": "late",
    "doctor": "unasked",
}
_REASONS: Final = {  # of `explain`, by stage, where they are not the stage's name
    "owner": "unknown",
    "rejected": "reverted",
    "review": "proposed",
    "held": "system, origin",
    "kind": "talk, follow_up",
    "unfound": "no candidate, ranked, depth, entry",
    "standard": "floor, weak, question, receipt, letters, far",
    "restated": "said, duplicate",
    "room": "k, tokens, tries",
    "shown": "injected",
}


def _by_each(several: Mapping[str, str]) -> dict[str, str]:
    return {name: key for key, names in several.items() for name in names.split(", ")}


_NEXT: Final = _by_each(_COMMANDS)
_STAGES: Final = dict(zip(STAGES, STAGES, strict=True)) | _by_each(_REASONS)


def _is_behind(stage: str, other: str) -> bool:
    return STAGES.index(stage) > STAGES.index(other)


class _Answer(NamedTuple):
    stage: str
    message: str
    stored: Stored | None = None
    why: Mapping[str, Any] | None = None
    project: str = ""


@dataclass(frozen=True)
class Inquiry:
    """Why a text (or the line of an id) was not used for a prompt; see `MemTier.why`."""

    actor: Actor
    text: str
    prompt: str | None = None
    agent: str | None = None
    sender: str | None = None

    def answer(self) -> dict[str, Any]:
        """Return the stage, what it means and what helps; the line, the recall and other lines."""
        self.actor.store.catch_up_all()
        with self.actor.store.session():
            answers = [*map(self._follow, self._lines)] or [self._unrecorded()]
            if masked := self.actor.redactor.redact(self.text).kinds:
                message = f"{', '.join(masked)}: secrets are masked before anything is written"
                answers = [each._replace(stage="masked", message=message) for each in answers]
            best = max(answers, key=lambda each: STAGES.index(each.stage))
            return self._document(best, [each for each in answers if each is not best])

    # -- the lines that say it -----------------------------------------------------------------

    @cached_property
    def _reader(self) -> Reader:
        return self.actor.store.reader()

    @cached_property
    def _lines(self) -> list[Stored]:
        """The line of this id, or the newest lines with all of the words, that the asker may know.

        Lines that have the text as it stands come before lines with its words.
        """
        reader, asker = self._reader, Recaller(self.actor).viewer(self.sender, self.actor.clock())
        ids = list[str]()
        if MIN_ID_END <= len(self.text) <= ID_LENGTH and self.text.isalnum():
            for forgotten in (False, True):
                ids += reader.ids_ending(self.text.upper(), 2, forgotten=forgotten)
        if not ids:
            every = [*reader.entries(), *(stored.item.id for stored in reader.facts())]
            texts = {item.id: item.text for item in reader.list_items(every)}
            having = [i for i, text in texts.items() if text != self.prompt and self._says(text)]
            exact = [i for i in having if self.text.casefold() in texts[i].casefold()]
            ids = sorted(exact or having)[-_MOST_LINES:]
        return [
            stored
            for stored in reader.items(ids).values()
            if (self.actor.everybody or may_see(reader, asker, stored))
            and not (isinstance(stored.item, Fact) and stored.item.shelf)
        ]

    @cached_property
    def _words(self) -> set[str]:
        return {*self.actor.store.tokenizer.words(self.actor.redactor.redact(self.text).text)}

    def _says(self, text: str) -> bool:
        return bool(self._words) and self._words <= {*self.actor.store.tokenizer.words(text)}

    def _unrecorded(self) -> _Answer:
        """Return why nothing says it."""
        if self.actor.store.paused:
            return _Answer("paused", "the project is off: nothing is recorded, nothing is recalled")
        shown = [hit.item for hit in self._recall.injected] if self._is_journalled else []
        for stored in self._reader.items(shown).values():
            if not stored.item.text or PURGED_MARK in stored.item.text:
                return _Answer("purged", "some of what this prompt was shown is purged", stored)
        home, here = self.actor.store.project_folder.home, self.actor.store.project
        for project in list_projects(home) if self.actor.everybody else ():
            with suppress(MemTierError):
                log = open_log(home / "projects" / encode_file_name(project))
                entries = (logged.entry for logged in log.entries() if project != here)
                if any(entry and self._says(entry.content) for entry in entries):
                    message = f"it was recorded in the project {project!r}"
                    return _Answer("project", message, project=project)
        message = "no line of this project has these words"
        if self._reader.events([PurgeEvent.KIND], newest=1):
            message += "; what was purged here left no words to compare"
        return _Answer("unrecorded", message)

    # -- the recall ----------------------------------------------------------------------------

    @cached_property
    def _event(self) -> JournalEvent:
        """The newest recall for the prompt, or else what it would be now."""
        agent = self.agent if self.actor.everybody else self.actor.agent
        events = self._reader.events([RecallEvent.KIND], agent=agent, newest=_MOST_RECALLS)
        prompts = [event for event in events if RecallEvent.of(event).purpose in INJECTING]
        wanted = _words_of(Recaller(self.actor).redact((self.prompt or "")[:2000]))
        for event in prompts:
            recall = RecallEvent.of(event)
            is_theirs = self.sender is None or (recall.sender or "") == self.sender
            query = _words_of(recall.query)  # a subject of its session may stand behind it
            if is_theirs and (not wanted or query == wanted or query.startswith(f"{wanted} (")):
                return read_in_full(event, self._reader)
        lines = (line.item for line in self._lines)
        asking = [agent, *(event.agent_id for event in prompts[:1])]
        asking += [span.agent for span in self._reader.session_spans()]
        asking += [*(i.agent_id for i in lines if isinstance(i, Entry)), self.actor.agent]
        actor = replace(self.actor, agent=next(filter(None, asking)), everybody=False)
        request = RecallRequest(purpose="inject", sender=self.sender)
        return read_in_full(Recaller(actor).rehearse(self.prompt or "", request), self._reader)

    @cached_property
    def _recall(self) -> RecallEvent:
        return RecallEvent.of(self._event)

    @cached_property
    def _is_journalled(self) -> bool:
        return self._reader.event(self._event.id) is not None

    # -- one line ------------------------------------------------------------------------------

    def _follow(self, stored: Stored) -> _Answer:
        """Return how far a line came."""
        if not stored.item.text:
            return _Answer("purged", "it was purged: only its id is left", stored)
        event, recall = self._event, self._recall
        explainer = Explainer(replace(self.actor, agent=event.agent_id))
        why = explainer.explain_item(event, stored.item.id)
        reason, message = why["reason"], str(why["said"])
        stage = _STAGES.get(reason, "changed")  # or a plugin's reason
        is_silent = recall.silent and not (recall.injected or recall.near_misses)  # no search
        if reason == "duplicate":  # what became of the line that stands for it?
            [double] = self._reader.items([why["left_out"]["of"]]).values()
            other = self._follow(double)
            if not _is_behind(other.stage, "changed"):
                return other._replace(message=f"{message}; of that {other.message}")
        elif reason == "unknown":
            stage, message = self._whose(stored)
        elif reason == "injected" or (_is_behind(stage, "held") and not recall.query):
            stage, message = self._shown(stored.item.id, message)
        elif _is_behind(stage, "held") and is_silent:
            stage, message = "kind", str(recall.silent)
        elif stage == "changed" and any(sign in recall.label for sign in _LATE):
            stage, message = "late", f"the time was up before it was found ({recall.label})"
        return _Answer(stage, message, stored, why)

    def _whose(self, stored: Stored) -> tuple[str, str]:
        """Return whose a line is that the recall may not see, or why it is no shared fact."""
        item, agent = stored.item, self._event.agent_id
        if hidden := find_hidden(self._reader, self._event, stored):
            return _STAGES[hidden.reason], hidden.message
        if isinstance(item, Fact):
            return "owner", f"it is a fact of {' '.join(filter(None, item.audience)) or 'the user'}"
        owner = (item.sender or "the user") if item.agent_id == agent else item.agent_id
        if item.private or stored.state.private:
            return "owner", f"it is a line of {owner}, told in confidence"
        if item.agent_id == agent:
            return "owner", f"it is a line of {owner}, and the prompt was not theirs"
        if self._reader.facts_citing([item.id]):
            return "owner", f"it is a line of {owner}, and its facts say something else"
        return self._no_fact(item, f"it is a line of {owner}")

    def _no_fact(self, entry: Entry, whose: str) -> tuple[str, str]:
        """Return why another agent's line is no fact: not read yet, or what the rules say."""
        store, builder = self.actor.store, DraftBuilder(self.actor, FactWriter(self.actor))
        if not (refused := builder.refusal_reason(entry)):
            count = self._reader.counts()["entries"]
            unread = backlog.read_window(store, backlog.RULES, count).entries
            if entry.id in {each.id for each in unread}:
                return "unconsolidated", f"{whose}, and was not consolidated yet"
            window = backlog.Window(entries=[entry])
            reasons = builder.build(backlog.RULES, window).rejected + window.skipped
            refused = ", ".join(reasons) or "they find no statement in it"
        return "no_fact", f"{whose}, of which the rules made no fact: {refused}"

    def _shown(self, item: str, message: str) -> tuple[str, str]:
        """Return what became of a line that the recall chose."""
        event, recall = self._event, self._recall
        if not recall.query:
            return "unasked", "no recall for a prompt is journalled"
        if not self._is_journalled:
            waits = read_waits(self.actor.store.project_folder.home, self.actor.store.project)
            missed = describe_unanswered({event.agent_id: waits.get(event.agent_id, {})})
            problem = "; ".join(missed) or "the host did not ask"
            now = message.replace("was", "would be", 1)
            return "unasked", f"no recall for this prompt is journalled ({problem}); now {now}"
        if recall.purpose == "offer":
            return "late", message
        credits = map(CreditEvent.of, credits_of(self._reader, event))
        if mine := [credit for credit in credits if credit.item == item]:
            call = describe_call(mine[-1].to_json()) or "its run"
            return "credited", f"{message}; {call}, weight {mine[-1].delta:+.3f}"
        after = event.timestamp.timestamp()
        of_run: dict[str, Any] = {"run": event.run_id}
        if not event.run_id:
            of_run = {"session": recall.session_id or "", "since": after}
        if self._reader.entries(agent=event.agent_id, **of_run):
            return "ignored", f"{message}; nothing that its run did rests on it"
        return "shown", f"{message}; its run is not recorded"

    # -- the answer ----------------------------------------------------------------------------

    def _document(self, best: _Answer, others: Sequence[_Answer]) -> dict[str, Any]:
        event, recall, journalled = self._event, self._recall, self._is_journalled
        item = best.stored.item.id if best.stored else ""
        again = "explain {recall} --why {id}" if journalled else "--agent {agent} recall {query}"
        quoted = {"text": self.text, "query": recall.query, "project": best.project, "id": item}
        quoted |= {"recall": event.id, "agent": event.agent_id}
        values = {name: shlex.quote(value) for name, value in quoted.items()}
        command = _NEXT.get(best.stage, again).format(**values)
        return {
            "text": self.text,
            "stage": best.stage,
            "said": best.message,
            "next": f"memtier {command}",
            "line": _describe(best.stored) if best.stored else None,
            "recall": {
                "id": event.id if journalled else None,
                "at": to_iso(event.timestamp),
                "agent": event.agent_id,
                **{name: getattr(recall, name) for name in ("sender", "query", "label")},
            },
            "others": [
                {**_describe(each.stored), "stage": each.stage, "said": each.message}
                for each in others
                if each.stored
            ],
            "why": best.why,
        }


def _words_of(text: str) -> str:
    return " ".join(text.casefold().split())


def _describe(stored: Stored) -> dict[str, Any]:
    """Return what a line says, where and when it was recorded, and by whom."""
    item = stored.item
    source = item.source if isinstance(item, Entry) else item.sources[0]
    return {
        "id": item.id,
        "text": "" if stored.state.forgotten else item.text,
        "at": to_iso(item.timestamp),
        "who": item.speaker or item.role if isinstance(item, Entry) else "fact",
        "agent": source.agent,
        "session": source.session,
        "file": stored.file,
        "line": stored.line,
    }
