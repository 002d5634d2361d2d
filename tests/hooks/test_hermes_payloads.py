"""Hermes' calls as measured, from the provider in its process to MemTier's own records."""

from __future__ import annotations

import argparse
import contextvars
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.paths import socket_path
from memtier_plugin.core.plugins import manager
from memtier_plugin.core.results import HookCall, PromptEvent, RunContext, RunEvent
from memtier_plugin.hooks import hermes, hermes_commands, hermes_settings
from memtier_plugin.hooks.hermes_payloads import HermesTranslator, merge_turn
from memtier_plugin.memory import MemTier
from memtier_plugin.trust.escaping import remove_blocks
from tests.cases import each_case

ROOT = Path(__file__).parents[2]
PROMPT_SECONDS = hermes.PROMPT_SECONDS  # before a test has more patience
SAMPLES: dict[str, Any] = json.loads(
    (ROOT / "tests/payloads/hermes/samples.json").read_text("utf-8")
)
USER = {"role": "user", "content": "Where is my bag?"}
ANSWER = {"role": "assistant", "content": "In the locker."}
SUMMARY = {"role": "user", "content": "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns ..."}


def translate(name: str, event: Mapping[str, Any], **context: Any) -> HookCall | None:
    """Translate one call of a session."""
    fields = {"session_id": "s1", "run_id": "r1", "platform": "cli", "agent_identity": "default"}
    base = RunContext(agent_id="", project="p")
    translator = HermesTranslator(Path(os.environ["MEMTIER_HOME"]))
    return translator.translate(name, event, fields | context, base)


def run_of(call: HookCall | None) -> RunEvent:
    """Return the run of a call that must be one."""
    assert call is not None and isinstance(call.event, RunEvent)
    return call.event


