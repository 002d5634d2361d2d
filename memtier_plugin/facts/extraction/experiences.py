"""Extract procedural memory from runs with tool calls: what worked and what failed.  Pure.

An experience quotes the calls of the assistant and the request of the user. Of a tool it takes the
outcome only (success and exit code), which is no text that a third party could have written. One
that quotes a tool's error message waits for review, as does any from a tainted run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from memtier_plugin.core.records import Entry, FactDraft, Source
from memtier_plugin.facts.extraction.rules import Extraction
from memtier_plugin.facts.extraction.tool_runs import ToolRun, ToolUse, group_runs, truncate
from memtier_plugin.text.tokenizer import plain_words

HOW_TO: Final = "how_to"
WHAT_FAILED: Final = "what_failed"
EXTRACTOR: Final = "experience-rules"
MAX_PER_RUN: Final = 3  # experiences of one run, those that wait for review not counted
MAX_PROPOSED_PER_RUN: Final = 1  # of one run that quote a tool and so wait for review

_MAX_TASK: Final = 120  # characters of the request that are shown
_MAX_STEPS: Final = 3  # calls between the failure and the success that are listed
_SAME_COMMAND: Final = 0.6  # shared words of two calls that attempt the same thing
_SAME_TASK: Final = 0.5  # shared words of two requests
_MIN_RUNS: Final = 2  # runs in which a call worked for the same task
_CONFIDENCE: Final = 0.7


def extract_experiences(entries: Iterable[Entry]) -> Extraction:
    """Extract the experiences of complete runs; one made in several has the sources of all."""
    drafts: dict[tuple[str, str, str], FactDraft] = {}
    rejected: Counter[str] = Counter()
    runs = [*group_runs(entries)]
    for draft in (*_capped(runs, rejected), *_repeated(runs)):
        key = (draft.subject.casefold(), draft.relation, draft.value.casefold())
        existing = drafts.get(key)
        if existing is None:
            drafts[key] = draft
            continue
        rejected["duplicate"] += 1
        more = tuple(source for source in draft.sources if source not in existing.sources)
        # An active draft replaces one that waits for review, not the other way round.
        better = existing.status == "proposed" and draft.status == "active"
        drafts[key] = replace(draft if better else existing, sources=(*existing.sources, *more))
    return Extraction(tuple(drafts.values()), +rejected)


def _capped(runs: Sequence[ToolRun], rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the experiences of each run, up to the caps of active and of proposed ones."""
    for run in runs:
        active = waiting = 0
        for draft in _of_run(run):
            if draft.status == "proposed" and not run.tainted:
                waiting += 1
                over = waiting > MAX_PROPOSED_PER_RUN
            else:
                active += 1
                over = active > MAX_PER_RUN
            if over:
                rejected["cap"] += 1
            else:
                yield draft


def _of_run(run: ToolRun) -> Iterator[FactDraft]:
    """Yield the experiences of one run: each failure overcome, and one that ended it."""
    calls = run.calls
    overcome: set[tuple[str, str]] = set()
    for index, call in enumerate(calls):
        if call.ok is not False or call.is_read_only or call.key in overcome:
            continue
        for later in range(index + 1, len(calls)):
            if calls[later].ok and _is_retry(call, calls[later]):
                overcome.add(call.key)
                yield from _overcome(run, call, calls[index + 1 : later], calls[later])
                break
    last = next((call for call in reversed(calls) if call.ok is not None), None)
    if last and not last.ok and not last.is_read_only and last.key not in overcome:
        yield from _ended(run, last)


def _is_retry(failed: ToolUse, later: ToolUse) -> bool:
    """Check whether a later call is another attempt at a failed one."""
    if failed.name != later.name or later.is_read_only:
        return False
    if failed.key == later.key:
        return True
    first, second = set(plain_words(failed.command)), set(plain_words(later.command))
    shared = len(first & second)
    nested = first <= second or second <= first
    return shared >= 2 and (nested or shared >= _SAME_COMMAND * len(first | second))


