"""Paths of a home: created private to this user, refused if they belong to another.

Names of projects, agents and sessions are user input. They become file names by percent-encoding,
upper case included, because some file systems fold case. A long name is cut and gets a hash; the
folder's ``.names`` file holds its full form.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from memtier_plugin import __version__
from memtier_plugin.core.errors import (
    HomeTooNew,
    LedgerError,
    LedgerWriteError,
    SettingsError,
    UnsafePath,
)
from memtier_plugin.core.files import (
    OF_OTHERS,
    OPEN_FLAGS,
    check_ownership,
    tighten_mode,
    write_bytes,
    write_private_file,
)
from memtier_plugin.core.formats import parse_json_text

_DEFAULT_HOME: Final = "~/.memtier"
_LONGEST_SOCKET: Final = 103  # bytes of a path on macOS; Linux allows four more
LEDGERS: Final = ("episodic", "semantic", "procedural", "journal")
PROJECT_JOURNAL: Final = "_project"
_SAFE: Final = "abcdefghijklmnopqrstuvwxyz0123456789._-"
_LONGEST: Final = 120
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"})
RESTORING: Final = ".restoring-"  # prefix of a folder that is being unpacked
HOME_MARKER: Final = ".memtier-home"
FORMAT: Final = 1  # of a home; raised when an older MemTier would misread what this one writes
_FORMAT_LINE: Final = re.compile(r"^format (\d+), by MemTier (\S+)$", re.MULTILINE | re.ASCII)
_HOME_NAMES: Final = frozenset(
    {
        *("config.yaml", "tokens.json", "projects", "queue", "hosts", "logs", "run", "models"),
        ".DS_Store",
    }
)
_HOME_PREFIXES: Final = (".memtier", RESTORING, ".config.yaml.", ".tokens.json.")
_LOG_BYTES: Final = 1_000_000  # a larger log starts afresh


@lru_cache(1024)  # every write looks one up, and few projects, agents and sessions are in use
def encode_file_name(name: str) -> str:
    """Encode a name as a file name."""
    encoded = "".join(
        c if c in _SAFE else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass"))
        for c in name
    )
    if not encoded or encoded[0] in "._":  # "_project" and hidden files are ours
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded else "%"
    if len(encoded) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        encoded = f"{encoded[: _LONGEST - 20]}~{digest}"
    return encoded


def owner_folder_name(owner: str) -> str:
    """Return the folder name of an agent, or of the project's own journal."""
    return owner if owner == PROJECT_JOURNAL else encode_file_name(owner)


def decode_file_name(folder: Path, encoded: str) -> str:
    """Decode a file name; a long one is looked up in ``.names``."""
    if encoded == PROJECT_JOURNAL:
        return encoded
    if "~" in encoded:
        return _long_names(folder).get(encoded, encoded)
    return "" if encoded == "%" else unquote(encoded, errors="surrogatepass")


def list_projects(home: Path) -> list[str]:
    """Return the names of all projects of a home."""
    top = home / "projects"
    if not top.is_dir():
        return []
    return sorted(decode_file_name(top, folder.name) for folder in top.iterdir() if folder.is_dir())


def register_long_name(parent: Path, encoded: str, name: str) -> None:
    """Write the full form of a hashed name to ``.names``.

    Raises:
        LedgerWriteError: it cannot be written.
    """
    if "~" not in encoded or decode_file_name(parent, encoded) == name:
        return
    # A leading newline ends whatever a crash left of an earlier line.
    line = f"\n{json.dumps({'file': encoded, 'name': name})}\n".encode("ascii")
    try:
        fd = os.open(parent / ".names", os.O_WRONLY | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o600)
        try:
            written = write_bytes("write", fd, line, parent / ".names")
        finally:
            os.close(fd)
        if written != len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes fitted")
    except OSError as error:
        raise LedgerWriteError(f"cannot keep the name {name[:40]!r}: {error}") from error


def resolve_home(home: str | Path | None = None, env: Mapping[str, str] | None = None) -> Path:
    """Return the home: the argument, else ``MEMTIER_HOME``, else ``~/.memtier``."""
    chosen = home or (os.environ if env is None else env).get("MEMTIER_HOME") or _DEFAULT_HOME
    try:
        path = Path(chosen).expanduser().absolute()
        if b"\0" in str(path).encode():  # SQLite takes file names as UTF-8
            raise ValueError("it holds a NUL")
        return path
    except (RuntimeError, ValueError) as error:
        raise SettingsError(f"the home {str(chosen)!r} is not a valid folder: {error}") from None