def asks(key: str, command: str = "make") -> dict[str, Any]:
    """Return the assistant's message that asks for a command."""
    function = {"name": "terminal", "arguments": json.dumps({"command": command})}
    call = {"id": key, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def answers(key: str, result: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a tool's result as Hermes keeps it."""
    text = result if isinstance(result, str) else json.dumps(result)
    return {"role": "tool", "name": "terminal", "tool_call_id": key, "content": text}


def outcomes(event: Mapping[str, Any]) -> list[tuple[bool | None, int | None]]:
    """Return how the tools of a turn fared."""
    return [
        (m.tool.ok, m.tool.exit_code)
        for m in run_of(translate("sync_turn", event)).messages
        if m.tool
    ]


# -- translation --------------------------------------------------------------------------------


def test_a_query() -> None:
    """What Hermes asks for is the user's clean text; without text nothing is recalled."""
    call = translate("prefetch", SAMPLES["mp.prefetch"] | {"session_id": None})
    assert call is not None
    assert isinstance(call.event, PromptEvent)
    assert call.event.prompt == "RUN-TOOLS please"
    assert call.context == RunContext(
        agent_id="hermes.default", session_id="s1", run_id="r1", project="p"
    )
    assert translate("prefetch", {"query": ""}) is None


def test_a_captured_turn() -> None:
    """A turn as Hermes tells it: the user's own words, the tools, nothing of what we injected."""
    sample = SAMPLES["mp.sync_turn"]
    event = {
        "user": sample["user_content"],
        "assistant": sample["assistant_content"],
        "messages": sample["messages"],
    }
    spoken = run_of(translate("sync_turn", event)).messages
    assert [message.role for message in spoken] == ["user", "assistant", "tool"]
    assert spoken[0].content == "RUN-TOOLS please"
    assert spoken[2].tool is not None and spoken[2].tool.ok is True
    assert "memory-context" not in str(spoken)


@each_case(
    ("result", "ok", "code"),
    [
        ({"output": "hi", "exit_code": 3, "error": None}, False, 3),
        ({"output": "hi", "exit_code": 0, "error": None}, True, 0),
        ({"content": "", "error": "File not found"}, False, None),
        ({"success": False}, False, None),
        ({"success": True}, True, None),
        ("Tool 'x' does not exist. Available tools: ...", False, None),
        ("Error: no such thing", False, None),
        ("plain text", True, None),
        ("[1, 2]", True, None),
    ],
)
def test_outcomes(result: Mapping[str, Any] | str, ok: bool, code: int | None) -> None:
    """Exit codes decide, then what the result says: Hermes calls an exit code 3 a success."""
    event = {"user": USER["content"], "messages": [USER, asks("c1"), answers("c1", result), ANSWER]}
    assert outcomes(event) == [(ok, code)]


@pytest.mark.parametrize("status", ["error", "blocked", "cancelled", "timeout"])
def test_live_outcomes(status: str) -> None:
    """What Hermes told of a call as it happened counts where its result says nothing."""
    live = {"tool_name": "terminal", "tool_call_id": "c1", "status": status}
    messages = [USER, asks("c1"), answers("c1", "..."), ANSWER]
    event = {"user": USER["content"], "messages": messages, "tools": [live]}
    assert outcomes(event) == [(False, None)]


def test_a_call_whose_messages_are_gone() -> None:
    """A tool call that a compaction took out of the messages is still a part of the run."""
    live = {
        "tool_name": "terminal",
        "tool_call_id": "c1",
        "status": "ok",
        "args": "make",
        "result": json.dumps({"exit_code": 2}),
    }
    event = {"user": USER["content"], "messages": [USER, ANSWER], "tools": [live]}
    assert outcomes(event) == [(False, 2)]
    calls = [c for m in run_of(translate("sync_turn", event)).messages for c in m.tool_calls]
    assert [call.arguments for call in calls] == ["make"]


def test_only_this_turn() -> None:
    """Of the whole conversation only what comes from the turn's own message on is its run."""
    earlier = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    event = {"user": USER["content"], "messages": [*earlier, USER, ANSWER]}
    assert [m.content for m in run_of(translate("sync_turn", event)).messages] == [
        USER["content"],
        ANSWER["content"],
    ]


def test_a_turn_without_messages() -> None:
    """A Hermes that gives no messages still gives both sides of the turn."""
    event = {"user": "Where?", "assistant": "There."}
    assert [m.content for m in run_of(translate("sync_turn", event)).messages] == [
        "Where?",
        "There.",
    ]


def test_a_compaction_in_the_middle_of_a_turn() -> None:
    """A turn keeps its messages and their places over a compaction, and no summary enters it."""
    messages = [USER, asks("c1"), answers("c1", {"exit_code": 0})]
    saved = run_of(translate("on_pre_compress", {"user": USER["content"], "messages": messages}))
    after = [SUMMARY, USER, asks("c2"), answers("c2", {"exit_code": 3}), ANSWER]
    event = {"user": USER["content"], "messages": after, "before": messages}
    ended = run_of(translate("sync_turn", event))
    assert ended.messages[:3] == saved.messages
    assert [m.role for m in ended.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [m.tool.exit_code for m in ended.messages if m.tool] == [0, 3]


def test_a_summary_is_not_said() -> None:
    """What a compaction left in place of the conversation is nobody's message."""
    event = {"user": "Where is it?", "messages": [SUMMARY, ANSWER]}
    assert [m.role for m in run_of(translate("sync_turn", event)).messages] == ["assistant"]


def test_a_failed_turn() -> None:
    """A turn that ended without an answer is stored as a run that failed."""
    call = translate("unfinished_turn", {"messages": [USER], "failed": True})
    assert run_of(call).success is False
    assert run_of(translate("sync_turn", {"messages": [USER, ANSWER]})).success is True


def test_delegation() -> None:
    """A sub-agent's task and result stand in a ledger of its own, linked to the session."""
    call = translate("on_delegation", SAMPLES["mp.on_delegation"])
    assert call is not None
    assert call.context.agent_id == "hermes.default.subagent"
    assert call.context.parent == "s1"
    assert call.context.session_id == SAMPLES["mp.on_delegation"]["child_session_id"]
    assert [m.role for m in run_of(call).messages] == ["user", "assistant"]


@pytest.mark.parametrize("platform", ["cron", "curator"])
def test_nobody_asked(platform: str) -> None:
    """What nobody asked for is neither answered nor stored."""
    assert translate("prefetch", {"query": "?"}, platform=platform) is None
    assert translate("sync_turn", {"messages": [USER]}, platform=platform) is None


@each_case(
    ("context", "sender"),
    [
        ({}, None),
        ({"user_id": "42"}, "telegram:42"),
        ({"user_id": "42", "chat_type": "dm", "chat_id": "42"}, "telegram:42"),
        ({"user_id": "43", "chat_type": "dm", "chat_id": "43"}, "telegram:43"),
        ({"user_id": "42", "user_id_alt": "u-7", "chat_type": "dm"}, "telegram:u-7"),
        ({"user_id": "42", "chat_type": "group"}, "telegram:42"),
        ({"user_name": "Mara", "chat_type": "channel"}, "telegram:Mara"),
        ({"chat_type": "group", "chat_id": "-100"}, "telegram:group:-100"),
        ({"chat_type": "dm", "chat_id": "9"}, "telegram:dm:9"),
        ({"chat_type": "group"}, "telegram:group"),
    ],
)
def test_senders(context: Mapping[str, Any], sender: str | None) -> None:
    """Each person in a chat is kept apart, in a direct message, too; at a terminal is the owner."""
    call = translate("prefetch", {"query": "?"}, **{"platform": "telegram", **context})
    assert call is not None
    assert call.context.sender == sender


CONTENT = st.one_of(st.none(), st.text(), st.lists(st.fixed_dictionaries({"text": st.text()})))
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": CONTENT},
        optional={"tool_call_id": st.text(max_size=2), "name": st.text()},
    )
)


@given(messages=MESSAGES, user=st.text())
def test_any_messages(messages: list[dict[str, Any]], user: str) -> None:
    """Whatever Hermes sends is translated or refused as a message; the run begins with a user."""
    try:
        call = translate("sync_turn", {"messages": messages, "user": user})
    except MessageError:
        return
    if call is not None and any(m.role == "user" for m in run_of(call).messages):
        assert run_of(call).messages[0].role == "user"


@given(before=MESSAGES, now=MESSAGES)
def test_merging(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> None:
    """What was told before keeps its place, nothing new is lost, and merging twice is as once."""
    once = merge_turn(before, now)
    assert once[: len(before)] == before
    assert all(message in once for message in now if message not in before) or before
    assert merge_turn(once, now) == once or not before


# -- the provider in Hermes' process ------------------------------------------------------------


class Wire:
    """A resident's socket that takes note of every request, and answers as it is told to."""

    def __init__(self, home: Path) -> None:
        self.sent: list[dict[str, Any]] = []
        self.answer: Any = None
        self.hangs_up = False
        path = socket_path(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return what was sent under a name."""
        return [request for request in self.sent if request.get("name") == name]

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                request = json.loads(line)
                self.sent.append({"method": request["method"], **request["params"]})
                if self.hangs_up:
                    return
                if "id" not in request:
                    continue
                response = {"jsonrpc": "2.0", "id": request["id"], "result": self.answer}
                connection.sendall(json.dumps(response).encode() + b"\n")


@pytest.fixture
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return Hermes' folder, with a configuration that names a project."""
    folder = tmp_path / "hermes"
    folder.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(folder))
    config = {"command": ["memtier-that-is-not-there"], "project": "p"}
    (folder / "memtier.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def wire(home: Path) -> Iterator[Wire]:
    """Listen where the resident of the home does."""
    server = Wire(home)
    yield server
    server.close()


@pytest.fixture
def provider(hermes_home: Path, wire: Wire) -> Iterator[hermes.Provider]:
    """Return a provider in a session."""
    created = hermes.Provider()
    created.initialize(**{**SAMPLES["mp.initialize"], "hermes_home": str(hermes_home)})
    for thread in threading.enumerate():
        if thread.name == "memtier-warm-up":
            thread.join()
    yield created
    created.shutdown()


def turn(provider: hermes.Provider, number: int, text: str) -> None:
    """Let a turn begin as Hermes does."""
    provider.on_turn_start(number, text)
    provider.prefetch(text, session_id="")


def test_recall_and_run_are_of_one_run(provider: hermes.Provider, wire: Wire) -> None:
    """What is recalled for a turn and what is stored of it have one run id, of one session."""
    wire.answer = {"prepend_context": "BLOCK", "recall_id": "x"}
    provider.on_turn_start(1, "Where?")
    assert provider.prefetch("Where?", session_id="") == "BLOCK"
    provider.sync_turn("Where?", "There.", session_id="", messages=[USER, ANSWER])
    [prefetch], [stored] = wire.named("prefetch"), wire.named("sync_turn")
    assert prefetch["context"]["run_id"] == stored["context"]["run_id"] is not None
    assert prefetch["context"]["session_id"] == SAMPLES["mp.initialize"]["session_id"]
    assert PROMPT_SECONDS < 8


def test_turns_have_runs_of_their_own(provider: hermes.Provider, wire: Wire) -> None:
    """The same words twice are two runs, and so are the first turns of two processes."""
    for number in (1, 2):
        turn(provider, number, "Again?")
        provider.sync_turn("Again?", "Yes.", messages=[])
    assert len({request["context"]["run_id"] for request in wire.named("sync_turn")}) == 2
    other = hermes.Provider()
    assert other._start != provider._start


def test_a_late_sync_is_of_its_own_turn(provider: hermes.Provider, wire: Wire) -> None:
    """A turn told of after the next one began has its own run, and not the next one's tools."""
    turn(provider, 1, "One?")
    turn(provider, 2, "Two?")
    provider.note_tool(SAMPLES["post_tool_call:terminal:ok"])
    provider.sync_turn("One?", "1", messages=[])
    provider.sync_turn("Two?", "2", messages=[])
    first, second = wire.named("sync_turn")
    assert first["event"]["tools"] == []
    assert [tool["tool_name"] for tool in second["event"]["tools"]] == ["terminal"]
    assert first["context"]["run_id"] == wire.named("prefetch")[0]["context"]["run_id"]


def test_our_own_words_do_not_come_back(provider: hermes.Provider, wire: Wire) -> None:
    """What Hermes keeps beside a message (`api_content`, with our block in it) is not sent."""
    messages = SAMPLES["mp.sync_turn"]["messages"]
    assert "api_content" in messages[0]
    provider.sync_turn("RUN-TOOLS please", "Done.", messages=messages)
    assert "memory-context" not in json.dumps(wire.sent)


def test_a_subagents_tools_are_its_own(provider: hermes.Provider, wire: Wire) -> None:
    """Tool calls of another session are not this turn's."""
    turn(provider, 1, "Go.")
    provider.note_tool(SAMPLES["post_tool_call:terminal:ok"] | {"session_id": "a child"})
    provider.sync_turn("Go.", "Done.", messages=[])
    assert wire.named("sync_turn")[0]["event"]["tools"] == []


def test_large_results_are_cut(provider: hermes.Provider, wire: Wire) -> None:
    """A live result of megabytes is kept to its beginning: the message has the rest."""
    turn(provider, 1, "Go.")
    large = SAMPLES["post_tool_call:terminal:ok"] | {"result": "x" * 5_000_000}
    provider.note_tool(large)
    provider.sync_turn("Go.", "Done.", messages=[])
    assert len(json.dumps(wire.sent)) < 2 * hermes.MAX_RESULT_CHARS


def test_what_was_before_a_compaction_is_sent(provider: hermes.Provider, wire: Wire) -> None:
    """The messages that a compaction took from a turn go with it, so that it is stored once."""
    turn(provider, 1, str(USER["content"]))
    before = [USER, asks("c1"), answers("c1", "...")]
    assert provider.on_pre_compress(before) == ""
    provider.on_pre_compress([USER, asks("c2")])
    provider.sync_turn(str(USER["content"]), "x", messages=[SUMMARY, USER, ANSWER])
    saved, [stored] = wire.named("on_pre_compress"), wire.named("sync_turn")
    assert saved[0]["context"]["run_id"] == stored["context"]["run_id"]
    assert stored["event"]["before"] == [*before, asks("c2")]
    turn(provider, 2, "Next?")
    provider.sync_turn("Next?", "x", messages=[])
    assert wire.named("sync_turn")[1]["event"]["before"] == []


def test_a_turn_that_failed_is_told_at_the_end(provider: hermes.Provider, wire: Wire) -> None:
    """Hermes tells nothing of a turn that failed hard; the session's end has its messages."""
    turn(provider, 1, "Where is my bag?")
    provider.on_session_end([USER])
    assert [request["name"] for request in wire.sent][-2:] == ["unfinished_turn", "session_end"]
    turn(provider, 2, "Well?")
    provider.sync_turn("Well?", "Well.", messages=[USER, ANSWER])
    provider.on_session_end([USER, ANSWER])
    assert len(wire.named("unfinished_turn")) == 1


def test_a_switch_of_sessions(provider: hermes.Provider, wire: Wire) -> None:
    """Another session is another one of ours; a compaction goes on in the same."""
    same = SAMPLES["dual.on_session_switch"] | {"new_session_id": provider._context["session_id"]}
    before = len(wire.sent)
    provider.on_session_switch(**same)
    assert len(wire.sent) == before
    provider.on_session_switch("another", parent_session_id="x", reset=True)
    assert [request["name"] for request in wire.sent[before:]] == ["session_end", "session_start"]
    assert wire.sent[-1]["context"]["session_id"] == "another"


def test_no_resident_costs_no_turn(
    provider: hermes.Provider, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a resident nothing is recalled, a tool says so, and the user is told once."""
    wire.hangs_up = True
    wire.close()
    for number in range(3):
        provider.on_turn_start(number, "?")
        assert provider.prefetch("?") == ""
    assert "memtier-that" in json.loads(provider.handle_tool_call("memtier_search", {}))["error"]
    assert capsys.readouterr().err.count("no recall") == 1


@pytest.mark.parametrize("hidden", [False, True])
def test_a_missing_command_is_told_in_the_turn(
    hermes_home: Path, home: Path, capfd: pytest.CaptureFixture[str], hidden: bool
) -> None:
    """The user is told once what is missing and what to do, also where Hermes hides all else."""
    (hermes_home / "memtier.json").write_text(
        json.dumps({"command": ["memtier-that-is-gone"], "home": str(home), "project": "p"})
    )
    warned: list[str] = []
    provider = hermes.Provider()
    provider.initialize("s", hermes_home=str(hermes_home), warning_callback=warned.append)
    logging.disable(logging.CRITICAL if hidden else logging.NOTSET)
    try:
        for number in range(2):
            provider.on_turn_start(number, "Where?")
            assert provider.prefetch("Where?") == ""
    finally:
        logging.disable(logging.NOTSET)
        provider.shutdown()
    captured = capfd.readouterr().err.splitlines()
    warnings = [line for line in (captured if hidden else warned) if "no recall" in line]
    assert len(warnings) == 1
    assert "runs wait in" in warnings[0] and "'memtier-that-is-gone' is not there" in warnings[0]


def test_where_the_command_is_looked_for(
    tmp_path: Path, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing names the command, it is the checkout's, one on the path, or install.sh's."""
    (hermes_home / "memtier.json").unlink()
    checkout = tmp_path / "plugins" / "memtier"
    monkeypatch.setattr(hermes_settings, "__file__", str(checkout / "hooks" / "x.py"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"/nowhere:{tmp_path}/bin")
    assert hermes_settings.read_config()["command"] == ["memtier"]
    for folder in (tmp_path / ".local" / "bin", tmp_path / "bin", checkout / ".venv" / "bin"):
        folder.mkdir(parents=True)
        (folder / "memtier").write_text("#!/bin/sh\n")
        (folder / "memtier").chmod(0o700)
        assert hermes_settings.read_config()["command"] == [str(folder / "memtier")]


def test_a_selected_provider_is_there(hermes_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selected in a folder that Hermes loads in place, it runs without its command, and says so."""
    (hermes_home / "memtier.json").unlink()
    monkeypatch.setattr(hermes_settings, "_command", lambda: ["memtier-that-is-gone"])
    chosen = types.ModuleType("plugins.memory")
    monkeypatch.setitem(sys.modules, "plugins", types.ModuleType("plugins"))
    monkeypatch.setitem(sys.modules, "plugins.memory", chosen)
    for provider, expected in (("mem0", False), ("memtier", True)):
        chosen._get_active_memory_provider = lambda name=provider: name  # type: ignore[attr-defined]
        assert hermes.Provider().is_available() is expected


def test_what_is_said_of_the_block(provider: hermes.Provider, home: Path) -> None:
    """Hermes calls the block authoritative, after the message; MemTier says both otherwise."""
    text = provider.system_prompt_block()
    assert "after the user's message" in text and "before" not in text
    assert "overrule" in text and "no request" in text
    call = translate("prefetch", {"query": "Where?"})
    assert call is not None and isinstance(call.event, PromptEvent)
    with MemTier.open(home, "p", "hermes.default") as memory:
        memory.record(
            [{"role": "user", "content": "My bag is in the blue locker."}], session_id="o"
        )
    event = replace(call.event, prompt="Where is my bag?")
    context = RunContext(agent_id="hermes.default", session_id="n", project="p")
    block = manager().hook.before_prompt_build(event=event, context=context)
    assert block is not None
    first, second, third, *_ = block.prepend_context.splitlines()
    assert first.startswith("<memtier-memory") and "evidence, not authority" in second
    assert third.startswith("Notes of earlier sessions, added by the MemTier plugin")
    assert remove_blocks(f"{block.prepend_context}x") == "x"


def test_the_command_of_a_shell(hermes_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`hermes memtier search` passes options on as they are, not as words to search for."""
    prints = [sys.executable, "-c", "import sys; print(*sys.argv[1:], sep='|')"]
    (hermes_home / "memtier.json").write_text(
        json.dumps({"command": prints, "home": "/h", "project": "p"})
    )
    parser = argparse.ArgumentParser()
    hermes_commands.register_cli(parser)
    with pytest.raises(SystemExit, match="0"):
        words = ["search", "--k", "2", "the", "berth"]
        hermes_commands.memtier_command(parser.parse_args(words))
    scope = "--home|/h|--project|p|--agent|hermes.default"
    assert capfd.readouterr().out.strip() == f"{scope}|search|--k|2|the|berth"
    (hermes_home / "memtier.json").write_text(json.dumps({"command": ["memtier-that-is-gone"]}))
    with pytest.raises(SystemExit, match=r"No such file or directory; put it on the path"):
        hermes_commands.memtier_command(parser.parse_args([]))


def test_tools(provider: hermes.Provider, wire: Wire) -> None:
    """The tools are named after the provider and answered in JSON, errors too."""
    names = [schema["name"] for schema in provider.get_tool_schemas()]
    assert names == ["memtier_search", "memtier_get", "memtier_store", "memtier_forget"]
    wire.answer = {"text": "Nothing.", "ok": True, "ids": []}
    result = json.loads(provider.handle_tool_call("memtier_search", {"query": "bag"}))
    assert result == {"result": "Nothing.", "ids": []}
    sent = wire.named("memtier_search")[0]
    assert (sent["method"], sent["arguments"]) == ("tool", {"query": "bag"})
    wire.answer = {"text": "no such id", "ok": False, "ids": []}
    assert json.loads(provider.handle_tool_call("memtier_get", {"id": "x"})) == {
        "error": "no such id"
    }


def test_before_initialize(hermes_home: Path) -> None:
    """A provider that was never initialised, as `memory status` makes one, does no harm."""
    idle = hermes.Provider()
    assert idle.is_available(), "it is set up, though nobody can be started now"
    assert idle.prefetch("?") == ""
    assert "not initialised" in idle.handle_tool_call("memtier_search", {})
    idle.sync_turn("a", "b")
    idle.on_session_end()
    idle.shutdown()
    assert idle.get_status_config()["project"] == "p"


def test_configuration(hermes_home: Path) -> None:
    """What `hermes memory setup` asks for is kept where the provider reads it, 0600."""
    idle = hermes.Provider()
    assert [field["key"] for field in idle.get_config_schema()] == ["project", "home", "command"]
    idle.save_config({"project": "q", "command": "python -m memtier_plugin"}, str(hermes_home))
    saved = hermes_settings.read_config()
    assert (saved["project"], saved["command"]) == ("q", ["python", "-m", "memtier_plugin"])
    assert hermes_settings.config_path().stat().st_mode & 0o777 == 0o600


def test_hermes_environment_needs_nothing_of_ours(tmp_path: Path) -> None:
    """The folder loads, and its provider works, with the standard library alone."""
    config = {"command": ["/nowhere/memtier"], "home": str(tmp_path / "h")}
    (tmp_path / "memtier.json").write_text(json.dumps(config))
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('m', {str(ROOT / '__init__.py')!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "class Ctx:\n"
        "    def register_memory_provider(self, provider): self.provider = provider\n"
        "ctx = Ctx(); module.register(ctx)\n"
        f"ctx.provider.initialize('s', hermes_home={str(tmp_path)!r})\n"
        "print(ctx.provider.name, ctx.provider.prefetch('?') == '')\n"
        "ctx.provider.sync_turn('a', 'b'); ctx.provider.shutdown()\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nowhere", "MEMTIER_HOME": str(tmp_path / "h")},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["memtier", "True"]
    assert list((tmp_path / "h" / "queue").glob("*.json")), "the run waits for a resident"


@pytest.fixture
def attached() -> Iterator[Callable[..., hermes.Provider]]:
    """Return what makes the provider of a session, which Hermes tells of calls and commands."""
    before, kept = list(hermes_settings._attached), []

    def attach(session: str, **chat: str) -> hermes.Provider:
        made = hermes.Provider()
        made.initialize(session, **chat)
        hermes_settings._attached.append(weakref.ref(made))  # Hermes is not here
        kept.append(made)
        return made

    hermes_settings._attached.clear()
    yield attach
    for made in kept:
        made.shutdown()
    hermes_settings._attached[:] = before


def test_each_provider_is_told_of_its_own_calls(
    provider: hermes.Provider, attached: Callable[..., hermes.Provider]
) -> None:
    """Hermes has a provider for each session, and a new one for some: the newest has the calls."""
    details = SAMPLES["post_tool_call:terminal:ok"]
    made = [attached(session) for session in ("a", "b", "b")]
    for session in ("a", "b", "a sub-agent's"):
        hermes_settings._on_tool_call(**details | {"session_id": session})
    assert [len(each._tool_calls) for each in made] == [1, 0, 1]
    del made
    assert provider._tool_calls == []


def commands(wire: Wire) -> list[dict[str, Any]]:
    """Return the commands that were sent."""
    return [request for request in wire.sent if request["method"] == "command"]


def message(**source: str) -> types.SimpleNamespace:
    """Return a message as Hermes' gateway shows it to plugins."""
    platform = types.SimpleNamespace(value="telegram")
    return types.SimpleNamespace(source=types.SimpleNamespace(platform=platform, **source))


def test_whose_command_it_is(
    provider: hermes.Provider, wire: Wire, home: Path, attached: Callable[..., hermes.Provider]
) -> None:
    """`/memtier` is answered for the person who typed it, whoever spoke to Hermes last."""
    wire.answer = {"text": "done", "ok": True}
    people = {
        name: {"chat_type": "dm", "chat_id": name, "user_id": name} for name in ("ann", "bob")
    }
    attached("a", platform="telegram", agent_identity="work", **people["ann"])
    attached("b", platform="telegram", agent_identity="work", **people["bob"])
    cleo = {"chat_type": "dm", "chat_id": "cleo", "user_id": "cleo", "user_name": "Cleo"}

    def ask(**source: str) -> Any:
        hermes_settings._on_message(event=message(**source))
        assert hermes_settings._answer_command("review") == "done"
        context = commands(wire)[-1]["context"]
        sender = HermesTranslator(home).context(context, RunContext(agent_id="")).sender
        return sender, context.get("session_id"), context["agent_identity"]

    def run() -> None:
        assert hermes_settings._answer_command("review").startswith("MemTier cannot tell who asks")
        assert ask(**people["ann"]) == ("telegram:ann", "a", "work")
        assert ask(**people["bob"]) == ("telegram:bob", "b", "work")
        assert ask(**cleo) == ("telegram:cleo", None, "work")

    contextvars.copy_context().run(run)


def test_a_command_at_a_terminal(
    provider: hermes.Provider, wire: Wire, attached: Callable[..., hermes.Provider]
) -> None:
    """At a terminal `/memtier` is the owner's; before the first message there is no session."""
    assert hermes_settings._answer_command().startswith("MemTier begins with the first message")
    attached("t", platform="cli")
    wire.answer = {"text": "done", "ok": True}
    assert hermes_settings._answer_command("") == "done"
    assert commands(wire)[-1]["context"]["session_id"] == "t"


def _kinds(sent: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(request["name"]) for request in sent]


def test_a_session_is_begun(provider: hermes.Provider, wire: Wire) -> None:
    """The resident is warmed up when a session begins, aside from the host's thread."""
    assert _kinds(wire.sent)[0] == "session_start"


def fetched(tool: str, arguments: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return a call and its result as Hermes keeps them."""
    function = {"name": tool, "arguments": json.dumps(arguments or {})}
    call = {"id": "c", "type": "function", "function": function}
    result = {
        "role": "tool",
        "name": tool,
        "tool_call_id": "c",
        "content": '{"content": "A page."}',
    }
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, result]


@each_case(
    ("messages", "origin"),
    [
        (fetched("web_extract", {"urls": ["https://a.example"]}), "external"),
        (fetched("web_search", {"query": "a"}), "external"),
        (fetched("browser_snapshot"), "external"),
        (fetched("mcp_github_get_issue", {"number": 1}), "external"),
        (fetched("delegate_task", {"goal": "Read up on it."}), "external"),
        (fetched("execute_code", {"code": "from hermes_tools import web_extract"}), "external"),
        (fetched("execute_code", {"code": "print(17 * 23)"}), "tool"),
        (fetched("terminal", {"command": "wget -qO- http://a.example"}), "external"),
        (fetched("terminal", {"command": "git log --oneline"}), "tool"),
        (fetched("read_file", {"path": "notes.md"}), "tool"),
        (fetched("memory", {"action": "add"}), "tool"),
    ],
)
def test_results_that_strangers_wrote_are_external(
    messages: list[dict[str, Any]], origin: str
) -> None:
    """The result of a tool that reaches out is external."""
    event = {"user": USER["content"], "messages": [USER, *messages, ANSWER]}
    run = run_of(translate("sync_turn", event))
    assert [message.origin for message in run.messages if message.role == "tool"] == [origin]


def test_a_turn_knows_the_external_text_before_it() -> None:
    """The external text of earlier turns, and of calls that a compaction took, comes along."""
    asked = {"role": "user", "content": "And now?"}
    live = {"tool_name": "web_search", "tool_call_id": "z", "args": "{}", "result": "Lost."}
    messages = [USER, *fetched("web_extract"), ANSWER, asked, ANSWER]
    event = {"user": "And now?", "messages": messages, "tools": [live]}
    assert run_of(translate("sync_turn", event)).seen == ("Lost.", '{"content": "A page."}')
