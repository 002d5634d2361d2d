"""Remind an agent of a user's rule at the very tool call that may break it.

Words cannot tell whether a call keeps a rule, but they tell which rule it is about: by those that
it shares with the rule and with the calls that were corrected, and by how similar the tasks are.
So the agent gets the rule and decides; if it makes the same call again, the call goes through.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from operator import mul
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.events import CallReminderEvent, RecallEvent
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.core.records import Entry, Fact
from memtier_plugin.facts.extraction.tool_runs import (
    command_of,
    only_reads,
    simple_commands,
    spoken_text,
    written_calls,
)
from memtier_plugin.retrieval.corrections import Rule, content, read_own_words, read_rules
from memtier_plugin.retrieval.visibility import view_of
from memtier_plugin.retrieval.worth import cosine, unit
from memtier_plugin.storage.store import Actor
from memtier_plugin.trust.escaping import escape_line
from memtier_plugin.trust.origins import is_own_tool, unwrap_call

Rarity = Callable[[Collection[str]], float]

MODEL: Final = Path(__file__).with_suffix(".json")
_TEXT: Final = (
    "MemTier held this call up once. On {day} this was noted about work like it: {rule} -- If the "
    "call is in keeping with that, make it again unchanged and it will run; otherwise change it."
)
FEATURES: Final = (
    *("deed", "last", "named", "like rule", "like answer", "like task"),
    *("same tool", "both change files", "named program"),
)
_NEWEST: Final = 200  # reminders, among which those of the session are looked for
_REFRESH_MS: Final = 100
_MARK: Final = 200  # characters of a call that are journalled
_READ: Final = 4_000  # characters of a call whose words are compared
_MAX_CHARS: Final = 600  # of a text whose vector is compared
_ENOUGH_SHARED, _ENOUGH_NAMED = 4.0, 2.0  # rare words, beyond which more tell nothing more
_PARTS: Final = regex.compile(r"\p{Lu}?\p{Ll}+|\p{Lu}+|\p{L}+|\d+")
_FILE_TOOLS: Final = ("edit", "write", "replace", "patch")  # in the names of those that change one


class Call(NamedTuple):
    """A tool call: its tool, what it brings about, and the words of that.

    ``programs`` are the words that begin a command line's commands, as in "git commit".
    """

    name: str
    text: str
    words: frozenset[str]
    programs: frozenset[str]
    changes_file: bool
    only_reads: bool


class RuleCalls(NamedTuple):
    """A rule with the calls that it corrected and what the agent had said of them.

    ``words`` are the rule's own, ``all_words`` those of the request, calls and answer, too.
    """

    rule: Rule
    calls: tuple[Call, ...]
    answer: str
    words: frozenset[str]
    all_words: frozenset[str]


def remind(
    actor: Actor,
    tool: str,
    arguments: str,
    *,
    session_id: str,
    run_id: str | None = None,
    sender: str | None = None,
) -> str | None:
    """Return what to tell an agent before a tool call, if the call is likely of a rule's kind.

    Each rule is told once a session, and journalled; so is the same call made again after it.

    Raises:
        LedgerError: it cannot be journalled; nothing is told then.
        IndexProblem: the index cannot be used.
    """
    if actor.store.paused or not actor.store.settings.facts.corrections:
        return None
    folder = str(actor.workspace or "")
    call = call_of(tool, arguments, folder)
    if call is None or call.only_reads:
        return None
    actor.store.refresh(actor.agent, wait_ms=_REFRESH_MS)
    with actor.store.session() as reader:
        made = actor.redactor.redact(call.text).text[:_MARK]
        known = [
            reminder
            for event in reader.events([CallReminderEvent.KIND], agent=actor.agent, newest=_NEWEST)
            if (reminder := CallReminderEvent.of(event)).session_id == session_id
        ]
        same = [each for each in known if (each.tool, each.call) == (call.name, made)]
        if same:
            if not same[0].again:
                again = CallReminderEvent(**{**same[0].to_json(), "again": True})
                actor.store.append_events([actor.event(again, run=run_id)])
            return None
        viewer = view_of(actor, actor.store.settings, sender, actor.clock())
        own_words = read_own_words(reader, viewer)
        rules = [with_calls(rule, folder) for rule in read_rules(reader, own_words)]
        asked = reader.events([RecallEvent.KIND], agent=actor.agent, run=run_id, newest=1)
        prompt = RecallEvent.of(asked[0]).query if run_id and asked else ""
        rule = find_rule(call, prompt, rules)
    if rule is None or any(rule.id in each.items for each in known):
        return None
    reminder = CallReminderEvent(items=(rule.id,), session_id=session_id, tool=call.name, call=made)
    actor.store.append_events([actor.event(reminder, run=run_id)])
    day = rule.valid_from or rule.timestamp if isinstance(rule, Fact) else rule.observed_at
    return _TEXT.format(day=f"{day:%Y-%m-%d}", rule=escape_line(rule.text))


def find_rule(call: Call, prompt: str, rules: Sequence[RuleCalls]) -> Entry | Fact | None:
    """Return the rule that a call is likeliest about, if it is likely enough."""
    fitted, rarity = _model(), rarity_among(rules)
    weights = [fitted["weights"][name] for name in FEATURES]
    odds = {
        number: fitted["bias"] + sum(map(mul, weights, features(call, prompt, rule, rarity)))
        for number, rule in enumerate(rules)
        if rule.calls
    }
    best = max(odds, key=lambda number: odds[number], default=None)
    if best is None or odds[best] <= fitted["least"]:
        return None
    return rules[best].rule.item


@cache
def _model() -> dict[str, Any]:
    model: dict[str, Any] = json.loads(MODEL.read_bytes())
    return model


def call_of(tool: str, arguments: str, folder: str) -> Call | None:
    """Return a call as it is compared; None for one of MemTier's own tools.

    Args:
        folder: the workspace, which most commands enter first.
    """
    name, arguments = unwrap_call(tool, arguments)
    if is_own_tool(name):
        return None
    brings = "\n".join(_brought(arguments))[:_READ].replace(folder or "\0", ".")
    command, runs_command = command_of(arguments)
    commands = simple_commands(command) if runs_command else []
    programs = _words(" ".join(word for words in commands for word in words[:2]))
    common = _words(f"cd {folder}")
    return Call(
        *(name, brings, _words(brings) - common, programs - common),
        changes_file=any(part in name.casefold() for part in _FILE_TOOLS),
        only_reads=only_reads(name, command, runs_command),
    )


def calls_of(text: str, folder: str) -> tuple[Call, ...]:
    """Return the calls in an assistant's line; see `call_of`."""
    calls = (call_of(tool, quote, folder) for tool, quote, _ in written_calls(text))
    return tuple(filter(None, calls))


