"""`memtier bench judgement`: what a memory shows and stores, judged on small written cases.

Five sets: silence (no line if none is needed), currency (the current value comes first, older ones
are marked), identity (each of several people gets their own lines), discretion (a confidence
becomes no shared fact) and keep (statements worth keeping become facts).  A set with two sides
scores the sum of both shares minus one, so that a memory that always or never speaks gets 0. Only
the public API is used.  The format of the files is described in docs/evaluation.md.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.currency_cases import morning_of, read_cases, to_messages
from memtier_bench.jobs import run_background_jobs
from memtier_bench.metrics import latency_percentiles
from memtier_bench.progress import Progress, no_progress
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit, Recall, Shown
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.memory import MemTier

Case = Mapping[str, Any]

# MemTier's own note on an outdated line, never the line itself.
_PAST: Final = re.compile(
    r"\b(?:older|former|superseded|replaced by|until|outdated|no longer|now:)", re.I
)
_OTHER_LINES: Final = 20  # statements of `keep` added to every store of `currency`
_SILENCE_AT: Final = datetime(2026, 7, 1, tzinfo=UTC)
_IDENTITY_AT: Final = datetime(2026, 2, 1, tzinfo=UTC)
_FIRST_DAY: Final = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """One judgement; ``detail`` has the question and the result; None counts only for a part."""

    part: str
    right: bool
    detail: Mapping[str, Any] | None


@dataclass(slots=True)
class Tally:
    """The judgements of one set, figures to average, and the latencies of its recalls."""

    verdicts: list[CaseVerdict] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def judge(self, part: str, right: bool, detail: Mapping[str, Any] | None = None) -> None:
        """Add one judgement."""
        self.verdicts.append(CaseVerdict(part=part, right=right, detail=detail))

    def measure(self, name: str, value: float) -> None:
        """Add a value to an average."""
        self.figures.setdefault(name, []).append(value)

    def share(self, part: str) -> float:
        """Return the share judged right; 0 if nothing was judged."""
        rights = [verdict.right for verdict in self.verdicts if verdict.part == part]
        return sum(rights) / len(rights) if rights else 0.0

    def report(self, score: float, failures: int) -> dict[str, Any]:
        """Return the score with its parts, the number of judgements, and the first failures."""
        wrong = [v for v in self.verdicts if not v.right and v.detail is not None]
        parts = dict.fromkeys(verdict.part for verdict in self.verdicts)
        return {
            "score": round(score, 3),
            "parts": {part: round(self.share(part), 3) for part in parts},
            "of": {part: sum(v.part == part for v in self.verdicts) for part in parts},
            "mean": {n: round(sum(v) / len(v), 2) for n, v in self.figures.items()},
            "latency_ms": latency_percentiles(self.seconds),
            "failures": [{"part": v.part, **(v.detail or {})} for v in wrong[:failures]],
        }


def run_judgement(
    folder: Path,
    sets: Sequence[str] = (),
    failures: int = 0,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Judge what a memory shows and stores in each set of a folder; return a JSON report.

    Args:
        folder: contains the YAML files.
        sets: judge only these.
        failures: the maximum of failures reported per set.
        overrides: settings for the run, by dotted key.
        progress: called for each step.

    Raises:
        ImportFileError: a file is missing or malformed; names file and remedy.
        Unsupported: there is no such set.
        SettingsError: an override is not a setting.
    """
    chosen = tuple(dict.fromkeys(sets)) or tuple(SETS)
    for name in chosen:
        if name not in SETS:
            raise Unsupported(f"set {name!r}; one of: {', '.join(SETS)}")
    tell = progress or no_progress
    results: dict[str, dict[str, Any]] = {}
    questions: list[dict[str, Any]] = []
    settings: dict[str, Any] = {}
    for number, name in enumerate(chosen):
        tell(name, number, len(chosen))
        with tempfile.TemporaryDirectory(prefix="memtier-bench-") as home:
            judge = CaseJudge(folder, Path(home) / "home", overrides or {})
            score = SETS[name](judge)
        settings = judge.settings
        results[name] = judge.tally.report(score, failures)
        questions += _question_figures(name, judge.tally)
        tell(name, number + 1, len(chosen))
    return {
        "dataset": "judgement",
        "kind": "judgement",
        "profile": settings["retrieval.profile"],
        "facts": "extracted",
        "sets": results,
        "version": memtier_plugin.__version__,
        "settings": settings,
        "fingerprint": _fingerprint(folder, chosen),
        "per_question": questions,
    }


