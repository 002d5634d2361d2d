"""A table that is one test hides no failure of any of its rows."""

from __future__ import annotations

import pytest

from tests.cases import each_case


def test_every_failing_case_is_reported() -> None:
    """Each case that fails is named with what failed in it, also in a table of tables."""

    @each_case("low", [1, pytest.param(5, id="five"), 3])
    @each_case("high", [2, 4], ids=str)
    def rule(low: int, high: int) -> None:
        assert low < high

    with pytest.raises(pytest.fail.Exception) as failure:
        rule()
    message = str(failure.value)
    assert "2 of 3 cases failed" in message and "case 1:" not in message
    for label, count in (("case five:", 1), ("case 3:", 1), ("case 2:", 2), ("case 4:", 1)):
        assert message.count(label) == count, message
    assert "assert 5 < 4" in message
