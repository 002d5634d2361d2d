"""Share a project's facts with a team in its git repository, and bring in what others share.

What leaves is what anybody may see: facts that hold, of the project and not of a person, that rest
on no confidence, are not sensitive and hold no secret.  Their quotes, sources and senders stay.

What comes in is the repository's text, as its notes to agents are: a line becomes an entry of the
origin `external`, and a fact on it that waits for review.  The session of the entry names the file
and the commit; the fact keeps its id, so that it is known again in every clone.  What another clone
ended is hidden here if it came from git; a fact of this clone's own waits for a person's decision.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import NotFound, Paused, UnsafePath
from memtier_plugin.core.events import ForgetEvent, PromoteEvent, ProposeEvent, UnforgetEvent
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text
from memtier_plugin.core.git import Repository
from memtier_plugin.core.records import FROM_GIT, Entry, Fact, JournalEvent, Message
from memtier_plugin.core.structs import replace_fields
from memtier_plugin.facts.forgetting import propose_forget
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.ingest.messages import Delivery, ImportedMessage, Session
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.home_files import register_export
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.transfer.team_choice import (
    all_lines,
    came_from_git,
    choose_facts,
    find_rest,
    is_public,
)
from memtier_plugin.transfer.team_files import (
    FOLDER,
    EndedFact,
    Line,
    SharedFact,
    TeamFacts,
    find_tree,
    parse_lines,
    read_own_file,
    read_team_facts,
    render,
    write_own_file,
)
from memtier_plugin.trust.redaction import Redactor

STATE: Final = "share.json"  # in the project's folder: this clone's name, and the trees brought in
_PREFIX: Final = "git:"  # of the runs and sessions of what came from a repository
_CLONE: Final = re.compile(r"[0-9a-f]{16}")
_TOGETHER: Final = 200  # facts that are written at a time
_MOST_TREES: Final = 32  # the newest that are remembered as brought in


@dataclass(slots=True)
class BroughtIn:
    """What was brought in: ids of facts, and of lines that are none ``bad`` says where.

    ``known`` counts lines that say what was known already, or was rejected or forgotten here;
    ``asked`` are own facts that others ended, for which a person is asked.
    """

    commit: str = ""
    new: list[str] = field(default_factory=list)
    known: int = 0
    ended: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SharedFile:
    """This clone's file: its facts and ended facts, and why how many facts are not in it."""

    path: Path
    facts: int
    ended: int
    left_out: Mapping[str, int]
    changed: bool
    committed: bool


