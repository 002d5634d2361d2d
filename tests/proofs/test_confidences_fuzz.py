"""A confidence reaches no other agent by any way: told in random ways, asked for in random ways.

Each world has an agent that is told secrets, another one, and one that may read everybody's
entries. Each secret has a word of its own, which no answer to the other two may have. The views of
the operator (`status`, the whole log, an export of the project) are of everybody by design and are
not asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.requests import to_jsonable
from tests.builders import turns, write_config

KEEPER, ASKERS = "host.keeper", ("host.other", "host.boss")
# Each becomes a fact, or would but for the way it is told; the word in it is the secret.
STATEMENTS = (
    "I live in {}.",
    "My sister is called {}.",
    "We decided to use {} for billing.",
    "The staging host is called {}.",
    "I work at {}.",
    "Remember that the vendor is {}.",
)
MARKERS = (
    "Between us: {}",
    "{} Please don't tell anyone.",
    "Off the record. {}",
    "{} Nobody must know.",
    "Unter uns gesagt: {}",
    "{} Sag es bitte niemandem.",
    "Que quede entre nosotros: {}",
    "Entre nous : {}",
    "别告诉别人：{}",
)
SECRETS = 12  # of one world
QUESTIONS = 60  # to one world, unless more are asked for


class World:
    """A home in which secrets were told, and whoever is not to know them asks."""

    def __init__(self, home: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.home = home
        self.methods = Methods(home, lambda _: None)
        self.secrets: list[str] = []
        self.ids: list[str] = []
        home.mkdir(mode=0o700, parents=True)
        write_config(home, {"agents": {"host.boss": {"read_all": True}}})
        with self.open(KEEPER) as memory:
            for number in range(SECRETS):
                secret = f"Zo{''.join(self.random.choices('bdfglmnr', k=6))}"
                self.secrets.append(secret)
                statement = self.random.choice(STATEMENTS).format(secret)
                self.random.choice(TELLING)(self, memory, f"s{number}", statement, secret)
                if self.random.random() < 0.3:
                    memory.consolidate()
                    memory.summariser.run()
            memory.consolidate()
            memory.summariser.run()
            self.ids += [entry.id for entry in memory.entries(agent=KEEPER)]
            facts = memory.knowledge.person.facts(include_superseded=True)
            self.ids += [view.fact.id for view in facts]
            memory.ask(f"Where is {self.secrets[0]}?")

    def open(self, agent: str) -> MemTier:
        return MemTier.open(self.home, "p", agent)

    def leaks(self, count: int) -> list[str]:
        """Return what had a secret in it, of so many answers."""
        wrong = []
        for _ in range(count):
            asker, way = self.random.choice(ASKERS), self.random.choice(WAYS)
            query = f"{self.random.choice(self.secrets)} {self.random.choice(ABOUT)}"
            try:
                answer = way(self, asker, query)
            except MemTierError as error:
                answer = f"{type(error).__name__}"
            text = json.dumps(answer, ensure_ascii=False, default=str)
            text = text.replace(query, "")  # the question, repeated
            wrong += [f"{way.__name__} {asker}: {s}" for s in self.secrets if s in text]
        return wrong


ABOUT = ("city sister billing staging vendor", "where is it?", "what happened?", "summarise it")


# -- how it is told --------------------------------------------------------------------------------


def _by_words(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    spoken = world.random.choice(MARKERS).format(text)
    memory.end_run(turns(spoken, f"{secret}, I see."), session_id=session)


def _by_flag(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    memory.end_run(turns(text, f"{secret}, I see."), session_id=session, private=True)


def _by_hook(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    context = {"agent_id": KEEPER, "project": "p", "session_id": session, "private": True}
    world.methods.hook("agent_end", context, {"messages": turns(text, f"{secret}, I see.")})


def _by_rpc(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    spoken = turns(text, f"{secret}, I see.")
    world.methods.record(spoken, session, private=True, project="p", agent=KEEPER)


def _afterwards(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    memory.end_run(turns(text, f"{secret}, I see."), session_id=session)
    if world.random.random() < 0.5:
        memory.consolidate()
    memory.end_run(turns("What I just said stays between us.", "Sure."), session_id=session)


def _announced(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    memory.end_run(turns("Can you keep a secret?", "Sure."), session_id=session)
    memory.end_run(turns(text, f"{secret}, I see."), session_id=session)


def _by_command(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    memory.end_run(turns(text, f"{secret}, I see."), session_id=session)
    if world.random.random() < 0.5:
        memory.consolidate()
        memory.summariser.run()
    memory.make_private(session)
    memory.end_run(turns(text, f"Still {secret}."), session_id=session)


def _with_tools(world: World, memory: MemTier, session: str, text: str, secret: str) -> None:
    call = {"id": "c", "function": {"name": "shell", "arguments": f"grep {secret} notes"}}
    again = {"id": "d", "function": {"name": "shell", "arguments": f"grep -i {secret} notes"}}
    messages = [
        {"role": "user", "content": world.random.choice(MARKERS).format(text)},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"{secret}: no such file", "ok": False},
        {"role": "assistant", "content": "", "tool_calls": [again]},
        {"role": "tool", "tool_call_id": "d", "content": f"{secret} is there", "ok": True},
        {"role": "assistant", "content": f"Done with {secret}."},
    ]
    memory.end_run(messages, session_id=session)


TELLING = (
    *(_by_words, _by_words, _by_flag, _by_hook, _by_rpc),
    *(_afterwards, _announced, _by_command, _with_tools),
)


# -- how it is asked for ---------------------------------------------------------------------------


def _recall(world: World, asker: str, query: str) -> Any:
    rng = world.random
    with world.open(asker) as memory:
        recall = memory.recall(
            query,
            purpose=rng.choice(["search", "inject"]),
            depth=rng.choice([None, "facts", "raw", "auto"]),
            session_id=f"s{rng.randrange(SECRETS)}",
        )
        return [recall.text, to_jsonable(recall.hits)]


def _hook(world: World, asker: str, query: str) -> Any:
    context = {"agent_id": asker, "project": "p", "session_id": "s1", "run_id": "r"}
    return world.methods.hook("before_prompt_build", context, {"prompt": query, "messages": []})


def _tool(world: World, asker: str, query: str) -> Any:
    item = world.random.choice(world.ids)
    name = world.random.choice(["memory_search", "memory_get"])
    context = {"agent_id": asker, "project": "p", "session_id": "s1"}
    return world.methods.tool(name, context, {"query": query, "id": item})


def _facts(world: World, asker: str, query: str) -> Any:
    mine = {"project": "p", "agent": asker}
    if world.random.random() < 0.5:
        return world.methods.facts(query=query, **mine)
    return world.methods.facts(include_superseded=True, **mine)


def _fact(world: World, asker: str, query: str) -> Any:
    return world.methods.fact(world.random.choice(world.ids), project="p", agent=asker)


def _review(world: World, asker: str, query: str) -> Any:
    return world.methods.review(project="p", agent=asker)


def _knowledge(world: World, asker: str, query: str) -> Any:
    with world.open(asker) as memory:
        way = world.random.choice(["search", "timeline", "proposals", "runs"])
        if way == "timeline":
            return [item.to_json() for item in memory.knowledge.timeline("user")]
        if way == "search":
            return to_jsonable(memory.knowledge.search(query))
        items = memory.knowledge.proposals() if way == "proposals" else memory.knowledge.runs()
        return [item.to_json() for item in items]


def _ask(world: World, asker: str, query: str) -> Any:
    with world.open(asker) as memory:
        return to_jsonable(memory.ask(query))


def _why(world: World, asker: str, query: str) -> Any:
    with world.open(asker) as memory:
        recall = memory.recall(query, run_id="asked")
        return memory.explain(recall.id, world.random.choice(world.ids))


def _command(world: World, asker: str, query: str) -> Any:
    base = ["--home", str(world.home), "--project", "p", "--agent", asker, "--json"]
    command = world.random.choice([["recall", query], ["export"]])
    return CliRunner().invoke(main, [*base, *command]).output


WAYS: tuple[Callable[[World, str, str], Any], ...] = (
    *(_recall, _recall, _hook, _tool, _facts, _fact, _review, _knowledge, _ask, _why, _command),
)


def leaks(folder: Path, seeds: range, questions: int = QUESTIONS) -> list[str]:
    """Return what of the secrets of these worlds reached who is not to know them."""
    wrong = []
    for seed in seeds:
        world = World(folder / f"world{seed}", seed)
        wrong += [f"seed {seed}: {leak}" for leak in world.leaks(questions)]
        memory_pool.close()
    return wrong


def test_no_confidence_reaches_another_agent(tmp_path: Path) -> None:
    """Some 60 answers to others have no secret in them."""
    assert leaks(tmp_path, range(1)) == []


@pytest.mark.slow
def test_two_thousand_cases(tmp_path: Path) -> None:
    """2,000 answers, of 20 worlds with 240 secrets."""
    wrong = leaks(tmp_path, range(20), 100)
    print(f"\nconfidence cases 2000, leaks {len(wrong)}")  # noqa: T201
    assert wrong == []


def test_the_same_told_openly_is_found(tmp_path: Path) -> None:
    """Without a marker the other agent is told it, so that silence above shows something."""
    with MemTier.open(tmp_path / "home", "p", KEEPER) as memory:
        for number, statement in enumerate(STATEMENTS):
            spoken = turns(statement.format(f"Zolmar{number}"), "I see.")
            memory.end_run(spoken, session_id=f"s{number}")
        memory.consolidate()
    with MemTier.open(tmp_path / "home", "p", ASKERS[0]) as other:
        seen = str([fact.text for fact in other.facts()])
        assert all(f"Zolmar{number}" in seen for number in range(len(STATEMENTS))), seen
