"""A question that leaves its subject to a pronoun is about what its session named last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from memtier_plugin.core.results import Shown
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.prompt_kind import prompt_kinds
from memtier_plugin.retrieval.session import find_subject, points_back
from tests.builders import say_each
from tests.cases import each_case


@each_case(
    ("prompt", "asked"),
    [
        ("and when does she start?", True),
        ("what does he do?", True),
        ("Und wem gehört sie?", True),
        ("¿Y cuánto cuesta?", True),
        ("Et qui l'a écrite, elle ?", True),
        ("她在哪里工作？", True),
        ("are you sure about that?", False),
        ("make it angrier", False),
        ("I did, it's empty", False),
        ("Where does Anna keep her bike?", False),
    ],
)
def test_what_points_back(prompt: str, asked: bool) -> None:
    """A question does, with a pronoun or as an addition; not an edit, nor one that has a name."""
    assert points_back(prompt, prompt_kinds(prompt)) == asked


@each_case(
    ("lines", "subject"),
    [
        ([("user", "When does Nora start?"), ("assistant", "In May.")], "Nora"),
        ([("user", "Who has the ladder?"), ("assistant", "Piet.")], "Piet"),
        (
            [
                ("user", "Where is Nora from?"),
                ("assistant", "From Ghent."),
                ("user", "And what does she do?"),
                ("assistant", "She paints."),
            ],
            "Ghent Nora",
        ),
        ([("user", "how long is the lease?"), ("assistant", "Two years.")], "long lease"),
        ([("user", "小王住在哪里？"), ("assistant", "北京。")], "王住"),
        ([("user", "Wie funktioniert eine Mauer?"), ("assistant", "Stein auf Stein.")], ""),
        ([("user", "Write a poem."), ("assistant", "Roses are red.")], ""),
        ([], ""),
    ],
)
def test_what_a_session_named_last(lines: list[tuple[str, str]], subject: str) -> None:
    """It is a name of the last question or of its short answer, else the question's own words.

    What points back itself names nothing, nor does a question about the world, or a bare task.
    """
    assert find_subject("and how old is she?", reversed(lines)) == subject


def test_a_follow_up_finds_what_its_subject_would(home: Path) -> None:
    """It is answered as if it named its subject; an edit of what is in sight still gets nothing."""
    with MemTier.open(home, "p", "a") as memory:
        say_each(memory, "Nora plays the cello.", "Piet plays chess.", "Piet is 40.")
        messages = [
            {"role": "user", "content": "Where is Nora?"},
            {"role": "assistant", "content": "At home."},
        ]
        memory.end_run(messages, session_id="now", run_id="r")
        shown = Shown(since=datetime.now(UTC) - timedelta(hours=1))

        def lines(prompt: str, session: str = "now") -> list[str]:
            recall = memory.recall(prompt, purpose="inject", session_id=session, shown=shown)
            return [hit.text for hit in recall.injected]

        assert any("cello" in line for line in lines("and what does she play?")[:1])
        assert lines("what does she do?") != []
        assert lines("what does she do?", session="other") == []
        assert lines("make it shorter") == []


def test_a_question_to_ask_may_leave_its_subject_to_the_one_before(home: Path) -> None:
    """What a session asked counts as what it said; what another one asked does not."""
    with MemTier.open(home, "p", "a") as memory:
        say_each(memory, "Nora is allergic to rye.", "Nora bakes.", "Piet is allergic to bees.")
        memory.ask("Where is Nora?", session_id="hers")
        memory.ask("Where is Piet?", session_id="his")
        rye = memory.ask("and what is she allergic to?", session_id="hers")
        bees = memory.ask("and what is he allergic to?", session_id="his")
    assert "rye" in rye.text.splitlines()[0]
    assert "bees" in bees.text.splitlines()[0]
    assert bees.question == "and what is he allergic to?"
