"""Older lines that a later one replaces: which pairs count, and what becomes of the older line."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from memtier_plugin.core.results import Hit
from memtier_plugin.retrieval.replacement import (
    find_replacements,
    mark_replaced,
    put_current_first,
)
from memtier_plugin.retrieval.statements import statements
from memtier_plugin.text.tokenizer import Tokenizer
from scripts.fit_replacement import entry_hit, spoken_hit

CASES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("replacements.yaml").read_text(encoding="utf-8")
)
WORDS = Tokenizer()


def ask(question: str, hits: Sequence[Hit]) -> list[str]:
    """Return the texts that a later line replaces for a question."""
    terms = dict.fromkeys(WORDS.words(question), 1.0)
    terms = {t: w for t, w in terms.items() if any(t in WORDS.words(hit.text) for hit in hits)}
    replaced = find_replacements(hits, terms, WORDS)
    return [hit.text for hit in hits if hit.id in replaced]


@pytest.mark.parametrize("language", CASES)
def test_changes_are_recognised_and_what_holds_is_left_alone(language: str) -> None:
    """Most changes of the cases are recognised, in each language; few unchanged lines are hit."""
    block = CASES[language]
    right = [bool(ask(q, [spoken_hit(a, 1), spoken_hit(b, 30)])) for a, b, q in block["changed"]]
    wrong = [bool(ask(q, [spoken_hit(a, 1), spoken_hit(b, 30)])) for a, b, q in block["unchanged"]]
    assert sum(right) >= 0.75 * len(right)
    assert sum(wrong) <= 0.34 * len(wrong)  # they are the hardest that were found


def test_a_question_or_a_plan_replaces_nothing() -> None:
    """What is asked, proposed or only possible does not hold yet."""
    first = entry_hit("The stand is open until 18:00.", 1)
    for text in (
        "Is the stand open until 20:00 now?",
        "Maybe we should keep the stand open until 20:00 from now on.",
        "If it gets warm, the stand is open until 20:00 instead.",
    ):
        assert not ask("Until when is the stand open?", [first, entry_hit(text, 9)])
    assert ask(
        "Until when is the stand open?", [first, entry_hit("The stand is open until 20:00 now.", 9)]
    )


def test_what_people_say_of_themselves_is_theirs() -> None:
    """One speaker's own value is not replaced by another's, but by a later one of theirs."""
    question = "Where do I live?"
    ann = entry_hit("I live in Leeds.", 1, speaker="ann")
    assert not ask(question, [ann, entry_hit("I live in Cardiff now.", 9, speaker="bo")])
    assert ask(question, [ann, entry_hit("I live in Cardiff now.", 9, speaker="ann")])


def test_what_is_read_elsewhere_replaces_nothing_that_was_said() -> None:
    """A page or a mail does not mark a person's line as older; a person's word marks a page."""
    question = "Who is the keeper?"
    word, page = entry_hit("The keeper is Ines.", 1), entry_hit("The keeper is Gale now.", 9)
    assert ask(question, [word, page])
    for foreign in ({"origin": "external"}, {"tainted": True}):
        outside = replace(page, item=replace(page.item, **foreign))
        assert not ask(question, [word, outside])
    older = replace(word, item=replace(word.item, origin="external"))
    assert ask(question, [older, page])


def test_a_chain_ends_at_the_latest() -> None:
    """Of several values in turn the last one holds, and stands first."""
    hits = [
        entry_hit("The ticket price is 80.", 1),
        entry_hit("The ticket price has been raised to 90.", 20),
        entry_hit("The ticket price was too high, it is 85 from now on.", 40),
    ]
    terms = dict.fromkeys(WORDS.words("What is the ticket price?"), 1.0)
    replaced = find_replacements(hits, terms, WORDS)
    assert {now.by.id for now in replaced.values()} == {hits[2].id} and len(replaced) == 2
    lines = put_current_first(hits, replaced)
    assert [hit.id for hit in lines] == [hits[2].id, hits[0].id, hits[1].id]
    assert all("until 2026-02-14; now: " in hit.note for hit in lines[1:])


def test_the_note_names_the_assistant() -> None:
    """What the assistant said changed is not taken for a person's word."""
    hits = [
        entry_hit("The relay uses port 7000.", 1),
        entry_hit("The relay now uses port 7400.", 9, "assistant"),
    ]
    terms = dict.fromkeys(WORDS.words("Which port does the relay use?"), 1.0)
    marked = mark_replaced(hits, find_replacements(hits, terms, WORDS))
    assert marked[0].note.endswith("now: The relay now uses port 7400, said by the assistant")
    assert not marked[1].note


def test_a_long_message_is_taken_sentence_by_sentence() -> None:
    """In a long message each sentence states something of its own; questions do not."""
    text = " ".join(
        f"The {thing} of the northern depot stands near gate {number} for the season."
        for number, thing in enumerate(("crane", "forklift", "container", "scale", "trailer"))
    )
    assert len(statements(text, WORDS)) == 5
    assert not statements("Where is the crane?", WORDS)
