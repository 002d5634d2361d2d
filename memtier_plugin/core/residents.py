"""The resident process of a home: its socket, its port, and the residents of other machines."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from memtier_plugin import __version__
from memtier_plugin.core.errors import MemTierError, SettingsError, Unsupported
from memtier_plugin.core.files import (
    check_ownership,
    is_unlocked,
    open_owned,
    release_lock,
    try_acquire_lock,
)
from memtier_plugin.core.paths import make_socket_folder, socket_path

# -- Residents reachable over TCP: their addresses, and which of them serves a project
#
# Rendezvous hashing (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit
# rates"): each resident has a weight for each project, and the heaviest serves it.  When one
# leaves, only its own projects move, each to the next in its order.  `hooks/openclaw/residents.js`
# computes the same order.

PORT: Final = 7420


@dataclass(frozen=True, slots=True)
class Address:
    """Where a resident listens: over TLS, or unencrypted on this machine."""

    host: str
    port: int
    tls: bool = True

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse an address: `HOST`, `HOST:PORT`, `tls://...` or `tcp://127.0.0.1`.

    Raises:
        SettingsError: it is invalid, or would send a token over a network in plain text.
    """
    try:
        parts = urlsplit(text if "://" in text else f"tls://{text}")
        host, port = parts.hostname, PORT if parts.port is None else parts.port
    except ValueError:
        host, port = None, 0
    is_invalid = (
        not host or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username
    )
    if is_invalid or host is None or parts.scheme not in ("tls", "tcp") or host.isspace():
        raise SettingsError(
            f"{text!r} is not a resident's address; expected one like tls://memory.example.org"
        )
    if parts.scheme == "tcp" and not is_loopback(host):
        raise SettingsError(f"{text!r} would send the token in plain text: use tls://{host}")
    return Address(host, port, parts.scheme == "tls")


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or `localhost`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def in_order(addresses: Iterable[Address], project: str) -> list[Address]:
    """Return the residents in the order in which they serve a project."""

    def weight(address: Address) -> bytes:
        return sha256(f"{address}\n{project}".encode()).digest()

    return sorted({*addresses}, key=weight, reverse=True)


# -- Listen for HTTP on this machine only

LOOPBACK: Final = "127.0.0.1"


def listen_on_loopback(port: int) -> socket.socket:
    """Return a listening socket, so that its address can be announced before serving starts.

    Args:
        port: 0 for any free port.

    Raises:
        Unsupported: the port cannot be opened.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise Unsupported(f"port {port} of {LOOPBACK} cannot be opened: {error}") from error
    return listener


# -- The socket of a home's resident: claimed by a lock, and listening before the resident is loaded
#
# A client that finds no resident claims the socket and hands it to a new process; requests of other
# clients meanwhile wait in the socket's backlog.  A claim ends with the last process that holds it,
# so a dead process blocks nobody.  Standard library only.

START_SECONDS: Final = 30.0  # for a resident to start on a busy machine
_POLL_SECONDS: Final = 0.05
_CLAIM_SECONDS: Final = 5.0  # how long the lock's holder may stay unidentified
_BACKLOG: Final = 512  # connections that may wait while a resident loads
_READY: Final = "ready"
_MAX_NOTES: Final = 4096  # bytes of a lock file that are read


class SocketClaim:
    """The lock on a home's socket, and the listening socket itself."""

    def __init__(self, path: Path, lock: int, listening: socket.socket) -> None:
        self.path = path
        self.lock = lock
        self.listening = listening
        _claims.append(self)

    @classmethod
    def inherit(cls, home: Path, lock: int, listening: int) -> SocketClaim:
        """Take over a claim by its file descriptors, from the process that started this one."""
        for fd in (lock, listening):
            os.set_inheritable(fd, False)
        return cls(make_socket_folder(home), lock, socket.socket(fileno=listening))

    def note(self, *, ready: bool, pid: int | None = None) -> None:
        """Write the socket's owner to the lock file, for clients that must stop or replace it.

        The file is append-only during a claim, so that neither a concurrent reader nor a late note
        of the starting process undoes anything.

        Args:
            pid: the process that the claim is handed to.
        """
        with suppress(OSError):
            line = f"{pid or os.getpid()} {__version__} {_READY if ready else 'starting'}\n"
            os.write(self.lock, line.encode("ascii"))

    def is_current(self) -> bool:
        """Return whether this is still the home's socket, and not one that was replaced."""
        with suppress(OSError):
            current = self.path.with_suffix(".lock").lstat()
            return os.path.samestat(current, os.fstat(self.lock)) and self.path.exists()
        return False

    def hand_over(self) -> None:
        """Release a claim that another process also holds; repeated calls do nothing."""
        if self not in _claims:
            return
        _claims.remove(self)
        self.listening.close()
        os.close(self.lock)

    def end(self) -> None:
        """Remove the socket, and let another process claim it."""
        if self.is_current():
            self.path.unlink(missing_ok=True)
        self.hand_over()


