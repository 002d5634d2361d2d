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

REMEMBERED_SESSION: Final = "remembered"  # the session of statements that somebody asked to keep


@check_methods
class MemTier(Services):
    """The memory of one agent in one project; thread-safe."""

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
            home: by default ``MEMTIER_HOME`` or ``~/.memtier``.
            settings: complete settings, or overrides of single keys ("retrieval.k": 8).
            workspace: the folder that the agent works in: it may contain a ``.memtier.yaml``, and
                recalls notice what its git repository no longer has (`refresh_workspace`).
            create: create the project's folder if it is missing.
            everybody: recall and ask for the person at the machine, from every agent's entries.
            clock: returns "now"; by default the system's UTC time.

        Raises:
            SettingsError: a configuration file or key is wrong.
            NotFound: there is no such project and ``create`` is off.
            UnsafePath, LedgerWriteError: the home is another user's, or cannot be created.
            HomeTooNew: a newer MemTier wrote the home.
        """
        where = resolve_home(home)
        if not isinstance(settings, Settings):
            settings = load_settings(where, project, workspace, settings)
        memory = cls(
            *(where, project, agent_id, settings, clock or utc_now),
            everybody=everybody,
            workspace=workspace,
        )
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

        They are `Message` records, dictionaries in the form of OpenAI's chat API, or an agent
        framework's message objects.  Secrets are masked first.  Recording the same run again adds
        only what is new; without a ``run_id`` one is generated, and a second delivery cannot be
        recognised.

        Args:
            private: treat it as a confidence, whatever its words: no other agent sees any of it.
            seen: external text of earlier runs still visible in the conversation.

        Raises:
            MessageError, LedgerError: a message is invalid, or cannot be written; none was written.
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
        """Keep a session private to this agent, including everything said in it later.

        No other agent sees any of it. Facts that rest on it alone are forgotten. Returns the ids of
        its entries.

        Args:
            sender: only what this person says in it.

        Raises:
            NotFound: the agent has no such session.
            LedgerError, IndexProblem: it was not marked.
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
            private, seen: as for `record`.

        Raises:
            MessageError: a message or an argument is invalid; nothing was written.
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
        """Add facts to the project's shared tier and return the new ones.

        A known fact is not added twice. A fact of a single-valued relation supersedes older values
        of the same agent, or of the user.

        Raises:
            LedgerError: nothing was written.
            IndexProblem: the index cannot be used, so known facts cannot be recognised.
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
            by: whose words they are; what an assistant stores unasked waits for review unless the
                user said it.
            private: as for `record`; only this agent and sender see the fact.

        Raises:
            MessageError: there is no text.
            LedgerError: the entry or the fact was not written.
            IndexProblem: the index cannot be used, so known facts cannot be recognised.
            Paused: the project is switched off.
        """
        self._refuse_when_paused()
        return self.knowledge.remember(
            self._recorder, text, session_id, sender, by, private=private
        )

    def edit_fact(self, fact_id: str, text: str, *, sender: str | None = None) -> ReviewOutcome:
        """Replace a pending or contradicted fact by a reviewer's own wording.

        The wording is recorded as an entry of the user, on which the new fact rests.

        Args:
            sender: the person who must own the fact; None for the person at the machine, who may
                edit any.

        Raises:
            NotFound: there is no such fact, or it is not pending.
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
            extractor: use only the ``rules``, or only the ``model``.
            dry_run: report what would be written, without writing.
            progress: called with the number of entries read and the estimated total.
            stop: polled between two steps; ends the consolidation early.

        Raises:
            LedgerError: another process consolidates this project, or nothing could be written.
            IndexProblem: the index cannot be used, so known facts cannot be recognised.
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

        The ledger keeps their lines (unlike after `purge`); recording them again does not restore
        them, but `unforget` does.

        Args:
            session: all of this session of the agent, whoever spoke in it.
            sender: only what belongs to this person.

        Raises:
            NotFound: an id, or the session, is unknown.
            NotGranted: a fact is not the sender's: it rests on others' lines.
            LedgerError, IndexProblem: nothing was hidden.
        """
        session = self.actor.mask_name(session)
        return self.knowledge.of_sender(sender).forget(ids=ids, session=session, dry_run=dry_run)

    def unforget(self, ids: Collection[str], *, dry_run: bool = False) -> Forgotten:
        """Restore what `forget` hid: these items, and the dependent facts hidden with them.

        For the person at the machine; agents cannot call it.

        Raises:
            NotFound: an id is unknown, not forgotten, or purged and therefore gone.
            LedgerError, IndexProblem: nothing was restored.
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
        """Apply the `retention` settings; return what is now hidden.

        Raises:
            LedgerError, IndexProblem: not all of it was hidden; the next call hides the rest.
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
            options: the fields of `RecallRequest` by name; they override the request's.

        Raises:
            MessageError: an argument has the wrong type; the message names it.
            IndexProblem: the index cannot be used; the message gives the remedy.
        """
        request = (request or RecallRequest()).with_options(**options)
        return self._recaller.recall(query, request)

    def acknowledge(self, recall_id: str, *, sender: str | None = None) -> None:
        """Confirm that a prompt contains the block of a recall with the purpose ``offer``.

        Only then is the recall credited, and do its lines count as shown; confirming twice changes
        nothing.

        Args:
            sender: whose prompt it is; what was offered to another person stays an offer.

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
        """Answer a question, citing the ledger lines that the answer rests on.

        Answered by the model `ask.model`, or without one by the most informative lines. If the
        model fails nothing is raised; see `Answer.problem`.

        Args:
            write_back: whether to store findings as facts; by default as `ask.write_back` says.
            session_id: resolves a pronoun in the question to what this session named last.

        Raises:
            SettingsError: `ask.model` names no configured endpoint.
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
        """Return why a recall chose its lines, as journalled at the time.

        Also returns the current weights, the texts, and the credits of its run; with ``why``, the
        id of an entry or fact, also why that item was left out, recomputed if necessary.

        Args:
            sender: the person for whom the recall must have been made; None for anybody.

        Raises:
            NotFound: the journal has no such recall (kept for `journal.retention_days`).
        """
        from memtier_plugin.retrieval.explain import Explainer

        return Explainer(self.actor).explain(recall_id, why, self.actor.mask_name(sender))

    # -- reading -------------------------------------------------------------------------------

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
            agent: only this agent's; None for every agent's (for the person at the machine).
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

        With a ``sender``, personal facts are limited to this person's.
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
