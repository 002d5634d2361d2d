"""The passage of a long text that stands for it in a prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.passages import MARK, best_passage
from memtier_plugin.tokens import Tokenizer

WORDS = Tokenizer().words
FILLER = "Nothing of interest was said in this sentence at all. "


def test_a_short_text_is_shown_whole() -> None:
    """What fits is not touched."""
    assert best_passage("As it is.", {"port": 1.0}, WORDS, 100) == "As it is."


def test_the_sentence_that_answers_is_shown() -> None:
    """A long text is shown by what says most of the query, marked where it is cut."""
    text = FILLER * 20 + "The database listens on port 5433. " + FILLER * 20
    shown = best_passage(text, {"databas": 2.0, "port": 1.0}, WORDS, 150)
    assert "The database listens on port 5433." in shown
    assert shown.startswith(MARK)
    assert shown.endswith(MARK)


def test_the_heavier_words_win() -> None:
    """Rare words of the query count more than common ones, wherever they stand."""
    text = "The port is open. " + FILLER * 20 + "The zanzibar is closed."
    shown = best_passage(text, {"port": 1.0, "zanzibar": 5.0}, WORDS, 100)
    assert "zanzibar" in shown
    assert not shown.endswith(MARK)


def test_without_a_match_the_beginning_is_shown() -> None:
    """When no word of the query stands in the text, its beginning speaks for it."""
    assert best_passage("First words. " + FILLER * 20, {}, WORDS, 60).startswith("First words.")


@given(st.text(max_size=400), st.integers(20, 100))
def test_a_passage_is_part_of_the_text_and_fits(text: str, size: int) -> None:
    """Nothing is added but the marks, and the length is kept."""
    shown = best_passage(text, {"word": 1.0}, WORDS, size)
    inside = shown.removeprefix(f"{MARK} ").removesuffix(f" {MARK}")
    if len(text) > size:
        assert len(inside) <= size
        assert inside in text
    else:
        assert shown == text