_known_calls: Final = lru_cache(512)(calls_of)  # the same rules are compared with every call


def with_calls(rule: Rule, folder: str) -> RuleCalls:
    """Return a rule with the calls before it, in order; see `calls_of`."""
    calls = [call for deed in reversed(rule.deeds) for call in _known_calls(deed.content, folder)]
    answer = " ".join(spoken_text(deed.content) for deed in reversed(rule.deeds)).strip()
    words, request = _words(rule.item.text), rule.request.text if rule.request else ""
    all_words = words.union(_words(f"{request} {answer}"), *(call.words for call in calls))
    return RuleCalls(rule, tuple(calls), answer, words, all_words)


def rarity_among(rules: Sequence[RuleCalls]) -> Rarity:
    """Return a function that counts words, each by how few of the rules in force have it."""
    known = Counter(word for rule in rules for word in rule.all_words)
    most = max(1, len(rules) - 1)
    return lambda words: sum(max(0.0, 1 - max(0, known[word] - 1) / most) for word in words)


def features(call: Call, prompt: str, rule: RuleCalls, rarity: Rarity) -> tuple[float, ...]:
    """Return the values of `FEATURES` for a call and a rule that has calls."""
    corrected = frozenset[str]().union(*(each.words for each in rule.calls))
    last = rule.calls[-1]
    shared = rarity(corrected & call.words)
    vector = _vector(call.text)
    request = rule.rule.request.text if rule.rule.request else ""
    return (
        shared / max(1e-6, math.sqrt(rarity(corrected) * rarity(call.words))),
        min(_ENOUGH_SHARED, rarity(last.words & call.words)),
        min(_ENOUGH_NAMED, rarity((rule.words - corrected) & call.words)),
        _cosine(vector, rule.rule.item.text),
        _cosine(vector, rule.answer),
        _cosine(_vector(prompt), request) if prompt else 0.0,
        float(last.name == call.name),
        float(last.changes_file and call.changes_file),
        min(1.0, rarity(rule.words & last.programs & call.programs)),
    )


def _cosine(vector: Sequence[float], text: str) -> float:
    return max(0.0, cosine(vector, _vector(text))) if text else 0.0


def _vector(text: str) -> tuple[float, ...]:
    return _known_vector(text[:_MAX_CHARS])


_known_vector: Final = lru_cache(512)(unit)


def _words(text: str) -> frozenset[str]:
    """Return the stems of a text's words, names in code split into theirs."""
    return content(" ".join(_PARTS.findall(text)))


def _brought(arguments: str) -> Iterator[str]:
    """Yield the texts of a call's arguments, without the lines that it only replaces."""
    try:
        values: Any = parse_json_text(arguments)
    except ValueError:  # cut off, or no JSON
        values = arguments
    texts = [*_texts("", values)]
    old = {
        line.strip() for key, text in texts if key.startswith("old") for line in text.split("\n")
    }
    for key, text in texts:
        if not key.startswith("old"):
            yield "\n".join(line for line in text.split("\n") if line.strip() not in old)


def _texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(key, inner)
    elif isinstance(value, str):
        yield key, value