def _overcome(
    run: ToolRun, failed: ToolUse, between: Sequence[ToolUse], success: ToolUse
) -> Iterator[FactDraft]:
    """Yield what overcame a failure, without and with the tool's error message."""
    # A call of unknown outcome counts as a step: many that succeed write nothing.
    steps = [
        call
        for call in between
        if call.ok is not False and not call.is_read_only and not _is_retry(failed, call)
    ]
    steps = [*{call.key: call for call in steps}.values()][-_MAX_STEPS:]
    if failed.key == success.key and not steps:
        return  # the same call succeeded later: by chance, or by an unrecorded change
    middle = ", ".join(step.display for step in steps)
    helped = f"{success.display} worked"
    helped = f"{middle} and then {helped}" if middle else helped
    calls = (failed, *steps, success)
    value = " > ".join(call.display for call in calls)
    text = f"{failed.display} failed{_exit_code(failed)}; {helped}"
    yield _draft(run, HOW_TO, success, calls, value, text)
    if error := failed.error():
        text = f'{failed.display} failed with "{error[0]}"; {helped}'
        draft = _draft(run, HOW_TO, failed, calls, f"{error[0]} > {value}", text)
        yield _quoting_tool(draft, run, failed, error)


def _ended(run: ToolRun, failed: ToolUse) -> Iterator[FactDraft]:
    """Yield the failure that ended a run, without and with the tool's error message."""
    text = f"{failed.display} failed{_exit_code(failed)}, and the run ended there"
    yield _draft(run, WHAT_FAILED, failed, (failed,), failed.display, text)
    if error := failed.error():
        text = f'{failed.display} failed with "{error[0]}"'
        value = f"{failed.display}: {error[0]}"
        draft = _draft(run, WHAT_FAILED, failed, (failed,), value, text)
        yield _quoting_tool(draft, run, failed, error)


def _repeated(runs: Sequence[ToolRun]) -> Iterator[FactDraft]:
    """Yield the calls that worked in several runs for the same kind of request."""
    uses: dict[tuple[str, str, str], list[tuple[ToolRun, ToolUse]]] = {}
    for run in runs:
        if run.request is None:
            continue
        worked = {call.key: call for call in run.calls if call.ok and not call.is_read_only}
        failed = {call.key for call in run.calls if call.ok is False}
        for key, call in worked.items():
            if key not in failed:
                uses.setdefault((run.request.agent_id, *key), []).append((run, call))
    for cases in uses.values():
        first, call = cases[0]
        same = [(run, use) for run, use in cases if _is_same_task(first, run)]
        if len(same) < _MIN_RUNS:
            continue
        run = ToolRun(first.request, (), any(run.tainted for run, _ in same))
        calls = tuple(use for _, use in same)
        draft = _draft(run, HOW_TO, call, calls, call.display, f"{call.display} works")
        requests = tuple(_source(run.request) for run, _ in same if run.request)
        yield replace(draft, sources=tuple(dict.fromkeys((*requests, *draft.sources))))


def _is_same_task(run: ToolRun, other: ToolRun) -> bool:
    if run.request is None or other.request is None:
        return False
    words = set(plain_words(run.request.content))
    others = set(plain_words(other.request.content))
    return bool(words) and len(words & others) >= _SAME_TASK * len(words | others)


def _draft(
    run: ToolRun, relation: str, quoted: ToolUse, calls: Sequence[ToolUse], value: str, text: str
) -> FactDraft:
    """Return an experience that quotes the assistant and the user alone."""
    entries = [run.request, *(call.entry for call in calls)]
    task = f' (asked: "{_task(run.request)}")' if run.request else ""
    return FactDraft(
        subject=quoted.program,
        relation=relation,
        value=value,
        text=f"In project {quoted.entry.project}, {text}{task}.",
        sources=tuple(dict.fromkeys(_source(entry) for entry in entries if entry)),
        valid_from=quoted.entry.observed_at,
        quote=quoted.quote,
        span=(quoted.start, quoted.start + len(quoted.quote)),
        extractor=EXTRACTOR,
        confidence=_CONFIDENCE,
        origin="external" if run.tainted else "assistant",
        status="proposed" if run.tainted else "active",
        reason="from a run with text from outside" if run.tainted else "",
        tier="procedural",
    )


def _quoting_tool(
    draft: FactDraft, run: ToolRun, failed: ToolUse, error: tuple[str, int]
) -> FactDraft:
    """Return an experience that quotes a tool's error message, to be reviewed first."""
    assert failed.result  # it contains the error
    return replace(
        draft,
        sources=(*draft.sources, _source(failed.result)),
        quote=error[0],
        span=(error[1], error[1] + len(error[0])),
        origin="external" if run.tainted else "tool",
        status="proposed",
        reason=draft.reason or "it shows what a tool wrote",
    )


def _exit_code(call: ToolUse) -> str:
    return f" (exit code {call.exit_code})" if call.exit_code else ""


def _task(request: Entry) -> str:
    return truncate(" ".join(request.content.split()).replace('"', "'"), _MAX_TASK)


def _source(entry: Entry) -> Source:
    return Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id)