class Team:
    """The facts of a team in the repository that a memory works in.

    Raises:
        NotFound: the memory's workspace is in no work tree of git.
        UnsafePath: the home is where the repository keeps its facts.
    """

    def __init__(self, memory: MemTier) -> None:
        workspace = memory.actor.workspace
        repository = Repository.of(workspace) if workspace else None
        # A repository's configuration may name a work tree that is elsewhere.
        if repository is None or not _is_within(workspace, repository.top):
            raise NotFound(
                f"{workspace}: not a work tree of git, or git is not installed; "
                "`git init` makes one"
            )
        folder = (repository.top / FOLDER).parent.resolve()
        if folder in (home := memory.home.resolve(), *home.parents):
            raise UnsafePath(f"{folder} has the home: it must not get into a repository")
        self._memory = memory
        self._repository = repository
        self._actor = memory.actor
        self._store = memory.store
        self._writer = FactWriter(memory.actor)

    @property
    def _state(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, TypeError, KeyError):
            state = parse_json_text((self._memory.folder / STATE).read_bytes())
            if _CLONE.fullmatch(state["clone"]) and isinstance(state["seen"], list):
                return dict(state)
        return {"clone": secrets.token_hex(8), "seen": []}

    def _keep_state(self, state: Mapping[str, Any]) -> None:
        write_private_file(self._memory.folder / STATE, json.dumps(state))

    # -- bringing in ---------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether the checked out commit has files of facts that were not brought in."""
        _, tree = find_tree(self._repository)
        return bool(tree) and self._mark(tree) not in self._state["seen"]

    def _mark(self, tree: str) -> str:
        return f"{self._memory.agent_id} {tree}"

    def bring_in(self) -> BroughtIn:
        """Bring in the facts of the commit that is checked out; again changes nothing.

        Raises:
            Paused: the project is switched off.
            LedgerError, IndexProblem: a part was brought in; again brings in the rest.
        """
        if self._memory.paused:
            raise Paused(f"project {self._memory.project!r} is off; `memtier on` switches it on")
        with self._store.exclusive("share"):
            facts = read_team_facts(self._repository)
            done = BroughtIn(facts.commit, bad=facts.bad)
            self._store.catch_up_all()
            self._apply(facts, done)
            if facts.tree:
                state = self._state
                seen = [mark for mark in state["seen"] if mark != self._mark(facts.tree)]
                state["seen"] = [*seen, self._mark(facts.tree)][-_MOST_TREES:]
                self._keep_state(state)
        return done

    def _apply(self, facts: TeamFacts, done: BroughtIn) -> None:
        ended = {line.id for line in all_lines(facts) if isinstance(line, EndedFact)}
        own_name, live = self._own_name(), dict[str, tuple[SharedFact, str]]()
        ended_by_others = set[str]()
        for name, lines in facts.files.items():
            session = f"{_PREFIX}{FOLDER}/{name}@{facts.commit[:12]}"
            for line in lines:
                if isinstance(line, EndedFact):
                    ended_by_others |= {line.id} if name != own_name else set()
                elif line.id not in ended:
                    live[line.id] = line, session
        with self._store.session() as reader:
            here = reader.items([*live, *ended])
            came = {i: stored for i, stored in here.items() if came_from_git(stored)}
            hidden = [i for i in came if i in live and _is_hidden(came[i])]
            done.returned = [i for i in hidden if not _decided_here(reader, i, ForgetEvent.KIND)]
            current = [i for i in came if i in ended and _stands(came[i])]
            current = [i for i in current if not _decided_here(reader, i, UnforgetEvent.KIND)]
            done.ended = [i for i in current if not _was_noted_here(reader, i)]
            own = (ended_by_others & here.keys() - came.keys()) | {*current} - {*done.ended}
            own = {i for i in own if _stands(here[i]) and is_public(here[i])}
            entries = self._entries_of(reader, [came[i] for i in done.ended + done.returned])
            recorded = self._entries_of(reader, came.values(), self._actor.agent)
        self._hide(done, entries)
        if own:
            evidence = f"the team ended it in git ({facts.commit[:12]})"
            done.asked = [*propose_forget(self._actor, sorted(own), evidence)]
        for identity, (line, session) in live.items():
            if identity in came:  # in the words that were accepted, or not, here
                text = came[identity].item.text
                live[identity] = replace_fields(line, text=text), session
        new = [
            live[i]
            for i in live
            if i not in here or (i in came and i not in recorded and _stands(came[i]))
        ]
        for start in range(0, len(new), _TOGETHER):
            self._write(new[start : start + _TOGETHER], done)

    def _hide(self, done: BroughtIn, entries: Mapping[str, Collection[str]]) -> None:
        """Hide what the team ended, with its lines, and show what it takes up again."""
        events: list[JournalEvent] = []
        run = f"{_PREFIX}{done.commit[:12]}"
        for ids, kind in ((done.ended, ForgetEvent), (done.returned, UnforgetEvent)):
            items = tuple(chain(ids, *(entries.get(identity, ()) for identity in ids)))
            if items:
                events.append(self._actor.event(kind(items=items), run=run))
        self._store.append_events(events, shared=True)

    def _write(self, lines: Sequence[tuple[SharedFact, str]], done: BroughtIn) -> None:
        """Record lines as entries of this agent, and propose a fact on each that is new."""
        masked = [(_masked(line, self._actor.redactor), s) for line, s in lines]
        self._record(masked)
        texts = {line.id: line.text for line, _ in masked}
        with self._writer.exclusive():
            reader = self._store.reader()
            keys = {self._key(self._actor.agent, i, text): i for i, text in texts.items()}
            entries = {keys[key]: entry for key, entry in reader.ids_of_keys(keys).items()}
            stored = reader.items(entries.values())
            facts = [
                self._as_fact(line, entry.item)
                for line, _ in masked
                if (entry := stored.get(entries.get(line.id, ""))) and not entry.state.forgotten
                if isinstance(entry.item, Entry)
            ]
            outcome = self._writer.resolve(facts)
            added = {fact.id for fact in outcome.added}
            events = [
                self._promotion(fact, fact.id in added)
                for fact in facts
                if not stored[fact.sources[0].entry].state.promoted
            ]
            for reason in sorted({fact.reason for fact in outcome.added}):
                items = tuple(fact.id for fact in outcome.added if fact.reason == reason)
                events.append(self._actor.event(ProposeEvent(items=items, reason=reason)))
            self._writer.commit(outcome.added, events)
        done.new += sorted(added)
        done.known += len(lines) - len(added)

    def _record(self, lines: Iterable[tuple[SharedFact, str]]) -> None:
        """Record lines as entries, each with the session that names its file and commit."""
        sessions = (
            Session(
                session_id=session,
                observed_at=from_iso(line.at),
                turns=(
                    ImportedMessage(
                        id=line.id,
                        message=Message(
                            role="user",
                            content=line.text,
                            speaker=line.agent or None,
                            origin="external",
                        ),
                        run_id=f"{_PREFIX}{line.id}",
                    ),
                ),
            )
            for line, session in lines
        )
        for _ in self._memory.record_sessions(sessions):
            pass

    def _promotion(self, fact: Fact, is_new: bool) -> JournalEvent:
        """Return the event for which no consolidation looks for facts in the line of a fact."""
        [source] = fact.sources
        facts = (fact.id,) if is_new else ()
        return self._actor.event(
            PromoteEvent(
                items=(source.entry,), facts=facts, agent=source.agent, session=source.session
            )
        )

    def _as_fact(self, line: SharedFact, entry: Entry) -> Fact:
        return Fact(
            id=line.id,
            timestamp=self._actor.clock(),
            project=self._memory.project,
            subject=line.subject,
            relation=line.relation,
            value=line.value,
            text=line.text,
            sources=(entry.source,),
            valid_from=from_iso(line.valid_from or line.at),
            valid_to=from_iso(line.valid_to) if line.valid_to else None,
            quote=entry.content,
            span=(0, len(entry.content)),
            extractor=FROM_GIT,
            confidence=line.confidence,
            origin="external",
            status="proposed",
            reason=f"shared in {entry.session_id.removeprefix(_PREFIX)}",
        )

    @staticmethod
    def _key(agent: str, identity: str, text: str) -> str:
        """Return the delivery key of a fact's line, as `_record` has it written for an agent."""
        delivery = Delivery(agent, f"{_PREFIX}{identity}")
        return delivery.key(0, Message(role="user", content=text))

    def _entries_of(
        self, reader: Reader, facts: Iterable[Stored], agent: str | None = None
    ) -> dict[str, list[str]]:
        """Return the lines of facts that came from git by the fact's id: an agent's, or all."""
        agents = reader.all_sessions() if agent is None else [agent]
        keys = {
            self._key(agent, stored.item.id, stored.item.text): stored.item.id
            for stored in facts
            for agent in agents
        }
        entries: dict[str, list[str]] = {}
        for key, entry in reader.ids_of_keys(keys).items():
            entries.setdefault(keys[key], []).append(entry)
        return entries

    # -- writing -------------------------------------------------------------------------------

    def write(self) -> SharedFile:
        """Write this clone's facts into its file in the work tree; nothing is committed.

        Raises:
            UnsafePath: a symlink stands where the file belongs.
            LedgerError, IndexProblem: it was not written.
        """
        top, name = self._repository.top, self._own_name()
        with self._store.exclusive("share"):
            team = read_team_facts(self._repository)
            committed = team.files.get(name, [])
            before = read_own_file(top, name)
            own: dict[str, Line] = {}
            for line in (*committed, *parse_lines(name, before, [])):
                if isinstance(line, EndedFact) or line.id not in own:
                    own[line.id] = line
            self._store.catch_up_all()
            with self._store.session() as reader:
                shared, left_out = choose_facts(self._actor, reader)
                lines = {**find_rest(self._actor, reader, shared, own, team), **shared}
            path, content = top / FOLDER / name, render(lines)
            if content != before:  # a purge finds it there
                register_export(self._memory.folder, path, "jsonl")
                write_own_file(top, name, content)
                register_export(self._memory.folder, path, "jsonl", content=path)
        return SharedFile(
            path=path,
            facts=sum(isinstance(line, SharedFact) for line in lines.values()),
            ended=sum(isinstance(line, EndedFact) for line in lines.values()),
            left_out=dict(sorted(left_out.items())),
            changed=content != before,
            committed={line.id: line for line in committed} == lines,
        )

    def _own_name(self) -> str:
        state = self._state
        if not (self._memory.folder / STATE).exists():
            self._keep_state(state)
        return f"{state['clone']}.jsonl"


