"""Back up a project into one verified archive, and restore it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from memtier_plugin import __version__
from memtier_plugin.core.errors import BackupError
from memtier_plugin.core.files import OPEN_FLAGS, pass_point, run_step
from memtier_plugin.core.formats import new_id, to_iso
from memtier_plugin.core.paths import (
    LEDGERS,
    RESTORING,
    encode_file_name,
    make_private_folder,
    register_long_name,
)
from memtier_plugin.storage.home_files import (
    PART,
    FrozenFile,
    abandoned_parts,
    belongs_to_backup,
    freeze_parts,
    register_export,
)

# -- Write files of a project into one verified archive, and read it back
#
# An archive is a tar of the files below one folder, then ``manifest.json`` with the size and
# SHA-256 of each.  Files that the kind of archive cannot contain are rejected before unpacking.

Progress = Callable[[int, int], None]

_MANIFEST: Final = "manifest.json"
_MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
_MAX_ATTEMPTS: Final = 3
_CHUNK_BYTES: Final = 1024 * 1024
_ARCHIVE_ERRORS: Final = (tarfile.TarError, OSError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class ArchiveKind:
    """A kind of archive and the files that it may contain.

    Attributes:
        title: its name in messages and in the register of exports.
        top: the folder in the archive that contains all files.
        belongs: returns whether a file may be in it, by the parts of its path below ``top``.
    """

    format: str
    version: int
    title: str
    top: str
    suffix: str
    belongs: Callable[[tuple[str, ...]], bool]

    @property
    def compressed(self) -> bool:
        """Whether the archive is gzipped."""
        return self.suffix.endswith(".gz")


def refuse_taken(dest: Path) -> None:
    """Refuse to overwrite; the message suggests removing it only if it is a regular file.

    Raises:
        BackupError: the path exists.
    """
    if os.path.lexists(dest):
        plain = dest.is_file() and not dest.is_symlink()
        raise BackupError(f"{dest} exists; name another file{', or remove it' if plain else ''}")


class _FileRewritten(Exception):
    """A file was rewritten after the snapshot was taken."""


def write_archive(
    kind: ArchiveKind,
    folder: Path,
    dest: Path,
    freeze: Callable[[], Sequence[FrozenFile]],
    describe: Mapping[str, Any],
    now: datetime,
    progress: Progress,
) -> Path:
    """Write a new archive of a project's files, and return its path.

    Parts and archive are registered before they are visible, so that a purge knows them even if
    this process is killed.

    Args:
        folder: the project's.
        freeze: returns the files; called again if one of them was rewritten meanwhile.
        describe: further content of the manifest.
        progress: called with the bytes done and the total.

    Raises:
        BackupError: the file exists or cannot be written; nothing is left behind.
        LedgerError: a ledger cannot be read.
    """
    refuse_taken(dest)
    if folder.resolve() in dest.resolve().parents:
        raise BackupError(f"{dest} is inside the project that is backed up; name another place")
    partial = dest.with_name(f".{dest.name}.{os.getpid()}.part")
    try:
        for path in abandoned_parts(folder, *dest.parent.glob(f".*{kind.suffix}.*.part")):
            path.unlink(missing_ok=True)
        register_export(folder, partial, PART)
        for left in range(_MAX_ATTEMPTS, 0, -1):
            try:
                with new_file(partial) as file:
                    _write_members(file, kind, freeze(), describe, now, progress)
                break
            except _FileRewritten as error:
                if left == 1:
                    raise BackupError(f"{error} was rewritten repeatedly") from None
                partial.unlink()
        register_export(folder, dest, kind.title, content=partial)
        pass_point(f"after register {kind.title}")
        _publish(partial, dest, kind.title)
    except OSError as error:
        raise BackupError(f"cannot write {dest}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return dest


def _publish(partial: Path, dest: Path, title: str) -> None:
    try:
        # Unlike a rename, this never replaces a file created meanwhile.
        run_step(f"link {title}", None, os.link, partial, dest)
    except FileExistsError:
        raise
    except OSError:  # the file system does not support links
        if os.path.lexists(dest):
            raise
        os.rename(partial, dest)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a new file (mode 0600), flushed to disk at the end."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600)
    with os.fdopen(fd, "wb") as file:
        yield file
        file.flush()
        run_step("fsync backup", None, os.fsync, fd)


def _write_members(
    file: IO[bytes],
    kind: ArchiveKind,
    files: Sequence[FrozenFile],
    describe: Mapping[str, Any],
    now: datetime,
    progress: Progress,
) -> None:
    total, done = sum(frozen.size for frozen in files), 0
    listed = []
    stamp = int(now.timestamp())
    with (
        _packing(file, stamp, kind.compressed) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for frozen in files:
            with closing(_open_source(frozen)) as source:
                archive.addfile(_tar_info(f"{kind.top}/{frozen.name}", frozen.size, stamp), source)
                digest = source.digest.hexdigest()
            listed.append({"path": frozen.name, "size": frozen.size, "sha256": digest})
            done += frozen.size
            progress(done, total)
        manifest = {
            "format": kind.format,
            "version": kind.version,
            "memtier": __version__,
            "made": to_iso(now),
            **describe,
            "files": listed,
        }
        data = json.dumps(manifest, indent=1).encode("ascii")
        archive.addfile(_tar_info(_MANIFEST, len(data), stamp), io.BytesIO(data))


@contextmanager
def _packing(file: IO[bytes], stamp: int, compressed: bool) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if not compressed:
        yield file
        return
    with gzip.GzipFile("", "wb", 6, file, mtime=stamp) as packed:
        yield packed


def _tar_info(name: str, size: int, stamp: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, stamp, 0o600
    return info


class _HashingReader(io.RawIOBase):
    """A file's leading bytes, hashed as they are read."""

    def __init__(self, file: IO[bytes], frozen: FrozenFile) -> None:
        self._file, self._part, self._left = file, frozen, frozen.size
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        if self._left and not data:
            raise _FileRewritten(str(self._part.path))  # truncated since
        self._left -= len(data)
        self.digest.update(data)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_source(frozen: FrozenFile) -> _HashingReader:
    if frozen.data is not None:
        return _HashingReader(io.BytesIO(frozen.data), frozen)
    try:
        file = open(os.open(frozen.path, os.O_RDONLY | OPEN_FLAGS), "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise _FileRewritten(str(frozen.path)) from None
    status = os.fstat(file.fileno())
    if status.st_ino != frozen.inode or status.st_size < frozen.size:
        file.close()
        raise _FileRewritten(str(frozen.path))
    return _HashingReader(file, frozen)


# -- Read an archive


def read_archive(
    kind: ArchiveKind, archive: Path, into: Path | None, progress: Progress
) -> Mapping[str, Any]:
    """Verify an archive by its manifest, unpack it into ``into`` if given; return the manifest.

    Raises:
        BackupError: it is of another kind, or part of it is damaged, missing or unsafe.
    """
    unpacked: dict[str, tuple[int, str]] = {}
    manifest = None
    try:
        total = archive.stat().st_size
        with (
            archive.open("rb") as raw,
            _unpacking(raw, kind.compressed) as unzipped,
            tarfile.open(fileobj=unzipped, mode="r|") as packed,
        ):
            for member in packed:
                if manifest is not None:
                    raise BackupError(f"{archive}: {member.name!r} follows the manifest")
                name = _safe_name(kind, archive, member)
                source = packed.extractfile(member)
                if source is None or name in unpacked:
                    raise BackupError(f"{archive}: {member.name!r} occurs twice")
                if name == _MANIFEST:
                    manifest = _parse_manifest(kind, archive, source, member.size)
                else:
                    unpacked[name] = member.size, _unpack(source, into, name, member.size)
                progress(raw.tell(), total)
            while unzipped.read(_CHUNK_BYTES):
                pass  # gzip checks its sum at the end
    except FileNotFoundError as error:
        raise BackupError(f"there is no file {archive}") from error
    except _ARCHIVE_ERRORS as error:
        raise BackupError(f"{archive} is damaged, or not a {kind.title}: {error}") from error
    if manifest is None:
        raise BackupError(f"{archive} is not a {kind.title}, or was truncated: it has no manifest")
    listed = {file["path"]: (file["size"], file["sha256"]) for file in manifest["files"]}
    for name in sorted(unpacked.keys() ^ listed.keys()):
        problem = "is missing" if name in listed else "is not in the manifest"
        raise BackupError(f"{archive}: {name!r} {problem}")
    for name, expected in listed.items():
        if unpacked[name] != expected:
            raise BackupError(f"{archive}: {name!r} differs from what was backed up (SHA-256)")
    return manifest


@contextmanager
def _unpacking(raw: IO[bytes], compressed: bool) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if not compressed:
        yield raw
        return
    with gzip.GzipFile(fileobj=raw) as unzipped:
        yield unzipped


def _safe_name(kind: ArchiveKind, archive: Path, member: tarfile.TarInfo) -> str:
    """Return a member's name below the top; reject anything that its kind cannot contain."""
    if not member.isreg():
        raise BackupError(f"{archive}: {member.name!r} is not a plain file; links are rejected")
    if member.name == _MANIFEST:
        return _MANIFEST
    parts = PurePosixPath(member.name).parts
    plain = "/".join(parts) == member.name and ".." not in parts and "\\" not in member.name
    # The same rules as for writing: no file is unpacked elsewhere.
    if (
        parts[:1] != (kind.top,)
        or not plain
        or "\0" in member.name
        or len(parts) < 2
        or not kind.belongs(parts[1:])
    ):
        raise BackupError(
            f"{archive}: {member.name!r} does not belong to a project; it was rejected"
        )
    return "/".join(parts[1:])


def _unpack(source: IO[bytes], into: Path | None, name: str, size: int) -> str:
    digest = hashlib.sha256()
    with _open_target(into, name, size) as file:
        while data := source.read(_CHUNK_BYTES):
            digest.update(data)
            if file:
                file.write(data)
    return digest.hexdigest()


@contextmanager
def _open_target(into: Path | None, name: str, size: int) -> Iterator[IO[bytes] | None]:
    if into is None:
        yield None
        return
    *folders, last = name.split("/")
    folder = make_private_folder(into, *folders)
    if size > shutil.disk_usage(into).free:
        raise BackupError(f"the disk has no room for {name!r} ({size} bytes)")
    with new_file(folder / last) as file:
        yield file


def _parse_manifest(
    kind: ArchiveKind, archive: Path, source: IO[bytes], size: int
) -> Mapping[str, Any]:
    if size > _MAX_MANIFEST_BYTES:
        raise BackupError(f"{archive}: its manifest has {size} bytes")
    try:
        manifest = json.loads(source.read())
        if manifest["format"] != kind.format:
            raise BackupError(f"{archive}: not a {kind.title} of MemTier's: {manifest['format']!r}")
        if manifest["version"] > kind.version:
            raise BackupError(f"{archive} was made by a newer MemTier: upgrade this one")
        [str(file["path"]) + str(file["size"] + 0) + file["sha256"] for file in manifest["files"]]
        str.encode(manifest["project"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BackupError(f"{archive}: its manifest cannot be read: {error!r}") from error
    return manifest if isinstance(manifest, Mapping) else {}


# -- Back up a project into one verified file while others write, and restore it
#
# The writers' locks determine what is copied: the complete lines of each ledger at that moment.
# Agents' journals are read first, then what they refer to, and the project's journal last, so that
# no reference dangles and no forgetting is missed.  The copying itself holds no lock.  The index,
# which can be rebuilt, and this machine's own state are left out.


def write_backup(folder: Path, project: str, dest: Path, now: datetime, progress: Progress) -> Path:
    """Write a project's backup and return its path; ``dest`` is a new file or a folder.

    Raises:
        BackupError: the file exists or cannot be written; nothing is left behind.
        LedgerError: a ledger cannot be read.
    """
    if dest.is_dir():
        dest = dest / f"memtier-{encode_file_name(project)}-{now:%Y%m%dT%H%M%SZ}{BACKUP.suffix}"
    name = {"project": project}
    return write_archive(BACKUP, folder, dest, lambda: freeze_parts(folder), name, now, progress)


def verify_backup(archive: Path, progress: Progress = lambda *_: None) -> Mapping[str, Any]:
    """Verify an archive against its manifest, and return the manifest.

    Raises:
        BackupError: it is not a backup, or part of it is damaged, missing or unsafe.
    """
    return read_archive(BACKUP, archive, None, progress)


def restore_backup(
    archive: Path, home: Path, project: str | None = None, progress: Progress = lambda *_: None
) -> tuple[str, Path]:
    """Unpack a verified archive as a new project; return its name and folder.

    Args:
        project: its new name; by default its former name.

    Raises:
        BackupError: the project exists, or the archive is damaged; nothing was overwritten.
        LedgerError: the home cannot be written, or is not ours.
    """
    make_private_folder(home, "projects")
    fresh = make_private_folder(home, f"{RESTORING}{os.getpid()}-{new_id()}")
    try:
        manifest = read_archive(BACKUP, archive, fresh, progress)
        name = project or str(manifest["project"])
        folder = home / "projects" / encode_file_name(name)
        if os.path.lexists(folder):
            raise BackupError(
                f"the project {name!r} already exists, and a restore overwrites nothing; "
                "choose another with --project, or another --home"
            )
        register_long_name(folder.parent, folder.name, name)
        run_step("rename restored", None, os.rename, fresh, folder)
    except OSError as error:
        raise BackupError(f"cannot restore {archive}: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return name, folder


def _belongs(inner: tuple[str, ...]) -> bool:
    if len(inner) == 1:
        return belongs_to_backup(inner[0])
    return (
        len(inner) <= 3
        and inner[0] in LEDGERS
        and (inner[-1] == ".names" or (inner[-1].endswith(".jsonl") and inner[-1][0] != "."))
        and not any(name.startswith(".") for name in inner[:-1])
    )


BACKUP: Final = ArchiveKind("memtier-backup", 1, "backup", "project", ".tar.gz", _belongs)
