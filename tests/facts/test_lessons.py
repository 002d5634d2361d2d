"""Experiences that users state, and steps that worked several times, by kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.facts.extraction.experiences import KINDS, extract_experiences, extract_lessons
from memtier_plugin.memory import MemTier
from tests.builders import make_entry, user_message
from tests.cases import each_case
from tests.facts.test_experiences import active, entries, steps

STATED = [
    ("The best way to test the importer is to replay yesterday's dump.", "strategy"),
    ("Next time, stop the worker before the migration.", "strategy"),
    ("The trick is to warm up the cache first.", "strategy"),
    ("It helps to sort the rows before the import.", "strategy"),
    ("To deploy, run make ship and wait for the green light.", "skill"),
    ("To rebuild the search index, run bin/reindex --full.", "skill"),
    ("The build fails if the cache is older than a week.", "failure"),
    ("Lesson learned: the backup works only if the volume is mounted.", "failure"),
    ("Last time we upgraded Postgres, the collation had to be rebuilt.", "case"),
    ("What fixed the flaky test was a longer timeout.", "case"),
    ("We fixed the memory leak by closing the cursor.", "case"),
    ("Restarting the router fixed the VPN.", "case"),
]
NONE = [
    "To be honest, use whatever you like.",
    "Maybe the build fails if it rains.",
    "That works if you restart it.",
    "How do I test the importer?",
    "Last time I saw my doctor, my knee hurt.",
    "What helped me was a long walk with Ben.",
    "I think the best way to cook rice is steam.",
    'The page says: "To win, run evil.sh and wait."',
    "Next time maybe.",
]


@each_case(("text", "kind"), STATED)
def test_a_stated_experience_has_a_kind(text: str, kind: str) -> None:
    """How a thing is best done, how to do it, what fails, what was done once and how it went."""
    [draft] = extract_lessons(make_entry(text, id="e"))
    assert (KINDS[draft.relation], draft.tier, draft.status) == (kind, "procedural", "active")
    assert draft.quote in text


@each_case("text", NONE)
def test_what_is_no_experience(text: str) -> None:
    """A phrase, a doubt, a question, what leans on something else, and what is about a person."""
    assert [*extract_lessons(make_entry(text, id="e"))] == []


def test_only_the_users_own_words_count() -> None:
    """Neither an assistant nor text from outside teaches anything by saying so."""
    text = STATED[0][0]
    for more in ({"role": "assistant", "origin": "assistant"}, {"tainted": True}):
        assert [*extract_lessons(make_entry(text, id="e", **more))] == []


def test_a_stated_experience_is_found(tmp_path: Path) -> None:
    """It is shared like any experience, said once, and answers a question about it."""
    with MemTier.open(tmp_path, "shop") as memory:
        memory.record([user_message(text) for text, _ in STATED], session_id="s")
        memory.consolidate()
        experiences = [fact for fact in memory.facts() if fact.tier == "procedural"]
        assert len(experiences) == len(STATED)
        best = memory.recall("How do I rebuild the search index?", depth="facts").hits[0]
        assert "bin/reindex --full" in best.text


def test_steps_that_worked_in_one_order_are_a_strategy(home: Path) -> None:
    """Two runs for the same kind of request that took the same steps; one alone teaches nothing."""
    done = [("make check", True, "ok"), ("make ship", True, "ok")]
    run = steps("publish the docs of the shop", *done)
    [once] = [active(extract_experiences(entries(home, run)))]
    assert [draft for draft in once if draft.relation == "strategy"] == []
    drafts = active(extract_experiences(entries(home, run, run, project="shop2")))
    [strategy] = [draft for draft in drafts if draft.relation == "strategy"]
    worked = "`make check`, then `make ship` worked in 2 runs for the same kind of task."
    assert strategy.text == f"In project shop2, {worked}"


@pytest.mark.parametrize(("store", "tier"), [("facts", "semantic"), ("experiences", "procedural")])
def test_a_store_can_be_left_out(tmp_path: Path, store: str, tier: str) -> None:
    """With `retrieval.facts` or `.experiences` off none of it is found, nor leads to its lines."""
    home = tmp_path / "home"
    with MemTier.open(home, "shop") as memory:
        memory.record(
            [user_message("To rebuild the search index, run bin/reindex --full."),
             user_message("The search index is on host heron.")],
            session_id="s",
        )  # fmt: skip
        memory.consolidate()
        assert {hit.item.tier for hit in memory.recall("search index", depth="facts").hits} == {
            "semantic",
            "procedural",
        }
    with MemTier.open(home, "shop", settings={f"retrieval.{store}": False}) as memory:
        left = {hit.item.tier for hit in memory.recall("search index", depth="facts").hits}
        assert left == {"semantic", "procedural"} - {tier}
