"""What the walk lets fail: a little of everything that MemTier writes, as steps.

A step is one function: it does its work, tells what was acknowledged to it, and may be done again
after it failed, or after the process died in it.  A new one is written below and gets `@step`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import PromptEvent, RunContext, RunEvent
from memtier_plugin.daemon import jobs, scheduler
from memtier_plugin.hooks import host_hooks
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hooks.resident_connection import ResidentFailed, ResidentRefused
from memtier_plugin.ingest.messages import parse_messages
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.requests import BadParams
from memtier_plugin.storage.home_files import count_queued_runs
from memtier_plugin.transfer import archive as backup
from tests.builders import write_config
from tests.loopback import Loopback

PROJECT = "faults"
START = datetime(2026, 1, 5, 9, tzinfo=UTC)  # long ago: recalls of then are to be dropped now
AGENT = "test.main"
LONG = "test." + "x" * 130  # a name that stands in a file of names
# All that a project can keep and judge is on; the jobs of the background read it from the file.
SETTINGS = {
    "ledger.durability": "sync",
    "consolidation.probes": 0,
    "gate.mode": "index",
    "people.profiles": True,
    "priority.enabled": True,
    "retrieval.episode_hours": 6,
    "retrieval.weights.surprise": 0.5,
    "summaries.long": True,
}
VAULT = "vault"  # the session that is purged
BESIDE = "beside"  # the session of who works while another is slow
HERMES = "hermes.default"
QUEUED = "The flour is in the cellar."
REMEMBERED = "The oven is called Vesuvio."
SECRET = "quokka-7731"
COPY = "copy"  # the project that is restored
FERRY = "I run the ferry at pier nine every morning."
PLANS = (  # enough lines of one person and of one month for all kinds of summaries
    "We plan the harbour festival for June; the goal is 400 visitors.",
    "I prefer the north quay for the stage.",
    "Always keep the fire lane free.",
    "The band called Saltmarsh plays at 19:00.",
    "I love grilled mackerel, so we need two stalls.",
    "The permit costs 350 euros and expires on 1 May.",
    "We decided to borrow the tents from the sailing club.",
    "I live near the lighthouse.",
    "Ok, thanks!",
    "The posters are printed by Nadia in March.",
    "I am allergic to shellfish.",
    "Next we have to order 30 benches.",
)

Tell = Callable[[Mapping[str, Any]], None]
STEPS: dict[str, Callable[[World], None]] = {}


@dataclass
class World:
    """Where the work is done, and whom to tell what was acknowledged."""

    home: Path
    tell: Tell
    done: set[str] = field(default_factory=set)  # the steps that an earlier process finished

    def __post_init__(self) -> None:
        if not (self.home / "config.yaml").exists():
            write_config(self.home, nested(SETTINGS))

    def open(self, agent: str = AGENT, day: int = 0, **settings: Any) -> MemTier:
        """Open the memory of an agent as of a day; each step is a process of its own so far."""
        moment = START + timedelta(days=day)
        clock = lambda: moment  # noqa: E731
        return MemTier.open(self.home, PROJECT, agent, settings=settings, clock=clock)

    def stored(self, entries: list[Entry]) -> None:
        """Tell of entries that were acknowledged."""
        self.tell({"entries": {entry.id: entry.content for entry in entries}})


def step(work: Callable[[World], None]) -> Callable[[World], None]:
    """Make a function a step, in the order in which they stand."""
    STEPS[work.__name__] = work
    return work


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they stand in a file."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        *above, key = name.split(".")
        inner = tree
        for part in above:
            inner = inner.setdefault(part, {})
        inner[key] = value
    return tree


def talk(words: str, ok: bool = True) -> list[dict[str, Any]]:
    """Return a run's messages."""
    return [
        {"role": "user", "content": f"{words}, and how is the bread?"},
        {"role": "tool", "name": "oven", "content": "220 degrees", "ok": ok},
        {"role": "assistant", "content": f"The bread is done; noted: {words}."},
    ]


@step
def record(world: World) -> None:
    """Record runs of two agents, one of them with a long name.

    That one comes last: where its name cannot be written, the other's run is there all the same
    when the gate judges what repeats it.
    """
    with world.open() as memory:
        world.stored(memory.record(talk("I live in Rome."), session_id="home", run_id="h1"))
    with world.open(LONG) as memory:
        world.stored(memory.record(talk("I work at Bolt"), session_id="yard", run_id="y1"))


