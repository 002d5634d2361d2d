"""`memtier bench answers`: what a reader answers from nothing, BM25, MemTier and the gold lines.

Each question is put to one reader four times: with no memory (``none``), with the lines that
stemmed BM25 ranks first in a block of the same budget (``bm25``), with the block that would be
injected (``memory``), and with the gold lines alone (``gold``), the ceiling of this reader.  Where
nothing that was said tells, "unknown" is right, and no line is gold.  If wanted `MemTier.ask`
answers with the same reader, too (``ask``), and what it cites is held against the gold lines.

Questions are asked in an order drawn by a seed in which every beginning has each category's share:
a run that is cut off has measured a sample, and a longer one goes on from its replies.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_bench.answers import ReaderAnswer, judge_answer, summarise_answers
from memtier_bench.baselines import Bm25Baseline
from memtier_bench.datasets import Conversation, Dataset, DatasetQuestion, load_dataset
from memtier_bench.intervals import wilson_interval
from memtier_bench.metrics import mean, percentile
from memtier_bench.progress import Progress, no_progress
from memtier_bench.reading import ReaderModel, build_full_block
from memtier_bench.retrieval import BenchRun, RecordedConversation, dataset_fingerprint
from memtier_plugin.answering.answerer import EXTRACTIVE
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import count_tokens
from memtier_plugin.core.results import Hit
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import SHORT_ID_CHARS, BlockPlan

ARMS: Final = ("none", "bm25", "memory", "gold")
ASK: Final = "ask"
PAIRS: Final = (  # first minus second
    ("memory", "bm25"),
    ("memory", "none"),
    ("memory", "gold"),
    ("ask", "memory"),
)
SEED: Final = 42
READER_INSTRUCTION: Final = (
    "Answer the question with the answer alone, in as few words as possible. "
    "Where recalled memory stands above it, go by that. "
    "If nothing there tells the answer, say: unknown."
)
_RECALL_ID: Final = "bench"
_PATIENCE: Final = 600_000  # milliseconds
_SCORES: Final = ("f1", "soft_em_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question, the block of each arm, and how long MemTier took for its own.

    ``asked`` is what `MemTier.ask` answered, and ``cites_gold`` whether it cites a gold line; None
    where it was not asked, or cites nothing.
    """

    question: DatasetQuestion
    blocks: Mapping[str, str]
    seconds: float
    asked: ReaderAnswer | None = None
    cites_gold: bool | None = None


def run_answers(
    dataset: str,
    data: Path,
    reader: ReaderModel,
    facts: str = "none",
    sample: int | None = None,
    seed: int = SEED,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    keep: Callable[[Mapping[str, Any]], None] | None = None,
    ask: bool = False,
) -> dict[str, Any]:
    """Put the questions of a data set to a reader under each arm; return a JSON report.

    Args:
        dataset, data, facts, overrides, progress: as for `run_retrieval`.
        sample: how many questions are asked; all if None.
        seed: of their order.
        keep: called with the report so far, now and then.
        ask: whether `MemTier.ask` answers, too.

    Raises:
        ImportFileError: the data set is unknown, not as published, or has no questions.
        Unsupported: the data set has no short answers.
        EndpointError: the reader does not answer.
    """
    tell = progress or no_progress
    loaded = load_dataset(dataset, data, answered=True, unanswerable=True)
    order = draw_order([q for c in loaded.conversations for q in c.questions], seed)[:sample]
    if not order:
        raise ImportFileError(f"{data}: no question of {dataset} has a short answer")
    loaded = _only(loaded, order)
    run = BenchRun(loaded=loaded, facts=facts, progress=tell)
    if ask:
        overrides = {**(overrides or {}), **reader.settings_for("ask.model")}
    asked, settings = _recall_all(run, overrides, len(order) if ask else 0)
    head = {
        "dataset": dataset,
        "kind": "answers",
        "facts": facts,
        "seed": seed,
        "reader": reader.describe(),
        "profile": settings["retrieval.profile"],
        "version": memtier_plugin.__version__,
        "settings": settings,
        "fingerprint": dataset_fingerprint(loaded),
    }
    answers: list[tuple[AskedQuestion, dict[str, ReaderAnswer]]] = []
    for number, drawn in enumerate(order):
        question = asked[drawn.id]
        replies = {}
        for index, arm in enumerate(ARMS):
            tell("ask", number * len(ARMS) + index, len(order) * len(ARMS))
            replies[arm] = reader.answer(question.question, question.blocks[arm])
        if question.asked:
            replies[ASK] = question.asked
        answers.append((question, replies))
        if keep and len(answers) % 10 == 0:
            keep({**head, **summarise_arms(answers)})
    return {**head, **summarise_arms(answers)}


