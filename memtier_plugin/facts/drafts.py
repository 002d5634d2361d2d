"""What a window of entries gives: drafts of facts by rules, plugins and a model, held to proof.

Source: seeds 1.6; issue 4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Final

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import CapReached, EndpointError
from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.core.settings.schema import AgentRights
from memtier_plugin.facts import filters
from memtier_plugin.facts.backlog import RULES, Window, group_by_session
from memtier_plugin.facts.evolution import Decision
from memtier_plugin.facts.evolution_llm import ChatEvolution
from memtier_plugin.facts.extraction import experiences
from memtier_plugin.facts.extraction.llm import ChatExtractor
from memtier_plugin.facts.extraction.rules import extract_facts
from memtier_plugin.facts.verification.verify import Claim, Rejection, verify_claim
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.store import Store
from memtier_plugin.trust import echoes, origins

_CALL: Final = re.compile(r"^\[tool call: ", re.MULTILINE)  # from here on nothing is said
_AROUND: Final = 60  # characters before a quote that may tell that it corrects something
_NO_RIGHTS: Final = AgentRights()


@dataclass(slots=True)
class DraftBatch:
    """What a window gave: drafts, each with the words around its quote, and what was rejected.

    ``problem`` is why the model did not say anything of all entries; ``unread`` are the entries of
    which it gave no answer that can be used.
    """

    drafts: list[FactDraft] = field(default_factory=list)
    contexts: dict[int, str] = field(default_factory=dict)
    decisions: dict[int, Decision] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    cost: float = 0.0
    unread: tuple[str, ...] = ()
    problem: str = ""


class DraftBuilder:
    """Finds the drafts of one project's facts."""

    def __init__(
        self, store: Store, agent: str, clock: Callable[[], datetime], settler: FactWriter
    ) -> None:
        self._store = store
        self._agent = agent
        self._clock = clock
        self._settler = settler

    def refusal_reason(self, entry: Entry) -> str:
        """Return why nothing is to be made of an entry, or nothing."""
        if entry.parent:  # what it found is its parent's to say
            return "said by a sub-agent"
        rights = self._store.settings.agents.get(entry.agent_id, _NO_RIGHTS)
        return "agents.*.promote: none" if rights.promote == "none" else ""

    def build(self, extractor: str, window: Window) -> DraftBatch:
        """Return what an extractor finds in a window, as far as the entries bear it out.

        Raises:
            CapReached, EndpointError, SettingsError: the model says nothing now.
        """
        if not self._store.settings.trust.defence:
            window.entries[:] = [origins.assume_trusted(entry) for entry in window.entries]
        return self._by_rules(window) if extractor == RULES else self._by_model(window)

    def _by_rules(self, window: Window) -> DraftBatch:
        found = DraftBatch()
        for group in group_by_session(window.entries):
            by_id = {entry.id: entry for entry in group}
            own = (_check_own(draft, by_id) for draft in self._extract(group, found.rejected))
            theirs = (_verify_plugin_draft(draft, by_id) for draft in plugins.collect_drafts(group))
            self._add_accepted(chain(own, theirs), by_id, found)
        return found

    def _by_model(self, window: Window) -> DraftBatch:
        found = DraftBatch()
        model = ChatBudget(self._store, self._agent, self._clock).chat_model()
        if model is None:
            return found
        chat = ChatExtractor(model, self._store.settings.consolidation.batch_tokens)
        answered: set[str] = set()
        for group in chat.batches(window.entries):
            by_id = {entry.id: entry for entry in group}
            try:
                said = chat.extract_claims(group)
            except (CapReached, EndpointError) as error:
                found.problem = str(error)
                if answered:  # what was paid for is kept, up to the first entry without an answer
                    _truncate(window, found, answered)
                    break
                raise
            answered.update(by_id)
            found.unread += said.unread
            found.rejected.update(said.rejected)
            found.tokens += said.prompt_tokens + said.completion_tokens
            found.cost += said.cost
            checked = (
                verify_claim(
                    claim, group, extractor=chat.name, model=model.name,
                    prompt_hash=chat.prompt.hash,
                )
                for claim in said.claims
            )  # fmt: skip
            self._add_accepted(checked, by_id, found)
        if not found.problem:
            self._ask_for_decisions(found, model)
        return found

    def _add_accepted(
        self,
        checked: Iterable[FactDraft | Rejection],
        entries: Mapping[str, Entry],
        found: DraftBatch,
    ) -> None:
        """Keep what stands of one session's drafts, as far as the gates let it pass."""
        standing: list[FactDraft] = []
        for draft in checked:
            if isinstance(draft, Rejection):
                found.rejected[draft.reason] += 1
            elif reason := _from_tool_arguments(draft, entries) or self._repeated_recall(
                draft, entries
            ):
                found.rejected[reason] += 1
            else:
                standing.append(self._apply_agent_rights(self._hold_if_from_tools(draft, entries)))
        settings = self._store.settings
        kept, rejected = filters.apply_filters(
            standing,
            cap=settings.consolidation.session_cap,
            single_valued=settings.facts.single_valued,
        )
        found.rejected.update(rejected)
        for draft in kept:
            found.contexts[len(found.drafts)] = _quote_context(draft, entries)
            found.drafts.append(draft)

    def _ask_for_decisions(self, found: DraftBatch, model: ChatModel) -> None:
        """Ask the model what becomes of the facts of which the rules say too little."""
        judge = ChatEvolution(model)
        try:
            for place, nearest in self._settler.find_related(found.drafts).items():
                choice = judge.decide(found.drafts[place].text, [fact.text for fact in nearest])
                if choice is not None:
                    target = None if choice.target is None else nearest[choice.target]
                    found.decisions[place] = Decision(choice.action, target, "the model's choice")
        except (CapReached, EndpointError):
            return  # what was found is paid for: the rules decide on the rest

    def _extract(self, group: Sequence[Entry], rejected: Counter[str]) -> list[FactDraft]:
        own = extract_facts(group, self._store.settings.facts.single_valued)
        done = experiences.extract_experiences(group)
        rejected.update(own.rejected)
        rejected.update(done.rejected)
        return [*own.drafts, *done.drafts]

    def _repeated_recall(self, draft: FactDraft, entries: Mapping[str, Entry]) -> str:
        """Return that a draft is only what its agent was shown in that run, or nothing."""
        spoken = self._assistant_entry(draft, entries)
        if spoken is None:
            return ""
        reader = self._store.reader()
        recalls = reader.events_of_run(spoken.agent_id, spoken.run_id, "recall")
        rows = reader.rows_of({hit["item"] for e in recalls for hit in e.data["injected"]})
        shown = [_text_of(one.item) for one in reader.items_by_row([*rows.values()]).values()]
        said = echoes.is_restatement(draft.text, shown, self._store.tokenizer.words)
        return "repeats its own recall" if said else ""

    def _hold_if_from_tools(self, draft: FactDraft, entries: Mapping[str, Entry]) -> FactDraft:
        """Let wait what the assistant only passed on from a tool, or from outside."""
        spoken = self._assistant_entry(draft, entries)
        if spoken is None or draft.status != "active":
            return draft
        read = [
            one for one in entries.values() if origins.is_foreign(origins.effective_origin(one))
        ]
        # What was said after a tool spoke rests on it, in whatever words or language.
        told = any(one.run_id == spoken.run_id and one.turn < spoken.turn for one in read)
        texts = [one.content for one in read]
        if not (told or echoes.is_restatement(draft.text, texts, self._store.tokenizer.words)):
            return draft
        return replace(
            draft, status="proposed", origin="tool", reason=origins.REVIEW_REASONS["outside"]
        )

    def _assistant_entry(self, draft: FactDraft, entries: Mapping[str, Entry]) -> Entry | None:
        """Return the agent's own words that a draft rests on alone, if they are to be doubted."""
        if draft.tier == "procedural" or not self._store.settings.trust.defence:
            return None
        found = [entries[one.entry] for one in draft.sources if one.entry in entries]
        if not found or any(one.role == "user" and not one.parent for one in found):
            return None
        return found[0]

    def _apply_agent_rights(self, draft: FactDraft) -> FactDraft:
        """Let a fact wait where its agent may only propose."""
        agents = self._store.settings.agents
        for source in draft.sources:
            rights = agents.get(source.agent, _NO_RIGHTS)
            if rights.promote == "propose" and draft.status == "active":
                reason = f"agents.{source.agent}.promote is propose"
                return replace(draft, status="proposed", reason=reason)
        return draft


