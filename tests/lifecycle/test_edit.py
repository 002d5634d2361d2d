"""Changes to lines of memory as events: each is as private as what it takes the place of."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.lifecycle.edit import Change
from memtier_plugin.memory import MemTier
from tests.builders import say


def tiers_told(memory: MemTier) -> list[str]:
    """Return the tiers in which an agent finds how the safe opens."""
    hits = memory.recall("How many turns open the safe?").hits
    return sorted(hit.tier for hit in hits if "turns" in hit.text)


@pytest.mark.parametrize("kind", ["fact", "entry", "line below", "session made private"])
def test_what_takes_the_place_of_a_confidence_is_one(home: Path, kind: str) -> None:
    """New words for a confidence are told to nobody that the old ones were not told to.

    Neither another agent gets them, nor one that may read what all agents heard.
    """
    rights = {"agents": {"boss": {"read_all": True}}}
    old, new = "The safe opens with four turns.", "The safe opens with nine turns."
    with (
        MemTier.open(home, agent_id="a") as memory,
        MemTier.open(home, agent_id="b") as other,
        MemTier.open(home, agent_id="boss", settings=rights) as boss,
    ):
        if kind == "fact":
            fact = memory.remember(old, private=True)
            change = Change("reword", fact.id, old, new, 1)
        else:
            line = say(memory, old, private=kind != "session made private")
            change = Change("reword", line.id, old, new, 1)
            if kind == "line below":
                change = Change("add", None, "", new, 1, line.id)
            elif kind == "session made private":
                memory.make_private("s")
        before = [tiers_told(agent) for agent in (other, boss)]
        [done] = memory.editor.apply([change])
        assert done.new
        memory.consolidate()
        assert [tiers_told(agent) for agent in (other, boss)] == before
        assert before == [[], []]
        assert new in [hit.text for hit in memory.recall("How many turns open the safe?").hits]
