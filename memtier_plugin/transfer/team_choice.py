"""Choose what of a home's facts leaves for a team's git: what anybody may see, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from memtier_plugin.core import plugins
from memtier_plugin.core.formats import encode, to_iso
from memtier_plugin.core.records import FROM_GIT, Entry, Fact
from memtier_plugin.facts import views
from memtier_plugin.facts.review import waiting_facts
from memtier_plugin.retrieval.visibility import Asker, is_visible
from memtier_plugin.storage.index.records import Stored
from memtier_plugin.storage.readers import Reader
from memtier_plugin.storage.store import Actor
from memtier_plugin.transfer.team_files import (
    MOST_LINE,
    EndedFact,
    Line,
    SharedFact,
    TeamFacts,
)
from memtier_plugin.trust.confidences import WITHHELD, is_sensitive, may_be_confided
from memtier_plugin.trust.redaction import Redactor

_HOME: Final = re.compile(r"(?<![\w.])(?:/home/|/Users/|/root\b|[A-Za-z]:\\Users\\)")
_MASKS: Final = ("[redacted:", "[purged]")
_NOBODY: Final = Asker("", frozenset())


def choose_facts(actor: Actor, reader: Reader) -> tuple[dict[str, Line], Counter[str]]:
    """Return the lines of the facts that may leave, and for how many there is a reason not."""
    current = [view.fact for view in views.list_facts(reader, None, shelves=False)]
    facts = [fact for fact in current if fact.extractor != FROM_GIT]
    sources = reader.items({source.entry for fact in facts for source in fact.sources})
    private = {i for i, stored in sources.items() if stored.is_confided_to_another("")}
    redaction = actor.store.settings.redaction
    secret = Redactor(redaction.allow, True, plugins.find_secret_spans, personal_numbers=True)
    shared: dict[str, Line] = {}
    left_out: Counter[str] = Counter()
    for fact in facts:
        line = _as_line(fact)
        if why := _refusal(fact, line, private, secret):
            left_out[why] += 1
        else:
            shared[fact.id] = line
    waiting = (view.fact for view in waiting_facts(reader, None))
    if count := sum(fact.extractor != FROM_GIT for fact in waiting):
        left_out["waits for review"] = count
    return shared, left_out


def find_rest(
    actor: Actor, reader: Reader, shared: Collection[str], own: Mapping[str, Line], team: TeamFacts
) -> dict[str, Line]:
    """Return the other lines of the file: what ended, and what this home knows nothing of.

    The latter is there where a home was lost, or is on two machines.
    """
    now, rest = to_iso(actor.clock()), dict[str, Line]()
    listed = {line.id for line in all_lines(team) if isinstance(line, SharedFact)} | own.keys()
    here = reader.items(listed)
    successors = reader.items(filter(None, (s.state.superseded_by for s in here.values())))
    for identity in listed - set(shared):
        line, stored = own.get(identity), here.get(identity)
        if stored is None:
            if line is not None:
                rest[identity] = line
            continue
        successor = successors.get(stored.state.superseded_by or "")
        if came_from_git(stored) and not (successor and _is_own_word(successor)):
            if isinstance(line, SharedFact):
                rest[identity] = line
            continue
        by = successor.item.id if successor and successor.item.id in shared else None
        at = line.at if isinstance(line, EndedFact) else now
        rest[identity] = EndedFact(ended=identity, by=by, at=at)
    return rest


def all_lines(team: TeamFacts) -> Iterable[Line]:
    return chain.from_iterable(team.files.values())


def came_from_git(stored: Stored) -> bool:
    return isinstance(stored.item, Fact) and stored.item.extractor == FROM_GIT


def is_public(stored: Stored) -> bool:
    return isinstance(stored.item, Fact) and is_visible(stored.item, _NOBODY)


def _is_own_word(successor: Stored) -> bool:
    """Return whether what ended a fact was noted here for all, or is a line that took it back."""
    if isinstance(successor.item, Entry):
        return True
    return is_public(successor) and not came_from_git(successor)


def _as_line(fact: Fact) -> SharedFact:
    return SharedFact(
        id=fact.id,
        text=fact.text,
        subject=fact.subject,
        relation=fact.relation,
        value=fact.value,
        valid_from=to_iso(fact.valid_from) if fact.valid_from else None,
        valid_to=to_iso(fact.valid_to) if fact.valid_to else None,
        confidence=fact.confidence,
        agent=fact.sources[0].agent,
        at=to_iso(fact.timestamp),
    )


def _refusal(fact: Fact, line: SharedFact, private: Collection[str], redactor: Redactor) -> str:
    """Return why a fact that holds does not leave this home; empty for one that does."""
    quoted = fact.quote, fact.text
    words = "\n".join((fact.subject, fact.relation, fact.value, fact.text))
    if fact.private_to or any(source.entry in private for source in fact.sources):
        return "private"
    if not is_visible(fact, _NOBODY):
        return "personal"
    if fact.tier != "semantic":
        return "learned from runs on this machine"
    if fact.reason.startswith(WITHHELD):
        return "sensitive"
    if any(is_sensitive(text) or may_be_confided(text) for text in filter(None, quoted)):
        return "sensitive"
    if any(mark in words for mark in _MASKS) or redactor.redact(words).kinds:
        return "holds a secret"
    home = str(Path.home())
    if _HOME.search(words) or (home != "/" and home in words):
        return "names a folder of this machine"
    return "too long" if len(encode(line.to_json())) > MOST_LINE else ""
