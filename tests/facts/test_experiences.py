"""Experiences: what runs with tool calls teach, by rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.facts.extraction.experiences import MAX_PER_RUN, extract_experiences
from memtier_plugin.facts.extraction.rules import Extraction
from memtier_plugin.facts.extraction.tool_runs import pair_calls
from memtier_plugin.memory import MemTier

Step = tuple[str, bool | None, str]  # command, how it went, what the tool wrote


def steps(request: str, *done: Step, tool: str = "exec") -> list[dict[str, Any]]:
    """Return a run's messages: a request, and each command with its result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
    for number, (command, ok, wrote) in enumerate(done):
        call = {"id": f"c{number}", "name": tool, "arguments": json.dumps({"command": command})}
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": wrote, "ok": ok}
        messages += [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
    return messages


def entries(home: Path, *runs: Sequence[dict[str, Any]], project: str = "shop") -> list[Entry]:
    """Return the entries of real runs."""
    with MemTier.open(home, project) as memory:
        return [
            entry
            for number, run in enumerate(runs)
            for entry in memory.record(run, session_id="s", run_id=f"r{number}")
        ]


def active(extraction: Extraction) -> list[FactDraft]:
    """Return what needs no review."""
    return [draft for draft in extraction.drafts if draft.status == "active"]


def waiting(extraction: Extraction) -> list[FactDraft]:
    """Return what waits for review."""
    return [draft for draft in extraction.drafts if draft.status == "proposed"]


FAILED: Step = ("pytest -q", False, "collecting\nE  ModuleNotFoundError: No module named 'foo'")
MENDED = (FAILED, ("ls", True, "a b"), ("pip install foo", True, "ok"), ("pytest -q", True, "4"))


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("sudo env A=1 make x", "make"),
        ("A='x y' make", "exec"),
        ("uptime now", "uptime"),
        ("run_time=3", "exec"),
        ("sudo", "sudo"),
        ("docker exec web ls", "docker"),
        ("cd /srv/shop && make x 2>&1 | tail -5", "make"),
        ("ls; git status && npm ci", "npm"),
        ("cd /srv/shop && ls", "ls"),
        ("echo 'a && make' | sort", "sort"),
        ("cd '/srv/my; shop'\nmake", "make"),
        ("&&", "exec"),
    ],
)
def test_program_of_a_command(home: Path, command: str, program: str) -> None:
    """Only whole words before a program are no part of it."""
    [call] = pair_calls(entries(home, steps("go", (command, True, "ok"))))
    assert call.program == program


def test_commands_that_enter_a_folder_first(home: Path) -> None:
    """What follows `cd` decides what a line does, and the folder makes no two lines alike."""
    there = "cd /srv/shop/checkout/web && "
    tried = [(f"{there}{command}", ok, wrote) for command, ok, wrote in MENDED]
    other = (f"{there}git add -A", True, "")
    drafts = extract_experiences(entries(home, steps("test", tried[0], other, *tried[1:])))
    [draft] = active(drafts)
    assert draft.value == " > ".join(
        f"`{there}{command}`"
        for command in ("pytest -q", "git add -A", "pip install foo", "pytest -q")
    )
    assert draft.subject == "pytest"
    looked = (f"{there}ls", True, "a b")
    run = entries(home, steps("test", tried[0], looked), project="other")
    [ended] = active(extract_experiences(run))
    assert ended.relation == "what_failed"


def test_what_mended_a_failure(home: Path) -> None:
    """What stood between a failure and its success is how to do it; what only looks is not."""
    [draft] = active(extract_experiences(entries(home, steps("run the tests", *MENDED))))
    assert draft.text == (
        "In project shop, `pytest -q` failed; `pip install foo` and then `pytest -q` worked."
    )
    assert (draft.tier, draft.relation, draft.subject) == ("procedural", "how_to", "pytest")


def test_active_without_a_tools_words(home: Path) -> None:
    """What is active rests on the user's and the assistant's words, of a tool on its outcome."""
    run = entries(home, steps("run the tests", *MENDED))
    by_id = {entry.id: entry for entry in run}
    [draft] = active(extract_experiences(run))
    assert draft.origin == "assistant"
    assert {by_id[source.entry].role for source in draft.sources} == {"user", "assistant"}
    wrote = [entry.content for entry in run if entry.role == "tool"]
    assert not any(line in draft.text for text in wrote for line in text.splitlines() if line > "9")
    assert "No module" not in draft.text + draft.value


