"""What the tests build: messages, records and the hits of them, memories, clocks, settings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import Entry, Fact, FactDraft, Source
from memtier_plugin.core.results import Hit
from memtier_plugin.memory import MemTier

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)  # what a clock advances between two looks at it


class Clock:
    """A clock that a test sets; with a tick, each look at it is a moment later."""

    def __init__(self, now: datetime = START, tick: timedelta = timedelta(0)) -> None:
        self.now = now
        self.tick = tick

    def __call__(self) -> datetime:
        """Return the time."""
        self.now += self.tick
        return self.now

    def later(self, **time: float) -> None:
        """Move on."""
        self.now += timedelta(**time)


def write_config(home: Path, settings: Mapping[str, Any] | str) -> None:
    """Write the user's settings, as YAML or as a mapping, into a home that may not exist yet.

    A daemon that reads them meanwhile finds the old ones or the new ones, never half of them.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    text = settings if isinstance(settings, str) else json.dumps(settings)  # JSON is YAML
    written = home / f"config.{os.getpid()}.new"
    written.write_text(text, "utf-8")
    written.replace(home / "config.yaml")


def costly_examples() -> int:
    """Return how many examples a property gets that takes a store or two for each."""
    from hypothesis import settings  # children of tests import this file, too

    return max(3, settings.default.max_examples // 8)


def append_lines(memory: MemTier, texts: Iterable[str]) -> None:
    """Write texts, twenty a run, behind a recorded line: much faster than `MemTier.record`."""
    template = memory.record([user_message("The first line.")], session_id="s", run_id="r")
    [path] = (memory.folder / "episodic").rglob("*.jsonl")
    with path.open("a") as file:
        for number, text in enumerate(texts):
            run = f"r{number // 20}"
            new = {"id": new_id(), "content": text, "key": f"k{number}", "run_id": run}
            new |= {"session_id": run, "turn": number % 20, "tokens": len(text) // 4}
            file.write(json.dumps({**template[0].to_json(), **new}) + "\n")


# -- messages, and memories that have heard them -----------------------------------------------


def user_message(text: str, **more: Any) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text, **more}


def assistant_message(text: str) -> dict[str, Any]:
    """Return a message of the assistant's."""
    return {"role": "assistant", "content": text}


def turns(*texts: str) -> list[dict[str, Any]]:
    """Return messages of the user and the assistant in turn."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]


def say(memory: MemTier, text: str, *, role: str = "user", **more: Any) -> Entry:
    """Record one message, of the user if nobody else is named, and return its entry."""
    fields = {"session_id": "s"} | more
    [entry] = memory.record([{"role": role, "content": text}], **fields)
    return entry


def say_each(memory: MemTier, *texts: str, **more: Any) -> list[Entry]:
    """Record what a user says, each in a run of its own unless one is named."""
    entries = []
    for text in texts:
        given = {"session_id": "s", "run_id": f"r-{text}"} | more
        entries += memory.record([user_message(text)], **given)
    return entries


def say_in(home: Path, project: str, *texts: str, agent: str = "test.main") -> list[Entry]:
    """Open a project, record what a user says, each in a run of its own, and close it."""
    with MemTier.open(home, project, agent) as memory:
        return say_each(memory, *texts)


# -- records and hits --------------------------------------------------------------------------


def make_entry(content: str, at: datetime = START, *, id: str = "e1", **more: Any) -> Entry:
    """Return an entry of a user's, said and stored at that time."""
    fields: dict[str, Any] = {
        "timestamp": at, "observed_at": at, "session_id": "s", "project": "p", "tokens": 1,
        "agent_id": "a", "run_id": "r", "turn": 1, "role": "user", "key": id,
    }  # fmt: skip
    fields |= more
    return Entry(id=id, content=content, **({"origin": fields["role"]} | fields))


def make_fact(text: str, at: datetime = START, *, id: str = "f1", **more: Any) -> Fact:
    """Return a fact about Ann, stored at that time, which rests on the entry `e1`."""
    fields: dict[str, Any] = {
        "timestamp": at, "project": "p", "subject": "Ann", "relation": "r", "value": text,
        "sources": (Source(agent="a", session="s", entry="e1"),),
    }  # fmt: skip
    return Fact(id=id, text=text, **(fields | more))


def make_draft(entry: Entry, value: str, **more: Any) -> FactDraft:
    """Return the draft of a fact that rests on an entry, by default of where the fox works."""
    about = {"subject": "the fox", "relation": "works_at"} | more
    text = f"{about['subject']} {about['relation'].replace('_', ' ')} {value}"
    return FactDraft(value=value, sources=(entry.source,), **({"text": text} | about))


def make_hit(item: Entry | Fact, score: float = 1.0, **more: Any) -> Hit:
    """Return a hit of an entry, which is its own source, or of a fact."""
    sources = item.sources if isinstance(item, Fact) else (item.source,)
    return Hit(item=item, score=score, sources=sources, **({"signals": {}} | more))


def texts(hits: Iterable[Hit]) -> list[str]:
    """Return what some hits say."""
    return [hit.text for hit in hits]
