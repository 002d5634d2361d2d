"""Real coding agents with a loopback model: what reaches the model, and what is remembered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.hosts.presence import last_use
from memtier_plugin.transfer.importers.formats import detect_format, read_transcript
from memtier_plugin.trust.escaping import FENCE
from tests.loopback.hosts import text
from tests.processes import ROOT
from tests.runtimes.agents import Codex, CodingAgent
from tests.runtimes.hosts import Ground

HOST_LINE = "My deploy host is called pelican-9."
SLOW = "RUN: sh -c 'sleep 8; exit 3' :END"  # longer than a server takes to start on a busy machine
QUESTION = "What is my deploy host called?"


def blocks(request: Mapping[str, Any]) -> list[str]:
    """Return each message of a request that has a block in it."""
    return [text(m) for m in request["messages"] if FENCE in text(m)]


def outcomes(ground: Ground, agent: str) -> list[tuple[bool | None, int | None]]:
    """Return how the calls of an agent fared."""
    return [(e.tool.ok, e.tool.exit_code) for e in ground.entries(agent) if e.tool]


def offered(request: Mapping[str, Any]) -> str:
    """Return what a request says of tools: declared, or named for the model to look up."""
    names = [tool["function"]["name"] for tool in request["tools"]]
    words = [text(m) for m in request["messages"] if m["role"] == "system"]
    return "\n".join([*names, *words])


def test_turns_and_sessions(coding_agent: CodingAgent, ground: Ground) -> None:
    """What one session was told is in the next one's request: once, plain, beside the prompt."""
    agent = coding_agent
    [first, second] = agent.say(f"{HOST_LINE} {SLOW}")
    assert not blocks(first)
    for name in ("memory_search", "memory_store"):
        assert name in offered(second), "no agent waits long for a server before its first request"
    agent.say("Now again. RUN-OK", resume=True)
    [failed, well] = outcomes(ground, agent.agent)
    assert failed == (False, 3)
    assert well == (True, None if agent.name == "claude-code" else 0), "it names no code then"

    [asked] = agent.say(QUESTION)
    [block] = blocks(asked)
    assert block.count("pelican-9") == 1, block
    assert block.count(FENCE) == 2 and "&lt;" not in block and "\\n" not in block
    assert "pelican-9" not in text(asked["messages"][0]), "not in the system prompt"
    [followed] = agent.say("And what is the name of the host that I deploy to?", resume=True)
    assert sum(words.count("pelican-9") for words in blocks(followed)) <= 1, "not shown twice"
    [thanked] = agent.say("Thanks, that is all.", resume=True)
    assert len(blocks(thanked)) <= len(blocks(followed)), "nothing for small talk"
    words = ground.said(agent.agent)
    assert words.count(QUESTION) == 1 and len(words) == 5
    assert not any(FENCE in entry.content for entry in ground.entries(agent.agent))
    assert ground.queued() == []
    with agent.patched():
        assert last_use(agent.name), "the alarm for a silent host sees its sessions"


def test_its_sessions_are_imported(coding_agent: CodingAgent, ground: Ground) -> None:
    """The files that an agent itself keeps are read by their form: what was said, and the call."""
    agent = coding_agent
    agent.say(f"{HOST_LINE} RUN: sh -c 'echo hello; exit 3' :END")
    agent.say("Now again. RUN-OK", resume=True)
    kept = {"claude-code": ".claude/projects", "codex": ".codex/sessions", "gemini": ".gemini/tmp"}
    folder = agent.user / kept[agent.name]
    assert detect_format(folder) == agent.name
    left: list[tuple[str, str]] = []
    sessions = [*read_transcript(folder, agent.name, lambda *why: left.append(why))]
    assert left == []
    messages = [message for session in sessions for message in session.messages]
    words = [message.content for message in messages if message.role == "user"]
    assert len(words) == 2 and words[0].startswith(HOST_LINE) and words[1] == "Now again. RUN-OK"
    results = [message.tool for message in messages if message.tool]
    assert [tool.ok for tool in results] == [False, True] and results[0].exit_code == 3
    assert all(message.observed_at for message in messages)


