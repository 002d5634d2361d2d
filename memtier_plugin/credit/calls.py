"""Judge each tool call of a run, and find the injected lines that it rests on.  Pure.

A success raises the lines that were used for that call, a failure lowers them (MemTier, section
3.2).  What a call takes from a line are the words that the line adds to the prompt and that few
other lines have: names, commands, options, values.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.credit.outcomes import ToolOutcome
from memtier_plugin.text.phrases import TOOL_CALL_MARK
from memtier_plugin.trust.escaping import remove_quotes
from memtier_plugin.trust.origins import brings_external_text, unwrap_call

Split = Callable[[str], Sequence[str]]

_READ: Final = 20_000  # characters of arguments, words and results that are compared
_SAME: Final = 0.8  # of the words of two calls, from which one repeats the other
_ALIKE: Final = 0.6  # of the shorter line's words, from which two say the same
_NEAR_BEST: Final = 0.75  # of the best line's score, from which a line is used as well
_LEAST: Final = (
    0.3  # of a line's own words, or of the call's, that must be shared, unless there are
)
_ENOUGH: Final = 2  # so many that no other line has
_MARK: Final = 200  # characters of a call as the journal keeps it


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A tool call with its outcome.

    Attributes:
        position: of its result among the run's messages.
        asked_at: of the assistant's message that asked for it, if that is there.
        said: the assistant's words before it.
        excuse: why a failure teaches nothing; "" for any other outcome.
    """

    position: int
    asked_at: int | None
    name: str
    arguments: str
    said: str
    ok: bool | None
    exit_code: int | None
    confidence: float
    result: str = ""
    excuse: str = ""

    @property
    def text(self) -> str:
        """The values of its arguments, cut to what the journal keeps."""
        return " ".join(_values(self.arguments))[:_MARK]


def judge_each(
    messages: Sequence[Message], outcomes: Mapping[int, ToolOutcome], local: Sequence[str] = ()
) -> list[JudgedCall]:
    """Return the calls of a run in order, each with its outcome.

    The words of a stranger state no outcome: a page that says "exit code 1" is undecided.

    Args:
        outcomes: those of `judge_results`.
        local: the tools whose results are not external (`trust.local_tools`).
    """
    waiting: list[tuple[ToolCall, str, int]] = []  # with the words before it, and their position
    last_text, calls = "", list[JudgedCall]()
    for position, message in enumerate(messages):
        if message.role == "user":
            last_text = ""
        elif message.role == "assistant":
            last_text = message.content if message.content.strip() else last_text
            waiting += [(call, last_text, position) for call in message.tool_calls]
            last_text = "" if message.tool_calls else last_text  # the words were of these calls
        if message.tool is None:
            continue
        tool = message.tool
        # By its id; of a host without ids the next call of this tool
        same = "call_id" if tool.call_id else "name"
        wanted = getattr(tool, same)
        asked = next((each for each in waiting if getattr(each[0], same) == wanted), None)
        if asked:
            waiting.remove(asked)
        call, words, asked_at = asked or (tool, last_text, None)
        name, arguments = unwrap_call(call.name or tool.name, call.arguments or tool.arguments)
        outcome = outcomes[position]
        if tool.ok is None and _is_foreign(message, name, arguments, local):
            outcome = ToolOutcome()
        judged = JudgedCall(
            position,
            asked_at,
            name,
            arguments,
            words,
            outcome.ok,
            tool.exit_code,
            outcome.confidence,
            message.content[-_READ:],
        )
        if judged.ok is False:
            judged = replace(judged, excuse=outside_reason(judged.result, judged.exit_code))
        calls.append(judged)
    if any(call.said or _values(call.arguments) for call in calls):
        return calls
    # A host that tells neither: the answer alone shows what was used.
    return [replace(call, said=last_words(messages)) for call in calls]


def last_words(messages: Sequence[Message]) -> str:
    """Return the assistant's last text."""
    texts = [m.content for m in messages if m.role == "assistant" and m.content.strip()]
    return texts[-1] if texts else ""


def _is_foreign(message: Message, name: str, arguments: str, local: Sequence[str]) -> bool:
    """Return whether a result is a stranger's words, which are no outcome of the call."""
    if message.content.lstrip().startswith("{"):
        return False
    if message.origin is not None:
        return message.origin == "external"
    return brings_external_text(name, arguments, message.content, local=local)


