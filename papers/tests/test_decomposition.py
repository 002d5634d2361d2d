"""Questions about several things are taken apart by rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.mem_t.decomposition import MAX_PARTS, take_parts
from tests.cases import each_case

WORDS = st.lists(st.sampled_from("Ada Ben and or than , the what rye ? in May".split()))  # noqa: SIM905


@pytest.mark.parametrize(
    ("question", "parts"),
    [("What do Ada and Ben bake?", ["What do Ada bake ?", "What do Ben bake ?"]),
     ("Who swam in May or in June?", ["Who swam in May ?", "Who swam in June ?"]),
     ("Is the red kayak older than the blue canoe?",
      ["Is the red kayak older ?", "Is the blue canoe ?"]),
     ("What did Ada, Ben and Cleo paint?",
      ["What did Ada and Cleo paint ?", "What did Ben and Cleo paint ?",
       "What did Ada , Ben paint ?", "What did Ada , Cleo paint ?"])],
)  # fmt: skip
def test_a_question_is_asked_once_for_each_thing(question: str, parts: list[str]) -> None:
    """People, times and things that are joined or compared are asked for one by one."""
    assert take_parts(question) == parts


@each_case(
    "question", ["", "What did Ada bake?", "And then?", "Well, what now?", "Bread and", "or or or"]
)
def test_what_joins_nothing_stays(question: str) -> None:
    """Without two things on the sides of a word that joins there are no parts."""
    assert take_parts(question) == []


@given(WORDS)
def test_parts_are_few_and_made_of_the_question(words: list[str]) -> None:
    """No part has a word that the question has not, and there are never more than four."""
    parts = take_parts(" ".join(words))
    assert len(parts) <= MAX_PARTS
    assert all({*part.split()} <= {*words} for part in parts)
