"""A real `memtier serve --tcp` for the tests, its certificate, and a client of plain HTTP."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import pytest

from memtier_plugin.server.access import Tokens
from tests.builders import write_config
from tests.processes import PATIENCE, fork_python

LIMITED: Final = """
from memtier_plugin.cli.main import main
if limits := {}:
    from memtier_plugin.server import http
    vars(http).update(limits)
main()
"""
CONFIG: Final = {
    "embedding": {"model": "none"},
    "consolidation": {"enabled": False},
    "hooks": {"prompt_deadline_ms": 60_000, "end_deadline_ms": 60_000},  # on a busy machine
}


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

    def __init__(
        self,
        home: Path,
        certificate: tuple[Path, Path] | None,
        port: int = 0,
        limits: dict[str, float] | None = None,
    ) -> None:
        self.home, self.certificate = home, certificate
        self.root = certificate and certificate[0]
        if not (home / "config.yaml").exists():
            write_config(home, CONFIG)
        tls = ("--certificate", certificate[0], "--key", certificate[1]) if certificate else ()
        run = LIMITED.format(limits or {})
        self.process = fork_python(
            *("-c", run, "--json", "--home", home),
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
    """A connection that sends the requests it is given, with a token or without."""

    _opened: Final[list[Client]] = []

    def __init__(self, resident: Resident, token: str | None = None, path: str = "/") -> None:
        self._opened.append(self)
        self.path = path
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        if resident.root:
            context = ssl.create_default_context(cafile=str(resident.root))
            self.http: HTTPConnection = HTTPSConnection(
                "127.0.0.1", resident.port, timeout=PATIENCE, context=context
            )
        else:
            self.http = HTTPConnection("127.0.0.1", resident.port, timeout=PATIENCE)
        self.http.connect()
        self.status = 0

    def close(self) -> None:
        """Hang up."""
        self.http.close()

    @classmethod
    def close_all(cls) -> None:
        """Hang up all connections."""
        while cls._opened:
            cls._opened.pop().close()

    def send(self, body: bytes) -> None:
        """Send a request; that the server has closed already is no error here."""
        with suppress(OSError):
            self.http.request("POST", self.path, body, self.headers)

    def send_raw(self, data: bytes) -> bytes:
        """Send bytes, and return what comes until the connection ends."""
        answer = b""
        with suppress(OSError):
            self.http.sock.sendall(data)
            while more := self.http.sock.recv(65_536):
                answer += more
        return answer

    def answer(self) -> Any:
        """Return the answer to what was sent; None if there is none."""
        try:
            response = self.http.getresponse()
            self.status = response.status
            text = response.read()
        except (OSError, HTTPException):
            self.http.close()  # the next request connects again
            return None
        return json.loads(text) if text else None

    def call(self, method: str, **params: Any) -> Any:
        """Return the answer to a request."""
        self.send(request(method, **params))
        return self.answer()


def request(method: str, **params: Any) -> bytes:
    """Return a request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
