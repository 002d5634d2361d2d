"""Fit the floor: how likely a block, and a line of it, holds what a query needs.

Own questions, questions about other conversations and generic prompts are asked in the stores of
several data sets with the floor off; each hit carries its evidence.  Two logistic regressions are
fitted on all sets at once, each set weighing the same:

- of the block: an own question with a gold line among the best hits, against a foreign question
  or a generic prompt (`floor.block_features`);
- of the line: a gold line of an own question against its other lines (`floor.line_features`).

Stores of a few lines, and what a person only tells, are hardly in the data sets: ``--stores`` names
files of such cases (`ask_stores`; ``floor_stores.yaml`` beside this script is one).  They are in
every fit, since no data set has anything like them, and no level is chosen by them.

A coefficient whose sign contradicts what its feature means is fixed at 0.  The levels of
`retrieval.floor` are the block probabilities below which a share of own questions falls that is
accepted to be lost (`LOSSES`): in the mean of the sets, each judged by a model fitted without it.
With ``--by-length`` long prompts (`floor.LONG`), which tell or ask in passing, get levels of their
own.

    python scripts/fit_floor.py --locomo locomo.json --beam beam/ --sets sets/ \
        --stores scripts/floor_stores.yaml [--write]

prints, for each set left out of the fit, the losses and the silence of every level, and again with
all sets in it; then what is not fitted but chosen: how much each share of the best line's
probability leaves out (`LINES`).  Every second generic prompt is fitted on, and the others are
reported.
``--model words`` fits what judges prompts whose meaning is not compared: without an embedder, while
it is being loaded, or in another language than its own.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from msgspec import structs

from memtier_bench.datasets import (
    Conversation,
    Dataset,
    DatasetQuestion,
    load_dataset,
    load_sets,
)
from memtier_bench.retrieval import BenchRun, RecordedConversation, select_questions
from memtier_bench.silence_prompts import (
    AskedPrompt,
    GenericPrompt,
    foreign_questions,
    list_prompts,
    load_generic_prompts,
)
from memtier_plugin.core.results import Evidence, Hit, RecallRequest
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval import floor
from memtier_plugin.retrieval.floor import QueryEvidence
from memtier_plugin.retrieval.judgement import is_about_asker
from memtier_plugin.retrieval.prompt_kind import prompt_kinds
from memtier_plugin.retrieval.visibility import Viewer

# Of own questions with a gold line among the best hits: the share that falls below the level, in
# the mean of the sets, each judged by a model that was fitted without it.
LOSSES: Final = {"careful": 0.006, "balanced": 0.01, "quiet": 0.035}
# Of the best line's probability.  Chosen by `Fitter.report_lines`: what a line costs its reader
# against what a lost one costs is no matter of fit.
LINES: Final = {"careful": 0.08, "balanced": 0.12, "quiet": 0.3}
_LINE_SHARES: Final = (0.05, 0.08, 0.12, 0.2, 0.3, 0.4)
SHARES: Final = {"own": 0.5, "foreign": 0.25, "generic": 0.25}  # of a set's weight
# Features that speak against.
NEGATIVE: Final = frozenset(
    {"items", "imperative", "general", "follow_up", "pasted", "states", "rank"}
    | {"less_coverage", "less_own_coverage", "less_cosine"}
)
PENALTY: Final = 1e-3
# Of own prompts of these kinds there are few examples.
PENALTIES: Final = dict.fromkeys(("imperative", "general", "follow_up", "pasted"), 2e-3)
FOREIGN: Final = 20  # questions a conversation
FEWEST: Final = 8  # own questions of a set and a length, for a level to be chosen by them
LINES_FROM: Final = 4 * floor.CONSIDERED  # items of a store, for its lines to differ
SHORT: Final = 6  # sessions of a conversation, each also a store by itself
_OFF: Final = {"retrieval.floor": "off"}
_EMBEDDERS: Final = {"vectors": "default", "words": "none", "minilm": "minilm"}  # by floor model


@dataclass(frozen=True, slots=True)
class Example:
    """One query: its set and kind, its evidence, and that of the best hits with which are gold."""

    set: str
    kind: str
    held_out: bool
    query: QueryEvidence
    lines: Sequence[Evidence]
    gold: Sequence[bool]

    @property
    def is_judged(self) -> bool:
        """Whether the floor decides: small talk, commands and empty follow-ups are refused before.

        A task needs standing instructions, which have a standard of their own.
        """
        kinds = self.query.kinds
        is_own_task = self.kind == "own" and kinds.task > 0
        return not (kinds.silence or kinds.is_empty or is_own_task)

    @property
    def block(self) -> list[float]:
        """The features of the block."""
        return [*map(float, floor.block_features(self.query, self.lines).values())]

    @property
    def line_features(self) -> list[list[float]]:
        """The features of each line."""
        best = Evidence.best_of(self.lines)
        lines = enumerate(self.lines)
        return [[*floor.line_features(line, rank, best).values()] for rank, line in lines]


def collect(loaded: Sequence[Dataset], embedder: str, most: int) -> Iterator[Example]:
    """Ask all prompts in the stores of up to so many conversations of each set."""
    others = foreign_questions(loaded)
    generic = load_generic_prompts()
    for part in loaded:
        step = max(1, len(part.conversations) // most)
        conversations = part.conversations[::step]
        every = max(1, len(conversations) // 3)
        for number, conversation in enumerate(conversations):
            prompts = list_prompts(
                conversation,
                others[id(conversation)][:FOREIGN],
                generic[number % every :: every],
            )
            yield from _ask(part.name, conversation, prompts, embedder)
            yield from collect_short(part.name, conversation, others, generic, embedder)


def collect_short(
    name: str,
    conversation: Conversation,
    others: Mapping[int, Sequence[DatasetQuestion]],
    generic: Sequence[GenericPrompt],
    embedder: str,
) -> Iterator[Example]:
    """Ask in stores of a session each: most stores of a new user are as small."""
    foreign = others[id(conversation)]
    for number, store in enumerate(shorten(conversation)):
        some = slice(number, None, SHORT)
        prompts = list_prompts(store, foreign[:FOREIGN][some], generic[some])
        yield from _ask(name, store, prompts, embedder)


def ask_stores(path: Path, embedder: str) -> Iterator[Example]:
    """Ask in small stores made of a few lines each.

    A case has ``say`` (a line, or ``who: line``), ``own`` (by question, words of the line that
    answers it; or ``who`` and then these) and ``none`` (prompts that need no line).  The prompts
    that begin with a case of ``anywhere`` are asked in every store.
    """
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for number, case in enumerate(document["stores"]):
        with (
            tempfile.TemporaryDirectory() as home,
            MemTier.open(home, settings={**_OFF, "embedding.model": embedder}) as memory,
        ):
            for nth, line in enumerate(case["say"]):
                sender, text = (None, line) if isinstance(line, str) else next(iter(line.items()))
                message = {"role": "user", "content": text}
                memory.record([message], session_id=f"s{nth}", sender=sender)
            memory.consolidate()
            for asked, answer in case["own"].items():
                yield from _ask_store(memory, path.stem, asked, case.get("as"), answer)
            for asked in (*case["none"], *document["anywhere"][number % 3 :: 3]):
                yield from _ask_store(memory, path.stem, asked, case.get("as"), None)


def _ask_store(
    memory: MemTier, name: str, asked: str, sender: str | None, answer: str | None
) -> Iterator[Example]:
    """Yield one prompt in a small store, if anything is found for it."""
    actor = memory.actor
    viewer = memory._recaller.viewer(sender, actor.clock())
    plan = memory._recaller.plan(asked, viewer, RecallRequest(purpose="inject", sender=sender))
    hits = [hit for hit in plan.block.hits[: floor.CONSIDERED] if hit.evidence is not None]
    gold = [answer is not None and answer.casefold() in hit.text.casefold() for hit in hits]
    if hits and (answer is None or any(gold)):
        evidence = [hit.evidence for hit in hits if hit.evidence is not None]
        query = judged_query(plan.result.query_evidence, asked, hits, sender or "")
        kind = "generic" if answer is None else "own"
        yield Example(name, kind, False, query, evidence, gold)


def shorten(conversation: Conversation) -> list[Conversation]:
    """Return the sessions that answer most questions, each as a store with those questions."""
    stores = []
    for session in conversation.sessions:
        turns = {turn.id for turn in session.turns}
        answered = (q for q in conversation.questions if q.gold and q.gold <= turns)
        own = tuple(replace(question, after=None) for question in answered)
        name = f"{conversation.id}-{session.session_id}"
        stores.append(replace(conversation, id=name, sessions=(session,), questions=own))
    stores.sort(key=lambda store: -len(store.questions))
    return [store for store in stores[:SHORT] if store.questions]


def _ask(
    name: str, conversation: Conversation, prompts: Sequence[AskedPrompt], embedder: str
) -> Iterator[Example]:
    by_question = {id(prompt.question): prompt for prompt in prompts}
    conversation = replace(conversation, questions=tuple(p.question for p in prompts))
    run = BenchRun(
        loaded=Dataset(name=name, conversations=(conversation,), skipped=0, unresolved=0),
        facts="none",
        progress=lambda what, done, total: None,
    )
    settings = {**_OFF, "embedding.model": embedder}
    for memory, stage, recorded in run.recorded_conversations(settings):
        for number, question in enumerate(stage.questions):
            prompt = by_question[id(question)]
            held_out = prompt.kind == "generic" and bool(number % 2)
            example = _plan(memory, recorded, name, prompt, held_out)
            if example is not None:
                yield example


def _plan(
    memory: MemTier, recorded: RecordedConversation, name: str, prompt: AskedPrompt, held_out: bool
) -> Example | None:
    actor, question = memory.actor, prompt.question
    viewer = Viewer(actor.agent, None, False, question.at or actor.clock())
    plan = memory._recaller.plan(question.text, viewer, RecallRequest(purpose="inject"))
    hits = [hit for hit in plan.block.hits[: floor.CONSIDERED] if hit.evidence is not None]
    gold = [bool(question.gold & set(recorded.turns([hit]))) for hit in hits]
    if not hits or (prompt.kind == "own" and not any(gold)):
        return None
    query = judged_query(plan.result.query_evidence, question.text, hits, "")
    evidence = [hit.evidence for hit in hits if hit.evidence is not None]
    return Example(name, prompt.kind, held_out, query, evidence, gold)


def judged_query(query: QueryEvidence, text: str, hits: Sequence[Hit], asker: str) -> QueryEvidence:
    """Return the evidence of a query as the floor gets it."""
    kinds = prompt_kinds(text)
    return structs.replace(
        query, kinds=kinds, about_asker=is_about_asker(kinds, query, hits, asker)
    )


def fit(
    rows: np.ndarray, target: np.ndarray, weights: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    """Return the coefficients of a logistic regression, by Newton's method.

    Args:
        rows: (n, features).
        target, weights: (n,).
    """
    signs = [0 if name == "one" else -1 if name in NEGATIVE else 1 for name in names]
    penalties = np.array([0.0 if name == "one" else PENALTIES.get(name, PENALTY) for name in names])
    active = list(range(len(names)))
    share = weights / weights.sum()
    while True:
        chosen, beta, ridge = rows[:, active], np.zeros(len(active)), penalties[active]
        for _ in range(100):
            p = 1 / (1 + np.exp(-np.clip(chosen @ beta, -30, 30)))
            gradient = chosen.T @ (share * (p - target)) + ridge * beta
            curvature = (chosen.T * (share * p * (1 - p))) @ chosen + np.diag(ridge + 1e-9)
            step = np.linalg.solve(curvature, gradient)
            beta -= step
            if np.abs(step).max() < 1e-8:
                break
        wrong = {i: signs[i] * x for i, x in zip(active, beta, strict=True) if signs[i] * x < 0}
        if not wrong:
            return {names[i]: round(float(x), 4) for i, x in zip(active, beta, strict=True)}
        active.remove(min(wrong, key=wrong.__getitem__))


class Fitter:
    """Fits blocks and lines on some sets, and reports on all.

    Args:
        examples: those that the floor judges by the model to be fitted.  A set without questions
            of its own among them is left out: of a set in Chinese, the generic prompts in English
            are all that is judged by meaning, and nothing of it could be lost.
        stores: the sets that are in every fit, and never judged.
        by_length: whether long prompts have levels of their own.
    """

    def __init__(
        self, examples: Sequence[Example], stores: Collection[str] = (), by_length: bool = False
    ) -> None:
        sets = {example.set for example in examples if example.kind == "own"}
        self.sets = sorted(sets.difference(stores))
        self.examples = [example for example in examples if example.set in sets]
        self.lengths = {"block": False, "long": True} if by_length else {"block": None}

    def fit_model(self, without: str = "") -> floor.FloorModel:
        """Return a model fitted without one of the sets; it has no levels yet."""
        used = [e for e in self.examples if e.set != without and not e.held_out]
        sizes = Counter((e.set, e.kind) for e in used)
        weights = np.array([SHARES[e.kind] / sizes[e.set, e.kind] for e in used])
        target = np.array([float(e.kind == "own") for e in used])
        blocks = np.array([e.block for e in used])
        block = fit(blocks, target, weights, [*floor.block_features(used[0].query, used[0].lines)])
        own = [e for e in used if e.kind == "own" and e.query.items > LINES_FROM]
        lines = np.array([line for e in own for line in e.line_features])
        gold = np.array([float(g) for e in own for g in e.gold])
        each = np.array([1 / sizes[e.set, "own"] for e in own for _ in e.lines])
        line = fit(lines, gold, each, [*floor.line_features(used[0].lines[0], 0, used[0].lines[0])])
        return floor.FloorModel(block, line, {})

    def choose_levels(
        self, left_out: Mapping[str, floor.FloorModel]
    ) -> dict[str, dict[str, float]]:
        """Return the levels that lose, on average, the accepted share of sets not fitted on.

        Args:
            left_out: by set, the model fitted without it.
        """
        levels = {"off": dict.fromkeys([*self.lengths, "line"], 0.0)}
        for level, loss in LOSSES.items():
            levels[level] = {"line": LINES[level]}
            for bar, is_long in self.lengths.items():
                every = [
                    self.probabilities(m, name, "own", is_long) for name, m in left_out.items()
                ]
                own = [part for part in every if len(part) >= FEWEST]
                steps = np.arange(0.0, 0.9, 0.002)
                lost = np.array([np.mean([np.mean(p < step) for p in own]) for step in steps])
                levels[level][bar] = round(float(steps[lost <= loss].max()), 3)
        return levels

    def probabilities(
        self, model: floor.FloorModel, name: str, kind: str, is_long: bool | None = None
    ) -> np.ndarray:
        """Return the block probabilities of prompts of a set; of generic ones those held out.

        Args:
            is_long: only of long prompts, or only of others.
        """
        chosen = [
            model.block_probability(e.query, e.lines)
            for e in self.examples
            if (e.set, e.kind) == (name, kind) and (kind != "generic" or e.held_out)
            if is_long is None or is_long == (e.query.kinds.words > floor.LONG)
        ]
        return np.array(chosen)

    def report(
        self, title: str, models: Mapping[str, floor.FloorModel], levels: Mapping[str, Any]
    ) -> None:
        """Print losses and silence of each level, as rows of a table, with their means."""
        shares: dict[str, list[float]] = {}
        for name, model in models.items():
            for level in LOSSES:
                shares.setdefault(name, []).extend(
                    float(np.mean(self._is_silent(model, name, kind, levels[level]) or [0.0]))
                    for kind in SHARES
                )
        shares["mean"] = [float(np.mean(column)) for column in zip(*shares.values(), strict=True)]
        for name, row in shares.items():
            cells = " | ".join(
                f"{own:.3f} / {foreign:.2f} / {generic:.2f}"
                for own, foreign, generic in zip(row[::3], row[1::3], row[2::3], strict=True)
            )
            print(f"| {title} | {name} | {cells} |")

    def _is_silent(
        self, model: floor.FloorModel, name: str, kind: str, level: Mapping[str, float]
    ) -> list[bool]:
        return [
            bool(likely < level[bar])
            for bar, is_long in self.lengths.items()
            for likely in self.probabilities(model, name, kind, is_long)
        ]

    def report_lines(self, model: floor.FloorModel) -> None:
        """Print what lines of own questions each share of the best one's probability leaves out."""
        own = [e for e in self.examples if e.kind == "own" and e.query.items > LINES_FROM]
        names = sorted({e.set for e in own})
        for share in _LINE_SHARES:
            left_out: dict[tuple[str, bool], list[bool]] = {}
            for example in own:
                lines, best = enumerate(example.lines), Evidence.best_of(example.lines)
                likely = [model.line_probability(line, rank, best) for rank, line in lines]
                for probability, gold in zip(likely, example.gold, strict=True):
                    weak = probability < share * max(likely)
                    left_out.setdefault((example.set, gold), []).append(weak)
            gold, other = (
                np.mean([np.mean(left_out[name, is_gold]) for name in names])
                for is_gold in (True, False)
            )
            print(f"| lines | {share} | {gold:.3f} | {other:.3f} |")


