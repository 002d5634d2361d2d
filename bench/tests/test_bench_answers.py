"""Judging answers and saying how sure a figure is: golden values, properties, and a whole run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_bench.answers import (
    bleu1,
    judge_answer,
    memt_f1,
    memt_tokens,
    normalise_answer,
    soft_em,
    soft_em_tokens,
    summarise_answers,
    token_f1,
)
from memtier_bench.intervals import bootstrap_interval, wilson_interval
from memtier_bench.metrics import ndcg_at
from memtier_bench.reading import ReaderModel
from memtier_bench.retrieval import run_retrieval
from memtier_papers.memtier import scorer as paper_scorer
from memtier_plugin.core.errors import EndpointError, Unsupported
from memtier_plugin.credit.verdict import paired_difference
from tests.cases import each_case
from tests.loopback import Loopback

FILE = Path(__file__).parents[2] / "tests" / "golden" / "evaluation.json"
GOLDEN: dict[str, dict[str, Any]] = {g["id"]: g for g in json.loads(FILE.read_text("utf-8"))}
MEM_T = json.loads((FILE.parents[2] / "papers/tests/golden/mem_t.json").read_text("utf-8"))
VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=40)
PAIRS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40)
# Short words of few letters, so that some answers hold each other.
WORDS = st.lists(st.sampled_from(["the", "a", "ab", "b", "car"])).map(" ".join)
SAID = st.text("ab ,.", max_size=12) | WORDS


def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Judge an answer as the reference writes it down."""
    prediction, expected = inputs["pred"], inputs["gold"]
    return {
        "norm_pred": normalise_answer(prediction),
        "norm_gold": normalise_answer(expected),
        "soft_em": int(soft_em(prediction, expected)),
        "f1": token_f1(prediction, expected),
    }


def gain(inputs: Mapping[str, Any]) -> dict[str, float]:
    """Return the normalised gain of a ranking whose relevant places are given."""
    ranked = [f"{rank}" if relevant else "-" for rank, relevant in enumerate(inputs["rels"])]
    gold = [name for name in ranked if name != "-"]
    assert len(gold) == inputs["n_relevant"]
    return {"ndcg": ndcg_at(ranked, gold, len(ranked))}


CHECKS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "wilson_": lambda inputs: list(wilson_interval(inputs["k"], inputs["n"], inputs["z"])),
    "eval_softem_": answer,
    "eval_ndcg4": gain,
    "rrf_": lambda inputs: paper_scorer.fuse_ranks(inputs["lists"], inputs["k"]),
}


@each_case("name", GOLDEN)
def test_golden(name: str) -> None:
    """Every value of the reference comes out of the shipped code, rankings in their order."""
    golden = GOLDEN[name]
    [check] = [check for prefix, check in CHECKS.items() if name.startswith(prefix)]
    actual, expected = check(golden["inputs"]), golden["expected"]
    if isinstance(actual, dict):
        expected = {key: expected[key] for key in expected if key in actual}  # the gain's parts
        assert list(actual) == list(expected)
    assert actual == pytest.approx(expected, abs=golden["tolerance"])


def test_golden_values_are_all_here() -> None:
    """Ten intervals, thirteen answers, a gain and a fusion; each kind has its check."""
    counts = {prefix: sum(name.startswith(prefix) for name in GOLDEN) for prefix in CHECKS}
    assert counts == {"wilson_": 10, "eval_softem_": 13, "eval_ndcg4": 1, "rrf_": 1}
    assert sum(counts.values()) == len(GOLDEN)


@pytest.mark.parametrize("prediction, expected", [("art", "the party"), ("12", "2")])
def test_whole_tokens_are_stricter(prediction: str, expected: str) -> None:
    """What is right only inside a word is right as published, and wrong by token boundary."""
    assert soft_em(prediction, expected)
    assert not soft_em_tokens(prediction, expected)


@given(SAID, SAID)
def test_judgements_agree(prediction: str, expected: str) -> None:
    """Tokens right is right, equal is right with an F1 of 1, and neither side matters more."""
    assert soft_em(prediction, expected) or not soft_em_tokens(prediction, expected)
    assert soft_em_tokens(prediction, prediction)
    assert token_f1(prediction, prediction) == 1.0
    assert soft_em(prediction, expected) == soft_em(expected, prediction)
    assert soft_em_tokens(prediction, expected) == soft_em_tokens(expected, prediction)
    assert token_f1(prediction, expected) == token_f1(expected, prediction)
    assert 0.0 <= token_f1(prediction, expected) <= 1.0
    if not normalise_answer(prediction):
        assert soft_em(prediction, expected) == (not normalise_answer(expected))


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson(successes: int, more: int) -> None:
    """The interval holds the share, lies within 0 and 1, and mirrors that of the failures."""
    total = successes + more
    low, high = wilson_interval(successes, total)
    assert 0.0 <= low <= high <= 1.0
    if total:
        assert low <= successes / total <= high
        assert high - low < 1.0
    assert wilson_interval(more, total) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_wilson_of_the_impossible() -> None:
    """More successes than trials is a mistake of the caller."""
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson_interval(3, 2)


