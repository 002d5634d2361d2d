"""Load LoCoMo, BEAM, LongMemEval, judgement sets and sets in our own JSON format.

LoCoMo (Maharana et al. 2024), BEAM (Tavakoli et al. 2026) and LongMemEval (Wu et al. 2025) are read
from the files their authors publish; any other set of conversations from the JSON format described
in docs/evaluation.md.  MemTier ships none of them.  A question's gold turns are those that the
authors name as evidence.  Evidence that matches no turn is skipped and counted, and so are
questions left without any gold turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast, get_args

from memtier_bench.currency_cases import read_currency_cases
from memtier_plugin.core.errors import ImportFileError, Unsupported
from memtier_plugin.core.records import Message, Role
from memtier_plugin.ingest.messages import ImportedMessage, Session
from memtier_plugin.transfer.importers.reading import (
    load_json,
    parse_date,
    parse_timestamp,
    require_field,
)
from memtier_plugin.transfer.importers.transcripts import (
    parse_locomo_sample,
    parse_longmemeval_date,
    parse_longmemeval_item,
)

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetQuestion:
    """A question, its gold turns, the time at which it is asked, and the short answer.

    ``after``: ask it once this many sessions are recorded; after all of them if None.
    ``unanswerable``: nothing that was said tells, so that "unknown" is right.
    """

    id: str
    text: str
    category: str
    gold: frozenset[str]
    at: datetime | None
    answer: str | None = None
    after: int | None = None
    unanswerable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFact:
    """A fact from the data set's own annotations, with its source turns."""

    text: str
    speaker: str
    gold_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation, to be ingested separately, with the questions about it.

    Recall is measured by turn ids; turns of one session or record may share an id.
    """

    id: str
    sessions: tuple[Session, ...]
    facts: tuple[DatasetFact, ...] = ()
    questions: tuple[DatasetQuestion, ...] = ()

    @property
    def turns(self) -> tuple[ImportedMessage, ...]:
        """All turns, in order."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def stages(self) -> Iterator[Conversation]:
        """The conversation in parts: some sessions, and the questions to ask after them."""
        count = len(self.sessions)
        waiting: dict[int, list[DatasetQuestion]] = {}
        for question in self.questions:
            after = count if question.after is None else min(question.after, count)
            waiting.setdefault(after, []).append(question)
        start = 0
        for end in sorted({*waiting, count}):
            yield replace(
                self,
                sessions=self.sessions[start:end],
                facts=self.facts if end == count else (),
                questions=tuple(waiting.get(end, ())),
            )
            start = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The conversations; how many questions were left out, and how many evidence ids."""

    name: str
    conversations: tuple[Conversation, ...]
    skipped: int
    unresolved: int


@dataclass(slots=True)
class _Tally:
    """Counts of what a loader skips."""

    skipped: int = 0
    unresolved: int = 0

    def resolve_gold(self, evidence: Iterable[str], turns: Mapping[str, object]) -> frozenset[str]:
        """Return the evidence that matches a turn; count the rest, and questions without any."""
        named = list(evidence)
        gold = frozenset(name for name in named if name in turns)
        self.unresolved += sum(name not in turns for name in named)
        self.skipped += not gold
        return gold


def load_dataset(
    name: str, path: Path, *, answered: bool = False, unanswerable: bool = False
) -> Dataset:
    """Read a data set from its authors' files.

    Args:
        name: one of `LOADERS`.
        path: LoCoMo and LongMemEval: the JSON file. BEAM: the folder that holds `N/chat.json`.
            A judgement set: its folder.
        answered: keep a question without gold turns if it has an answer to compare with.
        unanswerable: keep also those that nothing answers; a data set without them has none.

    Raises:
        ImportFileError: no such data set, or the files are not as published.
        Unsupported: answers are requested from a data set without short answers.
    """
    if name not in LOADERS:
        raise ImportFileError(f"unknown data set {name!r}; one of: {', '.join(LOADERS)}")
    if answered and name == "beam":
        raise Unsupported(
            "beam has no short answers to compare with (its authors grade by rubrics and a judge); "
            "a reader can be measured on: locomo, longmemeval, judgement"
        )
    return _collect(name, path, LOADERS[name], answered=answered, unanswerable=unanswerable)


def load_sets(path: Path) -> tuple[Dataset, ...]:
    """Read sets in our own JSON format: a file, or every JSON file of a folder.

    Raises:
        ImportFileError: there is no such file, or it has another format; names file and remedy.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ImportFileError(f"{path}: expected a set as a *.json file, found none")
    sets: dict[str, Dataset] = {}
    for file in files:
        name = require_field(load_json(file), "name", str, f"{file}{_SET_REMEDY}")
        if name in sets:
            name = f"{name} ({file.stem})"
        sets[name] = _collect(name, file, _load_set)
    return tuple(sets.values())


