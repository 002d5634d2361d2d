"""OpenClaw's payloads as measured: whose run it is, what belongs to it, and how it fared."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.results import HookCall, PromptEvent, RunContext, ToolCallEvent
from memtier_plugin.hooks import openclaw_payloads
from memtier_plugin.hooks.openclaw_payloads import (
    SESSION_IDLE,
    OpenClawSessions,
    OpenClawTranslator,
)
from tests.hooks.test_hermes_payloads import run_of

PAYLOADS = Path(__file__).parents[1] / "payloads" / "openclaw"
NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
KEY = "agent:main:main"
USER = {"role": "user", "content": "Where is my bag?"}


@pytest.fixture
def translator(home: Path) -> OpenClawTranslator:
    """Return a translator of an empty home."""
    return OpenClawTranslator(home)


def captured(name: str) -> list[dict[str, Any]]:
    """Return the payloads of a capture."""
    samples: list[dict[str, Any]] = json.loads((PAYLOADS / f"{name}.json").read_text("utf-8"))
    return samples


def translate(
    translator: OpenClawTranslator,
    name: str,
    event: dict[str, Any],
    context: dict[str, Any] | None = None,
    now: datetime | None = None,
) -> HookCall | None:
    """Translate one payload, of the main conversation unless the context says otherwise."""
    fields = {"agentId": "main", "sessionKey": KEY, "runId": "r1", "trigger": "user"}
    return translator.translate(
        name, event, fields | (context or {}), RunContext(agent_id="", project="p"), now
    )


def replayed(translator: OpenClawTranslator, name: str) -> list[HookCall | None]:
    """Translate a capture, payload by payload."""
    base = RunContext(agent_id="", project="p")
    return [
        translator.translate(sample["hook"], sample["event"], sample["ctx"], base, at(sample["t"]))
        for sample in captured(name)
    ]


def at(milliseconds: int) -> datetime:
    """Return a time as the host writes it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def prompt_of(call: HookCall | None) -> str | None:
    """Return the prompt of a call, or None where nothing is to be recalled."""
    assert call is None or isinstance(call.event, PromptEvent)
    return call.event.prompt if call else None  # type: ignore[union-attr]


def session(translator: OpenClawTranslator, now: datetime, key: str = KEY) -> str | None:
    """Return the session of ours that a prompt at this time belongs to."""
    call = translate(translator, "before_prompt_build", {"prompt": "?"}, {"sessionKey": key}, now)
    assert call is not None
    return call.context.session_id


def test_a_prompt(translator: OpenClawTranslator) -> None:
    """The prompt, the agent as host.agent, session, run and workspace are what the host says."""
    [call] = replayed(translator, "local-turn1-before_prompt_build")
    assert prompt_of(call) == "Hello, what is my name?"
    assert call is not None
    assert call.context == RunContext(
        agent_id="openclaw.main",
        session_id=KEY,
        run_id=captured("local-turn1-before_prompt_build")[0]["ctx"]["runId"],
        project="p",
        workspace="<proof>/ws",
    )


def test_only_this_turn(translator: OpenClawTranslator) -> None:
    """Of the session's messages only those since the last user message are this run's."""
    [call] = replayed(translator, "local-turn2-tools-agent_end")
    spoken = run_of(call).messages
    assert [m.content for m in spoken if m.role == "user"] == ["CALL_TOOLS please"]
    assert spoken[0].role == "user"
    assert all("what is my name" not in message.content for message in spoken)


def test_exit_codes_decide(translator: OpenClawTranslator) -> None:
    """A command that ends in exit code 3 failed though the host has no error; 0 is well."""
    [call] = replayed(translator, "local-turn2-tools-agent_end")
    tools = [m.tool for m in run_of(call).messages if m.tool]
    fared = [(tool.name, tool.ok, tool.exit_code) for tool in tools]
    assert fared[:4] == [
        ("read", True, None),
        ("read", False, None),
        ("exec", True, 0),
        ("exec", False, 3),
    ]
    assert all(ok is False for name, ok, _ in fared if name == "probe_tool")


