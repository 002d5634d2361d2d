"""The tasks of `memtier bench recipes`, and the agents of three hosts that do them.

An agent follows what the memory shows, within limits, and its calls work or fail as the world has
it.  OpenClaw, Claude Code and Hermes each tell the run in the shape of payloads captured from them,
which go through the host's own translator, so a run loses here what it loses there: Claude Code,
for one, reports nothing that the agent says before a call.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import ImportFileError, SettingsError
from memtier_plugin.core.results import HookCall, PromptEvent, Recall, RunContext, RunEvent, Shown
from memtier_plugin.core.settings.yaml_file import YamlFile
from memtier_plugin.core.structs import Record
from memtier_plugin.hooks.translators import open_translator
from memtier_plugin.memory import MemTier

TASKS: Final = Path(__file__).with_name("recipes.yaml")
PROBES: Final = 2  # requests of a task that are only for asking
HOSTS: Final = ("openclaw", "claude-code", "hermes")
AGENTS: Final = ("openclaw.main", "claude-code.main", "hermes.default")
COMMAND: Final = "exec"  # the tool that runs a command line; each host has its own name for it


_NOISE: Final = 0.1  # of working calls that fail once for a reason outside
_WHIM: Final = 0.1  # of runs that ignore the block's order
_GENERAL_KNOWLEDGE: Final = 0.7  # of agents that know the other recipe without the block

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call: what the agent says before it, and what the tool prints; 0 is success."""

    tool: str
    arguments: Mapping[str, Any]
    output: str
    exit: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A finished run: the user's prompt, the calls in order and the answer."""

    name: str
    prompt: str
    calls: Sequence[Call] = ()
    answer: str = ""


# -- the tasks -------------------------------------------------------------------------------------


class Failure(Record, frozen=True):
    """What a tool prints when it fails, and its exit code."""

    exit: int
    output: str


class Recipe(Record, frozen=True):
    """A way to do a task: what a user said, what an agent runs, and what that prints.

    ``names`` are the words by which a line is known to be about it.
    """

    line: str
    command: str | dict[str, Any]
    error: Failure
    output: str
    names: tuple[str, ...]
    tool: str = COMMAND

    def is_named_in(self, text: str) -> bool:
        """Return whether a text is about this recipe."""
        words = "|".join(map(re.escape, self.names))
        return re.search(rf"(?<!\w)(?:{words})(?!\w)", text, re.IGNORECASE) is not None

    def call(self, failure: Failure | None, words: str) -> Call:
        """Return a call of it that fails so, or works."""
        command = self.command
        return Call(
            tool=self.tool,
            arguments={"command": command} if isinstance(command, str) else command,
            output=failure.output if failure else self.output,
            exit=failure.exit if failure else 0,
            words=words,
        )


class Task(Record, frozen=True):
    """A job of users with two rival recipes, and lines about the same that are no recipe."""

    name: str
    requests: tuple[str, ...]
    recipes: tuple[Recipe, Recipe]
    innocent: tuple[str, ...]
    outside: Failure

    def problem(self) -> str | None:
        """Return what makes it useless, with a remedy; None if nothing does."""
        if len(self.requests) <= PROBES:
            return f"requests: write at least {PROBES + 1}, the last {PROBES} for asking alone"
        for recipe, rival in (self.recipes, self.recipes[::-1]):
            if not recipe.names or not recipe.is_named_in(recipe.line):
                return f"names: give words that stand in the recipe's line, {recipe.line!r}"
            if recipe.is_named_in(rival.line):
                return f"names: {list(recipe.names)} stand in the rival's line, too; give others"
            if recipe.tool == COMMAND and not isinstance(recipe.command, str):
                return "command: arguments of another tool than `exec` need `tool: NAME`"
            if not recipe.error.exit:
                return f"error: the exit code of {recipe.line!r} must not be 0"
        return None if self.outside.exit else "outside: the exit code must not be 0"


def load_tasks(path: Path) -> tuple[list[Task], list[str]]:
    """Return the tasks of a file and its distractors, which a bare list of tasks lacks.

    Raises:
        ImportFileError: it is not of that form; names file, line and remedy.
    """
    try:
        file = YamlFile.parse(str(path), path.read_text("utf-8"))
        root: Any = file.root
        fields = {"tasks": root}
        if root is not None and root.id == "mapping":
            fields = {key: node for key, node, _ in file.pairs(root)}
        nodes = fields.get("tasks")
        if nodes is None or nodes.id != "sequence" or not nodes.value:
            raise ImportFileError(f"{path}:1: expected a list of tasks, found none; see {TASKS}")
        others = file.value(fields["distractors"]) if "distractors" in fields else []
        return [_read_task(file, node) for node in nodes.value], [*map(str, others)]
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        raise ImportFileError(str(error)) from None


