"""Keeping what an answer was found to rest on, as facts: TierMem's write-back (seeds 2.4).

At most two of a question, proved anew by `provenance` and settled like every other fact: the agent
whose line it is must allow it, foreign text waits for a review, and nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memtier_plugin.answering.llm import AnswerFinding, AnsweringModel, KeptFinding
from memtier_plugin.core.errors import CapReached, EndpointError
from memtier_plugin.core.records import Fact, FactDraft
from memtier_plugin.core.settings.schema import AgentRights
from memtier_plugin.facts.evolution import Decision
from memtier_plugin.facts.verification.verify import Claim, Rejection, verify_claim
from memtier_plugin.facts.writer import FactWriter
from memtier_plugin.providers.prompt import load_prompt
from memtier_plugin.storage.actor import Actor

EXTRACTOR: Final = "ask"
_NEAREST: Final = 3  # known facts that are shown for each finding
_NO_RIGHTS: Final = AgentRights()


class FindingWriter:
    """Writes findings back as facts of one project."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def write(
        self, run: str, question: str, findings: Sequence[AnswerFinding], thinker: AnsweringModel
    ) -> list[Fact]:
        """Ask the model which findings are worth it, and return the facts that they became.

        Nothing is kept where the model says nothing usable, or nothing more.
        """
        allowed = [finding for finding in findings if self._may(finding) != "none"]
        if not allowed:
            return []
        known = self._nearest(allowed)
        try:
            chosen = thinker.choose_kept(question, allowed, known)
        except (EndpointError, CapReached):
            return []  # the answer stands without it
        drafts: list[FactDraft] = []
        judged: dict[int, Decision] = {}
        for one in chosen:
            draft = self._draft(one, thinker.model.name)
            if draft is None:
                continue
            if one.target is not None:
                why = "the model's choice"
                judged[len(drafts)] = Decision("update", one.target, why)
            drafts.append(draft)
        if not drafts:
            return []
        writer = FactWriter(self._actor)
        return writer.write(drafts, run=f"{EXTRACTOR}-{run}", decisions=judged).added

    def _draft(self, kept: KeptFinding, model: str) -> FactDraft | None:
        finding = kept.finding
        assert finding.quote is not None  # only what stands in the log is kept
        entry = finding.quote.entry
        claim = Claim(
            subject=kept.subject,
            relation=kept.relation,
            value=kept.value,
            text=kept.text or finding.text,
            quote=finding.quote.text,
            entry=entry.id,
        )
        found = verify_claim(
            claim,
            [entry],
            extractor=EXTRACTOR,
            model=model,
            prompt_hash=load_prompt("write_back").hash,
        )
        if isinstance(found, Rejection):
            return None
        if kept.target is not None:  # what it replaces was proved, too
            sources = dict.fromkeys([*found.sources, *kept.target.sources])
            found = replace(found, sources=tuple(sources))
        if self._may(finding) == "propose" and found.status == "active":
            reason = f"agents.{entry.agent_id}.promote is propose"
            return replace(found, status="proposed", reason=reason)
        return found

    def _may(self, finding: AnswerFinding) -> str:
        """Return what the agent of a line allows to become of it."""
        if finding.quote is None:
            return "none"
        agents = self._store.settings.agents
        return agents.get(finding.quote.entry.agent_id, _NO_RIGHTS).promote

    def _nearest(self, findings: Sequence[AnswerFinding]) -> list[Fact]:
        words = self._store.tokenizer.words
        with self._store.session() as reader:
            stored = [
                one
                for finding in findings
                for one in reader.similar_facts(words(finding.text), limit=_NEAREST)
            ]
        facts = {one.item.id: one.item for one in stored if isinstance(one.item, Fact)}
        return list(facts.values())
