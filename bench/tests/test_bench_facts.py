"""`memtier bench facts`: what is counted, what is drawn, and which judgements hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_bench.datasets import load_dataset
from memtier_bench.facts import run_facts, run_judged
from memtier_bench.judged_facts import (
    CRITERIA,
    RUBRIC,
    draw_sample,
    judged_shares,
    judgement_key,
    list_rows,
    load_judgements,
)
from memtier_bench.reading import ReaderModel
from memtier_bench.report import markdown
from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.core.records import Source
from tests.builders import make_fact
from tests.loopback import Loopback

SAID = ("I adopted a parrot yesterday.", "How nice!", "I'm allergic to nuts.", "Oh no.")


def locomo(tmp_path: Path) -> Path:
    """Write a conversation of one session in LoCoMo's form, with one fact of its own."""
    session = [
        {"speaker": ("Ann", "Ben")[n % 2], "dia_id": f"D1:{n + 1}", "text": text}
        for n, text in enumerate(SAID)
    ]
    questions = [
        {"question": "Which pet does Ann have?", "evidence": ["D1:1"], "category": 4, "answer": "?"}
    ]
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": session,
        },
        "qa": questions,
        "observation": {"session_1_observation": {"Ann": [["Ann has a parrot.", "D1:1"]]}},
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]))
    return path


def judgement(row: Mapping[str, Any], *no: str) -> dict[str, Any]:
    """Return a judgement of a row of the sample; ``no`` names what it does not meet."""
    return {"fact": row["fact"], **{name: name not in no for name in CRITERIA}}


def written(tmp_path: Path, *rows: Mapping[str, Any]) -> Path:
    """Write judgements."""
    path = tmp_path / "judged.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_facts_are_counted_and_drawn_with_their_lines(tmp_path: Path) -> None:
    """Each fact comes with its quote, its line and the lines around it; the counts agree."""
    report = run_facts("locomo", locomo(tmp_path), sample_file=tmp_path / "s.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [
        "Ann adopted a parrot yesterday (2023-05-07).",
        "Ann is allergic to nuts.",
    ]
    assert rows[1] | {"fact": ""} == {
        "fact": "",
        "conversation": "conv-1",
        "turns": ["D1:3"],
        "subject": "Ann",
        "relation": "allergic_to",
        "text": "Ann is allergic to nuts.",
        "quote": "I'm allergic to nuts.",
        "said_on": "2023-05-08",
        "valid_from": "2023-05-08",
        "valid_to": None,
        "before": "Ben: How nice!",
        "source": "Ann: I'm allergic to nuts.",
        "after": "Ben: Oh no.",
    }
    assert report["facts"] == 2
    assert report["per_100_turns"] == 50.0
    assert report["relations"] == {"did": 1, "allergic_to": 1}
    assert report["conversations"] == {"conv-1": {"turns": 4, "facts": 2}}
    assert [*report["recall"]] == ["none", "extracted", "dataset"]
    assert report["judged"] is None
    json.dumps(report)


def test_the_sample_is_the_same_for_the_same_facts(tmp_path: Path) -> None:
    """Neither the facts' ids nor their order, which differ each time, change what is drawn."""
    (conversation,) = load_dataset("locomo", locomo(tmp_path)).conversations
    names = {f"e{n}": f"D1:{n + 1}" for n in range(4)}
    facts = [
        make_fact(
            f"Ann likes v{n}.",
            datetime(2023, 5, 8, tzinfo=UTC),
            id=f"{n}",
            relation="likes",
            value=f"v{n}",
            quote=f"v{n}",
            sources=(Source(agent="a", session="s", entry=f"e{n % 4}"),),
        )
        for n in range(20)
    ]
    rows = list_rows(facts, conversation, names)
    first = draw_sample(rows, 5, 1)
    assert len(first) == 5
    assert draw_sample(list_rows(facts[::-1], conversation, names), 5, 1) == first
    assert draw_sample(rows, 5, 2) != first
    assert len(draw_sample(rows, 50, 1)) == 20


def test_judgements_become_shares(tmp_path: Path) -> None:
    """A share is of what was judged; a fact without a judgement, or reworded since, is none."""
    sample = tmp_path / "s.jsonl"
    run_facts("locomo", locomo(tmp_path), sample_file=sample)
    rows = [json.loads(line) for line in sample.read_text().splitlines()]
    stale = {"fact": judgement_key("conv-1", "D1:1", "Ann has a bird.", "a bird")}
    file = written(tmp_path, judgement(rows[0], "useful"), judgement({**rows[1], **stale}))
    report = run_facts("locomo", locomo(tmp_path), judgements=[file])
    [judged] = report["judged"]["judges"]
    assert report["judged"]["agreement"] is None
    assert (judged["facts"], judged["missing"], judged["stale"]) == (1, 1, 1)
    assert judged["true"]["share"] == 1.0
    assert judged["useful"]["share"] == 0.0
    assert judged["all"]["met"] == 0
    assert judged["by_relation"]["did"]["facts"] == 1
    shown = markdown(report)
    assert "Judged by the rubric" in shown
    assert "| conv-1 | 1 | 1.000 |" in shown


