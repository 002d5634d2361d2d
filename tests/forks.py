"""Children that are forked from a process which has imported what most of them need.

An interpreter that starts and imports MemTier takes ten times as long as what most tests ask of it.
Where the start itself is the rule, or what it imports, a test starts Python by `start_python`.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import types
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any, Final

from tests.faults import injection

_PACKAGES: Final = (
    "core text trust storage.ledger retrieval ingest facts credit operations lifecycle"
)
_MODULES: Final = "cli.main server.rpc server.http daemon.scheduler memory pool"
_MOST: Final = 1_000_000  # bytes of a request


class Forked(subprocess.Popen[Any]):
    """As `subprocess.Popen([sys.executable, *arguments])` but forked, with `-c`, `-m` or a file."""

    _server: socket.socket | None = None
    _owner = 0

    def _execute_child(self, *arguments: Any) -> None:
        given = signature(subprocess.Popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        assert not (given["pass_fds"] or given["preexec_fn"]), "they are a real start's"
        ends = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        reader, writer = os.pipe()
        request = {
            "arguments": [os.fsdecode(word) for word in given["args"][1:]],
            "env": dict(os.environ if given["env"] is None else given["env"]),
            "cwd": str(given["cwd"] or os.getcwd()),
            "session": given["start_new_session"],
        }
        assert "LD_PRELOAD" not in request["env"], "it is read where a program starts"
        fds = [number if fd == -1 else fd for number, fd in enumerate(ends)]
        socket.send_fds(self._connected(), [json.dumps(request).encode()], [*fds, writer])
        os.close(writer)
        for fd, ours in zip(ends, ("p2cwrite", "c2pread", "errread"), strict=True):
            if given[ours] != -1:  # a pipe, whose other end is the child's
                os.close(fd)
        self._status = os.fdopen(reader, "rb", buffering=0)
        self.pid = int(self._status.read(8))
        self._child_created = True

    @classmethod
    def _connected(cls) -> socket.socket:
        if cls._server is None or cls._owner != os.getpid():
            cls._server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            cls._owner = os.getpid()
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
                cwd=Path(__file__).parents[1],  # the test may have changed directory
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            atexit.register(process.wait)
            atexit.register(cls._server.close)
        return cls._server

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = int(self._status.read(8) or 9)
        self._status.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def _import_most() -> None:
    for name in _PACKAGES.split():
        package = importlib.import_module(f"memtier_plugin.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _MODULES.split():
        importlib.import_module(f"memtier_plugin.{name}")
    importlib.import_module("openai")  # beside busy tests a daemon, which is nice, takes minutes
    gc.collect()
    gc.freeze()


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork a child for each request; return in the children only, with what is to be run."""
    children: dict[int, int] = {}
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            with suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    with suppress(BrokenPipeError):
                        os.write(children[ended[0]], b"%8d" % ended[1])
                    os.close(children.pop(ended[0]))
        if control not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(control, _MOST, 4)
        if not message:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            control.close()
            for fd in (woken, waker, fds[3], *children.values()):
                os.close(fd)
            for number, fd in enumerate(fds[:3]):
                os.dup2(fd, number)
                os.close(fd)
            request: dict[str, Any] = json.loads(message)
            return request
        for fd in fds[:3]:
            os.close(fd)
        children[pid] = fds[3]
        os.write(fds[3], b"%8d" % pid)


def _become(request: dict[str, Any]) -> None:
    """Take over environment, folder and streams, as an interpreter that starts does."""
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    injection.arm_from_environment()
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()
    sys.path[:0] = [""] + [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path
    ]
    importlib.invalidate_caches()


if __name__ == "__main__":
    _import_most()
    _request = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(_request)
    _kind, _code, *_rest = _request["arguments"]
    sys.argv = [_kind, *_rest]
    if not _kind.startswith("-"):
        sys.argv[1:] = [_code, *_rest]
        runpy.run_path(_kind, run_name="__main__")
    elif _kind == "-m":
        runpy.run_module(_code, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = _main = types.ModuleType("__main__")
        exec(compile(_code, "<string>", "exec"), vars(_main))
