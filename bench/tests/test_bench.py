"""Measuring retrieval: what the loaders take for evidence, what is counted, and whole small runs.

The conversations here are made up; the real data sets are not part of the project.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_bench.baselines import Bm25Baseline
from memtier_bench.datasets import Dataset, load_dataset
from memtier_bench.metrics import (
    CUTOFFS,
    QuestionOutcome,
    latency_percentiles,
    ndcg_at,
    percentile,
    question_figures,
    recall_at,
    reciprocal_rank,
    source_turns,
    summarise_outcomes,
)
from memtier_bench.report import markdown, print_report
from memtier_bench.retrieval import run_retrieval
from memtier_plugin.core.errors import ImportFileError, SettingsError, Unsupported

LINES = [
    [
        ("Ada", "I planted runner beans behind the shed."),
        ("Ben", "My sister opened a bakery in Leeds."),
        ("Ada", "The cello lesson moved to Thursday."),
        ("Ben", "We are repainting the hallway in teal."),
    ],
    [
        ("Ben", "The bakery sold out of rye bread."),
        ("Ada", "My cello needs a new bow."),
        ("Ada", "See you soon."),
    ],
]


def locomo(tmp_path: Path, *questions: tuple[Any, ...], samples: int = 1) -> Path:
    """Write a LoCoMo file of samples with seven turns each; asked: (category, question, ids...)."""
    conversation: dict[str, Any] = {}
    for number, lines in enumerate(LINES, start=1):
        conversation[f"session_{number}_date_time"] = f"1:56 pm on {number} May, 2024"
        conversation[f"session_{number}"] = [
            {"speaker": speaker, "dia_id": f"D{number}:{index}", "text": text}
            for index, (speaker, text) in enumerate(lines, start=1)
        ]
    qa = [
        {"question": question, "answer": "Ada", "evidence": list(evidence), "category": category}
        for category, question, *evidence in questions
    ]
    observation = {
        "session_1_observation": {
            "Ada": [["Ada grows beans.", "D1:1"], ["Ada plays the cello.", ["D1:3", "D2:02"]]],
            "Ben": [["Ben knows nobody.", "D9:9"]],
        }
    }
    sample = {"conversation": conversation, "qa": qa, "observation": observation}
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": f"s{n}", **sample} for n in range(samples)]))
    return path


def beam(tmp_path: Path, probes: dict[str, list[dict[str, Any]]], name: str = "1") -> Path:
    """Write a BEAM folder with one conversation of two batches."""
    folder = tmp_path / "beam"
    (folder / name / "probing_questions").mkdir(parents=True)

    def message(number: int, content: str, **more: Any) -> dict[str, Any]:
        return {"id": number, "role": "assistant" if number % 2 else "user", "content": content} | {
            **more
        }

    chat = [
        {
            "batch_number": 1,
            "time_anchor": None,
            "turns": [
                [
                    message(0, "I plan a garden. ->-> 1,1", time_anchor="March-15-2024"),
                    message(1, "Start with beans."),
                ],
                [message(2, "And a shed? ->->  2,N/A"), message(3, "Use a -> b, then ->-> done")],
            ],
        },
        {
            "batch_number": 2,
            "time_anchor": None,
            "turns": [[message(4, "It grew.", time_anchor="May-02-2024"), message(5, "Good.")]],
        },
    ]
    (folder / name / "chat.json").write_text(json.dumps(chat))
    (folder / name / "probing_questions" / "probing_questions.json").write_text(json.dumps(probes))
    return folder


def longmemeval(tmp_path: Path, **more: Any) -> Path:
    """Write a LongMemEval file of one item: three sessions, the answer in the second."""
    item = {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which instrument do I play?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": "cello",
        "answer_session_ids": ["b"],
        "haystack_session_ids": ["a", "b", "c"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21"] * 3,
        "haystack_sessions": [
            [{"role": "user", "content": "I bake rye bread.", "has_answer": True}],
            [
                {"role": "user", "content": "I play the cello.", "has_answer": True},
                {"role": "assistant", "content": "A fine instrument.", "has_answer": False},
            ],
            [{"role": "assistant", "content": "Paint the hallway."}],
        ],
    }
    path = tmp_path / "longmemeval.json"
    path.write_text(json.dumps([{**item, **more}]))
    return path


def gold(dataset: Dataset) -> list[set[str]]:
    """Return the gold turns of each question."""
    return [set(q.gold) for c in dataset.conversations for q in c.questions]


def test_locomo_asks_categories_one_to_four(tmp_path: Path) -> None:
    """Category 5 has nothing to find; it is neither asked nor counted as skipped."""
    asked_questions = [(category, "?", "D1:1") for category in (1, 2, 3, 4, 5)]
    dataset = load_dataset("locomo", locomo(tmp_path, *asked_questions))
    questions = dataset.conversations[0].questions
    assert [q.category for q in questions] == [
        "multi-hop",
        "temporal",
        "open-domain",
        "single-hop",
    ]
    assert dataset.skipped == 0


def test_locomo_evidence_is_normalised(tmp_path: Path) -> None:
    """Several ids in one string, leading zeros and a stray colon name the turns they mean."""
    path = locomo(tmp_path, (1, "?", "D1:1; D2:2"), (1, "?", "D1:02"), (1, "?", "D:1:3", "D2:01"))
    assert gold(load_dataset("locomo", path)) == [{"D1:1", "D2:2"}, {"D1:2"}, {"D1:3", "D2:1"}]


def test_evidence_that_names_no_turn_is_left_out_and_counted(tmp_path: Path) -> None:
    """A question keeps the evidence that resolves; one that keeps none is skipped."""
    path = locomo(tmp_path, (1, "?", "D1:1", "D", "D7:7"), (1, "?", "D9:1"), (1, "?"))
    dataset = load_dataset("locomo", path)
    assert gold(dataset) == [{"D1:1"}]
    assert (dataset.skipped, dataset.unresolved) == (2, 3)


def test_locomo_questions_are_asked_a_day_after_the_newest_turn(tmp_path: Path) -> None:
    """`at` is the newest session's date plus a day."""
    dataset = load_dataset("locomo", locomo(tmp_path, (1, "?", "D1:1")))
    assert dataset.conversations[0].questions[0].at == datetime(2024, 5, 3, 13, 56, tzinfo=UTC)


