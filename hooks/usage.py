"""Read what a run's model calls took from what its host reports, one record for each model.

OpenClaw notes it with each of the assistant's messages, Hermes tells it of each request
(`post_api_request`); in both, ``input`` leaves out what the provider's cache held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from memtier_plugin.core.usage_events import UsageEvent

MOST_TOKENS: Final = 10**9  # of one call; more is no count of tokens
# By the field of the event: its names in OpenClaw's and in Hermes' reports.
_NAMES: Final = {
    "input": ("input", "input_tokens"),
    "cached": ("cacheRead", "cache_read_tokens"),
    "cache_write": ("cacheWrite", "cache_write_tokens"),
    "output": ("output", "output_tokens"),
}


def usage_of(reports: Iterable[Any]) -> tuple[UsageEvent, ...]:
    """Return the usage of a run by model.

    Args:
        reports: what says ``usage``, ``provider`` and ``model``; anything else is passed over.
    """
    by_model: dict[str, list[dict[str, int]]] = {}
    for report in reports:
        usage = report.get("usage") if isinstance(report, Mapping) else None
        if not isinstance(usage, Mapping):
            continue
        counts = {name: _count(usage, names) for name, names in _NAMES.items()}
        if any(counts.values()):
            named = [str(report[part]) for part in ("provider", "model") if report.get(part)]
            by_model.setdefault("/".join(named)[:200], []).append(counts)
    return tuple(
        UsageEvent(
            model=model,
            calls=len(calls),
            **{name: sum(call[name] for call in calls) for name in _NAMES},
        )
        for model, calls in by_model.items()
    )


def _count(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    number = next((usage[name] for name in names if name in usage), 0)
    return number if type(number) is int and 0 <= number <= MOST_TOKENS else 0