def last_outcomes(calls: Iterable[JudgedCall]) -> list[JudgedCall]:
    """Return each decided call's last try, in order: a retry that works is no contradiction."""
    tries: list[JudgedCall] = []
    for call in calls:
        if call.ok is None:
            continue
        tries = [earlier for earlier in tries if not is_same_call(earlier, call)]
        tries.append(call)
    return tries


def is_same_call(first: JudgedCall, second: JudgedCall) -> bool:
    """Return whether two calls are of one tool, with almost the same arguments."""
    if first.name != second.name:
        return False
    ours, theirs = _tokens(first.arguments), _tokens(second.arguments)
    union = ours | theirs
    return not union or len(ours & theirs) >= _SAME * len(union)


@lru_cache(1024)  # each call of a run is compared with all others
def _tokens(arguments: str) -> frozenset[str]:
    return frozenset(token for value in _values(arguments) for token in value.split())


def _values(arguments: str) -> list[str]:
    """Return the values of a call's JSON arguments as text; what is no JSON as it is."""
    try:
        parsed = json.loads(arguments[:_READ])
    except (ValueError, RecursionError):
        return [arguments[:_READ]] if arguments else []
    return [*_leaves(parsed)]


def _leaves(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for child in value.values():
            yield from _leaves(child)
    elif isinstance(value, list):
        for child in value:
            yield from _leaves(child)
    elif value not in (None, ""):
        yield str(value)


# -- Why a call failed, where no line is to blame
#
# The operating system's and HTTP's own names of a trouble that no other recipe would have avoided.

_TROUBLES: Final[Mapping[str, Sequence[int]]] = {
    "the network": (
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.ECONNABORTED, errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT),
    ),
    "no room": (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
    "a lock": (errno.EAGAIN, errno.EBUSY, errno.ETXTBSY, errno.EDEADLK),
}
_BUSY: Final = (
    *(HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS),
    *(HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_GATEWAY),
    *(HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT),
)
_HTTP: Final = regex.compile(
    r"\b(?:HTTP(?:/[\d.]+)?|status(?:[ _]code)?|error|code)\D{0,12}"
    rf"(?:{'|'.join(str(int(status)) for status in _BUSY)})\b"
    rf"|\b(?:{'|'.join(status.phrase.replace(' ', ' ?') for status in _BUSY)})\b",
    regex.IGNORECASE,
)
# Of 20 blind outputs of tools that failed for such a reason, this list and the names above excuse
# 15, the names alone 8; of 20 that sound alike, 1 and 0 (tests/credit/test_outside_reasons.py).
_TEMPORARY: Final[Mapping[str, str]] = {
    "the network": r"could not resolve|resolv\w+ (?:host|name)|name resolution|getaddrinfo"
    r"|name or service not known|unreachable|network error|no internet"
    r"|(?:connect\w*|request|read|operation|network|gateway|i/o|dial)\W+(?:\w+\W+)?time[d-]? ?out"
    r"|tls handshake|connection (?:was )?(?:closed|lost|reset|refused|aborted)|offline",
    "a limit of requests": r"rate.?limit|too many requests|quota|throttl\w+",
    "a lock": r"\b(?:is|was|been) locked\b|(?:get|acquire|obtain|hold)\w* (?:\w+ ){0,3}lock\b"
    r"|\block (?:\w+ ){0,3}held\b|temporarily unavailable|\bbusy\b",
    "no room": r"no space left|disk (?:is )?full|out of memory|cannot allocate",
    "the user": r"(?:denied|rejected|declined|cancel+ed|interrupted) by (?:the )?user"
    r"|user (?:has )?(?:denied|rejected|declined|cancel+ed)",
}
# 128 + a signal, its negative, and what `timeout` returns
_KILLED: Final = frozenset({124, 129, 130, 131, 137, 143, -1, -2, -9, -15})


def outside_reason(result: str, exit_code: int | None) -> str:
    """Return what made a call fail if that is no recipe's fault, else ""."""
    if exit_code in _KILLED:
        return "it was killed"
    folded = result.casefold()
    for trouble, numbers in _TROUBLES.items():
        names = [name for n in numbers for name in (errno.errorcode[n], os.strerror(n))]
        if any(name.casefold() in folded for name in names):
            return trouble
    for trouble, pattern in _TEMPORARY.items():
        if regex.search(pattern, result, regex.IGNORECASE):
            return trouble
    return "the server" if _HTTP.search(result) else ""


# -- The lines that a call rests on


def asked_text(messages: Iterable[Message]) -> str:
    """Return what the user said in a run, without what MemTier added to it."""
    return "\n".join(remove_quotes(m.content[:_READ]) for m in messages if m.role == "user")


def shares_words(call: JudgedCall, messages: Sequence[Message], split: Split) -> bool:
    """Return whether a call's arguments take a word from what the user said."""
    return not {*split(asked_text(messages))}.isdisjoint(split("\n".join(_values(call.arguments))))


def find_basis(
    call: JudgedCall, lines: Mapping[str, str], prompt: str, split: Split
) -> dict[str, float]:
    """Return the share of each line in a call; none for those that it does not rest on.

    Args:
        lines: the texts of injected lines by id.  What says the same of a call is one line.
        prompt: the user's message: what it says itself is taken from no line.
        split: how a text is taken apart into words.
    """
    asked = {*split(prompt[:_READ])}
    arguments = {*split("\n".join(_values(call.arguments)))} - asked
    taken = ({*split(call.said[-_READ:])} | arguments) - asked
    missing = _missing_words(call, split)
    words = {key: {*split(text[:_READ])} - asked for key, text in lines.items()}
    recorded = {key for key, text in lines.items() if TOOL_CALL_MARK in text}
    statements = (own for key, own in words.items() if key not in recorded)
    distinct = _merge_restated(statements, taken)
    lines_with = Counter(word for own in distinct for word in own)
    scores: dict[str, float] = {}
    repeated: dict[str, float] = {}
    for key, own in words.items():
        shared = own & taken
        if not shared or (missing and not own & missing):
            continue
        if (
            key in recorded
        ):  # an earlier call is the basis of its own repetition, if nothing else is
            repeated |= {key: 1.0} if own & arguments == arguments else {}
            continue
        unique = sum(lines_with[word] == 1 for word in shared)
        rarity = sum(1 / lines_with[word] for word in shared)
        of_line = rarity / sum(1 / lines_with[word] for word in own)
        of_call = len(shared & arguments) / max(1, len(arguments))
        if unique >= _ENOUGH or (unique and max(of_line, of_call) >= _LEAST):
            scores[key] = rarity
    best = max(scores.values(), default=0.0)
    used = {key: score for key, score in scores.items() if score >= _NEAR_BEST * best} or repeated
    total = sum(used.values())
    return {key: score / total for key, score in used.items()}


def _merge_restated(statements: Iterable[set[str]], taken: set[str]) -> list[set[str]]:
    """Return the words of lines, those that say the same of a call as one line."""
    distinct: list[set[str]] = []
    for own in statements:
        same = next((other for other in distinct if _restates(other, own, taken)), None)
        if same is None:
            distinct.append({*own})
        else:
            same |= own
    return distinct


def _restates(first: set[str], second: set[str], taken: set[str]) -> bool:
    """Return whether two lines say the same of a call, such as a line and the answer from it."""
    alike = len(first & second) >= _ALIKE * min(len(first), len(second))
    return alike and first & taken == second & taken


_MISSING: Final = regex.compile(
    rf"{regex.escape(os.strerror(errno.ENOENT))}|not found|does not exist|cannot find",
    regex.IGNORECASE,
)
_QUOTED: Final = regex.compile(r"[\"'`‘“]([^\"'`‘’“”]{1,200})[\"'`’”]")


def _missing_words(call: JudgedCall, split: Split) -> set[str]:
    """Return what a failed call lacked, as far as it asked for that itself.

    That is what the line of the message quotes, else a path in it, else the word before.
    """
    if call.ok is not False or not (match := _MISSING.search(call.result)):
        return set()
    start = call.result.rfind("\n", 0, match.start()) + 1
    line = call.result[start : match.end() + _READ].partition("\n")[0]
    before = call.result[start : match.start()].split()
    quoted = _QUOTED.findall(line)
    paths = [word for word in line.split() if "/" in word or "." in word[:-1]]
    missing = " ".join(quoted or paths or before[-1:])
    return {*split(missing)} & {*split("\n".join(_values(call.arguments)))}
