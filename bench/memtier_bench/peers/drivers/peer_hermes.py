"""The holographic provider of Hermes: each turn a fact, by the tool; recall by its prefetch."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

_HOLOGRAPHIC: Any = import_module("plugins.memory.holographic")


class Store:
    """A provider in a folder; it does not know senders."""

    def __init__(self, folder: str) -> None:
        self._provider = _HOLOGRAPHIC.HolographicMemoryProvider(
            {"db_path": os.path.join(folder, "store.db")}
        )
        self._provider.initialize("bench")

    def add(self, session: dict[str, Any]) -> None:
        for turn in session["turns"]:
            fact = {"action": "add", "content": turn["text"]}
            self._provider.handle_tool_call("fact_store", fact)

    def ask(self, request: dict[str, Any]) -> list[str]:
        if request["k"]:  # prefetch always takes five
            hits = self._provider._retriever.search(request["prompt"], limit=request["k"])
            return [hit["content"] for hit in hits]
        block: str = self._provider.prefetch(request["prompt"])
        return block.splitlines()[1:]

    def close(self) -> None:
        self._provider.shutdown()
