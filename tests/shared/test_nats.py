"""The engine of NATS JetStream: what holds of it beside the contract of a shared ledger."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memtier_plugin.storage.shared.nats import log as log_module
from memtier_plugin.storage.shared.nats.ledger import NatsLedger
from memtier_plugin.storage.shared.protocol import (
    AppendResult,
    Head,
    Moved,
    NewLine,
    Refused,
    SharedLine,
    Stream,
    Unreachable,
    answer_within,
)
from tests.shared.engines import PROJECT, OnNats
from tests.shared.nats import NatsServer
from tests.shared.test_ledger import STREAM, lines

pytestmark = pytest.mark.shared


@pytest.fixture
def project(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> OnNats:
    """Return a new `harbor` on the server."""
    monkeypatch.setenv("NATS_PASSWORD", "owner")
    return OnNats(nats)


def opened(project: OnNats, machine: str, **more: bool) -> NatsLedger:
    """Return a machine's ledger, as a process has it that has just begun."""
    return NatsLedger(project.url(machine), PROJECT, **{"durable": False, **more})


@pytest.fixture
def anna(project: OnNats) -> Iterator[NatsLedger]:
    """Return the ledger of one machine."""
    ledger = opened(project, "anna")
    yield ledger
    ledger.close()


def stored(server: NatsServer, secret: bytes) -> int:
    """Count the files of the server that have some bytes."""
    files = (path for path in (server.folder / "store").rglob("*") if path.is_file())
    return sum(secret in path.read_bytes() for path in files)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_was_written(
    project: OnNats, anna: NatsLedger, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever was appended, replaced and replaced again, all read the same, from any line on."""
    monkeypatch.setattr(log_module, "_BLOCK", 20)
    monkeypatch.setattr(log_module, "_NEAR", 10)
    draw, model = random.Random(seed), list[tuple[NewLine, bytes]]()
    for step in range(40):
        if step % 4 < 3:
            days = [f"2026-01-{draw.randint(step // 8 + 1, step // 8 + 2):02}"]
            new = [
                line
                for n in range(draw.randint(1, 9))
                for line in lines(f"{step} {n}", day=days[0])
            ]
            assert anna.append(STREAM, len(model), new).now
            model += [(line, line.data) for line in new]
        else:
            offsets = draw.sample(range(len(model)), draw.randint(1, 4))
            fresh = [(n + 1, b"%d gone %d\n" % (step, n)) for n in offsets]
            anna.purge(STREAM, fresh, "purge")
            for offset, data in fresh:
                model[offset - 1] = (model[offset - 1][0], data)
    other = opened(project, "bert")
    wanted = [SharedLine(n, line.day, data) for n, (line, data) in enumerate(model, 1)]
    for ledger in (anna, other):
        assert ledger.read(STREAM, 0) == wanted
        assert ledger.heads() == {STREAM: Head(len(model), 10)}
        for _ in range(10):
            after, limit = draw.randrange(len(model)), draw.randint(1, 30)
            assert ledger.read(STREAM, after, limit) == wanted[after : after + limit]
        day = draw.choice(wanted).day
        assert [*ledger.day_lines(STREAM, day)] == [line for line in wanted if line.day == day]
        assert ledger.days_of(STREAM, [5, 9]) == {wanted[4].day, wanted[8].day}
        keys = [line.key for line, _ in model]
        assert ledger.delivered(STREAM, keys) == {*keys}
    assert not other.append(STREAM, 0, [line for line, _ in model[3:7]]).now
    assert other.append(STREAM, len(model), lines("last")).head == len(model) + 1
    other.close()


def test_purged_bytes_are_gone_from_the_server(
    project: OnNats, anna: NatsLedger, nats: NatsServer
) -> None:
    """The server overwrites what was purged; a machine that may not erase is helped by the next."""
    project.grant("carl", "x")
    theirs = Stream("episodic", "x")
    carl = opened(project, "carl")
    for ledger, stream in ((anna, STREAM), (carl, theirs)):
        ledger.append(stream, 0, lines("before", "the word is swordfish", "after"))
        assert stored(nats, b"swordfish")
        ledger.purge(stream, [(2, b"gone\n")], "purge")
        if ledger is carl:
            assert [line.data for line in carl.read(theirs, 0)][1] == b"gone\n"
            assert stored(nats, b"swordfish")
            assert anna.purged(theirs, 0)[0].offsets == (2,)
        assert not stored(nats, b"swordfish")
        assert [line.data for line in ledger.read(stream, 0)][1] == b"gone\n"
    carl.close()


def test_a_server_from_a_backup(project: OnNats, anna: NatsLedger, nats: NatsServer) -> None:
    """A process that knows what the server has lost notices, and writes where it ends now."""
    anna.append(STREAM, 0, lines("a"))
    nats.kill()
    backup, store = nats.folder / "backup", nats.folder / "store"
    shutil.copytree(store, backup)
    nats.start()
    with suppress(Unreachable):  # the connection broke; whether that is known yet is chance
        anna.heads()
    anna.append(STREAM, 1, lines("b"))
    anna.append(STREAM, 2, lines("c"))
    nats.kill()
    shutil.rmtree(store)
    backup.rename(store)
    nats.start()
    bert = opened(project, "bert")
    assert bert.heads() == {STREAM: Head(1, 0)}
    bert.append(STREAM, 1, lines("d", "e"))
    bert.append(STREAM, 3, lines("f"))
    with suppress(Unreachable):
        anna.heads()
    with pytest.raises(Moved):
        anna.append(STREAM, 3, lines("g"))
    assert anna.delivered(STREAM, [line.key for line in lines("b", "d")]) == {lines("d")[0].key}
    assert anna.append(STREAM, 4, lines("b")) == AppendResult(5, True)
    assert [line.data for line in anna.read(STREAM, 0)] == [b"a\n", b"d\n", b"e\n", b"f\n", b"b\n"]
    bert.close()


def test_threads_share_a_connection_that_breaks(
    project: OnNats, nats: NatsServer, anna: NatsLedger
) -> None:
    """Whoever waits is told that the server is away, when another thread has given it up."""
    ends: list[type[BaseException]] = []
    done = threading.Event()

    def wait() -> None:
        while not done.is_set():
            try:
                anna.wait(0.2)
            except BaseException as error:
                ends.append(type(error))
                time.sleep(0.02)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    anna.append(STREAM, 0, lines("a"))
    with nats.frozen(), answer_within(0.3), pytest.raises(Unreachable):
        anna.append(STREAM, 1, lines("b"))
    nats.kill()
    nats.start()
    with suppress(Unreachable):
        anna.heads()
    time.sleep(0.3)
    done.set()
    for thread in threads:
        thread.join()
    assert {*ends} == {Unreachable}


def test_a_forked_child_has_a_connection_of_its_own(anna: NatsLedger) -> None:
    """A child asks through a connection of its own, and its end does not end its parent's."""
    anna.append(STREAM, 0, lines("a"))
    heard, spoken = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(spoken, b"y" if anna.heads() == {STREAM: Head(1, 0)} else b"n")
        finally:  # not through the fixtures of the parent
            os._exit(0)
    assert os.read(heard, 1) == b"y"
    os.waitpid(child, 0)
    assert anna.append(STREAM, 1, lines("b")).head == 2
    os.close(heard)
    os.close(spoken)


ATTEMPTS = (
    ("$JS.API.STREAM.MSG.GET.memtier_harbor", b'{"seq": 1}'),
    ("$JS.API.DIRECT.GET.memtier_harbor", b'{"seq": 1}'),
    ("$JS.API.STREAM.MSG.DELETE.memtier_harbor", b'{"seq": 1}'),
    ("$JS.API.STREAM.PURGE.memtier_harbor", b"{}"),
    ("$JS.API.STREAM.DELETE.memtier_harbor", b""),
    ("$JS.API.STREAM.SNAPSHOT.memtier_harbor", b'{"deliver_subject": "_INBOX_carl.x"}'),
    ("$JS.API.STREAM.CREATE.copy", b'{"name": "copy", "sources": [{"name": "memtier_harbor"}]}'),
    ("$JS.API.STREAM.UPDATE.memtier_harbor", b'{"name": "memtier_harbor", "max_msgs": 1}'),
    ("$JS.API.STREAM.NAMES", b""),
    ("$JS.API.CONSUMER.CREATE.memtier_harbor", b'{"stream_name": "memtier_harbor", "config": {}}'),
    (
        "$JS.API.CONSUMER.CREATE.memtier_harbor.n.memtier.harbor.line.episodic.x",
        b'{"stream_name": "memtier_harbor", "config": {"name": "n", "ack_policy": "none", '
        b'"filter_subject": "memtier.harbor.line.>"}}',
    ),
    (
        "$JS.API.CONSUMER.CREATE.memtier_harbor.n.memtier.harbor.line.*.*",
        b'{"stream_name": "memtier_harbor", "config": {"name": "n", "ack_policy": "none", '
        b'"filter_subject": "memtier.harbor.line.*.*"}}',
    ),
    ("$JS.API.CONSUMER.DURABLE.CREATE.memtier_harbor.n", b'{"stream_name": "memtier_harbor"}'),
    ("$JS.API.CONSUMER.NAMES.memtier_harbor", b""),
    ("memtier.harbor.line.episodic.openclaw%2Emain", b"forged"),
    ("memtier.harbor.again.episodic.openclaw%2Emain", b"forged"),
    ("memtier.harbor.at.anna.episodic.x", b"[9, 9]"),
)


def test_nothing_gets_past_the_permissions(
    project: OnNats, nats: NatsServer, anna: NatsLedger
) -> None:
    """A machine's own requests neither read nor change what its user was not granted."""
    from nats.aio.client import Client

    anna.append(STREAM, 0, lines("secret"))
    project.grant("carl", "x")

    async def attempt() -> list[bytes]:
        heard: list[bytes] = []
        client = Client()
        await client.connect(
            f"nats://127.0.0.1:{nats.port}",
            user="carl",
            password="owner",
            allow_reconnect=False,
            inbox_prefix="_INBOX_carl",
            error_cb=_ignore,
        )
        for subject in ("memtier.>", "_INBOX_anna.>", "$JS.>", ">"):
            await client.subscribe(subject, cb=_keep(heard))
        for subject, body in ATTEMPTS:
            try:
                answer = await client.request(subject, body, timeout=0.1)
            except Exception:  # refused: nobody answers
                continue
            assert b'"error"' in answer.data, subject
        await asyncio.to_thread(anna.append, STREAM, 1, lines("more"))
        await asyncio.sleep(0.1)
        await client.close()
        return heard

    assert asyncio.run(attempt()) == []
    assert [line.data for line in anna.read(STREAM, 0)] == [b"secret\n", b"more\n"]


async def _ignore(error: Exception) -> None:
    """Be told of a refusal."""


def _keep(heard: list[bytes]):  # type: ignore[no-untyped-def]
    async def keep(message: object) -> None:
        heard.append(getattr(message, "data", b""))

    return keep


def test_what_cannot_be_used_says_why(
    project: OnNats, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is away, what it does not promise, and what is missing are told apart."""
    url = project.url("anna")
    for bad, kind, text in (
        (url.replace(str(nats.port), "1"), Unreachable, "cannot be used"),
        ("nats://anna@db.example.org", Refused, "tls://"),
    ):
        with pytest.raises(kind, match=text):
            NatsLedger(bad, PROJECT).heads()
    with pytest.raises(Refused, match="durability: os"):
        opened(project, "anna", durable=True).append(STREAM, 0, lines("a"))
    with pytest.raises(Refused, match="may not publish"):
        NatsLedger(url, "another", durable=False).heads()
    nats.forget(PROJECT)
    with pytest.raises(Refused, match="memtier shared init"):
        opened(project, "anna").heads()
    monkeypatch.setenv("NATS_PASSWORD", "wrong")
    with pytest.raises(Refused, match="Authorization"):
        opened(project, "anna").heads()


def test_tls_checks_the_server(
    project: OnNats, nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server must prove its name by a certificate that is known."""
    cert, key = tmp_path / "server.crt", tmp_path / "server.key"
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout {key} -out {cert}"
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    subprocess.run([*made.split(), *name], check=True, capture_output=True)
    nats.kill()
    nats.use_tls(f'tls {{ cert_file: "{cert}", key_file: "{key}" }}')
    nats.start()
    try:
        url = project.url("anna").replace("nats:", "tls:")
        good = NatsLedger(f"{url}?ca={cert}", PROJECT, durable=False)
        assert good.append(STREAM, 0, lines("a")).now
        good.close()
        for bad in (url, f"{url}?ca={cert}".replace("127.0.0.1", "localhost")):
            with pytest.raises((Refused, Unreachable), match=r"(?i)certificate"):
                NatsLedger(bad, PROJECT, durable=False).heads()
    finally:
        nats.kill()
        nats.use_tls("")
        nats.start()