def _collect(
    name: str, path: Path, load: _Loader, *, answered: bool = False, unanswerable: bool = False
) -> Dataset:
    tally = _Tally()

    def is_kept(question: DatasetQuestion) -> bool:
        return bool(
            question.gold
            or (answered and question.answer)
            or (unanswerable and question.unanswerable)
        )

    conversations = tuple(
        replace(c, questions=tuple(filter(is_kept, c.questions))) for c in load(path, tally)
    )
    if not conversations:
        raise ImportFileError(f"{path}: expected conversations of {name}, found none")
    return Dataset(
        name=name,
        conversations=conversations,
        skipped=tally.skipped,
        unresolved=tally.unresolved,
    )


_Loader = Callable[[Path, _Tally], Iterator[Conversation]]

# Category 5 asks about things never said, so there are no gold turns; the evidence that its authors
# name for it misleads.
_UNANSWERABLE: Final = "unanswerable"
_LOCOMO_CATEGORIES: Final[Mapping[int, str]] = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
}


def _load_locomo(path: Path, tally: _Tally) -> Iterator[Conversation]:
    for index, sample in enumerate(_load_list(path)):
        location = f"{path}: sample {index}"
        name = require_field(sample, "sample_id", str, location)
        sessions = tuple(parse_locomo_sample(sample, location))
        turns = {turn.id: turn for session in sessions for turn in session.turns}
        at = newest_date(sessions) + _DAY
        questions = []
        for number, item in enumerate(require_field(sample, "qa", list, location)):
            spot = f"{location}, qa[{number}]"
            category = _LOCOMO_CATEGORIES.get(require_field(item, "category", int, spot))
            if category is None:
                text = require_field(item, "question", str, spot)
                questions.append(
                    DatasetQuestion(
                        id=f"{name}/{number}",
                        text=text,
                        category=_UNANSWERABLE,
                        gold=frozenset(),
                        at=at,
                        unanswerable=True,
                    )
                )
                continue
            questions.append(
                DatasetQuestion(
                    id=f"{name}/{number}",
                    text=require_field(item, "question", str, spot),
                    category=category,
                    gold=tally.resolve_gold(
                        _dialogue_ids(require_field(item, "evidence", list, spot)), turns
                    ),
                    at=at,
                    answer=_short_answer(item),
                )
            )
        yield Conversation(
            id=name,
            sessions=sessions,
            facts=tuple(_observations(sample, turns, location)),
            questions=tuple(questions),
        )


def _dialogue_ids(evidence: Iterable[Any]) -> Iterator[str]:
    """Normalise LoCoMo's evidence: ``D8:6; D9:17`` is two ids, ``D1:05`` and ``D:1:5`` are D1:5."""
    for reference in evidence:
        for part in re.split(r"[\s;,]+", str(reference).strip(" ;,")):
            match = re.fullmatch(r"D:?0*(\d+):0*(\d+)", part)
            yield f"D{match[1]}:{match[2]}" if match else part


def _observations(
    sample: Any, turns: Mapping[str, ImportedMessage], location: str
) -> Iterator[DatasetFact]:
    observed = sample.get("observation") or {}
    for session, by_speaker in observed.items():
        for speaker in require_field(observed, session, dict, location):
            for text, references in require_field(
                by_speaker, speaker, list, f"{location}, {session}"
            ):
                ids = _dialogue_ids(references if isinstance(references, list) else [references])
                gold = tuple(dict.fromkeys(name for name in ids if name in turns))
                if gold:
                    yield DatasetFact(text=text, speaker=speaker, gold_ids=gold)


