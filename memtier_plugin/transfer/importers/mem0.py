"""Read memories exported from mem0: a list, an object with `results`, or one memory per line.

A model wrote them from what users said, so their origin is `external`.  Each is a run of its own,
named by its id, so that a later import adds only what mem0 changed.  If a file has memories of
several users, each user's are recalled only for that sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Message
from memtier_plugin.ingest.sessions import Session, Turn
from memtier_plugin.transfer.importers.files import SkipCallback, read_items, read_json_lines
from memtier_plugin.transfer.importers.sessions import parse_timestamp


def read_mem0(path: Path, skip: SkipCallback) -> Iterator[Session]:
    """Yield each memory of a mem0 export."""
    memories = [
        (location, record)
        for location, record in _records(path, skip)
        if _is_memory(record, location, skip)
    ]
    several = len({record.get("user_id") for _, record in memories}) > 1
    for location, record in memories:
        try:
            session = _session(record, location, several)
        except ImportFileError as error:
            skip(location, str(error))
            continue
        yield session


def _records(path: Path, skip: SkipCallback) -> Iterator[tuple[str, Any]]:
    if path.suffix in (".jsonl", ".ndjson"):
        yield from read_json_lines(path, skip)
        return
    for location, record in read_items(path, ""):
        results = record.get("results") if isinstance(record, dict) else None
        if isinstance(results, list):
            for number, result in enumerate(results):
                yield f"{location}, result {number}", result
        else:
            yield location, record


def _is_memory(record: Any, location: str, skip: SkipCallback) -> bool:
    if not isinstance(record, dict):
        skip(location, f"not a memory: {record!r:.60}")
    elif not isinstance(record.get("id"), str) or not record["id"]:
        skip(location, "it has no `id`")
    elif not isinstance(record.get("memory"), str) or not record["memory"].strip():
        skip(location, f"memory {record['id']}: it has no text in `memory`")
    else:
        return True
    return False


def _session(record: dict[str, Any], location: str, several: bool) -> Session:
    when = parse_timestamp(record.get("updated_at") or record.get("created_at"), location)
    user = record.get("user_id")
    owner = next(
        (v for n in ("user_id", "agent_id", "app_id") if isinstance(v := record.get(n), str) and v),
        "all",
    )
    message = Message(role="user", content=record["memory"], origin="external", observed_at=when)
    return Session(
        session_id=f"mem0/{owner}",
        observed_at=when,
        turns=(Turn(id=record["id"], message=message, run_id=f"mem0:{record['id']}"),),
        sender=user if several and isinstance(user, str) and user else None,
    )
