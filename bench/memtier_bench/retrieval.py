"""Run a data set through MemTier or a baseline, and measure retrieval and answers.

Each conversation is recorded exchange by exchange into a separate project in a temporary home, and
every question is asked through the public API.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.answer_credit import act_on_block, credit_right_answer
from memtier_bench.answers import ReaderAnswer
from memtier_bench.baselines import Bm25Baseline
from memtier_bench.datasets import Conversation, Dataset, DatasetQuestion, load_dataset
from memtier_bench.metrics import (
    QuestionOutcome,
    latency_percentiles,
    question_figures,
    source_turns,
    summarise_outcomes,
)
from memtier_bench.probe import peak_rss_mb
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import DEFAULT_CONDITIONS, ReaderModel, build_full_block
from memtier_plugin.core.errors import ImportFileError, Unsupported
from memtier_plugin.core.records import FactDraft
from memtier_plugin.core.results import Hit, Recall
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding.encoder import EncoderEmbedder

FACTS: Final = ("none", "dataset", "extracted")
_SEED: Final = 42  # of the sample of questions
# Milliseconds: a reranker that a busy machine makes late must not change a figure
_PATIENCE: Final = 600_000


def run_retrieval(
    dataset: str,
    data: Path,
    profile: str | None = None,
    facts: str = "none",
    baseline: str | None = None,
    limit: int | None = None,
    sample: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    reader: ReaderModel | None = None,
    conditions: Sequence[str] = DEFAULT_CONDITIONS,
    progress: Progress | None = None,
    *,
    learn: bool = False,
) -> dict[str, Any]:
    """Ask every question of a data set and measure the results; return a JSON report.

    Args:
        dataset: `locomo`, `beam` or `longmemeval`.
        data: the file or folder of the data set.
        profile: the retrieval profile [the configured one].
        facts: `none`, `dataset` (the data set's own) or `extracted` (by a consolidation).
        baseline: run this baseline instead of MemTier.
        limit, sample: ask only the first questions, or a stratified sample of this size.
        overrides: settings for the run, by dotted key.
        reader: also let it answer, given each of the ``conditions`` of `reading`.
        progress: called for each step.
        learn: credit the injected items of each question answered right, as MemTier's benchmark
            does (section 3.2): by the reader, or without one if a gold turn is injected.

    Raises:
        ImportFileError: the data set is unknown, not as published, or without evidence.
        Unsupported: no such baseline or facts; the data set states no facts, or has no answers.
        SettingsError: an override is not a setting.
        EndpointError: the reader does not answer.
    """
    if baseline and reader:
        raise Unsupported(f"the baseline {baseline!r} injects nothing for a reader to read")
    loaded = prepare_dataset(dataset, data, facts, limit, sample, answered=reader is not None)
    chosen = {**(overrides or {}), **({"retrieval.profile": profile} if profile else {})}
    return measure_dataset(
        loaded, facts, baseline, chosen, reader, conditions, progress, learn=learn
    )


def measure_dataset(
    loaded: Dataset,
    facts: str = "none",
    baseline: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    reader: ReaderModel | None = None,
    conditions: Sequence[str] = DEFAULT_CONDITIONS,
    progress: Progress | None = None,
    *,
    learn: bool = False,
) -> dict[str, Any]:
    """Ask the questions of a loaded data set; arguments and report as for `run_retrieval`."""
    run = BenchRun(loaded=loaded, facts=facts, progress=progress or no_progress, learn=learn)
    settings, outcomes = (
        ({}, list(run.rank_by(baseline)))
        if baseline
        else _run_memtier(run, overrides or {}, reader, conditions)
    )
    return {
        "dataset": loaded.name,
        "profile": baseline or settings["retrieval.profile"],
        "facts": facts,
        "facts_stored": run.facts_stored,
        "questions": sum(bool(outcome.gold) for outcome in outcomes),
        "skipped": loaded.skipped,
        "unresolved": loaded.unresolved,
        "reader": reader.model if reader else None,
        **run.credits_counted(),
        **summarise_outcomes(outcomes),
        "ingest": {"turns": run.turns, "seconds": round(run.seconds, 3)},
        "latency_ms": latency_percentiles([outcome.seconds for outcome in outcomes]),
        "inject_latency_ms": latency_percentiles(
            [outcome.inject_seconds for outcome in outcomes if outcome.inject_seconds is not None]
        ),
        "peak_rss_mb": peak_rss_mb(),
        "version": memtier_plugin.__version__,
        "settings": settings,
        "fingerprint": dataset_fingerprint(loaded),
        "per_question": [question_figures(outcome) for outcome in outcomes],
    }


def prepare_dataset(
    dataset: str,
    data: Path,
    facts: str = "none",
    limit: int | None = None,
    sample: int | None = None,
    *,
    answered: bool = False,
) -> Dataset:
    """Load a data set and select the questions to ask; arguments as for `run_retrieval`."""
    loaded = load_dataset(dataset, data, answered=answered)
    return select_questions(loaded, data, facts, limit, sample)


def select_questions(
    loaded: Dataset,
    data: Path,
    facts: str = "none",
    limit: int | None = None,
    sample: int | None = None,
) -> Dataset:
    """Return a data set with the questions to ask; arguments as for `run_retrieval`."""
    if facts not in FACTS:
        raise Unsupported(f"facts {facts!r}; one of: {', '.join(FACTS)}")
    if facts == "dataset" and not any(c.facts for c in loaded.conversations):
        raise Unsupported(
            f"{loaded.name} states no facts of its own; "
            "use facts 'none', or 'extracted' for MemTier's"
        )
    questions = [question for c in loaded.conversations for question in c.questions]
    if sample is not None:
        questions = _draw_questions(questions, sample)
    chosen = set(map(id, questions[:limit]))
    if not chosen:
        raise ImportFileError(f"{data}: no question of {loaded.name} names a turn that answers it")
    conversations = (
        replace(c, questions=tuple(q for q in c.questions if id(q) in chosen))
        for c in loaded.conversations
    )
    return replace(loaded, conversations=tuple(c for c in conversations if c.questions))


def dataset_fingerprint(loaded: Dataset) -> str:
    """Return a hash that identifies these questions and their evidence."""
    questions = [[q.id, q.text, sorted(q.gold)] for c in loaded.conversations for q in c.questions]
    return sha256(json.dumps(sorted(questions)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """A recorded conversation: the turn of each entry, and each turn as a hit."""

    names: dict[str, str] = field(default_factory=dict)
    hits: dict[str, Hit] = field(default_factory=dict)

    def turns(self, hits: Iterable[Hit]) -> tuple[str, ...]:
        """Return the distinct source turns of hits, in order."""
        return source_turns(
            [self.names[source.entry] for source in hit.sources if source.entry in self.names]
            for hit in hits
        )


@dataclass(slots=True, kw_only=True)
class BenchRun:
    """Records conversations and asks their questions, with counts and timings.

    ``recordings`` and ``repeats``: how often each conversation is recorded, and queried; ``learn``:
    whether right answers change weights, and ``credited`` how many did; ``acts``: whether each
    question is a run with a call.
    """

    loaded: Dataset
    facts: str
    progress: Progress
    recordings: int = 1
    repeats: int = 1
    turns: int = 0
    seconds: float = 0.0
    facts_stored: int = 0
    asked: int = 0
    learn: bool = False
    credited: int = 0
    acts: bool = False

    def recorded_conversations(
        self, overrides: Mapping[str, Any] | None
    ) -> Iterator[tuple[MemTier, Conversation, RecordedConversation]]:
        """Record each conversation into a separate project in a temporary home; yield it open.

        A conversation with questions before its end comes in stages, each including the earlier
        ones.
        """
        with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
            home = Path(folder) / "home"
            for conversation in self.loaded.conversations:
                recorded = RecordedConversation()
                with MemTier.open(home, conversation.id, settings=overrides) as memory:
                    for stage in conversation.stages:
                        yield memory, stage, self.record(memory, stage, recorded)

    @contextmanager
    def recorded_together(
        self, overrides: Mapping[str, Any] | None
    ) -> Iterator[list[tuple[MemTier, Conversation, RecordedConversation]]]:
        """Record each whole conversation into a separate project; yield all of them open."""
        with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder, ExitStack() as stack:
            opened = []
            for conversation in self.loaded.conversations:
                memory = MemTier.open(Path(folder) / "home", conversation.id, settings=overrides)
                stack.enter_context(memory)
                opened.append((memory, conversation, self.record(memory, conversation)))
            yield opened

    def rank_by(self, baseline: str) -> Iterator[QuestionOutcome]:
        """Rank the turns of each conversation by a baseline.

        Raises:
            Unsupported: there is no such baseline.
        """
        for conversation in self.loaded.conversations:
            ranking = Bm25Baseline(baseline, replace(conversation, sessions=()))
            for stage in conversation.stages:
                started = time.perf_counter()
                ranking.add(stage.sessions)
                self.seconds += time.perf_counter() - started
                self.turns += len(stage.turns)
                for question in stage.questions:
                    started = time.perf_counter()
                    ranked = ranking.rank(question.text)
                    seconds = time.perf_counter() - started
                    yield QuestionOutcome(
                        id=question.id,
                        category=question.category,
                        gold=question.gold,
                        ranked=ranked,
                        seconds=seconds,
                    )
                    self.count_asked()

    def record(
        self,
        memory: MemTier,
        conversation: Conversation,
        recorded: RecordedConversation | None = None,
    ) -> RecordedConversation:
        """Record a conversation and, if configured, its facts.

        Args:
            recorded: the earlier stages of the conversation; this one is added to it.
        """
        recorded = recorded or RecordedConversation()
        names, hits = recorded.names, recorded.hits
        total = self.recordings * sum(len(c.turns) for c in self.loaded.conversations)
        started = time.perf_counter()
        for session in conversation.sessions:
            for run in session.exchanges:
                entries = memory.record(
                    run.messages,
                    session_id=session.session_id,
                    run_id=run.run_id,
                    observed_at=session.observed_at,
                )
                for turn, entry in zip(run.turns, entries, strict=True):
                    names[entry.id] = turn.id
                    hits[turn.id] = Hit(item=entry, score=1.0, signals={}, sources=(entry.source,))
                self.turns += len(entries)
                self.progress("ingest", self.turns, total)
        known = 0 if self.facts == "none" else len(memory.facts())
        if self.facts == "dataset":
            memory.add_facts(
                FactDraft(
                    subject=fact.speaker,
                    relation="observed",
                    value=fact.text,
                    text=fact.text,
                    sources=tuple(hits[name].sources[0] for name in fact.gold_ids),
                    extractor="dataset",
                    confidence=1.0,
                )
                for fact in conversation.facts
            )
        elif self.facts == "extracted":
            while memory.consolidate().read:
                pass
        if self.facts != "none":  # those in force: some replace others, or are undone
            self.facts_stored += len(memory.facts()) - known
        if isinstance(memory.store.embedder, EncoderEmbedder):
            memory.reembedding.run()  # what the daemon does in the background
        self.seconds += time.perf_counter() - started
        return recorded

    def ask(
        self,
        memory: MemTier,
        conversation: Conversation,
        recorded: RecordedConversation,
        reader: ReaderModel | None = None,
        conditions: Sequence[str] = DEFAULT_CONDITIONS,
        *,
        credits: bool = False,
    ) -> Iterator[QuestionOutcome]:
        """Ask the questions about a conversation.

        Each is asked twice: as a search, whose hits are ranked, and as the first prompt of a new
        session, whose block is what gets injected.

        Args:
            credits: where each question is a run, whether the outcome of its call counts.
        """
        for question in conversation.questions:
            started = time.perf_counter()
            search = memory.recall(
                question.text, purpose="search", at=question.at, deadline_ms=_PATIENCE
            )
            searched = time.perf_counter()
            recall = memory.recall(
                question.text,
                session_id=f"asked:{self.asked}",
                # Only named runs take part in `causes.withhold`
                run_id=f"{conversation.id} {question.id}",
                purpose="inject",
                at=question.at,
                deadline_ms=_PATIENCE,
            )
            injected = time.perf_counter()
            answers = (
                _ask_reader(reader, question, recorded, recall, conditions)
                if reader and question.answer
                else {}
            )
            turns = recorded.turns(recall.injected)
            shown = frozenset(turns)
            if self.learn and (right := _right_answer(question, recorded, shown, answers)):
                run_id = f"answered:{self.asked}"
                self.credited += credit_right_answer(memory, recall, run_id, right)
            if self.acts:
                answering = sorted(question.gold & shown)
                taken = "\n".join(recorded.hits[turn].text for turn in answering or turns[:1])
                self._act(memory, recall, taken, question.at, ok=bool(answering), credits=credits)
            yield QuestionOutcome(
                id=question.id,
                category=question.category,
                gold=question.gold,
                ranked=recorded.turns(search.hits),
                injected=shown,
                tokens=recall.tokens,
                seconds=searched - started,
                inject_seconds=injected - searched,
                answers=answers,
            )
            self.count_asked()

    def _act(
        self, memory: MemTier, recall: Recall, taken: str, at: datetime | None, **outcome: bool
    ) -> None:
        act_on_block(memory, recall, f"asked:{self.asked}", taken, at, **outcome)

    def credits_counted(self) -> dict[str, int]:
        """Return how many right answers changed a weight, for the report of a learning run."""
        return {"credited": self.credited} if self.learn else {}

    def count_asked(self) -> None:
        """Count a question and report the progress."""
        self.asked += 1
        total = self.repeats * sum(len(c.questions) for c in self.loaded.conversations)
        self.progress("ask", self.asked, total)


def _run_memtier(
    run: BenchRun,
    overrides: Mapping[str, Any],
    reader: ReaderModel | None,
    conditions: Sequence[str],
) -> tuple[dict[str, Any], list[QuestionOutcome]]:
    """Record each conversation and ask about it; return the settings too."""
    settings: dict[str, Any] = {}
    outcomes: list[QuestionOutcome] = []
    for memory, conversation, recorded in run.recorded_conversations(overrides):
        settings = flatten_settings(memory.settings)
        outcomes += run.ask(memory, conversation, recorded, reader, conditions)
    return settings, outcomes


def _ask_reader(
    reader: ReaderModel,
    question: DatasetQuestion,
    recorded: RecordedConversation,
    recall: Recall,
    conditions: Sequence[str],
) -> dict[str, ReaderAnswer]:
    """Have the reader answer under each condition."""
    gold = {turn: recorded.hits[turn] for turn in recorded.hits if turn in question.gold}
    sessions = {source.session for hit in gold.values() for source in hit.sources}
    shown: dict[str, list[Hit]] = {
        "none": [],
        "oracle": [*gold.values()],
        "sessions": [
            hit
            for hit in recorded.hits.values()
            if any(source.session in sessions for source in hit.sources)
        ],
        "full": [*recorded.hits.values()],
    }
    return {
        condition: reader.answer(question, recall.text, recall.id)
        if condition == "memory"
        else reader.answer(question, build_full_block(shown[condition]))
        for condition in conditions
    }


def _right_answer(
    question: DatasetQuestion,
    recorded: RecordedConversation,
    shown: frozenset[str],
    answers: Mapping[str, ReaderAnswer],
) -> str:
    """Return the text of a right answer: the reader's, or without one the evidence shown."""
    if answer := answers.get("memory"):
        return answer.text if answer.soft_em else ""
    return "\n".join(recorded.hits[turn].text for turn in sorted(question.gold & shown))


def _draw_questions(questions: Sequence[DatasetQuestion], size: int) -> list[DatasetQuestion]:
    """Draw a stratified sample of questions, in their order; all if there are fewer.

    Rounding leftovers go to the categories with the largest remainders.
    """
    groups: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        groups.setdefault(question.category, []).append(index)
    size = min(size, len(questions))
    shares = {name: size * len(group) / len(questions) for name, group in groups.items()}
    left = size - sum(map(int, shares.values()))
    most = sorted(shares, key=lambda name: (int(shares[name]) - shares[name], name))[:left]
    chance = random.Random(_SEED)
    drawn = [
        index
        for name in sorted(groups)
        for index in chance.sample(groups[name], int(shares[name]) + (name in most))
    ]
    return [questions[index] for index in sorted(drawn)]
