"""Judge the outcome of tool calls, and the reward of a run.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.core.structs import replace_fields as replace

# -- Judge the outcome of a tool call from its result, if none is stated.  Pure
#
# OpenAI's tool messages have no field for the outcome. What the content reveals is a guess, so each
# judgement has a confidence, by which the credit is scaled. A text that reveals nothing leaves the
# call undecided.

_MOST_JSON: Final = 100_000  # characters that are parsed; longer content is read as text
_END: Final = 4_000  # characters read at each end of a text, as results may have megabytes

STATED: Final = 1.0  # by the host: ok, is_error or an exit code beside the content
CODED: Final = 0.9  # the content has an exit code, an error field or a traceback
PHRASED: Final = 0.7  # the content begins or ends like an error message
STRUCTURED: Final = 0.6  # a JSON object or list that names no error

_CODE_KEYS: Final = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_ERROR_KEYS: Final = ("error", "errors", "exception", "traceback")
_ERROR_FLAGS: Final = ("is_error", "isError", "failed")
_SUCCESS_KEYS: Final = ("ok", "success", "succeeded")
_FAILED: Final = frozenset({"error", "failed", "failure", "fail", "timeout", "timed_out"})
_SUCCEEDED: Final = frozenset({"ok", "success", "succeeded", "completed", "done", "passed"})
_EXIT_CODE: Final = regex.compile(
    r"""(?:^|[\s(\[<])(?:(?:command|process|program|script)\s{1,4})?
        (?:(?:exit|return)[ _-]?(?:code|status)(?:\s{1,4}(?:is|was))?
          |exited\s{1,4}with(?:\s{1,4}(?:an?\s{1,4})?(?:exit\s{1,4})?(?:code|status))?)
        \s{0,4}[:=]?\s{0,4}(-?\d{1,10})(?![\d.])""",
    regex.IGNORECASE | regex.VERBOSE,
)
_TRACEBACK: Final = regex.compile(
    r"^(?:Traceback \(most recent call last\)|panicked at |thread '[^'\n]{0,80}' panicked"
    r"|panic: |Exception in thread |Unhandled (?:promise )?rejection|Uncaught [\w.]{0,80}Error)"
    r"|\n    at [^\n]{1,300}:\d+:\d+\)?(?:\n|$)",
    regex.MULTILINE,
)
_PHRASE: Final = regex.compile(
    r"(?:fatal|error|failed|failure|exception|[\w.]{1,80}(?:Error|Exception))\s{0,2}[:!]"
    r"|(?:an )?error (?:occurred|executing|calling|while)\b"
    r"|[^\n:]{1,80}:(?: line \d+:)?[^\n:]{0,120}: "
    r"(?:command not found|no such file or directory|permission denied)"
    r"|\S{1,80}:(?: \d+:)?(?: \S{1,80}:)? (?:command )?not found$",
    regex.IGNORECASE,
)
# How hosts answer a call of an unknown tool; `{}` stands for the tool's name.
_NO_TOOL: Final = (
    r"(?i)(?:no such|unknown) (?:tool|function)(?: available)?:? *[`'\"]?{}(?![\w-])"
    r"|\b(?:tool|function) [`'\"]?{}[`'\"]? (?:was |is )?(?:not (?:found|available|registered)"
    r"|does(?: not|n't) exist|unknown)"
)
_LONGEST_REFUSAL: Final = 200  # characters of such an answer


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call; unknown if ``ok`` is None and ``confidence`` 0."""

    ok: bool | None = None
    confidence: float = 0.0


def judge_results(messages: Sequence[Message]) -> dict[int, ToolOutcome]:
    """Return the stated or judged outcome of each tool's result, by its position."""
    return {
        position: judge_outcome(message.tool, message.content)
        for position, message in enumerate(messages)
        if message.tool is not None
    }


def judge_outcome(call: ToolCall, content: str) -> ToolOutcome:
    """Return the outcome of a call, as its message states it or else as its content reveals.

    A call of an unknown tool stays undecided: the model mistyped the name, and no injected item is
    to blame.
    """
    if call.ok is not True and call.name in content[:_LONGEST_REFUSAL]:
        refusal = _NO_TOOL.replace("{}", regex.escape(call.name))
        if regex.search(refusal, content[:_LONGEST_REFUSAL]):
            return ToolOutcome()
    if call.ok is not None:
        return ToolOutcome(call.ok, STATED)
    text = content.strip()
    if text[:1] in ("{", "[") and len(text) <= _MOST_JSON:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return _judge_text(text)
        if isinstance(value, Mapping):
            return _judge_fields(value)
        return ToolOutcome(True, STRUCTURED)
    return _judge_text(text)


def _judge_fields(fields: Mapping[str, Any]) -> ToolOutcome:
    for key in _CODE_KEYS:
        code = fields.get(key)
        if isinstance(code, int) and not isinstance(code, bool):
            return ToolOutcome(code == 0, CODED)
    if any(fields.get(key) for key in _ERROR_KEYS):
        return ToolOutcome(False, CODED)
    if any(fields.get(key) is True for key in _ERROR_FLAGS):
        return ToolOutcome(False, CODED)
    for key in _SUCCESS_KEYS:
        if isinstance(fields.get(key), bool):
            return ToolOutcome(fields[key], CODED)
    status = str(fields.get("status", "")).casefold()
    if status in _FAILED or status in _SUCCEEDED:
        return ToolOutcome(status in _SUCCEEDED, CODED)
    return ToolOutcome(True, STRUCTURED) if fields else ToolOutcome()


def _judge_text(text: str) -> ToolOutcome:
    head, tail = text[:_END], text[-_END:]
    ends = [head] if len(text) <= _END else [head, tail]
    codes = [match for end in ends for match in _EXIT_CODE.findall(end)]
    if codes:
        return ToolOutcome(int(codes[-1]) == 0, CODED)
    if any(_TRACEBACK.search(end) for end in ends):
        return ToolOutcome(False, CODED)
    last = tail.rpartition("\n")[2].strip()
    if _PHRASE.match(head) or _PHRASE.match(last):
        return ToolOutcome(False, PHRASED)
    return ToolOutcome()


FAILED: Final = -0.5  # the reward of a failure


def reward_run(
    messages: Sequence[Message], outcomes: Mapping[int, ToolOutcome]
) -> tuple[float, float]:
    """Return the reward of a run, and how certain it is.

    The confidence is the lowest among the outcomes that decide the reward: the last of every tool.

    Args:
        outcomes: those of `judge_results`.
    """
    calls, confidences = list[ToolCall](), dict[str, float]()
    for position, outcome in outcomes.items():
        if outcome.ok is not None and (tool := messages[position].tool):
            calls.append(replace(tool, ok=outcome.ok))
            confidences[tool.name] = outcome.confidence
    return compute_reward(calls), min(confidences.values(), default=0.0)


def compute_reward(calls: Sequence[ToolCall]) -> float:
    """Return the reward of a run, in {-0.5, 0, +1}.

    +1 if the last call of every tool succeeded, -0.5 if the last call of the run failed, and 0
    otherwise or if no outcome is known.
    """
    decided = [call for call in calls if call.ok is not None]
    last = {call.name: call.ok for call in decided}
    if not decided:
        return 0.0
    if all(last.values()):
        return 1.0
    return 0.0 if decided[-1].ok else FAILED
