"""Standing instructions are shown for the tasks that they hold for, whatever words these share."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.prompt_words import split_words
from memtier_plugin.retrieval.standing import suits
from tests.builders import say_each

NAMING = "From now on start every argument name with i_."
FORMAT = "Always answer without emojis."
BRANCH = "Never push to the trunk branch."


@pytest.mark.parametrize(
    ("task", "instruction", "held"),
    [
        ("Write a function that sorts a list", NAMING, True),
        ("Write a poem about the sea", NAMING, False),
        ("Write a poem about the sea", FORMAT, True),
        ("Write a function that sorts a list", BRANCH, False),
        ("Draft an email to the harbor", "Always sign mails with Jo.", True),
        ("Write a poem", "From now on stand-up starts at ten.", False),
    ],
)
def test_what_an_instruction_holds_for(task: str, instruction: str, held: bool) -> None:
    """It holds for what it names, for aspects of its domain, or for any answer."""
    assert bool(suits(frozenset(split_words(task)), instruction)) == held


def test_before_a_task(home: Path) -> None:
    """A task is led by the instructions that hold for it; no other prompt or sender gets them."""
    with MemTier.open(home, "p", "a") as memory:
        say_each(memory, NAMING, BRANCH, "From now on I'll use that in my functions.")

        def block(prompt: str, **options: str) -> list[str]:
            recall = memory.recall(prompt, purpose="inject", session_id="x", **options)  # type: ignore[arg-type]
            return [hit.text for hit in recall.injected]

        assert block("Write a function that reverses a text")[0] == NAMING
        assert block("Write a function that reverses a text", sender="bob") == []
        assert block("Write a haiku about rain") == block("thanks!") == []
