"""The files in which a team keeps its facts in git: a file for each clone, a line for each fact.

``.memtier/facts/CLONE.jsonl`` has a line for each fact that a clone shares, and one for each fact
that it ended.  CLONE is random and names no machine or user.  A clone writes its own file alone, so
that git merges files, not lines; what branches of one clone wrote is united (``merge=union``).  The
lines are a set: their order means nothing, one twice is as good as once, and an end outweighs a
fact.

Others' lines are read from the commit that is checked out, by git's plumbing, which runs no filter.
Whoever can push can have written them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memtier_plugin.core.errors import LedgerWriteError, UnsafePath
from memtier_plugin.core.files import OPEN_FLAGS, write_private_file
from memtier_plugin.core.formats import encode, from_iso
from memtier_plugin.core.git import Repository
from memtier_plugin.core.structs import Record, parse_json

FOLDER: Final = ".memtier/facts"
MOST_LINE: Final = 8_192  # bytes of a line
_MOST_BYTES: Final = 8 * 1024 * 1024  # of a file
_MOST_FILES: Final = 1_000
_MOST_BAD: Final = 100  # unreadable lines of a file, after which the rest is not read
_MOST_WHY: Final = 120  # characters of a reason, which may quote the line
_MOST_NAME: Final = 100  # characters of an agent's name
_ATTRIBUTES: Final = ".gitattributes"
_UNION: Final = "*.jsonl text eol=lf merge=union\n"
_NAME: Final = re.compile(r"[0-9a-f]{16}\.jsonl")
_ID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class SharedFact(Record, frozen=True, kw_only=True):
    """The line of a fact that a clone shares: nothing of who said it, or in which words.

    ``agent`` noted it, ``at`` that time; both it and ``valid_from`` are ISO 8601.
    """

    NULLS = frozenset[str]()

    id: str
    text: str
    subject: str
    relation: str
    value: str
    valid_from: str | None = None
    valid_to: str | None = None
    confidence: float = 1.0
    agent: str = ""
    at: str


class EndedFact(Record, frozen=True, kw_only=True):
    """The line of a fact that holds no more; ``by`` is the fact that replaced it, if one did."""

    NULLS = frozenset[str]()

    ended: str
    by: str | None = None
    at: str

    @property
    def id(self) -> str:
        """The fact's id."""
        return self.ended


Line = SharedFact | EndedFact


@dataclass(slots=True)
class TeamFacts:
    """The lines of a commit, by the name of their file; ``bad`` says what is no fact, and where.

    ``tree`` names what the folder holds; empty without a commit, or without the folder.
    """

    commit: str = ""
    tree: str = ""
    files: dict[str, list[Line]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)


def parse_line(data: bytes) -> Line:
    """Read a line.

    Raises:
        KeyError, ValueError: a field is missing, or is not what it must be.
    """
    if len(data) > MOST_LINE:
        raise ValueError(f"more than {MOST_LINE} bytes")
    record = parse_json(data)
    if not isinstance(record, dict):
        raise ValueError("not an object")
    line: Line = (EndedFact if "ended" in record else SharedFact).from_json(record)
    if isinstance(line, SharedFact):
        _check_fact(line)
    by = line.by if isinstance(line, EndedFact) else None
    for identity in filter(None, (line.id, by)):
        if not _ID.fullmatch(identity):
            raise ValueError("not the id of a fact")
    from_iso(line.at)
    return line


def _check_fact(line: SharedFact) -> None:
    for time in filter(None, (line.valid_from, line.valid_to)):
        from_iso(time)
    for name in ("text", "subject", "relation", "value"):
        if not getattr(line, name).strip():
            raise ValueError(f"{name}: empty")
    "".join((line.text, line.subject, line.relation, line.value, line.agent)).encode("utf-8")
    if len(line.agent) > _MOST_NAME:
        raise ValueError(f"agent: more than {_MOST_NAME} characters")
    if not 0 <= line.confidence <= 1:
        raise ValueError("confidence: not between 0 and 1")


