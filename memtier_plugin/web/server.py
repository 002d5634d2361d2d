"""Serve the web view on a loopback port until a signal."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from memtier_plugin.core.loopback import LOOPBACK, listen_on_loopback
from memtier_plugin.memory import MemTier
from memtier_plugin.web.app import build_app
from memtier_plugin.web.guard import TOKEN_PARAMETER
from memtier_plugin.web.live import Watch


def serve(memory: MemTier, port: int, announce: Callable[[str], None]) -> None:
    """Serve a project's view.

    Args:
        port: 0 for any that is free.
        announce: called with the address, this start's token included, once the port is open.

    Raises:
        Unsupported: the port cannot be opened.
    """
    listener = listen_on_loopback(port)
    port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
    with listener:
        server = build_server(memory, token, port)
        announce(f"http://{LOOPBACK}:{port}/?{TOKEN_PARAMETER}={token}")
        with suppress(KeyboardInterrupt):  # the way to end it, which uvicorn passes on
            server.run(sockets=[listener])


def build_server(memory: MemTier, token: str, port: int) -> uvicorn.Server:
    """Return the server of a project's view, which ends the live pages when it is to end."""
    watch = Watch(memory, lambda: server.should_exit)
    app = build_app(memory, watch, token=token, port=port)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=3)
    server = uvicorn.Server(config)
    return server
