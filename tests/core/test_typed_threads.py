"""A type that many threads meet for the first time crashes none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

MEET = """
import sys, threading
from dataclasses import dataclass, make_dataclass
from memtier_plugin.core import structs
sys.setswitchinterval(1e-6)
inner = [make_dataclass(f"Inner{n}", [("x", int)]) for n in range(200)]
outer = [
    make_dataclass(f"Outer{n}", [("first", kind), ("rest", list[str]), ("last", str)])
    for n, kind in enumerate(inner)
]
barrier = threading.Barrier(8)
def meet():
    for kind in outer:
        barrier.wait()
        if WAY == "convert":
            structs.convert({"first": {"x": 1}, "rest": ["s"], "last": "s"}, kind)
        else:
            structs.check_fields(kind(kind.__annotations__["first"](1), ["s"], "s"))
threads = [threading.Thread(target=meet) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("way", ["convert", "check_fields"])
def test_first_met_by_eight_threads(way: str) -> None:
    """Whatever a type is read or checked for first, no thread sees it half built (msgspec 0.22)."""
    done = subprocess.run(
        [sys.executable, "-c", f"WAY = {way!r}\n{MEET}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
