"""Parse a run's tool calls, pair them with their results, and detect read-only calls.  Pure.

A call through a host's wrapper counts as the wrapped call; calls of MemTier's own tools are not
work, and are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.records import Entry
from memtier_plugin.text.lexicon import word_set
from memtier_plugin.trust.origins import is_own_tool, is_wrapper, unwrap_call

_MAX_SHOWN: Final = 160  # characters of a call or an error that are shown
_MAX_ARGUMENTS: Final = 2_000  # characters of a call's arguments that are parsed

OWN: Final = ""  # stands in for the name of one of our memory tools
_CALL: Final = regex.compile(r"(?m)^\[tool call: ")
_COMMAND_KEYS: Final = ("command", "cmd", "script", "code", "query", "path", "file_path", "url")
# A read-only call repairs nothing, and its result is not worth keeping.
_READING: Final = word_set(
    """
    ls cat head tail less more grep rg find pwd cd echo which whoami date tree wc stat file env
    printenv ps df du top history type diff man true sleep read read_file list_files search
    grep_search glob view open browse web_search fetch
    """
)
_READING_PAIRS: Final = frozenset({"git status", "git log", "git diff", "git show", "git branch"})
# Words in the names of tools that only look, and of those that do more.
_LOOKING: Final = word_set(
    """
    search find get list read fetch view show lookup look query browse describe inspect recall
    status check grep glob help stat count
    """
)
_DOING: Final = word_set(
    """
    set put add write edit create update delete remove post send run exec execute install move
    apply patch push store save book order start stop restart deploy call
    """
)
_NAME_PARTS: Final = regex.compile(r"\p{Lu}?\p{Ll}+|\p{Lu}+|\d+")
_SHELLS: Final = word_set("exec bash shell sh run terminal execute process run_command")
_BEFORE_PROGRAMS: Final = word_set("sudo env time nice command exec")
# What ends a command of a line, outside quotes.
_ENDS: Final = regex.compile(r"""(?:"(?:\\.|[^"\\])*+"|'[^']*+'|\\.)|(&&|\|\||[|;\n])""")
_ASSIGNS: Final = regex.compile(r"\w+=")
_ERROR_LINE: Final = regex.compile(
    r"(?i)\b(?:error|exception|failed|failure|fatal|denied|not found|no such|cannot|can't|unable"
    r"|refused|timed? ?out|missing|invalid|undefined|panic|traceback)\b|Error:"
)


class ToolUse(NamedTuple):
    """A tool call of the assistant and its outcome.

    Attributes:
        quote, start: the call as written in the entry, and its position.
        command: the command line, or the arguments if the tool is not a shell.
        ok: None if the outcome is unknown.
        runs_command: its arguments contain a command line.
    """

    entry: Entry
    name: str
    quote: str
    start: int
    command: str
    result: Entry | None
    ok: bool | None
    runs_command: bool = False

    @property
    def display(self) -> str:
        """The call in a readable form."""
        command = " ".join(self.command.split())
        is_command = _is_shell(self.name, self.runs_command) and command
        words = command if is_command else f"{self.name} {command}".strip()
        return f"`{truncate(words, _MAX_SHOWN)}`"

    @property
    def program(self) -> str:
        """The program that a command line runs, the first that does not only read; or the tool."""
        if not _is_shell(self.name, self.runs_command):
            return self.name
        commands = simple_commands(self.command)
        programs = [_program(words) for words in commands if not _reads(words)]
        programs += [_program(words) for words in reversed(commands)]
        return next(filter(None, programs), self.name)

    @property
    def is_read_only(self) -> bool:
        """Whether the call has no side effects."""
        return only_reads(self.name, self.command, self.runs_command)

    @property
    def work(self) -> str:
        """The command without what only enters a folder, as all of a session's commands may."""
        if not _is_shell(self.name, self.runs_command):
            return self.command
        commands = simple_commands(self.command)
        return " ".join(" ".join(words) for words in commands if words[0] != "cd")

    @property
    def key(self) -> tuple[str, str]:
        """A key that is equal for equal calls."""
        return self.name, " ".join(self.command.split())

    @property
    def exit_code(self) -> int | None:
        """The exit code of the call, if its host reports one."""
        return self.result.tool.exit_code if self.result and self.result.tool else None

    def error(self) -> tuple[str, int] | None:
        """Return the last line of the result that reports an error, and its position."""
        if self.result is None:
            return None
        position, last = 0, None
        for line in self.result.content.splitlines(keepends=True):
            text = line.strip()
            if text and _ERROR_LINE.search(text):
                last = text[:_MAX_SHOWN], position + line.index(text)
            position += len(line)
        return last


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The request of a run, and its tool calls in order.

    ``ended``: nothing follows the last call except its result.
    """

    request: Entry | None
    calls: tuple[ToolUse, ...]
    tainted: bool
    ended: bool = False


def only_reads(tool: str, command: str, runs_command: bool) -> bool:
    """Return whether a call has no side effects: by the tool's name, or each command's program."""
    if _is_shell(tool, runs_command):
        return all(map(_reads, simple_commands(command)))
    parts = {part.casefold() for part in _NAME_PARTS.findall(tool)}
    return tool in _READING or bool(parts & _LOOKING and not parts & _DOING)


def _is_shell(tool: str, runs_command: bool) -> bool:
    return tool.casefold() in _SHELLS or runs_command


def simple_commands(line: str) -> list[list[str]]:
    """Return the words of each command of a line, starting with its program."""
    ends = [match for match in _ENDS.finditer(line) if match[1]]
    starts = [0, *(match.end() for match in ends)]
    parts = [line[a:b] for a, b in zip(starts, [*(m.start() for m in ends), None], strict=True)]
    return [words for part in parts if (words := _without_prefixes(part.split()))]


def _without_prefixes(words: list[str]) -> list[str]:
    first = 0
    while first < len(words) - 1 and (
        words[first] in _BEFORE_PROGRAMS or _ASSIGNS.match(words[first])
    ):
        first += 1
    return words[first:]


def _program(words: Sequence[str]) -> str:
    plain = regex.fullmatch(r"[\w./+-]+", words[0])
    return words[0].rsplit("/", 1)[-1] if plain else ""


def _reads(words: Sequence[str]) -> bool:
    """Return whether a command, given by its words, only reads."""
    return _program(words) in _READING or " ".join(words[:2]) in _READING_PAIRS


def truncate(text: str, length: int) -> str:
    """Truncate a text to ``length`` characters, including an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 3].rstrip()}..."


