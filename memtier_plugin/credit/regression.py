"""The gate: ask a project's known questions before and after a change, and compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import compress
from pathlib import Path
from typing import Any, Final

import memtier_plugin
from memtier_plugin.core.errors import EmbeddingUnavailable, NotFound
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.structs import convert
from memtier_plugin.credit.questions import (
    DEPTH,
    Question,
    is_among,
    make_probes,
    probes_of,
    read_history,
)
from memtier_plugin.credit.verdict import RegressionVerdict, judge
from memtier_plugin.providers.embedding.remote import EndpointEmbedder
from memtier_plugin.retrieval.plan import RecallPlan
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor, Store

# -- Ask questions with known answers under given settings; nothing is journalled

QuestionProgress = Callable[[int, int], None]
_PREVIEW: Final = "preview"  # the purpose with a prompt's block that credits nobody
# Milliseconds for a question.  Nobody waits, and a reranker that a busy machine makes late on one
# side of a comparison only would be taken for the change.
_PATIENCE: Final = 600_000


def keep_answerable(reader: Reader, questions: Iterable[Question]) -> list[Question]:
    """Return the questions that stored items still answer, with all of their answers.

    A fact's source entries answer what the fact answers.
    """
    answerable = []
    for question in questions:
        wanted = set[str]()
        for stored in reader.items(question.wanted).values():
            if stored.state.withdrawn:
                continue
            wanted.add(stored.item.id)
            if isinstance(stored.item, Fact):
                wanted |= {source.entry for source in stored.item.sources}
        if wanted:
            answerable.append(replace(question, wanted=frozenset(wanted)))
    return answerable


def measure(
    actor: Actor,
    questions: Sequence[Question],
    at: datetime,
    settings: Settings | None = None,
    progress: QuestionProgress = lambda done, total: None,
) -> list[float]:
    """Return how well each question is answered, in [0, 1], as its own agent and sender would ask.

    Half of the score is for an answer among the first ten entries found, half for one in the block
    of a prompt: silence despite a known answer is a loss.

    Args:
        settings: None for those in effect.

    Raises:
        IndexProblem: the index cannot be used.
        EmbeddingUnavailable: the endpoint that embeds the queries does not answer.
    """
    by_meaning = embeds_for_free(actor.store.embedder)
    is_remote = by_meaning and isinstance(actor.store.embedder, EndpointEmbedder)
    recallers: dict[str, Recaller] = {}
    values = []
    for number, question in enumerate(questions, 1):
        recaller = recallers.get(question.agent)
        if recaller is None:
            recaller = Recaller(replace(actor, agent=question.agent), settings)
            recallers[question.agent] = recaller
        with actor.store.session():
            plan = _plan(recaller, question, at, by_meaning=by_meaning)
            if is_remote:
                _refuse_without_vector(plan)
            values.append(_rate(plan, question))
        progress(number, len(questions))
    return values


def embeds_for_free(embedder: object) -> bool:
    """Return whether queries may be compared by meaning: false for an endpoint with a price."""
    return not isinstance(embedder, EndpointEmbedder) or not embedder.cost(1)


def _plan(recaller: Recaller, question: Question, at: datetime, *, by_meaning: bool) -> RecallPlan:
    request = RecallRequest(purpose=_PREVIEW, sender=question.sender, at=at, deadline_ms=_PATIENCE)
    viewer = recaller.viewer(question.sender, at)
    return recaller.plan(question.query, viewer, request, by_meaning=by_meaning)


def _refuse_without_vector(plan: RecallPlan) -> None:
    """Refuse to fall back on words: scores with and without vectors are not comparable."""
    for reason in plan.degradations:
        if reason.startswith("embedding:"):
            raise EmbeddingUnavailable(f"answers before and after cannot be compared: {reason}")


def _rate(plan: RecallPlan, question: Question) -> float:
    shown, _ = plan.block.fill(question.id)
    ranked = is_among(map(_evidence, plan.hits), question.wanted, DEPTH)
    return (ranked + is_among(map(_evidence, shown), question.wanted, len(shown))) / 2


def _evidence(hit: Hit) -> set[str]:
    return {hit.id, *(source.entry for source in hit.sources)}


# -- The outcomes of a project's questions under each version, as a baseline for upgrades
#
# One small derived file per project, without texts: ids of questions, and how well each was
# answered.  The file can be deleted; then the next upgrade has no baseline.

FILE: Final = "regression.json"
_KEPT: Final = 5  # versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How well each question (by id) was answered, and with which embedding model."""

    measured: str
    embedding: str  # the setting
    model: str  # the model's own name
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The outcomes by version, oldest first, and the last automatic comparison.

    ``change`` says what was compared, ``verdict`` is that of `verdict.RegressionVerdict.to_json`.
    """

    versions: Mapping[str, Outcomes] = field(default_factory=dict)
    change: str = ""
    verdict: Mapping[str, Any] = field(default_factory=dict)

    def before(self, version: str) -> str | None:
        """Return the newest other version that was measured."""
        others = [name for name in self.versions if name != version]
        return others[-1] if others and version not in self.versions else None

    def with_outcomes(self, version: str, outcomes: Outcomes) -> Mapping[str, Outcomes]:
        """Return the outcomes with those of a version added as the newest."""
        others = {name: earlier for name, earlier in self.versions.items() if name != version}
        return dict([*others.items(), (version, outcomes)][-_KEPT:])

    @property
    def warning(self) -> str | None:
        """The warning in `status` if the last comparison was refused."""
        if not self.verdict.get("refused"):
            return None
        before, after = self.verdict.get("before"), self.verdict.get("after")
        return (
            f"{self.change}: answers from this project's history got worse ({before} before,"
            f" {after} after); `memtier gate` shows the questions"
        )


def read_baseline(folder: Path) -> Baseline:
    """Read the file of the project in a folder; a missing or damaged one is empty."""
    try:
        return convert(parse_json_text((folder / FILE).read_bytes()), Baseline)
    except (OSError, ValueError, KeyError, TypeError):
        return Baseline()


def write_baseline(folder: Path, baseline: Baseline) -> None:
    """Replace the file.

    Raises:
        LedgerWriteError: it cannot be written.
    """
    write_private_file(folder / FILE, json.dumps(asdict(baseline)))


# -- The gate: ask a project's known questions before and after a change, and compare the answers

_EVERY: Final = timedelta(hours=20)  # between two automatic measurements
ENOUGH: Final = 100  # questions; with fewer in the history, probes are added up to this number

Progress = Callable[[str, int, int], None]


def no_progress(phase: str, done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class GateReport:
    """The verdict on a change, and the questions with worse answers.

    Attributes:
        against: a description of the comparison.
        history: how many questions are journalled recalls; the others are probes.
    """

    against: str
    verdict: RegressionVerdict
    history: int
    worse: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "against": self.against,
            **self.verdict.to_json(),
            "history": self.history,
            "probes": self.verdict.questions - self.history,
            "worse": [dict(question) for question in self.worse],
        }


class RegressionGate:
    """Asks a project's own questions without journalling."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store
        self._folder = actor.store.project_folder.path

    def questions(self, at: datetime) -> list[Question]:
        """Return the questions of the project's history, and probes if those are few.

        Raises:
            IndexProblem: the index cannot be used.
        """
        most = self._store.settings.regression.questions
        with self._store.session() as reader:
            questions = keep_answerable(reader, read_history(reader, most).questions)
        lacking = min(ENOUGH, most) - len(questions)
        if lacking > 0:
            probes = make_probes(self._store, lacking, at, untried=True)
            with self._store.session() as reader:
                questions += keep_answerable(reader, probes)
        return questions

    def check_settings(
        self, candidate: Settings, against: str = "these settings", progress: Progress = no_progress
    ) -> GateReport:
        """Compare the present settings with others that need no other index.

        Raises:
            IndexProblem: the index cannot be used.
        """
        at = self._actor.clock()
        questions = self.questions(at)
        before = self._measure(self._actor, questions, at, "before", progress)
        after = self._measure(self._actor, questions, at, "after", progress, candidate)
        return self.report(against, questions, before, after)

    def check_other(
        self, other: Actor, against: str, progress: Progress = no_progress, *, later: bool
    ) -> GateReport:
        """Compare the project with another state of it, by questions that both can answer.

        Args:
            later: the other state is the project's future, not its past.

        Raises:
            IndexProblem: an index cannot be used.
        """
        at = self._actor.clock()
        with other.store.session() as reader:
            questions = keep_answerable(reader, self.questions(at))
        here = self._measure(self._actor, questions, at, "this project", progress)
        there = self._measure(other, questions, at, against, progress)
        return self.report(against, questions, *((here, there) if later else (there, here)))

    def check_version(
        self, version: str | None = None, progress: Progress = no_progress
    ) -> GateReport:
        """Compare the outcomes under another version with the present ones.

        Args:
            version: by default the newest other one.

        Raises:
            NotFound: nothing was measured under that version.
            IndexProblem: the index cannot be used.
        """
        baseline = read_baseline(self._folder)
        name = version or baseline.before(memtier_plugin.__version__) or ""
        if name not in baseline.versions:
            known = ", ".join(baseline.versions) or "none"
            raise NotFound(
                f"nothing was measured under version {name!r} (measured: {known}); the daemon"
                " measures once a day"
            )
        was, at = baseline.versions[name].values, self._actor.clock()
        questions = self._questions_of(was, at)
        before = [was[question.id] for question in questions]
        after = self._measure(self._actor, questions, at, "now", progress)
        return self.report(f"version {name}", questions, before, after)

    def watch(self) -> None:
        """Measure once a day; compare a newly installed version with the previous one.

        Raises:
            IndexProblem: the index cannot be used.
            LedgerError: the outcomes were not written.
        """
        baseline, version = read_baseline(self._folder), memtier_plugin.__version__
        if before := baseline.before(version):
            self.remember(f"the upgrade from {before} to {version}", self.check_version(before))
            return
        last = baseline.versions.get(version)
        if last is None or self._actor.clock() - from_iso(last.measured) > _EVERY:
            self.remember()

    def check_model(self, progress: Progress = no_progress) -> GateReport | None:
        """Compare the embedding model with the previous one, whose vectors are still stored.

        Returns None if there is none, the setting that loaded it is unknown, or either one is an
        endpoint with a price.

        Raises:
            IndexProblem: the index cannot be used.
            EmbeddingUnavailable: an endpoint does not answer.
        """
        embedder, baseline = self._store.embedder, read_baseline(self._folder)
        if embedder is None or not embeds_for_free(embedder):
            return None
        left = set(self._store.reader().coverage.models()) - {embedder.name}
        for outcomes in reversed([*baseline.versions.values()]):
            if outcomes.model in left:
                embedding = replace(self._store.settings.embedding, model=outcomes.embedding)
                settings = replace(self._store.settings, embedding=embedding)
                previous_store = Store(
                    self._store.project_folder.home, self._store.project, settings
                )
                try:
                    if (
                        previous_store.embedder is None
                        or previous_store.embedder.name != outcomes.model
                    ):
                        return None
                    if not embeds_for_free(previous_store.embedder):
                        return None
                    against = f"the embedding model {outcomes.embedding}"
                    actor = replace(self._actor, store=previous_store)
                    return self.check_other(actor, against, progress, later=False)
                finally:
                    previous_store.close()
        return None

    def report(
        self,
        against: str,
        questions: Sequence[Question],
        before: Sequence[float],
        after: Sequence[float],
    ) -> GateReport:
        """Return the report on two outcomes of the same questions.

        Probes, which ask for rare words, must not mask the history, so the history alone can also
        refuse a change.
        """
        tolerance = self._store.settings.regression.tolerance
        verdict = judge(before, after, tolerance)
        in_history = [question.evidence != "probe" for question in questions]
        rates = [*compress(before, in_history)], [*compress(after, in_history)]
        by_history = judge(*rates, tolerance)
        if by_history.refused and not verdict.refused:
            verdict = by_history
        worse = [
            {
                "id": question.id,
                "evidence": question.evidence,
                "query": question.query,
                "before": was,
                "after": now,
            }
            for question, was, now in zip(questions, before, after, strict=True)
            if now < was
        ]
        return GateReport(against, verdict, sum(in_history), tuple(worse))

    def remember(self, change: str = "", report: GateReport | None = None) -> None:
        """Measure the present state, as the baseline for the next version.

        Args:
            change: the automatic comparison to show in `status`, with its report.

        Raises:
            IndexProblem: the index cannot be used.
            LedgerError: it was not written.
        """
        at, embedder = self._actor.clock(), self._store.embedder
        questions = self.questions(at)
        values = self._measure(self._actor, questions, at, "now", no_progress)
        outcomes = Outcomes(
            measured=to_iso(at),
            embedding=self._store.settings.embedding.model,
            model=embedder.name if embedder else "",
            values={q.id: value for q, value in zip(questions, values, strict=True)},
        )
        known = read_baseline(self._folder)
        baseline = Baseline(
            versions=known.with_outcomes(memtier_plugin.__version__, outcomes),
            change=change or known.change,
            verdict=report.verdict.to_json() if report else known.verdict,
        )
        write_baseline(self._folder, baseline)

    def _questions_of(self, ids: Collection[str], at: datetime) -> list[Question]:
        with self._store.session() as reader:
            history = read_history(reader, len(ids), ids).questions
            probes = probes_of(
                self._store, [i for i in ids if i not in {q.id for q in history}], at
            )
            return keep_answerable(reader, [*history, *probes])

    def _measure(
        self,
        actor: Actor,
        questions: Sequence[Question],
        at: datetime,
        phase: str,
        progress: Progress,
        settings: Settings | None = None,
    ) -> list[float]:
        return measure(
            replace(actor, agent=self._actor.agent),
            questions,
            at,
            settings,
            lambda done, total: progress(phase, done, total),
        )