def test_locomo_states_facts_with_their_turns(tmp_path: Path) -> None:
    """An observation names one turn or several; one that names none is no fact."""
    dataset = load_dataset("locomo", locomo(tmp_path))
    assert [(f.text, f.speaker, f.gold_ids) for f in dataset.conversations[0].facts] == [
        ("Ada grows beans.", "Ada", ("D1:1",)),
        ("Ada plays the cello.", "Ada", ("D1:3", "D2:2")),
    ]


def test_beam_evidence_is_a_list_or_nested(tmp_path: Path) -> None:
    """Ids come as a list, a list in a list, or lists by name; a question without is skipped."""
    probes = {
        "a": [{"question": "?", "source_chat_ids": [1, [2, 3]]}],
        "b": [{"question": "?", "source_chat_ids": {"first": [0], "second": [4, 0]}}],
        "c": [{"question": "?"}, {"question": "?", "source_chat_ids": [99]}],
    }
    dataset = load_dataset("beam", beam(tmp_path, probes))
    assert gold(dataset) == [{"1", "2", "3"}, {"0", "4"}]
    assert (dataset.skipped, dataset.unresolved) == (2, 1)


def test_beam_batches_are_sessions_and_dates_carry_forward(tmp_path: Path) -> None:
    """A message's own `time_anchor` holds until the next; a batch is a session."""
    sessions = load_dataset("beam", beam(tmp_path, {})).conversations[0].sessions
    march, may = datetime(2024, 3, 15, tzinfo=UTC), datetime(2024, 5, 2, tzinfo=UTC)
    assert [(s.session_id, s.observed_at) for s in sessions] == [
        ("batch-1", march),
        ("batch-2", may),
    ]
    assert [m.observed_at for s in sessions for m in s.messages] == [march] * 4 + [may] * 2


