"""What others keep private on another machine changes no answer of this one.

The worlds, the questions and the comparison are those of `tests.proofs.test_isolation_fuzz`; here
what the asker may not see is said, recalled and known on other machines, and fetched from there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.paths import ProjectFolder
from memtier_plugin.memory import MemTier
from memtier_plugin.storage.shared.bootstrap import join
from memtier_plugin.storage.shared.postgres import server as admin
from memtier_plugin.storage.shared.protocol import MachineGrant
from tests.builders import write_config
from tests.proofs.test_isolation_fuzz import OPS, PROJECTS, QUESTIONS, Ticks, Worlds
from tests.shared.server import PostgresServer
from tests.shared.test_replicas import ledgers

pytestmark = pytest.mark.shared

MACHINES = ("anna", "bert", "carl")  # the asker's, and those of all others


class SharedWorlds(Worlds):
    """A pair of worlds, each a project of its own on a server, that three machines share."""

    def __init__(
        self, server: PostgresServer, database: str, folder: Path, seed: int, ticks: Ticks
    ) -> None:
        self._url = lambda machine: server.url(database, machine)
        self._owner = server.url(database)
        self._machines: dict[Path, list[Path]] = {}
        self._elsewhere = 0  # the machine on which the op at work is carried out; 0: the asker's
        self._followers: list[MemTier] = []
        super().__init__(folder, seed, ticks)

    def _op(self, op: int) -> None:
        if op == 1:
            for number, home in enumerate(self.homes):
                self._join(home, f"world {self.seed} {number}")
        self._elsewhere = 0
        super()._op(op)
        if op % 5 == 0 or op == OPS:
            self._synchronise()

    def _join(self, home: Path, name: str) -> None:
        text = (home / "projects" / PROJECTS[0] / "project.yaml").read_text()
        self._machines[home] = [home, *(home.with_name(f"{home.name} {m}") for m in MACHINES[1:])]
        for machine, path in zip(MACHINES, self._machines[home], strict=True):
            admin.grant(self._owner, MachineGrant(machine, name), "owner")
            write_config(path, {"ledger": {"shared": self._url(machine)}})
            folder = ProjectFolder.of(path, PROJECTS[0])
            folder.make()
            (folder.path / "project.yaml").write_text(text)
            (folder.path / "project.yaml").chmod(0o600)
            join(folder, name)
            self._followers.append(MemTier.open(path, PROJECTS[0], "follower"))

    def _hidden(self, rng: random.Random) -> tuple[str, str | None]:
        self._elsewhere = rng.randint(1, len(MACHINES) - 1)
        return super()._hidden(rng)

    def _memory(self, home: Path, agent: str, project: str = PROJECTS[0]) -> MemTier:
        number, self._elsewhere = self._elsewhere, 0
        return super()._memory(self._machines[home][number], agent, project)

    def _synchronise(self) -> None:
        for memory in self._followers * 2:
            memory.synchronise()

    def _answer(self, surface: Callable[..., Any], number: int, rng: random.Random) -> str:
        if number == 0 and self.op % 40 == 0:
            self._synchronise()
        self._elsewhere = 0
        return super()._answer(surface, number, rng)

    def check(self) -> None:
        """Check that all machines of a world have the same lines, and that the worlds differ."""
        first, *others = ([ledgers(memory) for memory in world] for world in self._by_world())
        for copies in (first, *others):
            assert copies[0] == copies[1] == copies[2]
        assert first[0] != others[0][0]

    def _by_world(self) -> Iterator[list[MemTier]]:
        count = len(MACHINES)
        return (self._followers[n : n + count] for n in range(0, len(self._followers), count))

    def close(self) -> None:
        """Close what is open."""
        super().close()
        for memory in self._followers:
            memory.close()


@pytest.fixture
def compared(
    postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[range, int], tuple[int, list[str]]]]:
    """Return what compares the answers of pairs of worlds: how many, and what differed."""
    ticks = Ticks(monkeypatch)
    admin.grant(postgres.url(database), MachineGrant("carl", "harbor"), "owner")

    def compare(seeds: range, questions: int) -> tuple[int, list[str]]:
        number, differing = 0, []
        for seed in seeds:
            folder = tmp_path / f"pair{seed}"
            worlds = SharedWorlds(postgres, database, folder, seed, ticks)
            worlds.check()
            for surface, (first, other) in worlds.questions(questions):
                number += 1
                if first != other:
                    near = next(i for i, (a, b) in enumerate(zip(first, other)) if a != b)  # noqa: B905
                    shown = slice(max(0, near - 160), near + 60)
                    differing.append(f"seed {seed} {surface}:\n  {first[shown]}\n  {other[shown]}")
            worlds.close()
        return number, differing

    yield compare


def test_what_others_keep_elsewhere_shows_nowhere(
    compared: Callable[[range, int], tuple[int, list[str]]],
) -> None:
    """Fifty answers are the same whatever others said, recalled and knew on their machines."""
    number, differing = compared(range(1), QUESTIONS)
    assert differing == []
    assert number == QUESTIONS


@pytest.mark.slow
def test_drawn_cases(compared: Callable[[range, int], tuple[int, list[str]]]) -> None:
    """2,000 answers of ten pairs, drawn by TEST_MEMTIER_SEED [1]; TEST_MEMTIER_PAIRS [10]."""
    pairs = int(os.environ.get("TEST_MEMTIER_PAIRS", "10"))
    first = 50 * int(os.environ.get("TEST_MEMTIER_SEED", "1")) % 1_000_000
    number, differing = compared(range(first, first + pairs), 200)
    print(f"\nisolation over machines: cases {number}, differences {len(differing)}")  # noqa: T201
    assert differing == []
    assert number == 200 * pairs