def main() -> None:
    """Collect, fit, report, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--beam", type=Path)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--stores", type=Path, action="append", default=[], help="of small cases")
    parser.add_argument("--sample", type=int, default=70, help="own questions a set")
    parser.add_argument("--conversations", type=int, default=3, help="at most, of a set")
    parser.add_argument("--model", default="vectors", choices=[*_EMBEDDERS])
    parser.add_argument("--by-length", action="store_true", help="levels for long prompts, too")
    parser.add_argument("--examples", type=Path, help="file to keep what was collected in")
    parser.add_argument("--write", action="store_true", help="into floor.json")
    options = parser.parse_args()
    if options.examples and options.examples.exists():
        examples: list[Example] = pickle.loads(options.examples.read_bytes())
    else:
        named = {"locomo": options.locomo, "beam": options.beam}
        loaded = [load_dataset(name, path) for name, path in named.items() if path]
        loaded += load_sets(options.sets) if options.sets else ()
        loaded = [select_questions(part, Path(part.name), sample=options.sample) for part in loaded]
        embedder = _EMBEDDERS[options.model]
        examples = [*collect(loaded, embedder, options.conversations)]
        for path in options.stores:
            examples += ask_stores(path, embedder)
        if options.examples:
            options.examples.write_bytes(pickle.dumps(examples))
    by_words = options.model == "words"
    judged = [e for e in examples if e.is_judged and (e.query.model is None) == by_words]
    stores = {path.stem for path in options.stores}
    fitter = Fitter(judged, stores, options.by_length)
    left_out = {name: fitter.fit_model(name) for name in fitter.sets}
    levels = fitter.choose_levels(left_out)
    model = structs.replace(fitter.fit_model(), levels=levels)
    print("| | set | " + " | ".join(LOSSES) + " |")
    print("lost of own / silent of foreign / silent of generic (held out)")
    fitter.report("left out", left_out, levels)
    fitter.report("all sets", dict.fromkeys([*fitter.sets, *sorted(stores)], model), levels)
    print("lines left out, by their share of the best one's probability: gold | others")
    fitter.report_lines(model)
    print(json.dumps(structs.asdict(model), indent=1))
    if options.write:
        path = Path(floor.__file__).with_name("floor.json")
        document = json.loads(path.read_text())
        document["models"][options.model] = structs.asdict(model)
        path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