def test_tool_calls_keep_their_arguments(translator: OpenClawTranslator) -> None:
    """What the model gave to a tool is kept: attribution compares it with what was injected."""
    [call] = replayed(translator, "local-turn2-tools-agent_end")
    calls = [call for message in run_of(call).messages for call in message.tool_calls]
    assert "does-not-exist.txt" in " ".join(call.arguments for call in calls)


def test_attempts_of_one_run(translator: OpenClawTranslator) -> None:
    """Each attempt recalls for what the user asked, and a run whose model failed is a failed one.

    The host says success, and gives later attempts a canned prompt.
    """
    prompts = replayed(translator, "llm-failure-before_prompt_build-all-attempts")
    assert [prompt_of(call) for call in prompts] == ["FAIL_LLM please"] * 3
    ends = replayed(translator, "llm-failure-agent_end-all-attempts")
    assert len({call.context.run_id for call in [*prompts, *ends] if call}) == 1
    for end in map(run_of, ends):
        assert [(m.role, m.content) for m in end.messages] == [("user", "FAIL_LLM please")]
        assert (end.success, end.error) == (False, "500 mock server error")


def test_the_attempt_that_succeeds(translator: OpenClawTranslator) -> None:
    """What the host tells the model to go on with is nobody's message; places stay the same."""
    failed = {"role": "assistant", "content": [], "stopReason": "error", "errorMessage": "500"}
    retry = {"role": "user", "content": "Continue the current task from the existing transcript."}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "In the locker."}]}
    first = run_of(translate(translator, "agent_end", {"messages": [USER, failed]}))
    last = run_of(translate(translator, "agent_end", {"messages": [USER, failed, retry, answer]}))
    assert not first.success
    assert last.success
    assert [m.content for m in last.messages] == ["Where is my bag?", "In the locker."]
    assert last.messages[: len(first.messages)] == first.messages


def test_a_retry_whose_question_is_not_known(translator: OpenClawTranslator) -> None:
    """After a restart in the middle of a run the canned prompt recalls nothing."""
    text = "Continue the current task from the existing transcript, preserving completed work."
    assert translate(translator, "before_prompt_build", {"prompt": text}) is None


def test_subagents(translator: OpenClawTranslator) -> None:
    """A sub-agent writes a ledger of its own, linked to who started it; of its prompt the task."""
    replayed(translator, "subagent-events")
    [call] = replayed(translator, "subagent-child-before_prompt_build")
    [ended] = replayed(translator, "subagent-child-agent_end")
    assert prompt_of(call) == "Say CHILD-HELLO"
    assert ended is not None
    assert run_of(ended).messages[0].content == "Say CHILD-HELLO"
    assert ended.context.agent_id == "openclaw.main.subagent"
    assert ended.context.parent == "agent:main:subtest"


def test_a_subagent_that_nobody_announced(translator: OpenClawTranslator) -> None:
    """Without its spawning a sub-agent is one all the same: its key tells whose."""
    [ended] = replayed(translator, "subagent-child-agent_end")
    assert ended is not None
    assert ended.context.parent == "agent:main"


def test_a_subagents_parent_outlives_the_resident(home: Path) -> None:
    """Who started a sub-agent is known to the resident that is started next."""
    replayed(OpenClawTranslator(home), "subagent-events")
    [ended] = replayed(OpenClawTranslator(home), "subagent-child-agent_end")
    assert ended is not None
    assert ended.context.parent == "agent:main:subtest"


def test_announcements_are_nobodys_words(translator: OpenClawTranslator) -> None:
    """The turn in which a child's end is announced recalls nothing and stores no user message."""
    assert replayed(translator, "subagent-announce-before_prompt_build") == [None]
    [ended] = replayed(translator, "subagent-announce-agent_end")
    assert [message.role for message in run_of(ended).messages] == ["tool", "assistant"]
    assert run_of(ended).messages[0].tool is not None


@pytest.mark.parametrize("kind", ["inter_session", "internal_system"])
def test_between_sessions(translator: OpenClawTranslator, kind: str) -> None:
    """What another session or the host itself says is no user's, whatever the run is called."""
    context = {"inputProvenance": {"kind": kind}}
    assert translate(translator, "before_prompt_build", {"prompt": "Report."}, context) is None
    ended = run_of(translate(translator, "agent_end", {"messages": [USER]}, context))
    assert [message.role for message in ended.messages] == ["tool"]
    person = {"inputProvenance": {"kind": "external_user"}}
    assert prompt_of(translate(translator, "before_prompt_build", {"prompt": "Hi"}, person)) == "Hi"


