"""Try levers on the ranking and on the block, on several data sets at once.

Every question is asked once, with the floor of the settings; what a lever would change is computed
from the hits, and compared by a paired bootstrap with what is shipped (`*`: the 95 % interval
excludes 0).  Levers on the ranking are judged by recall@10, those on the block by the share of gold
turns in it, and by the share of the gold turns' words, which a shorter passage may lose.

    python scripts/try_levers.py --locomo locomo.json --beam beam/ --sets sets/ [--sample 150]

prints one row a lever and one column a set.  docs/judgement.md has the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from memtier_bench.datasets import Dataset, DatasetQuestion, load_dataset, load_sets
from memtier_bench.metrics import recall_at, source_turns
from memtier_bench.retrieval import BenchRun, RecordedConversation, select_questions
from memtier_papers.mem_t.decomposition import take_parts
from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.credit.verdict import paired_difference
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.block import format_line, pack
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.text.passages import SPARED_CHARS, select_passage

K, BUDGET, PASSAGE = 16, 600, 60  # the defaults
FRAME: Final = 45  # tokens of an empty block
_FIRST: Final = 6  # lines that keep their places whatever else is kept for


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, its hits in their order, and what the block is chosen from.

    Attributes:
        column: the set, or the part of a set.
        offered: the indexes of the hits that the floor leaves, weak ones included.
        weak: those of them that fall too far behind the best line.
        parts: for each part of a question with "and" or "or", the scores of its hits by id.
    """

    column: str
    gold: frozenset[str]
    question: str
    hits: Sequence[Hit]
    turns: Sequence[tuple[str, ...]]
    offered: Sequence[int]
    weak: frozenset[int]
    silent: bool
    terms: Mapping[str, float]
    words: Callable[[str], Sequence[str]]
    parts: Sequence[Mapping[str, float]]

    @property
    def scores(self) -> np.ndarray:
        """The score of each hit: (n)."""
        return np.array([hit.score for hit in self.hits])

    def recall(self, order: Sequence[int]) -> float:
        """Return recall@10 of the hits in an order."""
        return recall_at(source_turns(self.turns[index] for index in order), self.gold, 10)


# -- asking ----------------------------------------------------------------------------------------


def ask_all(part: Dataset, model: str, split: bool) -> Iterator[Asked]:
    """Ask every question of a data set.

    Args:
        model: the embedding model (`embedding.model`).
        split: whether the set's categories are columns of their own.
    """
    run = BenchRun(loaded=part, facts="none", progress=lambda what, done, total: None)
    for memory, stage, recorded in run.recorded_conversations({"embedding.model": model}):
        for question in stage.questions:
            column = f"{part.name}/{question.category}" if split else part.name
            yield _ask(memory, recorded, question, column)


def _ask(
    memory: MemTier, recorded: RecordedConversation, question: DatasetQuestion, column: str
) -> Asked:
    actor, plan_recall = memory.actor, memory._recaller.plan
    viewer = Viewer(actor.agent, None, False, question.at or actor.clock())
    search, inject = RecallRequest(purpose="search"), RecallRequest(purpose="inject")
    plan = plan_recall(question.text, viewer, search)
    block = plan_recall(question.text, viewer, inject)
    offered_ids = {hit.id for hit in block.block.hits}
    weak_ids = {id_ for id_, why in block.left_out.items() if why == "weak"}
    offered = [i for i, hit in enumerate(plan.hits) if hit.id in offered_ids | weak_ids]
    parts = [
        {hit.id: hit.score for hit in plan_recall(text, viewer, search).hits}
        for text in take_parts(question.text)
    ]
    return Asked(
        column=column,
        gold=question.gold,
        question=question.text,
        hits=plan.hits,
        turns=[recorded.turns([hit]) for hit in plan.hits],
        offered=offered,
        weak=frozenset(i for i in offered if plan.hits[i].id in weak_ids),
        silent=bool(block.judged.silent),
        terms=plan.result.terms,
        words=memory.store.tokenizer.words,
        parts=parts,
    )


# -- levers on the ranking -------------------------------------------------------------------------


def best_first(scores: np.ndarray) -> list[int]:
    """Return indexes by falling score: (n) -> (n)."""
    return [int(index) for index in np.argsort(-scores, kind="stable")]


def as_shipped(asked: Asked) -> list[int]:
    """Return the shipped order."""
    return [*range(len(asked.hits))]


