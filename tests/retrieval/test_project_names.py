"""The name of a project in a query counts as one word, and says nothing of the topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.query import (
    find_identifiers,
    find_project_names,
    is_called_project,
    parse_query,
    without_names,
)
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import START, turns
from tests.cases import each_case


@each_case(
    ("text", "called"),
    [
        ("Let's get started on the shop-api project.", True),
        ("clone the repository `shop-api` first", True),
        ("the project is called shop-api", False),
        ("shop-api/\n  app/\n    main.py", True),
        ("das Projekt shop-api", True),
        ("项目 shop-api 已上线", True),
        ("we use the shop-api for orders", False),
        ("my-shop-api project", False),
        ("a shop-api-like project", False),
    ],
)
def test_what_is_called_a_project(text: str, called: bool) -> None:
    """A name stands before or after a noun for a project, or is a folder; not any use of it."""
    assert is_called_project("shop-api", [text]) == called


def test_only_known_names() -> None:
    """Of the words with several parts, only names that the project knows are names."""
    query = "How is well-being measured in Shop-API since 2026-01-02 in 3-5 steps?"
    assert find_identifiers(query) == ["well-being", "shop-api"]
    assert find_project_names(query, ["shop-api"], lambda word: []) == ("shop-api",)
    assert find_project_names(query, ["other"], lambda word: []) == ()
    lines = {"shop-api": ["the shop-api repo"], "well-being": ["well-being matters"]}
    assert find_project_names(query, [], lines.__getitem__) == ("shop-api",)


def test_parts_share_the_weight_of_one_word() -> None:
    """A name's whole and its parts sum to one word's weight; other words keep theirs."""
    tokenizer = Tokenizer("english")
    query = "Which library does the shop-api use?"
    plain, named = (parse_query(query, START, tokenizer, names) for names in ((), ("shop-api",)))
    assert sum(named.terms[word] for word in tokenizer.words("shop-api")) == pytest.approx(1)
    assert named.terms["librari"] == plain.terms["librari"] == 1
    assert "shop" not in named.topic and "library" in named.topic


def test_a_query_of_a_name_alone() -> None:
    """Where nothing else is asked, n-grams and vectors have the name."""
    assert without_names("shop-api", ["shop-api"]) == "shop-api"
    assert without_names("shop-api deploy", ["shop-api"]) == " deploy"


def test_the_topic_outranks_the_name(tmp_path: Path) -> None:
    """A line about the topic comes before lines that only have the project's name."""
    with MemTier.open(tmp_path, "p") as memory:
        for number, text in enumerate(
            [
                "Let's start the shop-api project, an api for the shop.",
                "The api of the shop-api shop needs a readme, shop-api needs tests.",
                "Rate limiting is done with slowapi.",
                "shop-api: the shop api is deployed, the api works.",
            ]
        ):
            memory.record(turns(text), session_id=f"s{number}", run_id=f"r{number}")
        hits = memory.recall("How is rate limiting done in the shop-api?").hits
        assert "slowapi" in hits[0].text
