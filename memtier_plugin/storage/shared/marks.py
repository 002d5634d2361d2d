"""How far this machine has copied each stream of a shared ledger, kept in the project's folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from memtier_plugin.core.json_text import parse_json_text
from memtier_plugin.core.paths import decode_file_name, owner_folder_name, write_private_file
from memtier_plugin.storage.shared.marker import FOLDER
from memtier_plugin.storage.shared.protocol import Stream


@dataclass(frozen=True, slots=True)
class Mark:
    """A position by content: the epoch, the offset and the digest of the line there.

    ``sizes`` has the bytes of each day's file up to there.  A file may have more, from a process
    that was killed: what is there is compared with what comes, not trusted.
    """

    epoch: int = 0
    offset: int = 0
    tail: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)


def digest(data: bytes) -> str:
    """Return the digest of a line that a mark keeps."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def mark_path(folder: Path, stream: Stream) -> Path:
    """Return the file of a stream's mark."""
    owner = "" if stream.owner is None else f".{owner_folder_name(stream.owner)}"
    return folder / FOLDER / f"{stream.ledger}{owner}.json"


def read_mark(folder: Path, stream: Stream) -> Mark:
    """Return a stream's mark; one that cannot be read counts as none, and all is compared again."""
    try:
        return Mark(**parse_json_text(mark_path(folder, stream).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return Mark()


def write_mark(folder: Path, stream: Stream, mark: Mark) -> None:
    """Save a stream's mark.

    Raises:
        LedgerWriteError: it cannot be written.
    """
    write_private_file(mark_path(folder, stream), json.dumps(asdict(mark)))


def marked_streams(folder: Path) -> dict[Stream, Mark]:
    """Return every stream that has a mark."""
    streams = {}
    for path in sorted((folder / FOLDER).glob("*.json")):
        ledger, _, owner = path.stem.partition(".")
        name = decode_file_name(folder / ledger, owner) if owner else None
        stream = Stream(ledger, name)
        if ledger in ("episodic", "journal", "semantic", "procedural"):
            streams[stream] = read_mark(folder, stream)
    return streams


def copied_streams(folder: Path) -> list[Stream]:
    """Return the streams of which this machine has lines."""
    return [stream for stream, mark in marked_streams(folder).items() if mark.offset]
