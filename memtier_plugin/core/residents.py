"""The residents that a client may ask over TCP: their addresses, and which one serves a project.

Rendezvous hashing (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates"):
each resident has a weight for each project, and the heaviest serves it.  When one leaves, only its
own projects move, to the next in their order.  `hooks/openclaw/residents.js` has the same order.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from memtier_plugin.core.errors import SettingsError

PORT: Final = 7420


@dataclass(frozen=True, slots=True)
class Address:
    """Where a resident listens: by TLS, or on this machine without."""

    host: str
    port: int
    tls: bool = True

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.tls else 'tcp'}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that a text means: `HOST`, `HOST:PORT`, `tls://...` or `tcp://127.0.0.1`.

    Raises:
        SettingsError: it means none, or would send a token over a network in plain text.
    """
    try:
        parts = urlsplit(text if "://" in text else f"tls://{text}")
        host, port = parts.hostname, PORT if parts.port is None else parts.port
    except ValueError:
        host, port = None, 0
    rest = (
        not host or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username
    )
    if rest or host is None or parts.scheme not in ("tls", "tcp") or host.isspace():
        raise SettingsError(
            f"{text!r} is no address of a resident; one is tls://memory.example.org"
        )
    if parts.scheme == "tcp" and not is_loopback(host):
        raise SettingsError(f"{text!r} would send the token in plain text: say tls://{host}")
    return Address(host, port, parts.scheme == "tls")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine by its address (or as `localhost`)."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def in_order(addresses: Iterable[Address], project: str) -> list[Address]:
    """Return the residents in the order in which they serve a project."""

    def weight(address: Address) -> bytes:
        return sha256(f"{address}\n{project}".encode()).digest()

    return sorted({*addresses}, key=weight, reverse=True)
