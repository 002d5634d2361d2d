"""Thirty mixed prompts of one session in a real host: what stands in each, and what should."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from memtier_plugin.core.records import count_tokens
from memtier_plugin.trust.escaping import FENCE
from tests.loopback.hosts import INTERNAL, text
from tests.runtimes.hosts import Ground

SESSION = Path(__file__).with_suffix(".yaml")
COLUMNS = ("turn", "kind", "prompt", "lines", "tokens", "needed", "before", "in sight", "stale")

_BLOCK = re.compile(rf'<{FENCE} recall="[0-9A-Za-z]+">\n(.*?)\n</{FENCE}>', re.DOTALL)
_LINE = re.compile(r"- \[\S+ .*?(?P<id>[0-9A-Z]{8})\] (?P<words>.*?)(?: \([^()]*\))?$")
_MARK = re.compile(r"\b(?:until|now:|superseded|older|former)\b")


@dataclass(frozen=True)
class Turn:
    """A prompt of the session, and what its memory should do."""

    kind: str
    say: str
    answer: str
    needs: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What one turn's request had.

    Attributes:
        before: lines that a block of the session had before.
        in_sight: lines whose words stand in the rest of this request.
        needed: whether each of the needed words stands in the request; None if none is needed.
        stale: lines that must not stand there without a mark.
    """

    turn: Turn
    lines: tuple[str, ...]
    tokens: int
    before: int
    in_sight: int
    needed: bool | None
    stale: int

    @property
    def quiet(self) -> bool:
        """Whether the prompt needs nothing."""
        return self.needed is None


@dataclass
class MixedSession:
    """Plays the session in a host and notes what each request had."""

    ground: Ground
    agent: str
    outcomes: list[Outcome] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def plant(self) -> None:
        """Record the sessions before it, the user's words and the assistant's in turn."""
        with self.ground.memory(self.agent) as memory:
            for number, session in enumerate(_load()["earlier"]):
                at = datetime.now(UTC) - timedelta(days=session["days"])
                roles = ("user", "assistant")
                messages = [
                    {"role": roles[index % 2], "content": str(line)}
                    for index, line in enumerate(session["say"])
                ]
                memory.record(messages, session_id=f"earlier-{number}", observed_at=at)

    def play(self, say: Callable[[str], object]) -> list[Outcome]:
        """Have all turns, each when the one before it is stored."""
        for turn in list_turns():
            self.ground.model.says = turn.answer
            self.ground.model.requests.clear()
            say(turn.say)
            self.outcomes.append(self._judge(turn))
        return self.outcomes

    def _judge(self, turn: Turn) -> Outcome:
        messages = self._request(turn)["messages"]
        newest = max(i for i, m in enumerate(messages) if _is_prompt(m, turn))
        prompt = text(messages[newest])
        block = _BLOCK.search(prompt)
        rest = "\n".join([*map(text, messages[:newest]), _BLOCK.sub("", prompt)])
        matches = map(_LINE.match, block[1].splitlines() if block else ())
        lines = [match for match in matches if match]
        stale = [
            line
            for line in lines
            if any(words in line[0] for words in turn.never) and not _MARK.search(line[0])
        ]
        visible = "\n".join([rest, *(line[0] for line in lines)])
        outcome = Outcome(
            turn=turn,
            lines=tuple(line[0] for line in lines),
            tokens=count_tokens(block[0]) if block else 0,
            before=sum(line["id"] in self._seen for line in lines),
            in_sight=sum(line["id"] in rest or line["words"] in rest for line in lines),
            needed=all(words in visible for words in turn.needs) if turn.needs else None,
            stale=len(stale),
        )
        self._seen |= {line["id"] for line in lines}
        return outcome

    def _request(self, turn: Turn) -> dict[str, Any]:
        """Return the turn's first request; hosts ask for titles, too, without tools."""
        for request in self.ground.model.requests:
            if request.get("tools") and any(_is_prompt(m, turn) for m in request["messages"]):
                return request
        raise AssertionError(f"no request with {turn.say!r}")


def list_turns() -> list[Turn]:
    """Return the prompts of the session."""
    return [
        Turn(
            kind=turn["kind"],
            say=turn["say"],
            answer=turn["answer"],
            needs=tuple(map(str, turn.get("needs", ()))),
            never=tuple(map(str, turn.get("never", ()))),
        )
        for turn in _load()["turns"]
    ]


def format_table(outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown table of the turns and their sums."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for number, outcome in enumerate(outcomes, 1):
        turn = outcome.turn
        needed = {None: "", True: "yes", False: "MISSED"}[outcome.needed]
        figures = (len(outcome.lines), outcome.tokens, needed)
        counts = (outcome.before, outcome.in_sight, outcome.stale)
        prompt = turn.say.splitlines()[0][:48]
        rows.append(tuple(map(str, (number, turn.kind, prompt, *figures, *counts))))
    return "\n".join(f"| {' | '.join(row)} |" for row in [*rows, _sums(outcomes)])


def _sums(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    wanted = [o for o in outcomes if not o.quiet]
    silent = sum(not o.lines for o in outcomes if o.quiet)
    return (
        "all",
        "",
        f"{silent} of {len(outcomes) - len(wanted)} silent",
        str(sum(len(o.lines) for o in outcomes)),
        str(sum(o.tokens for o in outcomes)),
        f"{sum(bool(o.needed) for o in wanted)} of {len(wanted)}",
        *(str(sum(getattr(o, name) for o in outcomes)) for name in ("before", "in_sight", "stale")),
    )


def _load() -> Any:
    return yaml.safe_load(SESSION.read_text("utf-8"))


def _is_prompt(message: Any, turn: Turn) -> bool:
    """Tell whether a message is the turn's own, with whatever the host added to it."""
    content = text(message)
    prompt = message["role"] == "user" and INTERNAL not in content
    return prompt and turn.say in _BLOCK.sub("", content)
