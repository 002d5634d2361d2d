"""Find the adapter that translates a host's payloads, by the host's name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from memtier_plugin.core.results import HookCall, RunContext
from memtier_plugin.hosts.project import EVENTS

from .resident_connection import Payload

HOSTS: Final = ("openclaw", "hermes", *EVENTS)


class Translator(Protocol):
    """Translates a host's payloads into calls of MemTier's hooks."""

    def translate(
        self,
        name: str,
        event: Payload,
        context: Payload,
        base: RunContext,
        now: datetime | None = None,
    ) -> HookCall | None:
        """Return the hook to call for one of the host's, or None for nothing.

        Args:
            base: home and project from the configuration of the host's plugin.
            now: when it happened [the present].

        Raises:
            MessageError: the payload contains something that is not a message.
        """

    def context(self, context: Payload, base: RunContext) -> RunContext:
        """Return the run context that a host's own context describes."""


def open_translator(host: str, home: Path) -> Translator:
    """Return the adapter of one of `HOSTS`; its state is kept in the home.

    Raises:
        KeyError: there is no such host.
        UnsafePath, LedgerError: the home cannot be used.
    """
    if host == "openclaw":
        from .openclaw_payloads import OpenClawTranslator

        return OpenClawTranslator(home)
    if host == "hermes":
        from .hermes_payloads import HermesTranslator

        return HermesTranslator(home)
    if host in EVENTS:
        from .coding_agent_payloads import CodingAgentTranslator

        return CodingAgentTranslator(host, home)
    raise KeyError(host)
