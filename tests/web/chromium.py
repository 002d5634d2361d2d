"""A real Chromium, and a real server for it to open."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from memtier_plugin.core.residents import LOOPBACK, listen_on_loopback
from memtier_plugin.memory import MemTier
from memtier_plugin.web.app import build_server

TOKEN = "a-token-of-this-start-and-of-no-other"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
SWITCHES = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)


@contextmanager
def served(memory: MemTier) -> Iterator[str]:
    """Serve a memory's view on a free port; yield its address."""
    with listen_on_loopback(0) as listener:
        port = listener.getsockname()[1]
        server = build_server(memory, TOKEN, port)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{port}"
        finally:
            server.should_exit = True
            thread.join()
