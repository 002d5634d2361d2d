"""Why a recall chose what it chose, and why something else is not among it.

What was journalled then is told as such (``then``).  The rest is recomputed on the path of every
recall, with the query, time and size of then and the settings and index of now (``now``); what
differs since then is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from memtier_plugin.core.errors import NotFound
from memtier_plugin.core.records import Entry, Fact, JournalEvent
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.settings.load import Settings
from memtier_plugin.core.times import from_iso, to_iso
from memtier_plugin.retrieval.block import is_injectable
from memtier_plugin.retrieval.candidates import MIN_COSINE
from memtier_plugin.retrieval.duplicates import group_duplicates, merge_duplicates
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.retrieval.query import Viewer, wants_kind, weigh_terms
from memtier_plugin.retrieval.query_vector import embed_query
from memtier_plugin.retrieval.recall import DEDUPLICATION_WINDOW, Recaller
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.index.items import row_number
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.text.tokenizer import ngrams

WIDE_CANDIDATES: Final = (
    10_000  # candidates of the second look, for what is not among the first ones
)
_SAME: Final = 1e-6  # what rounding in the journal leaves of a sum
_LACKS: Final = 3  # signals named as what it lacked most
_SHOWN: Final = 40  # words of an entry that are listed
_REASONS: Final = {
    "unknown": "nothing that this recall could see has this id",
    "k": "the block had its k lines before it",
    "tries": "it stands behind the hits that are tried for a line",
    "depth": "the recall was asked for the other tier alone",
    "entry": "the router answered from the facts alone",
    "said": "another line stands for all that it rests on",
    "far": "its score is too far below the best one's to be worth a line of a routed recall",
    "origin": "what a tool, somebody outside or the system said, and what rests on that, is not"
    " injected by itself",
}


class Explainer:
    """Answers why, to one agent of a project."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._agent = actor.agent

    def explain(self, recall_id: str, why: str | None = None) -> dict[str, Any]:
        """Return why a recall chose what it chose; see `MemTier.explain`."""
        self._store.refresh(self._agent, wait_ms=2000)
        with self._store.session() as reader:
            event = reader.event(recall_id)
            reads_all = self._recaller(self._agent).reads_all
            if (
                event is None
                or event.kind != "recall"
                or not (reads_all or event.agent_id == self._agent)
            ):
                # Whether there is one of another agent is that agent's.
                raise NotFound(
                    f"the journal of {self._store.project!r} has no recall {recall_id!r} of"
                    f" {self._agent}"
                )
            listed = [*event.data["injected"], *event.data["near_misses"]]
            rows = reader.rows_of(hit["item"] for hit in listed)
            stored = {one.item.id: one for one in reader.items_by_row([*rows.values()]).values()}
            run = event.run_id
            credits = reader.events_of_run(event.agent_id, run, "credit") if run else []
            counted = event.data.get("weights", {})
            told = {
                **event.to_json(),
                **{
                    name: [_explained(hit, stored, counted) for hit in event.data[name]]
                    for name in ("injected", "near_misses")
                },
                "credits": [credit.to_json() for credit in credits],
            }
            if why is not None:
                told["why"] = self._why(event, why)
        return told

    def _recaller(self, agent: str, settings: Settings | None = None) -> Recaller:
        return Recaller(replace(self._actor, agent=agent), settings)

    # -- one item ------------------------------------------------------------------------------

    def _why(self, event: JournalEvent, identity: str) -> dict[str, Any]:
        """Return what became of one entry or fact in a recall: ``reason``, and ``said`` in words.

        Texts and numbers are there only for who may see the item.
        """
        reader = self._store.reader()
        rows = reader.rows_of([identity])
        if not rows:
            unread = {entry.id for entry in self._store.unindexed_entries(event.agent_id)}
            if identity in unread:
                return _verdict(identity, "unindexed", "the index has not read it yet")
            return _verdict(identity, "unknown", _REASONS["unknown"])
        [stored] = reader.items_by_row([*rows.values()]).values()
        reads_all = self._recaller(event.agent_id).reads_all
        at = from_iso(event.data["at"])
        asker = Viewer(event.agent_id, event.data.get("sender"), reads_all, at)
        if not _may_see(asker, stored.item):
            # As for what is not there: that it is would tell something of others.
            return _verdict(identity, "unknown", _REASONS["unknown"])
        then = _journalled(event, identity)
        changes = self._changes(event, stored, then, asker)
        hidden = self._hidden(event, stored)
        known: dict[str, Any] = {"then": then, "differences": changes}
        if not stored.state.forgotten:
            item = stored.item
            text = item.text if isinstance(item, Fact) else item.content
            known |= {"text": text, "file": stored.file, "line": stored.line}
        if hidden and hidden[2]:  # it could be found when the recall was made
            changes.append(f"since then: {hidden[1]}")
        if then and then["injected"]:
            said = f"it was injected, on line {then['place']}, from rank {then['rank']}"
            return _verdict(identity, "injected", said, **known)
        if identity in event.data.get("repeats", ()):
            said = "the conversation showed it already, so that it was not injected again"
            return _verdict(identity, "repeat", said, **known)
        if hidden:
            reason, said, since = hidden
            said = f"{said}, since the recall: what it lacked then is not known" if since else said
            return _verdict(identity, reason, said, **known)
        if (stored.item.timestamp, identity) > (event.timestamp, event.id):
            said = f"it was written later, at {to_iso(stored.item.timestamp)}"
            return _verdict(identity, "later", said, **known)
        if self._store.paused:
            return _verdict(identity, "paused", "the project is off: nothing is ranked", **known)
        return self._ranked(event, stored, asker, known)

    def _hidden(self, event: JournalEvent, stored: Stored) -> tuple[str, str, bool] | None:
        """Return why an item cannot be found by anybody: reason, words, whether since then."""
        reader, item, state = self._store.reader(), stored.item, stored.state
        if isinstance(item, Entry) and not item.retrievable:
            return "system", "the system's own text is kept for the log but never found", False
        if isinstance(item, Fact) and item.status != "active" and not state.reviewed:
            return "proposed", f"the fact is {item.status}, and found once it is accepted", False
        if reader.candidates([stored.row]):
            return None
        if not state.forgotten and (state.reverted or state.reviewed == "rejected"):
            return self._undone(event, item.id)
        kinds = ("forget",) if state.forgotten else ("supersede",)
        events = [e for e in reader.events_of_item(item.id) if e.kind in kinds]
        since = bool(events) and events[-1].timestamp > event.timestamp
        on = f" on {to_iso(events[-1].timestamp)[:10]}" if events else ""
        if state.forgotten:
            return "forgotten", f"it was forgotten{on}", since
        if state.superseded_by:
            return "superseded", f"it was superseded{on} by {state.superseded_by}", since
        if isinstance(item, Fact) and item.shelf:
            return "forgotten", f"something that the {item.shelf} shows was withdrawn", False
        if isinstance(item, Fact):
            return "forgotten", "every entry that the fact rests on was forgotten", False
        return "unindexed", "the index does not hold it yet", False

    def _undone(self, event: JournalEvent, identity: str) -> tuple[str, str, bool]:
        events = self._store.reader().events_of_item(identity)
        last = [one for one in events if one.kind in ("revert", "reject")][-1]
        on, since = to_iso(last.timestamp)[:10], last.timestamp > event.timestamp
        if last.kind == "reject":
            return "rejected", f"it was rejected on {on}", since
        return "reverted", f"the consolidation that made it was undone on {on}", since

    def _changes(
        self,
        event: JournalEvent,
        stored: Stored,
        then: Mapping[str, Any] | None,
        asker: Viewer,
    ) -> list[str]:
        """Say what may make a ranking of now differ from the one of then."""
        data, settings, reader = event.data, self._store.settings, self._store.reader()
        found = []
        if data["label"].startswith("degraded"):
            found.append(f"the recall was {data['label']}")
        if data["profile"] != settings.retrieval.profile:
            found.append(f"the profile was {data['profile']}, is {settings.retrieval.profile}")
        else:
            now = _weights(settings)
            found += [
                f"the weight of {name} was {was:g}, is {now[name]:g}"
                for name, was in data.get("weights", {}).items()
                if name in now and was != now[name]
            ]
        if then and abs(then["weight"] - stored.state.weight) > _SAME:
            found.append(
                f"its learned weight was {then['weight']:+.3f}, is {stored.state.weight:+.3f}"
            )
        scopes = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all)
        if since := reader.count_since(row_number(event.id), [*scopes, *reader.shared_scopes()]):
            found.append(f"{since} items that it may see were written since")
        if "k" not in data:
            found.append("its k, token budget and sender were not journalled: today's are taken")
        if len(data["query"]) >= 2000 or "[redacted:" in data["query"]:
            found.append("the journal has the query redacted and cut")
        return found

    def _ranked(
        self, event: JournalEvent, stored: Stored, asker: Viewer, known: dict[str, Any]
    ) -> dict[str, Any]:
        """Rank anew, and tell where the item stands and what kept it out of the block."""
        identity, data, settings = stored.item.id, event.data, self._store.settings
        depth = data.get("depth", "mixed")
        request = RecallRequest(
            purpose=data["purpose"],
            k=data.get("k"),
            token_budget=data.get("token_budget"),
            depth=depth,
        )
        if depth in ("facts", "raw") and isinstance(stored.item, Fact) != (depth == "facts"):
            return _verdict(identity, "depth", _REASONS["depth"], **known)
        recaller = self._recaller(event.agent_id)
        asked = recaller.plan(data["query"], asker, request)
        injected, _ = asked.block.fill(event.id)
        lines = [hit.id for hit in injected]
        wide, place = asked, _place(asked.hits, identity)
        if place is None:
            more = replace(settings.retrieval, candidates=WIDE_CANDIDATES)
            second = self._recaller(event.agent_id, replace(settings, retrieval=more))
            wide = second.plan(data["query"], asker, request)
            place = _place(wide.hits, identity)
        item = stored.item
        shelf = item.shelf if isinstance(item, Fact) else ""
        paper = settings.retrieval.profile == "paper"
        if place is None and shelf and (paper or not wants_kind(data["query"], shelf)):
            said = f"it is a {shelf}: recall_first finds it for a query that asks for one"
            return _verdict(identity, "no candidate", said, **known)
        if place is None:
            words = self._words(data["query"], stored, asker)
            return _verdict(identity, "no candidate", words.pop("said"), words=words, **known)
        counted = _weights(settings)
        known["now"] = {
            **_measured(wide.hits[place], counted),
            "rank": place + 1,
            "of": len(wide.hits),
            "line": lines.index(identity) + 1 if identity in lines else None,
            "weights": counted,
        }
        last = next((h for h in reversed(wide.hits) if h.id in lines), None)
        if last is not None and last.id != identity:
            known["last_line"] = _against(last, wide.hits[place], counted, wide.hits)
        rank = f"rank {place + 1} of {len(wide.hits)}"
        if identity in lines:
            said = f"it was not injected, but would be now: line {known['now']['line']}, {rank}"
            return _verdict(identity, "changed", said, **known)
        if wide is not asked:
            limit = settings.retrieval.candidates
            said = f"it is on {rank}, behind the {limit} candidates that take part"
            return _verdict(identity, "ranked", said, **known)
        reason, said, more_known = _left_out(asked, identity, event)
        return _verdict(identity, reason, f"it is on {rank}, but {said}", **known, **more_known)

    def _words(self, query: str, stored: Stored, asker: Viewer) -> dict[str, Any]:
        """Return what the query and an item share, which was not enough to make it a candidate."""
        item, tokens = stored.item, self._store.tokenizer
        text = item.text if isinstance(item, Fact) else item.content
        terms = weigh_terms(tokens.words(query), tokens.language)
        near = embed_query(self._actor, query, asker, None, [])
        with self._store.snapshot() as reader:
            shelf = item.shelf if isinstance(item, Fact) else ""
            scopes = reader.scopes(asker.agent, asker.sender, read_all=asker.read_all, shelf=shelf)
            scopes = [*scopes, *reader.shared_scopes(shelf)]
            match = reader.match_words(
                scopes, terms, 0
            )  # nothing but what is looked up for this row
            reader.complete_match(match, scopes, [stored.row])
            shared = [*match.terms_of([stored.row]).get(stored.row, ())]
            like = near and reader.vectors.similarity(near.model, near.vector, [stored.row])
        cosine = like.get(stored.row) if like else None
        parts = sorted(ngrams(query) & ngrams(text))
        told = {
            "query": [*terms],
            "entry": [*dict.fromkeys(tokens.words(text))][:_SHOWN],
            "shared": shared,
            "grams": len(parts),
            "cosine": None if cosine is None else round(cosine, 6),
            "floor": MIN_COSINE,
        }
        meaning = (
            "there is no likeness of meaning to go by"
            if cosine is None
            else f"its likeness of meaning is {cosine:.3f} (the floor is {MIN_COSINE:g})"
        )
        if not shared and not parts:
            told["said"] = f"it shares no word and no n-gram with the query, and {meaning}"
            return told
        common = f"the words {', '.join(shared)}" if shared else "no word"
        limits = (
            "its session is not among those that the profile looks into"
            if self._store.settings.retrieval.profile == "paper"
            else "what it shares is too common: only the newest postings, up to "
            "retrieval.postings_cap, are read"
        )
        told["said"] = f"it shares {common} and {len(parts)} n-grams; {meaning}; {limits}"
        return told


