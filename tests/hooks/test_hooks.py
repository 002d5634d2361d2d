"""The hooks at the edge of a host: what they do, and that they neither fail it nor keep it."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.records import Message
from memtier_plugin.core.results import PromptAddition, PromptEvent, RunContext, RunEvent
from memtier_plugin.hooks import host_hooks
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import MAX_UNSTORED_TURNS, describe_silence
from memtier_plugin.pool import memory_pool
from tests.builders import write_config
from tests.processes import PATIENCE, child_environment, held_ledger, run_python, wait_until

pytestmark = pytest.mark.usefixtures("drained")
AGENT = "test.main"


def context(run: str | None = "r1", **more: Any) -> RunContext:
    """Return a run of the one agent and session that most tests need."""
    fields = {"agent_id": AGENT, "session_id": "s", "run_id": run, "project": "p"}
    return RunContext(**(fields | more))


def ask(prompt: str, where: RunContext | None = None) -> PromptAddition | None:
    """Call before_prompt_build as a host does."""
    hook = plugins.manager().hook.before_prompt_build
    answer: PromptAddition | None = hook(
        event=PromptEvent(prompt=prompt), context=where or context("q")
    )
    return answer


def end(text: str, where: RunContext | None = None) -> None:
    """Call agent_end as a host does, for a run of one message."""
    event = RunEvent(messages=(Message(role="user", content=text),))
    plugins.manager().hook.agent_end(event=event, context=where or context())


def stored(home: Path) -> list[str]:
    """Return what the ledgers hold of the agent's entries, oldest first."""
    with MemTier.open(home, "p", AGENT) as memory:
        return [entry.content for entry in memory.entries()]


def test_a_run_is_recalled_before_the_next_prompt() -> None:
    """What agent_end recorded is in the very next prompt of the agent, with its recall's id."""
    assert ask("Which locker has my bag?") is None
    end("My bag is in the blue locker.")
    addition = ask("Which locker has my bag?")
    assert addition is not None
    assert "blue locker" in addition.prepend_context
    assert addition.recall_id


def test_a_prompt_without_words() -> None:
    """An empty prompt is answered by the last thing the user said, or by nothing."""
    end("My bag is in the blue locker.")
    assert ask("  ") is None
    messages = (
        Message(role="user", content="Where is my bag?"),
        Message(role="assistant", content="?"),
    )
    addition = plugins.manager().hook.before_prompt_build(
        event=PromptEvent(prompt="", messages=messages), context=context("q")
    )
    assert "blue locker" in addition.prepend_context


def test_compaction_stores_each_message_once(home: Path) -> None:
    """What before_compaction stored of a run is not stored again when the run ends."""
    first = Message(role="user", content="The gate code is on the board.")
    second = Message(role="assistant", content="I shall look there.")
    hook = plugins.manager().hook
    hook.before_compaction(event=RunEvent(messages=(first,)), context=context())
    hook.before_compaction(event=RunEvent(messages=()), context=context())
    hook.agent_end(event=RunEvent(messages=(first, second)), context=context())
    assert stored(home) == [first.content, second.content]


def test_a_switched_off_project_is_left_alone(home: Path) -> None:
    """While a project is off its hooks record and recall nothing, and that is no failure."""
    end("My bag is in the blue locker.")
    with MemTier.open(home, "p", AGENT) as memory:
        memory.pause()
    assert ask("Where is my bag?") is None
    end("My hat is in the red locker.", context("r2"))
    assert stored(home) == ["My bag is in the blue locker."]
    assert plugins.load_errors() == []