def _recall_all(
    run: BenchRun, overrides: Mapping[str, Any] | None, asks: int
) -> tuple[dict[str, AskedQuestion], dict[str, Any]]:
    """Return what each question is given, by its id, and the settings.

    Args:
        asks: how many questions `MemTier.ask` answers, too: all or none.
    """
    settings: dict[str, Any] = {}
    asked: dict[str, AskedQuestion] = {}
    for memory, conversation, recorded in run.recorded_conversations(overrides):
        settings = flatten_settings(memory.settings)
        for question in _blocks_of(memory, conversation, recorded):
            if asks:
                run.progress(ASK, len(asked), asks)
                question = _with_answer(question, memory, recorded)
            asked[question.question.id] = question
    return asked, settings


def draw_order(questions: Iterable[DatasetQuestion], seed: int) -> list[DatasetQuestion]:
    """Return the questions in a random order whose beginnings have each category's share."""
    groups: dict[str, list[DatasetQuestion]] = {}
    for question in questions:
        groups.setdefault(question.category, []).append(question)
    placed = []
    for name in sorted(groups):
        group = groups[name]
        random.Random(f"{seed} {name}").shuffle(group)
        placed += [((rank + 0.5) / len(group), q.id, q) for rank, q in enumerate(group)]
    return [question for _, _, question in sorted(placed, key=lambda item: item[:2])]


def _only(loaded: Dataset, order: Sequence[DatasetQuestion]) -> Dataset:
    chosen = {question.id for question in order}
    conversations = (
        replace(c, questions=tuple(q for q in c.questions if q.id in chosen))
        for c in loaded.conversations
    )
    return replace(loaded, conversations=tuple(c for c in conversations if c.questions))


def _blocks_of(
    memory: MemTier, conversation: Conversation, recorded: RecordedConversation
) -> Iterator[AskedQuestion]:
    """Yield each question with the blocks of all arms."""
    budget = memory.settings.retrieval.token_budget
    ranking = Bm25Baseline("bm25-stem", conversation)
    for number, question in enumerate(conversation.questions):
        started = time.perf_counter()
        recall = memory.recall(
            question.text,
            session_id=f"asked:{number}",
            purpose="inject",
            at=question.at,
            deadline_ms=_PATIENCE,
        )
        seconds = time.perf_counter() - started
        ranked = [recorded.hits[turn] for turn in ranking.rank(question.text)]
        first, bm25 = BlockPlan(ranked, len(ranked), budget).fill(_RECALL_ID)
        gold = [hit for turn, hit in recorded.hits.items() if turn in question.gold]
        if question.unanswerable:
            gold = []
        yield AskedQuestion(
            question=question,
            blocks={
                "none": "",
                "bm25": _with_fixed_ids(bm25, first),
                "memory": _with_fixed_ids(
                    recall.text.replace(recall.id, _RECALL_ID), recall.injected
                ),
                "gold": _with_fixed_ids(build_full_block(gold), gold) if gold else "",
            },
            seconds=seconds,
        )


def _with_answer(
    asked: AskedQuestion, memory: MemTier, recorded: RecordedConversation
) -> AskedQuestion:
    """Return a question with what `MemTier.ask` answers to it; quoted lines answer nothing."""
    question, started = asked.question, time.perf_counter()
    answer = memory.ask(question.text, at=question.at, write_back=False)
    by_model = answer.answered and answer.by != EXTRACTIVE
    reply = judge_answer(
        answer.text if by_model else "unknown",
        question.answer or "",
        prompt_tokens=answer.tokens,
        completion_tokens=0,
        seconds=time.perf_counter() - started,
    )
    gold = {hit.id for turn, hit in recorded.hits.items() if turn in question.gold}
    cites_gold = any(cited.id in gold for cited in answer.citations) if by_model else None
    return replace(asked, asked=reply, cites_gold=cites_gold)


