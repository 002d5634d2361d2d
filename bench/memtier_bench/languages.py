"""Measure recall by language, on the sets of lines and questions in questions/.

The lines of a set are recorded as sessions of one project in a temporary home.  Each question is
answered by one line, among at least 200 others of the same language.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

import memtier_plugin
from memtier_bench.metrics import recall_at, reciprocal_rank, source_turns
from memtier_bench.progress import Progress, no_progress
from memtier_plugin.core.errors import ImportFileError, Unsupported
from memtier_plugin.core.results import Hit
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.memory import MemTier

FOLDER: Final = Path(__file__).with_name("questions")
LANGUAGES: Final = tuple(
    "chinese japanese korean german russian arabic hindi identifiers".split()  # noqa: SIM905
)
STEMMED: Final = frozenset({"german", "russian", "arabic", "hindi"})  # Snowball has these
SESSION_LINES: Final = 20  # lines recorded as one session, the next one a day later
_FIRST_DAY: Final = datetime(2025, 1, 6, 9, tzinfo=UTC)  # fixed, so that decay is reproducible
_WITHOUT_NGRAMS: Final = {"retrieval.weights.grams": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageQuestion:
    """A question, and the one line that answers it."""

    ask: str
    gold: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageSet:
    """The lines of one language in order, and the questions."""

    language: str
    lines: tuple[str, ...]
    questions: tuple[LanguageQuestion, ...]


def load_language_set(path: Path) -> LanguageSet:
    """Read a set; the language is the name of the file.

    Raises:
        ImportFileError: malformed, a duplicate line, or a question's gold is not a line.
    """
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
        lines = tuple(str(line) for line in data["lines"])
        questions = tuple(LanguageQuestion(ask=q["ask"], gold=q["gold"]) for q in data["questions"])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ImportFileError(f"{path} is no set of lines and questions: {error!r}") from error
    if len(set(lines)) < len(lines):
        twice = next(line for line in lines if lines.count(line) > 1)
        raise ImportFileError(f"{path} has the line {twice!r} twice")
    for question in questions:
        if question.gold not in lines:
            raise ImportFileError(f"{path}: the gold of {question.ask!r} is none of the lines")
    return LanguageSet(language=path.stem, lines=lines, questions=questions)


def run_languages(
    languages: Iterable[str] = (), progress: Progress | None = None
) -> dict[str, Any]:
    """Measure the shipped sets of some languages, or of all; return a JSON report.

    Raises:
        Unsupported: there is no set of such a language.
    """
    chosen = tuple(dict.fromkeys(languages)) or LANGUAGES
    for language in chosen:
        if language not in LANGUAGES:
            raise Unsupported(f"language {language!r}; one of: {', '.join(LANGUAGES)}")
    return measure_languages(
        [load_language_set(FOLDER / f"{language}.yaml") for language in chosen], progress
    )


def measure_languages(
    sets: Sequence[LanguageSet], progress: Progress | None = None
) -> dict[str, Any]:
    """Return recall@5 and MRR of each set, with the default settings and two variants.

    ``recall5_no_grams`` is without n-grams; ``recall5_stemmed`` with ``language`` set to the
    language of the set, None where Snowball has no stemmer for it or the default is its language.
    """
    run = _LanguageRun(progress=progress or no_progress, sets=sets)
    with tempfile.TemporaryDirectory(prefix="memtier-bench-") as folder:
        rows = [run.measure(Path(folder) / "home", language_set) for language_set in sets]
    return {
        "dataset": "languages",
        "sets": rows,
        "version": memtier_plugin.__version__,
        "settings": run.settings,
    }


@dataclass(slots=True, kw_only=True)
class _LanguageRun:
    """The progress of a run; variants with other index settings get a project of their own."""

    progress: Progress
    sets: Sequence[LanguageSet]
    settings: dict[str, Any] = field(default_factory=dict)
    asked: int = 0

    def measure(self, home: Path, language_set: LanguageSet) -> dict[str, Any]:
        """Record a set and ask its questions with each variant."""
        with MemTier.open(home, language_set.language) as memory:
            self.settings = flatten_settings(memory.settings)
            names = _ingest(memory, language_set)
            default = self._ask(memory, language_set, names)
        with MemTier.open(home, language_set.language, settings=_WITHOUT_NGRAMS) as memory:
            without = self._ask(memory, language_set, names)
        stemmed = None
        if language_set.language in STEMMED:
            # An index has one language, so this needs a project of its own.
            override = {"language": language_set.language}
            with MemTier.open(
                home, f"{language_set.language}-stemmed", settings=override
            ) as memory:
                stemmed = self._ask(memory, language_set, _ingest(memory, language_set))
        return {
            "language": language_set.language,
            "lines": len(language_set.lines),
            "questions": len(language_set.questions),
            "recall5": default[0],
            "mrr": default[1],
            "recall5_no_grams": without[0],
            "recall5_stemmed": stemmed and stemmed[0],
        }

    def _ask(
        self, memory: MemTier, language_set: LanguageSet, names: Mapping[str, str]
    ) -> tuple[float, float]:
        """Return recall@5 and MRR, each the mean over the questions."""

        def lines(hit: Hit) -> list[str]:
            return [names[source.entry] for source in hit.sources if source.entry in names]

        recalls = ranks = 0.0
        total = sum(len(s.questions) * (3 if s.language in STEMMED else 2) for s in self.sets)
        at = _session_time(len(language_set.lines))
        for question in language_set.questions:
            recall = memory.recall(question.ask, purpose="search", at=at)
            ranked = source_turns(map(lines, recall.hits))
            recalls += recall_at(ranked, {question.gold}, 5)
            ranks += reciprocal_rank(ranked, {question.gold})
            self.asked += 1
            self.progress(language_set.language, self.asked, total)
        count = max(len(language_set.questions), 1)
        return round(recalls / count, 4), round(ranks / count, 4)


def _ingest(memory: MemTier, language_set: LanguageSet) -> dict[str, str]:
    """Record the lines, alternating user and assistant; return the line of each entry."""
    names: dict[str, str] = {}
    for start in range(0, len(language_set.lines), SESSION_LINES):
        lines = language_set.lines[start : start + SESSION_LINES]
        messages = [
            {"role": "assistant" if number % 2 else "user", "content": line}
            for number, line in enumerate(lines)
        ]
        entries = memory.record(
            messages,
            session_id=f"session-{start // SESSION_LINES}",
            observed_at=_session_time(start),
        )
        names |= {entry.id: line for entry, line in zip(entries, lines, strict=True)}
    return names


def _session_time(line: int) -> datetime:
    """Return the time of a line's session; for the line count, a day after the last."""
    return _FIRST_DAY + timedelta(days=-(-line // SESSION_LINES))
