"""The persona of a person: identity, limits and preferences.  Pure.

HMO, section 3.4. It is built from what the person said, never from what others or tools said or the
person pasted, and is never injected into a prompt: entries are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from memtier_papers.hmo.importance import LIMIT_RELATIONS, PREFERENCE_RELATIONS
from memtier_plugin.core.records import Entry, Fact, count_tokens

MAX_TOKENS: Final = 300
MAX_LINE_CHARS: Final = 240  # of one source, so that even a huge text adds only one line
IDENTITY_RELATIONS: Final = frozenset(
    {"name", "lives_in", "works_at", "works_as", "birthday", "age", "from", "born", "moved_to"}
)
_KINDS: Final = (IDENTITY_RELATIONS, LIMIT_RELATIONS, PREFERENCE_RELATIONS)


@dataclass(frozen=True, slots=True)
class Persona:
    """The sources of a persona, in its order, with their lines."""

    items: tuple[str, ...] = ()
    text: str = ""


OwnWords = Callable[[str], str]  # returns a message without pasted text


def build_persona(
    facts: Iterable[Fact], instructions: Iterable[Entry], own_words: OwnWords
) -> Persona:
    """Return a speaker's persona, within `MAX_TOKENS`.

    Args:
        facts: the person's current facts.
        instructions: the same person's standing instructions, newest first.

    Identity comes first, then limits and standing instructions, then preferences; newest first.
    """
    kinds: list[list[tuple[str, str]]] = [[], [], []]
    newest = sorted(facts, key=lambda fact: (fact.timestamp, fact.id), reverse=True)
    for fact in newest:
        kind = _kind_of(fact.relation)
        if kind is not None and fact.origin == "user":
            kinds[kind].append((fact.id, fact.text))
    kinds[1] += [(entry.id, own_words(entry.content)) for entry in instructions]
    return fit_lines([line for kind in kinds for line in kind])


def fit_lines(lines: Iterable[tuple[str, str]]) -> Persona:
    """Return the persona of these sources and texts that fit, without repetitions."""
    items: list[str] = []
    texts: list[str] = []
    for item, text in lines:
        line = " ".join(text[: 2 * MAX_LINE_CHARS].split())[:MAX_LINE_CHARS]
        if line and line not in texts and count_tokens("\n".join((*texts, line))) <= MAX_TOKENS:
            items.append(item)
            texts.append(line)
    return Persona(tuple(items), "\n".join(texts))


def persona_of(items: Sequence[Entry | Fact], own_words: OwnWords) -> Persona:
    """Return the persona of previously chosen sources, some of which may be gone."""
    return fit_lines(
        (item.id, own_words(item.content) if isinstance(item, Entry) else item.text)
        for item in items
    )


def _kind_of(relation: str) -> int | None:
    return next((n for n, relations in enumerate(_KINDS) if relation in relations), None)
