"""Explain why a recall chose its hits; of one item, see `why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from memtier_plugin.core import plugins
from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import ID_LENGTH, MIN_ID_END
from memtier_plugin.core.records import JournalEvent, count_tokens
from memtier_plugin.retrieval.hits import read_hits
from memtier_plugin.retrieval.journal import (
    RECOMPUTED,
    credits_of,
    explain_journalled,
    read_in_full,
)
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.why import ItemExplainer
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor


class Explainer:
    """Answers why, to one agent of a project."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._items = ItemExplainer(actor)

    def explain(
        self, recall_id: str, why: str | None = None, sender: str | None = None
    ) -> dict[str, Any]:
        """Return why a recall chose what it chose; see `MemTier.explain`."""
        self._store.refresh(self._actor.agent, wait_ms=2000)
        with self._store.session() as reader:
            event = read_in_full(self._find_recall(reader, recall_id, sender), reader)
            data = event.data
            stored = reader.items([h["item"] for h in [*data["injected"], *data["near_misses"]]])
            weights = data.get("weights", {})
            document = {
                **event.to_json(),
                "injected": [explain_journalled(h, stored, weights) for h in data["injected"]],
                "near_misses": [
                    explain_journalled(hit, stored, weights)
                    for hit in self._with_signals(event, stored)
                ],
                "credits": [credit.to_json() for credit in credits_of(reader, event)],
                "block": self._block_again(event, stored, reader),
            }
            settings, now = self._store.settings, self._actor.clock()
            document |= plugins.explain_recall(event, stored, reader, settings, now)
            if why is not None:
                document["why"] = self._items.why(event, why)
        return document

    def _with_signals(
        self, event: JournalEvent, stored: Mapping[str, Stored]
    ) -> Sequence[Mapping[str, Any]]:
        """Return the near misses, with signals of now where the journal has none of then."""
        missed: Sequence[Mapping[str, Any]] = event.data["near_misses"]
        if all(hit["signals"] for hit in missed) or self._store.paused:
            return missed
        plan = self._items.plan_again(event, self._items.viewer_of(event))
        hits = {hit.id: hit for hit in plan.hits}
        return [
            hit
            if hit["signals"] or hit["item"] not in hits or hit["item"] not in stored
            else {**hit, "signals": hits[hit["item"]].signals, "signals_from": RECOMPUTED}
            for hit in missed
        ]

    def _block_again(
        self, event: JournalEvent, stored: Mapping[str, Stored], reader: Reader
    ) -> dict[str, Any]:
        """Return the block of a recall, made again of the lines that the journal names.

        ``exact`` tells whether it is as many tokens as then: a line that was forgotten, or is not
        for this agent's eyes any more, is missing, and long texts may be cut elsewhere.
        """
        injected = event.data["injected"]
        if not injected or self._store.paused:
            return {"text": "", "tokens": 0, "exact": not injected}
        viewer = self._items.viewer_of(event)
        ranked = [
            (stored[row["item"]].row, row["score"], row["signals"])
            for row in injected
            if row["item"] in stored and not stored[row["item"]].state.forgotten
        ]
        notes = {row["item"]: row.get("note") or "" for row in injected}
        hits = [replace(hit, note=notes[hit.id]) for hit in read_hits(reader, ranked, viewer, {})]
        offered = self._items.plan_again(event, viewer).block
        block = replace(offered, hits=hits, k=len(hits), tries=None)
        _, text = block.fill(event.id)
        tokens = count_tokens(text)
        return {"text": text, "tokens": tokens, "exact": tokens == event.data["tokens"]}

    def _find_recall(self, reader: Reader, recall_id: str, sender: str | None) -> JournalEvent:
        agent = self._actor.agent
        if MIN_ID_END <= len(recall_id) < ID_LENGTH:
            matches = reader.recalls_ending(recall_id.upper())
        else:
            event = reader.event(recall_id)
            matches = [event] if event is not None and event.kind == "recall" else []
        if not self._actor.everybody:
            # What the person at the machine saw is for no agent, whatever that one may read.
            matches = [event for event in matches if not RecallEvent.of(event).everybody]
        if matches and not Recaller(self._actor).reads_all:
            # Whether another agent has such a recall is not for this one to know.
            matches = [event for event in matches if event.agent_id == agent]
        if sender is not None:
            matches = [e for e in matches if (RecallEvent.of(e).sender or "") == sender]
        if len(matches) != 1:
            count = "more than one recall" if matches else "no recall"
            project = self._store.project
            raise NotFound(f"the journal of {project!r} has {count} {recall_id!r} of {agent}")
        return matches[0]
