"""Experiences from runs with tool calls, by rules: what worked, and what failed.  Pure.

What the assistant called and what the user asked for are quoted; of a tool only the outcome is
taken (it went well or not, and its exit code), which is no text that anybody could have put
there.  An experience that quotes a tool's own words, the error it gave, rests on that text and so
waits for review, as does everything of a tainted run.  Source: seeds 1.1, 5.1; design 4.4, 5.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import regex

from memtier_plugin.core.records import Entry, FactDraft, Source
from memtier_plugin.facts.extraction.rules import Extraction
from memtier_plugin.text.tokenizer import plain_words

HOW_TO: Final = "how_to"
WHAT_FAILED: Final = "what_failed"
EXTRACTOR: Final = "experience-rules"
MAX_PER_RUN: Final = 3  # experiences of one run, those that wait for review not counted
MAX_PROPOSED_PER_RUN: Final = 1  # of one run that quote a tool and so wait for review

_CALL: Final = regex.compile(r"(?m)^\[tool call: ")
_NAMED: Final = ("command", "cmd", "script", "code", "query", "path", "file_path", "url")
_COMMAND: Final = 160  # characters of a call that are shown
_TASK: Final = 120  # of what was asked for
_ERROR: Final = 160  # of a tool's error
_LONGEST: Final = 2_000  # characters of a call's arguments that are looked at
_STEPS: Final = 3  # calls between the failure and the success that are told
_ALIKE: Final = 0.6  # of the words of two calls, or they are not two attempts at one thing
_SAME_TASK: Final = 0.5  # of the words of two requests
_TWICE: Final = 2  # runs in which the same worked for the same, before it is a way to do it

# What only looks does not mend, and what it finds is not worth keeping.
_LOOKING: Final = frozenset(
    """
    ls cat head tail less more grep rg find pwd cd echo which whoami date tree wc stat file env
    printenv ps df du top history type diff man true sleep read read_file list_files search
    grep_search glob view open browse web_search fetch
    """.split()  # noqa: SIM905
)
_SHELLS: Final = frozenset(
    ["exec", "bash", "shell", "sh", "run", "terminal", "execute", "process", "run_command"]
)
_LOOKING_AT: Final = frozenset({"git status", "git log", "git diff", "git show", "git branch"})
# Words before a command that are not what is run.
_BEFORE: Final = regex.compile(r"(?:(?:sudo|env|time|nice|command|exec)\s+|\w+=\S*\s+)+")
_ERROR_LINE: Final = regex.compile(
    r"(?i)\b(?:error|exception|failed|failure|fatal|denied|not found|no such|cannot|can't|unable"
    r"|refused|timed? ?out|missing|invalid|undefined|panic|traceback)\b|Error:"
)


class ToolUse(NamedTuple):
    """A tool call of the assistant with how it went; ``quote`` is exactly what stands there."""

    entry: Entry
    name: str
    quote: str
    start: int
    command: str
    result: Entry | None
    ok: bool | None

    @property
    def display(self) -> str:
        """The call as a person would write it."""
        text = " ".join(self.command.split())
        short = text if len(text) <= _COMMAND else f"{text[: _COMMAND - 3].rstrip()}..."
        return f"`{short}`" if short else f"`{self.name}`"

    @property
    def program(self) -> str:
        """What is run: the first word of a command, or the tool's name."""
        words = _BEFORE.sub("", self.command.strip(), count=1).split()
        plain = words and regex.fullmatch(r"[\w./+-]+", words[0])
        return words[0].rsplit("/", 1)[-1] if plain and _is_shell(self) else self.name

    @property
    def is_read_only(self) -> bool:
        """Whether it only looks at something."""
        words = _BEFORE.sub("", self.command.strip(), count=1).split()
        pair = " ".join(words[:2])
        return self.program in _LOOKING or (_is_shell(self) and pair in _LOOKING_AT)

    @property
    def key(self) -> tuple[str, str]:
        """What makes two calls the same."""
        return self.name, " ".join(self.command.split())


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run: what was asked for, and the calls in order."""

    request: Entry | None
    calls: tuple[ToolUse, ...]
    tainted: bool


def extract_experiences(entries: Iterable[Entry]) -> Extraction:
    """Return the experiences of the runs that these entries are of, each run whole.

    What was found in several runs stands once, with the sources of all.
    """
    drafts: dict[tuple[str, str, str], FactDraft] = {}
    rejected: Counter[str] = Counter()
    runs = [*_runs(entries)]
    for draft in (*_each(runs, rejected), *_repeated(runs)):
        key = (draft.subject.casefold(), draft.relation, draft.value.casefold())
        before = drafts.get(key)
        if before is None:
            drafts[key] = draft
            continue
        rejected["duplicate"] += 1
        more = tuple(s for s in draft.sources if s not in before.sources)
        # One that needs no review stands for one that does, not the other way round.
        first = draft if before.status == "proposed" and draft.status == "active" else before
        drafts[key] = replace(first, sources=(*before.sources, *more))
    return Extraction(tuple(drafts.values()), +rejected)


def pair_calls(entries: Sequence[Entry]) -> tuple[ToolUse, ...]:
    """Return the calls of one run in order, each with its result.

    A ledger line of a result does not say which call it answers but by the tool's name, and a
    result without a word has no line.  So calls of a name and the results that follow them before
    the assistant's next calls are paired in their order; where there are not as many of these as
    of those, or they fared differently, nobody can tell which: their outcome is unknown.
    """
    calls: list[ToolUse] = []
    asked: dict[str, list[int]] = {}  # what the assistant called last, by the tool's name
    results: dict[str, list[Entry]] = {}
    for entry in entries:
        written = [*_written(entry.content)] if entry.role == "assistant" else []
        if written:
            _settle(calls, asked, results)
            asked, results = {}, {}
        for name, quote, start in written:
            asked.setdefault(name, []).append(len(calls))
            calls.append(ToolUse(entry, name, quote, start, _command(quote), None, None))
        if entry.tool is not None:
            results.setdefault(entry.tool.name, []).append(entry)
    _settle(calls, asked, results)
    return tuple(calls)


def _settle(
    calls: list[ToolUse], asked: Mapping[str, Sequence[int]], results: Mapping[str, Sequence[Entry]]
) -> None:
    for name, places in asked.items():
        found = results.get(name, ())
        if len(found) == len(places) and len({*map(_outcome, found)}) == 1:
            for place, result in zip(places, found, strict=True):
                calls[place] = calls[place]._replace(result=result, ok=_outcome(result))


def _runs(entries: Iterable[Entry]) -> Iterator[ToolRun]:
    grouped: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        grouped.setdefault((entry.agent_id, entry.run_id), []).append(entry)
    for run in grouped.values():
        if not any(entry.tool for entry in run):
            continue
        asked = next((e for e in run if e.role == "user" and e.origin == "user"), None)
        tainted = any(entry.tainted or entry.origin == "external" for entry in run)
        yield ToolRun(asked, pair_calls(run), tainted)


def _each(runs: Sequence[ToolRun], rejected: Counter[str]) -> Iterator[FactDraft]:
    for run in runs:
        active = waiting = 0
        for draft in _of_run(run):
            if draft.status == "proposed" and not run.tainted:
                waiting += 1
                if waiting > MAX_PROPOSED_PER_RUN:
                    rejected["cap"] += 1
                    continue
            else:
                active += 1
                if active > MAX_PER_RUN:
                    rejected["cap"] += 1
                    continue
            yield draft


def _of_run(run: ToolRun) -> Iterator[FactDraft]:
    """Yield what one run teaches: each failure that was overcome, and one that ended it."""
    calls = run.calls
    overcome: set[tuple[str, str]] = set()
    for place, call in enumerate(calls):
        if call.ok is not False or call.is_read_only or call.key in overcome:
            continue
        for after in range(place + 1, len(calls)):
            then = calls[after]
            if then.ok and _is_retry(call, then):
                overcome.add(call.key)
                yield from _mended(run, call, calls[place + 1 : after], then)
                break
    last = next((call for call in reversed(calls) if call.ok is not None), None)
    if last and not last.ok and not last.is_read_only and last.key not in overcome:
        yield from _ended(run, last)


def _is_retry(failed: ToolUse, later: ToolUse) -> bool:
    """Tell whether a later call is another attempt at what failed."""
    if failed.name != later.name or later.is_read_only:
        return False
    if failed.key == later.key:
        return True
    one, two = set(plain_words(failed.command)), set(plain_words(later.command))
    same = len(one & two)
    return same >= 2 and (one <= two or two <= one or same >= _ALIKE * len(one | two))


def _mended(
    run: ToolRun, failed: ToolUse, between: Sequence[ToolUse], then: ToolUse
) -> Iterator[FactDraft]:
    # One of which nothing is known wrote nothing, as many do that go well.
    steps = [
        c for c in between if c.ok is not False and not c.is_read_only and not _is_retry(failed, c)
    ]
    steps = [*{call.key: call for call in steps}.values()][-_STEPS:]
    if failed.key == then.key and not steps:
        return  # it went well the second time: chance, or what nobody saw
    middle = ", ".join(step.display for step in steps)
    helped = f"{middle} and then {then.display} worked" if middle else f"{then.display} worked"
    value = " > ".join(call.display for call in (failed, *steps, then))
    calls = (failed, *steps, then)
    code = _code(failed)
    yield _draft(run, HOW_TO, then, calls, value, f"{failed.display} failed{code}; {helped}")
    if error := _error(failed):
        text = f'{failed.display} failed with "{error[0]}"; {helped}'
        yield _quoting(run, HOW_TO, failed, calls, f"{error[0]} > {value}", text, error)


def _ended(run: ToolRun, failed: ToolUse) -> Iterator[FactDraft]:
    text = f"{failed.display} failed{_code(failed)}, and the run ended there"
    yield _draft(run, WHAT_FAILED, failed, (failed,), failed.display, text)
    if error := _error(failed):
        text = f'{failed.display} failed with "{error[0]}"'
        yield _quoting(
            run, WHAT_FAILED, failed, (failed,), f"{failed.display}: {error[0]}", text, error
        )


def _repeated(runs: Sequence[ToolRun]) -> Iterator[FactDraft]:
    """Yield what worked in several runs for the same kind of request."""
    seen: dict[tuple[str, str, str], list[tuple[ToolRun, ToolUse]]] = {}
    for run in runs:
        if run.request is None:
            continue
        best = {call.key: call for call in run.calls if call.ok and not call.is_read_only}
        failed = {call.key for call in run.calls if call.ok is False}
        for key, call in best.items():
            if key not in failed:
                seen.setdefault((run.request.agent_id, *key), []).append((run, call))
    for times in seen.values():
        first, call = times[0]
        same = [(run, one) for run, one in times if _same_task(first, run)]
        if len(same) < _TWICE:
            continue
        run = ToolRun(first.request, (), any(one.tainted for one, _ in same))
        calls = tuple(one for _, one in same)
        draft = _draft(run, HOW_TO, call, calls, call.display, f"{call.display} works")
        asked = tuple(_source(one.request) for one, _ in same if one.request)
        yield replace(draft, sources=tuple(dict.fromkeys((*asked, *draft.sources))))


def _same_task(one: ToolRun, other: ToolRun) -> bool:
    if one.request is None or other.request is None:
        return False
    mine, theirs = set(plain_words(one.request.content)), set(plain_words(other.request.content))
    return bool(mine) and len(mine & theirs) >= _SAME_TASK * len(mine | theirs)


def _draft(
    run: ToolRun, relation: str, quoted: ToolUse, calls: Sequence[ToolUse], value: str, told: str
) -> FactDraft:
    """Return an experience that quotes the assistant and the user alone."""
    entries = [run.request, *(call.entry for call in calls)]
    project = quoted.entry.project
    task = f' (asked: "{_task(run.request)}")' if run.request else ""
    return FactDraft(
        subject=quoted.program,
        relation=relation,
        value=value,
        text=f"In project {project}, {told}{task}.",
        sources=tuple(dict.fromkeys(_source(entry) for entry in entries if entry)),
        valid_from=quoted.entry.observed_at,
        quote=quoted.quote,
        span=(quoted.start, quoted.start + len(quoted.quote)),
        extractor=EXTRACTOR,
        confidence=0.7,
        origin="external" if run.tainted else "assistant",
        status="proposed" if run.tainted else "active",
        reason="from a run with text from outside" if run.tainted else "",
        tier="procedural",
    )


def _quoting(
    run: ToolRun,
    relation: str,
    failed: ToolUse,
    calls: Sequence[ToolUse],
    value: str,
    told: str,
    error: tuple[str, int],
) -> FactDraft:
    """Return an experience that shows a tool's own words: somebody has to look at it first."""
    draft = _draft(run, relation, failed, calls, value, told)
    assert failed.result  # or there were no words of it
    return replace(
        draft,
        sources=(*draft.sources, _source(failed.result)),
        quote=error[0],
        span=(error[1], error[1] + len(error[0])),
        origin="external" if run.tainted else "tool",
        status="proposed",
        reason=draft.reason or "it shows what a tool wrote",
    )


