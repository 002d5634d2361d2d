"""What a question asks for, and which statements are instructions for all times to come."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.retrieval.query import ASKING_WEIGHT, FUNCTION_WEIGHT, weigh_terms
from memtier_plugin.text.phrases import is_standing_instruction
from memtier_plugin.text.tokenizer import Tokenizer
from tests.cases import each_case

WORDS = st.lists(st.sampled_from("remind list discuss port kettle fox summary fox".split()))  # noqa: SIM905


@given(WORDS)
def test_words_count_as_often_as_they_stand(text: list[str]) -> None:
    """Each word counts its occurrences, a word that only asks a part of them, none nothing."""
    words = Tokenizer().words(" ".join(text))
    weights = weigh_terms(" ".join(text), Tokenizer())
    asking = set(Tokenizer().words("remind list discuss summary"))
    assert weights == {
        word: pytest.approx(number * (ASKING_WEIGHT if word in asking else 1))
        for word, number in Counter(words).items()
    }
    assert 0 < ASKING_WEIGHT < 1


def test_inflections_ask_too() -> None:
    """A word that asks does so in each of its forms."""
    weights = weigh_terms("reminded discussing kettles", Tokenizer())
    assert [*weights.values()] == [ASKING_WEIGHT, ASKING_WEIGHT, 1.0]


@pytest.mark.parametrize("language", ["none", "german", "spanish"])
def test_other_languages_have_no_asking_words(language: str) -> None:
    """The words are English, so that elsewhere all count the same."""
    tokenizer = Tokenizer(language)
    words = tokenizer.words("remind list fox fox")
    assert weigh_terms("remind list fox fox", tokenizer) == Counter(words)


@each_case(
    ("text", "content"),
    [("Wo haben wir denn die Leiter der Nachbarin gelassen?", "Leiter Nachbarin gelassen"),
     ("Где мы оставили лестницу соседки?", "оставили лестницу соседки"),
     ("¿Dónde está la escalera de la vecina?", "escalera vecina"),
     ("我们把邻居的梯子放在哪里了？", "邻居 梯子")],
)  # fmt: skip
@each_case("language", ["english", "german"])
def test_function_words_count_little_in_each_language(
    text: str, content: str, language: str
) -> None:
    """Beside words of content those of the closed classes decide nothing, whatever is stemmed."""
    weights = weigh_terms(text, Tokenizer(language))
    full = {*Tokenizer(language).words(content)}
    assert all(weights[word] == 1.0 for word in full)
    little = [word for word in weights if weights[word] <= FUNCTION_WEIGHT]
    assert len(little) >= 2
    assert not full & {*little}


def test_a_language_without_known_function_words_keeps_all() -> None:
    """Where nothing tells them from content, a syllable of a word is not taken for one."""
    assert {*weigh_terms("사다리는 어디에 있나요?", Tokenizer()).values()} == {1.0}


@each_case(
    "text",
    [
        "Always answer in metric units.",
        "please never touch the lock file",
        "Please, always run the linter before you commit.",
        "Don't ever delete my drafts.",
        "Don’t ever delete my drafts.",
        "From now on, call me Captain.",
        "We moved to tabs, so from now on indent with them.",
        "Whenever I paste a log, show the first error only.",
        "Every time I open a ticket, link the board.",
        "In future, sign mails with my initials.",
        "In the future please round to cents.",
        "When I ask for a plan, give three steps.",
        "If I ask you about travel, assume trains.",
        "Thanks for that.\nNever use emoji, please.",
        "  - ALWAYS QUOTE THE SOURCE",
    ],
)
def test_instructions_for_all_times(text: str) -> None:
    """What a user tells to do from now on is a standing instruction, wherever a line begins so."""
    assert is_standing_instruction(text)


@each_case(
    "text",
    [
        "I have always loved tea.",
        "She never came.",
        "It was never about the money.",
        "Is it always this cold in here?",
        "We hardly ever eat out.",
        "What will the future bring?",
        "Her future looks bright.",
        "I asked whether the shop was open.",
        "Can I ask you something?",
        "Nevertheless it rained.",
        "Everything is fine for now on my side.",
        "",
    ],
)
def test_chat_is_no_instruction(text: str) -> None:
    """The same words in a story or a question instruct nobody."""
    assert not is_standing_instruction(text)


def test_only_the_beginning_instructs() -> None:
    """Deep in a pasted document such a line is part of the document."""
    assert is_standing_instruction("x" * 300 + "\nAlways answer in metric units.")
    assert not is_standing_instruction("x" * 500 + "\nAlways answer in metric units.")