def test_two_judges_agree_as_often_as_their_files_do(tmp_path: Path) -> None:
    """Each judge's shares are stated, and by criterion how often both say the same, and kappa."""
    sample = tmp_path / "s.jsonl"
    run_facts("locomo", locomo(tmp_path), sample_file=sample)
    rows = [json.loads(line) for line in sample.read_text().splitlines()]
    first = written(tmp_path, judgement(rows[0], "useful"), judgement(rows[1]))
    (second := tmp_path / "second.jsonl").write_text(first.read_text().replace("false", "true"))
    report = run_judged(sample, [first, second])
    ours, theirs = report["judged"]["judges"]
    assert (ours["useful"]["share"], theirs["useful"]["share"]) == (0.5, 1.0)
    agreement = report["judged"]["agreement"]
    assert agreement["facts"] == 2
    assert agreement["true"] | {"interval": 0} == {
        "agreed": 1.0,
        "kappa": None,
        "met_by_all": 1.0,
        "interval": 0,
    }
    assert (agreement["useful"]["agreed"], agreement["useful"]["kappa"]) == (0.5, 0.0)
    assert "Agreement on 2 facts" in markdown(report)


def test_sets_are_measured_too(tmp_path: Path) -> None:
    """A set that asks in stages is consolidated before each, and each fact counts once."""
    turns = [
        {"id": f"t{n}", "unit": f"t{n}", "role": "user", "text": s} for n, s in enumerate(SAID)
    ]
    sessions = [
        {"id": f"s{n}", "date": "2023-05-08T00:00:00", "turns": [turn]}
        for n, turn in enumerate(turns)
    ]
    questions = [
        {"id": f"q{n}", "text": text, "category": "c", "gold": [gold], "at": None, "after": after}
        for n, (text, gold, after) in enumerate(
            [("Which pet did I adopt?", "t0", 1), ("What am I allergic to?", "t2", None)]
        )
    ]
    talk = {"id": "talk", "sessions": sessions, "questions": questions}
    (path := tmp_path / "set.json").write_text(
        json.dumps({"name": "small", "unit": "turn", "conversations": [talk]})
    )
    report = run_facts("sets", path, sample_file=tmp_path / "s.jsonl")
    assert (report["dataset"], report["facts"], report["turns"]) == ("small", 2, 4)
    assert report["sample"]["facts"] == 2
    assert report["recall"]["extracted"]["recall"]["1"] == 1.0


def test_a_later_judgement_replaces_an_earlier_one(tmp_path: Path) -> None:
    """Who looks again is counted once, as they judged last."""
    row = {"fact": "f", "conversation": "c", "relation": "r"}
    file = written(tmp_path, judgement(row), judgement(row, "true"))
    shares = judged_shares([row], load_judgements(file))
    assert (shares["facts"], shares["true"]["met"], shares["useful"]["met"]) == (1, 0, 1)


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", '{"fact": "f"}', '{"fact": "f", "true": 1, "self_contained": 1}']
)
def test_what_is_no_judgement_is_named(tmp_path: Path, line: str) -> None:
    """The error has the file and the line, and what is expected there."""
    file = tmp_path / "judged.jsonl"
    file.write_text(f"\n{line}\n")
    with pytest.raises(ImportFileError, match=r"judged\.jsonl:2: expected \{\"fact\""):
        load_judgements(file)


def test_the_rubric_defines_every_criterion() -> None:
    """What is counted has a heading of its own in the rubric that ships."""
    text = RUBRIC.read_text("utf-8")
    for name in CRITERIA:
        assert f"\n## {name}\n" in text


def test_a_model_extracts_in_place_of_the_rules(tmp_path: Path, server: Loopback) -> None:
    """With a model only its facts count, and those that wait for a review are told apart."""
    nuts = {
        "kind": "fact", "subject": "Ann", "relation": "allergic_to", "value": "nuts",
        "text": "Ann is allergic to nuts.", "quote": "I'm allergic to nuts", "line": 3,
        "since": None,
    }  # fmt: skip
    guess = {**nuts, "text": "Ann is allergic to all kinds of nuts.", "value": "all kinds of nuts"}
    server.answers({"facts": [nuts, guess]})
    report = run_facts("locomo", locomo(tmp_path), model=ReaderModel(server.base_url, "m"))
    assert (report["by"], report["facts"], report["proposed"]) == ("m", 2, 1)
    assert report["relations"] == {"allergic_to": 2}
    assert "· m ·" in markdown(report)
