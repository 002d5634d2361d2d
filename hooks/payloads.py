"""Read what hosts' payloads share: texts, tool calls, model usage, notices, compactions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MemTierError, MessageError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.paths import make_private_folder
from memtier_plugin.core.records import Origin, UsageEvent
from memtier_plugin.core.results import RunContext
from memtier_plugin.ingest.messages import flatten_content
from memtier_plugin.pool import memory_pool
from memtier_plugin.trust.origins import brings_external_text

# -- Read the common parts of hosts' payloads: texts, tool calls, and what is external

MAX_SEEN: Final = 400_000  # characters of external text of earlier runs, the newest first


def text_or_none(value: object) -> str | None:
    """Return a payload's value as text; None for nothing and for an empty text."""
    return str(value) if value not in (None, "") else None


def calls_by_id(calls: object) -> dict[str, tuple[str, str]]:
    """Return the tool and its JSON arguments of each call, by call id."""
    by_id = {}
    for call in calls if isinstance(calls, list | tuple) else ():
        function = call.get("function") or call if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = function.get("arguments") or ""
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, default=str)
            by_id[str(call.get("id"))] = str(function.get("name") or ""), arguments
    return by_id


def result_origin(
    name: str,
    arguments: str,
    result: str,
    local: Sequence[str],
    details: Mapping[str, Any] | None = None,
) -> Origin:
    """Return the origin of a tool's result: the machine, or strangers."""
    external = brings_external_text(name, arguments, result, details, local)
    return "external" if external else "tool"


def local_tools(context: RunContext) -> tuple[str, ...]:
    """Return the tools that the project's settings call local (`trust.local_tools`)."""
    with suppress(MemTierError):  # the hook itself reports invalid settings
        return memory_pool.settings(context).trust.local_tools
    return ()


def external_texts(messages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the newest external texts of messages, up to `MAX_SEEN` characters, oldest first.

    Unreadable messages are skipped: they belong to runs that were delivered before.
    """
    texts: list[str] = []
    with suppress(MessageError):
        texts += (
            flatten_content(m.get("content")) for m in messages if m.get("origin") == "external"
        )
    kept, room = [], MAX_SEEN
    for text in reversed(texts):
        room -= len(text)
        if room < 0:
            break
        kept.append(text)
    return tuple(kept[::-1])


def drop_oldest(entries: dict[str, Any], limit: int) -> None:
    """Remove the entries added first until at most ``limit`` are left."""
    while len(entries) > limit:
        entries.pop(next(iter(entries)))


# -- The last compaction of each session, after which a prompt shows the session in full

MAX_SESSIONS: Final = 2000  # sessions remembered; the oldest are dropped first


@dataclass(slots=True)
class Compactions:
    """The time of each session's last compaction, kept across restarts of the resident."""

    file: Path
    times: dict[str, str]

    @classmethod
    def load(cls, home: Path, host: str) -> Compactions:
        """Read a host's times from a home; an unreadable file is replaced."""
        compactions = cls(home / "hosts" / f"{host}.json", {})
        with suppress(OSError, ValueError, TypeError, AttributeError):
            saved = parse_json_text(compactions.file.read_text("utf-8"))
            compactions.times = {str(k): to_iso(from_iso(v)) for k, v in saved.items()}
        return compactions

    def last_compaction(self, session: str) -> datetime:
        """Return the time since which a session's conversation is complete."""
        return from_iso(self.times.get(session, "0001-01-02T00:00:00Z"))

    def note(self, session: str, now: datetime) -> None:
        """Record that a session is being compacted."""
        self.times.pop(session, None)
        self.times[session] = to_iso(now)
        drop_oldest(self.times, MAX_SESSIONS)
        with suppress(MemTierError, OSError):  # it stays known in memory
            make_private_folder(self.file.parents[1], "hosts")
            write_private_file(self.file, json.dumps(self.times))


# -- Read a run's token usage from its host's reports, one record for each model
#
# OpenClaw reports it with each assistant message, Hermes for each request (`post_api_request`); in
# both, ``input`` excludes tokens from the provider's cache.

MOST_TOKENS: Final = 10**9  # of one call; a larger number is invalid
# By the field of the event, its names in OpenClaw's and Hermes' reports.
_NAMES: Final = {
    "input": ("input", "input_tokens"),
    "cached": ("cacheRead", "cache_read_tokens"),
    "cache_write": ("cacheWrite", "cache_write_tokens"),
    "output": ("output", "output_tokens"),
}


def usage_of(reports: Iterable[Any]) -> tuple[UsageEvent, ...]:
    """Return the usage of a run by model.

    Args:
        reports: mappings with ``usage``, ``provider`` and ``model``; others are skipped.
    """
    by_model: dict[str, list[dict[str, int]]] = {}
    for report in reports:
        usage = report.get("usage") if isinstance(report, Mapping) else None
        if not isinstance(usage, Mapping):
            continue
        counts = {name: _count(usage, names) for name, names in _NAMES.items()}
        if any(counts.values()):
            named = [str(report[field]) for field in ("provider", "model") if report.get(field)]
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
