"""A consolidation that is killed, doubled or contradicted still tells the truth, once."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.paths import make_ledger_folder
from memtier_plugin.core.records import Fact
from memtier_plugin.facts.backlog import count_unread
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.ledger import jsonl, transaction
from tests.facts.claims import corpus
from tests.loopback import Loopback, honest, lines_of
from tests.proofs.checks import assert_equal_to_rebuild, child, outputs, show
from tests.proofs.processes import POINTS, PROJECT

pytestmark = pytest.mark.slow

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
THINGS = ("tea", "jazz", "rye bread", "long walks", "old maps", "the sea", "chess", "plums")
PLACES = ("Rome", "Oslo", "Bern", "Lisbon", "Graz")


def talk(home: Path, entries: int, seed: int) -> None:
    """Let three agents hear what changes, repeats, contradicts itself and says nothing."""
    chance = random.Random(seed)
    lines: list[Callable[[], str]] = [
        lambda: f"I live in {chance.choice(PLACES)}.",
        lambda: f"I like {chance.choice(THINGS)}.",
        lambda: f"I dislike {chance.choice(THINGS)}.",
        lambda: f"I have a dog{chance.choice(['', ' named Rex'])}.",
        lambda: f"I moved from {chance.choice(PLACES)} to {chance.choice(PLACES)}.",
        lambda: f"My birthday is on May {chance.randint(1, 28)}.",
        lambda: f"I went to {chance.choice(PLACES)} yesterday.",
        lambda: f"What about {chance.choice(THINGS)}?",
    ]
    agents = ("test.main", "test.modest", "test.other")
    memories = [MemTier.open(home, PROJECT, agent) for agent in agents]
    moment = START
    for number in range(entries):
        moment += timedelta(hours=chance.randint(1, 30))
        chance.choice(memories).record(
            [{"role": "user", "content": chance.choice(lines)()}],
            session_id=f"s{number // 7}",
            run_id=f"r{number}",
            observed_at=moment,
        )
    for memory in memories:
        memory.close()


def settings(home: Path, server: Loopback | None) -> None:
    """Let one agent's facts wait, and a model read too if there is one."""
    passes: dict[str, Any] = {"probes": 0}
    if server:
        passes |= {"model": "endpoint:local/scripted", "max_calls_per_day": 1_000_000}
        passes |= {"max_tokens_per_day": 1_000_000_000}
        (home / "config.yaml").write_text(
            json.dumps({"endpoints": {"local": {"base_url": server.base_url}}})
        )
    project = {"agents": {"test.modest": {"promote": "propose"}}, "consolidation": passes}
    (home / "projects" / PROJECT / "project.yaml").write_text(json.dumps(project))


def facts_of(home: Path) -> list[Any]:
    """Return all facts by what they say and rest on, with what has become of them."""
    with MemTier.open(home, PROJECT) as memory:
        memory.catch_up()
        reader = memory.store.reader()
        stored = reader.facts(standing="remembered")
        stated = {row.item.id: _said(row.item) for row in stored if isinstance(row.item, Fact)}
        return sorted(
            (
                _said(row.item),
                row.state.valid_to,
                stated.get(row.state.superseded_by or ""),
                sorted(source.entry for source in reader.sources(row.item.id)),
                row.state.reviewed,
                row.state.reverted,
            )
            for row in stored
            if isinstance(row.item, Fact)
        )


def _said(fact: Fact) -> tuple[Any, ...]:
    sources = tuple(sorted(source.entry for source in fact.sources))
    return (
        fact.subject, fact.relation, fact.value, fact.text, sources, fact.status, fact.reason,
        fact.quote, fact.span, fact.run, fact.extractor, fact.origin, str(fact.valid_from),
    )  # fmt: skip


def told_of(home: Path) -> list[Any]:
    """Return what the journal says of consolidations, without ids and times."""
    with MemTier.open(home, PROJECT) as memory:
        kinds = ("promote", "propose", "supersede", "consolidate")
        events = memory.events(kinds=kinds, limit=100_000)
        stated = {fact.id: _said(fact) for fact in memory.facts(include_superseded=True)}
    left_out = ("ms", "cost", "tokens", "read")
    return sorted(
        repr((event.kind, event.run_id, {
            name: sorted(repr(stated.get(key, key)) for key in value) if isinstance(value, list)
            else stated.get(value, value) if isinstance(value, str) else value
            for name, value in event.data.items() if name not in left_out
        }))
        for event in events
    )  # fmt: skip


