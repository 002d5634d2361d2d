"""A team's facts in git: what leaves, what comes in, and that clones that meet lose nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtier_plugin.core.records import FactDraft
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.team import BroughtIn, Team, Written
from memtier_plugin.transfer.team_files import FOLDER
from tests.builders import Clock, make_draft, say
from tests.proofs.checks import show

SETTINGS = {"embedding.model": "none", "ledger.durability": "os"}
MARK = "walrus"  # a word of what must not leave
CHANGES = 100


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder as nobody in particular; it must succeed."""
    who = {
        f"GIT_{role}_{part}": "dev"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    nowhere = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ("git", "-C", str(folder), *arguments),
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **who, **nowhere},
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


class Clone:
    """A clone of the repository, and the home of whoever works in it."""

    def __init__(self, base: Path, name: str) -> None:
        self.name = name
        self.folder = base / name
        self.home = base / f"{name}-home"
        git(base, "clone", "-q", str(base / "origin.git"), name)
        self.clock = Clock(tick=Clock().tick)
        self.number = 0

    @contextmanager
    def memory(self, agent: str = "main") -> Iterator[MemTier]:
        """Open the home's memory in the clone."""
        with MemTier.open(
            self.home, "shop", agent, SETTINGS, workspace=self.folder, create=True
        ) as memory:
            yield memory

    def add(self, memory: MemTier, **more: object) -> str:
        """Note a fact of the project; return its text."""
        self.number += 1
        subject, value = f"{self.name} module {self.number}", f"{self.name} store {self.number}"
        fields = {"subject": subject, "relation": "uses"} | more
        entry = say(memory, f"Our {subject} uses the {value}.", run_id=f"r{self.number}")
        [fact] = memory.add_facts([make_draft(entry, value, **fields)])
        return fact.id

    def commit(self) -> None:
        """Commit what was shared, if that is new."""
        git(self.folder, "add", FOLDER)
        if git(self.folder, "status", "--porcelain"):
            git(self.folder, "commit", "-q", "-m", "Share facts")


def share(memory: MemTier) -> tuple[BroughtIn, Written]:
    """Do what `memtier share --git` does."""
    team = Team(memory)
    return team.bring_in(), team.write()


def accept_all(memory: MemTier) -> None:
    """Accept all that waits for review, but facts that the test left waiting."""
    person = memory.knowledge.person
    while items := [i.id for i in person.review_queue() if MARK not in i.text]:
        person.accept(items)


def standing(memory: MemTier) -> set[str]:
    """Return the ids of the facts that hold and may leave."""
    return {f.fact.id for f in memory.knowledge.person.facts() if MARK not in f.fact.text}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Return a folder with a repository that has one commit, to be cloned."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(tmp_path, "clone", "-q", str(tmp_path / "origin.git"), "first")
    (tmp_path / "first" / "README").write_text("Shop\n")
    git(tmp_path / "first", "add", "-A")
    git(tmp_path / "first", "commit", "-q", "-m", "Begin")
    git(tmp_path / "first", "push", "-q", "origin", "main")
    return tmp_path


def add_private(clone: Clone, memory: MemTier) -> None:
    """Note things that are nobody else's business."""
    token = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    clone.add(memory, text=f"The {MARK} {clone.number} is mine.", person="", personal=True)
    clone.add(memory, text=f"{MARK} {clone.number} was diagnosed with depression.")
    clone.add(memory, text=f"The {MARK} {clone.number} key is {token}.")
    clone.add(memory, text=f"The {MARK} {clone.number} waits.", status="proposed")
    clone.add(memory, text=f"{MARK} {clone.number}: {Path.home()}/notes", tier="procedural")
    memory.remember(f"The {MARK} {clone.number} is hidden in the shed.", private=True)


def test_what_leaves(origin: Path) -> None:
    clone = Clone(origin, "ann")
    with clone.memory() as memory:
        fact = clone.add(memory)
        add_private(clone, memory)
        came, wrote = share(memory)
        print(came, wrote)
        print(wrote.path.read_text())
        again = share(memory)
        print(again)


def change_offline(clone: Clone, memory: MemTier, rng: random.Random, number: int) -> set[str]:
    """Add, reword and end facts at random; share and commit now and then.  Return what ended."""
    ended: set[str] = set()
    person = memory.knowledge.person
    for count in range(number):
        facts = {view.fact.id: view.fact for view in person.facts()}
        ids = [i for i in sorted(facts) if MARK not in facts[i].text]
        chosen = rng.choice(ids)
        what = rng.choice(("add", "add", "change", "end"))
        if what == "add":
            clone.add(memory)
        elif what == "change":
            clone.number += 1
            person.reword(chosen, f"Our {clone.name} part {clone.number} stays as it is.")
            ended.add(chosen)
        elif facts[chosen].extractor != "git":
            memory.forget(ids=[chosen])
            ended.add(chosen)
        if rng.random() < 0.1:
            add_private(clone, memory)
        if rng.random() < 0.1 or count == number - 1:
            share(memory)
            clone.commit()
    return ended


def meet(clones: list[Clone]) -> None:
    """Let each pull, share and push, until git has nothing new for anybody."""
    for _ in range(2):
        for clone in clones:
            git(clone.folder, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
            with clone.memory() as memory:
                share(memory)
                accept_all(memory)
                share(memory)
            clone.commit()
            git(clone.folder, "push", "-q", "origin", "main")


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 6))])
def test_two_clones_that_meet_lose_nothing(origin: Path, seed: int) -> None:
    """After 100 changes each offline both have what each added and nobody ended, once."""
    rng = random.Random(seed)
    clones = [Clone(origin, "ann"), Clone(origin, "ben")]
    for clone in clones:
        with clone.memory() as memory:
            for _ in range(10):
                clone.add(memory)
            share(memory)
        clone.commit()
        git(clone.folder, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
        git(clone.folder, "push", "-q", "origin", "main")
    meet(clones)
    made, ended = set[str](), set[str]()
    for clone in clones:
        with clone.memory() as memory:
            assert len(standing(memory)) == 20
            ended |= change_offline(clone, memory, rng, CHANGES)
            made |= standing(memory)
    meet(clones)
    have = []
    for clone in clones:
        with clone.memory() as memory:
            have.append({v.fact.id: v.fact.text for v in memory.knowledge.person.facts() if MARK not in v.fact.text})
    expected = made - ended
    figures = {
        "changes": 2 * CHANGES,
        "facts": len(expected),
        "ended": len(ended),
        "lost": sum(len(expected - each.keys()) for each in have),
        "not ended": sum(len(ended & each.keys()) for each in have),
        "more": sum(len(each.keys() - expected) for each in have),
        "doubled": sum(len(each) - len(set(each.values())) for each in have),
    }
    log = git(clones[0].folder, "log", "-p", "--all")
    figures["private"] = log.count(MARK) + log.count(str(Path.home()))
    show("two clones that met", figures)
    assert not any(figures[n] for n in ("lost", "not ended", "more", "doubled", "private")), figures