def _question_figures(name: str, tally: Tally) -> list[dict[str, Any]]:
    """Return one row per judgement, numbered within its part."""
    counts: dict[str, int] = {}
    rows = []
    for verdict in tally.verdicts:
        number = counts[verdict.part] = counts.get(verdict.part, 0) + 1
        key = f"{name}/{verdict.part}/{number}"
        category = f"{name}, {verdict.part}"
        rows.append({"id": key, "category": category, "right": float(verdict.right)})
    return rows


def _fingerprint(folder: Path, sets: Iterable[str]) -> str:
    """Return a hash that identifies the files of these sets."""
    contents = [[name, (folder / f"{name}.yaml").read_text("utf-8")] for name in sets]
    return sha256(json.dumps(contents).encode()).hexdigest()[:16]


class CaseJudge:
    """Runs the cases of one set in a separate home, and counts right results."""

    def __init__(self, folder: Path, home: Path, overrides: Mapping[str, Any]) -> None:
        self.tally = Tally()
        self.settings: dict[str, Any] = {}
        self._folder = folder
        self._home = home
        self._overrides = overrides

    def open(self, project: str, agent: str = "main") -> MemTier:
        """Open the memory of an agent in a project."""
        memory = MemTier.open(self._home, project, agent, settings=self._overrides)
        self.settings = flatten_settings(memory.settings)
        return memory

    def load(self, name: str, *keys: str) -> Any:
        """Read a set's file, and check that it has these lists.

        Raises:
            ImportFileError: it is missing or malformed; names file and remedy.
        """
        return read_cases(self._folder / f"{name}.yaml", *keys)

    def recall(self, memory: MemTier, prompt: str, **options: Any) -> Recall:
        """Recall for a prompt, in a new session if no other is given."""
        recall = memory.recall(prompt, purpose="inject", **{"session_id": "new", **options})
        self.tally.seconds.append(recall.ms / 1000)
        return recall


# -- recording -------------------------------------------------------------------------------------


