"""The passage of a long text that stands for it in a prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.text import passages
from memtier_plugin.text.passages import OMISSION, chunk_text, select_passage
from memtier_plugin.text.tokenizer import MAX_CHARS, Tokenizer, distinct_tokens, plain_words

WORDS = Tokenizer().words
FILLER = "Nothing of interest was said in this sentence at all. "


def test_a_short_text_is_shown_whole() -> None:
    """What fits is not touched."""
    assert select_passage("As it is.", {"port": 1.0}, WORDS, 100) == "As it is."


def test_the_sentence_that_answers_is_shown() -> None:
    """A long text is shown by what says most of the query, marked where it is cut."""
    text = FILLER * 20 + "The database listens on port 5433. " + FILLER * 20
    shown = select_passage(text, {"databas": 2.0, "port": 1.0}, WORDS, 150)
    assert "The database listens on port 5433." in shown
    assert shown.startswith(OMISSION)
    assert shown.endswith(OMISSION)


def test_the_heavier_words_win() -> None:
    """Rare words of the query count more than common ones, wherever they stand."""
    text = "The port is open. " + FILLER * 20 + "The zanzibar is closed."
    shown = select_passage(text, {"port": 1.0, "zanzibar": 5.0}, WORDS, 100)
    assert "zanzibar" in shown
    assert not shown.endswith(OMISSION)


def test_without_a_match_the_beginning_is_shown() -> None:
    """When no word of the query stands in the text, its beginning speaks for it."""
    assert select_passage("First words. " + FILLER * 20, {}, WORDS, 60).startswith("First words.")


@pytest.mark.parametrize("unit", ["word. ", "a.b@", "word\n", "слово ", "世", "\n"])
def test_no_more_of_a_text_is_read_than_is_indexed(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a passage costs does not grow with what somebody sent, and the beginning answers."""
    read: list[int] = []
    most = MAX_CHARS // 16
    monkeypatch.setattr(passages, "MAX_CHARS", most)

    def words(text: str) -> list[str]:
        read.append(len(text))
        return WORDS(text)

    text = "The word. " + unit * (3 * most // len(unit))
    assert "word" in select_passage(text, {"word": 1.0, "b": 1.0}, words, 200)
    assert sum(read) <= most
    assert len(select_passage(unit * most, {"word": 1.0}, words, 200)) <= 210


def test_distinct_tokens_have_the_words_of_the_text() -> None:
    """Taking a text's tokens once loses no word."""
    text = "The pump's valve v2.1 is at the pump; Das Café 寿司 liegt\nam a@b.c. " * 3
    assert {*WORDS(distinct_tokens(text))} == {*WORDS(text)}
    assert {*plain_words(distinct_tokens(text))} == {*plain_words(text)}
    assert len(distinct_tokens(text)) < len(text)


@given(st.text(max_size=400), st.integers(20, 100))
def test_a_passage_is_part_of_the_text_and_fits(text: str, size: int) -> None:
    """Nothing is added but the marks, and the length is kept."""
    shown = select_passage(text, {"word": 1.0}, WORDS, size)
    inside = shown.removeprefix(f"{OMISSION} ").removesuffix(f" {OMISSION}")
    if len(text) > size:
        assert len(inside) <= size
        assert inside in text
    else:
        assert shown == text


# -- pieces ---------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("ab .?!。\n"), max_size=300), st.integers(4, 60), st.integers(1, 8))
def test_pieces_follow_the_text(text: str, size: int, most: int) -> None:
    """Pieces stand in the text in order, none is longer than the size, and only space is left out.

    What comes after the last of as many pieces as there may be is left out too.
    """
    pieces = chunk_text(text, size, most)
    assert 1 <= len(pieces) <= most
    assert all(len(piece) <= size for piece in pieces)
    position = 0
    for piece in pieces:
        start = text.index(piece, position)
        assert not text[position:start].strip()
        position = start + len(piece)
    if len(pieces) < most:
        assert not text[position:].strip()


def test_pieces_are_whole_sentences() -> None:
    """A sentence is torn only when it is longer than a piece, and then between words."""
    assert chunk_text("One is. Two are.", 100, 5) == ("One is. Two are.",)
    pieces = chunk_text("One is here. Two are there. Three.", 20, 5)
    assert [piece.strip() for piece in pieces] == ["One is here.", "Two are there.", "Three."]
    pieces = chunk_text("one two three four five six seven", 12, 5)
    assert [word for piece in pieces for word in piece.split()] == [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
    ]


def test_pieces_of_nothing() -> None:
    """A text without a word has one piece, so that it counts as compared."""
    assert chunk_text("", 10, 3) == ("",)
    assert chunk_text(" \n" * 50, 10, 3) == ((" \n" * 50)[:10],)