def _read_task(file: YamlFile, node: Any) -> Task:
    where = file.location(node)
    try:
        task = Task.from_json(file.value(node))
    except (KeyError, ValueError) as error:
        reason = f"a task lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ImportFileError(f"{where}: {reason}; see the tasks of {TASKS}") from None
    if problem := task.problem():
        raise ImportFileError(f"{where}: {task.name}: {problem}")
    return task


# -- what an agent reads in a block ----------------------------------------------------------------

# A line as blocks show it: date, kind and short id, the text, and the memory's own note.
_SHOWN: Final = re.compile(
    r"- \[(?P<head>[^\]]*)\] (?P<text>.*?)(?: \((?P<note>(?:[^()]|\([^()]*\))*)\))?"
)
_ID: Final = re.compile(r"\b[0-9A-Z]{8}\b")
_FAILED: Final = re.compile(r"\b(?:fail\w*|(?:does|did|do) not work|no longer works?)\b", re.I)
_CLAUSE: Final = re.compile(r"[;()]|[.,:] | but ")


@dataclass(frozen=True, slots=True)
class Advice:
    """A line of a block that names a recipe; ``marked`` if the memory says that it failed."""

    line: str
    recipe: int
    marked: bool


def read_block(block: str, task: Task) -> list[Advice]:
    """Return the lines that name a recipe of a task, from the top.

    A line that names both stands for the first that it does not say failed, and its note counts
    before its text: "A (failed; B works)" stands for B.  What a note says of currency ("until ...")
    is no outcome and counts for nothing.
    """
    advices = []
    for line in block.splitlines():
        if shown := _SHOWN.fullmatch(line):
            head, text, note = shown.group("head", "text", "note")
            advice = _read_line(
                head, text, "" if (note or "until ")[:6] == "until " else note, task
            )
            number = _ID.search(head)
            advices += [Advice(number[0] if number else head, *advice)] if advice else []
    return advices


def _read_line(head: str, text: str, note: str, task: Task) -> tuple[int, bool] | None:
    doubted = bool(_FAILED.search(f"{head} {note}"))
    clauses = [(clause, bool(_FAILED.search(clause))) for clause in _CLAUSE.split(note)]
    clauses += [(each, doubted or bool(_FAILED.search(each))) for each in _CLAUSE.split(text)]
    for wanted in (False, True):
        for clause, failed in clauses:
            for number, recipe in enumerate(task.recipes):
                if failed is wanted and recipe.is_named_in(clause):
                    return number, failed
    return None


def first_heeded(advices: Sequence[Advice]) -> int | None:
    """Return the recipe of the first line without a mark, else of the first."""
    unmarked = [advice for advice in advices if not advice.marked]
    return next((advice.recipe for advice in unmarked or advices), None)


# -- a simulated agent -----------------------------------------------------------------------------


@dataclass(slots=True)
class TaskState:
    """How a task stands in a world: which recipe works, and how."""

    task: Task
    works: int
    delayed: bool
    changes: bool


def run_task(
    state: TaskState, advices: Sequence[Advice], chance: random.Random
) -> tuple[list[Call], str, dict[int, bool]]:
    """Return the calls of an agent, its answer, and which recipes worked of those that it used."""
    recipes = state.task.recipes
    known = list(dict.fromkeys(advice.recipe for advice in advices))
    first = first_heeded(advices)
    # The draws are the same whatever the block says, so that the arms meet the same luck.
    whim, noise, other, side, later = (chance.random() for _ in range(5))
    if first is None or whim < _WHIM:
        choice = known or [0, 1]
        first = choice[int(side * len(choice))]
    order = [first]
    if 1 - first in known or other < _GENERAL_KNOWLEDGE:
        order.append(1 - first)
    calls = [_look("ls -la", "README.md\nnotes.md")]
    used: dict[int, bool] = {}
    for number in order:
        name = recipes[number].names[0]
        words = f"That failed. I'll try {name} instead." if used else f"I'll use {name}."
        used[number] = number == state.works
        if not used[number]:
            calls.append(recipes[number].call(recipes[number].error, words))
            continue
        if state.delayed or noise < _NOISE:
            calls.append(recipes[number].call(state.task.outside, words))
            words = "That has nothing to do with the call. I'll try it again."
        calls.append(recipes[number].call(None, words))
        break
    if later < 0.5:
        calls.append(_look("cat notes.md", "Ask before you delete anything."))
    failed = [recipes[number].names[0] for number, worked in used.items() if not worked]
    parts = [f"{' and '.join(failed)} failed."] if failed else []
    parts.append(f"Done with {recipes[state.works].names[0]}." if any(used.values()) else "Sorry.")
    return calls, " ".join(parts), used