def _runs(messages: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield runs: a user's message, and everything up to the next one."""
    run: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and run:
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def _end_runs(
    memory: MemTier,
    session: str,
    turns: Iterable[Case],
    at: datetime | None = None,
    sender: str | None = None,
) -> None:
    """Record turns as finished runs, a minute apart."""
    for number, run in enumerate(_runs(to_messages(turns))):
        memory.end_run(
            run,
            session_id=session,
            run_id=f"{session}-{number}",
            sender=sender,
            observed_at=at + timedelta(minutes=number) if at else None,
        )


def _consolidate(memory: MemTier) -> None:
    """Consolidate what was recorded, and run the other background jobs."""
    memory.consolidate()
    run_background_jobs(memory)


def _record_history(memory: MemTier, case: Case) -> datetime:
    """Record the sessions of a case; return the time at which its question is asked."""
    last = datetime(2026, 1, 1, tzinfo=UTC)
    for number, (day, *turns) in enumerate(case["history"]):
        last = morning_of(day)
        _end_runs(memory, f"{case['id']}-{number}", turns, last)
    return last + timedelta(days=9)


# -- judging lines ---------------------------------------------------------------------------------


def _has(text: str, wanted: str) -> bool:
    """Return whether a text contains one of the alternatives between bars, ignoring case."""
    return any(part.casefold() in text.casefold() for part in wanted.split("|"))


def _is_current(text: str, case: Case) -> bool:
    return any(_has(text, value) for value in case["now"])


def _is_old(text: str, case: Case) -> bool:
    return any(_has(text, value) for value in case["old"]) and not _is_current(text, case)


def says_past(hit: Hit) -> bool:
    """Return whether a hit's note says that it no longer holds: not that it replaces another."""
    return bool(_PAST.search(hit.note)) and not hit.note.startswith(("replaces", "newest"))


def _lines(recall: Recall, most: int | None = None) -> list[str]:
    """Return the injected lines with their notes."""
    hits = recall.injected[:most]
    return [f"{hit.text}{f' ({hit.note})' if hit.note else ''}" for hit in hits]


# -- the sets --------------------------------------------------------------------------------------


def judge_silence(judge: CaseJudge) -> float:
    """Judge that prompts that need no memory get no line, in a store that answers those that do."""
    tally = judge.tally
    prompts = judge.load("silence", "silent", "vague")
    cases = judge.load("currency", "cases")["cases"]
    # Rules for any prompt ("no emojis") may precede any of them, so they are ignored.
    kept = [case for case in judge.load("keep", "keep")["keep"] if not case.get("always")]
    with judge.open("silence") as memory:
        for number, case in enumerate(kept):
            turns = [{"user": case["say"]}, {"assistant": "Okay."}]
            _end_runs(memory, f"kept-{number}", turns, _SILENCE_AT - timedelta(days=200 - number))
        for case in cases:
            _record_history(memory, case)
        _consolidate(memory)
        _judge_silent(judge, memory, prompts["silent"])
        for case in cases:
            recall = judge.recall(memory, case["ask"], at=_SILENCE_AT)
            tally.measure("tokens of controls", recall.tokens)
            answered = any(_is_current(hit.text, case) for hit in recall.injected)
            tally.judge("answered", answered, {"said": case["ask"], "shown": _lines(recall, 3)})
        for number, case in enumerate(prompts["vague"]):
            _judge_vague(judge, memory, case, f"vague-{number}")
    vague = (tally.share("vague, in sight") + tally.share("vague, out of sight")) / 2
    return 0.75 * (tally.share("silent") + tally.share("answered") - 1) + 0.25 * vague


def _judge_silent(judge: CaseJudge, memory: MemTier, groups: Iterable[Case]) -> None:
    for group in groups:
        for prompt in group["say"]:
            recall = judge.recall(memory, prompt, at=_SILENCE_AT)
            judge.tally.measure("tokens", recall.tokens)
            judge.tally.measure("lines", len(recall.injected))
            kind = f"{group['kind']}/{group['lang']}"
            detail = {"kind": kind, "said": prompt, "shown": _lines(recall, 3)}
            judge.tally.judge("silent", not recall.injected, detail)


def _judge_vague(judge: CaseJudge, memory: MemTier, case: Case, session: str) -> None:
    """Judge a follow-up to a session visible in the prompt, then to one that is not."""
    shown = Shown(since=datetime.now(UTC) - timedelta(seconds=1))
    _end_runs(memory, session, case["now"])
    recall = judge.recall(memory, case["say"], session_id=session, shown=shown)
    detail = {"said": case["say"], "shown": _lines(recall, 3)}
    judge.tally.judge("vague, in sight", not recall.injected, detail)
    recall = judge.recall(memory, case["say"], session_id=session)
    first = recall.injected[:1]
    right = any(source.session == session for hit in first for source in hit.sources)
    detail = {"said": case["say"], "shown": _lines(recall, 3)}
    judge.tally.judge("vague, out of sight", right, detail)


def judge_currency(judge: CaseJudge) -> float:
    """Judge that the current value is shown first, and that no older one is unmarked."""
    cases = judge.load("currency", "cases")["cases"]
    others = judge.load("keep", "keep")["keep"][:_OTHER_LINES]
    for case in cases:
        with judge.open(f"currency-{case['id']}") as memory:
            for number, other in enumerate(others):
                at = datetime(2026, 1, 2 + number, tzinfo=UTC)
                _end_runs(memory, f"other-{number}", [{"user": other["say"]}], at)
            at = _record_history(memory, case)
            _consolidate(memory)
            _judge_current(judge, case, judge.recall(memory, case["ask"], at=at))
    return judge.tally.share("right")


def _judge_current(judge: CaseJudge, case: Case, recall: Recall) -> None:
    tally = judge.tally
    about = [h for h in recall.injected if _is_current(h.text, case) or _is_old(h.text, case)]
    shown = any(_is_current(hit.text, case) for hit in about)
    first = bool(about) and _is_current(about[0].text, case)
    marked = all(says_past(hit) for hit in about if _is_old(hit.text, case))
    detail = {"id": case["id"], "said": case["ask"], "shown": _lines(recall, 4)}
    for part, right in (("shown", shown), ("first", first), ("old marked", marked)):
        tally.judge(part, right)
    was = {"was": f"{shown=} {first=} {marked=}", **detail}
    tally.judge("right", shown and first and marked, was)
    if case.get("by"):
        tally.judge("first, by assistant or tool", first, detail)
    if case.get("people"):
        tally.judge("first, of two people", first, detail)


def judge_identity(judge: CaseJudge) -> float:
    """Judge that each of several people gets their own and shared facts, and no other's."""
    for case in judge.load("identity", "cases")["cases"]:
        with judge.open(f"identity-{case['id']}") as memory:
            for number, turn in enumerate(case["say"]):
                sender, text = next(iter(turn.items()))
                at = _FIRST_DAY + timedelta(days=number)
                _end_runs(memory, f"{sender}-{number}", [{"user": text}], at, sender)
            _consolidate(memory)
            for check in case["checks"]:
                _judge_identity(judge, memory, case["id"], check)
    return judge.tally.share("right")


def _judge_identity(judge: CaseJudge, memory: MemTier, case: str, check: Case) -> None:
    recall = judge.recall(memory, check["ask"], sender=check["as"], at=_IDENTITY_AT)
    lines = _lines(recall)
    has_own = all(any(_has(line, part) for line in lines) for part in check["want"])
    wrong = [line for line in lines if any(re.search(no, line, re.I) for no in check["not"])]
    detail = {"id": case, "as": check["as"], "said": check["ask"], "shown": lines[:4]}
    judge.tally.judge("told", has_own, detail)
    if check["not"]:
        judge.tally.judge("nobody else's", not wrong, {**detail, "wrong": wrong[:2]})
    judge.tally.judge("right", has_own and not wrong)


def judge_discretion(judge: CaseJudge) -> float:
    """Judge that a confidence never becomes a shared fact, and that a lookalike does."""
    tally, cases = judge.tally, judge.load("discretion", "confided", "open")
    facts = _shared_facts(judge, "discretion", [*cases["confided"], *cases["open"]])
    for case in cases["confided"]:
        texts = [fact.text for fact in facts[case["say"]]]
        tally.judge("kept private", not texts, {"said": case["say"], "fact": texts})
    for case in cases["open"]:
        texts = [fact.text for fact in facts[case["say"]]]
        shared = any(_has(text, case["key"]) for text in texts)
        tally.judge("shared", shared, {"said": case["say"], "fact": texts})
    return tally.share("kept private") + tally.share("shared") - 1


def judge_keep(judge: CaseJudge) -> float:
    """Judge that statements worth keeping become faithful facts, and nothing else does."""
    tally, cases = judge.tally, judge.load("keep", "keep", "none")
    facts = _shared_facts(judge, "keep", [*cases["keep"], *cases["none"]])
    for case in cases["keep"]:
        made = facts[case["say"]]
        texts = [f"{fact.text} {fact.subject} {fact.relation} {fact.value}" for fact in made]
        kept = any(all(_has(text, part) for part in case["fact"]) for text in texts)
        tally.judge("kept", kept, {"said": case["say"], "fact": [fact.text for fact in made]})
    for case in cases["none"]:
        texts = [fact.text for fact in facts[case["say"]]]
        tally.judge("left alone", not texts, {"said": case["say"], "fact": texts})
    return tally.share("kept") + tally.share("left alone") - 1


def _shared_facts(judge: CaseJudge, project: str, cases: Sequence[Case]) -> dict[str, list[Fact]]:
    """Record each statement as a separate run; return the facts that another agent sees."""
    statements: dict[str, str] = {}
    with judge.open(project) as memory:
        for number, case in enumerate(cases):
            [entry] = memory.record(
                [{"role": "user", "content": case["say"]}],
                session_id=f"s{number}",
                run_id=f"r{number}",
                observed_at=_FIRST_DAY + timedelta(hours=number),
            )
            statements[entry.id] = case["say"]
        _consolidate(memory)
    facts: dict[str, list[Fact]] = {case["say"]: [] for case in cases}
    with judge.open(project, "other") as other:
        for fact in other.facts():
            if fact.status == "active":
                of = {statements[s.entry] for s in fact.sources if s.entry in statements}
                for statement in of:
                    facts[statement].append(fact)
    return facts


SETS: Final[Mapping[str, Callable[[CaseJudge], float]]] = {
    "silence": judge_silence,
    "currency": judge_currency,
    "identity": judge_identity,
    "discretion": judge_discretion,
    "keep": judge_keep,
}
