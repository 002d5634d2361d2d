"""basic-memory: each session a Markdown note; what its `search_notes` returns, words and MiniLM."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

_HOME = os.environ["HOME"]
_CONFIG = Path(_HOME) / "config"
os.environ |= {
    "BASIC_MEMORY_HOME": os.path.join(_HOME, "notes"),
    "BASIC_MEMORY_CONFIG_DIR": str(_CONFIG),
    "BASIC_MEMORY_SEMANTIC_EMBEDDING_PROVIDER": "openai",
    "BASIC_MEMORY_SEMANTIC_EMBEDDING_MODEL": "minilm",
    "BASIC_MEMORY_SEMANTIC_EMBEDDING_API_BASE": os.environ["EMBEDDINGS_URL"],
    "BASIC_MEMORY_SEMANTIC_EMBEDDING_API_KEY": "none",
    "BASIC_MEMORY_SEMANTIC_EMBEDDING_DIMENSIONS": "384",
}

if not hasattr(sqlite3.Connection, "enable_load_extension"):  # vectors need it
    sys.modules["sqlite3"] = import_module("pysqlite3")
import_module("loguru").logger.remove()  # as its own commands do
_TOOLS: Any = import_module("basic_memory.mcp.tools")

_PATIENCE = 10  # seconds
_LOOP = asyncio.new_event_loop()
_STORES = count()


class Store:
    """A project in a folder; it does not know senders."""

    def __init__(self, folder: str) -> None:
        self._project, self._folder = f"store-{next(_STORES)}", folder
        _call(_TOOLS.create_memory_project, project_name=self._project, project_path=folder)
        self._before = _size(_CONFIG)  # the index of all projects

    def add(self, session: dict[str, Any]) -> None:
        others = asyncio.all_tasks(_LOOP)
        _call(
            _TOOLS.write_note,
            title=f"{(session['at'] or '')[:10]} {session['id']}".strip(),
            content="\n".join(f"- {turn['text']}" for turn in session["turns"]),
            directory="sessions",
            project=self._project,
        )
        if work := asyncio.all_tasks(_LOOP) - others:  # vectors are made in the background
            _LOOP.run_until_complete(asyncio.wait(work, timeout=_PATIENCE))

    def size(self) -> int:
        return _size(Path(self._folder)) + _size(_CONFIG) - self._before

    def ask(self, request: dict[str, Any]) -> list[str]:
        most = {"page_size": request["k"]} if request["k"] else {}
        result = _call(
            _TOOLS.search_notes,
            query=request["prompt"],
            project=self._project,
            output_format="json",
            **most,
        )
        return [hit.get("matched_chunk") or hit["content"] for hit in result["results"]]

    def close(self) -> None:
        """Leave the process to the next store."""


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _call(tool: Any, **arguments: Any) -> Any:
    return _LOOP.run_until_complete(getattr(tool, "fn", tool)(**arguments))