def _verdict(identity: str, reason: str, said: str, **known: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "reason": reason,
        "said": said,
        "text": None,
        "file": None,
        "line": None,
        "then": None,
        "now": None,
        "last_line": None,
        "left_out": None,
        "words": None,
        "differences": [],
        **known,
    }


def _may_see(asker: Viewer, item: Entry | Fact) -> bool:
    if asker.read_all:
        return True
    if isinstance(item, Fact):
        return not item.private_to or item.private_to == (asker.agent, asker.sender or "")
    return item.agent_id == asker.agent and (item.sender or "") == (asker.sender or "")


def _weights(settings: Settings) -> dict[str, float]:
    paper = settings.retrieval.profile == "paper"
    return asdict(settings.paper.weights if paper else settings.retrieval.weights)


def _place(hits: Sequence[Hit], identity: str) -> int | None:
    return next((place for place, hit in enumerate(hits) if hit.id == identity), None)


def _left_out(
    asked: RecallPlan, identity: str, event: JournalEvent
) -> tuple[str, str, dict[str, Any]]:
    """Return why packing passed over a ranked hit: reason, words, and the numbers behind."""
    ranked = next(hit for hit in asked.hits if hit.id == identity)
    if event.data["purpose"] == "inject" and not is_injectable(ranked, guarded=asked.block.guarded):
        return "origin", _REASONS["origin"], {}
    place = _place(asked.block.hits, identity)
    if place is None and identity in asked.left_out:
        reason = asked.left_out[identity]
        return reason, _REASONS[reason], {"left_out": {"by": "route", "reason": reason}}
    if place is None:
        other = _stand_in(asked, identity, event.data["purpose"])
        return "duplicate", f"{other} says nearly the same and stands for it", {
            "left_out": {"by": "duplicate", "of": other}
        }  # fmt: skip
    left_out = asked.block.explain_refusal(place, event.id)
    said = _REASONS.get(
        left_out.by, f"its line needs {left_out.needed} tokens, and {left_out.left} were left"
    )
    return left_out.by, said, {"left_out": asdict(left_out)}


