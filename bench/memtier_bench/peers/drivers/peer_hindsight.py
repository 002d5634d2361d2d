"""Hindsight without a language model: each exchange a chunk, in its embedded PostgreSQL."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import socket
import subprocess
from datetime import datetime
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

os.environ |= {
    "HINDSIGHT_API_LLM_PROVIDER": "none",
    "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai",
    "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": os.environ["EMBEDDINGS_URL"],
    "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": "none",
    "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": "minilm",
    "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",  # its cross-encoder is in no package registry
}

_HINDSIGHT: Any = import_module("hindsight_api")

_NOBODY = 65534
_SIZE = "SELECT pg_database_size(current_database())"
_LOOP = asyncio.new_event_loop()
_STORES = count()


class _Server:
    """PostgreSQL, which refuses to run as root, and the engine on it; one for all stores."""

    def __init__(self) -> None:
        home = Path(os.environ["HOME"]) / "postgres"
        home.mkdir()
        self._rights: dict[str, Any] = {"env": {**os.environ, "HOME": str(home)}}
        if os.geteuid() == 0:
            os.chown(home, _NOBODY, _NOBODY)
            for folder in home.parents[:2]:  # HOME and the process's folder, made for it alone
                folder.chmod(0o711)
            self._rights |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        atexit.register(self._pg0, "stop", "--name", "peers")
        self._pg0("start", "--name", "peers", "--port", _free_port())
        uri = json.loads(self._pg0("info", "--name", "peers", "-o", "json"))["uri"]
        self.engine = _HINDSIGHT.MemoryEngine(db_url=uri)
        _LOOP.run_until_complete(self.engine.initialize())

    def _pg0(self, *arguments: str) -> str:
        program = str(Path(import_module("pg0").__file__ or "").parent / "bin/pg0")
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=True, **self._rights
        )
        return done.stdout


def _free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


_server: _Server | None = None


class Store:
    """A bank for each sender, as its plugins keep them."""

    def __init__(self, folder: str) -> None:
        global _server
        _server = _server or _Server()
        self._engine, self._name = _server.engine, f"store{next(_STORES)}"
        self._context = _HINDSIGHT.RequestContext()
        self._banks: set[str] = set()
        self._before = int(self._query(_SIZE))

    def add(self, session: dict[str, Any]) -> None:
        exchanges: list[list[str]] = []
        for turn in session["turns"]:
            if turn["role"] == "user" or not exchanges:
                exchanges.append([])
            exchanges[-1].append(turn["text"])
        at = datetime.fromisoformat(session["at"]) if session["at"] else None
        contents = [{"content": "\n".join(texts), "event_date": at} for texts in exchanges]
        bank = self._bank(session["sender"])
        if contents:
            self._banks.add(bank)
            self._wait(
                self._engine.retain_batch_async(bank, contents, request_context=self._context)
            )
            self._query("ANALYZE")  # its search goes by PostgreSQL's statistics, made in minutes

    def ask(self, request: dict[str, Any]) -> list[str]:
        at = datetime.fromisoformat(request["at"]) if request["at"] else None
        bank = self._bank(request["sender"])
        if bank not in self._banks:  # it refuses one that does not exist
            return []
        result = self._wait(
            self._engine.recall_async(
                bank,
                request["prompt"],
                question_date=at,
                request_context=self._context,
            )
        )
        return [fact.text for fact in result.results]

    def size(self) -> int:
        return int(self._query(_SIZE)) - self._before

    def close(self) -> None:
        """Leave the server to the next store."""

    def _bank(self, sender: str | None) -> str:
        return f"{self._name}-{sender or 'user'}"

    def _query(self, sql: str) -> Any:
        connect = import_module("asyncpg").connect

        async def ask() -> Any:
            connection = await connect(self._engine.db_url)
            try:
                return await connection.fetchval(sql)
            finally:
                await connection.close()

        return self._wait(ask())

    @staticmethod
    def _wait(work: Any) -> Any:
        return _LOOP.run_until_complete(work)
