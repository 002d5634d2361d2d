"""What MemTier costs in a host's prompts: the prefix that a cache keeps, and the tokens.

The loopback model sees every request as it is sent, so what two requests in a row have in common is
counted exactly. A provider's cache keeps earlier prompts up to the first byte that differs: tools,
then messages. Each host has the same thirty turns with MemTier and without.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from memtier_plugin.telemetry.bill import read_bill
from memtier_plugin.trust.escaping import remove_blocks
from tests.loopback.hosts import LoopbackModel, common_prefix, serialised, text
from tests.runtimes.hermes_chat import open_chat
from tests.runtimes.hosts import Ground, Hermes, OpenClaw

TURNS = 30
KNOWN = [
    f"The {name} service runs on port {5400 + number}, and {owner} looks after it."
    for number, (name, owner) in enumerate(
        (name, owner)
        for owner in ("Mara", "Jonas", "Priya", "Tomasz")
        for name in (
            *("billing", "search", "login", "mail"),
            *("report", "import", "export", "chat"),
        )
        if (len(name) + len(owner)) % 2
    )
]
HELD = 0.99  # of the share that a cache keeps without MemTier


def prompts() -> Iterator[str]:
    """Yield thirty turns: questions of what is known, small talk, work and a tool every fifth."""
    for number in range(TURNS):
        service = KNOWN[number % len(KNOWN)].split()[1]
        if number % 5 == 4:
            yield f"RUN-OK please, and check number {number} of the {service} service."
        elif number % 5 == 3:
            yield "Thanks, that helps a lot!"
        elif number % 5 == 2:
            yield f"Write two sentences for the release notes of version 2.{number}."
        else:
            yield f"Which port does the {service} service run on, and who looks after it?"


@dataclass(frozen=True)
class Session:
    """The requests of one session of a host, in characters; ``blocks`` is how many had a block."""

    sizes: list[int]
    kept: list[int]  # of each but the first, what stood at the beginning of one before it
    blocks: int

    @classmethod
    def of(cls, requests: Sequence[Mapping[str, Any]]) -> Session:
        """Measure the requests that a model was sent."""
        sent = [serialised(request) for request in requests]
        users = [[m for m in r["messages"] if m["role"] == "user"] for r in requests]
        blocks = sum(any(remove_blocks(text(m)) != text(m) for m in each) for each in users)
        kept = [
            max(common_prefix(before, each) for before in sent[:number])
            for number, each in enumerate(sent)
            if number
        ]
        return cls([*map(len, sent)], kept, blocks)

    @property
    def share(self) -> float:
        """The share of all prompts but the first that a cache held."""
        return sum(self.kept) / sum(self.sizes[1:])

    @property
    def tokens(self) -> int:
        """The tokens of all prompts, at four characters each."""
        return sum(self.sizes) // 4

    def __str__(self) -> str:
        """Return the figures in a line."""
        fresh = [size - kept for size, kept in zip(self.sizes[1:], self.kept, strict=True)]
        return (
            f"{len(self.sizes)} requests, {self.tokens} tokens, {self.blocks} with a block; kept "
            f"{self.share:.4f}, {median(fresh):.0f} characters read anew (median)"
        )


class BareOpenClaw(OpenClaw):
    """OpenClaw without MemTier."""

    def install(self, *, use_host_model: bool | None = None) -> None:
        """Leave it as it is."""


class BareHermes(Hermes):
    """Hermes without MemTier."""

    def install(self, *, use_host_model: bool | None = None) -> None:
        """Leave it as it is."""


@contextmanager
def new_ground(folder: Path) -> Iterator[Ground]:
    """Give a session a folder and a model of its own."""
    folder.mkdir()
    with LoopbackModel() as model:
        yield Ground(folder, model)


def talk(ground: Ground, host: OpenClaw | Hermes) -> Session:
    """Have the turns, and return what the model was sent."""
    if isinstance(host, OpenClaw):
        with host.gateway():
            for prompt in prompts():
                host.post(prompt, "agent:main:prefix")
    else:
        with open_chat(host) as chat:
            for prompt in prompts():
                chat.say(prompt)
    return Session.of([r for r in ground.model.requests if r.get("tools")])


@pytest.mark.parametrize("kind", ["openclaw", "hermes"])
def test_a_cache_keeps_the_prefix(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With MemTier a cache keeps at least 99 % of the share that it keeps without."""
    classes: dict[str, dict[str, type[OpenClaw | Hermes]]] = {
        "without": {"openclaw": BareOpenClaw, "hermes": BareHermes},
        "with": {"openclaw": OpenClaw, "hermes": Hermes},
    }
    sessions, lines = {}, []
    for name, hosts in classes.items():
        with new_ground(tmp_path / name) as ground:
            host = hosts[kind](ground)
            for line in KNOWN if name == "with" else ():
                ground.plant(host.agent, line)
            sessions[name] = talk(ground, host)
            lines.append(f"{kind} {name} MemTier: {sessions[name]}")
            if folder := os.environ.get("PREFIX_PROMPTS"):
                path = Path(folder, f"{kind}-{name}.json")
                path.write_text(json.dumps(ground.model.requests))
            if name == "with":
                with ground.memory(host.agent) as memory:
                    bill = read_bill(memory.store, None)
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, json.dumps(bill.to_json()), ""]))
    assert sessions["with"].blocks
    assert sessions["with"].share >= HELD * sessions["without"].share
    [usage] = bill.models
    assert usage.calls >= TURNS
    assert usage.cached > usage.input
