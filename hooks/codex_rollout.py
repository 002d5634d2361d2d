"""Find the exit codes of Codex' commands, which only its session file has.

A finished command is a line with its exit code; the model's result is another, whose head names the
code.  A call with neither is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.formats import parse_json_text

_MAX_BYTES: Final = 16_000_000  # bytes read from the file's end
_HEAD: Final = re.compile(r"(?:[^\n]*\n){0,4}?Process exited with code (\d{1,3})\n")


def add_exit_codes(events: Sequence[dict[str, Any]], transcript: str) -> None:
    """Add to each tool call the ``exit_code`` from the session file."""
    calls = {str(event.get("tool_use_id")): event for event in events if event.get("tool_name")}
    with suppress(OSError):
        for call, code in _read_codes(Path(transcript)) if calls and transcript else ():
            if call in calls:
                calls[call]["exit_code"] = code


def _read_codes(path: Path) -> Iterator[tuple[str, int]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MAX_BYTES))
        for line in file:
            if b'"exit_code"' not in line and b"Process exited with code" not in line:
                continue
            with suppress(ValueError, AttributeError, KeyError, TypeError):
                payload = parse_json_text(line)["payload"]
                item = payload.get("item") or payload
                if isinstance(item.get("exit_code"), int):
                    yield str(item["id"]), item["exit_code"]
                elif head := _HEAD.match(item["output"]):
                    yield str(item["call_id"]), int(head[1])