def group_runs(entries: Iterable[Entry]) -> Iterator[ToolRun]:
    """Yield the runs with tool calls that the entries belong to."""
    runs: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        runs.setdefault((entry.agent_id, entry.run_id), []).append(entry)
    for run in runs.values():
        if not any(entry.tool for entry in run):
            continue
        request = next((e for e in run if e.role == "user" and e.origin == "user"), None)
        tainted = any(entry.tainted or entry.origin == "external" for entry in run)
        ended = run[-1].tool is not None or not spoken_text(run[-1].content)
        yield ToolRun(request, pair_calls(run), tainted, ended)


def spoken_text(content: str) -> str:
    """Return an assistant's text without its tool calls."""
    call = _CALL.search(content)
    return (content[: call.start()] if call else content).strip()


def pair_calls(entries: Sequence[Entry]) -> tuple[ToolUse, ...]:
    """Return the calls of one run in order, each with its result.

    A recorded result names only its tool, and an empty result is not recorded. So the calls of a
    tool are paired in order with its results before the assistant's next calls; if their numbers or
    the outcomes differ, the outcome of each call is unknown.
    """
    calls: list[ToolUse] = []
    pending: dict[str, list[int]] = {}  # indexes of the assistant's last calls, by tool
    results: dict[str, list[Entry]] = {}
    for entry in entries:
        written = [*written_calls(entry.content)] if entry.role == "assistant" else []
        if written:
            _assign_results(calls, pending, results)
            pending, results = {}, {}
        for name, quote, start in written:
            inner, arguments = unwrap_call(name, quote)
            if is_own_tool(inner):
                inner = OWN
            command, runs_command = command_of(arguments)
            pending.setdefault(name, []).append(len(calls))
            calls.append(ToolUse(entry, inner, quote, start, command, None, None, runs_command))
        if entry.tool is not None:
            results.setdefault(entry.tool.name, []).append(entry)
    _assign_results(calls, pending, results)
    # A wrapper that does not name its tool reveals nothing about the work.
    return tuple(call for call in calls if call.name != OWN and not is_wrapper(call.name))


def _assign_results(
    calls: list[ToolUse],
    pending: Mapping[str, Sequence[int]],
    results: Mapping[str, Sequence[Entry]],
) -> None:
    for name, indexes in pending.items():
        answers = results.get(name, ())
        if len(answers) == len(indexes) and len({*map(_outcome, answers)}) == 1:
            for index, result in zip(indexes, answers, strict=True):
                calls[index] = calls[index]._replace(result=result, ok=_outcome(result))


def _outcome(result: Entry) -> bool | None:
    """Return whether a call succeeded; some hosts report an exit code and no error."""
    assert result.tool
    code, ok = result.tool.exit_code, result.tool.ok
    if code:
        return False
    return ok if ok is not None or code is None else True


def written_calls(content: str) -> Iterator[tuple[str, str, int]]:
    """Yield the tool calls in an assistant's entry: name, arguments and their position."""
    spans = [match.span() for match in _CALL.finditer(content)]
    ends = [*(start - 1 for start, _ in spans[1:]), len(content)]
    for (_, start), end in zip(spans, ends, strict=False):
        inside = content[start:end].rstrip()
        if not inside.endswith("]"):
            continue  # prose, not a recorded call
        name, _, arguments = inside[:-1].partition(" ")
        quote = arguments.strip()
        position = start + len(name) + 1 + len(arguments) - len(arguments.lstrip())
        yield (name, quote, position) if quote else (name, name, start)


def command_of(quote: str) -> tuple[str, bool]:
    """Return the command in a call's arguments, or the arguments themselves, and which it is."""
    if len(quote) > _MAX_ARGUMENTS:
        return quote[:_MAX_ARGUMENTS], '"command"' in quote or '"cmd"' in quote
    try:
        arguments: Any = parse_json_text(quote)
    except ValueError:
        return quote, False
    if not isinstance(arguments, dict):
        return quote, False
    for key in _COMMAND_KEYS:
        if isinstance(arguments.get(key), str) and arguments[key].strip():
            return str(arguments[key]), key in ("command", "cmd")
    return ", ".join(f"{name}={value}" for name, value in arguments.items()), False
