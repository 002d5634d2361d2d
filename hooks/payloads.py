"""Read what hosts' payloads have in common: texts, tool calls, and what is external."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from memtier_plugin.core.errors import MemTierError, MessageError
from memtier_plugin.core.host import RunContext
from memtier_plugin.ingest.messages import flatten_content
from memtier_plugin.pool import memory_pool

MAX_SEEN: Final = 400_000  # characters of external text of earlier runs, the newest first


def text_or_none(value: object) -> str | None:
    """Return a payload's value as text; None for nothing and for an empty text."""
    return str(value) if value not in (None, "") else None


def calls_by_id(calls: object) -> dict[str, tuple[str, str]]:
    """Return, by each call's id, the tool that it names and its arguments as JSON."""
    asked = {}
    for call in calls if isinstance(calls, list | tuple) else ():
        function = call.get("function") or call if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = function.get("arguments") or ""
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False, default=str)
            asked[str(call.get("id"))] = str(function.get("name") or ""), arguments
    return asked


def local_tools(context: RunContext) -> tuple[str, ...]:
    """Return the tools that the project's settings call local (`trust.local_tools`)."""
    with suppress(MemTierError):  # settings that are wrong are named by the hook itself
        return memory_pool.settings(context).trust.local_tools
    return ()


def external_texts(messages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the newest external texts of messages, up to `MAX_SEEN` characters, oldest first.

    What no recorder could read is left out: it belongs to runs that were delivered before.
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