def test_beam_marks_are_stripped_from_the_end_only(tmp_path: Path) -> None:
    """`->-> 1,1` at the end is the plan's own number; arrows that somebody wrote stay."""
    sessions = load_dataset("beam", beam(tmp_path, {})).conversations[0].sessions
    assert [m.content for m in sessions[0].messages] == [
        "I plan a garden.",
        "Start with beans.",
        "And a shed?",
        "Use a -> b, then ->-> done",
    ]


def test_beam_conversations_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """2 comes before 10."""
    for name in ("10", "2"):
        folder = beam(tmp_path, {}, name)
    assert [c.id for c in load_dataset("beam", folder).conversations] == ["2", "10"]


def test_longmemeval_gold_is_marked_and_in_an_answer_session(tmp_path: Path) -> None:
    """A turn is gold when `has_answer` is true and its session is one of the answer's."""
    dataset = load_dataset("longmemeval", longmemeval(tmp_path))
    assert gold(dataset) == [{"b:0"}]
    question = dataset.conversations[0].questions[0]
    assert (question.id, question.category) == ("q1", "single-session-user")
    assert question.at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)


def test_a_longmemeval_item_without_gold_is_skipped(tmp_path: Path) -> None:
    """Without a marked turn there is nothing to look for."""
    dataset = load_dataset("longmemeval", longmemeval(tmp_path, answer_session_ids=["c"]))
    assert (gold(dataset), dataset.skipped) == ([], 1)


def test_a_wrong_data_set_is_named(tmp_path: Path) -> None:
    """An unknown name, an empty folder and a malformed file are told apart."""
    with pytest.raises(ImportFileError, match="unknown data set 'x'; one of: locomo, beam"):
        load_dataset("x", tmp_path)
    with pytest.raises(ImportFileError, match="expected conversations of beam, found none"):
        load_dataset("beam", tmp_path)
    path = tmp_path / "locomo.json"
    path.write_text("{}")
    with pytest.raises(ImportFileError, match=r"locomo\.json: expected a list"):
        load_dataset("locomo", path)


def test_a_hit_takes_a_place_for_each_new_source() -> None:
    """Sources keep their order; a turn that came before takes no second place."""
    assert source_turns([["a"], ["c", "b"], ["a", "d"], []]) == ("a", "c", "b", "d")


def test_recall_counts_gold_turns_among_the_first_k() -> None:
    """Two gold turns, one of them in the first two places: a half."""
    assert recall_at(("x", "a", "b"), {"a", "b"}, 2) == 0.5
    assert recall_at(("x", "a", "b"), {"a", "b"}, 50) == 1.0


def test_reciprocal_rank_is_of_the_first_gold_turn() -> None:
    """The second place gives a half, no place gives nothing."""
    assert reciprocal_rank(("x", "a", "b"), {"a", "b"}) == 0.5
    assert reciprocal_rank(("x",), {"a"}) == 0.0


def test_percentiles_are_of_the_nearest_rank() -> None:
    """Of 1..100 the 95th percentile is 95; of one value every percentile is that value."""
    values = list(range(100, 0, -1))
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert latency_percentiles([0.002]) == {"p50": 2.0, "p95": 2.0, "p99": 2.0}
    assert latency_percentiles([]) == {"p50": 0.0, "p95": 0.0, "p99": 0.0}


