"""Build drafts of facts from a window of entries: extract, verify, filter."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import CapReached, EndpointError, HostAway
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.hookspecs import ModelPass
from memtier_plugin.core.records import OWN_WORDS, Entry, FactDraft
from memtier_plugin.core.settings.schema import AgentRights
from memtier_plugin.facts import filters, persons
from memtier_plugin.facts.backlog import RULES, Window, group_by_session
from memtier_plugin.facts.endings import ENDED_BY
from memtier_plugin.facts.evolution import Decision, KnownFacts, only_statement
from memtier_plugin.facts.extraction import experiences
from memtier_plugin.facts.extraction.experiences import extract_lessons
from memtier_plugin.facts.extraction.llm import ChatEvolution, ChatExtractor
from memtier_plugin.facts.verification.verify import Claim, Provenance, Rejection, verify_claim
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.ingest.user_acts import tells_act
from memtier_plugin.retrieval.duplicates import DENIES
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust import external_text, origins
from memtier_plugin.trust.confidences import SENSITIVE, confided_entries, rests_on_doubtful
from memtier_plugin.trust.external_text import ExternalText

CONFIDED: Final = "told in confidence"  # why an entry is skipped

_CALL: Final = re.compile(r"^\[tool call: ", re.MULTILINE)  # what follows is not speech
CONTEXT: Final = 60  # characters before a quote, which may report a correction
_EARLIER: Final = 500  # newest entries of a session searched for external text
_STATES_NOTHING: Final = frozenset({DENIES, *OWN_WORDS})  # of how a thing is
_ANSWERED: Final = 4  # lines before a window, among which stands what its first one answers
_OWN_SHARE: Final = 0.5  # the share of a draft's words that must be the user's
_NO_RIGHTS: Final = AgentRights()
_BY_JSON: Final = ModelPass(ChatExtractor, ChatEvolution, None)


@dataclass(slots=True)
class DraftBatch:
    """The drafts of a window, and what was rejected.

    ``contexts`` are the words around a draft's quote, ``decisions`` a model's decisions, both by
    the draft's index.  ``claimed``: some drafts come from a model or a plugin, so that their
    sources are not our rules'.  ``problem`` is why the model did not read all entries, or ``waits``
    if it waits for a host; ``unread`` are the entries without a usable answer.
    """

    drafts: list[FactDraft] = field(default_factory=list)
    contexts: dict[int, str] = field(default_factory=dict)
    decisions: dict[int, Decision] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    claimed: bool = False
    tokens: int = 0
    cost: float = 0.0
    unread: tuple[str, ...] = ()
    problem: str = ""
    waits: str = ""


class DraftBuilder:
    """Builds the drafts of one project's facts: extracts, verifies and filters."""

    def __init__(self, actor: Actor, writer: FactWriter) -> None:
        self._actor = actor
        self._store = actor.store
        self._writer = writer

    def refusal_reason(self, entry: Entry) -> str:
        """Return why an entry is not consolidated, or an empty string."""
        if entry.parent:  # its parent's run reports a sub-agent's findings
            return "said by a sub-agent"
        if entry.private:
            return CONFIDED
        rights = self._store.settings.agents.get(entry.agent_id, _NO_RIGHTS)
        return "agents.*.promote: none" if rights.promote == "none" else ""

    def build(self, extractor: str, window: Window) -> DraftBatch:
        """Return the drafts that an extractor finds in a window, supported by its entries.

        Raises:
            CapReached, EndpointError, SettingsError: the model cannot be asked now.
        """
        for group in group_by_session(window.entries):
            window.skip(confided_entries(group), CONFIDED)
        if not self._store.settings.trust.defence:
            window.entries[:] = [origins.assume_trusted(entry) for entry in window.entries]
        return self._build_by_rules(window) if extractor == RULES else self._build_by_model(window)

    def _build_by_rules(self, window: Window) -> DraftBatch:
        batch = DraftBatch()
        for group in group_by_session(window.entries):
            by_id = {entry.id: entry for entry in group}
            checked = [_check_own(draft, by_id) for draft in self._extract(group, batch.rejected)]
            claims = [_verify_plugin_draft(draft, by_id) for draft in plugins.collect_drafts(group)]
            batch.claimed = batch.claimed or bool(claims)
            checked += claims
            self._add_accepted(checked, by_id, batch)
        self._add_replacing(window, batch)
        return batch

    def _add_replacing(self, window: Window, batch: DraftBatch) -> None:
        """Add the messages that become facts because they replace one."""
        stating = [draft for draft in batch.drafts if draft.relation not in _STATES_NOTHING]
        drafted = {source.entry for draft in stating for source in draft.sources}
        known = KnownFacts(self._store.reader(), batch.drafts)
        for group in group_by_session(window.entries):
            before, by_id = "", {entry.id: entry for entry in group}
            for entry in group:
                part = None if entry.id in drafted else only_statement(entry)
                if part and (made := known.draft_replacing(entry, part, before)):
                    count = len(batch.drafts)
                    self._add_accepted([_check_own(made[0], by_id)], by_id, batch)
                    batch.contexts |= dict.fromkeys(range(count, len(batch.drafts)), made[1])
                before = entry.content if entry.role == "user" else before

    def _build_by_model(self, window: Window) -> DraftBatch:
        batch = DraftBatch()
        model = ChatBudget(self._store, self._actor.agent, self._actor.clock).chat_model()
        if model is None:
            return batch
        settings = self._store.settings.consolidation
        how = plugins.find_model_pass(self._store.settings) or _BY_JSON
        chat = how.extractor(model, settings.batch_tokens)
        made_by = Provenance(chat.name, model.name, chat.prompt.hash)
        batch.claimed = True
        answered: set[str] = set()
        for group in chat.batches(window.entries):
            by_id = {entry.id: entry for entry in group}
            try:
                answer = chat.extract_claims(group)
            except (CapReached, EndpointError) as error:
                if isinstance(error, HostAway):
                    batch.waits = str(error)
                else:
                    batch.problem = str(error)
                if answered:  # already paid for: keep the answers up to the first entry without one
                    _truncate(window, batch, answered)
                    break
                raise
            answered.update(by_id)
            batch.unread += answer.unread
            batch.rejected.update(answer.rejected)
            batch.tokens += answer.prompt_tokens + answer.completion_tokens
            batch.cost += answer.cost
            checked = [verify_claim(claim, group, made_by) for claim in answer.claims]
            if how.look_again:
                checked, reply = how.look_again(model, checked, by_id)
                if reply:
                    batch.tokens += reply.prompt_tokens + reply.completion_tokens
                    batch.cost += model.cost(reply)
            self._add_accepted(checked, by_id, batch)
        if not (batch.problem or batch.waits):
            self._ask_for_decisions(batch, how.judge(model))
        return batch

    def _add_accepted(
        self,
        checked: Iterable[FactDraft | Rejection],
        entries: Mapping[str, Entry],
        batch: DraftBatch,
    ) -> None:
        """Add one session's verified drafts to a batch, as far as the filters accept them."""
        candidates: list[FactDraft] = []
        settings = self._store.settings
        for draft in checked:
            if isinstance(draft, Rejection):
                batch.rejected[draft.reason] += 1
            elif reason := self._rejection_reason(draft, entries):
                batch.rejected[reason] += 1
            else:
                draft = self._hold_if_from_tools(draft, entries)
                draft = self._apply_agent_rights(draft)
                if rests_on_doubtful([source.entry for source in draft.sources], entries):
                    draft = persons.hold_doubtful(draft, entries[draft.sources[0].entry])
                held = persons.hold_sensitive(draft, settings.facts)
                if held is None:
                    batch.rejected[SENSITIVE] += 1
                else:
                    candidates.append(persons.hold_extracted(held, settings.facts.mode))
        accepted, rejected = filters.apply_filters(
            candidates,
            cap=settings.consolidation.session_cap,
            single_valued=settings.facts.single_valued,
        )
        batch.rejected.update(rejected)
        for draft in accepted:
            batch.contexts[len(batch.drafts)] = quote_context(draft, entries)
            batch.drafts.append(draft)

    def _ask_for_decisions(self, batch: DraftBatch, judge: ChatEvolution) -> None:
        """Ask the model how drafts relate to existing facts if the rules cannot tell."""
        try:
            for index, nearest in self._writer.find_related(batch.drafts).items():
                choice = judge.decide(batch.drafts[index].text, [fact.text for fact in nearest])
                if choice is not None:
                    target = None if choice.target is None else nearest[choice.target]
                    batch.decisions[index] = Decision(choice.action, target, "the model's choice")
        except (CapReached, EndpointError):
            return  # the drafts are paid for: the rules decide the rest

    def _extract(self, group: Sequence[Entry], rejected: Counter[str]) -> list[FactDraft]:
        # This is a tenth of a resident's start-up, and no prompt waits for facts.
        from memtier_plugin.facts.extraction.corrections import find_corrections
        from memtier_plugin.facts.extraction.intentions import find_intentions
        from memtier_plugin.facts.extraction.rules import extract_facts, find_denials

        statements = extract_facts(group, self._store.settings.facts.single_valued)
        procedures = experiences.extract_experiences(group)
        rejected.update(statements.rejected)
        rejected.update(procedures.rejected)
        lessons = [draft for entry in group for draft in extract_lessons(entry)]
        denials = [draft for entry in group for draft in find_denials(entry)]
        kept, own_words = self._store.settings.facts, list[FactDraft]()
        if kept.corrections:
            own_words += find_corrections(group, self._said_before(group[0]))
        if kept.intentions:
            own_words += find_intentions(group)
        own_words = [draft for draft in own_words if self._may_end(draft, own_words)]
        learned = {(draft.sources[0].entry, draft.span) for draft in lessons}
        facts = [
            draft for draft in statements.drafts if not _is_within(draft, learned)
        ]  # stated once
        return [*denials, *own_words, *facts, *procedures.drafts, *lessons]

    def _may_end(self, draft: FactDraft, own_words: Sequence[FactDraft]) -> bool:
        """Return whether there is a rule or an intention that words which end one can mean."""
        if draft.relation != DENIES:
            return True
        ended = ENDED_BY[draft.extractor]
        known = any(other.relation == ended for other in own_words)
        return known or bool(self._store.reader().facts(relation=ended, standing="current"))

    def _said_before(self, entry: Entry) -> list[Entry]:
        """Return what was said last in an entry's session and scope, in order."""
        lines = self._store.reader().lines_before([entry.id], _ANSWERED)
        return lines.get(entry.id, [])[::-1]

    def _rejection_reason(self, draft: FactDraft, entries: Mapping[str, Entry]) -> str:
        """Return why a verified draft is not a separate fact, or ""."""
        if _is_from_tool_arguments(draft, entries):
            return "a tool's arguments"
        return "repeats its own recall" if self._repeats_recall(draft, entries) else ""

    def _repeats_recall(self, draft: FactDraft, entries: Mapping[str, Entry]) -> bool:
        """Return whether a draft only repeats what its agent was shown in that run."""
        entry = self._assistant_entry(draft, entries)
        if entry is None:
            return False
        reader = self._store.reader()
        recalls = reader.events(agent=entry.agent_id, run=entry.run_id, kinds=[RecallEvent.KIND])
        injected = reader.items(
            {ranked.item for event in recalls for ranked in RecallEvent.of(event).injected}
        )
        shown = [stored.item.text for stored in injected.values()]
        return external_text.is_restatement(draft.text, shown, self._store.tokenizer.words)

    def _hold_if_from_tools(self, draft: FactDraft, entries: Mapping[str, Entry]) -> FactDraft:
        """Propose, rather than accept, what the assistant only passed on from a tool or page."""
        entry = self._assistant_entry(draft, entries)
        if entry is None or draft.status != "active" or tells_act(entry):
            return draft
        foreign = [e for e in entries.values() if origins.is_foreign(origins.effective_origin(e))]
        # Anything said after a tool's result rests on it, in whatever words or language.
        follows = any(e.run_id == entry.run_id and e.turn < entry.turn for e in foreign)
        texts = [e.content for e in foreign]
        if follows or external_text.is_restatement(draft.text, texts, self._store.tokenizer.words):
            reason = "outside"
        elif self._may_come_from_outside(draft, entry):
            reason = "later"
        else:
            return draft
        return replace(
            draft, status="proposed", origin="tool", reason=origins.REVIEW_REASONS[reason]
        )

    def _may_come_from_outside(self, draft: FactDraft, entry: Entry) -> bool:
        """Return whether external text precedes an entry, and little of a draft is the user's.

        A paraphrase or translation of a text leaves no trace by which to recognise it.
        """
        reader = self._store.reader()
        scopes = reader.scopes(entry.agent_id, None, read_all=True)
        rows = reader.newest_in_session(entry.agent_id, entry.session_id, scopes, _EARLIER)
        items = [stored.item for stored in reader.items_by_row(rows).values()]
        before = [e for e in items if isinstance(e, Entry) and e.turn < entry.turn]
        if all(e.origin != "external" for e in before):
            return False
        session = ExternalText(self._store.tokenizer.words)
        for earlier in before:
            if earlier.origin == "user":
                session.add_trusted(earlier.content)
        return session.own_share(draft.text) <= _OWN_SHARE

    def _assistant_entry(self, draft: FactDraft, entries: Mapping[str, Entry]) -> Entry | None:
        """Return the agent's own entry that a draft rests on, if on no words of the user."""
        if draft.tier == "procedural" or not self._store.settings.trust.defence:
            return None
        sources = [entries[s.entry] for s in draft.sources if s.entry in entries]
        if not sources or any(e.role == "user" and not e.parent for e in sources):
            return None
        return sources[0]

    def _apply_agent_rights(self, draft: FactDraft) -> FactDraft:
        """Propose a draft whose agent may not do more."""
        agents = self._store.settings.agents
        for source in draft.sources:
            rights = agents.get(source.agent, _NO_RIGHTS)
            if rights.promote == "propose" and draft.status == "active":
                reason = f"agents.{source.agent}.promote is propose"
                return replace(draft, status="proposed", reason=reason)
        return draft


