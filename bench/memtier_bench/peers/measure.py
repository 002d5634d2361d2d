"""What is asked of every memory: conversations, projects of work, and who said what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

from memtier_bench.datasets import Conversation, DatasetQuestion
from memtier_bench.peers.systems import WIDE, Answer, System
from memtier_bench.silence_prompts import AskedPrompt
from memtier_bench.work.play import AskedProbe, ProjectPlayer, ShownLine
from memtier_bench.work.projects import WorkProbe, WorkProject, WorkSession
from memtier_bench.work.run import ProbeOutcome, judge_probe
from memtier_plugin.core.records import Message, count_tokens
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.retrieval.block import truncate

SHARE: Final = 0.7  # of a turn's runs of three words that must be shown
_MORNING: Final = time(9, tzinfo=UTC)
SILENT: Final = ("foreign", "generic")  # nothing is needed: no budget is to be filled
Tick = Callable[[], None]


@dataclass(slots=True)
class Figures:
    """Values to average, by name; ``ms`` of the prompts of conversations, bytes of their stores."""

    values: dict[str, list[float]] = field(default_factory=dict)
    ms: list[float] = field(default_factory=list)
    bytes: list[int | None] = field(default_factory=list)

    def add(self, name: str, value: float) -> None:
        """Add a value."""
        self.values.setdefault(name, []).append(float(value))

    def mean(self, name: str) -> float | None:
        """Return the mean of the values of that name; None if there is none."""
        values = self.values.get(name)
        return sum(values) / len(values) if values else None


@dataclass(slots=True, kw_only=True)
class Asker:
    """Asks one system twice: as it comes, and with its lines cut to so many tokens.

    Without a budget (MemTier, which sets it) the second is the first.
    """

    system: System
    folder: Path
    tick: Tick
    budgets: Mapping[str, int] | None = None
    plain: Figures = field(default_factory=Figures)
    cut: Figures = field(default_factory=Figures)
    _stores: Iterator[int] = field(default_factory=count)

    def open(self, language: str = "en") -> Path:
        """Begin an empty store; return its folder."""
        folder = self.folder / str(next(self._stores))
        folder.mkdir(parents=True)
        self.system.open(folder, language)
        return folder

    def ask(
        self, part: str, prompt: str, at: datetime | None, sender: str | None = None
    ) -> list[tuple[Figures, Sequence[str]]]:
        """Return the lines as they come, and those cut; count the tokens of both."""
        answer = self.system.ask(prompt, at, sender, None)
        shown = answer.lines
        if self.budgets is not None and part not in SILENT:
            wide: Answer = self.system.ask(prompt, at, sender, WIDE)
            shown = cut_lines(wide.lines, self.budgets[part])
        for figures, lines in ((self.plain, answer.lines), (self.cut, shown)):
            figures.add(f"{part} tokens", count_lines(lines))
        if part == "talk":
            self.plain.ms.append(answer.ms)
        self.tick()
        return [(self.plain, answer.lines), (self.cut, shown)]


def count_lines(lines: Sequence[str]) -> int:
    """Return the tokens of lines, by MemTier's estimate."""
    return sum(count_tokens(f"{line}\n") for line in lines)


def cut_lines(lines: Iterable[str], budget: int) -> list[str]:
    """Return the first lines within a budget of tokens, the last of them cut to what is left."""
    kept: list[str] = []
    for line in lines:
        cost = count_tokens(f"{line}\n")
        if cost > budget:
            return [*kept, *filter(None, [truncate(line, budget)])]
        kept.append(line)
        budget -= cost
    return kept


# -- conversations ---------------------------------------------------------------------------------


def ask_conversation(
    asker: Asker, conversation: Conversation, prompts: Sequence[AskedPrompt]
) -> None:
    """Store a conversation; ask its own questions, foreign ones, and prompts that need nothing."""
    asker.open()
    turns: dict[str, list[str]] = {}
    for session in conversation.sessions:
        asker.system.add(session)
        for turn in session.turns:
            turns.setdefault(turn.id, []).extend(_words(turn.message.content))
    asker.plain.bytes.append(asker.system.size())
    for prompt in prompts:
        for figures, lines in asker.ask(_part(prompt), prompt.question.text, prompt.question.at):
            if prompt.kind == "own":
                figures.add("recall", _recall(prompt.question, turns, lines))
            else:
                figures.add(prompt.kind, not lines)


