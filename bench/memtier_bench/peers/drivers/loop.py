"""Drive a peer by JSON lines: `python loop.py DRIVER`, a module beside this file with a `Store`.

    {"do": "open", "folder": "..."}           a new, empty store
    {"do": "add", "session": {...}}           the turns of a session, with its id, time and sender
    {"do": "size"}                            the bytes that it takes on disk
    {"do": "ask", "prompt": "...", "k": 50}   what would be injected, best first; "k": null, default

Each answer is a line: {"lines": [...], "ms": ...}, {"bytes": ...} or {"error": "..."}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Answer until the input ends; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        module = import_module(sys.argv[1])
    except Exception as error:
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})
        return
    store, folder = None, ""
    for line in sys.stdin:
        request = json.loads(line)
        lines: list[str] = []
        started = time.perf_counter()
        try:
            if request["do"] == "open":
                if store is not None:
                    store.close()
                folder = request["folder"]
                store = module.Store(folder)
            elif request["do"] == "size":
                _answer(answers, {"bytes": _size(store, folder)})
                continue
            elif request["do"] == "add":
                store.add(request["session"])  # type: ignore[union-attr]
            else:
                started = time.perf_counter()
                lines = store.ask(request)  # type: ignore[union-attr]
            ms = (time.perf_counter() - started) * 1000
            _answer(answers, {"lines": lines, "ms": ms})
        except Exception as error:
            import traceback

            traceback.print_exc()
            _answer(answers, {"error": f"{type(error).__name__}: {error}"})
    if store is not None:
        store.close()


def _size(store: object, folder: str) -> int:
    """Return the bytes of a store: as its driver counts them, or all files of its folder."""
    if hasattr(store, "size"):
        return int(store.size())
    return sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())


def _answer(answers: object, document: dict[str, object]) -> None:
    print(json.dumps(document), file=answers, flush=True)  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