def test_a_call(translator: OpenClawTranslator) -> None:
    """A call yet to be made has the tool and the arguments as a run's record has them."""
    event = {"toolName": "exec", "params": {"command": "yarn add lodash"}, "toolCallId": "c1"}
    call = translate(translator, "before_tool_call", event)
    assert call is not None and call.hook == "before_tool_call"
    assert call.event == ToolCallEvent(tool="exec", arguments='{"command": "yarn add lodash"}')
    assert translate(translator, "before_tool_call", {}) is not None


@pytest.mark.parametrize("trigger", ["cron", "heartbeat"])
@pytest.mark.parametrize("name", ["before_prompt_build", "agent_end", "before_compaction"])
def test_nobody_asked(translator: OpenClawTranslator, trigger: str, name: str) -> None:
    """Turns of cron and heartbeat neither recall nor are stored."""
    event = {"prompt": "Check the mail.", "messages": [USER]}
    assert translate(translator, name, event, {"trigger": trigger}) is None


def test_a_compaction(translator: OpenClawTranslator) -> None:
    """A compaction without messages stores no line; its summary is never a part of a run."""
    [compacted] = [call for call in replayed(translator, "compaction-hooks") if call]
    assert (compacted.hook, compacted.context.session_id) == (
        "before_compaction",
        "agent:main:comp",
    )
    assert run_of(compacted).messages == ()
    call, ended = replayed(translator, "after-compaction-turn")
    assert prompt_of(call) == "after compaction turn"
    assert [m.role for m in run_of(ended).messages] == ["user", "assistant"]
    assert "Latest user request" not in str(run_of(ended).messages)


def test_a_compaction_in_the_middle_of_a_run(translator: OpenClawTranslator) -> None:
    """The messages of a run that a compaction is about to drop are stored under its id."""
    call = translate(translator, "before_compaction", {"messages": [USER]})
    assert call is not None
    assert (call.hook, call.context.run_id) == ("before_compaction", "r1")
    between = translate(translator, "before_compaction", {"messages": [USER]}, {"runId": None})
    assert run_of(between).messages == ()


def test_a_reset_begins_a_session(translator: OpenClawTranslator) -> None:
    """A reset ends the session though the host keeps its id; a shutdown does not."""
    when = at(captured("reset-and-shutdown")[0]["t"])
    before = session(translator, when, "agent:main:subtest")
    calls = replayed(translator, "reset-and-shutdown")
    assert [call.hook for call in calls if call][:2] == ["session_end", "session_start"]
    assert next(call.context.session_id for call in calls if call) == before
    after = session(translator, when, "agent:main:subtest")
    assert (before, after) == ("agent:main:subtest", "agent:main:subtest#2")


def test_six_idle_hours_begin_a_session(translator: OpenClawTranslator) -> None:
    """A conversation goes on within six hours of silence, and is another one after them."""
    assert session(translator, NOON) == KEY
    assert session(translator, NOON + SESSION_IDLE) == KEY
    assert session(translator, NOON + 2 * SESSION_IDLE) == KEY
    assert session(translator, NOON + 3 * SESSION_IDLE + timedelta(seconds=1)) == f"{KEY}#2"


def test_sessions_outlive_the_resident(home: Path) -> None:
    """A resident that is started anew goes on with the same sessions."""
    first = OpenClawTranslator(home)
    session(first, NOON)
    translate(first, "session_end", {"reason": "reset"}, now=NOON)
    assert session(OpenClawTranslator(home), NOON) == f"{KEY}#2"


def test_a_broken_memory_of_sessions(home: Path) -> None:
    """A file of sessions that cannot be read is begun anew; nothing fails."""
    session(OpenClawTranslator(home), NOON)
    (home / "hosts" / "openclaw.json").write_text("{")
    assert session(OpenClawTranslator(home), NOON) == KEY