def _look(command: str, output: str) -> Call:
    return Call(tool=COMMAND, arguments={"command": command}, output=output)


# -- an agent's memory -----------------------------------------------------------------------------


@dataclass(slots=True)
class Clock:
    """The time in a world."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 5, 8, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.now


class HostAgent:
    """The memory of a host's agent, called with what the host's hooks get."""

    def __init__(
        self, host: str, home: Path, project: str, settings: Mapping[str, Any], clock: Clock
    ) -> None:
        self._host, self._clock = host, clock
        self._translator = open_translator(host, home)
        self._base = RunContext(agent_id="", home=str(home), project=project)
        agent = self._translator.context({}, self._base).agent_id
        self.memory = MemTier.open(home, project, agent, settings, clock=clock)

    def recall(self, turn: Turn) -> Recall:
        """Return what the prompt's hook injects."""
        call = self._translate(_PROMPTS[self._host](turn), turn)
        event, context = call.event, call.context
        assert isinstance(event, PromptEvent)
        since = event.visible_since
        return self.memory.recall(
            event.prompt,
            session_id=context.session_id,
            run_id=context.run_id,
            purpose="inject",
            sender=context.sender,
            shown=Shown(since=since, injected=event.keeps_injected) if since else None,
        )

    def finish(self, turn: Turn, *, credits: bool) -> None:
        """Deliver the run; without ``credits`` it is recorded, and its outcome ignored."""
        call = self._translate(_ENDS[self._host](turn, self._clock.now), turn)
        event, context = call.event, call.context
        assert isinstance(event, RunEvent)
        session = context.session_id or turn.name
        if credits:
            self.memory.end_run(
                event.messages, session_id=session, run_id=context.run_id, seen=event.seen
            )
        else:
            self.memory.record(
                event.messages, session_id=session, run_id=context.run_id, seen=event.seen
            )

    def _translate(self, payload: tuple[str, Payload], turn: Turn) -> HookCall:
        name, event = payload
        context = _CONTEXTS[self._host](turn)
        now = self._clock.now
        call: HookCall | None = self._translator.translate(name, event, context, self._base, now)
        assert call is not None
        return call


# -- OpenClaw --------------------------------------------------------------------------------------


def _openclaw_context(turn: Turn) -> Payload:
    key = f"agent:main:{turn.name}"
    return {"runId": turn.name, "agentId": "main", "sessionKey": key, "trigger": "user"}


def _openclaw_prompt(turn: Turn) -> tuple[str, Payload]:
    return "before_prompt_build", {"prompt": turn.prompt, "messages": []}


def _openclaw_end(turn: Turn, now: datetime) -> tuple[str, Payload]:
    when = int(now.timestamp() * 1000)
    messages: list[Payload] = [{"role": "user", "content": _texts(turn.prompt)}]
    for number, call in enumerate(turn.calls):
        key = f"call_{number}_{when}"
        request = {"type": "toolCall", "id": key, "name": call.tool, "arguments": call.arguments}
        spoken = _texts(call.words) if call.words else []
        messages += [
            {"role": "assistant", "content": [*spoken, request], "stopReason": "toolUse"},
            {"role": "toolResult", "toolCallId": key, "toolName": call.tool, **_of_openclaw(call)},
        ]
    messages.append({"role": "assistant", "content": _texts(turn.answer), "stopReason": "stop"})
    stamped = [{**message, "timestamp": when} for message in messages]
    return "agent_end", {"success": True, "runId": turn.name, "messages": stamped}


