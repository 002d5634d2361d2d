"""The persona of a person: what they are, what holds for them and what they like.  Pure.

HMO, section 3.4. It is made of what the person said, never of what others or tools said, nor of
what the person pasted, and is never injected into a prompt: entries are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from memtier_papers.hmo.importance import LIMIT_RELATIONS, PREFERENCE_RELATIONS
from memtier_plugin.core.records import Entry, Fact, count_tokens

MAX_TOKENS: Final = 300
MAX_LINE_CHARS: Final = 240  # of one source: a text of any length adds one line
IDENTITY_RELATIONS: Final = frozenset(
    {"name", "lives_in", "works_at", "works_as", "birthday", "age", "from", "born", "moved_to"}
)
_KINDS: Final = (IDENTITY_RELATIONS, LIMIT_RELATIONS, PREFERENCE_RELATIONS)


@dataclass(frozen=True, slots=True)
class Persona:
    """The sources of a persona, in its order, and their lines."""

    items: tuple[str, ...] = ()
    text: str = ""


OwnWords = Callable[[str], str]  # returns a message without what was pasted into it


def build_persona(
    facts: Iterable[Fact], instructions: Iterable[Entry], own_words: OwnWords
) -> Persona:
    """Return the persona of who said these, within `MAX_TOKENS`.

    Args:
        facts: the current ones of one person.
        instructions: the standing ones of the same person, the newest first.

    Identity comes first, then limits and standing instructions, then preferences; the newest first.
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
    """Return the persona of these sources and texts, those that fit, without repetitions."""
    items: list[str] = []
    texts: list[str] = []
    for item, text in lines:
        line = " ".join(text[: 2 * MAX_LINE_CHARS].split())[:MAX_LINE_CHARS]
        if line and line not in texts and count_tokens("\n".join((*texts, line))) <= MAX_TOKENS:
            items.append(item)
            texts.append(line)
    return Persona(tuple(items), "\n".join(texts))


def persona_of(items: Sequence[Entry | Fact], own_words: OwnWords) -> Persona:
    """Return the persona of sources that were chosen before, of which some may be gone."""
    return fit_lines(
        (item.id, own_words(item.content) if isinstance(item, Entry) else item.text)
        for item in items
    )


def _kind_of(relation: str) -> int | None:
    return next((n for n, relations in enumerate(_KINDS) if relation in relations), None)
