"""Planted faults: for each way in which a memory is not used, `why` names the stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memtier_plugin.core.errors import Paused
from memtier_plugin.core.results import Recall, Shown
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait, note_waits
from memtier_plugin.operations.why import STAGES
from tests.builders import MOMENT, START, Clock, say, user_message, write_config
from tests.processes import run_json, run_memtier

MAIN, OTHER = "codex.main", "gemini.main"
PORT = "The health check listens on port 8443."
ASK_PORT = "Which port does the health check listen on?"
PNPM = "No, never use yarn here. Use pnpm."
RESTIC = "We make the backups with `restic backup --tag nightly`."
RSYNC = "The backups go to the shelf NAS with `rsync -a --delete`."
BACKUP = "Run the backups of the studio."


class Question(NamedTuple):
    """What somebody asks after a fault: the words looked for, the prompt, and whose it was."""

    text: str
    prompt: str | None = None
    agent: str | None = None
    sender: str | None = None


class World:
    """A home with a clock, whose memories are closed at the end."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock, self._open = home, Clock(tick=MOMENT), ExitStack()
        self._settings: dict[str, Any] = {}

    def open(self, agent: str = MAIN, project: str = "p", **settings: Any) -> MemTier:
        """Open the memory of an agent; settings are written for everybody."""
        for name, value in settings.items():
            group, _, key = name.partition("__")
            self._settings[group] = {key: value} if key else value
        write_config(self.home, self._settings)
        memory = MemTier.open(self.home, project, agent, clock=self.clock)
        return self._open.enter_context(memory)

    def prompt(self, memory: MemTier, text: str = ASK_PORT, **more: Any) -> Recall:
        """Recall for a prompt, as a host does."""
        self.clock.later(minutes=1)
        given: dict[str, Any] = {"purpose": "inject", "session_id": "now", "run_id": "run"}
        return memory.recall(text, **(given | more))

    def work(self, memory: MemTier, run: str, *calls: tuple[str, int], ask: str = BACKUP) -> None:
        """Let an agent be asked, make these calls with their exit codes, and answer."""
        self.clock.later(days=1)
        self.prompt(memory, ask, session_id=run, run_id=run)
        messages: list[dict[str, Any]] = [user_message(ask)]
        for number, (command, code) in enumerate(calls):
            arguments = f'{{"command": "{command}"}}'
            call = {"id": f"c{number}", "function": {"name": "exec", "arguments": arguments}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            answer = {"role": "tool", "tool_call_id": f"c{number}", "exit_code": code}
            messages.append({**answer, "content": "some files failed" if code else "done"})
        messages.append({"role": "assistant", "content": "That was it."})
        memory.end_run(messages, session_id=run, run_id=run)

    def ask(self, question: Question) -> dict[str, Any]:
        """Ask why, as the person at the machine."""
        self.clock.later(minutes=1)
        with MemTier.open(self.home, "p", everybody=True, clock=self.clock) as memory:
            text, prompt, agent, sender = question
            return memory.why(text, prompt, agent=agent, sender=sender)

    def close(self) -> None:
        """Close every memory."""
        self._open.close()


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    """Return a world whose memories are closed at the end."""
    made = World(home)
    yield made
    made.close()


Fault = Callable[[World], Question]
FAULTS: list[tuple[str, Fault]] = []


def fault(stage: str) -> Callable[[Fault], Fault]:
    """Register a planted fault with the stage that must be named."""

    def register(plant: Fault) -> Fault:
        FAULTS.append((stage, plant))
        return plant

    return register


# -- was it recorded? ----------------------------------------------------------------------------


@fault("unrecorded")
def never_said(world: World) -> Question:
    say(world.open(), "The gate opens at seven.")
    return Question("use pnpm", "Install lodash")


@fault("unrecorded")
def said_only_in_parts(world: World) -> Question:
    memory = world.open()
    say(memory, "We use yarn.", run_id="1")
    say(memory, "Ada wrote about pnpm in her blog.", run_id="2")
    return Question("use pnpm", "Install lodash")


@fault("masked")
def a_key(world: World) -> Question:
    text = "The staging key is sk-ant-api03-Qm4xV9tR2bN8cL5yK7wJ3hG6fD1sA0pZ-u8Yt2Re4."
    say(world.open(), text)
    return Question(text, "What is the staging key?")


@fault("masked")
def a_password(world: World) -> Question:
    text = "The database password is Tr0ub4dor&3xyz."
    say(world.open(), text)
    return Question("database password is Tr0ub4dor&3xyz", "Which password has the database?")


@fault("purged")
def purged_by_id(world: World) -> Question:
    memory = world.open()
    entry = say(memory, PORT)
    from memtier_plugin.lifecycle.selection import Selection

    memory.purge(Selection(ids=(entry.id,)))
    return Question(entry.id, ASK_PORT)


@fault("purged")
def purged_after_it_was_shown(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    say(memory, "The gate opens at seven.", run_id="2")
    world.prompt(memory)
    memory.purge("health check listens on port 8443")
    return Question("health check listens on port 8443", ASK_PORT)


@fault("paused")
def off_while_it_was_said(world: World) -> Question:
    memory = world.open()
    memory.pause()
    with suppress(Paused):
        say(memory, PNPM)
    return Question("use pnpm", "Install lodash")


@fault("paused")
def off_at_the_prompt(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    memory.pause()
    world.prompt(memory)
    return Question("port 8443", ASK_PORT)


@fault("forgotten")
def forgotten_by_id(world: World) -> Question:
    memory = world.open()
    entry = say(memory, PORT)
    memory.forget(ids=[entry.id])
    world.prompt(memory)
    return Question("port 8443", ASK_PORT)


@fault("forgotten")
def forgotten_with_its_session(world: World) -> Question:
    memory = world.open()
    say(memory, PORT, session_id="old")
    memory.consolidate()
    memory.forget(session="old")
    return Question("port 8443", ASK_PORT)


@fault("forgotten")
def past_its_retention(world: World) -> Question:
    memory = world.open(retention={"days": 1, "keep_sources": False})
    say(memory, PORT)
    world.clock.later(days=9)
    memory.retain()
    return Question("port 8443", ASK_PORT)


@fault("withdrawn")
def its_run_was_undone(world: World) -> Question:
    memory = world.open()
    say(memory, PORT, run_id="wrong")
    memory.history.revert("wrong")
    return Question("port 8443", ASK_PORT)


@fault("withdrawn")
def the_run_below_a_fact_was_undone(world: World) -> Question:
    other, memory = world.open(OTHER), world.open()
    say(other, PORT, run_id="wrong")
    other.consolidate()
    world.prompt(memory, "When does the gate open?")
    other.history.revert("wrong")
    return Question("port 8443", ASK_PORT, MAIN)


@fault("later")
def said_after_the_prompt(world: World) -> Question:
    memory = world.open()
    say(memory, "The gate opens at seven.")
    world.prompt(memory)
    world.clock.later(minutes=1)
    say(memory, PORT, run_id="2")
    return Question("port 8443", ASK_PORT)


@fault("later")
def a_fact_after_the_prompt(world: World) -> Question:
    other, memory = world.open(OTHER), world.open()
    say(other, PORT)
    world.prompt(memory)
    world.clock.later(minutes=1)
    memory.consolidate()
    return Question("port 8443", ASK_PORT, MAIN)


# -- whose is it? --------------------------------------------------------------------------------


@fault("project")
def said_in_another_project(world: World) -> Question:
    say(world.open(project="shop"), PNPM)
    say(world.open(), "The gate opens at seven.")
    return Question("use pnpm", "Install lodash")


@fault("project")
def another_agent_in_another_project(world: World) -> Question:
    say(world.open(OTHER, project="shop"), PORT)
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("owner")
def confided_to_another_agent(world: World) -> Question:
    other, memory = world.open(OTHER), world.open()
    say(other, PORT, private=True)
    memory.consolidate()
    world.prompt(memory)
    return Question("port 8443", ASK_PORT)


@fault("owner")
def confided_afterwards(world: World) -> Question:
    other = world.open(OTHER)
    say(other, PORT, session_id="private")
    other.make_private("private")
    other.consolidate()
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("owner")
def said_by_another_person(world: World) -> Question:
    memory = world.open(consolidation__enabled=False)
    say(memory, "I am allergic to peanuts.", sender="ann")
    memory.consolidate()
    world.prompt(memory, "Am I allergic to anything?", sender="bob")
    return Question("allergic to peanuts", "Am I allergic to anything?", sender="bob")


# -- is it a fact? -------------------------------------------------------------------------------


@fault("unconsolidated")
def never_consolidated(world: World) -> Question:
    say(world.open(OTHER), PORT)
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("unconsolidated")
def said_since_the_last_consolidation(world: World) -> Question:
    other = world.open(OTHER)
    say(other, "The gate opens at seven.")
    other.consolidate()
    say(other, PORT, run_id="2")
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("no_fact")
def a_question_makes_no_fact(world: World) -> Question:
    other = world.open(OTHER)
    say(other, "Should the health check listen on port 8443?")
    other.consolidate()
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("no_fact")
def an_agent_that_promotes_nothing(world: World) -> Question:
    settings = {"agents": {OTHER: {"promote": "none"}}}
    other = world.open(OTHER, **settings)
    say(other, PORT)
    other.consolidate()
    world.prompt(world.open(**settings))
    return Question("port 8443", ASK_PORT)


@fault("no_fact")
def a_sub_agents_words(world: World) -> Question:
    other = world.open(OTHER)
    say(other, PORT, parent="main-session")
    other.consolidate()
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("review")
def everything_waits(world: World) -> Question:
    other = world.open(OTHER, facts__mode="review")
    say(other, PORT)
    other.consolidate()
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("review")
def a_sensitive_statement(world: World) -> Question:
    other, asked = world.open(OTHER), "Which illness was I diagnosed with?"
    say(other, "I was diagnosed with diabetes in May.")
    other.consolidate()
    world.prompt(world.open(), asked)
    return Question("diagnosed with diabetes", asked)


@fault("review")
def an_agent_that_only_proposes(world: World) -> Question:
    settings = {"agents": {OTHER: {"promote": "propose"}}}
    other = world.open(OTHER, **settings)
    say(other, PORT)
    other.consolidate()
    world.prompt(world.open(**settings))
    return Question("port 8443", ASK_PORT)


@fault("rejected")
def rejected_by_a_person(world: World) -> Question:
    other = world.open(OTHER, facts__mode="review")
    say(other, PORT)
    other.consolidate()
    person = other.knowledge.person
    person.reject([view.fact.id for view in person.proposals()], "that port is closed")
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("rejected")
def its_consolidation_was_undone(world: World) -> Question:
    other = world.open(OTHER)
    say(other, PORT)
    run = other.consolidate().run
    assert run
    other.knowledge.revert(run)
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("superseded")
def a_newer_value(world: World) -> Question:
    other = world.open(OTHER)
    say(other, PORT)
    other.consolidate()
    world.clock.later(days=1)
    say(other, "The health check listens on port 9100.", run_id="2")
    other.consolidate()
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("superseded")
def by_a_reviewers_wording(world: World) -> Question:
    other = world.open(OTHER, facts__mode="review")
    say(other, PORT)
    other.consolidate()
    [waiting] = other.knowledge.person.proposals()
    world.clock.later(days=1)
    other.edit_fact(waiting.fact.id, "The health check listens on port 9100.")
    world.prompt(world.open())
    return Question(waiting.fact.id, ASK_PORT)


@fault("held")
def a_tool_said_it(world: World) -> Question:
    memory = world.open()
    say(memory, "health check port 8443", role="tool")
    world.prompt(memory)
    return Question("port 8443", ASK_PORT)


@fault("held")
def the_assistant_has_it_from_a_page(world: World) -> Question:
    memory = world.open()
    call = {"id": "1", "function": {"name": "web_fetch", "arguments": '{"url": "x.example"}'}}
    messages = [
        user_message("Read the page, please."),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "Fares are paid to account DE1234567890."},
        {"role": "assistant", "content": "Fares are paid to account DE1234567890."},
    ]
    memory.record(messages, session_id="old")
    world.prompt(memory, "To which account are fares paid?")
    return Question("account DE1234567890", "To which account are fares paid?")


# -- was it found, and was it good enough? -------------------------------------------------------


def _many(memory: MemTier, text: str = "topic") -> None:
    for n in range(15):
        say(memory, f"{text} {n}", run_id=f"a{n}", session_id=f"s{n}")


@fault("unfound")
def it_shares_nothing_with_the_prompt(world: World) -> Question:
    memory = world.open(embedding__model="none")
    _many(memory)
    say(memory, PNPM, session_id="z")
    world.prompt(memory, "Install lodash")
    return Question("use pnpm", "Install lodash")


@fault("unfound")
def it_is_behind_the_candidates(world: World) -> Question:
    memory = world.open(retrieval__candidates=5)
    for n in range(30):
        say(memory, f"fox {n} {'filler ' * n}", run_id=f"r{n}", session_id=f"s{n}")
    say(memory, "the fox in the red barn", run_id="b", session_id="b")
    recall = world.prompt(memory, "Where is the fox in the red barn?")
    seen = {hit.id for hit in recall.hits}
    behind = next(entry for entry in memory.entries() if entry.id not in seen)
    return Question(behind.id, "Where is the fox in the red barn?")


@fault("standard")
def nothing_fits_well_enough(world: World) -> Question:
    memory = world.open(retrieval__floor="quiet")
    _many(memory, "The kitchen was painted in colour")
    say(memory, "The port wine of the harbour is good.", session_id="z")
    world.prompt(memory)
    return Question("port wine", ASK_PORT)


@fault("standard")
def an_earlier_question(world: World) -> Question:
    memory = world.open()
    say(memory, "Which port does the health check listen on today?", run_id="1")
    say(memory, PORT, run_id="2", session_id="t")
    world.prompt(memory)
    return Question("health check listen on today", ASK_PORT)


@fault("standard")
def far_less_likely_than_the_best(world: World) -> Question:
    memory = world.open()
    _many(memory, "The kitchen was painted in colour")
    say(memory, PORT, run_id="1")
    say(memory, "A port wine from Porto stands in the cellar.", run_id="2", session_id="t")
    world.prompt(memory)
    return Question("port wine from Porto", ASK_PORT)


@fault("kind")
def small_talk(world: World) -> Question:
    memory = world.open()
    say(memory, "Thanks go to Ada for the flowers.")
    world.prompt(memory, "Thanks a lot!")
    return Question("Thanks go to Ada", "Thanks a lot!")


@fault("kind")
def it_means_the_conversation_alone(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory, "And the other one?")
    return Question("port 8443", "And the other one?")


@fault("kind")
def a_command_of_the_host(world: World) -> Question:
    memory = world.open()
    say(memory, PNPM)
    world.prompt(memory, "/reset")
    return Question("use pnpm", "/reset")


@fault("kind")
def the_host_calls_it_chat(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory, kind="chat")
    return Question("port 8443", ASK_PORT)


# -- was it left out? ----------------------------------------------------------------------------


@fault("restated")
def a_twin_stands_for_it(world: World) -> Question:
    memory = world.open()
    first = say(memory, PORT, session_id="a")
    say(memory, PORT.lower(), run_id="2", session_id="b")
    world.prompt(memory)
    return Question(first.id, ASK_PORT)


@fault("restated")
def the_assistant_repeats_the_user(world: World) -> Question:
    memory = world.open()
    say(memory, f"{PORT} It is behind the proxy of the studio.", session_id="a")
    echo = say(memory, PORT, role="assistant", run_id="2", session_id="a")
    world.prompt(memory)
    return Question(echo.id, ASK_PORT)


@fault("repeat")
def said_in_this_conversation(world: World) -> Question:
    memory = world.open()
    say(memory, PORT, session_id="now")
    world.prompt(memory, shown=Shown(since=START))
    return Question("port 8443", ASK_PORT)


@fault("repeat")
def shown_in_this_conversation(world: World) -> Question:
    memory = world.open()
    say(memory, PORT, session_id="old")
    world.clock.later(hours=1)
    since = world.clock.now
    world.prompt(memory, shown=Shown(since=since, injected=True))
    world.prompt(memory, shown=Shown(since=since, injected=True), run_id="next")
    return Question("port 8443", ASK_PORT)


@fault("failed")
def it_failed_twice_where_another_works(world: World) -> Question:
    memory = world.open()
    for number, line in enumerate((RESTIC, RSYNC, "The backups are looked at by Ada.")):
        say(memory, line, run_id=f"s{number}")
    failing, working = ("rsync -a --delete /srv nas:/shelf", 23), ("restic backup --tag nightly", 0)
    world.work(memory, "run-1", failing, working)
    world.work(memory, "run-2", failing, working)
    asked = "Please make the studio's backups once more."
    world.prompt(memory, asked)
    return Question("shelf NAS with rsync", asked)


@fault("failed")
def the_other_recipe_failed_twice(world: World) -> Question:
    memory = world.open()
    for number, line in enumerate((RESTIC, RSYNC, "The backups are looked at by Ada.")):
        say(memory, line, run_id=f"s{number}")
    failing, working = ("restic backup --tag nightly", 1), ("rsync -a --delete /srv nas:/shelf", 0)
    world.work(memory, "run-1", failing, working)
    world.work(memory, "run-2", failing, working)
    asked = "Please run the studio's backups again."
    return Question("backups with restic backup --tag nightly", asked)


# -- was there room, and time? -------------------------------------------------------------------


@fault("room")
def no_line_left(world: World) -> Question:
    memory = world.open(retrieval__floor="off")
    for n in range(4):
        say(memory, f"The fox {n} sleeps in barn {n}.", run_id=f"r{n}", session_id=f"s{n}")
    recall = world.prompt(memory, "Where do the foxes sleep?", k=1)
    return Question(recall.hits[-1].id, "Where do the foxes sleep?")


@fault("room")
def no_tokens_left(world: World) -> Question:
    memory = world.open(retrieval={"passage_tokens": 200, "floor": "off"})
    say(memory, "The standup is in the small room.", session_id="a")
    long = say(memory, "standup " + "about the many topics " * 40, run_id="3", session_id="c")
    world.prompt(memory, "standup room", token_budget=90)
    return Question(long.id, "standup room")


@fault("changed")
def the_standard_was_lowered_since(world: World) -> Question:
    memory = world.open(retrieval__floor="quiet")
    _many(memory, "The kitchen was painted in colour")
    say(memory, "The port wine of the harbour is good.", session_id="z")
    world.prompt(memory)
    world.open(retrieval__floor="off")
    return Question("port wine", ASK_PORT)


@fault("changed")
def the_project_has_vectors_since(world: World) -> Question:
    memory = world.open(embedding__model="none")
    _many(memory)
    say(memory, "My car broke down near the bridge.", session_id="z")
    world.prompt(memory, "What happened to my vehicle?")
    world.open(embedding={}).consolidate()
    return Question("broke down near the bridge", "What happened to my vehicle?")


@fault("late")
def the_search_ran_out_of_time(world: World) -> Question:
    memory = world.open()
    say(memory, "My car broke down near the bridge.")
    world.prompt(memory, "What happened to my vehicle?", deadline_ms=0)
    return Question("broke down near the bridge", "What happened to my vehicle?")


@fault("late")
def the_block_came_late(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory, purpose="offer")
    return Question("port 8443", ASK_PORT)


@fault("unasked")
def no_hook_asked(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory, "When does the gate open?")
    return Question("port 8443", ASK_PORT)


@fault("unasked")
def the_host_got_no_answer(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    wait = HookWait("p", MAIN, "before_prompt_build", 1500, answered=False)
    note_waits(world.home, "codex", [wait], world.clock())
    return Question("port 8443", ASK_PORT)


# -- it was used ---------------------------------------------------------------------------------


@fault("shown")
def its_run_has_not_ended(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory)
    return Question("port 8443", ASK_PORT)


@fault("shown")
def its_fact_was_shown_to_another_agent(world: World) -> Question:
    other = world.open(OTHER)
    say(other, PORT)
    other.consolidate()
    world.prompt(world.open())
    return Question("port 8443", ASK_PORT)


@fault("credited")
def a_call_took_it(world: World) -> Question:
    memory = world.open()
    say(memory, RESTIC)
    world.work(memory, "run-1", ("restic backup --tag nightly /srv", 0))
    return Question("restic backup --tag nightly", BACKUP)


@fault("credited")
def a_call_that_failed_took_it(world: World) -> Question:
    memory = world.open()
    say(memory, RSYNC)
    world.work(memory, "run-1", ("rsync -a --delete /srv nas:/shelf", 23))
    return Question("shelf NAS with rsync", BACKUP)


@fault("ignored")
def the_run_did_something_else(world: World) -> Question:
    memory = world.open()
    say(memory, RESTIC)
    world.work(memory, "run-1", ("duplicity /srv file:///mnt", 0))
    return Question("restic backup --tag nightly", BACKUP)


@fault("ignored")
def the_run_made_no_call(world: World) -> Question:
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory)
    answer = {"role": "assistant", "content": "I would have to look that up."}
    memory.end_run([user_message(ASK_PORT), answer], session_id="now", run_id="run")
    return Question("port 8443", ASK_PORT)


@fault("unasked")
def nothing_was_ever_asked(world: World) -> Question:
    say(world.open(), PORT)
    return Question("port 8443")


@pytest.mark.parametrize(("stage", "plant"), FAULTS, ids=[plant.__name__ for _, plant in FAULTS])
def test_the_stage_is_named(world: World, stage: str, plant: Fault) -> None:
    """Of each planted fault, `why` names the stage, says so in words, and tells what to do."""
    answer = world.ask(plant(world))
    assert answer["stage"] == stage, answer["said"]
    assert answer["said"] and answer["next"].startswith("memtier ")


def test_each_stage_is_planted() -> None:
    """Each stage is planted in two ways at least, but for an index that is behind its ledgers."""
    planted = Counter(stage for stage, _ in FAULTS)
    assert {stage for stage in STAGES if planted[stage] < 2} == {"unindexed"}
    assert planted.keys() <= {*STAGES}


def test_an_agent_is_told_of_nobody_else(world: World) -> None:
    """To an agent, what is another agent's, another person's or another project's is unrecorded."""
    other, memory = world.open(OTHER), world.open()
    for text, more in ((PORT, {}), ("The port of the proxy is 8443.", {"private": True})):
        say(other, text, run_id=text, **more)
    say(memory, "My lucky number is port 8443.", sender="ann", run_id="ann")
    say(world.open(project="shop"), PORT)
    answer = memory.why("port 8443", ASK_PORT, agent=OTHER, sender="bob")
    assert (answer["stage"], answer["line"], answer["others"]) == ("unrecorded", None, [])
    assert answer["recall"]["agent"] == MAIN
    assert answer["next"] == "memtier remember 'port 8443'"


def test_asking_why_writes_nothing(world: World) -> None:
    """To ask why, with a recall in the journal or without, leaves every ledger as it is."""
    memory = world.open()
    say(memory, PORT)
    world.prompt(memory)
    before = {path: path.read_bytes() for path in memory.folder.rglob("*.jsonl")}
    for prompt in (ASK_PORT, "Is port 8443 open?", None):
        world.ask(Question("port 8443", prompt))
    assert {path: path.read_bytes() for path in memory.folder.rglob("*.jsonl")} == before


def test_the_standard_is_told_in_figures(world: World) -> None:
    """Of a line below the standard both figures are told: how likely it is and had to be."""
    answer = world.ask(nothing_fits_well_enough(world))
    figures = answer["why"]["left_out"]
    assert figures["by"] == "floor" and 0 <= figures["likely"] < figures["least"] <= 1
    assert f"{figures['likely']:.2f} of the {figures['least']:.2f}" in answer["said"]


def test_the_command(world: World) -> None:
    """The command shows the stage, the line, the prompt and the next command; or the document."""
    say(world.open(), PORT)
    world.close()
    words = ("--home", world.home, "--project", "p", "why", "port 8443", "--prompt", ASK_PORT)
    shown = run_memtier(*words)
    for expected in ("unasked", PORT, ASK_PORT, "memtier doctor"):
        assert expected in shown.stdout
    document = run_json(*words)
    assert document["stage"] == "unasked" and document["line"]["text"] == PORT