@pytest.mark.parametrize("extractor", ["rules", "model"])
def test_killed_passes(home: Path, tmp_path: Path, extractor: str) -> None:
    """After 100 deaths in every phase the facts are those of an undisturbed run, and no others."""
    talk(home, 420 if extractor == "rules" else 260, seed=3)
    with Loopback() as server:
        server.answers(honest)
        settings(home, server if extractor == "model" else None)
        calm = tmp_path / "calm"
        shutil.copytree(home, calm)
        for path in calm.rglob("index.sqlite3*"):
            path.unlink()
        started = time.perf_counter()
        extractors = ("rules",) if extractor == "rules" else ("rules", "model")
        [printed, _] = outputs(
            [
                child("consolidate", home, 4, 100, 7, *extractors),
                child("consolidate", calm, 4, 0, 7, *extractors),
            ]
        )
    lines = [json.loads(line) for line in printed.splitlines()]
    died = Counter(lines.pop())
    assert lines == [] and died.total() == 100
    facts, expected = facts_of(home), facts_of(calm)
    show(
        f"killed passes by {extractor}",
        {
            "deaths": died.total(), "points": len(died), "facts": len(facts),
            "superseded": sum(fact[2] is not None for fact in facts),
            "proposed": sum(fact[0][5] == "proposed" for fact in facts),
            "seconds": round(time.perf_counter() - started),
        },
    )  # fmt: skip
    assert set(died) >= {point for point in POINTS if "propose" not in point and ":" not in point}
    assert facts == expected and len(facts) > 60
    assert told_of(home) == told_of(calm)
    assert not (home / "projects" / PROJECT / transaction.TRANSACTION_FILE).exists()
    assert_equal_to_rebuild(home, PROJECT, ["test.main"], ["where does the user live?"], START)


def test_two_at_once(home: Path) -> None:
    """Of processes that consolidate at once one works, the others are told so; nothing twice."""
    talk(home, 300, seed=5)
    settings(home, None)
    shutil.copytree(home, calm := home.with_name("calm"))
    for path in calm.rglob("index.sqlite3*"):
        path.unlink()
    processes = [child("compete", home, 10, go := home / "go") for _ in range(3)]
    time.sleep(1.5)  # their imports
    go.touch()
    reports = [json.loads(text) for text in outputs(processes)]
    outputs([child("consolidate", calm, 10, 0, 1, "rules")])
    refusals = sum((Counter(report) for report in reports), Counter[str]())
    show("at once", {"processes": 3, "refusals": refusals.total()})
    assert refusals and all("try again later" in message for message in refusals)
    assert facts_of(home) == facts_of(calm)
    assert told_of(home) == told_of(calm)


# What was said first, what is said now, and the question; of every kind that the rules can read.
PLANTED = (
    ("I live in Rome.", "I live in Oslo.", "Where do I live?", "Oslo", "Rome"),
    ("I work at Acme.", "I work at Bolt.", "Where do I work?", "Bolt", "Acme"),
    ("My birthday is on May 3.", "My birthday is on May 4.", "When is my birthday?", "May 4",
     "May 3"),
    ("I'm 41 years old.", "I'm 42 years old.", "How old am I?", "42", "41"),
    (
        "My favorite color is green.", "My favorite color is blue.",
        "What is my favorite color?", "blue", "green",
    ),
    ("The server runs on port 8080.", "The server runs on port 9090.",
     "Which port does the server run on?", "9090", "8080"),
    ("The backup is in /srv/old.", "The backup is in /srv/new.", "Where is the backup?",
     "/srv/new", "/srv/old"),
    ("The review is scheduled for 2026-03-01.", "The review is scheduled for 2026-04-01.",
     "When is the review scheduled?", "2026-04-01", "2026-03-01"),
    ("Django is pinned to 4.2.", "Django is pinned to 5.1.", "Which Django is pinned?",
     "5.1", "4.2"),
    ("My dog's name is Rex.", "My dog's name is Max.", "What is my dog's name?", "Max", "Rex"),
    ("I like dark roast coffee.", "I now like light roast coffee.",
     "Which roast coffee do I like?", "light roast", "dark roast"),
    ("I like olives.", "I dislike olives.", "Do I like or dislike olives?", "dislikes olives",
     "likes olives"),
)  # fmt: skip