# BEAM's generated messages end with markers of its plan (``->-> 1,1``), which are not content.
_BEAM_MARKS: Final = re.compile(r"(?:\s*->->\s*[\w/]+\s*,\s*[\w/]+)+\s*$")


def _load_beam(path: Path, tally: _Tally) -> Iterator[Conversation]:
    chats = sorted(path.glob("*/chat.json"), key=lambda chat: (len(chat.parent.name), chat))
    for chat in chats:
        name = chat.parent.name
        sessions = tuple(_beam_sessions(chat))
        turns = {turn.id: turn for session in sessions for turn in session.turns}
        at = newest_date(sessions) + _DAY
        probes = chat.parent / "probing_questions" / "probing_questions.json"
        probe_sets = load_json(probes)
        questions = []
        for category in probe_sets:
            for number, probe in enumerate(require_field(probe_sets, category, list, str(probes))):
                spot = f"{probes}: {category}[{number}]"
                text = require_field(probe, "question", str, spot)
                gold = tally.resolve_gold(_flatten_ids(probe.get("source_chat_ids")), turns)
                key = f"{name}/{category}/{number}"
                questions.append(
                    DatasetQuestion(id=key, text=text, category=category, gold=gold, at=at)
                )
        yield Conversation(id=name, sessions=sessions, questions=tuple(questions))


def _beam_sessions(chat: Path) -> Iterator[Session]:
    when: datetime | None = None
    for index, batch in enumerate(_load_list(chat)):
        location = f"{chat}: batch {index}"
        number = require_field(batch, "batch_number", int, location)
        turns: list[ImportedMessage] = []
        for exchange in require_field(batch, "turns", list, location):
            for record in exchange:
                spot = f"{location}, message {len(turns)}"
                # Only a batch's first message carries the date; it holds until the next one.
                anchor = record.get("time_anchor") or (None if turns else batch.get("time_anchor"))
                when = parse_date(anchor, "%B-%d-%Y", spot) if anchor else when
                content = _BEAM_MARKS.sub("", require_field(record, "content", str, spot))
                role: Role = "assistant" if record.get("role") == "assistant" else "user"
                turns.append(
                    ImportedMessage(
                        id=str(require_field(record, "id", int, spot)),
                        message=Message(role=role, content=content, observed_at=when),
                    )
                )
        if turns:
            first = turns[0].message.observed_at
            yield Session(session_id=f"batch-{number}", observed_at=first, turns=tuple(turns))


def _flatten_ids(evidence: Any) -> Iterator[str]:
    """Yield the ids in nested lists and objects."""
    if isinstance(evidence, dict):
        evidence = list(evidence.values())
    if isinstance(evidence, list):
        for inner in evidence:
            yield from _flatten_ids(inner)
    elif evidence is not None:
        yield str(evidence)


def _load_longmemeval(path: Path, tally: _Tally) -> Iterator[Conversation]:
    for index, item in enumerate(_load_list(path)):
        location = f"{path}: item {index}"
        name = require_field(item, "question_id", str, location)
        sessions = tuple(parse_longmemeval_item(item, location))
        turns = {turn.id: turn for session in sessions for turn in session.turns}
        gold = tally.resolve_gold(_answer_turns(item, location), turns)
        question = DatasetQuestion(
            id=name,
            text=require_field(item, "question", str, location),
            category=require_field(item, "question_type", str, location),
            gold=gold,
            at=parse_longmemeval_date(
                require_field(item, "question_date", str, location), location
            ),
            answer=_short_answer(item),
            unanswerable=name.endswith("_abs"),
        )
        yield Conversation(id=name, sessions=sessions, questions=(question,))


def _answer_turns(item: Any, location: str) -> Iterator[str]:
    """Yield the turns marked `has_answer` in the sessions that hold the answer."""
    holding = set(require_field(item, "answer_session_ids", list, location))
    for name, turns in zip(item["haystack_session_ids"], item["haystack_sessions"], strict=True):
        if name in holding:
            yield from (f"{name}:{i}" for i, turn in enumerate(turns) if turn.get("has_answer"))