def test_a_run_that_waited_belongs_to_its_own_time(translator: OpenClawTranslator) -> None:
    """A run delivered hours late is of the session in which it was said."""
    when = int(NOON.timestamp() * 1000)
    call = translate(translator, "agent_end", {"messages": [USER | {"timestamp": when}]})
    assert call is not None
    assert session(translator, NOON + timedelta(hours=1)) == call.context.session_id == KEY


@pytest.mark.parametrize(
    ("key", "sender"),
    [
        (KEY, None),
        ("agent:main:openai:5f0c7a52-3f5e-4d36-8a53-6a4ad4d5a0f1", None),
        ("agent:main:openai-user:ann", "http:ann"),
        ("agent:ops:openresponses-user:Bob@Example.org:2", "http:bob@example.org:2"),
        ("agent:main:direct:mara", "direct:mara"),
        ("agent:main:telegram:direct:42", "telegram:direct:42"),
        ("agent:main:slack:work:direct:u7:thread:9", "slack:work:direct:u7"),
        ("agent:main:telegram:group:-100", "telegram:42"),
        ("agent:main:discord:channel:7:thread:9", "telegram:42"),
    ],
)
def test_senders(translator: OpenClawTranslator, key: str, sender: str | None) -> None:
    """Whom OpenClaw tells apart is a person: by the session's key, in a group by the message."""
    context = {"sessionKey": key, "senderId": "42", "channel": "telegram"}
    call = translate(translator, "agent_end", {"messages": [USER]}, context)
    assert call is not None
    assert call.context.sender == sender


def test_a_group_without_a_sender(translator: OpenClawTranslator) -> None:
    """What nobody is named for in a group is the group's, and not the owner's."""
    key = "agent:main:signal:group:g1"
    call = translate(translator, "agent_end", {"messages": [USER]}, {"sessionKey": key})
    assert call is not None
    assert call.context.sender == key


@pytest.mark.parametrize(
    ("parent", "sender"),
    [
        (KEY, None),
        ("agent:main:openai-user:ann", "http:ann"),
        ("agent:main:signal:group:g1", "agent:main:signal:group:g1"),
    ],
)
def test_the_sender_of_a_sub_agent(
    translator: OpenClawTranslator, parent: str, sender: str | None
) -> None:
    """A sub-agent works for the person whose session started it."""
    child = "agent:main:subagent:1b7e6430"
    translate(
        translator, "subagent_spawned", {"childSessionKey": child}, {"requesterSessionKey": parent}
    )
    call = translate(translator, "agent_end", {"messages": [USER]}, {"sessionKey": child})
    assert call is not None
    assert (call.context.parent, call.context.sender) == (parent, sender)


def test_thinking_is_not_kept(translator: OpenClawTranslator) -> None:
    """A model's thinking is no part of what it said."""
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Here."}]
    ended = run_of(
        translate(translator, "agent_end", {"messages": [{"role": "assistant", "content": parts}]})
    )
    assert [message.content for message in ended.messages] == ["Here."]


def test_messages_that_are_none(translator: OpenClawTranslator) -> None:
    """What cannot be a message is refused, so that it is not tried for ever."""
    with pytest.raises(MessageError, match="neither text nor parts"):
        translate(translator, "agent_end", {"messages": [{"role": "user", "content": 3}]})


