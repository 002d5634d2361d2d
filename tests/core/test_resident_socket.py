"""Whose a home's socket is, as its owner says in the lock's file and others read there."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtier_plugin import __version__
from memtier_plugin.core.residents import SocketOwner, claim_socket, find_owner, wait_for_claim
from memtier_plugin.server.rpc import SocketListener
from tests.processes import wait_until


@contextmanager
def between_calls(look: Callable[[], object]) -> Iterator[None]:
    """Do something before and after each system call of this thread, as another process may."""
    sys.setprofile(lambda frame, event, argument: look() and None)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_an_owner_is_known_at_every_moment(home: Path) -> None:
    """Whenever a client looks, a resident that says how it is has this version: none ends it."""
    claim = claim_socket(home)
    assert claim is not None
    claim.note(ready=False)
    seen: list[SocketOwner | None] = []
    with between_calls(lambda: seen.append(find_owner(home))):
        claim.note(ready=True)
    versions = {(owner.version, owner.is_outdated) for owner in seen if owner}
    assert None not in seen and versions == {(__version__, False)}
    claim.end()


@pytest.mark.parametrize("moment", range(20))
def test_who_started_a_resident_says_so_too_late(home: Path, moment: int) -> None:
    """A resident that is ready stays so, whatever the process that started it says then."""
    claim = claim_socket(home)
    assert claim is not None
    moments = iter(range(1000))
    with between_calls(lambda: next(moments) == moment and claim.note(ready=True)):
        claim.note(ready=False, pid=os.getpid())
    if next(moments) <= moment:
        claim.note(ready=True)
    assert (owner := find_owner(home)) and owner.ready
    claim.end()


def test_who_has_an_answer_has_it_of_one_that_is_ready(home: Path) -> None:
    """A resident says that it is ready before it answers: one that hangs from then on is ended."""
    claim = claim_socket(home)
    assert claim is not None
    seen: list[SocketOwner | None] = []
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(claim.path))
        client.sendall(b"waits already\n")
        with between_calls(lambda: time.sleep(0.005)):
            listener = SocketListener(claim, lambda *_: seen.append(find_owner(home)))
        wait_until(lambda: seen)
        listener.close()
    assert seen[0] and seen[0].ready


def test_who_only_looks_is_no_owner(home: Path) -> None:
    """A reader that holds the lock for its look keeps nobody from the socket; an owner does."""
    first = claim_socket(home)
    assert first is not None
    lock = first.path.with_suffix(".lock")
    first.note(ready=True)
    first.end()
    with lock.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        threading.Timer(0.3, fcntl.flock, (reader, fcntl.LOCK_UN)).start()
        claim, owner = wait_for_claim(home)
    assert claim is not None and owner is None
    claim.note(ready=False)
    assert wait_for_claim(home) == (None, find_owner(home))
    claim.end()