def parse_lines(location: str, data: bytes, bad: list[str]) -> Iterator[Line]:
    """Yield the lines of a file; what is none is noted, and the rest is read."""
    before = len(bad)
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            yield parse_line(raw)
        except (KeyError, ValueError) as error:
            lacks = "missing: " if isinstance(error, KeyError) else ""
            bad.append(f"{location}:{number}: {lacks}{error!s:.{_MOST_WHY}}")
            if len(bad) - before >= _MOST_BAD:
                bad.append(f"{location}: {_MOST_BAD} lines are not facts; the rest was not read")
                return


def find_tree(repository: Repository) -> tuple[str, str]:
    """Return the commit that is checked out, and git's name of what its folder of facts holds.

    The second is empty without such a folder, both without a commit.
    """
    name = ("rev-parse", "--verify", "-q")
    commit = (repository.read(*name, "HEAD^{commit}") or "").strip()
    tree = commit and (repository.read(*name, f"{commit}:{FOLDER}") or "").strip()
    return commit, tree


def read_team_facts(repository: Repository) -> TeamFacts:
    """Read the files of the commit that is checked out."""
    commit, tree = find_tree(repository)
    facts = TeamFacts(commit, tree)
    listed = repository.read("ls-tree", "-z", "-l", tree) if tree else ""
    if listed is None:
        facts.bad.append(f"{FOLDER}: git cannot list it")
    entries = [entry for entry in (listed or "").split("\0") if entry]
    for entry in entries[:_MOST_FILES]:
        what, _, name = entry.partition("\t")
        if name != _ATTRIBUTES:
            _read_file(repository, name, what.split(), facts)
    if len(entries) > _MOST_FILES:
        facts.bad.append(f"{FOLDER}: only {_MOST_FILES} files were read")
    return facts


def _read_file(repository: Repository, name: str, what: Sequence[str], facts: TeamFacts) -> None:
    """Read a file of a commit; ``what`` is its mode, kind, name of the content and size."""
    mode, _, blob, size = what
    location = f"{FOLDER}/{name}"
    if not _NAME.fullmatch(name) or mode not in ("100644", "100755"):
        facts.bad.append(f"{location!r}: not a file of facts")
    elif size.isdecimal() and int(size) > _MOST_BYTES:
        facts.bad.append(f"{location}: more than {_MOST_BYTES} bytes")
    elif (text := repository.read("cat-file", "blob", blob)) is None:
        facts.bad.append(f"{location}: git cannot read it")
    else:
        data = text.encode("utf-8", "surrogateescape")
        facts.files[name] = [*parse_lines(location, data, facts.bad)]


def read_own_file(top: Path, name: str) -> bytes:
    """Return this clone's file in the work tree, which may not be committed yet; empty without.

    Raises:
        UnsafePath: a symlink stands where it belongs.
    """
    _check_folder(top)
    path = top / FOLDER / name
    if path.is_symlink():
        raise UnsafePath(f"{path} is a symlink")
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | OPEN_FLAGS | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return file.read(_MOST_BYTES)
    return b""


def render(lines: Mapping[str, Line]) -> bytes:
    """Return the content of a file with these lines, by the fact's id."""
    return b"".join(encode(lines[identity].to_json()) + b"\n" for identity in sorted(lines))


def write_own_file(top: Path, name: str, content: bytes) -> None:
    """Write this clone's file into the work tree.

    Raises:
        UnsafePath: a symlink stands where it belongs.
        LedgerWriteError: it cannot be written.
    """
    _check_folder(top)
    folder = top / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerWriteError(f"cannot make {folder}: {error}") from error
    if not os.path.lexists(folder / _ATTRIBUTES):
        write_private_file(folder / _ATTRIBUTES, _UNION)
    write_private_file(folder / name, content.decode())


def _check_folder(top: Path) -> None:
    """Refuse a folder that is elsewhere, as a repository may have links in its place.

    Raises:
        UnsafePath: it is a symlink.
    """
    for path in ((top / FOLDER).parent, top / FOLDER):
        if path.is_symlink():
            raise UnsafePath(f"{path} is a symlink: facts are written into a folder of {top}")
