"""Standing instructions are shown for the tasks that they hold for, whatever words these share."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.standing import stems, suits
from memtier_plugin.text.phrases import find_orders, is_standing_instruction
from tests.builders import say_each
from tests.cases import each_case

NAMING = "From now on start every argument name with i_."
FORMAT = "Always answer without emojis."
BRANCH = "Never push to the trunk branch."


@each_case(
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
    assert bool(suits(stems(task), stems(instruction))) == held


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


@each_case(
    "order",
    [
        "Never squash commits on the shared branch.",
        "From now on wrap lines at 88 characters.",
        "From now on, when you name things, use nouns.",
        "Please always quote the ticket in the subject.",
        "When you add an endpoint, always describe it in the docs.",
        "Going forward, I want you to end private names with an underscore.",
        "Verwende immer englische Namen.",
        "Nunca borres los registros antiguos.",
        "N'utilise jamais de chemins absolus.",
        "始终用英文写注释。",
    ],
)
def test_an_order_for_good_has_a_verb_and_an_object(order: str) -> None:
    """It says always, never or from now on, and what is to be done to what, in any language."""
    assert find_orders(f"Good. {order} It helps.") == order


@each_case(
    "text",
    [
        "Never mind the deadline, the branch is ready.",
        "Always a treat to read such functions.",
        "Always lovely to hear from you about the code!",
        "Never been happier with a method.",
        "Never a quiet day with this service.",
        "From now on I'll write my functions like that.",
        "Understood, I will end the names with p_ from now on.",
        "I always forget which branch that is.",
        "The job never runs on Sundays.",
        "Let's move forward with the second design.",
        "Immer ein Vergnügen, deine Mails zu lesen.",
        "Siempre es un gusto leer tus correos.",
    ],
)
def test_a_figure_of_speech_or_a_promise_is_no_order(text: str) -> None:
    """Neither "never mind" nor "always a pleasure" nor what somebody will do tells what to do."""
    assert not is_standing_instruction(text)


@pytest.mark.parametrize(
    ("older", "newer", "replaced"),
    [
        ("Always indent code with 2 spaces.", "Always indent code with 3 spaces.", True),
        ("Always start test names with 'it_'.", "Always start test names with 'spec_'.", True),
        ("Never use eval in functions.", "Never use exec in functions.", False),
        ("Always end class names with 'Kit'.", "Always end method names with 'Op'.", False),
        (
            "Always keep function names under 20 letters.",
            "Always end function names in 'x'.",
            False,
        ),
        ("Always log errors in functions.", "Always type functions.", False),
    ],
)
def test_what_replaces_an_order(home: Path, older: str, newer: str, replaced: bool) -> None:
    """Another value for the same thing does; what may hold together stands together."""
    with MemTier.open(home, "p", "a") as memory:
        say_each(memory, older, newer)
        task = "Write code: a test, a class, a method, a function"
        lines = [hit.text for hit in memory.recall(task, purpose="inject").injected]
    assert lines == ([newer] if replaced else [newer, older])


def test_the_orders_of_a_block(home: Path) -> None:
    """Of two values for the same thing the newer stands; the newest first; the words of the order.

    All together leave two thirds of the block to what answers.
    """
    many = [f"Never call the {name} function twice." for name in ("run", "stop", "load", "save")]
    with MemTier.open(home, "p", "a") as memory:
        say_each(
            memory,
            "Always start class names with 'k_'.",
            "Always end function names with '_f'.",
            "Lunch was good. Always start class names with 'q_'. See you at four in the yard.",
        )
        recall = memory.recall("Write a class for a stack", purpose="inject", session_id="x")
        assert ["q_" in hit.text or "_f" in hit.text for hit in recall.injected] == [True, True]
        assert recall.text.index("q_") < recall.text.index("_f")
        assert "k_" not in recall.text
        assert "Lunch" not in recall.text
        say_each(memory, *many, *(f"{order[:-1]} in a row." for order in many))
        recall = memory.recall("Write a function", purpose="inject", session_id="x")
    assert recall.tokens < 300