def _is_within(workspace: Path | None, top: Path) -> bool:
    return workspace is not None and workspace.resolve().is_relative_to(top.resolve())


def _stands(stored: Stored) -> bool:
    """Return whether a fact holds or waits: nobody hid, rejected or replaced it."""
    return not stored.state.withdrawn and stored.state.superseded_by is None


def _is_hidden(stored: Stored) -> bool:
    """Return whether a fact was forgotten, and not erased."""
    return stored.state.forgotten and bool(stored.item.text)


def _was_noted_here(reader: Reader, identity: str) -> bool:
    """Return whether a fact that came from git rests on a line of this home besides."""
    return any(not source.session.startswith(_PREFIX) for source in reader.sources(identity))


def _decided_here(reader: Reader, identity: str, kind: str) -> bool:
    """Return whether the last to hide or show an item did so, and was not the team in git."""
    events = reader.events([ForgetEvent.KIND, UnforgetEvent.KIND], item=identity)
    if not events or events[-1].kind != kind:
        return False
    return not (events[-1].run_id or "").startswith(_PREFIX)


def _masked(line: SharedFact, redactor: Redactor) -> SharedFact:
    names = ("text", "subject", "relation", "value")
    return replace_fields(line, **{n: redactor.redact(getattr(line, n)).text for n in names})