def by_parts(asked: Asked, share: float, highest: bool) -> list[int]:
    """Add to each score that of the question's parts: of all, or the highest."""
    if not asked.parts:
        return as_shipped(asked)
    table = np.array([[part.get(hit.id, 0.0) for hit in asked.hits] for part in asked.parts])
    together = table.max(axis=0) if highest else table.sum(axis=0)
    return best_first((1 - share * highest) * asked.scores + share * together)


def by_person(asked: Asked) -> list[int]:
    """Take turns between the people whom a question names, if it names several."""
    question = asked.question.casefold()
    speakers = [getattr(hit.item, "speaker", None) or "" for hit in asked.hits]
    named = {name for name in speakers if name and name.casefold() in question}
    if len(named) < 2:
        return as_shipped(asked)
    lists = [[i for i, s in enumerate(speakers) if s == name] for name in sorted(named)]
    length = max(map(len, lists))
    turns = [line[n] for n in range(length) for line in lists if n < len(line)]
    return [*turns, *(i for i in as_shipped(asked) if i not in {*turns})]


def spread(asked: Asked, session: float, near: float) -> list[int]:
    """Choose one by one, each lowering the scores of its session, and of the turns near it."""
    scores = asked.scores
    sessions = np.array([getattr(hit.item, "session_id", hit.id) for hit in asked.hits], object)
    turns = np.array([getattr(hit.item, "turn", 0) or 0 for hit in asked.hits])
    chosen: list[int] = []
    for _ in range(min(30, len(scores))):
        index = int(np.argmax(scores))
        chosen.append(index)
        same = sessions == sessions[index]
        scores = scores - session * same - near * (same & (abs(turns - turns[index]) <= 3))
        scores[chosen] = -np.inf
    return chosen


def by_new_words(asked: Asked, weight: float, as_set: bool) -> list[int]:
    """Prefer lines with words that neither the question nor, as a set, the lines before have."""
    known = {*asked.words(asked.question)}
    own = [{*asked.words(hit.text)} - known for hit in asked.hits]
    if not as_set:
        return best_first(asked.scores + weight * np.minimum(1, [len(line) / 20 for line in own]))
    scores, chosen = asked.scores, list[int]()
    left = {*range(len(own))}
    for _ in range(min(30, len(own))):
        news = {i: min(1.0, len(own[i] - known) / 20) for i in left}
        index = max(left, key=lambda i: (scores[i] + weight * news[i], -i))
        chosen.append(index)
        left.remove(index)
        known |= own[index]
    return chosen


RANKINGS: Final[Mapping[str, Callable[[Asked], Sequence[int]]]] = {
    "parts of the question, their sum x .5": lambda asked: by_parts(asked, 0.5, False),
    "parts of the question, the highest x .5": lambda asked: by_parts(asked, 0.5, True),
    "people in turn": by_person,
    "session spread .2": lambda asked: spread(asked, 0.2, 0.0),
    "session spread .5": lambda asked: spread(asked, 0.5, 0.0),
    "neighbours spread .5": lambda asked: spread(asked, 0.0, 0.5),
    "new words x 1": lambda asked: by_new_words(asked, 1.0, False),
    "new words as a set x 1": lambda asked: by_new_words(asked, 1.0, True),
    "new words as a set x 2": lambda asked: by_new_words(asked, 2.0, True),
}

# -- levers on the block ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """The share of gold turns in a block, of their words, and the block's tokens."""

    turns: float
    words: float
    tokens: int


def fill(asked: Asked, tokens: int = PASSAGE, *, weak: bool = False, nearest: int = 0) -> Block:
    """Fill a block.

    Args:
        tokens: what a line shows of a long text.
        weak: whether lines that fall far behind the best one are offered, too.
        nearest: how many places are kept for what is nearest in meaning, whatever its words.
    """
    rows = [] if asked.silent else [i for i in asked.offered if weak or i not in asked.weak]
    kept = _nearest_in_meaning(asked, {*rows[: K - nearest]}, nearest) if rows else []
    rest = [row for row in rows[_FIRST:] if row not in {*kept}]
    rows = [*rows[:_FIRST], *kept, *rest]  # not last, where they would find no room
    texts = [
        text
        if len(text := asked.hits[i].text) <= 4 * tokens + SPARED_CHARS
        else select_passage(text, asked.terms, asked.words, 4 * tokens)
        for i in rows[: 2 * K]
    ]
    costs = [
        count_tokens(f"{format_line(asked.hits[i], text)}\n")
        for i, text in zip(rows, texts, strict=False)
    ]
    packed = pack(costs, K, BUDGET - FRAME, 8)
    shown = {rows[n]: texts[n] for n, _ in packed.chosen}
    turns = {turn for i in shown for turn in asked.turns[i]} & asked.gold
    gold = {i for i, turn in enumerate(asked.turns) if asked.gold & {*turn}}
    needed = _content(asked, [asked.hits[i].text for i in gold])
    seen = _content(asked, [text for i, text in shown.items() if i in gold])
    words = len(needed & seen) / len(needed) if needed else 0.0
    return Block(len(turns) / len(asked.gold), words, packed.tokens + FRAME if shown else 0)


