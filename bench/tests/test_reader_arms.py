"""Answers end to end: one reader, four arms, questions without an answer, and a cut-off run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from memtier_bench.answers import is_unknown, numbers_match, numbers_of
from memtier_bench.datasets import DatasetQuestion
from memtier_bench.reader_arms import ARMS, draw_order, run_answers
from memtier_bench.reading import ReaderModel
from memtier_bench.report import markdown
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import EndpointError, ImportFileError
from memtier_plugin.providers.prompting import load_prompt
from tests.loopback import Loopback


def talk(tmp_path: Path) -> Path:
    """Write a LoCoMo file of three facts among small talk, and a question that none answers."""
    lines = ["My cello teacher is called Ortrud.", "The bakery in Leeds opens at six."]
    lines += [
        "We painted the hallway teal.",
        *(f"The weather was fine on walk {n}." for n in range(40)),
    ]
    turns = [
        {"speaker": "Ada" if n % 2 else "Ben", "dia_id": f"D1:{n}", "text": text}
        for n, text in enumerate(lines, 1)
    ]
    known = [
        ("What is the cello teacher called?", "Ortrud", "D1:1"),
        ("When does the bakery in Leeds open?", "six", "D1:2"),
        ("Which colour did we paint the hallway?", "teal", "D1:3"),
    ]
    questions: list[dict[str, Any]] = [
        {"question": text, "answer": short, "evidence": [gold], "category": 4}
        for text, short, gold in known
    ]
    adversarial = {"evidence": ["D1:1"], "adversarial_answer": "Ortrud", "category": 5}
    questions.append({"question": "What is the name of the tennis coach?", **adversarial})
    sample = {
        "sample_id": "s",
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2024", "session_1": turns},
        "qa": questions,
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]))
    return path


def honest(body: dict[str, Any]) -> str:
    """Answer as a reader that knows three words, and says so where it sees none of them."""
    prompt = body["messages"][-1]["content"]
    block, _, asked = prompt.rpartition("Question: ")
    pairs = {"cello": "Ortrud", "bakery": "six", "colour": "teal"}
    known = [word for cue, word in pairs.items() if cue in asked and word in block]
    return known[0] if known else "Unknown."


def test_four_arms_and_a_ceiling(tmp_path: Path) -> None:
    """Gold lines are the ceiling, no memory is the floor, and what is not known is unknown."""
    with Loopback() as server:
        server.answers(honest)
        report = run_answers("locomo", talk(tmp_path), ReaderModel(server.base_url, "m"))
    arms = report["arms"]
    assert (report["questions"], report["unanswerable"], tuple(arms)) == (3, 1, ARMS)
    assert {name: row["f1"] for name, row in arms.items()} == {
        "none": 0.0,
        "bm25": 1.0,
        "memory": 1.0,
        "gold": 1.0,
    }
    assert all(row["unknown"]["share"] == 1.0 for row in arms.values())
    assert arms["none"]["needless_unknown"]["share"] == 1.0
    assert arms["gold"]["needless_unknown"]["share"] == 0.0
    assert report["differences"]["memory - none"]["f1"] == [1.0, 1.0, 1.0]
    assert report["differences"]["memory - gold"]["f1"] == [0.0, 0.0, 0.0]
    # "six" is a number; a name and a colour are none
    assert arms["gold"]["numbers"] == {"share": 1.0, "interval": [0.2065, 1.0], "of": 1}
    [lost] = [row for row in report["per_question"] if row["expected"] is None]
    assert (lost["category"], lost["answers"]["gold"]["block_tokens"]) == ("unanswerable", 0)


def test_ask_is_an_arm_and_its_citations_are_held_against_the_gold_lines(tmp_path: Path) -> None:
    """`MemTier.ask` answers by the same reader; what it does not answer is unknown."""

    def asked(body: dict[str, Any]) -> str:
        system, user = (message["content"] for message in body["messages"])
        if system == load_prompt("answer").text:
            pairs = {"cello": "Ortrud", "bakery": "six", "colour": "teal"}
            known = [word for cue, word in pairs.items() if cue in user and word in user]
            reply = {"enough": bool(known), "answer": "".join(known), "cites": [1]}
            return json.dumps(reply)
        if system == load_prompt("integrate").text:
            return json.dumps({"findings": [], "missing": ""})
        if system == load_prompt("plan").text:
            return json.dumps({"decision": "DONE", "searches": []})
        return honest(body)

    with Loopback() as server:
        server.answers(asked)
        report = run_answers("locomo", talk(tmp_path), ReaderModel(server.base_url, "m"), ask=True)
    ask = report["arms"]["ask"]
    assert ask["f1"] == 1.0
    assert ask["unknown"]["share"] == 1.0
    assert 0 < ask["prompt_tokens"] < 3_000
    assert report["cites_gold"]["share"] == 1.0
    assert report["cites_gold"]["of"] == 3
    assert report["differences"]["ask - memory"]["f1"] == [0.0, 0.0, 0.0]
    assert "of 3 answers of `memtier ask` 1.000" in markdown(report)


def test_all_arms_keep_to_one_budget(tmp_path: Path) -> None:
    """BM25 fills the budget that MemTier's block must keep to, and the gold lines cost least."""
    with Loopback() as server:
        report = run_answers(
            "locomo",
            talk(tmp_path),
            ReaderModel(server.base_url, "m"),
            overrides={"retrieval.token_budget": 300},
        )
    for row in report["per_question"]:
        tokens = {arm: answer["block_tokens"] for arm, answer in row["answers"].items()}
        assert tokens["none"] == 0
        assert 280 <= tokens["bm25"] <= 300
        assert tokens["memory"] <= 300
        assert tokens["gold"] < tokens["bm25"]


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    """Replies are kept in a file: a later run pays for the rest only, and has the same figures."""
    data, file = talk(tmp_path), tmp_path / "replies.jsonl"

    def reader(server: Loopback) -> ReaderModel:
        return ReaderModel(server.base_url, "m", replies=file)

    with Loopback() as server:
        server.answers(honest)
        run_answers("locomo", data, reader(server), sample=2)
        first = server.count("/chat/completions")
        with file.open("a") as half:
            half.write('{"key": "cut off in the mid')
        report = run_answers("locomo", data, reader(server))
        # Of the last question neither the block nor the gold lines hold anything
        assert (first, server.count("/chat/completions")) == (8, 14)
        again = run_answers("locomo", data, reader(server))
        assert server.count("/chat/completions") == 14
    assert again["arms"] == report["arms"]
    assert again["per_question"] == report["per_question"]


