"""The façade: record runs, recall from them, and learn from their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.formats import Clock, aware, new_id, utc_now
from memtier_plugin.core.paths import make_project_folder, resolve_home
from memtier_plugin.core.records import (
    Entry,
    Extractor,
    Fact,
    FactDraft,
    JournalEvent,
    Message,
    Run,
)
from memtier_plugin.core.results import Recall, RecallOptions, RecallRequest
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import Count, check_arguments, check_methods
from memtier_plugin.lifecycle.selection import Selection
from memtier_plugin.project import Services
from memtier_plugin.storage.sessions import from_new_index

if TYPE_CHECKING:
    from memtier_plugin.answering.answerer import Answer
    from memtier_plugin.credit.assignment import RunResult
    from memtier_plugin.facts.consolidation import ConsolidationReport
    from memtier_plugin.facts.forgetting import Forgotten
    from memtier_plugin.facts.review import ReviewOutcome
    from memtier_plugin.lifecycle.purge.purge import Receipt
    from memtier_plugin.lifecycle.retention import RetentionResult

REMEMBERED_SESSION: Final = "remembered"  # the session of what somebody asked to be kept


@check_methods
class MemTier(Services):
    """The memory of one agent in one project; safe to share between threads."""

    @classmethod
    @check_arguments
    def open(
        cls,
        home: str | Path | None = None,
        project: str = "default",
        agent_id: str = "main",
        settings: Settings | Mapping[str, Any] | None = None,
        *,
        workspace: Path | None = None,
        create: bool = True,
        everybody: bool = False,
        clock: Clock | None = None,
    ) -> Self:
        """Open a project's memory for an agent.

        Args:
            home: ``MEMTIER_HOME`` or ``~/.memtier`` when None.
            settings: finished settings, or overrides of single keys ("retrieval.k": 8).
            workspace: a folder that may hold a ``.memtier.yaml``.
            create: make the project's folder if there is none.
            everybody: recall and ask for the person at the machine, from what every agent recorded.
            clock: what "now" is; the system's UTC time when None.

        Raises:
            SettingsError: a configuration file or key is wrong.
            NotFound: there is no such project and ``create`` is off.
            UnsafePath, LedgerWriteError: the home is not ours, or cannot be made.
        """
        where = resolve_home(home)
        if not isinstance(settings, Settings):
            settings = load_settings(where, project, workspace, settings)
        memory = cls(where, project, agent_id, settings, clock or utc_now, everybody=everybody)
        if not create and not memory.folder.is_dir():
            raise NotFound(f"there is no project {project!r} in {where}; `memtier init` makes one")
        make_project_folder(where, project)
        return memory

    # -- writing -------------------------------------------------------------------------------

    def record(
        self,
        messages: Iterable[object],
        *,
        session_id: str,
        run_id: str | None = None,
        sender: str | None = None,
        observed_at: datetime | None = None,
        parent: str | None = None,
        private: bool = False,
        seen: Sequence[str] = (),
    ) -> list[Entry]:
        """Write a run's messages to the agent's ledger and return the new entries.

        They are `Message` records, dictionaries as OpenAI's chat API has them, or an agent
        framework's message objects.  Secrets are masked first.  The same run again adds only what
        is new; without a ``run_id`` one is made, and a second delivery cannot be recognised.

        Args:
            private: it is a confidence, whatever its words are: no other agent gets any of it.
            seen: external text of earlier runs that the conversation still shows.

        Raises:
            MessageError, LedgerError: one is no message, or cannot be written; none was written.
            Paused: the project is switched off.
        """
        from memtier_plugin.ingest.messages import parse_messages

        parsed = parse_messages(messages)
        run = Run(
            agent=self.agent_id,
            session=session_id,
            run=run_id or new_id(),
            sender=sender,
            parent=parent,
            observed_at=aware(observed_at),
            private=private,
            seen=tuple(seen),
        )
        return self._record(run, parsed)

    def _record(self, run: Run, messages: Sequence[Message]) -> list[Entry]:
        self._refuse_when_paused()
        return self._recorder.record([(run, messages)])

    def make_private(self, session: str, *, sender: str | None = None) -> tuple[str, ...]:
        """Make a session of this agent a confidence, what is yet to be said in it included.

        No other agent gets any of it. Facts that rest on it alone are forgotten. Returns the ids
        of its entries.

        Args:
            sender: only what this person says in it.

        Raises:
            NotFound: the agent has no such session.
            LedgerError, IndexProblem: it is not marked.
        """
        masked = self._redactor.redact_name(session), self.actor.mask_name(sender)
        return self._confidences.mark_session(*masked)

    def end_run(
        self,
        messages: Iterable[object],
        *,
        session_id: str,
        run_id: str | None = None,
        recall_ids: Collection[str] | None = None,
        sender: str | None = None,
        observed_at: datetime | None = None,
        parent: str | None = None,
        error: str | None = None,
        private: bool = False,
        seen: Sequence[str] = (),
    ) -> RunResult:
        """Record a finished run, and credit or blame what was injected into it (MemTier, eq. 1).

        Args:
            recall_ids: the recalls of this run, whatever run they named; by default those that
                named its ``run_id``, or without one those of the session since its last run.
            error: why the run failed; a failed run earns no reward.
            private: as for `record`; ``seen`` too.

        Raises:
            MessageError: a message or an argument is not what it must be; nothing was written.
            LedgerError: nothing was written, or the credits were not.
            Paused: the project is switched off.
        """
        from memtier_plugin.credit.assignment import assign_credit
        from memtier_plugin.ingest.messages import parse_messages

        parsed = parse_messages(messages)
        run = Run(
            agent=self.agent_id,
            session=session_id,
            run=run_id or new_id(),
            sender=sender,
            parent=parent,
            observed_at=aware(observed_at),
            private=private,
            seen=tuple(seen),
        )
        with self.store.shared_connection():
            entries = self._record(run, parsed)
            session, named = map(self.actor.mask_name, (session_id, run_id))
            person = self.actor.mask_name(sender)
            recalls = self._recaller.journal.recalls_of_run(
                named, session or "", recall_ids, person
            )
            return assign_credit(
                self.actor,
                self._redactor.redact_name(run.run),
                parsed,
                recalls.credited,
                entries=entries,
                refused=recalls.refused,
                failed=bool(error),
            )

    def add_facts(self, facts: Iterable[Fact | FactDraft]) -> list[Fact]:
        """Add facts to the project's shared tier and return those that are new.

        A known fact is not added twice. A fact of a single-valued relation supersedes older values
        of the same agent, or of the user.

        Raises:
            LedgerError: nothing was written.
            IndexProblem: the index cannot be used, so known facts cannot be told from new ones.
        """
        self._refuse_when_paused()
        return self.knowledge.add(facts)

    def remember(
        self,
        text: str,
        *,
        session_id: str = REMEMBERED_SESSION,
        sender: str | None = None,
        by: Literal["user", "assistant"] = "user",
        private: bool = False,
    ) -> Fact:
        """Store a text on request, as an entry and a fact that rests on it.

        Args:
            by: whose words they are; what an assistant keeps of its own accord waits for review
                unless the user said it.
            private: as for `record`; the fact is this agent's and sender's alone.

        Raises:
            MessageError: there is no text.
            LedgerError: the entry or the fact was not written.
            IndexProblem: the index cannot be used, so known facts cannot be told from new ones.
            Paused: the project is switched off.
        """
        self._refuse_when_paused()
        return self.knowledge.remember(
            self._recorder, text, session_id, sender, by, private=private
        )

    def edit_fact(self, fact_id: str, text: str, *, sender: str | None = None) -> ReviewOutcome:
        """Replace a fact that waits or is contradicted by a reviewer's own wording.

        The wording is recorded as an entry of the user, on which the new fact rests.

        Args:
            sender: whose fact it must be; anybody's when None, as for the person at the machine.

        Raises:
            NotFound: there is no such fact, or it does not wait.
            NotGranted: it is another person's.
            MessageError: there is no text.
            LedgerError, IndexProblem: it was not written.
            Paused: the project is switched off.
        """
        self._refuse_when_paused()
        knowledge = self.knowledge.person if sender is None else self.knowledge.of_sender(sender)
        return knowledge.edit(fact_id, text)

    def consolidate(
        self,
        limit: Count | None = None,
        *,
        extractor: Extractor | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> ConsolidationReport:
        """Consolidate unread entries of every agent of the project into facts.

        Args:
            extractor: only by ``rules``, or only by the ``model``.
            dry_run: tell what would be written, and write nothing.
            progress: called with (entries read, about how many there are).
            stop: asked between two steps whether to end here.

        Raises:
            LedgerError: another process consolidates this project, or nothing could be written.
            IndexProblem: what is there already cannot be known.
        """
        self._refuse_when_paused()
        return self.knowledge.consolidate(
            limit or self.settings.consolidation.batch,
            extractor=extractor,
            dry_run=dry_run,
            progress=progress,
            stop=stop,
        )

    def forget(
        self,
        *,
        ids: Iterable[str] = (),
        session: str | None = None,
        sender: str | None = None,
        dry_run: bool = False,
    ) -> Forgotten:
        """Hide entries and facts everywhere, and the facts that rest on them alone.

        The ledger keeps its lines (`purge` will not); giving them again does not bring them back,
        `unforget` does.

        Args:
            session: all of this session of the agent, whoever spoke in it.
            sender: only what is this person's.

        Raises:
            NotFound: an id, or the session, is not known.
            NotGranted: a fact is not the sender's: it rests on others' lines.
            LedgerError, IndexProblem: nothing was hidden.
        """
        session = self.actor.mask_name(session)
        return self.knowledge.of_sender(sender).forget(ids=ids, session=session, dry_run=dry_run)

    def unforget(self, ids: Collection[str], *, dry_run: bool = False) -> Forgotten:
        """Bring back what `forget` hid: these items, and the facts on them hidden with them.

        For the person at the machine; no agent is offered it.

        Raises:
            NotFound: an id is not known, not forgotten, or purged: then nothing is left of it.
            LedgerError, IndexProblem: nothing was brought back.
        """
        return self.knowledge.person.unforget(ids, dry_run=dry_run)

    def purge(
        self,
        wanted: Selection | str,
        *,
        dry_run: bool = False,
        delete_exports: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Receipt:
        """Erase items, or every occurrence of a text, from all files; see `Purger.purge`."""
        return self.purger.purge(
            wanted, dry_run=dry_run, delete_exports=delete_exports, progress=progress
        )

    def retain(self) -> RetentionResult:
        """Forget, as `retention` says, what is kept no longer; returns what is hidden now.

        Raises:
            LedgerError, IndexProblem: not all was hidden; the rest goes the next time.
        """
        from memtier_plugin.lifecycle.retention import apply_retention

        return apply_retention(self.actor, self.knowledge)

    # -- recall --------------------------------------------------------------------------------

    def recall(
        self,
        query: str,
        *,
        request: RecallRequest | None = None,
        **options: Unpack[RecallOptions],
    ) -> Recall:
        """Find what matters for a query and pack it into a block for a prompt.

        Args:
            request: the options of the recall as one record.
            options: the fields of `RecallRequest` by name; they overrule the request's.

        Raises:
            MessageError: an argument has the wrong type; the message names it.
            IndexProblem: the index cannot be used; the message has the remedy.
        """
        request = (request or RecallRequest()).with_options(**options)
        return self._recaller.recall(query, request)

    def acknowledge(self, recall_id: str, *, sender: str | None = None) -> None:
        """Say that a prompt has the block of a recall with the purpose ``offer``.

        Only then is it credited, and do its lines count as shown; saying it twice changes nothing.

        Args:
            sender: whose prompt it is; what was offered for another person stays an offer.

        Raises:
            IndexProblem: the index cannot be used, and this process did not make the recall.
        """
        self._recaller.journal.acknowledge(recall_id, self.actor.mask_name(sender))

    def ask(
        self,
        question: str,
        *,
        sender: str | None = None,
        at: datetime | None = None,
        write_back: bool | None = None,
        session_id: str | None = None,
    ) -> Answer:
        """Answer a question, with the ledger lines that the answer rests on.

        By the model `ask.model`, or without one by the lines that say most; a model that fails
        raises nothing, see `Answer.problem`.

        Args:
            write_back: whether findings are kept as facts; as `ask.write_back` when None.
            session_id: what it named last, a question may leave to a pronoun.

        Raises:
            SettingsError: `ask.model` names no endpoint that is configured.
            IndexProblem, LedgerError: the index, or the journal, cannot be used.
        """
        from memtier_plugin.answering.answerer import Answerer

        answerer = Answerer(self.actor, self._recaller)
        return answerer.ask(
            question, sender=sender, at=at, write_back=write_back, session_id=session_id
        )

    @from_new_index
    def explain(
        self, recall_id: str, why: str | None = None, *, sender: str | None = None
    ) -> dict[str, Any]:
        """Return why a recall chose what it chose, as it was journalled then.

        Beside it stand the current weights, the texts, and the credits of its run; with ``why``,
        the id of an entry or fact, also why that was left out, recomputed where it must be.

        Args:
            sender: for whom the recall must have been made; for anybody when None.

        Raises:
            NotFound: the journal has no such recall (they are kept `journal.retention_days`).
        """
        from memtier_plugin.retrieval.explain import Explainer

        return Explainer(self.actor).explain(recall_id, why, self.actor.mask_name(sender))

    # -- looking -------------------------------------------------------------------------------

    def entries(
        self,
        *,
        agent: str | None = None,
        date: str | None = None,
        session: str | None = None,
        after_id: str | None = None,
        limit: Count | None = None,
    ) -> Iterator[Entry]:
        """Yield entries from the ledgers in the order written, with their current values.

        Args:
            agent: only this agent's; every agent's when None (for the person at the machine).
            date: only this UTC day's, as 2026-11-21.
            after_id: only entries written after this one.
        """
        from memtier_plugin.facts import views

        self.store.refresh(self.agent_id, wait_ms=500, read_all=True)
        session = self.actor.mask_name(session)
        entries = views.read_entries(
            self.store, agent=agent, date=date, session=session, after_id=after_id
        )
        return islice(entries, limit)

    @from_new_index
    def events(self, *, kinds: Collection[str], limit: Count = 1000) -> list[JournalEvent]:
        """Return the project's newest journal events of these kinds, oldest first."""
        with self.store.session() as reader:
            events = [event for kind in kinds for event in reader.events([kind], newest=limit)]
        return sorted(events, key=lambda event: (event.timestamp, event.id))[-limit:]

    def facts(self, *, include_superseded: bool = False, sender: str | None = None) -> list[Fact]:
        """Return the facts that this agent may see, oldest first; see `FactService.facts`.

        With a ``sender``, only this person's personal facts are among them.
        """
        facts = self.knowledge.of_sender(sender).facts(include_superseded=include_superseded)
        return [view.fact for view in facts]

    def fact(self, fact_id: str, *, sender: str | None = None) -> tuple[Fact, list[Entry]]:
        """Return a fact and the source entries that this agent may see.

        Raises:
            NotFound: there is no such fact.
        """
        view = self.knowledge.of_sender(sender).fact(fact_id)
        return view.fact, [line.entry for line in view.lines if line.entry]
