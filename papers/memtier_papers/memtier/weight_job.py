"""Learn a project's ranking weights, from its own history or from data sets.

Learned weights are applied only if the lower bound of their gain on held-out conversations is above
0, and the gate finds that the project's own questions are answered no worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from memtier_papers.learn_log import LearnLog
from memtier_papers.memtier.fit import Example
from memtier_papers.memtier.settings import Paper
from memtier_papers.memtier.traps import circular_reward
from memtier_papers.memtier.weights import LEARNERS, Problem, Trained, train, why_too_little
from memtier_papers.true_memory.settings import SignalWeights
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.settings.schema import Settings, Weights
from memtier_plugin.credit.questions import Question, read_history
from memtier_plugin.credit.regression import GateReport, RegressionGate, keep_answerable
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.retrieval.search import signal_weights
from memtier_plugin.storage.store import Actor

# Signals that data sets and histories cannot teach: none of their lines is credited, asked for or
# made up, and most are asked on one day.  A learned weight for credits would reinforce itself.
KEPT: Final = ("decay", "weight", "overview", "hypothetical")
CANDIDATES: Final = 200  # hits of a question that are reranked
MOST_QUESTIONS: Final = 1_000  # newest of a history
_FOLDS: Final = 10  # parts of a history's sessions, held out in turn
_SHOWN: Final = {"recall_first": 10, "paper": 4}  # approximate number of hits in a prompt

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LearnReport:
    """Each learner's result on the questions, and what was done with it.

    Attributes:
        credited: questions answered only by credits, none of which the published learner uses.
        left_out: why other credits gave no questions.
        chosen: the learner whose weights were to be applied, if one gained.
        applied: the id of the entry in `memtier learn log`.
        why: why nothing was applied, or what was.
    """

    profile: str
    questions: int
    groups: int
    trained: tuple[Trained, ...]
    credited: int = 0
    left_out: tuple[str, ...] = ()
    chosen: str | None = None
    gate: GateReport | None = None
    applied: str | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "profile": self.profile,
            "questions": self.questions,
            "groups": self.groups,
            "credited": self.credited,
            "left_out": list(self.left_out),
            "learners": [trained.to_json() for trained in self.trained],
            "chosen": self.chosen,
            "gate": self.gate.to_json() if self.gate else None,
            "applied": self.applied,
            "why": self.why,
        }


def weights_of(profile: str, settings: Settings, model: str | None = None) -> dict[str, float]:
    """Return a profile's learnable weights, by signal.

    Args:
        model: the embedder whose vectors are compared; None for none.
    """
    if profile == "paper":
        weights = asdict(settings.of(Paper).weights)
        return {name: value for name, value in weights.items() if name != "semantic"}
    return signal_weights(settings, model)


def with_weights(settings: Settings, weights: Mapping[str, float]) -> Settings:
    """Return the settings with all of `retrieval.weights` replaced."""
    ours = Weights(**{f.name: weights[f.name] for f in fields(Weights)})
    added = SignalWeights(**{f.name: weights[f.name] for f in fields(SignalWeights)})
    return replace(settings, retrieval=replace(settings.retrieval, weights=ours)).having(added)


def problem_of(
    profile: str,
    settings: Settings,
    sets: Sequence[Sequence[Example]],
    model: str | None = None,
) -> Problem:
    """Return the learning problem of a profile on sets of questions; see `weights_of`."""
    start = weights_of(profile, settings, model)
    kept = KEPT if profile == "recall_first" else ()
    return Problem(
        tuple(start),
        np.array([*start.values()]),
        np.array([name not in kept for name in start]),
        tuple(map(tuple, sets)),
        _SHOWN[profile],
    )


class WeightLearner:
    """Learns the weights of one project's profile."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._settings = actor.store.settings
        self.profile: str = self._settings.retrieval.profile
        if self.profile not in _SHOWN:
            raise Unsupported(f"the profile {self.profile!r} has no weights to learn")

    @property
    def start(self) -> dict[str, float]:
        """The weights in effect, by signal."""
        return weights_of(self.profile, self._settings, self._model)

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings under which questions of data sets are run."""
        settings = self._settings
        return {
            "retrieval.profile": self.profile,
            "embedding.model": settings.embedding.model,
            "paper.normalise": settings.of(Paper).normalise,
            "language": settings.language,
        }

    def problem(self, sets: Sequence[Sequence[Example]]) -> Problem:
        """Return the learning problem on sets of questions."""
        return problem_of(self.profile, self._settings, sets, self._model)

    @property
    def _model(self) -> str | None:
        embedder = self._store.embedder
        return embedder.name if embedder else None

    def learn_from(self, sets: Sequence[Sequence[Example]], progress: Progress) -> LearnReport:
        """Learn from questions of data sets.

        Raises:
            Unsupported: there are too few of them.
        """
        problem = self.problem(sets)
        _refuse_too_little(problem)
        trained = tuple(train(problem, learner, progress) for learner in LEARNERS)
        return LearnReport(self.profile, len(problem.examples), len(problem.groups), trained)

    def learn_from_history(self, progress: Progress) -> LearnReport:
        """Learn from the project's own recalls.

        Raises:
            Unsupported: there are too few of them; says how many are needed.
            IndexProblem: the index cannot be used.
        """
        with self._store.session() as reader:
            history = read_history(reader, MOST_QUESTIONS, varied=True)
            questions = keep_answerable(reader, history.questions)
        left_out = [f"{agent} never failed: its credits tell nothing" for agent in history.constant]
        left_out += [f"{item} is credited for nearly everything" for item in history.common]
        examples = self._ask(questions, progress)
        problem = self.problem([examples])
        _refuse_too_little(problem, left_out)
        # The published reward must not come from credits (MemTier, section 4.4).
        sure = [e for e, q in zip(examples, questions, strict=True) if q.evidence != "credited"]
        credited = len(examples) - len(sure)
        published = self.problem([sure])
        if why_too_little(len(sure), len(published.groups)):
            shares = [example.recall(problem.start, problem.k) for example in examples]
            mean, start = float(np.mean(shares)), self.start
            stopped = (circular_reward(credited),)
            trained = Trained("ppo", start, stopped, mean, mean, None, 0.0)
        else:
            trained = train(published, "ppo", progress)
        return LearnReport(
            self.profile,
            len(examples),
            len(problem.groups),
            (trained, train(problem, "fit", progress)),
            credited,
            tuple(left_out),
        )

    def apply(self, report: LearnReport, log: LearnLog, progress: Progress) -> LearnReport:
        """Write the better learner's weights to the project's settings, if they gain.

        Raises:
            LedgerError: another process is learning, or they were not applied.
            SettingsError: project.yaml cannot be edited safely.
            IndexProblem: the index cannot be used.
        """
        gaining = [trained for trained in report.trained if trained.gains]
        if not gaining:
            return replace(
                report, why="not applied: no gain whose lower bound is above 0 on what was held out"
            )
        best = max(gaining, key=lambda trained: trained.gain.low if trained.gain else 0.0)
        with log.exclusive():  # before it asks every question twice
            gate = RegressionGate(self._actor).check_settings(
                self._with(best.weights), "the learned weights", progress
            )
            report = replace(report, chosen=best.learner, gate=gate)
            if gate.verdict.refused:
                return replace(report, why="not applied: the gate refuses it")
            figures = {
                "learner": best.learner,
                "questions": report.questions,
                "gain": best.to_json()["gain"],
                "gate": gate.verdict.describe(),
            }
            section = "paper" if self.profile == "paper" else "retrieval"
            applied = log.apply("weights", (section, "weights"), best.weights, figures)
        return replace(report, applied=applied, why="applied")

    def _with(self, weights: Mapping[str, float]) -> Settings:
        if self.profile == "paper":
            paper = self._settings.of(Paper)
            changed = replace(paper, weights=replace(paper.weights, **weights))
            return self._settings.having(changed)
        return with_weights(self._settings, weights)

    def _ask(self, questions: Sequence[Question], progress: Progress) -> list[Example]:
        """Run every question as its agent and sender; a question's group is its session's."""
        at, names = self._actor.clock(), [*self.start]
        retrieval = replace(self._settings.retrieval, candidates=CANDIDATES)
        settings = replace(self._settings, retrieval=retrieval)
        recallers: dict[str, Recaller] = {}
        examples = []
        for number, question in enumerate(questions, 1):
            if question.agent not in recallers:
                actor = replace(self._actor, agent=question.agent)
                recallers[question.agent] = Recaller(actor, settings)
            recaller = recallers[question.agent]
            request = RecallRequest(sender=question.sender, at=at)
            with self._store.session():
                viewer = recaller.viewer(question.sender, at)
                hits = recaller.plan(question.query, viewer, request).hits
            examples.append(
                Example(
                    _fold(question.session),
                    signals_of(hits, names),
                    tuple(_answers(hit, question) for hit in hits),
                    1,
                )
            )
            progress("asking", number, len(questions))
        return examples


def signals_of(hits: Sequence[Hit], names: Sequence[str]) -> np.ndarray:
    """Return the signals of hits by name, (n, s)."""
    rows = [[hit.signals.get(name, 0.0) for name in names] for hit in hits]
    return np.array(rows, np.float32).reshape(-1, len(names))


def _refuse_too_little(problem: Problem, left_out: Sequence[str] = ()) -> None:
    if why := why_too_little(len(problem.examples), len(problem.groups)):
        raise Unsupported("; ".join(["there is too little to learn from: " + why, *left_out]))


def _answers(hit: Hit, question: Question) -> tuple[int, ...]:
    entries = {hit.id, *(source.entry for source in hit.sources)}
    return () if question.wanted.isdisjoint(entries) else (0,)


def _fold(session: str) -> str:
    """Return the fold of a session, which all of its questions share."""
    return f"part {int.from_bytes(blake2b(session.encode(), digest_size=4).digest()) % _FOLDS}"