def _part(prompt: AskedPrompt) -> str:
    return "talk" if prompt.kind == "own" else prompt.kind


def _recall(
    question: DatasetQuestion, turns: Mapping[str, Sequence[str]], lines: Sequence[str]
) -> float:
    """Return the share of the turns that answer whose words stand in the lines."""
    shown = set(_runs([word for line in lines for word in [*_words(line), ""]]))
    wanted = [set(_runs(turns[name])) for name in question.gold]
    return sum(len(runs & shown) >= SHARE * len(runs) for runs in wanted) / len(wanted)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each three successive words; all words if they are fewer."""
    yield from zip(words, words[1:], words[2:], strict=False) if len(words) > 2 else [tuple(words)]


# -- projects of work ------------------------------------------------------------------------------


def ask_project(asker: Asker, project: WorkProject) -> None:
    """Play what was said in a project, and judge its probes on their days."""
    asker.open(project.language)
    for day, items in project.by_day():
        at = datetime.combine(day, _MORNING)
        for number, item in items:
            if isinstance(item, WorkSession):
                asker.system.add(_session(item, f"session-{number}", at))
                continue
            for figures, lines in asker.ask("work", item.prompt, at):
                add_outcome(figures, judge_lines(item, lines))


def play_memtier(asker: Asker, project: WorkProject) -> None:
    """Play all of a project through MemTier, with its calls, as `memtier bench work` does."""
    folder = asker.folder / project.name
    with ProjectPlayer(folder, project, {"ledger.durability": "os"}) as player:
        for asked in player.play():
            for figures in (asker.plain, asker.cut):
                figures.add("work tokens", asked.tokens)
                add_outcome(figures, judge_probe(asked, asked.lines, asked.tokens))
            asker.tick()


def judge_lines(probe: WorkProbe, lines: Sequence[str]) -> ProbeOutcome:
    """Judge the lines of a memory that marks nothing."""
    asked = AskedProbe(id="", probe=probe, lines=(), tokens=0, ranked=())
    return judge_probe(asked, [ShownLine(line, line, False) for line in lines], count_lines(lines))


def add_outcome(figures: Figures, outcome: ProbeOutcome) -> None:
    """Count a probe: what is needed, what misleads, what is right, also by kind."""
    for name in ("needed", "misled", "right"):
        value = getattr(outcome, name)
        if value is not None:
            figures.add(name, value)
    figures.add(outcome.asked.probe.kind, outcome.right)


def _session(session: WorkSession, name: str, at: datetime) -> Session:
    turns = tuple(
        ImportedMessage(
            id=f"{name}/{number}",
            message=Message(role=role, content=text),  # type: ignore[arg-type]
        )
        for number, turn in enumerate(session.turns)
        for role, text in (("user", turn.user), ("assistant", turn.assistant))
        if text
    )
    return Session(session_id=name, observed_at=at, turns=turns)


# -- who said what ---------------------------------------------------------------------------------


def ask_identity(asker: Asker, cases: Iterable[Mapping[str, Any]]) -> None:
    """Let people say things; ask as each, who should get their own and shared lines only."""
    for case in cases:
        asker.open()
        at = datetime(2026, 1, 5, 9, tzinfo=UTC)
        for number, turn in enumerate(case["say"]):
            sender, text = next(iter(turn.items()))
            message = Message(role="user", content=text, speaker=sender)
            session = Session(
                session_id=f"{sender}-{number}",
                observed_at=at + timedelta(days=number),
                turns=(ImportedMessage(id=f"{number}", message=message),),
                sender=sender,
            )
            asker.system.add(session)
        for check in case["checks"]:
            at_last = at + timedelta(days=60)
            for figures, lines in asker.ask("identity", check["ask"], at_last, check["as"]):
                figures.add("who", _is_theirs(check, lines))


def _is_theirs(check: Mapping[str, Any], lines: Sequence[str]) -> bool:
    """Return whether some line has each thing wanted, and none what is another's."""
    has_own = all(
        any(part.casefold() in line.casefold() for part in want.split("|") for line in lines)
        for want in check["want"]
    )
    return has_own and not any(re.search(no, line, re.I) for no in check["not"] for line in lines)
