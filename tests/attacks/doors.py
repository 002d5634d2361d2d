"""What hostile texts cost at each door, and what an attacker costs a victim: ``make doors``.

Each shape is repeated to the same length as prose and given to every call of `memtier serve` that
reads anybody's text, or as much of it as the call takes; the figure is processor time, as a
multiple of what the prose takes there.
Then a victim asks a real `memtier serve --tcp` alone and beside a client that sends such texts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core import concurrency
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.dispatch import MAX_PROCESSOR_SECONDS
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.requests import MAX_TEXT_CHARS, BadParams, check_arguments
from tests.attacks.shapes import SHAPES
from tests.builders import write_config
from tests.server.tcp import CONFIG, Client, Resident, request

PROSE: Final = (
    "The nightly build failed because the cache was cold, so we moved it to the evening. "
)
SCOPE: Final = {"project": "p", "agent": "host.main"}


def ask(methods: Methods, method: str, **params: Any) -> None:
    """Make a call as the server makes it, with what one request may take of the processor."""
    function = getattr(methods, method)
    with suppress(BadParams, MemTierError), concurrency.allow(MAX_PROCESSOR_SECONDS, lambda: True):
        function(**check_arguments(function, params))


def doors(methods: Methods) -> dict[str, Callable[[str], None]]:
    """Return the calls that read a text, by what reads it."""
    context = {"session_id": "s", "run_id": "r", "agent_id": "host.main", "project": "p"}
    call = partial(ask, methods)

    def said(role: str) -> Callable[[str], None]:
        more = {"tool_call_id": "1", "name": "fetch"} if role == "tool" else {}

        def say(text: str) -> None:
            messages = [{"role": role, "content": text, **more}]
            call("record", messages=messages, session_id="s", run_id=f"{time.time_ns()}", **SCOPE)

        return say

    def hook(text: str) -> None:
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
        named = {**context, "run_id": f"{time.time_ns()}"}
        call("hook", name="agent_end", context=named, event={"messages": messages})

    def tool(name: str, argument: str) -> Callable[[str], None]:
        return lambda text: call("tool", name=name, context=context, arguments={argument: text})

    return {
        "record, user": said("user"),
        "record, tool": said("tool"),
        "hook agent_end": hook,
        "hook before_prompt_build": lambda text: call(
            "hook", name="before_prompt_build", context=context, event={"prompt": text}
        ),
        "recall": lambda text: call("recall", query=text, **SCOPE),
        "remember": lambda text: call("remember", text=text, **SCOPE),
        "tool memtier_store": tool("memtier_store", "text"),
        "tool memtier_search": tool("memtier_search", "query"),
        "names of a session": lambda text: call(
            "record", messages=[{"role": "user", "content": "x"}], session_id=text, **SCOPE
        ),
    }


def costs(home: Path, size: int, door: str) -> dict[str, Any]:
    """Return the worst multiple of prose at a door, and of which shape it is."""
    write_config(home, CONFIG)
    call = doors(Methods(home, lambda _context: None))[door]

    def seconds(call: Callable[[str], None], text: str) -> float:
        start = time.process_time()
        call(text)
        return time.process_time() - start

    chars = size if door.startswith(("record", "hook")) else min(size, MAX_TEXT_CHARS)
    call(PROSE)
    prose = min(seconds(call, (PROSE * chars)[:chars]) for _ in range(3))
    first = [(seconds(call, (unit * chars)[:chars]), unit) for unit in SHAPES]
    worst = max(  # what else the process did counts for none
        (min(taken, seconds(call, (unit * chars)[:chars])) / prose, unit)
        for taken, unit in sorted(first)[-3:]
    )
    memory_pool.close()
    figures = {"characters": chars, "prose s": round(prose, 3)}
    return figures | {"worst": round(worst[0], 1), "shape": worst[1]}


def beside(folder: Path, size: int, calls: int) -> dict[str, Any]:
    """Return how long a victim's recalls take alone, and beside an attacker of another token."""
    folder.mkdir()
    resident = Resident(folder / "home", None)
    victim, token = Client(resident, resident.token("v")), resident.token("x")
    line = {"role": "user", "content": "The quay is closed on Friday."}
    victim.call("record", messages=[line], session_id="s", run_id="r")
    stop = threading.Event()

    def attack(number: int) -> None:
        client = Client(resident, token)
        while not stop.is_set():
            text = (SHAPES[number % len(SHAPES)] * size)[:size]
            messages = [{"role": "user", "content": text}]
            client.send(request("record", messages=messages, session_id="s", run_id=f"{number}"))
            client.answer()
            number += 12

    def waits() -> list[float]:
        taken = []
        for _ in range(calls):
            start = time.monotonic()
            assert "result" in victim.call("recall", query="Is the quay open on Friday?")
            taken.append(time.monotonic() - start)
        return taken

    waits()
    alone = waits()
    attackers = [threading.Thread(target=attack, args=(n,), daemon=True) for n in range(12)]
    for each in attackers:
        each.start()
    time.sleep(3.0)
    crowded = waits()
    stop.set()
    Client.close_all()
    resident.end()
    p95 = [statistics.quantiles(taken, n=20)[-1] for taken in (alone, crowded)]
    return {
        "alone p95 ms": round(p95[0] * 1000, 1),
        "beside p95 ms": round(p95[1] * 1000, 1),
        "ratio": round(p95[1] / p95[0], 2),
        "beside max ms": round(max(crowded) * 1000, 1),
    }


def main() -> None:
    """Measure both, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000_000, help="characters of each text")
    parser.add_argument("--calls", type=int, default=200, help="of the victim in each phase")
    parser.add_argument("--only", default="", help="doors of that name, or the victim")
    options = parser.parse_args()
    report: dict[str, Any] = {"size": options.size, "shapes": len(SHAPES)}
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        for number, door in enumerate(doors(Methods(Path(folder), lambda _context: None))):
            if options.only in door:
                report[door] = costs(Path(folder, str(number)), options.size, door)
                sys.stderr.write(f"{door}: {report[door]}\n")
        if options.only in "victim":
            report["victim"] = beside(Path(folder, "tcp"), options.size, options.calls)
    sys.stdout.write(json.dumps(report, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