@pytest.mark.parametrize("coding_agent", ["claude-code", "gemini"], indirect=True)
def test_an_undone_edit_is_remembered(coding_agent: CodingAgent, ground: Ground) -> None:
    """What stands again in the file at the next prompt was undone by the user."""
    agent = coding_agent
    file = agent.work / "a.py"
    file.write_text("def total(prices):\n    return sum(prices)\n")
    given = {"file_path": str(file)}
    edit = {**given, "old_string": "sum(prices)", "new_string": "float(sum(prices))"}
    tool = "Edit" if agent.name == "claude-code" else "replace"
    edit |= {"instruction": "Make it a float."} if tool == "replace" else {}
    agent.say(f"Look at it. CALL: Read {json.dumps(given)} :END")
    agent.say(f"Make it a float. CALL: {tool} {json.dumps(edit)} :END", resume=True)
    assert "float" in file.read_text()
    file.write_text(file.read_text().replace("float(sum(prices))", "sum(prices)"))
    agent.say("What else is there?", resume=True)
    with ground.memory(agent.agent) as memory:
        memory.consolidate()
        known = [rule.fact.text for rule in memory.knowledge.rules()]
    change = "which had replaced `sum(prices)` by `float(sum(prices))`"
    assert known[0] == f"The user undid `{tool} a.py`, {change}."


@pytest.mark.parametrize("coding_agent", ["claude-code", "gemini"], indirect=True)
def test_a_reminder_at_a_call(coding_agent: CodingAgent, ground: Ground) -> None:
    """A call of a rule's kind is held up once, the model reads why, and the same call then runs."""
    agent, rule = coding_agent, "No, never use yarn here. Use pnpm."
    yarn = agent.work / "yarn"
    yarn.write_text('#!/bin/sh\ntouch "added-$2"\n')
    yarn.chmod(0o755)
    agent.install(call_reminders=True)
    agent.say("Add the date library. RUN: ./yarn add dayjs :END")
    agent.say(rule, resume=True)
    with ground.memory(agent.agent) as memory:
        memory.consolidate()
    task = "Install lodash. RUN: ./yarn add lodash :END"
    *_, answered = agent.say(task)
    assert (agent.work / "added-dayjs").exists() and not (agent.work / "added-lodash").exists()
    results = [text(m) for m in answered["messages"] if m["role"] == "tool"]
    assert rule in results[-1]
    agent.say(task, resume=True)
    assert (agent.work / "added-lodash").exists()
    with ground.memory(agent.agent) as memory:
        [kept] = memory.knowledge.person.rules()
        calls = [e.content for e in memory.entries() if "yarn add lodash" in e.content]
    assert (kept.fact.text, kept.reminded, kept.insisted) == (rule, 1, 1)
    assert not any("user refused" in call for call in calls)


def test_uninstalling(coding_agent: CodingAgent, ground: Ground) -> None:
    """Taken back, the files are as before to the byte, and nothing of MemTier reaches the model."""
    agent = coding_agent
    agent.uninstall()
    agent.say("Hello there.")  # so that the files are those that the agent itself leaves
    before = agent.files()
    agent.install()
    assert agent.files() != before
    agent.uninstall()
    assert agent.files() == before
    [request] = agent.say(QUESTION)
    assert "memory_search" not in offered(request) and not blocks(request)
    assert not ground.entries(agent.agent)


