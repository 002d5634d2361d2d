"""Explain why a recall chose its hits, and why one item is, or is not, among its lines.

What was journalled is reported as it was (``then``).  The rest is recomputed on the path of every
recall, with the query, time and size of then and the settings and index of now (``now``); what
changed since is listed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from memtier_plugin.core import plugins
from memtier_plugin.core.events import RecallEvent
from memtier_plugin.core.formats import from_iso, to_iso
from memtier_plugin.core.records import FOR_PROMPTS, Fact, JournalEvent, count_tokens
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.retrieval.block import keep_injectable
from memtier_plugin.retrieval.candidates import MIN_COSINE
from memtier_plugin.retrieval.duplicates import group_duplicates, merge_duplicates
from memtier_plugin.retrieval.hidden import find_hidden
from memtier_plugin.retrieval.journal import (
    LATE,
    RECOMPUTED,
    credits_of,
    explain_journalled,
    find_journalled,
    find_recall,
    measure_hit,
    position_of,
    read_in_full,
    report_lead,
)
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.retrieval.query import requested_kinds, weigh_terms
from memtier_plugin.retrieval.recall import DEDUPLICATION_WINDOW, Recaller
from memtier_plugin.retrieval.search import embed_query, find_ranker
from memtier_plugin.retrieval.visibility import Viewer, is_withheld, read_hits
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.tokenizer import ngrams

WIDE_CANDIDATES: Final = 10_000  # of the second search, for what is not among the first ones
_SAME_WEIGHT: Final = 1e-6
_MAX_WORDS: Final = 40  # of an entry that are listed
_REASONS: Final = {
    "unknown": "no item visible to this recall has this id",
    "k": "the block had its k lines before it",
    "tries": "it ranks below the hits considered for a line",
    "depth": "the recall was asked for the other tier alone",
    "entry": "the router answered from the facts alone",
    "said": "another line covers all of its sources",
    "floor": "nothing that was found is likely enough to help (`retrieval.floor`)",
    "talk": "the prompt is small talk or a command of the host, and needs no memory",
    "follow_up": "the prompt says nothing by itself: it means this conversation alone",
    "weak": "it is not likely enough to be part of what is asked (`retrieval.floor`)",
    "question": "it is an earlier question that repeats the prompt, and answers nothing",
    "receipt": "it only acknowledges what was said",
    "failed": "its last calls failed, and another line that was found works",
    "letters": "it shares letters with the prompt, but no word, and is not near it in meaning",
    "restated": "another line of the block says all that it says",
    "far": "its score is too far below the best one's to be worth a line of a routed recall",
    "origin": "text of tools, of outsiders or of the system, and facts resting on it, are not"
    " injected automatically",
}
_WORDS_ONLY: Final = "; it has no vectors and n-grams"


class _Case(Struct, frozen=True):
    """An item whose part in a recall is asked for.

    Attributes:
        details: what the verdict reports with its reason.
    """

    event: JournalEvent
    stored: Stored
    viewer: Viewer
    details: dict[str, Any]

    @property
    def id(self) -> str:
        return self.stored.item.id

    @property
    def kind(self) -> str:
        """The kind of item that a query must ask for: "summary", "timeline" or ""."""
        item = self.stored.item
        return item.shelf if isinstance(item, Fact) else ""

    def verdict(self, reason: str, message: str, **details: Any) -> dict[str, Any]:
        return _verdict(self.id, reason, message, **{**self.details, **details})


class Explainer:
    """Answers why, to one agent of a project."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    def explain(
        self, recall_id: str, why: str | None = None, sender: str | None = None
    ) -> dict[str, Any]:
        """Return why a recall chose what it chose; see `MemTier.explain`."""
        self._store.refresh(self._actor.agent, wait_ms=2000)
        with self._store.session() as reader:
            reads_all = Recaller(self._actor).reads_all
            event = find_recall(self._actor, reader, recall_id, sender, reads_all=reads_all)
            event = read_in_full(event, reader)
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
                document["why"] = self.explain_item(event, why)
        return document

    def _with_signals(
        self, event: JournalEvent, stored: Mapping[str, Stored]
    ) -> Sequence[Mapping[str, Any]]:
        """Return the near misses, with signals of now where the journal has none of then."""
        missed: Sequence[Mapping[str, Any]] = event.data["near_misses"]
        if all(hit["signals"] for hit in missed) or self._store.paused:
            return missed
        plan = self._plan_again(event, self._find_viewer(event))
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
        viewer = self._find_viewer(event)
        ranked = [
            (stored[row["item"]].row, row["score"], row["signals"])
            for row in injected
            if row["item"] in stored and not stored[row["item"]].state.forgotten
        ]
        notes = {row["item"]: row.get("note") or "" for row in injected}
        hits = [replace(hit, note=notes[hit.id]) for hit in read_hits(reader, ranked, viewer, {})]
        offered = self._plan_again(event, viewer).block
        block = replace(offered, hits=hits, k=len(hits), tries=None)
        _, text = block.fill(event.id)
        tokens = count_tokens(text)
        return {"text": text, "tokens": tokens, "exact": tokens == event.data["tokens"]}

    # -- one item ------------------------------------------------------------------------------

    def explain_item(self, event: JournalEvent, item_id: str) -> dict[str, Any]:
        """Return what a recall did with one entry or fact: ``reason``, and ``said`` in words.

        The event may be a rehearsal's; a session of the store must be open.  Texts and numbers are
        there only for who may see the item.
        """
        reader = self._store.reader()
        stored = reader.items([item_id]).get(item_id)
        if stored is None:
            unindexed = {entry.id for entry in self._store.unindexed_entries(event.agent_id)}
            if item_id in unindexed:
                return _verdict(item_id, "unindexed", "the index has not read it yet")
            return _verdict(item_id, "unknown", _REASONS["unknown"])
        viewer = self._find_viewer(event)
        if not may_see(reader, viewer, stored):
            # The same answer as for what does not exist: that it does would tell of others.
            return _verdict(item_id, "unknown", _REASONS["unknown"])
        then = find_journalled(event, item_id)
        details: dict[str, Any] = {
            "then": then,
            "differences": self._differences(event, stored, then, viewer),
        }
        if not stored.state.forgotten:
            details |= {"text": stored.item.text, "file": stored.file, "line": stored.line}
        return self._judge(_Case(event, stored, viewer, details))

    def _judge(self, case: _Case) -> dict[str, Any]:
        """Return the first reason that applies."""
        event, item, then = case.event, case.stored.item, case.details["then"]
        hidden = find_hidden(self._store.reader(), event, case.stored)
        if hidden and hidden.since_recall:  # it could be found when the recall was made
            case.details["differences"].append(f"since then: {hidden.message}")
        recall = RecallEvent.of(event)
        if then and then["injected"]:
            message = f"it was injected, on line {then['place']}, from rank {then['rank']}"
            if recall.purpose == "offer":
                message = f"{message}; but {LATE}"
            return case.verdict("injected", message)
        if by_plugin := plugins.explain_absence(event, case.id):
            return case.verdict(*by_plugin)
        if case.id in recall.repeats:
            message = "the conversation showed it already, so that it was not injected again"
            return case.verdict("repeat", message)
        if hidden:
            late = ", since the recall: the reason at that time is not known"
            message = f"{hidden.message}{late if hidden.since_recall else ''}"
            return case.verdict(hidden.reason, message)
        if (item.timestamp, item.id) > (event.timestamp, event.id):
            return case.verdict("later", f"it was written later, at {to_iso(item.timestamp)}")
        if self._store.paused:
            return case.verdict("paused", "the project is off: nothing is ranked")
        return self._rank_again(case)

    def _differences(
        self,
        event: JournalEvent,
        stored: Stored,
        then: Mapping[str, Any] | None,
        viewer: Viewer,
    ) -> list[str]:
        """List what may make a ranking of now differ from the one of then."""
        data, settings, reader = event.data, self._store.settings, self._store.reader()
        scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all)
        scopes = [*scopes, *reader.shared_scopes(viewer.people)]
        messages = []
        if data["label"].startswith("degraded"):
            messages.append(f"the recall was {data['label']}")
        if data["profile"] != settings.retrieval.profile:
            messages.append(f"the profile was {data['profile']}, is {settings.retrieval.profile}")
        else:
            now = find_ranker(settings).weights(settings, self._compared_model(scopes))
            messages += [
                f"the weight of {name} was {was:g}, is {now[name]:g}"
                for name, was in data.get("weights", {}).items()
                if name in now and was != now[name]
            ]
        weight = stored.state.weight
        if then and abs(then["weight"] - weight) > _SAME_WEIGHT:
            messages.append(f"its learned weight was {then['weight']:+.3f}, is {weight:+.3f}")
        if count := reader.count_since(event.id, scopes):
            messages.append(f"{count} items that it may see were written since")
        if "k" not in data:
            messages.append("its k, token budget and sender were not journalled: today's are taken")
        if len(data["query"]) >= 2000 or "[redacted:" in data["query"]:
            messages.append("the journal has the query redacted and cut")
        return messages

    def _compared_model(self, scopes: Sequence[int]) -> str | None:
        """Return the embedder whose vectors a recall would compare now, if any."""
        embedder = self._store.embedder
        if embedder is None or not self._store.reader().vectors.is_covered(embedder.name, scopes):
            return None
        return embedder.name

    # -- recomputed ----------------------------------------------------------------------------

    def _rank_again(self, case: _Case) -> dict[str, Any]:
        """Rank again, and report the item's rank and what kept it out of the block."""
        event, settings = case.event, self._store.settings
        data, request = event.data, _repeat_request(event)
        is_fact = isinstance(case.stored.item, Fact)
        if request.depth in ("facts", "raw") and is_fact != (request.depth == "facts"):
            return case.verdict("depth", _REASONS["depth"])
        plan = self._plan_again(event, case.viewer)
        if position_of(plan.hits, case.id) is not None:
            return self._report_rank(case, plan, plan)
        wide_settings = dataclasses.replace(settings.retrieval, candidates=WIDE_CANDIDATES)
        recaller = self._recaller(event, dataclasses.replace(settings, retrieval=wide_settings))
        wide = recaller.plan(data["query"], case.viewer, request)
        if position_of(wide.hits, case.id) is not None:
            return self._report_rank(case, plan, wide)
        ranker = recaller.ranker
        if case.kind and (not ranker.merges or case.kind not in requested_kinds(data["query"])):
            message = f"it is a {case.kind}: recall_first finds it for a query that asks for one"
            return case.verdict("no candidate", message)
        if by_ranker := ranker.explain_missing(plan.result):
            return case.verdict(*by_ranker)
        words = self._shared_words(data["query"], case.stored, case.viewer)
        message = words.pop("said") + _WORDS_ONLY * case.stored.state.words_only
        return case.verdict("no candidate", message, words=words)

    def _find_viewer(self, event: JournalEvent) -> Viewer:
        """Return who made the recall of an event, as of then."""
        recall = RecallEvent.of(event)
        return self._recaller(event).viewer(recall.sender, from_iso(recall.at))

    def _plan_again(self, event: JournalEvent, viewer: Viewer) -> RecallPlan:
        """Return what the recall of an event would be now."""
        recaller = self._recaller(event)
        return recaller.plan(event.data["query"], viewer, _repeat_request(event))

    def _recaller(self, event: JournalEvent, settings: Settings | None = None) -> Recaller:
        everybody = self._actor.everybody and bool(RecallEvent.of(event).everybody)
        actor = dataclasses.replace(self._actor, agent=event.agent_id, everybody=everybody)
        return Recaller(actor, settings)

    def _report_rank(self, case: _Case, plan: RecallPlan, wide: RecallPlan) -> dict[str, Any]:
        """Report an item that is ranked now.

        Args:
            plan: of the recall as it would be made now.
            wide: of a search with more candidates, where the item is not among those; else `plan`.
        """
        index = position_of(wide.hits, case.id)
        assert index is not None
        settings = self._store.settings
        weights = find_ranker(settings).weights(settings, wide.result.model)
        hit = wide.hits[index]
        injected, _ = plan.block.fill(case.event.id)
        lines = [line.id for line in injected]
        line = lines.index(case.id) + 1 if case.id in lines else None
        case.details["now"] = {
            **measure_hit(hit, weights),
            "rank": index + 1,
            "of": len(wide.hits),
            "line": line,
            "weights": weights,
        }
        last = next((shown for shown in reversed(wide.hits) if shown.id in lines), None)
        if last is not None and last.id != case.id:
            case.details["last_line"] = report_lead(last, hit, weights, wide.hits)
        rank = f"rank {index + 1} of {len(wide.hits)}"
        if line is not None:
            message = f"it was not injected, but would be now: line {line}, {rank}"
            return case.verdict("changed", message)
        if wide is not plan:
            limit = settings.retrieval.candidates
            message = f"it is on {rank}, behind the {limit} candidates that take part"
            return case.verdict("ranked", message)
        reason, message, details = _left_out(plan, case.id, case.event)
        return case.verdict(reason, f"it is on {rank}, but {message}", **details)

    def _shared_words(self, query: str, stored: Stored, viewer: Viewer) -> dict[str, Any]:
        """Return what the query and an item share, which did not make it a candidate."""
        item, tokenizer = stored.item, self._store.tokenizer
        terms = weigh_terms(query, tokenizer)
        vector = embed_query(self._actor, query, viewer, None, [])
        with self._store.snapshot() as reader:
            kind = item.shelf if isinstance(item, Fact) else ""
            scopes = reader.scopes(
                viewer.agent, viewer.sender, read_all=viewer.read_all, shelf=kind
            )
            scopes = [*scopes, *reader.shared_scopes(viewer.people, kind)]
            match = reader.match_words(scopes, terms, 0)  # none but those looked up for this row
            reader.complete_match(match, scopes, [stored.row])
            shared = [*match.terms_of([stored.row]).get(stored.row, ())]
            cosine = None
            if vector:
                cosines = reader.vectors.similarity(vector.model, vector.vector, [stored.row])
                cosine = cosines.get(stored.row)
        parts = ngrams(query) & ngrams(item.text)
        return {
            "query": [*terms],
            "entry": [*dict.fromkeys(tokenizer.words(item.text))][:_MAX_WORDS],
            "shared": shared,
            "grams": len(parts),
            "cosine": None if cosine is None else round(cosine, 6),
            "floor": MIN_COSINE,
            "said": self._describe_shared(shared, len(parts), cosine),
        }

    def _describe_shared(self, shared: list[str], parts: int, cosine: float | None) -> str:
        meaning = "there is no semantic similarity to rank by"
        if cosine is not None:
            meaning = f"its likeness of meaning is {cosine:.3f} (the floor is {MIN_COSINE:g})"
        if not shared and not parts:
            return f"it shares no word and no n-gram with the query, and {meaning}"
        common = f"the words {', '.join(shared)}" if shared else "no word"
        limits = find_ranker(self._store.settings).limits
        return f"it shares {common} and {parts} n-grams; {meaning}; {limits}"


