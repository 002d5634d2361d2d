"""Order lines by how the calls went that rested on them, and show what worked for a like request.

A line whose calls failed is marked and stands last; after two failures it is left out where another
line worked, unless the prompt asks for it.  A line that worked for a like request takes that
request's place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from memtier_plugin.core.events import CreditEvent
from memtier_plugin.core.records import CallHistory, Entry, Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.replacement import join_evidence
from memtier_plugin.retrieval.visibility import PageReader, Viewer, read_hits
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.state import touched_items
from memtier_plugin.text.phrases import TOOL_CALL_MARK

Split = Callable[[str], Sequence[str]]
Run = tuple[str, str]  # agent, run id
Allowed = Callable[[Iterable[Hit]], Iterable[Hit]]

_LOOKED_AT: Final = 40  # hits: more never come into a block
_REQUESTS: Final = 8  # of the first hits, among which earlier requests are looked for
_LIKE: Final = 0.3  # of a prompt's words that an earlier request has, to be like it
_NEAR: Final = 0.5  # its cosine, to be like it in other words
_ABOUT_EQUAL: Final = 0.9  # of the best score, from which a line that worked leads
_TWICE: Final = 2  # failures, from which a line is left out where another worked
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


def with_histories(reader: Reader, hits: Sequence[Hit]) -> list[Hit]:
    """Return hits with all that is known of their calls.

    A fact has the calls that rested on the lines it stands for; of two lines with the same last
    call both have how it ended last, as another agent may have seen it fail.
    """
    first = hits[:_LOOKED_AT]
    sources = {source.entry for hit in first if _is_statement(hit.item) for source in hit.sources}
    states = reader.states(sources) if sources else {}
    histories = {hit.id: [hit.calls] for hit in first}
    for hit in first:
        if _is_statement(hit.item):
            histories[hit.id] += [states[source.entry].calls for source in hit.sources]
    own = {key: max(known, key=_last) for key, known in histories.items()}
    by_call: dict[str, CallHistory] = {}
    for calls in sorted(own.values(), key=_last):
        if calls.failures and (before := by_call.get(calls.call)):
            calls = replace(calls, failures=max(calls.failures, before.failures))
        by_call[calls.call] = calls
    by_call.pop("", None)
    latest = {key: by_call.get(calls.call, calls) for key, calls in own.items()}
    return [
        replace(hit, calls=calls) if (calls := latest.get(hit.id, hit.calls)).last else hit
        for hit in hits
    ]


def _is_statement(item: Entry | Fact) -> bool:
    return isinstance(item, Fact) and not item.shelf


def _last(calls: CallHistory) -> datetime:
    return calls.last or _LONG_AGO


def add_what_worked(
    reader: Reader, viewer: Viewer, hits: tuple[Hit, ...], allowed: Allowed
) -> tuple[tuple[Hit, ...], frozenset[str]]:
    """Return hits in which what worked for an earlier, like request takes that request's place.

    Args:
        allowed: returns the hits that may stand in the block.

    Returns also the ids of what worked.
    """
    requests = [hit for hit in hits[:_REQUESTS] if _is_like_request(hit)]
    if not requests:
        return hits, frozenset()
    done = _find_done(reader, {_run_of(hit) for hit in requests})
    wanted = [item for items in done.values() for item in items]
    if not wanted:
        return hits, frozenset()
    known = {hit.id: hit for hit in hits}
    added = _read_hits(reader, viewer, [item for item in wanted if item not in known])
    known |= {hit.id: hit for hit in allowed(added)}
    ordered: dict[str, Hit] = {}
    carried_out: list[Hit] = []
    for hit in hits:
        worked = [item for item in done.get(_run_of(hit), ()) if item in known]
        if hit not in requests or not worked:
            ordered.setdefault(hit.id, hit)
            continue
        carried_out.append(hit)
        for item in worked:
            if item not in ordered:
                ordered[item] = replace(join_evidence(known[item], [hit]), score=hit.score)
    return (*ordered.values(), *carried_out), frozenset(wanted)


def _find_done(reader: Reader, runs: Collection[Run]) -> dict[Run, list[str]]:
    """Return, by run, the ids of what served a call of it that worked, and works to this day."""
    worked: dict[Run, dict[str, bool]] = {}  # by item, whether the call rests on it
    for event in reader.outcomes_of_runs({run for _, run in runs}):
        if (run := (event.agent_id, event.run_id or "")) in runs:
            rests, ok = event.kind == CreditEvent.KIND, event.data.get("ok")
            known = worked.setdefault(run, {})
            for item in touched_items(event):
                known.pop(item, None)
                known |= {item: rests} if ok else {}
    states = reader.states({item for known in worked.values() for item in known})
    done: dict[Run, list[str]] = {}
    for run, known in worked.items():
        works = [item for item in known if states[item].calls.works]
        # A call is no better than what it rested on, which another agent may have seen fail.
        lasting = all(item in works for item, rests in known.items() if rests)
        done[run] = [item for item in works if known[item] or lasting]
    return done


def _is_like_request(hit: Hit) -> bool:
    if not isinstance(hit.item, Entry) or hit.item.role != "user" or hit.evidence is None:
        return False
    return hit.evidence.own_coverage >= _LIKE or hit.evidence.cosine >= _NEAR


def _run_of(hit: Hit) -> Run:
    return (hit.item.agent_id, hit.item.run_id) if isinstance(hit.item, Entry) else ("", "")


def _read_hits(reader: Reader, viewer: Viewer, ids: Collection[str]) -> list[Hit]:
    """Return those of these items that the viewer may see, as hits without evidence."""
    if not ids:
        return []
    pages = PageReader(reader, viewer)
    facts = pages.visible_facts(ids)
    hits = read_hits(reader, [(fact.row, 0.0, {}) for fact in facts.values()], viewer, {})
    return [*pages.visible_entries(ids).values(), *hits]


def mark_calls(hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits in their order, with notes on those whose calls failed."""
    return tuple(map(_mark, hits))