def _content(asked: Asked, texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in asked.words(text)} - {*asked.words(asked.question)}


def _nearest_in_meaning(asked: Asked, present: set[int], count: int) -> list[int]:
    cosines = {
        i: hit.evidence.cosine
        for i, hit in enumerate(asked.hits)
        if hit.evidence and i not in present and isinstance(hit.item, Entry)
    }
    return sorted(cosines, key=lambda i: -cosines[i])[:count]


BLOCKS: Final[Mapping[str, Callable[[Asked], Block]]] = {
    "every line 35 tokens": lambda asked: fill(asked, 35),
    "weak lines too": lambda asked: fill(asked, weak=True),
    "1 place by meaning": lambda asked: fill(asked, nearest=1),
    "2 places by meaning": lambda asked: fill(asked, nearest=2),
}


# -- report ----------------------------------------------------------------------------------------


def compare(values: Sequence[float], baseline: Sequence[float]) -> str:
    """Return the mean difference, with a star if it is real."""
    change = paired_difference(values, baseline)
    return f"{change.mean:+.3f}{'*' if change.significant else ''}"


def report(questions: Sequence[Asked]) -> None:
    """Print one row a lever and one column a set."""
    columns = sorted({asked.column for asked in questions})
    groups = [[asked for asked in questions if asked.column == column] for column in columns]
    _row("lever", [f"{name} ({len(g)})" for name, g in zip(columns, groups, strict=True)])
    _row("---", ["---"] * len(columns))
    base = [[asked.recall(as_shipped(asked)) for asked in group] for group in groups]
    _row("shipped: recall@10", [f"{np.mean(values):.3f}" for values in base])
    for name, order in RANKINGS.items():
        changed = [[asked.recall(order(asked)) for asked in group] for group in groups]
        _row(name, [compare(*pair) for pair in zip(changed, base, strict=True)])
    shipped = [[fill(asked) for asked in group] for group in groups]
    _row("shipped: block, turns / words / tokens", [_block_means(row) for row in shipped])
    for name, block in BLOCKS.items():
        cells = []
        for group, before in zip(groups, shipped, strict=True):
            after = [block(asked) for asked in group]
            turns = compare([b.turns for b in after], [b.turns for b in before])
            words = compare([b.words for b in after], [b.words for b in before])
            tokens = np.mean([b.tokens for b in after]) - np.mean([b.tokens for b in before])
            cells.append(f"{turns} / {words} / {tokens:+.0f}")
        _row(name, cells)


def _block_means(blocks: Sequence[Block]) -> str:
    turns, words = np.mean([b.turns for b in blocks]), np.mean([b.words for b in blocks])
    return f"{turns:.3f} / {words:.3f} / {np.mean([b.tokens for b in blocks]):.0f}"


def _row(name: str, cells: Sequence[str]) -> None:
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Ask, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--beam", type=Path)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--sample", type=int, default=150, help="questions a set")
    parser.add_argument("--model", default="default", help="embedding model")
    parser.add_argument("--categories", default="locomo", help="set whose categories are columns")
    options = parser.parse_args()
    named = {"locomo": options.locomo, "beam": options.beam}
    loaded = [load_dataset(name, path) for name, path in named.items() if path]
    loaded += load_sets(options.sets) if options.sets else ()
    questions: list[Asked] = []
    for part in loaded:
        sample = None if part.name == options.categories else options.sample
        chosen = select_questions(part, Path(part.name), sample=sample)
        questions += ask_all(chosen, options.model, part.name == options.categories)
    report([asked for asked in questions if asked.gold and asked.hits])


if __name__ == "__main__":
    main()
