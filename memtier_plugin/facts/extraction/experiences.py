"""Extract experiences: from runs with tool calls, and those that users state.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.rules import Extraction
from memtier_plugin.facts.extraction.sentences import find_asserted
from memtier_plugin.facts.extraction.tool_runs import ToolRun, ToolUse, group_runs
from memtier_plugin.text.tokenizer import plain_words

# -- Extract procedural memory from runs with tool calls: what worked and what failed.  Pure
#
# An experience quotes only the assistant's calls: all agents of the project read it, so it contains
# nothing of the user's request, and a call that repeats the request's words makes none. Of a tool
# it uses only the outcome (success and exit code), which no third party could have written. An
# experience that quotes a tool's error message waits for review, as does any from a tainted run.

HOW_TO: Final = "how_to"
WHAT_FAILED: Final = "what_failed"
STRATEGY: Final = "strategy"
CASE: Final = "case"
# The kinds of Mem-T's experiential memory (3.1), by relation.
KINDS: Final = {HOW_TO: "skill", WHAT_FAILED: "failure", STRATEGY: "strategy", CASE: "case"}
EXTRACTOR: Final = "experience-rules"
MAX_PER_RUN: Final = 3  # experiences per run, not counting those that wait for review
MAX_PROPOSED_PER_RUN: Final = 1  # per run, those that quote a tool and so wait for review

_MAX_STEPS: Final = 3  # calls listed between the failure and the success
_SAME_COMMAND: Final = 0.6  # share of common words in two calls that attempt the same thing
_SAME_TASK: Final = 0.5  # share of common words in two requests
_MAX_SEQUENCE: Final = 6  # steps in a strategy
_MIN_RUNS: Final = 2  # runs in which a call must have worked for the same task
_CONFIDENCE: Final = 0.7
_QUOTES_REQUEST: Final = "quotes the request"
_QUOTED: Final = 3  # consecutive words of the request that make a call a quotation of it
_QUOTED_COMMAND: Final = 6  # the same for a command line, which a request may well name


def extract_experiences(entries: Iterable[Entry]) -> Extraction:
    """Extract the experiences of complete runs; one found in several has all their sources."""
    drafts: dict[tuple[str, str, str], FactDraft] = {}
    rejected: Counter[str] = Counter()
    runs = [*group_runs(entries)]
    for draft in (*_capped(runs, rejected), *_repeated(runs), *_sequences(runs)):
        key = (draft.subject.casefold(), draft.relation, draft.value.casefold())
        existing = drafts.get(key)
        if existing is None:
            drafts[key] = draft
            continue
        rejected["duplicate"] += 1
        more = tuple(source for source in draft.sources if source not in existing.sources)
        # An active draft replaces a pending one, not the other way round.
        better = existing.status == "proposed" and draft.status == "active"
        drafts[key] = replace(draft if better else existing, sources=(*existing.sources, *more))
    return Extraction(tuple(drafts.values()), +rejected)


def _repeats_request(run: ToolRun, calls: Iterable[ToolUse]) -> bool:
    """Return whether calls repeat enough consecutive words of the request to quote it."""
    if run.request is None:
        return False
    request = plain_words(run.request.content)
    for call in calls:
        size = _QUOTED_COMMAND if call.runs_command else _QUOTED
        spans = {tuple(request[i : i + size]) for i in range(len(request) - size + 1)}
        words = plain_words(call.command)
        if any(tuple(words[i : i + size]) in spans for i in range(len(words) - size + 1)):
            return True
    return False


def _capped(runs: Sequence[ToolRun], rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the experiences of each run, up to the caps of active and of proposed ones."""
    for run in runs:
        active = waiting = 0
        for draft in _of_run(run, rejected):
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


def _of_run(run: ToolRun, rejected: Counter[str]) -> Iterator[FactDraft]:
    """Yield the experiences of one run: each failure overcome, and the one that ended it."""
    calls = run.calls
    overcome: set[tuple[str, str]] = set()
    for index, call in enumerate(calls):
        if call.ok is not False or call.is_read_only or call.key in overcome:
            continue
        for later in range(index + 1, len(calls)):
            if calls[later].ok and _is_retry(call, calls[later]):
                overcome.add(call.key)
                between = calls[index + 1 : later]
                if _repeats_request(run, (call, *between, calls[later])):
                    rejected[_QUOTES_REQUEST] += 1
                else:
                    yield from _overcome(run, call, between, calls[later])
                break
    # Later calls may have repaired a failure, unless they are known to have failed too.
    work = [call for call in calls if not call.is_read_only]
    if work and work[-1].ok is False and work[-1].key not in overcome:
        if _repeats_request(run, (work[-1],)):
            rejected[_QUOTES_REQUEST] += 1
        else:
            yield from _ended(run, work[-1])


