"""The affinity of a line by a model's log-probabilities, and what is read of a server's echo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_bench.bigram import score_tokens, tokenize
from memtier_papers.memtier.logprob import context_of, leave_one_out
from memtier_papers.memtier.scoring import ScoredText


def score(text: str) -> ScoredText:
    """Return a text as the bigram model scores it."""
    tokens = tokenize(text)
    scored = ScoredText.of(text, tokens, score_tokens(tokens), None)
    assert scored is not None
    return scored


def test_affinity_by_hand() -> None:
    """It is the mean gain of the answer's tokens, and 0 for a line that makes them less likely."""
    values = {0: [-1.0, -3.0], 1: [-2.0, -4.0], 2: [-0.5, -2.5]}

    def answer(text: str) -> ScoredText:
        lines = 0 if "one" in text and "two" in text else 1 if "two" in text else 2
        context = text.removesuffix(" yes no")
        return ScoredText([0, len(context), len(context) + 4], [None, *values[lines]], 3)

    assert leave_one_out(["one", "two"], "?", "yes no", answer) == [1.0, 0.0]


def test_a_repeated_line_is_found() -> None:
    """The line that the answer repeats makes it likelier than one with the same words."""
    lines = ["a red fox sleeps in the barn", "barn the in sleeps fox red a", "an owl flies"]
    values = leave_one_out(lines, "Where?", "a red fox sleeps in the barn", score)
    assert values[0] == max(values) > 0 and min(values) >= 0


def test_an_answer_without_a_token_is_refused() -> None:
    """Nothing can be said of an empty answer."""
    with pytest.raises(ValueError, match="no token"):
        leave_one_out(["a line"], "?", "   ", score)


@given(st.text(max_size=80), st.text(max_size=40))
def test_any_text_is_cut_where_the_answer_begins(prompt: str, answer: str) -> None:
    """Tokens that are parts of characters do not shift where the answer begins."""
    context = context_of(["- a line"], prompt)
    text = f"{context} {answer}"
    pieces = [bytes([byte]).decode("ascii", "replace") for byte in text.encode("utf-8", "replace")]
    scored = ScoredText.of(text, pieces, [-1.0] * len(pieces), None)
    if not text.isascii() and scored is None:
        return
    assert scored is not None
    later = text[len(context) :].encode("utf-8", "replace")
    assert len(scored.after(context, 10_000)) <= len(later)
    if text.isascii():
        assert len(scored.after(context, 10_000)) == len(later)


@pytest.mark.parametrize("tokens", [[], ["and", " so", " on"], ["x" * 20, "a", " line"]])
def test_what_is_no_echo_is_none(tokens: list[str]) -> None:
    """A server that answers with other tokens than it was sent does not echo."""
    assert ScoredText.of("a line", tokens, [None] * len(tokens), 1) is None


def test_a_mark_before_the_text_and_what_follows_it_are_left_out() -> None:
    """Servers put a mark of the beginning first, and may write on although they must not."""
    scored = ScoredText.of("a line", ["<s>", "a", " line", " more"], [None, -1.0, -2.0, -9.0], 4)
    assert scored is not None and scored.after("a", 10) == [-2.0]
    with pytest.raises(ValueError, match="tokens"):
        ScoredText.of("a line", ["a", " line"], [None], 2)
    with pytest.raises(ValueError, match="number"):
        ScoredText.of("a line", ["a", " line"], [None, float("nan")], 2)
