"""A trained planner of searches: its file, its calls, and what `ask` does without it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.mem_t.planner import read_policy, write_policy
from memtier_papers.mem_t.planning import (
    ACTIONS,
    FEATURES,
    MAX_DEPTH,
    PlanState,
    ShownLine,
    best_action,
    features,
    legal_queries,
    probabilities,
    take_apart,
    words_of,
)
from memtier_papers.mem_t.tool_calls import FINISH
from memtier_plugin import MemTier
from memtier_plugin.core import formats
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.providers.prompting import load_prompt
from memtier_plugin.text.tokenizer import Tokenizer
from tests.faults import injection
from tests.loopback import Loopback

ZEROS = [[0.0] * len(FEATURES) for _ in ACTIONS]
TEXTS = st.text(st.sampled_from("Ada Ben cello when list? rye.\u2019é"), max_size=40)
tokenize = Tokenizer("english").words


@pytest.fixture
def server() -> Iterator[Loopback]:
    """Return a server whose model answers from the lines, and plans one search by itself."""
    with Loopback() as running:

        def answer(body: dict[str, Any]) -> str:
            if body["messages"][0]["content"] == load_prompt("answer").text:
                return json.dumps({"enough": True, "answer": "In Oslo.", "cites": [1]})
            query = json.dumps({"name": "search_turns", "arguments": {"query": "Rex"}})
            return f"<tool_call>{query}</tool_call>"

        running.answers(answer)
        yield running


def ask(
    home: Path, server: Loopback, planner: Path | str, question: str = "Where was my dog Rex born?"
) -> Any:
    """Ask one question with a planner."""
    settings = {
        "endpoints.local.base_url": server.base_url,
        "ask.model": "endpoint:local/m",
        "ask.mode": "tools",
        "ask.planner": str(planner),
    }
    with MemTier.open(home, settings=settings) as memory:
        memory.record([{"role": "user", "content": "My dog Rex was born in Oslo."}], session_id="s")
        return memory.ask(question)


def test_ask_searches_as_the_policy_plans(home: Path, server: Loopback, tmp_path: Path) -> None:
    """The policy makes the searches, in its order and number; the model only answers."""
    weights = [list(row) for row in ZEROS]
    weights[1][FEATURES.index("first")] = 5.0  # keywords, then the end
    weights[-1][FEATURES.index("covered")] = 5.0
    write_policy(tmp_path / "p.json", weights, {})
    answer = ask(home, server, tmp_path / "p.json")
    assert (answer.text, answer.problem) == ("In Oslo.", "")
    assert "a trained policy planned the searches" in answer.route.why
    names = [step.name for step in answer.steps]
    assert names.count("search_turns") == 1 and "answer" in names
    assert not [name for name in names if name.startswith("retrieve")]


def test_rules_search_for_each_part(home: Path, server: Loopback) -> None:
    """The question comes first, then each of the things it joins; the model only answers."""
    answer = ask(home, server, "rules", "Where were Rex and Bello born?")
    assert (answer.text, answer.problem) == ("In Oslo.", "")
    assert "rules planned the searches" in answer.route.why
    names = [step.name for step in answer.steps]
    assert names.count("search_turns") == 3 and "answer" in names


@pytest.mark.parametrize("harm", ["missing", "cut", "changed", "version", "sizes", "text"])
def test_a_bad_file_is_refused_and_ask_goes_on(
    harm: str, home: Path, server: Loopback, tmp_path: Path
) -> None:
    """A file that is cut or of another version is named; the model plans, and it is said."""
    path = tmp_path / "p.json"
    write_policy(path, ZEROS, {"questions": 3})
    record = json.loads(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif harm == "changed":
        path.write_bytes(path.read_bytes().replace(b"0.0", b"9.0", 1))
    elif harm == "version":
        path.write_bytes(formats.seal({**record, "version": 99}))
    elif harm == "sizes":
        path.write_bytes(formats.seal({**record, "weights": [[1.0]]}))
    else:
        path.write_text("no policy")
    with pytest.raises(SettingsError, match=r"p\.json"):
        read_policy(path)
    answer = ask(home, server, path)
    assert answer.text == "In Oslo."
    assert "p.json" in answer.problem and "the model planned" in answer.problem


def test_a_policy_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A writer killed at any step leaves the policy that was there before, or the new one."""
    path, log = tmp_path / "p.json", tmp_path / "points"
    ones = tuple(tuple([1.0] * len(FEATURES)) for _ in ACTIONS)
    zeros = tuple(map(tuple, ZEROS))

    def write_in_child(fault: str = "") -> int:
        if (child := os.fork()) == 0:
            try:
                injection.arm(fault, "" if fault else str(log))
                write_policy(path, ones, {})
            finally:
                os._exit(0)
        return os.waitpid(child, 0)[1]

    write_in_child()
    lines = [line.split("\t")[0] for line in log.read_text().splitlines()]
    points = dict.fromkeys(line for line in lines if line.endswith(path.name))
    assert len(points) > 2
    outcomes = set()
    for point in points:
        write_policy(path, ZEROS, {})
        assert write_in_child(point) == signal.SIGKILL
        assert read_policy(path) in (zeros, ones)
        outcomes.add(read_policy(path))
    assert outcomes == {zeros, ones}


@given(TEXTS, st.lists(TEXTS, max_size=6), st.integers(0, MAX_DEPTH + 1), st.integers(0, 99))
def test_every_state_has_a_legal_call(
    question: str, lines: list[str], steps: int, seed: int
) -> None:
    """Features lie in 0 to 1, chances add up to 1, and the best call is one that can be read."""
    asked = take_apart(f"Where {question}", tokenize)
    taken = tuple((index, f"q{index}") for index in range(min(steps, MAX_DEPTH)))
    shown = tuple(ShownLine(words_of(line, tokenize)) for line in lines)
    state = PlanState(asked, taken, shown, min(1, len(shown)))
    legal = legal_queries(state)
    values = features(state)
    assert len(values) == len(FEATURES) and all(0 <= value <= 1 for value in values)
    weights = [
        [((seed * row + 7 * column) % 5) - 2.0 for column in range(len(FEATURES))]
        for row in range(len(ACTIONS))
    ]
    chances = probabilities(weights, values, [query is not None for query in legal])
    assert sum(chances) == pytest.approx(1)
    action = best_action(weights, state)
    assert legal[action] is not None
    assert (ACTIONS[action].tool == FINISH) or legal[action]
    if len(taken) == MAX_DEPTH:
        assert ACTIONS[action].tool == FINISH


def test_forms_of_a_query() -> None:
    """The name is no sentence's first word; what lines say already is left out of the rest."""
    asked = take_apart("When did Ada's sister open the bakery in Leeds?", tokenize)
    assert asked.name == "Ada" and asked.times
    line = ShownLine(words_of("Ada plays the cello in Leeds.", tokenize))
    state = PlanState(asked, ((0, asked.text),), (line,), 1)
    queries = dict(zip(ACTIONS, legal_queries(state), strict=True))
    assert queries[ACTIONS[0]] is None  # it was asked already
    assert "sister" in (queries[ACTIONS[2]] or "") and "Leeds" not in (queries[ACTIONS[2]] or "")
    assert "cello" in (queries[ACTIONS[3]] or "")