def _is_retry(failed: ToolUse, later: ToolUse) -> bool:
    """Return whether a later call is another attempt at a failed one."""
    if failed.name != later.name or later.is_read_only:
        return False
    if failed.key == later.key:
        return True
    first, second = set(plain_words(failed.work)), set(plain_words(later.work))
    shared = len(first & second)
    nested = first <= second or second <= first
    return shared >= 2 and (nested or shared >= _SAME_COMMAND * len(first | second))


def _overcome(
    run: ToolRun, failed: ToolUse, between: Sequence[ToolUse], success: ToolUse
) -> Iterator[FactDraft]:
    """Yield the way a failure was overcome, without and with the tool's error message."""
    # A call with unknown outcome counts as a step, as many successful ones report nothing.
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
    after = "the run ended there" if run.ended else "nothing that followed in the run mended it"
    text = f"{failed.display} failed{_exit_code(failed)}, and {after}"
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
            if key not in failed and not _repeats_request(run, (call,)):
                uses.setdefault((run.request.agent_id, *key), []).append((run, call))
    for cases in uses.values():
        first, call = cases[0]
        same = [(run, use) for run, use in cases if _is_same_task(first, run)]
        if len(same) < _MIN_RUNS:
            continue
        run = ToolRun(first.request, (), any(run.tainted for run, _ in same))
        calls = tuple(use for _, use in same)
        text = f"{call.display} worked in {len(same)} runs for the same kind of task"
        draft = _draft(run, HOW_TO, call, calls, call.display, text)
        requests = tuple(run.request.source for run, _ in same if run.request)
        yield replace(draft, sources=tuple(dict.fromkeys((*requests, *draft.sources))))


