"""The memory of a project on other machines, for programs without a disk of their own.

It asks the residents of `memtier serve --tcp` and uses only the standard library.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from copy import copy
from itertools import chain
from typing import Any, Final, Self

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.ingest.message_objects import chat_messages

from .remote import RemoteResidents
from .resident import ResidentClient
from .resident_connection import Payload, ResidentUnreachable

RECALL_SECONDS: Final = 4.0
STORE_SECONDS: Final = 20.0
_TRY_SECONDS: Final = 5.0  # per attempt, after which another resident may be asked
_PAUSE: Final = 0.2  # seconds before a run is sent again, doubled each time


class RemoteMemory:
    """A project's memory for an agent; thread-safe, with one connection to each resident.

    All memories of a process can share its connections: ``memory.of("another-project")``.

    Args:
        residents, token, token_file, ca_file: the connection [the variables `MEMTIER_RESIDENTS`,
            `MEMTIER_TOKEN`, `MEMTIER_TOKEN_FILE` and `MEMTIER_CA_FILE`].

    Raises:
        SettingsError: no resident is named.
    """

    def __init__(
        self,
        project: str,
        agent: str = "main",
        *,
        residents: Sequence[str] = (),
        token: str = "",
        token_file: str = "",
        ca_file: str = "",
    ) -> None:
        self.project, self.agent = project, agent
        config = {"residents": [*residents], "token_file": token_file, "ca_file": ca_file}
        remote = RemoteResidents.of(config, token)
        if remote is None:
            raise SettingsError("no resident: give `residents`, or set MEMTIER_RESIDENTS")
        self._client = ResidentClient((), os.devnull, remote=remote)  # nothing is stored on disk

    def of(self, project: str, agent: str | None = None) -> Self:
        """Return the memory of another project, or of another agent, over the same connections."""
        memory = copy(self)
        memory.project, memory.agent = project, agent or self.agent
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, including those of memories made by `of`."""
        self._client.close()

    def recall(
        self, query: str, *, seconds: float = RECALL_SECONDS, **options: Any
    ) -> dict[str, Any]:
        """Return what matters for a query: `hits`, and the block to inject as `text`.

        With ``purpose="inject"`` an answer in time is acknowledged; a late one is not.

        Raises:
            ResidentUnreachable: no answer in time; continue without memory.
            ResidentRefused: an option is wrong.
        """
        injects = options.get("purpose") == "inject"
        if injects:
            options["purpose"] = "offer"
        answer = dict(self.call("recall", {"query": query, **options}, seconds))
        if injects and answer["injected"]:
            scope = {"project": self.project, "agent": self.agent, "context": {}}
            self._client.tell("acknowledge", {**scope, "recall_id": answer["id"]})
        return answer

    def end_run(
        self,
        messages: Sequence[object],
        *,
        session_id: str,
        run_id: str | None = None,
        seconds: float = STORE_SECONDS,
        **options: Any,
    ) -> dict[str, Any]:
        """Record a finished run and credit what was injected into it; repeated calls store it once.

        Messages are as for `MemTier.end_run`, except its own records.

        It is sent again until an answer comes. After an error it may be stored or not: repeat it
        with the same ``run_id``.

        Raises:
            ResidentUnreachable: no answer in time; the message says why.
            ResidentRefused: a message is invalid.
        """
        run = _run(messages, session_id, run_id)
        return dict(self._store("end_run", {**run, **options}, seconds))

    def record(
        self,
        messages: Sequence[object],
        *,
        session_id: str,
        run_id: str | None = None,
        seconds: float = STORE_SECONDS,
        **options: Any,
    ) -> dict[str, Any]:
        """Record messages; as `end_run`, without credit."""
        run = _run(messages, session_id, run_id)
        return dict(self._store("record", {**run, **options}, seconds))

    def call(self, method: str, params: Payload, seconds: float) -> Any:
        """Call a method of the server for this project and agent; retry once if it went away.

        Raises:
            ResidentUnreachable: no answer in time, or no resident; the message says why.
            ResidentRefused: it will never accept this.
        """
        scope = {"project": self.project, "agent": self.agent}
        return self._client.call(method, {**params, **scope}, seconds)

    def _store(self, method: str, params: Payload, seconds: float) -> Any:
        until, pause = time.monotonic() + seconds, _PAUSE
        while True:
            left = until - time.monotonic()
            try:
                return self.call(method, params, min(left, _TRY_SECONDS))
            except ResidentUnreachable:
                if time.monotonic() + pause >= until:
                    raise
                time.sleep(pause)
                pause *= 2


def _run(messages: Sequence[object], session_id: str, run_id: str | None) -> Payload:
    chats = [*chain.from_iterable(map(chat_messages, messages))]
    return {
        "messages": json.loads(json.dumps(chats, default=str)),  # times as text
        "session_id": session_id,
        "run_id": run_id or uuid.uuid4().hex,
    }
