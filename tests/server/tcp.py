"""A real `memtier serve --tcp` for the tests, its certificate, and a client of bare sockets."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.server.tokens import Tokens
from tests.builders import write_config
from tests.processes import PATIENCE, start_python

CONFIG: Final = {"embedding": {"model": "none"}, "consolidation": {"enabled": False}}


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make the certificate of 127.0.0.1, which is its own root; return it and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, "-nodes", "-days", "30", *names, *files],
        check=True,
        capture_output=True,
    )
    return certificate, key


class Resident:
    """A `memtier serve --tcp` in a process of its own."""

    def __init__(self, home: Path, certificate: tuple[Path, Path] | None, port: int = 0) -> None:
        self.home, self.certificate = home, certificate
        self.root = certificate and certificate[0]
        if not (home / "config.yaml").exists():
            write_config(home, CONFIG)
        tls = ("--certificate", certificate[0], "--key", certificate[1]) if certificate else ()
        self.process = start_python(
            *("-m", "memtier_plugin", "--json", "--home", home),
            *("serve", "--tcp", f"127.0.0.1:{port}", "--no-socket", *tls),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.end()
        self.address = str(json.loads(line)["address"])
        self.port = int(self.address.rpartition(":")[2])

    def token(self, *projects: str, **bound: str) -> str:
        """Make a token."""
        return Tokens(self.home).new(projects, **bound)[0]  # type: ignore[arg-type]

    def kill(self) -> None:
        """Kill it, as the kernel does when memory runs out."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)

    def end(self) -> str:
        """End it, and return what it wrote to stderr."""
        self.process.terminate()
        return str(self.process.communicate(timeout=PATIENCE)[1], "utf-8")


class Client:
    """A connection, with or without TLS, that sends what it is told to."""

    _opened: Final[list[Client]] = []

    def __init__(self, resident: Resident, token: str | None = None, **more: Any) -> None:
        self._opened.append(self)
        self.socket = socket.create_connection(("127.0.0.1", resident.port), timeout=PATIENCE)
        if resident.root:
            context = ssl.create_default_context(cafile=str(resident.root))
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.file = self.socket.makefile("rb")
        self.welcome = self.call("authenticate", token=token, **more) if token else None

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()

    @classmethod
    def close_all(cls) -> None:
        """Hang up all connections."""
        while cls._opened:
            cls._opened.pop().close()

    def send(self, data: bytes) -> None:
        """Send bytes; that the server has closed already is no error here."""
        with suppress(OSError):
            self.socket.sendall(data)

    def answer(self) -> Any:
        """Return the next answer; None if the connection ended instead."""
        with suppress(ConnectionError):
            if line := self.file.readline():
                return json.loads(line)
        return None

    def call(self, method: str, **params: Any) -> Any:
        """Return the answer to a request."""
        self.send(request(method, **params))
        return self.answer()


def request(method: str, **params: Any) -> bytes:
    """Return a request as a line."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(body).encode() + b"\n"