def test_a_tools_words_wait_for_review(home: Path) -> None:
    """An experience that shows the error a tool wrote is proposed, with that line as its quote."""
    run = entries(home, steps("run the tests", *MENDED))
    by_id = {entry.id: entry for entry in run}
    [draft] = waiting(extract_experiences(run))
    assert (draft.origin, draft.reason) == ("tool", "it shows what a tool wrote")
    assert "ModuleNotFoundError: No module named 'foo'" in draft.text
    source = by_id[draft.sources[-1].entry]
    assert source.role == "tool"
    assert draft.span
    assert source.content[slice(*draft.span)] == draft.quote


def test_quotes_are_slices(home: Path) -> None:
    """The quote of every experience stands, to the letter, in one of its sources at its span."""
    run = entries(
        home,
        steps("run it", *MENDED),
        steps("push it", ("git push", False, "denied"), ("git push", False, "denied")),
    )
    by_id = {entry.id: entry for entry in run}
    drafts = extract_experiences(run).drafts
    assert len(drafts) == 4
    for draft in drafts:
        assert draft.span
        texts = [by_id[source.entry].content for source in draft.sources]
        assert draft.quote in [text[slice(*draft.span)] for text in texts]


def test_what_failed(home: Path) -> None:
    """A run that ends in a failure leaves what failed, with the exit code."""
    tried = ("make", True, "made"), ("twine upload dist", False, "refused")
    run = steps("publish it", *tried)
    run[-1]["exit_code"] = 3
    [draft] = active(extract_experiences(entries(home, run)))
    assert draft.relation == "what_failed"
    assert "`twine upload dist` failed (exit code 3), and the run ended there" in draft.text


def test_changed_arguments(home: Path) -> None:
    """The same tool with other arguments is another attempt only if most of its words agree."""
    tried = ("npm run build --prod", False, "unknown"), ("npm run build", True, "built")
    [draft] = active(extract_experiences(entries(home, steps("build", *tried))))
    assert draft.value == "`npm run build --prod` > `npm run build`"
    other = ("npm run build", False, "no"), ("git commit -m a", True, "1"), ("ls", False, "no")
    assert not extract_experiences(entries(home, steps("build", *other), project="other")).drafts


def test_chance_is_no_experience(home: Path) -> None:
    """The same call that fails and then works, with nothing between, teaches nothing."""
    again = ("curl -f http://x", False, "503"), ("curl -f http://x", True, "200")
    assert not extract_experiences(entries(home, steps("is it up?", *again))).drafts


def test_repeated_success(home: Path) -> None:
    """What worked in two runs for the same kind of request is how to do it, with both sources."""
    runs = [
        steps("please run the tests", ("make check", True, "ok")),
        steps("run the tests again please", ("ls", True, "a"), ("make check", True, "ok")),
        steps("deploy the shop", ("make check", True, "ok")),
    ]
    run = entries(home, *runs)
    [draft] = extract_experiences(run).drafts
    assert draft.text == (
        "In project shop, `make check` worked in 2 runs for the same kind of task."
    )
    sources = {source.entry for source in draft.sources}
    assert {e.run_id for e in run if e.id in sources} == {"r0", "r1"}


def test_same_experience_twice(home: Path) -> None:
    """What two runs teach alike stands once, with the sources of both."""
    run = entries(home, steps("run the tests", *MENDED), steps("test it", *MENDED))
    extraction = extract_experiences(run)
    [draft] = [d for d in active(extraction) if ">" in d.value]
    sources = {source.entry for source in draft.sources}
    assert {entry.run_id for entry in run if entry.id in sources} == {"r0", "r1"}
    assert extraction.rejected["duplicate"] == 2


def test_tainted_runs_wait(home: Path) -> None:
    """A run that read text from outside teaches nothing that is not reviewed first."""
    run = steps("run the tests", *MENDED)
    run.insert(1, {"role": "tool", "name": "web", "content": "run rm -rf", "origin": "external"})
    drafts = extract_experiences(entries(home, run)).drafts
    assert drafts
    assert {(draft.status, draft.origin) for draft in drafts} == {("proposed", "external")}


def test_parallel_calls_of_one_tool(home: Path) -> None:
    """Calls asked at once that fared differently are not told apart, so nothing is made of them."""
    calls = [
        {"id": name, "name": "exec", "arguments": json.dumps({"command": f"make {name}"})}
        for name in ("one", "two")
    ]
    run = [
        {"role": "user", "content": "make both"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "two", "content": "", "ok": False},
        {"role": "tool", "tool_call_id": "one", "content": "", "ok": True},
    ]
    written = entries(home, run)
    assert [call.ok for call in pair_calls(written)] == [None, None]
    assert not extract_experiences(written).drafts


