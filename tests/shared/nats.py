"""A real nats-server for the tests, Debian's, with a user and permissions for each machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from memtier_plugin.core.errors import LedgerError
from memtier_plugin.storage.shared.nats.ledger import snippet
from memtier_plugin.storage.shared.nats.link import Link, ServerAddress
from memtier_plugin.storage.shared.nats.messages import Names

OWNER: Final = '{ user: "owner", password: "..." }'


def program() -> str | None:
    """Return the server's program; None where it is not installed."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


class NatsServer:
    """A server of its own in a temporary folder; whose users have the password ``owner``."""

    def __init__(self, executable: str) -> None:
        self._program = executable
        self.folder = Path(tempfile.mkdtemp(prefix="memtier-nats-"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._users: dict[tuple[str, str], str] = {}
        self._tls = ""

    def use_tls(self, block: str) -> None:
        """Take only connections with TLS from the next start on, or none with an empty text."""
        self._tls = block

    def add_user(
        self, project: str, machine: str, agent: str | None = None, *, read_only: bool = False
    ) -> None:
        """Let a machine take part in a project; it is told to the server if that runs."""
        self._users[project, machine] = snippet(project, machine, agent, read_only=read_only)
        self._configure()

    def has_user(self, project: str, machine: str) -> bool:
        """Tell whether a machine may take part in a project."""
        return (project, machine) in self._users

    def remove_user(self, project: str, machine: str) -> None:
        """Take a machine's user away."""
        del self._users[project, machine]
        self._configure()

    def _configure(self) -> None:
        snippets = [OWNER, *self._users.values()]
        users = "\n".join(snippets).replace('"..."', '"owner"')
        (self.folder / "server.conf").write_text(
            f"""listen: "127.0.0.1:{self.port}"
max_payload: 8MB
{self._tls}
jetstream {{ store_dir: "{self.folder}/store", max_mem: 256MB, max_file: 4GB }}
authorization {{ users: [
{users}
] }}
"""
        )
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)
            self._wait()

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self._configure()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(self.folder / "server.conf")], stdout=log, stderr=log
            )
        self._wait()
        return self

    def _wait(self) -> None:
        """Wait until the server has done what was asked last."""
        for _ in range(200):
            time.sleep(0.05)
            log = (self.folder / "log").read_bytes()
            seen = log.count(b"Server is ready") + log.count(b"Reloaded server configuration")
            if seen > getattr(self, "_seen", 0):
                self._seen = seen
                return
        raise TimeoutError((self.folder / "log").read_text()[-2000:])

    def forget(self, project: str) -> None:
        """Remove a project's stream, if there is one."""
        link = Link(ServerAddress.of(self.url()), Names(project).stream)
        with suppress(LedgerError):
            link.ask("STREAM.DELETE")
        link.close()

    def kill(self) -> None:
        """Kill it, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it stand still for as long as this lasts: it takes connections, and answers none."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        state = Path(f"/proc/{self._process.pid}/stat")
        while state.read_text().rpartition(") ")[2][0] != "T":
            time.sleep(0.01)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Stop it and remove its folder."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, user: str = "owner", options: str = "") -> str:
        """Return its address, for a user."""
        return f"nats://{user}@127.0.0.1:{self.port}" + (f"?{options}" if options else "")