def _with_fixed_ids(block: str, hits: Iterable[Hit]) -> str:
    """Return a block whose lines have ids by their text, so that each run asks the same."""
    for hit in hits:
        fixed = sha256(hit.text.encode()).hexdigest()[:SHORT_ID_CHARS].upper()
        block = block.replace(hit.id[-SHORT_ID_CHARS:], fixed)
    return block


def summarise_arms(
    answers: Sequence[tuple[AskedQuestion, Mapping[str, ReaderAnswer]]],
) -> dict[str, Any]:
    """Return the figures of each arm, their paired differences, and those of each question."""
    known = [(a, replies) for a, replies in answers if not a.question.unanswerable]
    others = [(a, replies) for a, replies in answers if a.question.unanswerable]
    arms: dict[str, Any] = {}
    for arm in answers[0][1]:
        every = [replies[arm] for _, replies in answers]
        seconds = [answer.seconds for answer in every]
        arms[arm] = {
            **_scores([(a.question.category, replies[arm]) for a, replies in known]),
            "block_tokens": mean([count_tokens(a.blocks.get(arm, "")) for a, _ in answers]),
            "prompt_tokens": mean([answer.prompt_tokens for answer in every]),
            "seconds": {"mean": mean(seconds), "p95": round(percentile(seconds, 0.95), 3)},
            "unknown": _share([replies[arm].unknown for _, replies in others]),
            "needless_unknown": _share([replies[arm].unknown for _, replies in known]),
        }
    differences = {
        f"{ours} - {theirs}": {score: _difference(known, ours, theirs, score) for score in _SCORES}
        for ours, theirs in PAIRS
        if known and ours in arms and theirs in arms
    }
    return {
        "questions": len(known),
        "unanswerable": len(others),
        "arms": arms,
        "differences": differences,
        "recall_seconds": mean([a.seconds for a, _ in answers]),
        "cites_gold": _share([a.cites_gold for a, _ in known if a.cites_gold is not None]),
        "per_question": [_question_row(a, replies) for a, replies in answers],
    }


def _scores(answers: Sequence[tuple[str, ReaderAnswer]]) -> dict[str, Any]:
    """Return the scores of answers to what can be known; those of dates and numbers apart."""
    if not answers:
        return {}
    judged = [answer.numbers for _, answer in answers if answer.numbers is not None]
    return {**summarise_answers(answers), "numbers": _share(judged)}


def _share(values: Sequence[bool]) -> dict[str, Any]:
    low, high = wilson_interval(sum(values), len(values))
    share = round(sum(values) / len(values), 4) if values else None
    return {"share": share, "interval": [round(low, 4), round(high, 4)], "of": len(values)}


def _difference(
    answers: Sequence[tuple[AskedQuestion, Mapping[str, ReaderAnswer]]],
    ours: str,
    theirs: str,
    score: str,
) -> list[float]:
    """Return the mean difference of two arms on the same questions, and its bounds."""
    first, second = (
        [float(getattr(replies[arm], score)) for _, replies in answers] for arm in (ours, theirs)
    )
    change = paired_difference(first, second)
    return [round(value, 4) for value in (change.mean, change.low, change.high)]


def _question_row(asked: AskedQuestion, replies: Mapping[str, ReaderAnswer]) -> dict[str, Any]:
    question = asked.question
    return {
        "id": question.id,
        "category": question.category,
        "question": question.text,
        "expected": None if question.unanswerable else question.answer,
        "answers": {
            arm: {
                "text": answer.text,
                "f1": round(answer.f1, 6),
                "soft_em": float(answer.soft_em),
                "soft_em_tokens": float(answer.soft_em_tokens),
                "numbers": answer.numbers,
                "unknown": answer.unknown,
                "block_tokens": count_tokens(asked.blocks.get(arm, "")),
                "prompt_tokens": answer.prompt_tokens,
                "seconds": answer.seconds,
            }
            for arm, answer in replies.items()
        },
    }
