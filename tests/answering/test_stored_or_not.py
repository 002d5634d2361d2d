"""What `ask` answers without a model: what is stored, each line once, or that nothing is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from memtier_plugin import MemTier
from memtier_plugin.answering.answerer import NOTHING, Answer
from memtier_plugin.cli.main import main
from memtier_plugin.server.methods import Methods
from tests.loopback import Loopback

STORES = yaml.safe_load(Path(__file__).with_name("stored_or_not.yaml").read_text("utf-8"))


def tell(memory: MemTier, *sessions: Sequence[str]) -> None:
    """Record sessions of what a user says, each line acknowledged."""
    for number, lines in enumerate(sessions):
        for line in lines:
            messages = [
                {"role": "user", "content": line},
                {"role": "assistant", "content": "Noted."},
            ]
            memory.record(messages, session_id=f"s{number}")


def quoted(answer: Answer) -> list[str]:
    return answer.text.splitlines()


@pytest.fixture(scope="module", params=STORES, ids=lambda store: store["language"])
def store(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """Return a table: lines, questions with what their answer says, and other questions."""
    return request.param


@pytest.fixture(scope="module", params=["entries", "facts"])
def memory(
    tmp_path_factory: pytest.TempPathFactory,
    store: Mapping[str, Any],
    request: pytest.FixtureRequest,
) -> Iterator[MemTier]:
    """Return a memory of such a store, with the facts made of it or without."""
    with MemTier.open(tmp_path_factory.mktemp("stored") / "home") as memory:
        tell(memory, *([line] for line in store["lines"]))
        if request.param == "facts":
            memory.consolidate()
        yield memory


def test_what_is_stored_is_answered(memory: MemTier, store: Mapping[str, Any]) -> None:
    """The line that answers comes first, at most one other with it, and none is said twice."""
    for question, expected in store["there"].items():
        answer = memory.ask(question)
        lines = quoted(answer)
        assert answer.answered, question
        assert expected in lines[0], question
        assert sum(expected in line for line in lines) == 1, lines
        assert len(lines) <= 2, lines
        assert "Noted" not in answer.text


def test_what_is_not_stored_is_not_answered(memory: MemTier, store: Mapping[str, Any]) -> None:
    """Whatever comes nearest is no answer: nothing about this is stored."""
    for question in store["missing"]:
        answer = memory.ask(question)
        assert (answer.answered, answer.text, answer.citations) == (False, NOTHING, ()), question


@pytest.mark.parametrize(
    ("question", "answered"),
    [("Which instrument does Ingrid play?", True), ("Which school does my son go to?", False)],
)
def test_by_command_and_by_rpc_alike(home: Path, question: str, answered: bool) -> None:
    """The command and JSON-RPC give the same document; without an answer the command succeeds."""
    with MemTier.open(home) as memory:
        tell(memory, ["My niece Ingrid plays the cello."])
    run = CliRunner().invoke(main, ["ask", question, "--project", "default", "--json"])
    assert run.exit_code == 0
    by_command = json.loads(run.output)
    by_rpc = Methods(home, lambda context: None).ask(question)
    for document in (by_command, by_rpc):
        assert document["answered"] is answered
        assert ("cello" in document["answer"]) is answered
        assert bool(document["citations"]) is answered
    assert by_rpc.keys() <= by_command.keys()
    run = CliRunner().invoke(main, ["ask", question, "--project", "default"])
    assert run.exit_code == 0
    assert ("Not answered" in run.output) is not answered
    assert (NOTHING in run.output) is not answered


def test_the_current_value_comes_first(home: Path) -> None:
    """The value that holds by now leads; an older line says until when it held."""
    with MemTier.open(home) as memory:
        tell(memory, ["The forge listens on port 7100."], ["The forge listens on port 7220 now."])
        first, *others = quoted(memory.ask("Which port does the forge listen on?"))
        assert "7220" in first
        assert all("until" in line for line in others)
        memory.consolidate()
        first, *others = quoted(memory.ask("Which port does the forge listen on?"))
        assert "7220" in first
        assert all("until" in line for line in others)


def test_an_entry_and_what_was_made_of_it_are_one_line(home: Path) -> None:
    """What was said, remembered and consolidated is quoted once, without a count."""
    with MemTier.open(home) as memory:
        memory.remember("The kiln is serviced by Tamsin.")
        tell(memory, ["The kiln is serviced by Tamsin."])
        memory.consolidate()
        [line] = quoted(memory.ask("Who services the kiln?"))
        assert "Tamsin" in line


def test_questions_answer_nothing_but_what_follows_them_may(home: Path) -> None:
    """An earlier question is no answer, alone or not; the words that answered it are one."""
    with MemTier.open(home) as memory:
        memory.record(
            [{"role": "user", "content": "Which day is the harvest fair?"}], session_id="a"
        )
        assert not memory.ask("Which day is the harvest fair?").answered
        memory.record(
            [{"role": "assistant", "content": "What is your boat called?"},
             {"role": "user", "content": "Peregrine."}], session_id="b",
        )  # fmt: skip
        answer = memory.ask("What is my boat called?")
        assert [line.split(" [")[0][-11:] for line in quoted(answer)] == [" Peregrine."]


@pytest.mark.parametrize("floor", ["careful", "balanced", "quiet"])
def test_each_level_of_the_floor_refuses(home: Path, floor: str) -> None:
    """Lines that are not likely to answer are not quoted, whatever the level."""
    with MemTier.open(home, settings={"retrieval.floor": floor}) as memory:
        tell(memory, ["My daughter is called Lena."], ["The car is insured by Halden."])
        assert not memory.ask("What's the name of my dog?").answered
        assert memory.ask("Who insures the car?").answered


def test_a_model_reads_what_passes_and_is_not_asked_without_any(home: Path) -> None:
    """Where nothing fits the question, no call is made, and nothing is said to be wrong."""
    with Loopback() as server:
        settings = {"endpoints.test.base_url": server.base_url, "ask.model": "endpoint:test/m"}
        with MemTier.open(home, settings=settings) as memory:
            tell(memory, ["My daughter is called Lena."], ["The car is insured by Halden."])
            answer = memory.ask("Which framework is the frontend built with?")
            assert (answer.answered, answer.text, answer.problem) == (False, NOTHING, "")
            assert server.count() == 0
            memory.ask("Who insures the car?")
            assert server.count() > 0
            read = json.dumps([request["body"] for request in server.requests])
            assert "Halden" in read
            assert "Lena" not in read