def make_home(home: Path) -> Path:
    """Create the home, or adopt one that is ours; a foreign folder is refused untouched.

    A home is recognised by its marker, one of an earlier version by its contents.  A marker of an
    earlier format is replaced: from now on, a MemTier that knows only that one refuses the home.

    Raises:
        UnsafePath: it holds something else, is a symlink, not a folder, or another user's.
        HomeTooNew: a newer MemTier wrote it.
        LedgerWriteError: it cannot be made.
    """
    marker, known = home / HOME_MARKER, check_format(home)
    text = f"This folder is a home of MemTier.\nformat {FORMAT}, by MemTier {__version__}\n"
    if known is not None:
        _make_folder(home, parents=True)
        if known < FORMAT:
            write_private_file(marker, text)
        return home
    if home.is_dir() and not home.is_symlink() and not _is_ours(home):
        raise UnsafePath(
            f"{home} is not empty, and was not created by MemTier, so it was left alone: "
            "name an empty folder, or one that does not exist, with `memtier --home PATH`"
        )
    make_private_folder(home)
    with suppress(OSError):  # a read-only disk
        fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)
    return home


def check_format(home: Path) -> int | None:
    """Return the format that a home's marker names; None without a marker.

    Markers of earlier versions name none: theirs is format 1.

    Raises:
        HomeTooNew: a newer MemTier wrote it.
    """
    marker = home / HOME_MARKER
    try:
        status = marker.stat()
        number, version = _read_format(marker, status.st_ino, status.st_mtime_ns)
    except OSError:
        return None
    if number > FORMAT:
        raise HomeTooNew(
            f"the home {home} has format {number}, written by MemTier {version}, and this MemTier "
            f"{__version__} knows only format {FORMAT}: upgrade it, or use another home"
        )
    return number


@lru_cache(64)  # each write asks
def _read_format(marker: Path, inode: int, mtime_ns: int) -> tuple[int, str]:
    line = _FORMAT_LINE.search(marker.read_text("utf-8", "replace"))
    return (int(line[1]), line[2]) if line else (1, "")


def _is_ours(home: Path) -> bool:
    """Return whether a folder without a marker is empty, or holds only what MemTier makes."""
    try:
        names = os.listdir(home)
    except OSError:
        return True  # whatever opens it next reports the problem
    if all(name in _HOME_NAMES or name.startswith(_HOME_PREFIXES) for name in names):
        return True
    projects = home / "projects"
    return any(
        (p / "index.sqlite3").exists() or (p / "episodic").exists() for p in projects.glob("*")
    )


def make_private_folder(home: Path, *names: str) -> Path:
    """Create a folder under the home (mode 0700), checking each of its parents.

    Raises:
        UnsafePath: a step is a symlink, not a folder, or another user's; or the home is not ours.
        LedgerWriteError: it cannot be made.
    """
    if names and (names[0] in _HOME_NAMES or names[0].startswith(RESTORING)):
        make_home(home)
    else:
        _make_folder(home, parents=True)
    folder = home
    for name in names:
        folder = folder / name
        _make_folder(folder)
    return folder


