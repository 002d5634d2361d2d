"""mem0, open source: each turn as it was said (`infer=False`), in Qdrant on disk."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

_SIZE = 384  # of MiniLM's vectors


class Store:
    """A memory in a folder; a sender is a `user_id`."""

    def __init__(self, folder: str) -> None:
        endpoint = {"api_key": "none", "openai_base_url": os.environ["EMBEDDINGS_URL"]}
        path = os.path.join(folder, "qdrant")
        vectors = {"path": path, "on_disk": True, "embedding_model_dims": _SIZE}
        self._memory = import_module("mem0").Memory.from_config(
            {
                "llm": {"provider": "openai", "config": endpoint},  # never asked
                "embedder": {
                    "provider": "openai",
                    "config": {**endpoint, "model": "minilm", "embedding_dims": _SIZE},
                },
                "vector_store": {"provider": "qdrant", "config": vectors},
                "history_db_path": os.path.join(folder, "history.db"),
            }
        )

    def add(self, session: dict[str, Any]) -> None:
        messages = [{"role": t["role"], "content": t["text"]} for t in session["turns"]]
        self._memory.add(
            messages,
            user_id=session["sender"] or "user",
            metadata={"session": session["id"], "at": session["at"]},
            infer=False,
        )

    def ask(self, request: dict[str, Any]) -> list[str]:
        most = {"top_k": request["k"]} if request["k"] else {}
        filters = {"user_id": request["sender"] or "user"}
        result = self._memory.search(request["prompt"], filters=filters, **most)
        return [hit["memory"] for hit in result["results"]]

    def close(self) -> None:
        self._memory.vector_store.client.close()
        self._memory.close()
