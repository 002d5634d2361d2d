"""A constructor by slots makes what the dataclass's own one makes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, replace
from inspect import signature
from typing import Any

import pytest

from memtier_plugin.core.codecs import convert
from memtier_plugin.core.fast_init import fast_init
from memtier_plugin.core.records import Source
from memtier_plugin.core.results import Evidence


@dataclass(frozen=True, slots=True)
class Plain:
    """A record with every kind of field."""

    first: int
    second: str = "two"
    many: list[int] = field(default_factory=list)
    last: float = field(default=0.5, kw_only=True)


@fast_init
@dataclass(frozen=True, slots=True)
class Fast:
    """The same."""

    first: int
    second: str = "two"
    many: list[int] = field(default_factory=list)
    last: float = field(default=0.5, kw_only=True)


@fast_init
@dataclass(frozen=True, slots=True)
class Checked:
    """A record that checks itself."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("negative")


CALLS: list[Callable[[Any], Any]] = [
    lambda cls: cls(1),
    lambda cls: cls(1, "x", [3], last=4.0),
    lambda cls: cls(second="y", first=2),
    lambda cls: replace(cls(1), many=[5]),
    lambda cls: convert({"first": 7, "many": [1]}, cls),
]


@pytest.mark.parametrize("call", CALLS)
def test_the_same_record(call: Callable[[Any], Any]) -> None:
    """Arguments, defaults, `replace` and decoding give the fields that they give otherwise."""
    plain, fast = call(Plain), call(Fast)
    assert repr(fast) == repr(plain).replace("Plain", "Fast")
    assert fast == call(Fast)
    assert pickle.loads(pickle.dumps(fast)) == fast


def test_the_same_signature() -> None:
    """What a constructor takes, and refuses, stays; records stay frozen; no default is shared."""
    names = [(p.name, p.kind) for p in signature(Fast).parameters.values()]
    assert names == [(p.name, p.kind) for p in signature(Plain).parameters.values()]
    for wrong in (lambda: Fast(), lambda: Fast(1, third=3), lambda: Fast(1, "x", [], 4.0)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(FrozenInstanceError):
        Fast(1).first = 2  # type: ignore[misc]
    assert Fast(1).many is not Fast(1).many
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_records_of_a_recall() -> None:
    """The records that a recall makes by the hundred hash and compare as before."""
    source = Source(agent="a", session="s", entry="e")
    assert {source: 1}[Source(agent="a", session="s", entry="e")] == 1
    assert replace(Evidence(cosine=0.5), time=1.0) == Evidence(cosine=0.5, time=1.0)