def _make_folder(folder: Path, *, parents: bool = False) -> int:
    """Create a folder if it is missing, and check it; return its mode.

    Raises:
        UnsafePath, LedgerWriteError: as `make_private_folder`.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        try:
            folder.mkdir(mode=0o700, parents=parents, exist_ok=True)
            status = folder.lstat()
        except OSError as error:
            raise LedgerWriteError(f"cannot make the folder {folder}: {error}") from error
    except OSError as error:
        raise LedgerWriteError(f"cannot check {folder}: {error}") from error
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()):
        check_ownership(folder, status, stat.S_IFDIR)
    return status.st_mode


def owned_folder_exists(folder: Path) -> bool:
    """Return whether a folder exists.

    Raises:
        UnsafePath: the path is a symlink or a file, or belongs to another user.
    """
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()):
        check_ownership(folder, status, stat.S_IFDIR)
    return True


def make_ledger_folder(home: Path, project: str, ledger: str, owner: str | None = None) -> Path:
    """Make and return the folder of a ledger; ``owner`` is the agent for episodic and journal.

    Raises:
        UnsafePath, LedgerWriteError: as `make_private_folder`; or there is no such ledger.
    """
    if ledger not in LEDGERS:
        raise UnsafePath(f"{ledger!r} is not a ledger; expected one of {', '.join(LEDGERS)}")
    top = make_project_folder(home, project) / ledger
    _make_folder(top)
    if owner is None:
        return top
    name = owner_folder_name(owner)
    if "~" in name:
        register_long_name(top, name, owner)
    _make_folder(top / name)
    return top / name


def make_project_folder(home: Path, project: str) -> Path:
    """Make and return the folder of a project.

    Raises:
        UnsafePath, LedgerWriteError: as `make_private_folder`.
    """
    name, top = encode_file_name(project), make_home(home) / "projects"
    modes = {home: home.lstat().st_mode, top: _make_folder(top)}
    if "~" in name:
        register_long_name(top, name, project)
    modes[top / name] = _make_folder(top / name)
    for folder, mode in modes.items():
        if mode & OF_OTHERS:
            tighten_mode(folder, mode)
    return top / name


def iter_ledger_folders(
    folder: Path, agent: str | None = None
) -> Iterator[tuple[str, str | None, Path]]:
    """Yield (ledger, owner, folder) for every ledger folder of a project, in a fixed order.

    Args:
        agent: skip the episodic ledgers of all other agents.

    Raises:
        UnsafePath: one of them is a symlink, or belongs to another user.
    """
    for ledger in LEDGERS:
        top = folder / ledger
        if not owned_folder_exists(top):
            continue
        if ledger in ("semantic", "procedural"):
            yield ledger, None, top
            continue
        paths = [*top.iterdir()]
        if ledger == "episodic" and agent is not None:
            paths = [path for path in paths if decode_file_name(top, path.name) == agent]
        for path in sorted(path for path in paths if path.is_dir() and owned_folder_exists(path)):
            yield ledger, decode_file_name(top, path.name), path


def index_path(folder: Path) -> Path:
    """Return the path of a project's index: beside the ledgers unless they are on a network.

    SQLite's locks and its shared memory do not work across a network file system.
    """
    if not is_on_network(folder):
        return folder / "index.sqlite3"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return make_private_folder(cache, "memtier", name) / "index.sqlite3"


def socket_path(home: Path) -> Path:
    """Return the path of the home's server socket: in the home if possible.

    It depends on no environment variable: agents pass their whole environment to hooks and hardly
    any of it to MCP servers, and both must find the same server.  If the path would be too long, or
    the home is on a network file system, the socket is in ``/tmp``.
    """
    path = home / "run" / "memtier.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET and not is_on_network(home):
        return path
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16] + ".sock"
    return Path("/tmp", f"memtier-{os.geteuid()}", name)


def make_socket_folder(home: Path) -> Path:
    """Make the folder of a home's socket, and return the socket's path.

    Raises:
        UnsafePath, LedgerWriteError: as `make_private_folder`.
    """
    path = socket_path(home)
    if path.is_relative_to(home):
        make_private_folder(home, path.parent.name)
    else:
        make_private_folder(path.parent)
    return path


def is_on_network(folder: Path, mounts_file: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a folder lies on a network file system (known on Linux only)."""
    try:
        mounts = mounts_file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    best, kind = "", ""
    for line in mounts:
        _, point, fstype, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        inside = str(folder) == point or str(folder).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fstype
    return kind in _NETWORK


def open_process_log(home: Path, name: str) -> int:
    """Open a log file in a home for a process's output, and return its descriptor.

    Raises:
        UnsafePath, LedgerWriteError: as `make_private_folder`.
        OSError: the file cannot be opened.
    """
    path = make_private_folder(home, "logs") / f"{name}.log"
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | OPEN_FLAGS, 0o600)


def _long_names(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / ".names").read_bytes().splitlines()
    except OSError:
        return {}
    names = {}
    for line in lines:
        try:
            record = parse_json_text(line)
            names[str(record["file"])] = str(record["name"])
        except (ValueError, KeyError, TypeError):
            continue  # empty or torn
    return names


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """Where a project keeps its notes: settings, hook marks, job states, a purge's plan.

    Every backend has this folder, wherever its log is.  The files that also lie in it with this
    backend, the ledgers and the index, are reached through the store only.

    Attributes:
        home: the folder of all projects, with the hosts' queue, the logs and the socket.
        path: the project's own folder.
    """

    home: Path
    path: Path

    @classmethod
    def of(cls, home: Path, project: str) -> ProjectFolder:
        """Return the folder of a project, which need not exist."""
        return cls(home, home / "projects" / encode_file_name(project))

    @property
    def purge_plan(self) -> Path:
        """The plan of a purge: there while one is in progress, or was interrupted."""
        return self.path / ".purging.json"

    def make(self, *parts: str) -> Path:
        """Create the folder, or one within it, and return it.

        Raises:
            UnsafePath: a step is a symlink, not a folder, or belongs to somebody else.
            LedgerWriteError: it cannot be made.
        """
        return make_private_folder(self.home, "projects", self.path.name, *parts)


# -- Which projects this machine shares: a note in the project's folder, made by joining
SHARED_FOLDER: Final = ".shared"
SHARED_NOTE: Final = "project.json"  # in `.shared`: the project's name on the server


def shared_name(folder: Path) -> str | None:
    """Return the name that a project has on the server; None if it is not shared.

    Raises:
        LedgerError: the note of it cannot be read.
    """
    path = folder / SHARED_FOLDER / SHARED_NOTE
    try:
        return str(parse_json_text(path.read_text("utf-8"))["project"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error
