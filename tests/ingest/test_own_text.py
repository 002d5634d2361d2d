"""What MemTier itself showed is recognised when it comes back, in whatever form a host has it."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier
from memtier_plugin.trust.escaping import remove_quotes
from tests.builders import user_message

TOLD = "Invoices of the boatyard are filed under heron-12 every Friday."
ASK = "Where are the invoices of the boatyard filed?"

FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda block: json.dumps({"text": block, "ok": True}),
    "json of json": lambda block: json.dumps({"result": json.dumps({"text": block})}),
    "mcp": lambda block: json.dumps([{"type": "text", "text": block}], indent=2),
    "html": html.escape,
    "html twice": lambda block: html.escape(html.escape(block)),
    "html of json": lambda block: html.escape(json.dumps(block)),
    "ascii json": lambda block: json.dumps(block).replace("<", "\\u003c").replace(">", "\\u003e"),
    "escaped newlines": lambda block: block.replace("\n", "\\n"),
    "repr": repr,
    "quoted": lambda block: textwrap.indent(block, "> ", lambda line: True),
    "indented": lambda block: textwrap.indent(block, "    "),
    "code": lambda block: f"```\n{block}```",
    "tail cut": lambda block: f"{block[:-40]}... [truncated]",
    "tail cut in json": lambda block: json.dumps({"text": block})[:-60],
    "head cut": lambda block: block[25:],
    "middle alone": lambda block: block[40:-8],
    "wrapped": lambda block: "\n".join(
        "\n".join(textwrap.wrap(line, 60, break_on_hyphens=False)) for line in block.split("\n")
    ),
    "windows": lambda block: block.replace("\n", "\r\n"),
}


def told(home: Path) -> tuple[MemTier, str]:
    """Return a memory that was told one thing, and the block in which it shows that."""
    memory = MemTier.open(home)
    memory.record([user_message(TOLD)], session_id="told", run_id="told")
    block = memory.recall(ASK, session_id="asked", run_id="asked", purpose="inject").text
    assert TOLD.rstrip(".") in block and block.startswith("<memtier-memory ")
    return memory, block


def later(memory: MemTier) -> list[str]:
    """Return what a search finds after a consolidation, beside the line itself and its facts."""
    memory.consolidate()
    hits = memory.recall(ASK, session_id="later", k=20).hits
    assert any("heron-12" in hit.text for hit in hits)
    ours = {e.id for e in memory.entries() if e.session_id == "told"}
    return [hit.text for hit in hits if not {s.entry for s in hit.sources} <= ours]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("tool", ["memory_search", "exec"])
def test_a_result_is_never_found(home: Path, form: Callable[[str], str], tool: str) -> None:
    """A block that a tool of ours or of this machine showed is recorded, and never recalled."""
    memory, block = told(home)
    with memory:
        call = {"id": "c", "function": {"name": tool, "arguments": '{"query": "boatyard"}'}}
        called = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "c", "content": form(block)}
        entries = memory.record([user_message("Look."), called, result], session_id="s", run_id="r")
        assert entries[-1].content == form(block).strip() or entries[-1].content == form(block)
        assert [text for text in later(memory) if "heron-12" in text or "MemTier" in text] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_block_is_not_the_user(home: Path, form: Callable[[str], str]) -> None:
    """A block before the user's words is left out of them, and what they typed stays."""
    memory, block = told(home)
    with memory:
        memory.record([user_message(f"{form(block)}\n\nMy berth is number 41.")], session_id="s")
        [entry] = [e for e in memory.entries() if e.session_id == "s"]
        assert "heron-12" not in entry.content and "MemTier" not in entry.content
        assert entry.content.endswith("My berth is number 41.")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_answer_that_is_a_block(home: Path, form: Callable[[str], str]) -> None:
    """An assistant's message that is nothing but a block states nothing."""
    memory, block = told(home)
    with memory:
        answer = {"role": "assistant", "content": form(block)}
        memory.record([user_message("What do you know?"), answer], session_id="s", run_id="r")
        assert [text for text in later(memory) if "heron-12" in text or "MemTier" in text] == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "quoting",
    [
        "I found this:\n{}\n\nThe crane opens at seven.",
        "1. {}\n2. The crane opens at seven.",
        'You once said "{}", and the crane opens at seven.',
        "> {}\nThe crane opens at seven.",
        "The crane opens at seven. {}",
        "The crane opens at seven; memory has “{}”.",
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_quoted_line_is_cited(home: Path, quoting: str, role: str) -> None:
    """A line of a block in somebody's words is left as its id; the words around it stay."""
    memory, block = told(home)
    with memory:
        line = next(line for line in block.splitlines() if "heron-12" in line)
        short = line[: line.index("]")].split()[-1]
        message = {"role": role, "content": quoting.format(line.removeprefix("- "))}
        memory.record([message], session_id="s", run_id="r")
        [entry] = [e for e in memory.entries() if e.session_id == "s"]
        assert "heron-12" not in entry.content and "invoices" not in entry.content.casefold()
        assert f"[{short}]" in entry.content and "crane opens at seven" in entry.content
        assert [text for text in later(memory) if "heron-12" in text] == []


def test_a_reference_takes_no_words() -> None:
    """A head behind which no words stand is a reference: the words before it stay."""
    text = "Kayaks are at the pier (see [2026-03-01 user 3GF7QX2Y]). I booked two."
    assert remove_quotes(text) == "Kayaks are at the pier (see [3GF7QX2Y]). I booked two."


@pytest.mark.parametrize(
    "text",
    [
        "The fence is called memtier-memory, and </memtier-memory> ends it.",
        "Use <memtier-memory> as the tag of the block.",
        "[2026-11-24 10:20 INFO] heron-12 started",
        "- [2026-11-24] Release 1.4 is out",
        "Ticket [2026-11-24 open ABC] waits.",
        "- 2026-11-24 release of [1.4.0]",
        "The part [7G45QX2M] is in the shed.",
        'He wrote {"text": "a\\nb"} into the file.',
        "5 &lt; 7 and &quot;so&quot; on\\n",
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_other_words_stay(home: Path, text: str, role: str) -> None:
    """Words that only look a little like ours are recorded as they were said, and found."""
    with MemTier.open(home) as memory:
        [entry] = memory.record([{"role": role, "content": text}], session_id="s")
        assert entry.content == text and entry.retrievable and entry.origin == role


@pytest.mark.parametrize(
    ("name", "arguments", "own"),
    [
        ("memory_search", '{"query": "crane"}', True),
        ("memtier_store", '{"text": "The crane is blue."}', True),
        ("mcp__memtier__memtier_explain", "{}", True),
        ("mcp_memtier_memtier_get", "{}", True),
        ("memtier.memtier_log", "{}", True),
        ("tool_call", '{"name": "memory_search", "args": {"query": "crane"}}', True),
        ("tool_call", '{"name": "exec", "args": {"command": "crane"}}', False),
        ("exec", '{"command": "ls memory_search crane"}', False),
        ("memtier_docs_search", '{"query": "crane"}', False),
        ("search", '{"query": "crane"}', False),
    ],
)
def test_calls_of_own_tools(home: Path, name: str, arguments: str, own: bool) -> None:
    """A call of a memory tool and what it answered are nobody's words, however a host names it."""
    call = {"id": "c", "function": {"name": name, "arguments": arguments}}
    with MemTier.open(home) as memory:
        entries = memory.record(
            [
                {"role": "assistant", "content": "Noted.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "The crane is blue."},
                {"role": "assistant", "content": "It is blue.", "tool_calls": [call]},
            ],
            session_id="s",
        )
        assert [entry.retrievable for entry in entries] == [not own, not own, True]


def test_a_result_of_the_command_line(home: Path) -> None:
    """What `memtier ask` printed on this machine is nobody's words either."""
    memory, _ = told(home)
    with memory:
        answer = memory.ask(ASK).text
        assert "heron-12" in answer
        result = {"role": "tool", "name": "exec", "content": answer}
        [entry] = memory.record([result], session_id="s", run_id="r")
        assert not entry.retrievable