@given(VALUES)
def test_bootstrap(values: list[float]) -> None:
    """The interval lies within the values, and is one value when they are all one."""
    low, high = bootstrap_interval(values, samples=200)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    alike = bootstrap_interval([values[0]] * len(values), samples=200)
    assert alike == pytest.approx((values[0], values[0]))


def test_bootstrap_is_as_wide_as_theory_says() -> None:
    """Of many values the interval comes near the normal one: 1.96 standard errors a side."""
    values = [float(number % 2) for number in range(1000)]
    low, high = bootstrap_interval(values)
    assert (low, high) == pytest.approx((0.5 - 0.031, 0.5 + 0.031), abs=0.003)
    assert bootstrap_interval(values) == (low, high)


@given(VALUES)
def test_no_run_differs_from_itself(values: list[float]) -> None:
    """The difference of a run with itself is 0, surely, and never real."""
    same = paired_difference(values, values, samples=200)
    assert (same.mean, same.low, same.high, same.p, same.significant) == (0.0, 0.0, 0.0, 1.0, False)


@given(PAIRS)
def test_differences_are_symmetric(pairs: list[tuple[float, float]]) -> None:
    """B minus A is A minus B with the signs turned, and just as real."""
    ours, theirs = map(list, zip(*pairs, strict=True))
    forward, other = (
        paired_difference(ours, theirs, samples=200),
        paired_difference(theirs, ours, samples=200),
    )
    assert other.mean == pytest.approx(-forward.mean, abs=1e-12)
    assert (other.low, other.high) == pytest.approx((-forward.high, -forward.low), abs=1e-12)
    assert (other.p, other.significant) == (forward.p, forward.significant)
    assert forward.low - 1e-12 <= forward.high


def test_a_difference_is_real_when_it_is_everywhere() -> None:
    """Better on every question is real; better on one of a hundred is not."""
    assert paired_difference([1.0] * 50, [0.5] * 50).significant
    once = paired_difference([1.0] + [0.0] * 99, [0.0] * 100)
    assert not once.significant
    assert once.p > 0.05


def test_nothing_measured_is_no_difference() -> None:
    """Without a question there is no mean."""
    with pytest.raises(ValueError, match="nothing was measured"):
        paired_difference([], [])


def test_answers_are_summed_up_with_intervals() -> None:
    """Means, intervals and tokens are over all answers; categories stand beside."""
    answers = [
        ("a", judge_answer("a cello", "Cello", 100, 2)),
        ("a", judge_answer("party", "art", 300, 4)),
        ("b", judge_answer("no idea", "cello", 200, 3)),
    ]
    summary = summarise_answers(answers)
    scores = summary["soft_em"], summary["soft_em_tokens"], summary["f1"]
    assert scores == (0.6667, 0.3333, 0.3333)
    assert summary["soft_em_interval"] == [round(bound, 4) for bound in wilson_interval(2, 3)]
    assert (summary["prompt_tokens"], summary["completion_tokens"]) == (200, 3)
    assert summary["by_category"]["b"]["soft_em"] == 0.0
    assert summary["by_category"]["a"]["questions"] == 2


# -- through an endpoint ---------------------------------------------------------------------------


def talk(tmp_path: Path) -> Path:
    """Write a LoCoMo file in which the gold turns hold the answers, and one question has none."""
    lines = [
        ("Ada", "My cello teacher is called Ortrud."),
        ("Ben", "The bakery in Leeds opens at six."),
        ("Ada", "We painted the hallway teal."),
    ]
    turns = [
        {"speaker": who, "dia_id": f"D1:{n}", "text": text}
        for n, (who, text) in enumerate(lines, 1)
    ]
    questions = [
        ("What is the cello teacher called?", "Ortrud", ["D1:1"]),
        ("When does the bakery in Leeds open?", "six", ["D1:2"]),
        ("Which colour did we paint the hallway?", "teal", ["D1:3"]),
        ("How many cellos are there?", 2, []),
    ]
    sample = {
        "sample_id": "s",
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2024", "session_1": turns},
        "qa": [
            {"question": question, "answer": short, "evidence": gold, "category": 4}
            for question, short, gold in questions
        ],
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]))
    return path