def test_a_failing_hook_returns_nothing(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong settings fail every hook: the host gets None, the log one line, the count goes up."""
    write_config(home, "retrieval: {kk: 3}\n")
    assert ask("Where?") is None
    assert ask("Where?") is None
    end("Nowhere.")
    assert [record.name for record in caplog.records] == ["memtier", "memtier"]
    failures = {(error.plugin, error.hook): error.count for error in plugins.load_errors()}
    assert failures == {("memtier", "before_prompt_build"): 2, ("memtier", "agent_end"): 1}
    write_config(home, "retrieval: {k: 3}\n")
    end("Mended.")
    assert stored(home) == ["Mended."]


def test_status_tells_how_the_hooks_fared(home: Path, tmp_path: Path) -> None:
    """Status holds, per agent and hook, the last success, and the last failure with its reason."""
    end("My bag is in the blue locker.")
    where = context("r2", agent_id="test.other")
    folder = home / "projects" / "p" / "episodic"
    (folder / "test.other").symlink_to(tmp_path)
    end("I write elsewhere.", where)
    with MemTier.open(home, "p", AGENT) as memory:
        hooks = memory.status()["hooks"]
    assert hooks[AGENT]["agent_end"]["last_ok"]
    assert not hooks[AGENT]["agent_end"].get("last_error")
    assert not hooks["test.other"]["agent_end"].get("last_ok")
    assert "symlink" in str(hooks["test.other"]["agent_end"])
    assert list(tmp_path.glob("*.jsonl")) == []


def test_a_late_write_is_finished(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Past its deadline agent_end returns, the lock still held; runs are stored later, in order."""
    write_config(home, "hooks: {end_deadline_ms: 150}\n")
    end("Number 0.", context("r0"))
    host_hooks.workers.drain(PATIENCE)  # on a busy machine the first run is late, too
    with held_ledger(home, AGENT):
        end("Number 1.", context("r1"))
        end("Number 2.", context("r2"))
        assert "DeadlinePassed" in caplog.text
        assert stored(home) == ["Number 0."]
    host_hooks.workers.drain(PATIENCE)
    assert stored(home) == ["Number 0.", "Number 1.", "Number 2."]
    with MemTier.open(home, "p", AGENT) as memory:
        assert "DeadlinePassed" in str(memory.status()["hooks"][AGENT]["agent_end"])


def test_lateness_is_noted_however_late(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status tells of a missed deadline also where the host goes on before it can be noted."""
    write_config(home, "hooks: {end_deadline_ms: 10}\n")
    submit, returned = host_hooks.workers.submit, threading.Event()
    monkeypatch.setattr(  # no worker gets to anything while the host waits for the hook
        host_hooks.workers,
        "submit",
        lambda job, line=None: submit(lambda: returned.wait() and job(), line),
    )
    end("Number 0.")
    returned.set()
    host_hooks.workers.drain(PATIENCE)
    with MemTier.open(home, "p", AGENT) as memory:
        mark = memory.status()["hooks"][AGENT]["agent_end"]
    assert "DeadlinePassed" in mark["error"] and mark["last_error"]
    assert stored(home) == ["Number 0."]


def test_turns_whose_runs_are_on_their_way(home: Path) -> None:
    """While a run waits to be stored nobody says that its host stores none."""
    write_config(home, "hooks: {end_deadline_ms: 150}\n")
    end("Number 0.", context("r0"))
    host_hooks.workers.drain(PATIENCE)
    with MemTier.open(home, "p", AGENT) as memory, held_ledger(home, AGENT):
        for number in range(MAX_UNSTORED_TURNS):
            ask(f"Which number after {number}?", context(f"q{number}"))
        host_hooks.workers.drain(PATIENCE)
        assert describe_silence(memory.store, AGENT)
        end("Number 1.", context("r1"))
        wait_until(lambda: describe_silence(memory.store, AGENT) is None)
        assert stored(home) == ["Number 0."]


def test_every_lock_held(home: Path) -> None:
    """While somebody holds every lock, prompts are answered, hooks return, and nothing is lost."""
    write_config(home, "hooks: {end_deadline_ms: 150, session_deadline_ms: 150}\n")
    end("My bag is in the blue locker.")
    host_hooks.workers.drain(PATIENCE)  # on a busy machine it is late, too
    hook = plugins.manager().hook
    with ExitStack() as locks:
        for path in [path for path in home.rglob("*") if path.is_file()]:
            fcntl.flock(locks.enter_context(path.open("rb")), fcntl.LOCK_EX)
        index = locks.enter_context(closing(sqlite3.connect(home / "projects/p/index.sqlite3")))
        index.execute("BEGIN EXCLUSIVE")
        addition = ask("Where is my bag?")
        assert addition is not None and "blue locker" in addition.prepend_context
        hook.session_start(context=context("s1", session_id="s1"))
        end("My hat is in the red locker.", context("r2", session_id="s2"))
        event = RunEvent(messages=(Message(role="user", content="My coat is on the chair."),))
        hook.before_compaction(event=event, context=context("r3", session_id="s3"))
        hook.session_end(context=context(None, session_id="s2"))
        index.rollback()
    host_hooks.workers.drain(PATIENCE)
    assert sorted(stored(home)) == [
        "My bag is in the blue locker.",
        "My coat is on the chair.",
        "My hat is in the red locker.",
    ]


def test_session_end_waits_for_late_writes(home: Path) -> None:
    """When session_end returns in time, the session's late writes are made and the store closed."""
    write_config(home, "hooks: {end_deadline_ms: 150, session_deadline_ms: 60000}\n")
    end("Number 0.", context("r0"))
    host_hooks.workers.drain(PATIENCE)  # on a busy machine the first run is late, too
    with held_ledger(home, AGENT):
        end("Number 1.", context("r1"))
    plugins.manager().hook.session_end(context=context(None))
    assert stored(home) == ["Number 0.", "Number 1."]
    host_hooks.workers.drain(PATIENCE)
    assert not memory_pool._opened
    assert ask("Which number?", context("q", session_id="s2")) is not None


def test_too_many_late_hooks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that pile up behind a lock are bounded; a prompt is still answered beside them."""
    write_config(home, "hooks: {end_deadline_ms: 10}\n")
    monkeypatch.setattr(host_hooks.workers, "max_jobs", 6)
    end("Number 0.", context("r0"))
    host_hooks.workers.drain(PATIENCE)
    with held_ledger(home, AGENT):
        for number in range(20):
            end(f"Number {number}.", context(f"r{number}"))
        assert any("still running" in error.error for error in plugins.load_errors())
    host_hooks.workers.drain(PATIENCE)
    assert ask("Which number?") is not None


@pytest.mark.slow
@pytest.mark.usefixtures("daemons")
def test_session_start_consolidates_what_is_overdue(home: Path) -> None:
    """session_start of a short-lived host starts a consolidation that outlives the hook."""
    end("My name is Mara and I live in Lisbon.")
    plugins.manager().hook.session_start(context=context(None))

    def consolidated() -> bool:
        with MemTier.open(home, "p", AGENT) as memory:
            return not memory.status()["consolidation"]["due"]

    wait_until(consolidated)
    lock = import_module("memtier_plugin.daemon.child")
    wait_until(lambda: not lock.is_held(home, "p"))
    assert (home / "logs" / "daemon.log").stat().st_mode & 0o777 == 0o600


def test_hooks_work_in_a_forked_child(home: Path) -> None:
    """A host that forks after its first hook has working hooks in parent and child."""
    script = """
        import os, sys
        from memtier_plugin.core.plugins import manager
        from memtier_plugin.core.results import RunContext, RunEvent
        from memtier_plugin.core.records import Message

        def end(text):
            where = RunContext(agent_id="test.main", session_id="s", run_id=text, project="p")
            event = RunEvent(messages=(Message(role="user", content=text),))
            manager().hook.agent_end(event=event, context=where)

        end("before")
        child = os.fork()
        end("in the parent" if child else "in the child")
        sys.exit(os.waitpid(child, 0)[1] if child else 0)
    """
    run_python(script, timeout=60, env=child_environment(PYTHONWARNINGS="ignore"))
    assert sorted(stored(home)) == ["before", "in the child", "in the parent"]