def test_every_question_counts_the_same_in_all_and_by_category() -> None:
    """Hit is any gold turn, all is every one; injected recall looks at the block only."""
    gold = frozenset("ab")
    outcomes = [
        QuestionOutcome(category="one", gold=gold, ranked=("a", "b"), injected=gold, tokens=10),
        QuestionOutcome(
            category="two", gold=gold, ranked=("x", "a"), injected=frozenset("x"), tokens=30
        ),
    ]
    summary = summarise_outcomes(outcomes)
    assert (summary["recall"]["1"], summary["recall"]["2"]) == (0.25, 0.75)
    assert (summary["hit"]["1"], summary["hit"]["2"]) == (0.5, 1.0)
    assert (summary["all"]["1"], summary["all"]["2"]) == (0.0, 0.5)
    assert summary["mrr"] == 0.75
    assert (summary["injected_recall"], summary["injected_tokens"]) == (0.5, 20)
    assert summary["by_category"]["two"]["recall"]["2"] == 0.5
    assert summary["by_category"]["one"]["questions"] == 1


def test_gain_is_discounted_by_place() -> None:
    """A gold turn counts 1 / log2(1 + place), and all counts stand against the best order."""
    gold = {"a", "b"}
    assert ndcg_at(("a", "b", "x"), gold, 4) == 1.0
    assert ndcg_at(("x", "a"), gold, 4) == pytest.approx(0.6309 / 1.6309, abs=1e-4)
    assert ndcg_at(("x", "y", "z", "v", "a"), gold, 4) == 0.0


def test_a_question_without_evidence_counts_for_answers_only() -> None:
    """What has no gold turn has no recall, and no mean includes it."""
    answerable = QuestionOutcome(id="q1", category="c", gold=frozenset("a"), ranked=("a",))
    nothing = QuestionOutcome(
        id="q2", category="c", gold=frozenset(), ranked=("a",), injected=frozenset()
    )
    assert (
        question_figures(nothing)["recall"] is question_figures(nothing)["injected_recall"] is None
    )
    assert summarise_outcomes([answerable, nothing])["recall"]["1"] == 1.0
    assert summarise_outcomes([answerable, nothing])["by_category"]["c"]["questions"] == 1


def test_the_plain_baseline_takes_words_as_they_stand(tmp_path: Path) -> None:
    """`bm25` finds the same word in any case, but not another form of it, nor the speaker."""
    conversation = load_dataset("locomo", locomo(tmp_path)).conversations[0]
    plain = Bm25Baseline("bm25", conversation)
    assert plain.rank("BAKERY bread")[0] == "D2:1"
    assert plain.rank("Bens repaint hallways") == tuple(t.id for t in conversation.turns)


def test_the_stemmed_baseline_takes_stems_date_and_speaker(tmp_path: Path) -> None:
    """`bm25-stem` finds other forms of a word, the speaker and the date."""
    conversation = load_dataset("locomo", locomo(tmp_path)).conversations[0]
    stemmed = Bm25Baseline("bm25-stem", conversation)
    assert stemmed.rank("repainted hallways")[0] == "D1:4"
    assert set(stemmed.rank("What did Ben say?")[:3]) == {"D1:2", "D1:4", "D2:1"}
    assert set(stemmed.rank("What was on the 2 of May?")[:3]) == {"D2:1", "D2:2", "D2:3"}


def test_an_unknown_baseline_is_named(tmp_path: Path) -> None:
    """The message tells which baselines there are."""
    with pytest.raises(Unsupported, match="no baseline 'tfidf'; one of: bm25, bm25-stem"):
        run_retrieval("locomo", locomo(tmp_path, (1, "?", "D1:1")), baseline="tfidf")


ASKED = [
    (4, "Who planted runner beans?", "D1:1"),
    (1, "What happened with the cello?", "D1:3", "D2:2"),
    (4, "Which colour is the hallway repainted in?", "D1:4"),
    (2, "When did the bakery open?", "D1:2"),
]
KEYS = {
    "dataset",
    "profile",
    "facts",
    "questions",
    "skipped",
    "unresolved",
    "facts_stored",
    "reader",
    "recall",
    "hit",
    "all",
    "ndcg",
    "mrr",
    "injected_recall",
    "injected_tokens",
    "inject_latency_ms",
    "by_category",
    "ingest",
    "latency_ms",
    "peak_rss_mb",
    "version",
    "settings",
    "fingerprint",
    "per_question",
}