def test_the_report_says_who_read_and_how(tmp_path: Path) -> None:
    """The reader, its instruction and the seed stand in the report and in its tables."""
    data, out = talk(tmp_path), tmp_path / "answers.json"
    with Loopback() as server:
        config = tmp_path / "home" / "config.yaml"
        config.parent.mkdir(mode=0o700)
        config.write_text(f"endpoints:\n  desk:\n    base_url: {server.base_url}\n")
        words = f"--home {config.parent} bench answers --data {data} --reader endpoint:desk/tiny"
        result = CliRunner().invoke(main, [*words.split(), "--json", str(out), "--seed", "7"])
        assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert (report["seed"], report["reader"]["model"]) == (7, "tiny")
    assert "say: unknown" in report["reader"]["instruction"]
    for text in (result.stdout, markdown(report)):
        assert "the gold lines" in text and "stemmed BM25" in text


def test_a_reader_is_named_by_its_endpoint(tmp_path: Path) -> None:
    """An address in place of a name is refused with the form that is expected."""
    words = ["bench", "answers", "--data", str(talk(tmp_path)), "--reader", "http://127.0.0.1:9/v1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "endpoint:NAME/MODEL" in result.output


def test_a_reader_that_is_away_ends_the_run(tmp_path: Path) -> None:
    """Nothing is scored for answers that were never given."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        server.always("401")
        with pytest.raises(EndpointError):
            run_answers("locomo", talk(tmp_path), reader)


@given(st.lists(st.sampled_from("aaaabbc"), min_size=7, max_size=60), st.integers(0, 99))
def test_every_beginning_of_the_order_is_a_sample(categories: list[str], seed: int) -> None:
    """Wherever a run is cut off, each category has its share, give or take a question each."""
    questions = [
        DatasetQuestion(id=f"{n}", text="", category=c, gold=frozenset(), at=None)
        for n, c in enumerate(categories)
    ]
    order = draw_order(questions, seed)
    assert order == draw_order(questions, seed)
    assert sorted(q.id for q in order) == sorted(q.id for q in questions)
    total = Counter(categories)
    for size in range(len(order)):
        seen = Counter(q.category for q in order[:size])
        for name, count in total.items():
            assert abs(seen[name] - size * count / len(order)) <= len(total)


@pytest.mark.parametrize(
    "answer, expected, right",
    [
        ("May 7, 2023", "7 May 2023", True),
        ("2023-05-07", "7 May 2023", True),
        ("the 7th of may 2023", "7 May 2023", True),
        ("8 May 2023", "7 May 2023", False),
        ("in May", "7 May 2023", False),
        ("she may have 3", "three", True),
        ("10,000", "10000", True),
        ("a cello", "the cello", None),
    ],
)
def test_dates_and_numbers_are_the_same_in_any_spelling(
    answer: str, expected: str, right: bool | None
) -> None:
    """A date counts by its day, month and year, a number by its value, and a modal verb not."""
    assert numbers_match(answer, expected) is right


@given(st.text(max_size=80))
def test_numbers_of_any_text(text: str) -> None:
    """Any text has numbers or none, and always those of its own."""
    assert numbers_match(text, text) is (True if numbers_of(text) else None)


@pytest.mark.parametrize(
    "text", ["unknown", "Unknown.", "It's not mentioned.", "I don't know", "No information given"]
)
def test_unknown_is_recognised(text: str) -> None:
    """The usual ways of saying that nothing tells."""
    assert is_unknown(text)


@pytest.mark.parametrize("text", ["", "an unknown artist", "no", "none of them", "Ortrud"])
def test_an_answer_is_not_unknown(text: str) -> None:
    """What could be an answer is one."""
    assert not is_unknown(text)


CASES = """\
cases:
- {id: c1, kind: agent, ask: "Which port does staging use?", now: ["9443"], old: ["8080"],
   history: [[2026-01-05, {user: "Staging uses port 8080."}],
             [2026-01-19, {Ana: "Staging uses port 9443 now."}, {assistant: "Okay."}]]}
"""


def test_a_judgement_set_is_answered(tmp_path: Path) -> None:
    """What holds now is the answer, its line the gold one, and the block has it first."""
    (tmp_path / "currency.yaml").write_text(CASES, "utf-8")
    with Loopback() as server:
        server.answers(lambda body: "9443" if "9443" in body["messages"][-1]["content"] else "8080")
        report = run_answers("judgement", tmp_path, ReaderModel(server.base_url, "m"))
    assert {arm: row["soft_em_tokens"] for arm, row in report["arms"].items()} == {
        "none": 0,
        "bm25": 1,
        "memory": 1,
        "gold": 1,
    }
    assert report["per_question"][0]["category"] == "agent"


def test_a_bad_judgement_set_is_refused(tmp_path: Path) -> None:
    """The message names the file and what is wrong in it."""
    for text, problem in (
        ("cases: 3", "'cases'"),
        ("cases: [", "not to be read"),
        (None, "No such"),
    ):
        file = tmp_path / "currency.yaml"
        if text:
            file.write_text(text, "utf-8")
        else:
            file.unlink()
        with pytest.raises(ImportFileError, match=problem) as refused:
            run_answers("judgement", tmp_path, ReaderModel("http://127.0.0.1:9/v1", "m"))
        assert str(file) in str(refused.value)
