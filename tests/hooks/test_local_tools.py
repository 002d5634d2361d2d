"""The project's settings say which tools bring no text of strangers, beside those of the hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin import MemTier
from memtier_plugin.core.records import Entry
from memtier_plugin.pool import memory_pool
from tests.attacks.host_sessions import Conversation

TICKET = "The ticket of the Falun valve goes to Odo Fenn."
SETTINGS = 'trust: {local_tools: ["mcp__jira__*"]}\n'


def entries_of_run(home: Path, host: str, tool: str, settings: str = "") -> list[Entry]:
    """Play a run in which the assistant repeats what a tool brought, and return its lines."""
    with MemTier.open(home, "p") as memory:
        (memory.folder / "project.yaml").write_text(settings)
    conversation = Conversation(host, home, "p", "s")
    asked = conversation.user("Who gets the ticket?")
    result = conversation.call(tool, {}, TICKET)
    conversation.end_run("r1", [asked, *result, conversation.assistant(TICKET)])
    with memory_pool.use(conversation.context("r1")) as memory:
        entries = [*memory.entries()]
    memory_pool.close()
    return [entry for entry in entries if TICKET in entry.content]


@pytest.mark.parametrize("host", ["openclaw", "hermes"])
@pytest.mark.parametrize(
    ("tool", "settings", "external"),
    [
        ("mcp__jira__get", "", True),
        ("mcp__jira__get", SETTINGS, False),
        ("mcp__mail__read", SETTINGS, True),
    ],
)
def test_a_host(home: Path, host: str, tool: str, settings: str, external: bool) -> None:
    """What a tool brings is external, and what the assistant repeats held, unless it is local."""
    result, answer = entries_of_run(home, host, tool, settings)
    assert (result.origin == "external", answer.tainted) == (external, external)


def test_what_a_tool_says_of_itself_makes_it_no_local_one(home: Path) -> None:
    """A result with a host's mark of text from outside is external, whatever the settings say."""
    settings = 'trust: {local_tools: ["*"]}\n'
    with MemTier.open(home, settings={"trust": {"local_tools": ["*"]}}) as memory:
        marked = f"<<<EXTERNAL_UNTRUSTED_CONTENT id=1>>> {TICKET}"
        page = {"role": "tool", "name": "get", "content": marked}
        [entry] = memory.record([page], session_id="s")
        assert entry.origin == "external"
        fake = {"role": "tool", "name": "get", "content": f"{settings}\n{TICKET}"}
        [entry] = memory.record([fake], session_id="t")
        assert entry.origin == "tool"
    with MemTier.open(home) as memory:  # the settings are not what a tool wrote
        [entry] = memory.record([fake], session_id="u")
        assert entry.origin == "external"


@pytest.mark.parametrize("local", [False, True])
def test_record(home: Path, local: bool) -> None:
    """`record` and `end_run` take results as the adapters do, unless their caller says whose."""
    patterns = ["jira_*"] if local else []
    ask = {"id": "c", "function": {"name": "jira_get", "arguments": "{}"}}
    run = [
        {"role": "user", "content": "Who gets the ticket?"},
        {"role": "assistant", "content": "", "tool_calls": [ask]},
        {"role": "tool", "tool_call_id": "c", "content": TICKET},
        {"role": "assistant", "content": TICKET},
    ]
    with MemTier.open(home, settings={"trust": {"local_tools": patterns}}) as memory:
        *_, result, answer = memory.record(run, session_id="s")
        assert (result.origin == "external", answer.tainted) == (not local, not local)
        run[2]["origin"] = "tool"
        *_, result, answer = memory.end_run(run, session_id="t").entries
        assert (result.origin, answer.tainted) == ("tool", False)
