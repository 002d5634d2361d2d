"""The language of a text, and where its sentences end."""

import pytest

from memtier_plugin.text.languages import (
    detect_language,
    detect_language_in_context,
    find_sentence,
)
from tests.cases import each_case


@each_case(
    ("text", "language"),
    [
        ("I live in Oslo and I have two cats.", "english"),
        ("Ich wohne in Oslo und habe zwei Katzen.", "german"),
        ("Vivo en Oslo y tengo dos gatos.", "spanish"),
        ("J'habite à Oslo et j'ai deux chats.", "french"),
        ("Ik woon in Oslo en ik heb twee katten.", "dutch"),
        ("Я живу в Осло, и у меня есть кошка.", "russian"),
        ("我住在奥斯陆。", "chinese"),
        ("私はオスロに住んでいます。", "japanese"),
        ("Я живу в Києві і люблю її.", None),
        ("Oslo", None),
        ("ja nie lubię", None),
    ],
)
def test_the_language_of_a_text(text: str, language: str | None) -> None:
    """Common words and scripts tell the language; too little, or an unknown one, tells none."""
    assert detect_language(text) == language


def test_a_short_text_takes_the_language_of_its_speaker() -> None:
    """Only where it has a word of that language itself."""
    context = "Ich habe heute einen Hund und er ist sehr alt."
    assert detect_language_in_context("in Oslo", context) == "german"
    assert detect_language_in_context("Oslo", context) is None


@pytest.mark.parametrize(
    ("text", "word", "sentence"),
    [
        ("It rains. Dr. Smith left. Bye.", "Smith", "Dr. Smith left."),
        ("One\n- two three\n- four", "three", "- two three"),
        ("我住在奥斯陆。我有猫。", "猫", "我有猫。"),
        ("It costs 3.5 euros. Fine.", "euros", "It costs 3.5 euros."),
    ],
)
def test_the_sentence_around_a_word(text: str, word: str, sentence: str) -> None:
    """Abbreviations and decimals end no sentence; list items and full-width stops do."""
    start, end = find_sentence(text, text.index(word), text.index(word) + len(word))
    assert text[start:end].strip() == sentence
