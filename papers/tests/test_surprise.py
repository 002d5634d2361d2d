"""Surprise and episodes: what a line says that is new, and where the turns around it end."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.true_memory.surprise import LEAST, fingerprints, line_surprise
from memtier_plugin.memory import MemTier
from tests.builders import START, say, write_config
from tests.proofs.checks import assert_equal_to_rebuild

SURPRISE = {"retrieval.weights.surprise": 1.0}


@given(st.text(max_size=300))
def test_any_text_has_a_surprise(text: str) -> None:
    """Any text has a surprise between the least and 1, and none below that of known words."""
    new, known = line_surprise(text, lambda mark: True), line_surprise(text, lambda mark: False)
    assert LEAST <= known <= new <= 1.0


def test_fingerprints_of_other_languages() -> None:
    """Dates, events and names are found in the languages of the lexicons."""
    assert "date:3. märz 2026" in fingerprints("Wir sind am 3. März 2026 umgezogen.")
    assert "event:elle a déménagé à lyon" in fingerprints("Elle a déménagé à Lyon.")
    assert "entity:новгород" in fingerprints("Она любит Новгород.")


def test_only_the_first_line_surprises(home: Path) -> None:
    """A line that repeats what was said surprises less; alone, an agent's own lines count."""
    with MemTier.open(home, "p", "b") as other:
        say(other, "Zelda joined Contoso in Oslo.")
    with MemTier.open(home, "p", "a", SURPRISE) as memory:
        first = say(memory, "Zelda joined Contoso in Oslo.")
        again = say(memory, "Did I say that Zelda joined Contoso in Oslo?", session_id="t")
        signals = {hit.id: hit.signals["surprise"] for hit in memory.recall("Zelda Contoso").hits}
        assert signals[first.id] > signals[again.id]
    with MemTier.open(home, "p", "a") as memory:
        assert "surprise" not in memory.recall("Zelda Contoso").hits[0].signals
    write_config(home, {"retrieval": {"weights": {"surprise": 1.0}}})
    assert_equal_to_rebuild(home, "p", ["a", "b"], ["Zelda Contoso", "Oslo"], START)


def test_an_episode_ends_where_nobody_spoke(home: Path) -> None:
    """Turns on the other side of six silent hours are no neighbours, also if a clock jumped."""
    with MemTier.open(home, "p", "a") as memory:
        hours = (0, 1, 6.5, 13, 5)
        entries = [
            say(memory, f"line {hour}", observed_at=START + timedelta(hours=hour)) for hour in hours
        ]
        memory.catch_up()
        reader = memory.store.reader()
        rows = reader.rows_of(entry.id for entry in entries)
        names = {row: entry.content for entry in entries if (row := rows[entry.id])}
        scopes = reader.scopes("a", None)

        def around(hour: float, gap: float) -> tuple[list[str], list[str]]:
            row = next(row for row, name in names.items() if name == f"line {hour}")
            before, after = reader.neighbours({row: 4}, scopes, gap * 3600)[row]
            return [names[r] for r, _ in before], [names[r] for r, _ in after]

        assert around(5, 0) == (["line 1", "line 0"], ["line 6.5", "line 13"])
        assert around(5, 6) == (["line 1", "line 0"], ["line 6.5"])
        assert around(13, 6) == ([], [])