def _short_answer(record: Mapping[str, Any]) -> str | None:
    """Return the short answer, which may be a bare number."""
    answer = record.get("answer")
    return None if answer is None else str(answer)


_SET_REMEDY: Final = " (a set in the shape of docs/evaluation.md)"


def _load_set(path: Path, tally: _Tally) -> Iterator[Conversation]:
    location = f"{path}{_SET_REMEDY}"
    for record in require_field(load_json(path), "conversations", list, location):
        name = require_field(record, "id", str, f"{path}: a conversation")
        sessions = tuple(
            _set_session(session, f"{path}: {name}, sessions[{number}]")
            for number, session in enumerate(require_field(record, "sessions", list, location))
        )
        units = {turn.id: turn for session in sessions for turn in session.turns}
        questions = tuple(
            _set_question(question, units, tally, f"{path}: {name}, questions[{number}]")
            for number, question in enumerate(require_field(record, "questions", list, location))
        )
        yield Conversation(id=name, sessions=sessions, questions=questions)


def _set_session(record: Any, location: str) -> Session:
    turns = []
    for number, turn in enumerate(require_field(record, "turns", list, location)):
        spot = f"{location}, turns[{number}]"
        role = require_field(turn, "role", str, spot)
        if role not in get_args(Role):
            expected = ", ".join(get_args(Role))
            raise ImportFileError(
                f"{spot}: expected 'role' to be one of {expected}, found {role!r}"
            )
        message = Message(
            role=cast("Role", role),
            content=require_field(turn, "text", str, spot),
            speaker=turn.get("speaker"),
        )
        turns.append(ImportedMessage(id=require_field(turn, "unit", str, spot), message=message))
    return Session(
        session_id=require_field(record, "id", str, location),
        observed_at=parse_timestamp(record.get("date"), location),
        turns=tuple(turns),
    )


def _set_question(
    record: Any, units: Mapping[str, object], tally: _Tally, location: str
) -> DatasetQuestion:
    after = record.get("after") if isinstance(record, dict) else None
    return DatasetQuestion(
        id=require_field(record, "id", str, location),
        text=require_field(record, "text", str, location),
        category=require_field(record, "category", str, location),
        gold=tally.resolve_gold(require_field(record, "gold", list, location), units),
        at=parse_timestamp(record.get("at"), location),
        after=None if after is None else require_field(record, "after", int, location),
    )


def _load_judgement(path: Path, tally: _Tally) -> Iterator[Conversation]:
    """Yield the cases of a judgement set's `currency.yaml`; what holds now is the answer."""
    for case in read_currency_cases(path):
        turns = {turn.id: turn.message for session in case.sessions for turn in session.turns}
        holding = [name for name, message in turns.items() if case.holds(message.content)]
        question = DatasetQuestion(
            id=case.id,
            text=case.ask,
            category=case.kind,
            gold=tally.resolve_gold(holding, turns),
            at=newest_date(case.sessions) + 9 * _DAY,
            answer=case.now[0],
        )
        yield Conversation(id=case.id, sessions=case.sessions, questions=(question,))


LOADERS: Final[Mapping[str, _Loader]] = {
    "locomo": _load_locomo,
    "beam": _load_beam,
    "longmemeval": _load_longmemeval,
    "judgement": _load_judgement,
}


def _load_list(path: Path) -> list[Any]:
    document = load_json(path)
    if not isinstance(document, list):
        raise ImportFileError(f"{path}: expected a list, found {document!r:.60}")
    return document


def newest_date(sessions: Iterable[Session]) -> datetime:
    """Return the time of the newest session or turn.

    Raises:
        ImportFileError: nothing is dated.
    """
    moments = [
        moment
        for session in sessions
        for moment in (session.observed_at, *(t.message.observed_at for t in session.turns))
        if moment
    ]
    if not moments:
        raise ImportFileError("a conversation without a single date")
    return max(moments)
