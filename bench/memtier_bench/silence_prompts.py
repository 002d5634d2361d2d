"""The prompts of `memtier bench silence`, and the stores in which they are asked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from memtier_bench.datasets import Conversation, Dataset, DatasetQuestion, newest_date
from memtier_bench.synthetic import Sentences, SyntheticChat
from memtier_plugin.core.errors import Unsupported
from memtier_plugin.ingest.messages import Session
from memtier_plugin.retrieval.prompt_words import likeliest_language, split_words

GENERIC: Final = Path(__file__).with_name("questions") / "generic.yaml"

_FILLING_HOURS: Final = 1.0  # hours between two synthetic sessions
_SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericPrompt:
    """A prompt that needs no memory, with its kind and language."""

    kind: str
    language: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrompt:
    """A prompt to ask in a store."""

    id: str
    kind: str
    group: tuple[str, ...]
    question: DatasetQuestion


def load_generic_prompts(languages: Collection[str] = ()) -> list[GenericPrompt]:
    """Return the shipped prompts in some languages, or in all.

    Raises:
        Unsupported: there is none in such a language.
    """
    groups = yaml.safe_load(GENERIC.read_text("utf-8"))
    existing = dict.fromkeys(group["lang"] for group in groups)
    for language in languages:
        if language not in existing:
            raise Unsupported(f"language {language!r}; one of: {', '.join(existing)}")
    return [
        GenericPrompt(kind=group["kind"], language=group["lang"], text=text)
        for group in groups
        for text in group["say"]
        if not languages or group["lang"] in languages
    ]


# -- prompts ---------------------------------------------------------------------------------------


def list_prompts(
    conversation: Conversation,
    foreign: Sequence[DatasetQuestion],
    generic: Sequence[GenericPrompt],
    prefix: str = "",
) -> list[AskedPrompt]:
    """Return all prompts to ask in a conversation's store."""
    asked_at = [question.at for question in conversation.questions if question.at]
    at = max(asked_at, default=None) or newest_date(conversation.sessions)
    start = f"{prefix}{conversation.id}"
    own_prompts = [
        AskedPrompt(id=f"{start}/own/{q.id}", kind="own", group=(q.category,), question=q)
        for q in conversation.questions
    ]
    others = [
        AskedPrompt(
            id=f"{start}/foreign/{q.id}",
            kind="foreign",
            group=(q.category,),
            question=replace(q, gold=frozenset(), at=at, after=None),
        )
        for q in foreign
    ]
    needless = [
        AskedPrompt(
            id=f"{start}/generic/{p.language}/{p.text}",
            kind="generic",
            group=(p.language, p.kind),
            question=DatasetQuestion(
                id=p.text, text=p.text, category=p.kind, gold=frozenset(), at=at
            ),
        )
        for p in generic
    ]
    return [*own_prompts, *others, *needless]


def foreign_questions(loaded: Sequence[Dataset]) -> dict[int, list[DatasetQuestion]]:
    """Return for each conversation the questions about the next one; the last gets the first's.

    The next one is of the same set if possible, else of the same language.
    """
    every = [conversation for part in loaded for conversation in part.conversations]
    foreign: dict[int, list[DatasetQuestion]] = {}
    for part in loaded:
        for conversation in part.conversations:
            circle = part.conversations
            if len(circle) == 1:
                language = _language(conversation)
                circle = tuple(other for other in every if _language(other) == language)
            position = next(n for n, other in enumerate(circle) if other is conversation)
            other = circle[(position + 1) % len(circle)]
            different = other is not conversation
            foreign[id(conversation)] = exchange_names(other, conversation) if different else []
    return foreign


def exchange_names(conversation: Conversation, store: Conversation) -> list[DatasetQuestion]:
    """Return a conversation's questions with its speakers' names replaced by the store's."""
    theirs, ours = _speakers(conversation), _speakers(store)
    if not theirs or not ours:
        return list(conversation.questions)
    names = {name: ours[number % len(ours)] for number, name in enumerate(theirs)}
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    return [
        replace(q, text=pattern.sub(lambda match: names[match[0]], q.text))
        for q in conversation.questions
    ]


def _language(conversation: Conversation) -> str:
    """Return the most common language of a conversation's questions."""
    text = " ".join(question.text for question in conversation.questions[:5])
    return likeliest_language(text, split_words(text))


def _speakers(conversation: Conversation) -> list[str]:
    """Return the names of the speakers, in order of first appearance."""
    return [*dict.fromkeys(t.message.speaker for t in conversation.turns if t.message.speaker)]


# -- stores of a given size ------------------------------------------------------------------------


def build_store(conversations: Sequence[Conversation], size: int) -> tuple[Conversation, int]:
    """Return a store with this many lines, and the number of synthetic ones.

    The lines are those of the conversations, in order; if they do not suffice, recombined sentences
    of theirs are put before them.
    """
    sessions: list[Session] = []
    questions: list[DatasetQuestion] = []
    lines = 0
    for conversation in conversations:
        for session in conversation.sessions:
            turns = tuple(
                replace(turn, id=f"{conversation.id}/{turn.id}")
                for turn in session.turns[: size - lines]
            )
            if turns:
                name = f"{conversation.id}/{session.session_id}"
                sessions.append(replace(session, session_id=name, turns=turns))
                lines += len(turns)
        questions += [
            replace(q, gold=frozenset(f"{conversation.id}/{name}" for name in q.gold), after=None)
            for q in conversation.questions
        ]
    present = {turn.id for session in sessions for turn in session.turns}
    questions = [question for question in questions if question.gold <= present]
    at = max((q.at for q in questions if q.at), default=None)
    made_up = list(_fill_sessions(conversations, size - lines, sessions))
    return (
        Conversation(
            id=f"{size} lines",
            sessions=(*made_up, *sessions),
            questions=tuple(replace(q, at=at) for q in questions),
        ),
        size - lines,
    )


def _fill_sessions(
    conversations: Sequence[Conversation], lines: int, before: Sequence[Session]
) -> Iterator[Session]:
    """Yield synthetic sessions with this many lines, dated before the given ones."""
    if lines <= 0:
        return
    chat = SyntheticChat(_SEED, Sentences(conversations))
    made: list[Session] = []
    while lines > 0:
        session = chat.session(len(made), step=_FILLING_HOURS)
        made.append(replace(session, turns=session.turns[:lines]))
        lines -= len(session.turns)
    start = min((s.observed_at for s in before if s.observed_at), default=None)
    if start is None or made[-1].observed_at is None:
        yield from made
        return
    shift = start - made[-1].observed_at
    for session in made:
        assert session.observed_at is not None  # a synthetic session is dated
        yield replace(session, observed_at=session.observed_at + shift)