_claims: Final[list[SocketClaim]] = []


def _leave_claims() -> None:
    for claim in [*_claims]:
        claim.hand_over()


os.register_at_fork(after_in_child=_leave_claims)


def claim_socket(home: Path) -> SocketClaim | None:
    """Claim the socket of a home, or return None if a resident has it.

    Raises:
        MemTierError: the folder is not ours, or cannot be written.
        OSError: the socket cannot be made.
    """
    path = make_socket_folder(home)
    lock = try_acquire_lock(path.with_suffix(".lock"))
    if lock is None:
        return None
    try:
        os.ftruncate(lock, 0)  # it still names a dead process
        return SocketClaim(path, lock, _bind(path))
    except BaseException:
        release_lock(lock)
        raise


def wait_for_claim(home: Path) -> tuple[SocketClaim | None, SocketOwner | None]:
    """Claim the socket of a home, or return its owner.

    Retries, as a reader of the owner briefly holds the lock, and a new owner is noted late.

    Raises:
        MemTierError, OSError: as `claim_socket`.
    """
    until = time.monotonic() + _CLAIM_SECONDS
    while True:
        claim = claim_socket(home)
        owner = None if claim else find_owner(home)
        if claim or owner or time.monotonic() > until:
            return claim, owner
        time.sleep(_POLL_SECONDS)


def _bind(path: Path) -> socket.socket:
    with suppress(FileNotFoundError):
        check_ownership(path, path.lstat(), stat.S_IFSOCK)
        path.unlink()  # we hold the lock, so its process is dead
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(0o600)  # until then the folder's mode 0700 protects it
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


@dataclass(frozen=True, slots=True)
class SocketOwner:
    """The process that serves a home, as it noted itself.

    Attributes:
        ready: whether it answers, or is still loading.
        since: the time of the note, in seconds since the epoch.
    """

    pid: int
    version: str
    ready: bool
    since: float

    @property
    def is_outdated(self) -> bool:
        """Return whether it runs an older MemTier than this one."""
        return _numbers(self.version) < _numbers(__version__)

    @property
    def may_hang(self) -> bool:
        """Return whether it is overdue to answer."""
        return self.ready or time.time() - self.since > START_SECONDS

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless its process id was reused."""
        with suppress(OSError):
            if _is_resident(self.pid):
                os.kill(self.pid, number)


def find_owner(home: Path) -> SocketOwner | None:
    """Return the process that holds the socket of a home, if known."""
    with suppress(OSError, ValueError, MemTierError):
        path = socket_path(home).with_suffix(".lock")
        fd = open_owned(path, os.O_RDONLY)
        try:
            notes = os.pread(fd, _MAX_NOTES, 0).decode("ascii").splitlines(keepends=True)
            words = [note.split() for note in notes if note.endswith("\n")]
            if words and not is_unlocked(fd):
                pid, *rest = words[-1]
                version = rest[0] if rest else "0"  # before 0.1.0 only the id was noted
                ready = not rest or any(note[2:] == [_READY] for note in words)
                return SocketOwner(int(pid), version, ready, os.fstat(fd).st_mtime)
        finally:
            os.close(fd)
    return None


def stop_resident(home: Path, seconds: float) -> SocketOwner | None:
    """Stop the resident of a home after its calls in progress; return it, if one ran.

    Raises:
        MemTierError: it does not stop.
    """
    first = owner = find_owner(home)
    until = time.monotonic() + seconds
    if first:
        first.send(signal.SIGTERM)
    while first and owner and owner.pid == first.pid:
        if time.monotonic() > until:
            raise MemTierError(
                f"process {first.pid} is still running after {seconds:g} s; "
                f"`kill -9 {first.pid}` ends it without losing stored data"
            )
        time.sleep(_POLL_SECONDS)
        owner = find_owner(home)
    return first


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _is_resident(pid: int) -> bool:
    """Return whether a process is a `memtier serve`, as its id may have been reused."""
    command = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()  # small images have no `ps`
    except OSError:
        try:
            arguments = subprocess.run(command, capture_output=True, check=True, timeout=2).stdout
        except (OSError, subprocess.SubprocessError):
            return False
    return b"memtier" in arguments and b"serve" in arguments