def test_the_oracle_by_session_reads_whole_sessions(tmp_path: Path) -> None:
    """It has more to read than the gold turns alone, and not what other sessions hold."""
    path = talk(tmp_path)
    [sample] = json.loads(path.read_text())
    away = {"speaker": "Ida", "dia_id": "D2:1", "text": "The ferry was late, again and again."}
    sample["conversation"] |= {"session_2_date_time": "1:56 pm on 9 May, 2024", "session_2": [away]}
    path.write_text(json.dumps([sample]))
    conditions = ("oracle", "sessions", "full")
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "extractive")
        report = run_retrieval("locomo", path, reader=reader, conditions=conditions)
    tokens = [report["answers"][name]["prompt_tokens"] for name in conditions]
    assert tokens == sorted(tokens) and len(set(tokens)) == 3


def test_a_reader_answers_from_what_it_is_given(tmp_path: Path) -> None:
    """From the block and from the gold turns an extractive reader is right, from nothing wrong."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "extractive")
        report = run_retrieval(
            "locomo",
            talk(tmp_path),
            reader=reader,
            conditions=("memory", "oracle", "none", "full"),
        )
    answers = report["answers"]
    assert {name: row["questions"] for name, row in answers.items()} == {
        "memory": 4,
        "oracle": 4,
        "none": 4,
        "full": 4,
    }
    # Nobody said how many cellos there are, so no reader that quotes can know it.
    right = {name: row["soft_em_tokens"] for name, row in answers.items()}
    assert right == {"memory": 0.75, "oracle": 0.75, "none": 0.0, "full": 0.75}
    assert answers["memory"]["prompt_tokens"] > answers["oracle"]["prompt_tokens"]
    assert answers["none"]["prompt_tokens"] < answers["oracle"]["prompt_tokens"]
    # Three questions have evidence; the fourth is answered, but has no recall.
    assert (report["questions"], len(report["per_question"])) == (3, 4)
    assert report["per_question"][3]["recall"] is None
    assert report["per_question"][0]["answers"]["none"]["soft_em"] == 0.0
    assert report["reader"] == "extractive"


def test_a_prompt_is_the_block_and_the_question(tmp_path: Path) -> None:
    """The endpoint is sent what would be injected, at temperature 0, for at most 30 tokens."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        run_retrieval("locomo", talk(tmp_path), limit=1, reader=reader, conditions=("memory",))
        [request] = server.requests
    body = request["body"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 30)
    prompt = body["messages"][-1]["content"]
    assert prompt.startswith("<memtier-memory recall=")
    assert "Today is Thursday, 09 May 2024.\nQuestion: What is the cello teacher" in prompt


def test_the_same_prompt_is_sent_once(tmp_path: Path) -> None:
    """A block differs by its id each time; what says the same is not paid for again."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        for _ in range(2):
            run_retrieval("locomo", talk(tmp_path), limit=2, reader=reader, conditions=("none",))
        assert server.count("/chat/completions") == 2


def test_a_key_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is read where it is named, and a wrong one ends the run with a clear error."""
    monkeypatch.setenv("READER_KEY", "right")
    with Loopback(key="right") as server:
        reader = ReaderModel(server.base_url, "m", "READER_KEY")
        run_retrieval("locomo", talk(tmp_path), limit=1, reader=reader)
        monkeypatch.setenv("READER_KEY", "wrong")
        with pytest.raises(EndpointError, match="refuses the key; check the key in READER_KEY"):
            ReaderModel(server.base_url, "m", "READER_KEY").answer(*question(tmp_path))


def question(tmp_path: Path) -> tuple[Any, str]:
    """Return a question and an empty block."""
    from memtier_bench.datasets import load_dataset

    return load_dataset("locomo", talk(tmp_path)).conversations[0].questions[0], ""


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A baseline has no block, BEAM no short answers, and an address is http."""
    with pytest.raises(Unsupported, match="--reader 'localhost': expected an address such as"):
        ReaderModel("localhost", "m")
    reader = ReaderModel("http://127.0.0.1:9/v1", "m")
    with pytest.raises(Unsupported, match="'bm25' injects nothing for a reader to read"):
        run_retrieval("locomo", talk(tmp_path), baseline="bm25", reader=reader)
    with pytest.raises(
        Unsupported, match=r"beam has no short answers .* locomo, longmemeval, judgement"
    ):
        run_retrieval("beam", tmp_path, reader=reader)


@pytest.mark.parametrize("case", MEM_T, ids=lambda case: case["id"])
def test_the_measures_of_mem_t(case: dict[str, Any]) -> None:
    """F1 and BLEU-1 are those of Mem-T's own code, its normaliser included."""
    given_answer, gold = case["inputs"]["pred"], case["inputs"]["gold"]
    expected = case["expected"]
    assert " ".join(memt_tokens(given_answer)) == expected["norm_pred"]
    assert " ".join(memt_tokens(gold)) == expected["norm_gold"]
    assert memt_f1(given_answer, gold) == pytest.approx(expected["f1"], abs=case["tolerance"])
    assert bleu1(given_answer, gold) == pytest.approx(expected["bleu1"], abs=case["tolerance"])