def _stand_in(asked: RecallPlan, identity: str, purpose: str) -> str:
    guarded = asked.block.guarded
    offered = [h for h in asked.hits if purpose == "search" or is_injectable(h, guarded=guarded)]
    for group in group_duplicates(offered[:DEDUPLICATION_WINDOW], asked.values):
        if any(hit.id == identity for hit in group):
            return merge_duplicates(group).id
    raise AssertionError(f"{identity} was offered, and is neither there nor stood for")


def signal_contributions(
    signals: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return what each signal that counts adds to a score, weight x signal, the most first."""
    parts = {name: weights[name] * value for name, value in signals.items() if name in weights}
    parts = {name: round(value, 6) for name, value in parts.items() if value}
    return dict(sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0])))


def _measured(hit: Hit, weights: Mapping[str, float]) -> dict[str, Any]:
    return {
        "score": round(hit.score, 9),
        "weight": hit.weight,
        "signals": {name: round(value, 6) for name, value in hit.signals.items()},
        **_summed(hit.signals, hit.score, weights),
    }


def _summed(
    signals: Mapping[str, float], score: float, weights: Mapping[str, float]
) -> dict[str, Any]:
    parts = signal_contributions(signals, weights)
    # Of an extension's signal, or of the near-duplicate whose rank was taken.
    other = score - sum(parts.values())
    return {"contributions": parts, "other": round(other, 6) if abs(other) > 1e-4 else 0.0}


def _against(
    last: Hit, hit: Hit, weights: Mapping[str, float], hits: Sequence[Hit]
) -> dict[str, Any]:
    """Return the lowest ranked line, and by which signals it was ahead of a hit."""
    mine, theirs = (
        signal_contributions(hit.signals, weights),
        signal_contributions(last.signals, weights),
    )
    ahead = {name: value - mine.get(name, 0.0) for name, value in theirs.items()}
    most = sorted(ahead.items(), key=lambda part: (-part[1], part[0]))[:_LACKS]
    return {
        "id": last.id,
        "rank": hits.index(last) + 1,
        **_measured(last, weights),
        "lacked": {name: round(value, 6) for name, value in most if value > _SAME},
    }


def _journalled(event: JournalEvent, identity: str) -> dict[str, Any] | None:
    """Return what the journal has of an item: its rank and signals, and its line if it had one."""
    counted = event.data.get("weights", {})
    for name in ("injected", "near_misses"):
        for place, hit in enumerate(event.data[name], 1):
            if hit["item"] == identity:
                parts = _summed(hit["signals"], hit["score"], counted)
                injected = name == "injected"
                return {**hit, **parts, "injected": injected, "place": place if injected else None}
    return None


def _explained(
    hit: Mapping[str, Any],
    stored: Mapping[str, Stored],
    counted: Mapping[str, float],
) -> dict[str, Any]:
    one = stored.get(hit["item"])
    told = {**hit, **_summed(hit["signals"], hit["score"], counted), "id": hit["item"]}
    if one is None or one.state.forgotten:
        return {**told, "text": None, "file": None, "line": None}
    text = one.item.text if isinstance(one.item, Fact) else one.item.content
    return {
        **told,
        "text": text,
        "weight_then": hit["weight"],
        "weight_now": one.state.weight,
        "file": one.file,
        "line": one.line,
    }
