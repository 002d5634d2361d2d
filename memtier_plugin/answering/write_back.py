"""Store findings of an answer as facts: TierMem's write-back (TierMem, section 2.4).

At most two per question are stored.  Each is verified again (`facts.verification`) and written like
any other fact: the agent whose line it is must allow it, foreign text waits for review, and nothing
is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memtier_plugin.answering.llm import AnswerFinding, AnsweringModel, KeptFinding
from memtier_plugin.core.errors import CapReached, EndpointError
from memtier_plugin.core.records import Fact, FactDraft
from memtier_plugin.core.settings.schema import AgentRights
from memtier_plugin.facts import persons
from memtier_plugin.facts.evolution import Decision
from memtier_plugin.facts.verification.verify import Claim, Provenance, Rejection, verify_claim
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.providers.embedding.static import StaticEmbedder
from memtier_plugin.providers.prompting import load_prompt
from memtier_plugin.storage.index.items import embed_texts
from memtier_plugin.storage.store import Actor

EXTRACTOR: Final = "ask"
_NEAREST: Final = 3  # existing facts shown for each finding
_NO_RIGHTS: Final = AgentRights()


class FindingWriter:
    """Writes findings back as facts of one project."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def write(
        self, run: str, question: str, findings: Sequence[AnswerFinding], model: AnsweringModel
    ) -> list[Fact]:
        """Ask the model which findings to store, and return the facts written.

        Nothing is written if the model's reply is unusable.
        """
        allowed = [finding for finding in findings if self._promotion(finding) != "none"]
        if not allowed:
            return []
        existing = self._nearest(allowed)
        try:
            chosen = model.choose_kept(question, allowed, existing)
        except (EndpointError, CapReached):
            return []  # the answer is valid without it
        drafts: list[FactDraft] = []
        decisions: dict[int, Decision] = {}
        for selected in chosen:
            draft = self._draft(selected, model.model.name)
            if draft is None:
                continue
            if selected.target is not None:
                decisions[len(drafts)] = Decision("update", selected.target, "the model's choice")
            drafts.append(draft)
        if not drafts:
            return []
        writer = FactWriter(self._actor)
        return writer.write(drafts, run=f"{EXTRACTOR}-{run}", decisions=decisions).added

    def _draft(self, selected: KeptFinding, model: str) -> FactDraft | None:
        finding = selected.finding
        assert finding.quote is not None  # only findings located in the log are stored
        entry = finding.quote.entry
        claim = Claim(
            subject=selected.subject,
            relation=selected.relation,
            value=selected.value,
            text=selected.text or finding.text,
            quote=finding.quote.text,
            entry=entry.id,
        )
        made_by = Provenance(EXTRACTOR, model, load_prompt("write_back").hash)
        draft = verify_claim(claim, [entry], made_by)
        if isinstance(draft, Rejection):
            return None
        if self._promotion(finding) == "propose" and draft.status == "active":
            reason = f"agents.{entry.agent_id}.promote is propose"
            return replace(draft, status="proposed", reason=reason)
        settings = self._store.settings.facts
        held = persons.hold_sensitive(draft, settings)
        return persons.hold_extracted(held, settings.mode) if held else None

    def _promotion(self, finding: AnswerFinding) -> str:
        """Return the `promote` setting of a line's agent."""
        if finding.quote is None:
            return "none"
        agents = self._store.settings.agents
        return agents.get(finding.quote.entry.agent_id, _NO_RIGHTS).promote

    def _nearest(self, findings: Sequence[AnswerFinding]) -> list[Fact]:
        words, embedder = self._store.tokenizer.words, self._store.embedder
        texts = {number: (finding.text,) for number, finding in enumerate(findings)}
        vectors: dict[int, tuple[str, bytes]] = {}
        if isinstance(embedder, StaticEmbedder):
            embedded = embed_texts(embedder, texts)
            vectors = {number: (embedder.name, pieces[0]) for number, pieces in embedded.items()}
        with self._store.session() as reader:
            items = [
                stored.item
                for number, (text,) in texts.items()
                for stored in reader.similar_facts(
                    words(text), vector=vectors.get(number), limit=_NEAREST
                )
            ]
        facts = {item.id: item for item in items if isinstance(item, Fact)}
        return list(facts.values())
