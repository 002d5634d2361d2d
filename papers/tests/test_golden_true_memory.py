"""The checked number examples of True Memory, against the code that ships."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.true_memory.style import cosine, text_vector
from memtier_papers.true_memory.surprise import fingerprints, line_surprise, surprise
from memtier_plugin.core.events import SupersedeEvent
from memtier_plugin.memory import MemTier
from memtier_plugin.text.dates.spans import find_time_spans
from tests.builders import user_message

FILE = Path(__file__).parent / "golden" / "true_memory.json"
GOLDEN: dict[str, dict[str, Any]] = {g["id"]: g for g in json.loads(FILE.read_text("utf-8"))}
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def test_style_vectors() -> None:
    """Style vectors have the published buckets, and their cosines are the published ones."""
    example = GOLDEN["tm_style_vector"]
    vectors = [text_vector(text) for text in example["inputs"]["texts"]]
    expected = example["expected"]
    assert [sum(value > 0 for value in v) for v in vectors] == expected["nonzero_buckets"]
    assert vectors[0].index(max(vectors[0])) == expected["argmax_bucket_0"]
    for other in (1, 2):
        likeness = cosine(vectors[0], vectors[other])
        assert likeness == pytest.approx(expected[f"cos_0{other}"], abs=example["tolerance"])


def test_surprise() -> None:
    """The surprise of counts and of texts, and the fingerprints of these, are as published."""
    for name, example in GOLDEN.items():
        given, expected, near = example["inputs"], example["expected"], example["tolerance"]
        if name.startswith("tm_surprise_text"):
            text = given["text"]
            assert sorted(fingerprints(text)) == expected["facts"]
            surprised = line_surprise(text, lambda mark: True)
            assert surprised == pytest.approx(expected["surprise"], abs=near)
        elif name.startswith("tm_surprise"):
            counts = (given[key] for key in ("new_facts", "total_facts", "length", "numbers"))
            rest = given["dates"], given["new_event_facts"]
            assert surprise(*counts, *rest) == pytest.approx(expected, abs=near), name


def test_what_time_a_query_asks_about() -> None:
    """The published bounds of a query are those of its span; without a date it has none."""
    for name, example in GOLDEN.items():
        if name.startswith("tm_temporal"):
            expected = example["expected"]
            spans = find_time_spans(example["inputs"]["query"], NOW)
            first = expected["after"] or expected["reference_date"]
            last = expected["before"] or (f"{NOW:%Y-%m-%d}" if expected["after"] else first)
            bounds = [(f"{span.start:%Y-%m-%d}", f"{span.end:%Y-%m-%d}") for span in spans]
            assert bounds == ([(first, last)] if first else []), name


def test_what_changed(home: Path) -> None:
    """The published contradictions, of a database and of a price, are found by rules."""
    example = GOLDEN["tm_contradictions"]
    with MemTier.open(home, settings={"consolidation.probes": 0}) as memory:
        for number, text in enumerate(example["inputs"]["messages"]):
            memory.record([user_message(text)], session_id=f"s{number}")
            memory.consolidate()
        text_of = {fact.id: fact.text for fact in memory.facts(include_superseded=True)}
        events = memory.events(kinds=[SupersedeEvent.KIND])
        pairs = [
            (text_of[item], text_of[change.by])
            for change in map(SupersedeEvent.of, events)
            for item in change.items
        ]
    expected = example["expected"]["contradictions"]
    for (_, old, new), (before, after) in zip(expected, pairs, strict=True):
        assert old in before and new in after and new not in before