def _is_within(draft: FactDraft, spans: Collection[tuple[str, tuple[int, int] | None]]) -> bool:
    """Return whether a draft rests on words of one of some spans, each of an entry."""
    begin, end = draft.span or (0, 0)
    return any(
        entry == draft.sources[0].entry and span is not None and span[0] < end and begin < span[1]
        for entry, span in spans
    )


def _truncate(window: Window, batch: DraftBatch, answered: Collection[str]) -> None:
    """Truncate a window and its drafts before the first entry without an answer."""
    count = next(i for i, entry in enumerate(window.entries) if entry.id not in answered)
    window.truncate(count)
    inside = {entry.id for entry in window.entries}
    remaining = [
        (draft, batch.contexts[index])
        for index, draft in enumerate(batch.drafts)
        if all(source.entry in inside for source in draft.sources)
    ]
    batch.drafts = [draft for draft, _ in remaining]
    batch.contexts = {index: context for index, (_, context) in enumerate(remaining)}


def _check_own(draft: FactDraft, entries: Mapping[str, Entry]) -> FactDraft | Rejection:
    """Return a draft of our own rules if its quote is where its span says.

    Nothing else needs checking: these rules copy the quote's statement.
    """
    if not draft.sources or not draft.value.strip():
        return Rejection("no source or value", _claim_of(draft))
    if quoted_entry(draft, entries) is None:
        return Rejection("quote not found", _claim_of(draft))
    return draft