@step
def credit(world: World) -> None:
    """Recall for a run, and credit what was injected into it."""
    with world.open(day=1) as memory:
        memory.recall("bread", purpose="inject", session_id="home", run_id="h2")
        result = memory.end_run(talk("The bread is rye"), session_id="home", run_id="h2")
        world.stored(result.entries)
        world.tell({"credits": [["h2", item] for item in sorted(result.credits)]})


@step
def hooks(world: World) -> None:
    """Do a run as a host does; a hook returns whatever happens, and tells the log."""
    context = RunContext(
        agent_id=AGENT, session_id="host", run_id="k1", project=PROJECT, home=str(world.home)
    )
    host_hooks.before_prompt_build(PromptEvent(prompt="how is the bread?"), context)
    messages = tuple(parse_messages(talk("The yeast is fresh")))
    host_hooks.agent_end(RunEvent(messages=messages), context)
    host_hooks.workers.drain(10)


@step
def queue(world: World) -> None:
    """Keep a run and how long it took, as a host's client does while no resident can be reached."""
    if "queue" in world.done:
        return  # whoever kept it said so: it must come from the disk
    logger = logging.getLogger("memtier")
    expected = lambda record: "is not stored yet" not in record.getMessage()  # noqa: E731
    logger.addFilter(expected)
    try:
        client = ResidentClient(["/nowhere/memtier"], world.home)
        event = {"user": QUEUED, "assistant": "The bread is done.", "messages": []}
        context = {"session_id": "queued", "run_id": "q1"}
        run = {"host": "hermes", "name": "sync_turn", "event": event, "context": context}
        client.deliver({**run, "project": PROJECT}, 1.0)
        client.note_wait("hermes", HookWait(PROJECT, HERMES, "agent_end", 1, answered=False))
    finally:
        logger.removeFilter(expected)
    if not [*(world.home / "queue").glob("*.json")]:
        raise JobFailed("the run waits in memory only, as the log tells")


@step
def deliver(world: World) -> None:
    """Deliver what waits, as a client does to the resident that is back."""
    client = _Delivery(["/nowhere/memtier"], world.home)
    client.replay(10.0)
    host_hooks.workers.drain(10)
    if count_queued_runs(world.home) != (0, 0):
        raise JobFailed("the run waits on, as the log tells")
    with world.open(HERMES) as memory:
        entries = [*memory.entries(session="queued")]
        if QUEUED not in [entry.content for entry in entries]:
            raise JobFailed("the run that was kept is not stored")
        world.stored(entries)


class _Delivery(ResidentClient):
    """A client whose resident answers in this process: its methods, without the pipe."""

    def call(self, method: str, params: Mapping[str, Any], seconds: float) -> Any:
        """Let the resident's own method do it, and hand its errors on as the pipe does."""
        assert method == "hook"
        try:
            return Methods(self.home, lambda _context: None).hook(**params)
        except (BadParams, MessageError) as error:
            raise ResidentRefused(str(error)) from error
        except Exception as error:
            raise ResidentFailed(str(error)) from error


@step
def remember(world: World) -> None:
    """Keep a sentence as a fact."""
    with world.open(day=2) as memory:
        world.tell({"facts": [memory.remember(REMEMBERED).id]})


@step
def consolidate(world: World) -> None:
    """Make facts of what was said, some of which supersede others."""
    with world.open(day=3) as memory:
        memory.consolidate()
        world.stored(memory.record(talk("I live in Oslo."), session_id="home", run_id="h3"))
        memory.consolidate()
        texts = {fact.text: fact.id for fact in memory.facts()}
        world.tell({"facts": sorted(texts.values())})


@step
def deny(world: World) -> None:
    """Take a fact back by saying that it holds no longer."""
    with world.open(day=3) as memory:
        for run, words in (("d1", "I have a dog called Rex."), ("d2", "I no longer have a dog.")):
            messages = [{"role": "user", "content": words}]
            world.stored(memory.record(messages, session_id=run, run_id=run))
            memory.consolidate()


@step
def compact(world: World) -> None:
    """Talk for a while, and keep what it was about when the host compacts the session."""
    with world.open(day=3) as memory:
        messages = [{"role": "user", "content": words} for words in PLANS]
        world.stored(memory.record(messages, session_id="plans", run_id="c1"))
        memory.working.compacted("plans", None)
        memory.consolidate()


