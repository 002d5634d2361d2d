"""The figures by which a model of prompt and line is judged, and the rows it may be trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.models.figures import Judged, blend, fit_logistic, judge, recalls, silence
from scripts.models.rows import SOURCES, Group, read_candidates, read_public


def group(kind: str = "own", gold: int = 0, lines: int = 12, likely: float = 0.5) -> Group:
    """Return a group whose lines hold a unit each, of which one answers the prompt."""
    return Group(
        kind,
        "where?",
        [f"line {number}" for number in range(lines)],
        [[0] if kind == "own" and number == gold else [] for number in range(lines)],
        int(kind == "own"),
        [[number] for number in range(lines)],
        [1 - number / lines for number in range(lines)],
        likely,
    )


@pytest.mark.parametrize(("gold", "shares"), [(0, (1, 1, 1)), (3, (0, 1, 1)), (11, (0, 0, 0))])
def test_recall_counts_units(gold: int, shares: tuple[float, ...]) -> None:
    """What answers a prompt is found at a depth if so many units before it are fewer."""
    asked = group(gold=gold)
    assert recalls(asked, asked.scores) == shares


def test_a_unit_counts_once() -> None:
    """Lines that hold what was shown before take no place."""
    twice = Group("own", "where?", ["a", "a", "b"], [[], [], [0]], 1, [[0], [0], [1]], [3, 2, 1])
    assert recalls(twice, twice.scores)[1] == 1


def test_a_model_may_order_fewer_lines_than_were_found() -> None:
    """Those behind are left out, with the model and without."""
    asked = group(gold=3)
    logits = np.array([0.0, 0.0, 0.0, 9.0])
    assert len(blend(asked, logits, 0.0)) == 4
    assert recalls(asked, blend(asked, logits, float("inf"))) == (1, 1, 1)


def test_silence_is_measured_where_few_own_prompts_are_lost() -> None:
    """The bar lies where three in a hundred own prompts fall below it."""
    own, foreign = np.linspace(0, 1, 101), np.array([-1.0, 0.02, 0.5])
    assert silence(own, foreign)["foreign"] == pytest.approx(2 / 3, abs=1e-4)


def test_evidence_that_tells_gets_weight() -> None:
    """A feature that is higher for own prompts counts, one that is chance does not."""
    chance = np.random.default_rng(1)
    own, foreign = (np.c_[chance.normal(mean, 1, 400), chance.normal(0, 1, 400)] for mean in (2, 0))
    _, telling, noise = fit_logistic([(own, foreign)])
    assert telling > 1 > 5 * abs(noise)


def test_what_a_set_is_judged_with_comes_from_other_families() -> None:
    """A model that is right on the other sets is believed, and is judged on this one alone."""

    def judged(gold: int, best: int) -> Judged:
        asked = [group(gold=gold), group("foreign", likely=0.1)] * 3
        logits = [9.0 * (np.arange(12) == best), np.full(12, -9.0)] * 3
        return Judged(asked, logits)

    report = judge({"a": judged(5, 5), "a-en": judged(5, 5), "b": judged(5, 0)})
    assert report["a"]["weight"] == 0 and report["b"]["weight"] > 0
    assert report["b"]["blended"][0][0] == 0 and report["a"]["alone"][0][0] == 1
    assert report["a"]["silence"]["both"]["foreign"] == 1


def test_rows_under_other_licences_and_in_other_languages_are_left_out(tmp_path: Path) -> None:
    """Only sources without share-alike are trained on; the same seed draws the same rows."""
    row = {"q": "where?", "pos": ["here"], "neg": ["there", "nowhere"], "lang": "en"}
    sources = [*SOURCES, "xquad", "squad2", "sgd"]
    rows = [{**row, "source": source} for source in sources] + [
        {**row, "source": SOURCES[0], "lang": "de"},
        {**row, "source": SOURCES[1], "pos": []},
    ]
    path = tmp_path / "relevance.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    drawn = read_public(path, 7, 2)
    assert len(drawn) == len(SOURCES) + 1 and drawn == read_public(path, 7, 2)
    assert [each.count for each in drawn if each.kind == "foreign"] == [0]
    for each in drawn:
        assert len(each.lines) == len(each.gold) and each.gold.count([0]) == each.count


def test_candidates_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Of what recalls found, so many prompts of each kind; none without lines or an answer."""
    hit = {"line": "Anna, 1 May 2026: here", "gold": [0], "units": [0], "score": 1.5}
    row = {"query": "where?", "kind": "own", "gold": 1, "hits": [hit], "probability": 0.4}
    rows = [{**row, "injected": 2}] * 3 + [{**row, "injected": 0, "hits": []}]
    rows += [{**row, "kind": "foreign", "gold": 0, "injected": 0}, {**row, "gold": 0}]
    path = tmp_path / "set.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    read = [*read_candidates(path, own=2, foreign=5)]
    assert [each.kind for each in read] == ["own", "own", "foreign"]
    assert read[0].lines == [hit["line"]] and read[0].injected == 2
