"""The words of a query that are evidence: those that say what it is about, in each language."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.retrieval.query import parse_query
from memtier_plugin.text.lexicon import LANGUAGES, lexicon
from memtier_plugin.text.tokenizer import Tokenizer
from tests.cases import each_case

AT = datetime(2026, 3, 2, tzinfo=UTC)


def topic(text: str) -> set[str]:
    return {*parse_query(text, AT, Tokenizer("english")).topic_terms}


@each_case(
    ("text", "about"),
    [("Which tent did we lend to Osman?", "tent lend osman"),
     ("How many spaces do I indent with?", "spaces indent"),
     ("Welchen Bohrer hat uns die Nachbarin geliehen?", "bohrer nachbarin geliehen"),
     ("¿Dónde está el taladro de la vecina?", "taladro vecina"),
     ("Où est la perceuse de la voisine ?", "perceuse voisine"),
     ("Dov'è il trapano della vicina?", "trapano vicina"),
     ("Onde está a furadeira da vizinha?", "furadeira vizinha"),
     ("Waar is de boormachine van de buurvrouw?", "boormachine buurvrouw"),
     ("Где лежит дрель соседки?", "лежит дрель соседки"),
     ("邻居的电钻在哪里？", "邻居 电钻"), ("隣人のドリルはどこですか", "隣人 ドリ リル")],
)  # fmt: skip
def test_function_words_are_no_evidence(text: str, about: str) -> None:
    """What is left of a question are the words of its topic, in each language."""
    words = Tokenizer("english").words(about)
    expected = {*words} if " " in text else {word for word in words if len(word) > 1}
    left_over = topic(text) - expected
    assert expected <= topic(text)
    assert not left_over - {"have", "dov'è", "dov"}


def test_each_language_has_words_of_questions() -> None:
    """No language is without: where one has none, all its questions look alike."""
    assert all(lexicon(name).query_words for name in LANGUAGES)


def test_a_query_of_function_words_alone_keeps_them() -> None:
    """Where nothing else is there, they are what was asked."""
    assert topic("这是什么？")
    assert topic("Wer ist das?")


def test_a_long_text_without_spaces_is_read_in_linear_time() -> None:
    """Each position is looked at a bounded number of times."""
    assert topic("的是" * 50_000 + "电钻")


STORES = {
    "de": ["Die Garage ist bis Juni an Herrn Brandt vermietet.", "Das Auto hat neue Reifen.",
           "Ich habe den Schlüssel bei der Nachbarin gelassen."],
    "es": ["La bicicleta está en casa de Lucía.", "El técnico viene los martes por la tarde.",
           "Mi hermana se ha mudado a Gijón."],
    "fr": ["La voiture est chez le garagiste de Lens.", "Le chat dort dans la buanderie.",
           "Ma cousine a acheté un bateau à Sète."],
    "zh": ["我的自行车放在地下室里。", "妹妹在青岛的医院工作。", "我们的合同是三月签的。"],
}  # fmt: skip
STRANGE = {
    "de": ["Wie funktioniert die Photosynthese?", "Was ist der Unterschied zwischen TCP und UDP?",
           "Schreib mir ein Gedicht über den Herbst."],
    "es": ["¿Cuál es la capital de Mongolia?", "¿Cómo se calcula la raíz de un número?",
           "Escribe un poema sobre el otoño."],
    "fr": ["Quelle est la capitale de la Mongolie ?", "Comment fonctionne un moteur à vapeur ?",
           "Écris un poème sur l'automne."],
    "zh": ["光合作用的原理是什么？", "蒙古国的首都是哪里？", "帮我写一首关于秋天的诗。"],
}  # fmt: skip


@pytest.mark.parametrize("language", [*STORES])
def test_what_has_only_function_words_in_common_is_not_shown(home: Path, language: str) -> None:
    """A prompt in the language of a store gets nothing for being in that language."""
    with MemTier.open(home) as memory:
        for number, line in enumerate(STORES[language]):
            memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
        shown = {
            prompt: [hit.text for hit in memory.recall(prompt, purpose="inject").injected]
            for prompt in STRANGE[language]
        }
    assert not any(shown.values()), shown