def _claim_of(draft: FactDraft) -> Claim:
    return Claim(
        subject=draft.subject,
        relation=draft.relation,
        value=draft.value,
        text=draft.text,
        quote=draft.quote or draft.value,
        entry=draft.sources[0].entry if draft.sources else None,
        tier=draft.tier,
        valid_from=draft.valid_from,
        confidence=draft.confidence,
    )


def _verify_plugin_draft(draft: FactDraft, entries: Mapping[str, Entry]) -> FactDraft | Rejection:
    """Verify a plugin's draft like a model's claim, whatever status it claims."""
    if not draft.sources or not draft.value.strip():
        return Rejection("no source or value", _claim_of(draft))
    made_by = Provenance(draft.extractor, draft.model, draft.prompt_hash)
    checked = verify_claim(_claim_of(draft), [*entries.values()], made_by)
    if isinstance(checked, FactDraft) and draft.status == "proposed":
        return replace(checked, status="proposed", reason=draft.reason or checked.reason)
    return checked


def quoted_entry(draft: FactDraft, entries: Mapping[str, Entry]) -> Entry | None:
    """Return the entry that contains a draft's quote at its span."""
    if draft.span is None or not draft.quote.strip():
        return None
    start, end = draft.span
    for source in draft.sources:
        entry = entries.get(source.entry)
        if entry and entry.content[start:end] == draft.quote:
            return entry
    return None


def _is_from_tool_arguments(draft: FactDraft, entries: Mapping[str, Entry]) -> bool:
    """Return whether a draft rests on a tool call's arguments, which are not speech."""
    entry = quoted_entry(draft, entries)
    if entry is None or draft.span is None or draft.tier == "procedural":
        return False
    call = _CALL.search(entry.content) if entry.role == "assistant" else None
    return bool(call and call.start() < draft.span[1])


def quote_context(draft: FactDraft, entries: Mapping[str, Entry]) -> str:
    entry = quoted_entry(draft, entries)
    if entry is None or draft.span is None:
        return ""
    start, end = draft.span
    return entry.content[max(0, start - CONTEXT) : end]
