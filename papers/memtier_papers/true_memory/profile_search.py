"""Find the profile of a person whom a question names, and lines in that person's style.

People by the same name are told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from typing import Final

from memtier_papers.true_memory.style import StyleVector
from memtier_plugin.core.records import Fact
from memtier_plugin.core.results import Hit
from memtier_plugin.facts.persons import USER
from memtier_plugin.facts.summaries.selection import MIN_PERSON_LINES
from memtier_plugin.retrieval.candidates import SearchView
from memtier_plugin.retrieval.query import ParsedQuery
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.lexicon import LANGUAGES
from memtier_plugin.text.phrases import Words
from memtier_plugin.text.tokenizer import normalise

_PROFILES: Final = 200  # newest profiles that are searched for names
_NAMED: Final = 4  # profiles that one question may use
_STYLED: Final = 200  # newest lines of a person whose style is compared


def find_profiles(query: ParsedQuery, search: SearchView) -> Mapping[int, str]:
    """Return the profiles of the people named in a question about somebody."""
    if not asks_character(query.text):
        return {}
    viewer, reader = search.viewer, search.reader
    scopes = reader.scopes(viewer.agent, viewer.sender, read_all=viewer.read_all, shelf="profile")
    rows = reader.overviews.shelf_rows("profile", scopes, _PROFILES) if scopes else []
    people = {each.row: each.speaker or "" for each in reader.candidates(rows)} if rows else {}
    named = [row for row in rows if row in people and query.names(people[row])]
    if not named and query.of_oneself:
        named = [row for row in rows if len(rows) == 1 or people.get(row) == "user"]
    return dict.fromkeys(named[:_NAMED], "profile")


def find_styled_lines(profiles: Collection[int], reader: Reader, limit: int) -> dict[int, float]:
    """Return the lines most in the style of people, by row: their likeness to the best one's, 0..1.

    Args:
        profiles: rows of the people's profiles, whose agent and sender also own the lines.
        limit: lines of all people together.
    """
    stored = reader.items_by_row([*profiles]).values()
    people = {(p.item.private_to, p.item.subject) for p in stored if isinstance(p.item, Fact)}
    likeness: dict[int, tuple[float, str]] = {}
    for group in reader.overviews.line_groups("speaker", MIN_PERSON_LINES):
        if ((group.agent, group.sender), group.name or USER) not in people:
            continue
        rows = reader.overviews.group_rows(group, _STYLED, speaker=group.name)
        lines = {row: each.item for row, each in reader.items_by_row(rows).items()}
        style = StyleVector.of(line.text for line in lines.values())
        likeness |= {row: (style.likeness(line.text), line.id) for row, line in lines.items()}
    best = nlargest(limit, likeness, key=likeness.__getitem__)
    most = likeness[best[0]][0] if best else 0.0
    return {row: likeness[row][0] / most for row in best if likeness[row][0]}


def asks_character(query: str) -> bool:
    """Return whether a query asks about somebody's character: traits, tastes or interests."""
    return any(Words.of(query[:2000], name).has("character_cues") for name in LANGUAGES)


def note_namesakes(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits, with a note saying whose each profile is if people share a name."""
    people: dict[str, tuple[str, str]] = {}  # the name and sender of each hit
    for hit in hits:
        if isinstance(hit.item, Fact) and hit.item.shelf == "profile":
            _, sender = hit.item.private_to or ("", "")
            people[hit.id] = normalise(hit.item.subject)[0], sender
    if len(people) < 2:
        return [*hits]
    everybody = {*people.values()}
    words = Counter(word for name, _ in everybody for word in {*name.split()})
    names = Counter(name for name, _ in everybody)
    marked = []
    for hit in hits:
        name, sender = people.get(hit.id, ("", ""))
        count = max((words[word] for word in name.split()), default=0)
        if count > 1:
            owner = f": of {sender or 'the user'}" if names[name] > 1 else ""
            hit = hit.with_note(f"one of {count} of that name{owner}")
        marked.append(hit)
    return marked
