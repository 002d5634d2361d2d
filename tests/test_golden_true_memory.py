"""The checked number examples of True Memory, against the code that ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.text.style import cosine, text_vector
from memtier_plugin.text.surprise import fingerprints, line_surprise, surprise

FILE = Path(__file__).parent / "golden" / "true_memory.json"
GOLDEN: dict[str, dict[str, Any]] = {g["id"]: g for g in json.loads(FILE.read_text("utf-8"))}


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