def _truncate(window: Window, found: DraftBatch, answered: Collection[str]) -> None:
    """Keep of a window what stands before the first entry of which nothing was said."""
    whole = next(i for i, entry in enumerate(window.entries) if entry.id not in answered)
    window.truncate(whole)
    inside = {entry.id for entry in window.entries}
    kept = [
        (draft, found.contexts[place])
        for place, draft in enumerate(found.drafts)
        if all(source.entry in inside for source in draft.sources)
    ]
    found.drafts = [draft for draft, _ in kept]
    found.contexts = {place: context for place, (_, context) in enumerate(kept)}


def _check_own(draft: FactDraft, entries: Mapping[str, Entry]) -> FactDraft | Rejection:
    """Return a draft of our own rules if its quote stands where it says.

    More is not asked: they are made so that a fact says exactly what its quote does.
    """
    if not draft.sources or not draft.value.strip():
        return Rejection("no source or value", _claim_of(draft))
    return (
        draft if _quoted_entry(draft, entries) else Rejection("quote not found", _claim_of(draft))
    )


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
    """Return what provenance makes of a draft that a plugin found, whatever it calls itself."""
    if not draft.sources or not draft.value.strip():
        return Rejection("no source or value", _claim_of(draft))
    made = verify_claim(
        _claim_of(draft), [*entries.values()], extractor=draft.extractor, model=draft.model,
        prompt_hash=draft.prompt_hash,
    )  # fmt: skip
    if isinstance(made, FactDraft) and draft.status == "proposed":
        return replace(made, status="proposed", reason=draft.reason or made.reason)
    return made


def _quoted_entry(draft: FactDraft, entries: Mapping[str, Entry]) -> Entry | None:
    """Return the entry in which a draft's quote stands at its place."""
    if draft.span is None or not draft.quote.strip():
        return None
    start, end = draft.span
    for source in draft.sources:
        entry = entries.get(source.entry)
        if entry and entry.content[start:end] == draft.quote:
            return entry
    return None


def _from_tool_arguments(draft: FactDraft, entries: Mapping[str, Entry]) -> str:
    """Return that a draft rests on what a tool was called with, which nobody said, or nothing."""
    entry = _quoted_entry(draft, entries)
    if entry is None or draft.span is None or draft.tier == "procedural":
        return ""
    call = _CALL.search(entry.content) if entry.role == "assistant" else None
    return "a tool's arguments" if call and call.start() < draft.span[1] else ""


def _text_of(item: Entry | Fact) -> str:
    return item.text if isinstance(item, Fact) else item.content


def _quote_context(draft: FactDraft, entries: Mapping[str, Entry]) -> str:
    entry = _quoted_entry(draft, entries)
    if entry is None or draft.span is None:
        return ""
    start, end = draft.span
    return entry.content[max(0, start - _AROUND) : end]