def _sequences(runs: Sequence[ToolRun]) -> Iterator[FactDraft]:
    """Yield sequences of steps that worked, in one order, in several runs with similar requests."""
    same: dict[tuple[tuple[str, str], ...], list[tuple[ToolRun, list[ToolUse]]]] = {}
    for run in runs:
        work = [call for call in run.calls if not call.is_read_only]
        if run.request is None or not all(call.ok for call in work):
            continue
        steps = [*{call.key: call for call in work}.values()]
        if 2 <= len(steps) <= _MAX_SEQUENCE and not _repeats_request(run, steps):
            key = tuple(call.key for call in steps)
            same.setdefault(key, []).append((run, steps))
    for cases in same.values():
        first, steps = cases[0]
        similar = [run for run, _ in cases if _is_same_task(first, run)]
        if len(similar) < _MIN_RUNS:
            continue
        run = ToolRun(first.request, (), any(run.tainted for run in similar))
        shown = ", then ".join(step.display for step in steps)
        text = f"{shown} worked in {len(similar)} runs for the same kind of task"
        value = " > ".join(step.display for step in steps)
        draft = _draft(run, STRATEGY, steps[-1], steps, value, text)
        requests = tuple(run.request.source for run in similar if run.request)
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
    """Return an experience that quotes only the assistant."""
    entries = [run.request, *(call.entry for call in calls)]
    return FactDraft(
        subject=quoted.program,
        relation=relation,
        value=value,
        text=f"In project {quoted.entry.project}, {text}.",
        sources=tuple(dict.fromkeys(entry.source for entry in entries if entry)),
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
    """Return an experience that quotes a tool's error message and must be reviewed."""
    assert failed.result  # it contains the error
    return replace(
        draft,
        sources=(*draft.sources, failed.result.source),
        quote=error[0],
        span=(error[1], error[1] + len(error[0])),
        origin="external" if run.tainted else "tool",
        status="proposed",
        reason=draft.reason or "it shows what a tool wrote",
    )


def _exit_code(call: ToolUse) -> str:
    return f" (exit code {call.exit_code})" if call.exit_code else ""


# -- Extract experiences that users state: strategies, cases, skills and failures.  Pure
#
# The kinds of Mem-T's experiential memory (3.1), beyond what tool outcomes show: how best to do
# something, what was done once and its result, how to do it, and what does not work. Only a user's
# own words count, in whole sentences that stand alone.  English.

LESSON_EXTRACTOR: Final = "lesson-rules"
_MAX_CHARS: Final = 240  # in a sentence; a longer one is a story
_MIN_WORDS: Final = 5
_LEAD: Final = regex.compile(
    r"(?i)\A(?:(?:lessons? learned|note to self|tip|remember|fyi|by the way|so|and|but|actually|"
    r"turns out(?: that)?|it turned out that|we (?:learned|found out) that)\b[\s,:–-]*)+"
)
_OPENS: Final = (
    (
        STRATEGY,
        r"(?:the )?(?:best|easiest|safest|fastest|cleanest|right|only) (?:way|approach) (?:to|for) "
        r".+? (?:is|was) .+|the (?:trick|key) (?:is|was) .+|next time,? .+|it (?:helps|pays) to .+|"
        r".{3,60} works? best (?:when|if|with|after|before) .+",
    ),
    (
        CASE,
        r"last time(?:,| we) .+|what (?:fixed|helped|worked|solved|did the trick)\b.* was .+|"
        r"we (?:fixed|solved|cured|got around|worked around) .+ by .+|"
        r".{3,80} (?:fixed|solved|cured) (?:the|our|my) .+",
    ),
    (
        HOW_TO,
        r"(?:in order )?to (?!be |me\b|us\b|my |our |sum |start with|begin with|say)\w+"
        r"(?: .{1,60}?)?, (?:first |you (?:have|need) to )?(?:run|use|call|set|open|click|"
        r"restart|stop|start|export|add|pass|type|press|delete|remove|edit|go) .+",
    ),
    (
        WHAT_FAILED,
        r".{3,80} (?:always |usually |often |never )?(?:fails?|breaks?|crash(?:es)?|hangs?|"
        r"times? out|works?|(?:does|do)n['’]t work|won['’]t (?:work|start)) (?:only )?"
        r"(?:when|if|unless|because|without|until|as long as) .+",
    ),
)
_PATTERNS: Final = tuple((kind, regex.compile(rf"(?i)(?:{form})")) for kind, form in _OPENS)
_OPEN: Final = regex.compile(
    r"(?i)\?\s*\Z|\b(?:maybe|perhaps|might|i think|i guess|not sure|whether|hopefully|i hope)\b"
)
# Statements about oneself are not experiences of the project, which all of its agents read.
_POINTS: Final = regex.compile(
    r"(?i)\b(?:this|that|these|those|here|above|below|you|your|i|i['’]m|my|me|she|he|her|his)\b"
)
_UNRESOLVED: Final = regex.compile(r"(?i)\b(?:it|its|they|them|one|ones|something|so)\b")
_HELPS: Final = regex.compile(r"(?i)\Ait (?:helps|pays) ")


def extract_lessons(entry: Entry) -> Iterator[FactDraft]:
    """Yield the experiences that a user states explicitly."""
    if entry.role != "user" or entry.origin != "user" or entry.tainted:
        return
    for sentence in find_asserted(entry.content):
        text = entry.content[sentence.start : sentence.end].rstrip()
        if sentence.words.language != "english" or len(text) > _MAX_CHARS or _OPEN.search(text):
            continue
        lead = _LEAD.match(text)
        start = lead.end() if lead else 0
        core = text[start:].rstrip(" .!")
        kind = next((kind for kind, form in _PATTERNS if form.fullmatch(core)), None)
        if kind is None or len(core.split()) < _MIN_WORDS or _refers(core):
            continue
        yield FactDraft(
            subject=entry.project,
            relation=kind,
            value=core,
            text=f"In project {entry.project}, by the user: {core[0].upper()}{core[1:]}.",
            sources=(entry.source,),
            quote=core,
            span=(sentence.start + start, sentence.start + start + len(core)),
            valid_from=entry.observed_at,
            extractor=LESSON_EXTRACTOR,
            confidence=_CONFIDENCE,
            origin="user",
            tier="procedural",
        )


def _refers(core: str) -> bool:
    """Return whether a sentence refers to its context, or is about a person."""
    first = _HELPS.sub("", core.split(",")[0])
    return bool(_POINTS.search(core) or _UNRESOLVED.search(first))