@pytest.mark.parametrize("coding_agent", ["codex"], indirect=True)
def test_codex_that_trusts_no_hooks(coding_agent: Codex, ground: Ground) -> None:
    """Before its hooks are trusted Codex records nothing, and doctor says so; then it does."""
    [finding] = [f for f in coding_agent.doctor() if "trust" in f.what]
    assert finding.level == "ok"
    path = coding_agent.user / ".codex" / "config.toml"
    path.write_text(path.read_text().partition("\n[hooks.state")[0])
    [finding] = [f for f in coding_agent.doctor() if "trust" in f.what]
    assert finding.level == "error" and "userPromptSubmit" in finding.what
    assert "/hooks" in finding.remedy
    coding_agent.say(HOST_LINE)
    assert not ground.entries(coding_agent.agent)


@pytest.mark.parametrize("coding_agent", ["claude-code"], indirect=True)
def test_claude_code_clears_and_compacts(coding_agent: CodingAgent, ground: Ground) -> None:
    """After /compact what was shown may be shown again; /clear begins a session of its own."""
    agent = coding_agent
    instructions = agent.work / "CLAUDE.md"
    instructions.write_text("Be brief.\n")
    ground.plant(agent.agent, HOST_LINE)
    [asked] = agent.say(QUESTION)
    assert "pelican-9" in "".join(blocks(asked))
    agent.say("/compact", resume=True)
    [again] = agent.say(QUESTION, resume=True)
    assert sum("pelican-9" in words for words in blocks(again)) == 1
    agent.say("/clear", resume=True)
    [cleared] = agent.say(QUESTION, resume=True)
    assert sum("pelican-9" in words for words in blocks(cleared)) == 1
    assert len({e.session_id for e in ground.entries(agent.agent)}) == 2
    assert instructions.read_text() == "Be brief.\n"


@pytest.mark.parametrize("coding_agent", ["claude-code"], indirect=True)
def test_claude_code_sub_agents(coding_agent: CodingAgent, ground: Ground) -> None:
    """A sub-agent's calls and answer are in a log of its own, with the session as its parent."""
    coding_agent.say("DELEGATE: Count the herons. RUN-FAIL :END")
    entries = ground.entries(coding_agent.agent)
    own = ground.entries(f"{coding_agent.agent}.subagent")
    assert {e.parent for e in own} == {entries[0].session_id}
    assert [(e.tool.ok, e.tool.exit_code) for e in own if e.tool] == [(False, 3)]


@pytest.mark.parametrize("coding_agent", ["codex"], indirect=True)
def test_codex_compacts(coding_agent: Codex, ground: Ground) -> None:
    """After Codex has compacted a conversation, what was shown in it may be shown again."""
    ground.plant(coding_agent.agent, HOST_LINE)
    [asked] = coding_agent.say(QUESTION)
    assert "pelican-9" in "".join(blocks(asked))
    coding_agent.more = ("-c", "model_auto_compact_token_limit=10")
    coding_agent.say("Go on with the next step.", resume=True)
    coding_agent.more = ()
    [again] = coding_agent.say(QUESTION, resume=True)
    assert sum("pelican-9" in words for words in blocks(again)) == 1


@pytest.mark.parametrize("coding_agent", ["claude-code"], indirect=True)
def test_the_plugin_of_claude_code(
    coding_agent: CodingAgent, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed from this repository as a plugin, it recalls as it does after `memtier install`."""
    coding_agent.uninstall()
    path = f"{Path(ground.command[0]).parent}:{coding_agent.environment['PATH']}"
    more = {**coding_agent.variables(), "MEMTIER_HOME": str(ground.home), "PATH": path}
    monkeypatch.setattr(coding_agent, "variables", lambda: more)
    for arguments in (["marketplace", "add", str(ROOT)], ["install", "memtier@memtier"]):
        subprocess.run(
            ["claude", "plugin", *arguments], env=coding_agent.environment, check=True, text=True
        )
    [_, second] = coding_agent.say(f"{HOST_LINE} {SLOW}")
    assert "memory_search" in offered(second)
    [asked] = coding_agent.say(QUESTION)
    [block] = blocks(asked)
    assert block.count("pelican-9") == 1