def _written(content: str) -> Iterator[tuple[str, str, int]]:
    """Yield the tool calls that stand in an assistant's entry: name, arguments and their place."""
    found = [match.span() for match in _CALL.finditer(content)]
    ends = [*(start - 1 for start, _ in found[1:]), len(content)]
    for (_, start), end in zip(found, ends, strict=False):
        inside = content[start:end].rstrip()
        if not inside.endswith("]"):
            continue  # not what we write: somebody's prose
        name, _, arguments = inside[:-1].partition(" ")
        quote = arguments.strip()
        at = start + len(name) + 1 + len(arguments) - len(arguments.lstrip())
        yield (name, quote, at) if quote else (name, name, start)


def _command(quote: str) -> str:
    """Return what a call runs: the command in its arguments, or the arguments themselves."""
    if len(quote) > _LONGEST:
        return quote[:_LONGEST]
    try:
        arguments: Any = json.loads(quote)
    except ValueError:
        return quote
    if not isinstance(arguments, dict):
        return quote
    for name in _NAMED:
        if isinstance(arguments.get(name), str) and arguments[name].strip():
            return str(arguments[name])
    return ", ".join(f"{name}={value}" for name, value in arguments.items())


def _is_shell(call: ToolUse) -> bool:
    """Tell whether a call runs a command line."""
    return call.name in _SHELLS or '"command"' in call.quote or '"cmd"' in call.quote


def _outcome(result: Entry) -> bool | None:
    assert result.tool
    if result.tool.exit_code:
        return False  # hosts report an exit code of 3 with no error
    return result.tool.ok if result.tool.ok is not None else _zero(result.tool.exit_code)


def _zero(code: int | None) -> bool | None:
    return None if code is None else code == 0


def _code(call: ToolUse) -> str:
    code = call.result.tool.exit_code if call.result and call.result.tool else None
    return f" (exit code {code})" if code else ""


def _error(call: ToolUse) -> tuple[str, int] | None:
    """Return the line of a tool's result that says what went wrong, and where it stands."""
    if call.result is None:
        return None
    at, last = 0, None
    for line in call.result.content.splitlines(keepends=True):
        text = line.strip()
        if text and _ERROR_LINE.search(text):
            last = text[:_ERROR], at + line.index(text)
        at += len(line)
    return last


def _task(asked: Entry) -> str:
    text = " ".join(asked.content.split()).replace('"', "'")
    return text if len(text) <= _TASK else f"{text[: _TASK - 3].rstrip()}..."


def _source(entry: Entry) -> Source:
    return Source(agent=entry.agent_id, session=entry.session_id, entry=entry.id)