def _repeat_request(event: JournalEvent) -> RecallRequest:
    data = event.data
    return RecallRequest(
        purpose=data["purpose"],
        k=data.get("k"),
        token_budget=data.get("token_budget"),
        depth=data.get("depth", "mixed"),
    )


def _verdict(item_id: str, reason: str, message: str, **details: Any) -> dict[str, Any]:
    empty = ("text", "file", "line", "then", "now", "last_line", "left_out", "words")
    return {
        "id": item_id,
        "reason": reason,
        "said": message,
        **dict.fromkeys(empty),
        "differences": [],
        **details,
    }


def may_see(reader: Reader, viewer: Viewer, stored: Stored) -> bool:
    """Return whether a viewer may know of an item; confidences are for their own agent alone."""
    if viewer.asker is None:
        return True
    if stored.is_confided_to_another(viewer.agent):
        return False
    if is_withheld(reader, viewer.asker, stored):
        return False
    return viewer.may_see(stored.item)


def _left_out(
    plan: RecallPlan, item_id: str, event: JournalEvent
) -> tuple[str, str, dict[str, Any]]:
    """Return why a ranked hit has no line: reason, message, and the numbers behind."""
    allowed: Sequence[Hit] = plan.hits
    if RecallEvent.of(event).purpose in FOR_PROMPTS:
        allowed = keep_injectable(plan.hits, guarded=plan.block.guarded)
    if position_of(allowed, item_id) is None:
        return "origin", _REASONS["origin"], {}
    index = position_of(plan.block.hits, item_id)
    if index is None and item_id in plan.left_out:
        reason = plan.left_out[item_id]
        by = "floor" if reason in plan.judged.left_out.values() else "route"
        details: dict[str, Any] = {"by": by, "reason": reason}
        if not (bar := plan.judged.bars.get(item_id)):
            return reason, _REASONS[reason], {"left_out": details}
        details |= {"likely": round(bar[0], 4), "least": round(bar[1], 4)}
        message = f"{_REASONS[reason]}: {bar[0]:.2f} of the {bar[1]:.2f} that are needed"
        return reason, message, {"left_out": details}
    if index is None:
        double = _stand_in(plan, item_id, allowed)
        details = {"left_out": {"by": "duplicate", "of": double}}
        return "duplicate", f"{double} says nearly the same and represents it", details
    refused = plan.block.explain_refusal(index, event.id)
    tokens = f"its line needs {refused.needed} tokens, and {refused.left} were left"
    return refused.by, _REASONS.get(refused.by, tokens), {"left_out": asdict(refused)}


def _stand_in(plan: RecallPlan, item_id: str, allowed: Sequence[Hit]) -> str:
    """Return the near-duplicate that took an item's place."""
    for group in group_duplicates(allowed[:DEDUPLICATION_WINDOW], plan.values):
        if any(hit.id == item_id for hit in group):
            return merge_duplicates(group).id
    raise AssertionError(f"{item_id} was offered, and is neither there nor stood for")
