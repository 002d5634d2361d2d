"""A fact holds in the window of its event, where the text names it; else since it was said."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from memtier_plugin.facts.extraction.rules import extract_facts
from memtier_plugin.memory import MemTier
from tests.builders import make_entry, user_message
from tests.facts.dated_statements import SAID, STATEMENTS, DatedStatement

GOAL = 57


def window(statement: DatedStatement) -> tuple[str, str] | None:
    """Return the first and the last day of the fact that quotes most of a statement."""
    drafts = extract_facts([make_entry(statement.text, SAID, id="e")]).drafts
    if not drafts:
        return None
    draft = max(drafts, key=lambda draft: len(draft.quote))
    last = f"{draft.valid_to:%Y-%m-%d}" if draft.valid_to else ""
    return f"{draft.valid_from:%Y-%m-%d}", last


def test_the_window_of_a_dated_statement_is_the_events() -> None:
    """Of sixty statements, at least 57 get the first and the last day that their words name."""
    statements = [statement for group in STATEMENTS.values() for statement in group]
    wrong = [s for s in statements if window(s) != (s.first, s.last)]
    assert len(statements) == 60
    assert len(statements) - len(wrong) >= GOAL, wrong


def test_what_is_not_yet_says_from_when_it_holds(tmp_path: Path) -> None:
    """What is said to hold from a day is told at once, with that day; after it, without.

    The value until then stays in sight, and its note does not say that it is over.
    """
    with MemTier.open(tmp_path / "home") as memory:
        for days, text in (
            (-30, "The staging port is 7443."),
            (0, "As of 1 April the staging port is 7500."),
        ):
            memory.record(
                [user_message(text)], session_id=f"s{days}", observed_at=SAID + timedelta(days=days)
            )
        memory.consolidate()
        before, after = (_notes(memory, SAID + timedelta(days=days)) for days in (2, 30))
    assert (
        before["As of 1 April the staging port is 7500 (said on 2026-03-18)."]
        == "holds from 2026-04-01"
    )
    assert after["As of 1 April the staging port is 7500 (said on 2026-03-18)."] == ""
    assert before["The staging port is 7443."].startswith("until 2026-04-01; ")


def test_a_fact_holds_on_the_whole_of_its_last_day(tmp_path: Path) -> None:
    """What holds "until Friday" is marked as over on Saturday."""
    with MemTier.open(tmp_path / "home") as memory:
        memory.record(
            [user_message("I'm in Ljubljana until Friday.")], session_id="s", observed_at=SAID
        )
        memory.consolidate()
        text = "The user is in Ljubljana until Friday (2026-03-20)."
        notes = [_notes(memory, SAID + timedelta(days=days))[text] for days in (1, 2, 3)]
    assert notes == ["", "", "held until 2026-03-20"]


def test_as_of_goes_by_when_a_thing_was_said(tmp_path: Path) -> None:
    """What holds from April is known as of March, when it was said, and not as of February."""
    with MemTier.open(tmp_path / "home") as memory:
        memory.record(
            [user_message("From 1 April the office is in Leeds.")], session_id="s", observed_at=SAID
        )
        memory.consolidate()
        known = []
        for days in (-1, 1):
            moment = SAID + timedelta(days=days)
            known.append(len(memory.history.recall("office", moment, depth="facts").hits))
    assert known == [0, 1]


def _notes(memory: MemTier, at: datetime) -> dict[str, str]:
    hits = memory.recall("staging port Ljubljana", at=at).hits
    return {hit.text: hit.note for hit in hits}