def test_a_cap_for_each_run(home: Path) -> None:
    """One run gives a few experiences; what is left out is counted."""
    many = [
        step
        for n in range(6)
        for step in (
            (f"make target{n} --all", False, "Error: no"),
            (f"install part{n}", True, "in"),
            (f"make target{n} --all", True, "made"),
        )
    ]
    extraction = extract_experiences(entries(home, steps("make it all", *many)))
    assert len(active(extraction)) == MAX_PER_RUN
    assert len(waiting(extraction)) == 1
    assert extraction.rejected["cap"] == 8


@pytest.mark.parametrize(
    "content",
    ["[tool call: exec", "[tool call: ]", "see [tool call: exec {}] above", "[tool call: x {]\n]"],
)
def test_odd_content(home: Path, content: str) -> None:
    """Prose that looks like a call, or a call cut short, breaks nothing."""
    run = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": content},
        {"role": "tool", "name": "exec", "content": "Error: no", "ok": False},
    ]
    for draft in extract_experiences(entries(home, run)).drafts:
        assert draft.sources


def test_results_without_a_word(home: Path) -> None:
    """A command that wrote nothing has no line: the next result is not taken for its own."""
    run = (("make install", True, ""), ("make check", False, "Error: 1"), ("ls", True, "a"))
    written = entries(home, steps("check it", *run))
    assert [call.ok for call in pair_calls(written)] == [None, False, True]
    mended = (FAILED, ("sed -i s/fo/foo/ setup.py", True, ""), ("pytest -q", True, "4 passed"))
    [draft] = active(extract_experiences(entries(home, steps("test", *mended), project="other")))
    assert "`sed -i s/fo/foo/ setup.py` and then `pytest -q` worked" in draft.text


def test_unknown_outcomes(home: Path) -> None:
    """A result whose outcome nobody could tell says neither that it worked nor that it failed."""
    run = steps("try", ("make a", None, "Error: no"), ("make a b", None, "fine"))
    assert not extract_experiences(entries(home, run)).drafts


# -- real work only ------------------------------------------------------------------------------


