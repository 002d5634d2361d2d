"""Questions that ask by time: what was said then is found by the time alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.prompt_kind import words_beside_time
from memtier_plugin.text.dates.spans import find_time_spans
from tests.builders import user_message
from tests.cases import each_case

NOW = datetime(2024, 9, 12, 15, tzinfo=UTC)  # a Thursday
DIARY = {
    "2024-08-20": "Glazed the bowls for the fair.",
    "2024-09-03": "Swapped the brake pads of the van.",
    "2024-09-07": "Picked plums with Jette.",
    "2024-09-10": "The archive room was flooded.",
    "2024-09-11": "Varnished the oak table.",
}


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a diary of a line a day, and forty lines of other years."""
    home = tmp_path_factory.mktemp("diary") / "home"
    memory = MemTier.open(home, "p")
    for number, (day, words) in enumerate(DIARY.items()):
        at = datetime.fromisoformat(f"{day}T09:00+00:00")
        memory.record([user_message(words)], session_id=f"s{number}", observed_at=at)
    for number in range(40):
        at = NOW - timedelta(days=400 + 5 * number)
        text = f"Wrote page {number} of the report."
        memory.record([user_message(text)], session_id=f"o{number}", observed_at=at)
    memory.close()
    return home


@pytest.fixture
def memory(diary: Path, home: Path) -> Iterator[MemTier]:
    """Open a copy of the diary."""
    shutil.copytree(diary, home)
    with MemTier.open(home, "p") as memory:
        yield memory


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did I do yesterday?", "oak table"),
        ("Did anything happen on Tuesday?", "flooded"),
        ("What did I get done at the weekend?", "plums"),
        ("How did I spend the 3rd of September?", "brake pads"),
        ("Was habe ich letztes Wochenende gemacht?", "plums"),
        ("¿Qué hice anteayer?", "flooded"),
        ("Qu'est-ce que j'ai fait hier ?", "oak table"),
        ("我昨天做了什么？", "oak table"),
        ("What was I up to in mid-August?", "bowls"),
    ],
)
def test_what_was_said_then_is_shown(memory: MemTier, question: str, expected: str) -> None:
    """A question by time in any of five languages gets the lines of that time, and no others."""
    shown = memory.recall(question, purpose="inject", session_id="new", at=NOW).injected
    assert [hit.text for hit in shown if expected in hit.text]
    assert len(shown) == 1


@pytest.mark.parametrize(
    "question",
    [
        "When does my dentist appointment start on the 8th?",
        "what time is my dentist appointment on the 8th",
    ],
)
def test_a_date_that_was_spoken_of_before(memory: MemTier, question: str) -> None:
    """A question on what is due on a date gets what was said of it, on whatever day."""
    text = "The dentist appointment on the 8th is at 9:20."
    memory.record([user_message(text)], session_id="d", observed_at=NOW - timedelta(days=15))
    shown = memory.recall(question, purpose="inject", session_id="new", at=NOW).injected
    assert [hit.text for hit in shown] == [text]


@each_case(
    "prompt",
    [
        "I sold the old kiln yesterday.",
        "Write a limerick about last Sunday.",
        "Who won the election in 2012?",
        "Convert 2024-09-10 to a week number.",
        "How many weeks are there in August?",
        "Geht das auch im Sommer?",
        "What could I wear tonight?",
        "Where was Jette on 7 September?",
    ],
)
def test_a_date_alone_is_no_question_by_time(prompt: str) -> None:
    """A statement, a task, a question about the world, somebody or what is to come is none."""
    assert words_beside_time(prompt, find_time_spans(prompt, NOW)) is None


def test_the_words_of_a_question_choose_among_the_lines(memory: MemTier) -> None:
    """Of several lines of a time those that have the question's word are shown."""
    shown = memory.recall(
        "What did I varnish this week?", purpose="inject", session_id="new", at=NOW
    ).injected
    assert [hit.text for hit in shown] == [DIARY["2024-09-11"]]


def test_a_list_is_shown_in_shorter_passages(home: Path) -> None:
    """Asked for several things, a block has more of the lines than where one of them answers."""
    memory = MemTier.open(
        home, "p", settings={"retrieval.token_budget": 260, "retrieval.floor": "off"}
    )
    for number, bird in enumerate(("heron", "swift", "dipper", "siskin", "wren", "plover")):
        aside = " ".join(f"aside{number}n{word}" for word in range(40))
        text = f"On the walk by the weir I saw a {bird} {aside}"
        memory.record([user_message(text)], session_id=f"w{number}", observed_at=NOW)
    ask = partial(memory.recall, purpose="inject", at=NOW)
    several = ask("What are all the birds I saw by the weir?", session_id="a").injected
    single = ask("Which bird did I see first by the weir?", session_id="b").injected
    assert len(several) > len(single) > 0