@step
def form(world: World) -> None:
    """Let a model form facts and a persona by tool calls, and sort them in."""
    with Loopback() as server:
        server.answers(called_for)
        model = {
            "endpoints.local.base_url": server.base_url,
            "consolidation.model": "endpoint:local/m",
            "consolidation.tools": True,
        }
        with world.open(day=4, **model) as memory:
            messages = [{"role": "user", "content": FERRY}]
            world.stored(memory.record(messages, session_id="pier", run_id="f1"))
            report = memory.consolidate(extractor="model")
    if report.problem:
        raise JobFailed(report.problem)


def called_for(body: dict[str, Any]) -> str:
    """Return the calls of a model that keeps one line as a fact and as part of a persona."""
    text = body["messages"][-1]["content"]
    line = next((line for line in text.splitlines() if FERRY in line), "")
    number = re.match(r"\[(\d+)\]", line)
    if number is None:
        return "<tool_call>[]</tool_call>"
    proof = {"quote": FERRY.rstrip("."), "line": int(number[1])}
    fact = {
        "fact": "The user runs the ferry at pier nine.",
        "subject": "user",
        "value": "pier nine",
    }
    return "".join(
        f"<tool_call>{json.dumps({'name': name, 'arguments': arguments | proof})}</tool_call>"
        for name, arguments in (
            ("create_fact", fact | {"relation": "runs"}),
            (
                "update_persona",
                {"name": "user", "profile": "The user runs the ferry at pier nine."},
            ),
        )
    )


@step
def forget(world: World) -> None:
    """Record a run and forget a line of it."""
    with world.open(day=4) as memory:
        world.stored(memory.record(talk("The safe is green"), session_id="home", run_id="h4"))
        lines = memory.entries(session="home")
        ids = [entry.id for entry in lines if entry.run_id == "h4" and entry.role == "user"]
        world.tell({"forgotten": list(memory.forget(ids=ids).ids)})


@step
def background(world: World) -> None:
    """Do the jobs of the daemon."""
    run = jobs.JobRun(threading.Event())
    names = ("consolidation", "summaries", "embedding", "gate", "priority", "sweep")
    if not scheduler.run_jobs(world.home, PROJECT, names, run):
        raise JobFailed("a job failed, as the log tells")


@step
def expire(world: World) -> None:
    """Drop the recalls that are older than they are kept; the credits beside them stay."""
    with world.open(day=200) as memory:
        memory.expire_recalls()
        world.tell({"expired": True})


@step
def reindex(world: World) -> None:
    """Build the index anew and swap it in."""
    with world.open(day=201) as memory:
        memory.reindex()


@step
def pause(world: World) -> None:
    """Switch the project off and on."""
    with world.open(day=202) as memory:
        memory.pause()
        memory.resume()


@step
def transfer(world: World) -> None:
    """Back the project up, and restore it under another name."""
    archive = _archive(world)
    archive.unlink(missing_ok=True)
    restored = (world.home / "projects" / COPY).exists()  # by the process that died after it
    if not restored:
        world.tell({"backing_up": True})
    with world.open(day=203) as memory:
        backup.write_backup(memory.folder, PROJECT, archive, START, lambda *_: None)
    if not restored:
        backup.restore_backup(archive, world.home, COPY)
    world.tell({"restored": True})


def _archive(world: World) -> Path:
    return world.home.with_suffix(".tar.gz")


@step
def purge(world: World) -> None:
    """Record a secret, and erase it from every file."""
    with world.open(day=204) as memory:
        memory.record(talk(f"The vault's word is {SECRET}"), session_id=VAULT, run_id="p1")
        receipt = memory.purge(SECRET)
        left = {export["path"] for export in receipt.copies.exports if export["what"] == "left"}
        # Where an earlier process died in here, the archive was made while the secret was there.
        named = receipt.clean and left == {str(_archive(world))}
        if not (receipt.gone or named):
            raise JobFailed(f"the purge left something: {receipt.to_json()}")
        world.tell({"purged": SECRET})


class JobFailed(Exception):
    """A job of the background failed, which is told there and not raised."""


def writer(path: Path) -> Tell:
    """Return what acknowledges to a file, one line each, before anything else is done."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return partial(_tell, fd)


def _tell(fd: int, what: Mapping[str, Any]) -> None:
    os.write(fd, json.dumps(what).encode() + b"\n")