def calls(request: str, *done: tuple[str, dict[str, Any], bool | None]) -> list[dict[str, Any]]:
    """Return a run of calls of any tools: name, arguments, outcome."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
    for number, (name, arguments, ok) in enumerate(done):
        call = {"id": f"c{number}", "name": name, "arguments": json.dumps(arguments)}
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": "Error: no", "ok": ok}
        result["origin"] = "tool"  # as an adapter says of a tool that it knows
        messages += [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
    return messages


WRAPPED = (
    {"name": "exec", "arguments": {"command": "make dist"}},
    {"tool": "exec", "args": {"command": "make dist"}},
    {"id": "core:exec", "input": {"command": "make dist"}},
    {"tool_name": "exec", "params": '{"command": "make dist"}'},
    {"name": "tool_call", "arguments": {"name": "exec", "args": {"command": "make dist"}}},
)


@pytest.mark.parametrize("wrapper", ["tool_call", "mcp__hub__call_tool", "invoke_tool"])
@pytest.mark.parametrize("arguments", WRAPPED)
def test_a_wrapped_call_is_the_call(home: Path, wrapper: str, arguments: dict[str, Any]) -> None:
    """What a host calls through a wrapper teaches what a direct call teaches."""
    run = entries(home, calls("ship it", (wrapper, arguments, False)))
    [draft] = active(extract_experiences(run))
    assert draft.text == "In project shop, `make dist` failed, and the run ended there."
    assert draft.subject == "make"
    by_id = {entry.id: entry for entry in run}
    assert draft.span is not None
    texts = [by_id[source.entry].content for source in draft.sources]
    assert draft.quote in [text[slice(*draft.span)] for text in texts]


OWN_CALLS = (
    ("memory_search", {"query": "canteen"}),
    ("memory_store", {"text": "The canteen opens at noon."}),
    ("memtier_forget", {"ids": ["ABCDEF"]}),
    ("mcp__memtier__memory_store", {"text": "x"}),
    ("memtier.memory_get", {"id": "ABCDEF"}),
    ("tool_call", {"name": "memory_search", "arguments": {"query": "canteen"}}),
    ("tool_call", {"id": "plugin:memtier:memory_store", "args": {"text": "x"}}),
)


@pytest.mark.parametrize(("name", "arguments"), OWN_CALLS)
def test_our_own_tools_teach_nothing(home: Path, name: str, arguments: dict[str, Any]) -> None:
    """A call of a memory tool, whatever a host calls it, is no work: it makes no experience."""
    again = calls("look it up", (name, arguments, False), (name, {**arguments, "limit": 3}, True))
    assert not extract_experiences(entries(home, again)).drafts
    ended = calls("look it up", (name, arguments, False))
    assert not extract_experiences(entries(home, ended, project="other")).drafts


@pytest.mark.parametrize(
    "name", ["tool_search", "tool_describe", "menu_lookup", "listFiles", "web_fetch", "get_weather"]
)
def test_looking_is_no_experience(home: Path, name: str) -> None:
    """A failed look-up by any tool teaches nothing; a tool that also does something does."""
    run = calls("what is for lunch?", (name, {"query": "canteen"}, False))
    assert not extract_experiences(entries(home, run)).drafts
    done = calls("lunch", ("get_and_book_table", {"query": "canteen"}, False))
    [draft] = active(extract_experiences(entries(home, done, project="other")))
    assert "`get_and_book_table canteen` failed" in draft.text


def test_a_run_that_went_on_did_not_end(home: Path) -> None:
    """A failure before other work, or before an answer, is not said to have ended the run."""
    failed: Step = ("twine upload dist", False, "refused")
    went_on = steps("publish", failed, ("git tag v2", None, "done"))
    assert not extract_experiences(entries(home, went_on)).drafts
    worked = steps("publish", failed, ("git tag v2", True, "done"))
    assert not extract_experiences(entries(home, worked, project="b")).drafts
    looked = steps("publish", failed, ("ls", True, "a"))
    answered = [*looked, {"role": "assistant", "content": "It was refused; I left it so."}]
    [draft] = active(extract_experiences(entries(home, answered, project="c")))
    assert (
        "run ended" not in draft.text and "nothing that followed in the run mended it" in draft.text
    )


PRIVATE = "Tell Ana that the merger with Koller is off and nobody may know"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("send_message", {"to": "ana", "text": "the merger with Koller is off"}),
        ("exec", {"command": "notify ana 'the merger with Koller is off and nobody knows'"}),
        ("tool_call", {"name": "mail", "args": {"body": "merger with Koller is off"}}),
    ],
)
def test_no_experience_quotes_the_request(home: Path, name: str, arguments: dict[str, Any]) -> None:
    """A call that carries the user's words makes none, and no text has words of the request."""
    extraction = extract_experiences(entries(home, calls(PRIVATE, (name, arguments, False))))
    assert not extraction.drafts and extraction.rejected["quotes the request"] == 1
    other = calls(PRIVATE, ("exec", {"command": "make sync"}, False))
    drafts = extract_experiences(entries(home, other, project="b")).drafts
    assert drafts and not any(
        word in draft.text + draft.value for draft in drafts for word in ("merger", "Koller", "Ana")
    )


def test_a_later_success_elsewhere_confirms(home: Path) -> None:
    """The same experience of another agent's later run adds its lines to the one fact."""
    with MemTier.open(home, agent_id="a") as memory:
        memory.record(steps("run the tests", *MENDED), session_id="s", run_id="r1")
        memory.consolidate()
        [fact] = [f for f in memory.facts() if f.tier == "procedural"]
    with MemTier.open(home, agent_id="b") as memory:
        memory.record(steps("is it green?", *MENDED), session_id="t", run_id="r2")
        memory.consolidate()
        assert [f.id for f in memory.facts() if f.tier == "procedural"] == [fact.id]
        view = memory.knowledge.person.fact(fact.id)
        assert {line.source.agent for line in view.lines} == {"a", "b"}


def test_a_later_failure_elsewhere_weakens(home: Path) -> None:
    """What an experience ends in, and what ends another run, counts for less from then on."""
    with MemTier.open(home) as memory:
        memory.record(steps("run the tests", *MENDED), session_id="s", run_id="r1")
        memory.consolidate()
        [fact] = [f for f in memory.facts() if f.tier == "procedural"]
        before = memory.store.reader().state(fact.id).weight
        memory.record(steps("is it green?", MENDED[0]), session_id="t", run_id="r2")
        memory.consolidate()
        assert memory.store.reader().state(fact.id).weight < before
        assert fact.id in {f.id for f in memory.facts()}
