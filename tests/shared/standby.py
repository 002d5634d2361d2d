"""What stands beside a server: a standby that follows it, and a pooler in front of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import wait_until
from tests.shared.server import NOBODY, PostgresServer, as_nobody


class Standby(PostgresServer):
    """A copy that follows a server by one of its ports, asynchronously, until it is promoted."""

    def __init__(self, primary: PostgresServer, port: int) -> None:
        self._prepare(primary.programs)
        self.tls = False
        copy = ("-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-R", "-X", "stream")
        self._run("pg_basebackup", *copy, "-c", "fast")

    def promote(self) -> None:
        """Let it take the primary's place."""
        self._run("pg_ctl", "-w", "promote")


@contextmanager
def pooler(server: PostgresServer, *users: str) -> Iterator[int]:
    """Yield the port of a PgBouncer in its transaction mode; users have the password "owner"."""
    folder = Path(tempfile.mkdtemp(prefix="memtier-bouncer-"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    (folder / "users").write_text("".join(f'"{user}" "owner"\n' for user in users))
    (folder / "ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n"
        f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\n"
        f"auth_type=scram-sha-256\nauth_file={folder}/users\n"
        "pool_mode=transaction\ndefault_pool_size=3\nserver_login_retry=1\n"
    )
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program is not None
    with (folder / "log").open("ab") as log:
        command = as_nobody([program, str(folder / "ini")])
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(port))
        yield port
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path | None]:
    """Yield a folder on a file system of its own, for the server; None where none can be had."""
    folder = Path(tempfile.mkdtemp(prefix="memtier-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        yield None
        return
    try:
        (folder / "data").mkdir()
        os.chown(folder / "data", NOBODY, NOBODY)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Take all the room that is left on a disk; return the file that has it."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as out, suppress(OSError):
        while True:
            out.write(b"\0" * 4096)
    return filler