def test_planted_contradictions(home: Path) -> None:
    """Of twelve things that changed over time the value of now is recalled first, 12 of 12."""
    chance, moment = random.Random(1), START
    with MemTier.open(home, PROJECT) as memory:

        def record_statement(text: str, number: int) -> None:
            nonlocal moment
            moment += timedelta(days=1, minutes=chance.randint(0, 600))
            memory.record([{"role": "user", "content": text}], session_id=f"s{number}",
                          run_id=text, observed_at=moment)  # fmt: skip
            if number % 3 == 0:
                memory.consolidate()

        for number, (old, *_) in enumerate(PLANTED):
            record_statement(old, number)
            record_statement(f"I like {chance.choice(THINGS)} with {number} lemons.", number)
        for number, (_, new, *_) in enumerate(PLANTED, 100):
            record_statement(new, number)
        memory.consolidate()
        current = {fact.text for fact in memory.facts()}
        every = memory.facts(include_superseded=True)
        right = readable = 0
        for _, _, question, now, before in PLANTED:
            lines = [hit.text for hit in memory.recall(question, at=moment).injected]
            positions = [index for index, text in enumerate(lines) if now in text]
            older = [
                index for index, text in enumerate(lines) if before in text and now not in text
            ]
            if positions and (not older or positions[0] < older[0]):
                right += 1
            else:
                show("not first", {"question": question, "lines": lines[:4]})
            past = [f for f in every if before in f.text and f.text not in current]
            readable += bool(past) and all(fact.valid_to is not None for fact in past)
    show(
        "planted contradictions",
        {"current value first": f"{right} of 12", "old readable": f"{readable} of 12"},
    )
    assert (right, readable) == (12, 12)


def test_a_thousand_entries(home: Path) -> None:
    """Consolidation takes no longer for the last entries of a thousand than for the first."""
    talk(home, 1000, seed=11)
    with MemTier.open(home, PROJECT) as memory:
        memory.catch_up()
        assert count_unread(memory.store) == 1000
        cpu_seconds = []
        for _ in range(4):
            started = time.process_time()
            assert memory.consolidate(250).read == 250
            cpu_seconds.append(time.process_time() - started)
        show("a thousand entries", {"cpu_seconds": [round(each, 2) for each in cpu_seconds]})
        assert cpu_seconds[-1] < 4 * cpu_seconds[0]


def test_five_hundred_claims(home: Path) -> None:
    """Of 500 facts that a model claims, none of the 100 wrong ones holds; of the right most do.

    The quotes of the wrong ones are invented, paraphrased, or have the right words with the wrong
    number or negation.
    """
    conversation = corpus(seed=1)
    settings_of_model = {
        "consolidation.model": "endpoint:local/scripted", "consolidation.max_calls_per_day": 10_000,
        "consolidation.max_tokens_per_day": 1_000_000_000,
    }  # fmt: skip
    left = dict(enumerate(conversation.cases))
    claimed = 0

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal claimed
        if body["messages"][0]["content"].startswith("You keep a list of facts"):
            return {"action": "add", "target": None}
        shown = {" ".join(content.split()): number for number, *_, content in lines_of(body)}
        # Its session is the one whose words it shows; what it does not show is claimed as well.
        session = max(
            conversation.sessions,
            key=lambda name: sum(
                " ".join(e.content.split()) in shown for e in conversation.sessions[name]
            ),
        )
        facts = []
        for index, case in [*left.items()]:
            if case.session == session:
                claim = left.pop(index).claim
                line = next((n for text, n in shown.items() if case.said in text), None)
                facts.append(
                    {
                        "kind": "fact", "subject": claim.subject, "relation": claim.relation,
                        "value": claim.value, "text": claim.text, "quote": claim.quote,
                        "line": line if claim.entry != "no-such-entry" else 99, "since": None,
                    }
                )  # fmt: skip
        claimed += len(facts)
        return {"facts": facts}

    with Loopback() as server:
        server.answers(answer)
        home.mkdir(mode=0o700)
        endpoints = {"local": {"base_url": server.base_url}}
        (home / "config.yaml").write_text(json.dumps({"endpoints": endpoints}))
        with MemTier.open(home, PROJECT, "host.main", settings=settings_of_model) as memory:
            folder = make_ledger_folder(home, PROJECT, "episodic", "host.main")
            for entries in conversation.sessions.values():
                path = jsonl.day_file(folder, entries[0].timestamp)
                jsonl.append_records(path, [entry.to_json() for entry in entries])
            while (report := memory.consolidate(extractor="model")).left:
                assert not report.problem and not report.held_back
            stored = memory.facts(include_superseded=True)
            held = {fact.id for fact in memory.facts()}
    assert claimed == len(conversation.cases) == 500
    texts = Counter(
        (fact.subject, fact.relation, fact.text, "holds" if fact.id in held else fact.status)
        for fact in stored
    )
    became: Counter[tuple[bool, str]] = Counter()
    for case in conversation.cases:
        key = case.claim.subject, case.claim.relation, case.claim.text
        how = (state for state in ("holds", "active", "proposed") if texts[*key, state])
        became[case.right, next(how, "rejected")] += 1
    show("claims", {f"{'right' if ok else 'wrong'} {what}": n for (ok, what), n in became.items()})
    wrong = [case.claim for case in conversation.cases if not case.right]
    assert len(wrong) == 100
    assert not became[False, "holds"] and not became[False, "active"]
    assert became[True, "holds"] > 200
