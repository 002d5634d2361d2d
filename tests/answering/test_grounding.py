"""Which lines hold what an answer says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memtier_plugin.answering.grounding import find_grounds
from memtier_plugin.answering.llm import AnswerFinding
from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.duplicates import hit_time
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import make_entry

SAID = datetime(2026, 5, 10, 9, 30, tzinfo=UTC)
LINES = (
    "We signed the lease for the workshop yesterday.",
    "Kari keeps eleven hens behind the barn.",
    "The invoice of 3 February 2026 came to 412 euros.",
    "Let us talk about the garden another time.",
)


def findings() -> list[AnswerFinding]:
    entries = [
        make_entry(text, SAID, id=f"E{n}", turn=n, speaker="Odd") for n, text in enumerate(LINES)
    ]
    hits = [Hit(item=entry, score=0.0, signals={}, sources=(entry.source,)) for entry in entries]
    return [AnswerFinding(hit.text, hit_time(hit), (hit,)) for hit in hits]


def grounds(question: str, answer: str, *cited: int) -> list[int]:
    """Return the lines, by number, on which an answer rests."""
    shown = findings()
    kept = find_grounds(
        question, answer, [shown[n] for n in cited], shown, Tokenizer("english").words
    )
    return [shown.index(finding) for finding in kept]


@pytest.mark.parametrize(
    ("question", "answer", "cited", "held"),
    [
        ("How many hens does Kari have?", "Eleven hens.", [1], [1]),
        ("How many hens does Kari have?", "Eleven hens.", [3], [1]),
        ("What was the invoice?", "412 euros", [2, 0], [2]),
        ("When was the lease signed?", "On 9 May 2026.", [0], [0]),
        ("When was the lease signed?", "In May 2026.", [0], [0]),
        ("When did the invoice come?", "3 February 2026", [2], [2]),
        ("Who keeps the hens?", "Odd says that Kari does.", [1], [1]),
        ("Did Kari keep hens?", "Yes.", [1], [1]),
    ],
)
def test_cited_lines_hold_the_answer(
    question: str, answer: str, cited: list[int], held: list[int]
) -> None:
    """A cited line that holds nothing of the answer gives way to one that does."""
    assert grounds(question, answer, *cited) == held


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many hens does Kari have?", "14"),
        ("When was the lease signed?", "On 10 June 2026."),
        ("What was the invoice?", "The invoice came to 142 euros."),
        ("How long has Kari been married?", "Kari has been married for 10 months."),
        ("What colour is the barn door?", "Turquoise."),
    ],
)
def test_what_no_line_says_has_no_ground(question: str, answer: str) -> None:
    """A number, a date or words of no line are nobody's, whatever the model cites."""
    assert grounds(question, answer, 0, 1, 2, 3) == []


def test_without_words_of_its_own_and_without_citations_nothing_holds_an_answer() -> None:
    """A bare yes rests on what the model cites alone."""
    assert grounds("Did Kari keep hens?", "Yes.") == []