def test_what_is_kept_in_mind_is_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with ever new session keys does not grow the resident without end."""
    monkeypatch.setattr(openclaw_payloads, "MAX_KEPT", 50)
    conversations = OpenClawSessions(home / "none" / "openclaw.json")
    for number in range(60):
        conversations.first_prompt(f"run {number}", "?")
        conversations.session_id(f"key {number}", NOON)
    assert len(conversations._prompts) == len(conversations._conversations) == 50
    assert conversations.first_prompt("run 0", "another") == "another"


ROLES = st.sampled_from(["user", "assistant", "toolResult", "compactionSummary", "custom", None])
PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "toolCall", "image"])},
        optional={"text": st.text(), "id": st.text(), "name": st.text(), "arguments": st.none()},
    )
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES, "content": st.one_of(st.none(), st.text(), PARTS)},
        optional={
            "timestamp": st.one_of(st.none(), st.integers(), st.floats(), st.text()),
            "isError": st.one_of(st.none(), st.booleans()),
            "details": st.one_of(st.none(), st.text(), st.dictionaries(st.just("exitCode"), ROLES)),
            "stopReason": st.sampled_from(["stop", "error", "toolUse"]),
        },
    )
)


@given(messages=MESSAGES)
def test_any_messages(home: Path, messages: list[dict[str, Any]]) -> None:
    """Whatever the host sends is translated or refused by its place; a run has one user message."""
    try:
        call = translate(OpenClawTranslator(home), "agent_end", {"messages": messages}, now=NOON)
    except MessageError:
        return
    if call is not None:
        users = [m for m in run_of(call).messages if m.role == "user"]
        assert len(users) <= 1
        assert not users or run_of(call).messages[0] is users[0]


@given(history=MESSAGES, answer=st.text(min_size=1))
def test_history_does_not_matter(home: Path, history: list[dict[str, Any]], answer: str) -> None:
    """A run is the same whatever was said before it, but for what its words are held against."""
    mine = [USER, {"role": "assistant", "content": answer}]
    alone = translate(OpenClawTranslator(home), "agent_end", {"messages": mine}, now=NOON)
    after = translate(
        OpenClawTranslator(home), "agent_end", {"messages": [*history, *mine]}, now=NOON
    )
    assert run_of(alone) == replace(run_of(after), seen=())


def fetched(
    tool: str, arguments: dict[str, Any] | None = None, text: str = "A page.", **result: Any
) -> list[dict[str, Any]]:
    """Return a call and its result as OpenClaw keeps them."""
    call = {"type": "toolCall", "id": "c", "name": tool, "arguments": arguments or {}}
    answer = {"role": "toolResult", "toolCallId": "c", "toolName": tool, "isError": False}
    return [
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {**answer, "content": [{"type": "text", "text": text}], **result},
    ]


@pytest.mark.parametrize(
    ("messages", "origin"),
    [
        (fetched("web_fetch", {"url": "https://a.example"}), "external"),
        (fetched("web_search", {"query": "a"}), "external"),
        (fetched("browser", {"action": "snapshot"}), "external"),
        (fetched("github__get_issue", {"number": 1}), "external"),
        (fetched("tool_call", {"id": "core:web_fetch", "args": {"url": "a"}}), "external"),
        (fetched("tool_call", {"id": "mcp:mail__read", "args": {}}), "external"),
        (fetched("tool_call", {"id": "core:read", "args": {"path": "a"}}), "tool"),
        (fetched("tool_call", {"id": "memtier:memtier_search", "args": {"query": "a"}}), "tool"),
        (fetched("exec", {"command": "curl -s https://a.example | head"}), "external"),
        (fetched("exec", {"command": "curl -s http://localhost:8080/health"}), "tool"),
        (fetched("exec", {"command": "pytest -q tests/test_web.py"}), "tool"),
        (fetched("read", {"path": "notes.md"}), "tool"),
        (fetched("read", details={"externalContent": {"untrusted": True}}), "external"),
        (fetched("exec", text="<<<EXTERNAL_UNTRUSTED_CONTENT id=1>>> a"), "external"),
    ],
)
def test_results_that_strangers_wrote_are_external(
    translator: OpenClawTranslator, messages: list[dict[str, Any]], origin: str
) -> None:
    """The result of a tool that reaches out is external, by whatever wrapper it was called."""
    run = run_of(translate(translator, "agent_end", {"messages": [USER, *messages]}))
    assert [message.origin for message in run.messages if message.role == "tool"] == [origin]


def test_a_run_knows_the_external_text_before_it(translator: OpenClawTranslator) -> None:
    """The external text of earlier runs comes with a run, in full; nothing else of them does."""
    page, notes = "A long page. " * 1000, "Notes of my own."
    earlier = [USER, *fetched("web_fetch", text=page), *fetched("read", text=notes)]
    run = run_of(translate(translator, "agent_end", {"messages": [*earlier, USER]}))
    assert run.seen == (page,)


def test_another_session_is_no_person(translator: OpenClawTranslator) -> None:
    """What another session reports is external: what that one has read is not known."""
    context = {"runId": "announce:v1:agent:main:subagent:1:r"}
    run = run_of(translate(translator, "agent_end", {"messages": [USER]}, context))
    assert [(m.role, m.origin) for m in run.messages] == [("tool", "external")]