def test_a_run_finds_the_evidence_and_reports_it(tmp_path: Path) -> None:
    """Each sample has a project of its own; the report is JSON with the keys promised."""
    report = run_retrieval("locomo", locomo(tmp_path, *ASKED, samples=2))
    assert set(json.loads(json.dumps(report))) == KEYS
    assert (report["dataset"], report["profile"], report["facts"]) == (
        "locomo",
        "recall_first",
        "none",
    )
    assert (report["questions"], report["ingest"]["turns"]) == (8, 14)
    assert list(report["recall"]) == [str(k) for k in CUTOFFS]
    # Fourteen turns in one project would leave the second sample's gold behind the first's.
    assert report["recall"]["10"] == report["recall"]["50"] == 1.0
    assert report["injected_recall"] == 1.0
    assert 0 < report["injected_tokens"] <= report["settings"]["retrieval.token_budget"]


def test_a_profile_and_overrides_hold_for_the_run(tmp_path: Path) -> None:
    """The report's settings are those of the run; an unknown key is refused."""
    path = locomo(tmp_path, *ASKED)
    report = run_retrieval("locomo", path, profile="paper", overrides={"paper.k": 2})
    assert (report["profile"], report["settings"]["paper.k"]) == ("paper", 2)
    with pytest.raises(SettingsError):
        run_retrieval("locomo", path, overrides={"retrieval.q": 2})


def test_the_data_sets_own_facts_bring_their_turns(tmp_path: Path) -> None:
    """With `facts=dataset` a fact that is found or injected counts for the turns behind it."""
    path = locomo(tmp_path, (1, "Who grows beans?", "D1:1"))
    report = run_retrieval("locomo", path, facts="dataset")
    assert (report["facts"], report["recall"]["1"], report["injected_recall"]) == (
        "dataset",
        1.0,
        1.0,
    )


def test_facts_of_a_data_set_that_has_none_are_refused(tmp_path: Path) -> None:
    """LongMemEval states no facts; an unknown choice is named."""
    with pytest.raises(Unsupported, match="longmemeval states no facts of its own"):
        run_retrieval("longmemeval", longmemeval(tmp_path), facts="dataset")
    with pytest.raises(Unsupported, match="facts 'some'; one of: none, dataset, extracted"):
        run_retrieval("longmemeval", longmemeval(tmp_path), facts="some")


def test_every_data_set_runs(tmp_path: Path) -> None:
    """BEAM and LongMemEval go the same way as LoCoMo."""
    probes = {"a": [{"question": "What grew in the garden?", "source_chat_ids": [0, 4]}]}
    assert run_retrieval("beam", beam(tmp_path, probes))["recall"]["10"] == 1.0
    assert run_retrieval("longmemeval", longmemeval(tmp_path))["recall"]["10"] == 1.0


def test_a_limit_keeps_the_first_questions(tmp_path: Path) -> None:
    """Conversations about which nothing is asked any more are not ingested."""
    path = locomo(tmp_path, *ASKED, samples=2)
    report = run_retrieval("locomo", path, limit=2)
    assert (report["questions"], report["ingest"]["turns"]) == (2, 7)


def test_a_sample_has_of_each_category_its_share(tmp_path: Path) -> None:
    """Half of the questions are half of each category, in their order, the same each time."""
    questions = [(category, f"Question {n}?", "D1:1") for n in range(8) for category in (1, 4)]
    path = locomo(tmp_path, *questions)
    reports = [run_retrieval("locomo", path, baseline="bm25", sample=8) for _ in range(2)]
    first, again = ([question["id"] for question in report["per_question"]] for report in reports)
    assert first == again == sorted(first, key=lambda name: int(name.rpartition("/")[2]))
    counts = {name: row["questions"] for name, row in reports[0]["by_category"].items()}
    assert counts == {"multi-hop": 4, "single-hop": 4}
    everything = run_retrieval("locomo", path, baseline="bm25", sample=99)
    assert everything["questions"] == len(questions)