def _of_openclaw(call: Call) -> Payload:
    """Return a result: of a command it is no error, whatever its exit code."""
    if call.tool != COMMAND:
        details = {"status": "error" if call.exit else "completed", "tool": call.tool}
        return {"content": _texts(call.output), "details": details, "isError": bool(call.exit)}
    note = f"\n\n(Command exited with code {call.exit})" if call.exit else ""
    outcome: Payload = {"status": "completed", "exitCode": call.exit, "aggregated": call.output}
    return {"content": _texts(call.output + note), "details": outcome, "isError": False}


def _texts(text: str) -> list[Payload]:
    return [{"type": "text", "text": text}]


# -- Claude Code -----------------------------------------------------------------------------------


def _claude_context(turn: Turn) -> Payload:
    return {"session_id": turn.name, "run_id": turn.name}


def _claude_prompt(turn: Turn) -> tuple[str, Payload]:
    return "prompt", {"events": [_claude_event(turn, "UserPromptSubmit", prompt=turn.prompt)]}


def _claude_end(turn: Turn, _now: datetime) -> tuple[str, Payload]:
    events = [_claude_event(turn, "UserPromptSubmit", prompt=turn.prompt)]
    events += [_claude_call(turn, number, call) for number, call in enumerate(turn.calls)]
    stop = {"stop_hook_active": False, "last_assistant_message": turn.answer}
    return "turn_end", {"events": [*events, _claude_event(turn, "Stop", **stop)]}


def _claude_call(turn: Turn, number: int, call: Call) -> Payload:
    is_command = call.tool == COMMAND
    fields = {
        "tool_name": "Bash" if is_command else call.tool,
        "tool_input": call.arguments,
        "tool_use_id": f"toolu_{number:02}",
    }
    if call.exit:
        error = f"Exit code {call.exit}\n{call.output}" if is_command else call.output
        return _claude_event(turn, "PostToolUseFailure", **fields, error=error, is_interrupt=False)
    response: Any = _texts(call.output)
    if is_command:
        response = {"stdout": call.output, "stderr": "", "interrupted": False, "isImage": False}
    return _claude_event(turn, "PostToolUse", **fields, tool_response=response)


def _claude_event(turn: Turn, name: str, **fields: Any) -> Payload:
    return {"session_id": turn.name, "hook_event_name": name, "permission_mode": "default"} | fields


# -- Hermes ----------------------------------------------------------------------------------------


def _hermes_context(turn: Turn) -> Payload:
    return {
        "session_id": turn.name,
        "run_id": turn.name,
        "platform": "cli",
        "agent_identity": "default",
    }


def _hermes_prompt(turn: Turn) -> tuple[str, Payload]:
    return "prefetch", {"query": turn.prompt}


def _hermes_end(turn: Turn, _now: datetime) -> tuple[str, Payload]:
    calls = list(_hermes_calls(turn))
    messages: list[Payload] = [{"role": "user", "content": turn.prompt}]
    for call, live in zip(turn.calls, calls, strict=True):
        name, key = live["tool_name"], live["tool_call_id"]
        function = {"name": name, "arguments": json.dumps(live["args"])}
        request = {"id": key, "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": call.words, "tool_calls": [request]},
            {"role": "tool", "name": name, "tool_call_id": key, "content": live["result"]},
        ]
    messages.append({"role": "assistant", "content": turn.answer})
    event = {"user": turn.prompt, "assistant": turn.answer, "messages": messages, "tools": calls}
    return "sync_turn", event


def _hermes_calls(turn: Turn) -> Iterator[Payload]:
    """Yield the calls as they are reported live: a command that failed has the status ok."""
    for number, call in enumerate(turn.calls):
        is_command = call.tool == COMMAND
        result: Payload = {"output": call.output, "exit_code": call.exit, "error": None}
        if not is_command:
            result = {"error": call.output} if call.exit else {"result": call.output}
        yield {
            "tool_name": "terminal" if is_command else call.tool,
            "args": call.arguments,
            "result": json.dumps(result),
            "tool_call_id": f"call_{number}",
            "status": "error" if result.get("error") else "ok",
        }


_CONTEXTS: Final = {
    "openclaw": _openclaw_context,
    "claude-code": _claude_context,
    "hermes": _hermes_context,
}
_PROMPTS: Final = {
    "openclaw": _openclaw_prompt,
    "claude-code": _claude_prompt,
    "hermes": _hermes_prompt,
}
_ENDS: Final = {"openclaw": _openclaw_end, "claude-code": _claude_end, "hermes": _hermes_end}
