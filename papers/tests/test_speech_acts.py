"""What a line does as speech: the salience of the gate, and the categories of its threshold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.true_memory.speech_acts import category, commits, corrects, salience
from tests.cases import each_case

GOLDEN = json.loads((Path(__file__).parent / "golden" / "true_memory.json").read_text("utf-8"))
CORRECTIONS = (
    "No, the port is 8081, not 8080.",
    "Actually I meant Tuesday.",
    "Sorry, I said Leeds, but it's Bradford.",
    "That's wrong: the release branch is called stable.",
    "Wait, scratch that, we use Postgres for the ledger.",
    "You got my name wrong, it is spelled Katharina with an h.",
    "I misspoke earlier; the budget is four thousand, not five.",
    "Not the blue one, the green one is mine.",
)
COMMITMENTS = (
    "I'll send the report by Friday.",
    "I promise to call my mother every Sunday.",
    "We will migrate the database next week.",
    "I'm going to finish the tests tonight.",
    "Let me get back to you with the numbers tomorrow.",
    "I have decided to quit smoking.",
    "We've agreed to meet at the station at nine.",
    "I plan to run the marathon in October.",
)
ORDINARY = (
    "The weather is nice today.",
    "How do I list the files in a folder?",
    "Thanks, that works.",
    "The train was late again this morning.",
    "I like the smell of coffee.",
    "There are three open issues in the tracker.",
    "Haha, that is funny.",
    "Will the build finish soon?",
)


@each_case("text", CORRECTIONS)
def test_corrections_have_salience_and_category(text: str) -> None:
    """An explicit correction has the salience .6 or more, and the category with the offset -.06."""
    assert category(text) == "correction"
    assert salience(text) >= 0.6


@each_case("text", COMMITMENTS)
def test_commitments_have_the_highest_salience(text: str) -> None:
    """What binds the speaker has the published .8 up to 50 characters, and no less beyond."""
    assert commits(text)
    assert salience(text) >= 0.8


@each_case("text", ORDINARY)
def test_other_lines_are_neither(text: str) -> None:
    """Questions, thanks and plain statements correct nothing and bind nobody."""
    assert not corrects(text) and not commits(text)
    assert salience(text) <= 0.5


@pytest.mark.parametrize(
    "text",
    [
        "Nein, der Port ist 8081, nicht 8080.",
        "Perdón, quise decir que es el martes.",
        "Non, je voulais dire mardi.",
        "No, è la porta 8081, e non 8080.",
        "Me enganei, é na terça.",
        "Nee, de poort is 8081, niet 8080.",
        "Нет, порт 8081, а не 8080.",
        "我说错了，端口是8081。",
        "ポートは8080ではなく8081です。",
    ],
)
def test_corrections_of_other_languages(text: str) -> None:
    """Corrections are recognised in each language of the lexicons."""
    assert category(text) == "correction"


@pytest.mark.parametrize(
    "text",
    [
        "Ich werde den Bericht bis Freitag schicken.",
        "Voy a enviar el informe el viernes.",
        "Je vais envoyer le rapport vendredi.",
        "Prometto di mandare il rapporto venerdì.",
        "Prometo enviar o relatório na sexta.",
        "Ik zal het rapport vrijdag sturen.",
        "Я буду готов к пятнице, обещаю.",
        "我保证周五之前发报告。",
        "金曜日までに送ると約束します。",
    ],
)
def test_commitments_of_other_languages(text: str) -> None:
    """Commitments are recognised in each language of the lexicons."""
    assert commits(text) and salience(text) >= 0.8


@pytest.mark.parametrize(
    "text",
    [
        "No problem, take your time.",
        "No, I have not been there yet.",
        "No, but it sounds like a plan.",
        "It is about the journey, not just winning.",
        "Not sure, the other one perhaps.",
        "You are coming, not Ben?",
        "Maybe I'll join you later.",
    ],
)
def test_denials_that_correct_nothing(text: str) -> None:
    """An answer, a courtesy, a question and a doubt neither correct nor commit."""
    assert category(text) != "correction" and not commits(text)


# The published code compares prefixes without a word boundary and keeps punctuation; here "ok!" is
# an acknowledgement, "highway" and "history" are no greetings, greetings and laughter are
# acknowledgements, a question needs its mark, and what happens to another person has no rank of
# its own.
OWN_SALIENCE = {
    "ok!", "what a day", "she's pregnant", "hey there", "haha nice one", "history lesson",
    "highway repair works are scheduled",
}  # fmt: skip


def test_speech_acts_are_as_published() -> None:
    """Eight of the fifteen published lines have the published rank, the others one of ours."""
    [example] = [e for e in GOLDEN if e["id"] == "tm_speech_act_table"]
    ranks = dict(zip(example["inputs"]["texts"], example["expected"], strict=True))
    differing = {text for text, rank in ranks.items() if salience(text) != rank}
    assert differing == OWN_SALIENCE


def test_salience_of_short_lines() -> None:
    """Up to 50 characters the kind of speech alone decides."""
    table = {
        "ok": 0.02, "ok!": 0.02, "hey there": 0.02, "are you coming?": 0.2, "blue car": 0.25,
        "I bought a house": 0.8, "I no longer eat meat": 0.6, "history lesson": 0.25,
        "the cat likes warm milk": 0.5, "highway repair works are scheduled": 0.5,
    }  # fmt: skip
    assert {text: salience(text) for text in table} == table


def test_salience_of_long_lines() -> None:
    """Length, a number, a date and a sign of emotion each add an eighth of what is left to 1."""
    plain = "the cat likes warm milk and sleeps on a chair now"
    assert len(plain) <= 50 and salience(plain) == 0.5
    assert salience(plain + " and") == pytest.approx(0.5 + 0.5 * 0.5 * (3 / 300) / 4)
    padded = (plain + " and so on" * 40)[:349] + "n"
    assert salience(padded) == pytest.approx(0.5 + 0.5 / 8)
    assert salience("8 " + padded) == pytest.approx(0.5 + 2 * 0.5 / 8)
    assert salience("on 3 May 2026 " + padded) == pytest.approx(0.5 + 3 * 0.5 / 8)
    assert salience("on 3 May 2026 " + padded + "!") == pytest.approx(0.5 + 4 * 0.5 / 8)


@given(st.text(max_size=80))
def test_any_line_has_a_salience(text: str) -> None:
    """Any text has a salience from .02 to 1, and a category."""
    assert 0.02 <= salience(text) <= 1.0
    assert category(text) in ("correction", "decision", "relationship", "")
