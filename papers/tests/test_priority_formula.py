"""The priority of HMO, its drift gate and its tiers, against checked number examples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.hmo import formula
from memtier_papers.hmo.formula import assign_tiers, base_priority, drift, priority
from memtier_papers.hmo.settings import Priority
from tests.cases import each_case

FILE = Path(__file__).parent / "golden" / "hmo.json"
GOLDEN: dict[str, dict[str, Any]] = {g["id"]: g for g in json.loads(FILE.read_text("utf-8"))}
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


def single(inputs: Mapping[str, Any]) -> dict[str, float]:
    """Return a priority with its parts."""
    base = base_priority(
        inputs["importance"], inputs["alignment_cos"], alpha=inputs["alpha"], beta=inputs["beta"]
    )
    uses, tau = inputs["recall_count"], inputs["tau_days"]
    return {
        "base": base,
        "L": formula.persistence(uses),
        "priority": priority(base, uses, inputs["dt_days"], tau=tau),
        "half_life_days": tau * formula.persistence(uses) * math.log(2),
    }


def over_time(inputs: Mapping[str, Any]) -> list[float]:
    """Return the priority right after each event: a day, and whether the record was used then."""
    base, uses, last, values = (
        base_priority(inputs["importance"], inputs["alignment_cos"]),
        0,
        0,
        [],
    )
    for day, used in inputs["events"]:
        if used:
            uses, last = uses + 1, day
        values.append(priority(base, uses, day - last))
    return values


def gate(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a drift and whether it passes the gate."""
    value = drift(inputs["current"], inputs["anchor"])
    return {"drift": value, "trigger": value > inputs["delta"]}


def tiers(inputs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the records of each tier."""
    assigned = assign_tiers(inputs["priorities"], (), inputs["K"], inputs["H"])
    return {f"T{n}": [i for i, tier in assigned.items() if tier == n] for n in (1, 2, 3)}


@each_case("name", GOLDEN)
def test_golden(name: str) -> None:
    """Every number example of the reconstructed equations holds."""
    example = GOLDEN[name]
    compute: Any = single
    for part, other in (("over_time", over_time), ("drift_gate", gate), ("tier", tiers)):
        compute = other if part in name else compute
    actual = compute(example["inputs"])
    if isinstance(actual, list):
        assert actual == pytest.approx(example["expected"], abs=example["tolerance"])
        return
    for key, expected in example["expected"].items():
        assert actual[key] == pytest.approx(expected, abs=example["tolerance"]), key


def test_the_defaults_are_those_of_the_examples() -> None:
    """The constants in use are those that the examples were computed with."""
    inputs = GOLDEN["hmo_priority_fresh"]["inputs"]
    used = formula.ALPHA, formula.BETA, formula.TAU_DAYS
    assert used == (inputs["alpha"], inputs["beta"], inputs["tau_days"])
    assert Priority().drift == 0.15


@given(st.integers(-9, 99), FINITE, st.integers(-5, 10**9), FINITE)
def test_a_priority_has_bounds(importance: int, alignment: float, uses: int, days: float) -> None:
    """No rating, count or clock makes a priority negative, infinite or larger than when used."""
    base = base_priority(importance, min(alignment, 1.0))
    value = priority(base, uses, days)
    assert 0 <= value <= priority(base, uses, 0) < math.inf
    assert priority(base, uses, -abs(days)) == priority(base, uses, 0)


@given(
    st.dictionaries(st.text(max_size=3), st.floats(0, 5), max_size=40),
    st.integers(0, 9),
    st.integers(0, 9),
    st.data(),
)
def test_tiers_keep_their_sizes(
    priorities: dict[str, float], cache: int, buffer: int, data: st.DataObject
) -> None:
    """Each record is in one tier, no tier has more than its size, and none is worse than below."""
    recent = set(data.draw(st.lists(st.sampled_from(sorted(priorities))))) if priorities else set()
    assigned = assign_tiers(priorities, recent, cache, buffer)
    assert assigned.keys() == priorities.keys()
    others = {i: tier for i, tier in assigned.items() if i not in recent}
    by_tier = [[priorities[i] for i, tier in others.items() if tier == n] for n in (1, 2, 3)]
    assert len(by_tier[0]) <= cache and len(by_tier[1]) <= buffer
    for upper, lower in pairwise(by_tier):
        assert not (upper and lower) or min(upper) >= max(lower)


@given(st.lists(FINITE, min_size=3, max_size=3))
def test_a_persona_without_direction_has_drifted(vector: list[float]) -> None:
    """A persona of zeros passes the gate, whichever of the two it is; an equal one never does."""
    zero = [0.0, 0.0, 0.0]
    assert drift(zero, vector) == drift(vector, zero) == 1.0
    if any(abs(value) > 1e-3 for value in vector):
        assert drift(vector, vector) == pytest.approx(0, abs=1e-6)
