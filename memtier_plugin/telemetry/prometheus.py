"""Write measurements in Prometheus' text format (version 0.0.4).  Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from memtier_plugin.telemetry.measures import Attributes, Instrument, Measure

_UNITS: Final = {"s": "_seconds"}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Series:
    """The totals under one set of labels; ``counts`` are a histogram's, by bucket."""

    total: float = 0.0
    number: int = 0
    counts: list[int] = field(default_factory=list)


class Registry:
    """Adds measurements up, by instrument and labels."""

    def __init__(self) -> None:
        self._series: dict[Instrument, dict[_Labels, _Series]] = {}

    def add(self, measure: Measure) -> None:
        """Add a measurement; a gauge takes its value."""
        instrument = measure.instrument
        series = self._series.setdefault(instrument, {}).setdefault(
            _labels(measure.attributes), _Series(counts=[0] * (len(instrument.buckets) + 1))
        )
        if instrument.kind == "gauge":
            series.total = measure.value
            return
        series.total += measure.value
        series.number += 1
        series.counts[bisect_left(instrument.buckets, measure.value)] += 1

    def render(self) -> str:
        """Return the text, sorted by name and labels."""
        lines: list[str] = []
        for instrument in sorted(self._series, key=lambda each: each.name):
            name = _name(instrument)
            lines += [
                f"# HELP {name} {instrument.meaning}",
                f"# TYPE {name} {instrument.kind}",
            ]
            for labels, series in sorted(self._series[instrument].items()):
                lines += _samples(instrument, name, labels, series)
        return "\n".join(lines) + "\n" if lines else ""


def _samples(instrument: Instrument, name: str, labels: _Labels, series: _Series) -> Iterator[str]:
    if instrument.kind != "histogram":
        yield f"{name}{_text(labels)} {series.total:.12g}"
        return
    below = 0
    for bound, count in zip((*instrument.buckets, math.inf), series.counts, strict=True):
        below += count
        limit = "+Inf" if bound == math.inf else f"{bound:g}"
        yield f"{name}_bucket{_text((*labels, ('le', limit)))} {below}"
    yield f"{name}_sum{_text(labels)} {series.total:.12g}"
    yield f"{name}_count{_text(labels)} {series.number}"


def _name(instrument: Instrument) -> str:
    name = instrument.name.replace(".", "_") + _UNITS.get(instrument.unit, "")
    return f"{name}_total" if instrument.kind == "counter" else name


def _labels(attributes: Attributes) -> _Labels:
    return tuple((name.replace(".", "_"), str(value)) for name, value in attributes.items())


def _text(labels: _Labels) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""