def test_a_data_set_without_evidence_is_refused(tmp_path: Path) -> None:
    """There is nothing to look for when no question names a turn."""
    with pytest.raises(ImportFileError, match="no question of locomo names a turn"):
        run_retrieval("locomo", locomo(tmp_path, (1, "?", "D9:9")))


def test_facts_can_be_extracted_first(tmp_path: Path) -> None:
    """With `facts=extracted` a consolidation runs before the questions; the facts are counted."""
    path = longmemeval(tmp_path)
    item = json.loads(path.read_text())[0]
    item["haystack_sessions"][1][0]["content"] = "I live in Aarhus. I play the cello."
    path.write_text(json.dumps([item]))
    assert run_retrieval("longmemeval", path, facts="extracted")["facts_stored"] > 0
    assert run_retrieval("longmemeval", path)["facts_stored"] == 0


def test_every_question_has_its_own_figures(tmp_path: Path) -> None:
    """The means of what stands under `per_question` are the figures of the whole."""
    report = run_retrieval("locomo", locomo(tmp_path, *ASKED))
    rows = report["per_question"]
    assert [row["id"] for row in rows] == ["s0/0", "s0/1", "s0/2", "s0/3"]
    for k, share in report["recall"].items():
        assert share == pytest.approx(sum(row["recall"][k] for row in rows) / 4, abs=1e-4)
    assert report["mrr"] == pytest.approx(sum(row["mrr"] for row in rows) / 4, abs=1e-4)
    injected = sum(row["injected_recall"] for row in rows) / 4
    assert report["injected_recall"] == pytest.approx(injected, abs=1e-4)


def test_a_baseline_reports_the_same_keys(tmp_path: Path) -> None:
    """A baseline injects nothing and has no settings; it is named as the profile."""
    report = run_retrieval("locomo", locomo(tmp_path, *ASKED), baseline="bm25-stem")
    assert set(report) == KEYS
    assert (report["profile"], report["settings"]) == ("bm25-stem", {})
    assert (report["injected_recall"], report["injected_tokens"]) == (None, None)
    assert report["recall"]["10"] == 1.0


def test_progress_ends_with_everything_done(tmp_path: Path) -> None:
    """The callback hears of every step and last of the whole."""
    heard: dict[str, tuple[int, int]] = {}
    run_retrieval(
        "locomo",
        locomo(tmp_path, *ASKED, samples=2),
        progress=lambda what, done, total: heard.update({what: (done, total)}),
    )
    assert heard == {"ingest": (14, 14), "ask": (8, 8)}


def test_reports_are_shown_as_tables(tmp_path: Path) -> None:
    """A person sees the figures of a run, and of a baseline."""
    from rich.console import Console

    path = locomo(tmp_path, *ASKED)
    console = Console(file=io.StringIO(), width=140)
    for report in (
        run_retrieval("locomo", path),
        run_retrieval("locomo", path, baseline="bm25"),
    ):
        print_report(report, console)
    shown = console.file.getvalue()
    for words in ("4 questions", "multi-hop", "injected recall", "bm25"):
        assert words in shown


def test_markdown_has_the_rows_of_the_console(tmp_path: Path) -> None:
    """Every cell of a table that a console shows stands in the Markdown, one row a line."""
    report = run_retrieval("locomo", locomo(tmp_path, *ASKED))
    lines = markdown(report).splitlines()
    assert lines[0] == "# memtier bench: locomo"
    head = next(number for number, line in enumerate(lines) if line.startswith("|  | @1 | @2 |"))
    assert lines[head + 1] == "| :-- |" + " --: |" * 10
    recall = " | ".join(f"{share:.3f}" for share in report["recall"].values())
    assert lines[head + 2].startswith(f"| recall | {recall} | {report['mrr']:.3f} |")
    named = {line.split(" | ")[0] for line in lines[head:]}
    assert {f"| {category}" for category in report["by_category"]} <= named