def order_by_calls(
    hits: tuple[Hit, ...], terms: Collection[str], words: Split, first: Collection[str] = ()
) -> tuple[tuple[Hit, ...], Mapping[str, str]]:
    """Return hits with what worked first and what failed last and marked.

    Args:
        terms: the words of the prompt.
        words: how a text is taken apart into such words.
        first: ids of what worked for a like request.

    Returns also, by id, why a hit is left out.
    """
    failed = [hit for hit in hits if hit.calls.failures]
    works = [hit for hit in hits if hit.calls.works]
    if not (failed or works):
        return hits, {}
    least = _ABOUT_EQUAL * max(hit.score for hit in hits)
    leading = [hit for hit in works if hit.id in first] or [h for h in works if h.score >= least]
    working_words = {word for hit in works for word in words(hit.text)}

    def is_asked_for(hit: Hit) -> bool:
        return any(word in terms and word not in working_words for word in words(hit.text))

    left_out = {
        hit.id: "failed"
        for hit in failed
        if works and hit.calls.failures >= _TWICE and not is_asked_for(hit)
    }
    last = sorted(failed, key=lambda hit: hit.calls.failed_at or _LONG_AGO)
    moved = {hit.id for hit in (*leading, *failed)}
    rest = [hit for hit in hits if hit.id not in moved]
    ordered = [*leading, *rest, *(hit for hit in last if hit.id not in left_out)]
    return mark_calls(ordered), left_out


def _mark(hit: Hit) -> Hit:
    """Note that the last call failed, or of a line that shows a failure, that it works since."""
    calls, item = hit.calls, hit.item
    if calls.failures:
        code = "" if calls.exit_code is None else f": exit {calls.exit_code}"
        return hit.with_note(f"failed on {calls.failed_at:%Y-%m-%d}{code}")
    if not (calls.works and calls.failed_at) or not isinstance(item, Entry):
        return hit
    records_call = item.role == "tool" or TOOL_CALL_MARK in item.content
    return hit.with_note(f"works since {calls.worked_at:%Y-%m-%d}") if records_call else hit
