"""`bench sets`, `silence` and `judgement`: what is loaded, asked and counted, on made-up sets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from memtier_bench import plot, silence
from memtier_bench.baselines import Bm25Baseline
from memtier_bench.cli import commands as bench
from memtier_bench.compare import run_compare
from memtier_bench.datasets import load_sets
from memtier_bench.judgement import SETS, Tally, run_judgement
from memtier_bench.report import markdown
from memtier_bench.retrieval import measure_dataset
from memtier_bench.sets import run_sets
from memtier_bench.silence import (
    SilenceOutcome,
    floors,
    run_silence,
    summarise_prompts,
)
from memtier_bench.silence_prompts import load_generic_prompts
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError, Unsupported
from memtier_plugin.core.settings.yaml_file import all_keys

GARDEN = [
    ("Ada", "I planted runner beans behind the shed."),
    ("Ben", "My sister opened a bakery in Leeds."),
    ("Ada", "The cello lesson moved to Thursday."),
]
ISLAND = [
    ("Cleo", "The ferry to the island leaves at seven."),
    ("Dan", "My cousin repairs clarinets in Porto."),
    ("Cleo", "The lighthouse was painted orange."),
]
QUESTIONS = {
    "garden": "Where did Ada plant the runner beans?",
    "island": "When does the ferry of Cleo leave?",
}


def conversation(name: str, lines: Sequence[tuple[str, str]], **question: Any) -> dict[str, Any]:
    """Return a conversation with a session for each line, and one question about the first."""
    sessions = [
        {
            "id": f"{name}-{number}",
            "date": f"2025-03-0{number + 1}T00:00:00",
            "turns": [
                {
                    "id": f"{name}-{number}:0",
                    "unit": f"u{number}",
                    "role": "user",
                    "speaker": speaker,
                    "text": text,
                }
            ],
        }
        for number, (speaker, text) in enumerate(lines)
    ]
    asked = {
        "id": f"{name}/1",
        "text": QUESTIONS[name],
        "category": "places",
        "gold": ["u0"],
        "at": "2025-03-20T00:00:00",
        "after": None,
        **question,
    }
    return {"id": name, "sessions": sessions, "questions": [asked]}


def write_set(folder: Path, name: str, *conversations: dict[str, Any]) -> Path:
    """Write a set's file."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{name}.json"
    document = {"name": name, "unit": "turn", "conversations": conversations}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def two_sets(tmp_path: Path) -> Path:
    """A folder with a set of two conversations, and one of a single conversation."""
    folder = tmp_path / "sets"
    garden, island = conversation("garden", GARDEN), conversation("island", ISLAND)
    write_set(folder, "both", garden, island)
    write_set(folder, "one", conversation("island", ISLAND))
    return folder


def run(*args: str | Path) -> Result:
    """Run `memtier bench`."""
    return CliRunner().invoke(main, ["bench", *map(str, args)])


# -- sets ------------------------------------------------------------------------------------------


def test_a_set_is_loaded_as_it_is_described(tmp_path: Path) -> None:
    """Dates, speakers and the units that count as found come from the file."""
    [loaded] = load_sets(write_set(tmp_path, "one", conversation("garden", GARDEN)))
    [garden] = loaded.conversations
    assert loaded.name == "one"
    assert [turn.id for turn in garden.turns] == ["u0", "u1", "u2"]
    assert [turn.message.speaker for turn in garden.turns] == ["Ada", "Ben", "Ada"]
    assert garden.sessions[1].observed_at == datetime(2025, 3, 2, tzinfo=UTC)
    [question] = garden.questions
    assert (question.at, question.after) == (datetime(2025, 3, 20, tzinfo=UTC), None)
    assert question.gold == {"u0"}


def test_the_documented_shape_loads(tmp_path: Path) -> None:
    """The example of the evaluation page is a set with one question that has its gold."""
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    example = page.partition("```json\n")[2].partition("```")[0]
    (tmp_path / "example.json").write_text(example, encoding="utf-8")
    [loaded] = load_sets(tmp_path)
    assert [question.gold for question in loaded.conversations[0].questions] == [{"s1:0"}]


def test_evidence_of_no_unit_is_counted(tmp_path: Path) -> None:
    """A question keeps the units that there are; one without any is skipped."""
    asked = conversation("garden", GARDEN, gold=["u0", "u9"])
    lost = conversation("island", ISLAND, gold=["u8"])
    [loaded] = load_sets(write_set(tmp_path, "one", asked, lost))
    assert (loaded.skipped, loaded.unresolved) == (1, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", r"odd\.json \(a set in the shape of docs/evaluation\.md\): expected an object"),
        ('{"name": "x"}', r"odd\.json \(.*evaluation\.md\): expected 'conversations' to be a list"),
        ('{"name": "x", "conversations": []}', r"odd\.json: expected conversations of x, found"),
        ("{", r"odd\.json"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """The file and where its shape is described are named."""
    path = tmp_path / "odd.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ImportFileError, match=message):
        load_sets(path)


def test_a_broken_turn_is_found_in_its_file(tmp_path: Path) -> None:
    """A wrong role and a missing text are named with conversation, session and turn."""
    odd = conversation("garden", GARDEN)
    odd["sessions"][1]["turns"][0]["role"] = "king"
    with pytest.raises(ImportFileError, match=r"garden, sessions\[1\], turns\[0\]: .*'king'"):
        load_sets(write_set(tmp_path, "odd", odd))
    with pytest.raises(ImportFileError, match=r"expected a set as a \*\.json file, found none"):
        (tmp_path / "empty").mkdir()
        load_sets(tmp_path / "empty")


def test_two_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    """The second gets the name of its file, too."""
    garden = conversation("garden", GARDEN)
    write_set(tmp_path, "same", garden)
    write_set(tmp_path, "same", garden).rename(tmp_path / "first.json")
    write_set(tmp_path, "same", garden)
    assert [part.name for part in load_sets(tmp_path)] == ["same", "same (same)"]


@pytest.mark.parametrize("baseline", [None, "bm25-stem"])
def test_a_question_is_asked_after_its_sessions(tmp_path: Path, baseline: str | None) -> None:
    """With `after` 2 of three sessions the third cannot be found, nor is it lost for others."""
    early = conversation("garden", GARDEN, after=2, text="What happened?", gold=["u0", "u2"])
    late = {**early["questions"][0], "id": "late", "after": None}
    early["questions"].append(late)
    [loaded] = load_sets(write_set(tmp_path, "one", early))
    stages = [*loaded.conversations[0].stages]
    assert [(len(s.sessions), len(s.questions)) for s in stages] == [(2, 1), (1, 1)]
    questions = {q["id"]: q for q in measure_dataset(loaded, baseline=baseline)["per_question"]}
    assert questions["garden/1"]["recall"]["50"] <= 0.5
    if baseline:
        assert questions["late"]["recall"]["50"] == 1.0


def test_a_unit_is_found_once_by_any_of_its_turns(tmp_path: Path) -> None:
    """Turns that share a unit take one rank; the share is of units."""
    garden = conversation("garden", GARDEN)
    garden["sessions"][1]["turns"][0]["unit"] = "u0"
    [loaded] = load_sets(write_set(tmp_path, "one", garden))
    for baseline in (None, "bm25-stem"):
        report = measure_dataset(loaded, baseline=baseline)
        assert report["recall"]["1"] == 1.0
    assert Bm25Baseline("bm25-stem", loaded.conversations[0]).rank("beans") == ("u0", "u2")


def test_stemmed_bm25_reads_writing_without_spaces(tmp_path: Path) -> None:
    """Chinese is taken by characters and pairs: a question shares no whole clause with its line."""
    lines = [
        ("A", "我们把会议改到星期四下午。"),
        ("B", "妹妹在利兹开了一家面包店。"),
        ("A", "灯塔被漆成了橙色。"),
    ]
    [loaded] = load_sets(write_set(tmp_path, "zh", conversation("garden", lines)))
    stemmed = Bm25Baseline("bm25-stem", loaded.conversations[0])
    assert stemmed.rank("面包店在哪里?")[0] == "u1"
    assert stemmed.rank("会议在什么时候?")[0] == "u0"


def test_each_set_counts_the_same(two_sets: Path) -> None:
    """The mean is over sets; stemmed BM25 stands beside each, with the paired difference."""
    report = run_sets(two_sets)
    assert [*report["sets"]] == ["both", "one"]
    assert [row["questions"] for row in report["sets"].values()] == [2, 1]
    by_set = [row["recall"]["10"] for row in report["sets"].values()]
    assert report["macro"]["recall"]["10"] == pytest.approx(sum(by_set) / 2, abs=1e-4)
    assert report["macro"]["baseline"]["recall"]["10"] == 1.0
    assert report["sets"]["both"]["than_baseline"]["recall@10"]["questions"] == 2
    assert {q["category"] for q in report["per_question"]} == {"both", "one"}
    assert all(q["tokens"] is not None for q in report["per_question"])
    assert json.loads(json.dumps(report))["sets"] == report["sets"]


def test_what_is_injected_is_what_a_prompt_gets(tmp_path: Path) -> None:
    """Tool output is found by the search, and stands in no block of `inject`."""
    garden = conversation("garden", GARDEN)
    garden["sessions"][0]["turns"][0] |= {"role": "tool", "speaker": None}
    [loaded] = load_sets(write_set(tmp_path, "one", garden))
    report = measure_dataset(loaded, overrides={"retrieval.floor": "off"})
    assert (report["recall"]["10"], report["injected_recall"]) == (1.0, 0.0)


# -- silence ---------------------------------------------------------------------------------------


def test_generic_prompts_are_in_five_languages() -> None:
    """None stands twice in a language; one that there is not is named with those there are."""
    prompts = load_generic_prompts()
    assert {prompt.language for prompt in prompts} == {"en", "de", "es", "fr", "zh"}
    assert len({(prompt.language, prompt.text) for prompt in prompts}) == len(prompts) > 150
    assert {prompt.language for prompt in load_generic_prompts(["fr"])} == {"fr"}
    with pytest.raises(Unsupported, match="language 'xx'; one of: en, de, es, fr, zh"):
        load_generic_prompts(["xx"])


def test_floors_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch, two_sets: Path) -> None:
    """Every value is measured; where there is no such setting, the settings as they are."""
    assert floors()[0] == "off"
    monkeypatch.setattr(silence, "all_keys", dict)
    assert floors() == ()
    report = run_silence("sets", two_sets, languages=["es"])
    assert [*report["floors"]] == ["as configured"]
    assert report["compared_with"] is None
    assert report["floors"]["as configured"]["own"]["loss"] is None
    assert "there is no retrieval.floor to compare" in markdown(report)
    with pytest.raises(Unsupported, match=r"retrieval\.floor 'low'; it cannot be configured here"):
        run_silence("sets", two_sets, floor=["low"])


def test_an_unknown_floor_is_named(two_sets: Path) -> None:
    """The message tells which there are."""
    assert ("retrieval", "floor") in all_keys()
    with pytest.raises(Unsupported, match=r"retrieval\.floor 'low'; one of: off, "):
        run_silence("sets", two_sets, floor=["low"])


def test_foreign_questions_name_the_people_of_the_store(
    two_sets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other conversation's questions are asked, with each speaker's name exchanged."""
    asked: list[tuple[str, str]] = []
    original = silence._SilenceRun._ask_once

    def note(self: Any, memory: Any, prompt: Any, arm: str, recorded: Any) -> SilenceOutcome:
        asked.append((prompt.id, prompt.question.text))
        return original(self, memory, prompt, arm, recorded)

    monkeypatch.setattr(silence._SilenceRun, "_ask_once", note)
    report = run_silence("sets", two_sets / "both.json", floor=["off"], languages=["es"])
    foreign = {key: text for key, text in asked if "/foreign/" in key}
    assert foreign == {
        "garden/foreign/island/1": "When does the ferry of Ada leave?",
        "island/foreign/garden/1": "Where did Cleo plant the runner beans?",
    }
    off = report["floors"]["off"]
    assert [off[kind]["prompts"] for kind in ("own", "foreign", "generic")] == [2, 2, 24]
    assert off["own"]["answered"] == 1.0


def test_a_lone_conversation_has_no_foreign_questions(two_sets: Path) -> None:
    """Without another conversation there are none; in a folder the next set's are taken."""
    alone = run_silence("sets", two_sets / "one.json", floor=["off"], languages=["es"])
    assert alone["floors"]["off"]["foreign"]["prompts"] == 0
    assert alone["floors"]["off"]["foreign"]["silent"] is None
    together = run_silence("sets", two_sets, floor=["off"], languages=["es"])
    assert together["sets"]["one"]["off"]["foreign"]["prompts"] == 1


def outcome(key: str, kind: str, floor: str, injected: str = "", tokens: int = 0) -> SilenceOutcome:
    """Return what a prompt got: a line for each letter; "g" is gold."""
    return SilenceOutcome(
        id=key,
        kind=kind,
        group=("en", "task"),
        floor=floor,
        lines=len(injected),
        tokens=tokens,
        seconds=0.0,
        gold=frozenset("g") if kind == "own" else frozenset(),
        injected=frozenset(injected),
    )


def test_loss_is_what_only_the_open_floor_answers() -> None:
    """Of three own questions `off` answers two and `quiet` one of these: a third is lost."""
    outcomes = [
        outcome("1", "own", "off", "ga", 40),
        outcome("2", "own", "off", "g", 20),
        outcome("3", "own", "off", "b", 30),
        outcome("1", "own", "quiet", "g", 20),
        outcome("2", "own", "quiet"),
        outcome("3", "own", "quiet"),
        outcome("p", "generic", "off", "ab", 30),
        outcome("p", "generic", "quiet"),
    ]
    report = summarise_prompts(outcomes, ["off", "quiet"])
    own = {floor: figures["own"] for floor, figures in report.items()}
    assert [own[floor]["loss"] for floor in own] == [0.0, 0.3333]
    assert [own[floor]["answered"] for floor in own] == [0.6667, 0.3333]
    assert [own[floor]["silent"] for floor in own] == [0.0, 0.6667]
    assert (own["off"]["tokens"], own["off"]["lines"]) == (30.0, 1.33)
    assert report["quiet"]["generic"]["by_language"]["en"]["silent"] == 1.0
    assert report["off"]["generic"]["by_kind"]["task"]["silent"] == 0.0


def test_a_store_has_the_lines_that_are_asked_for(two_sets: Path) -> None:
    """Too few lines are filled up with recombined sentences; own questions have gold there."""
    report = run_silence("sets", two_sets, floor=["off"], sizes=(2, 30), languages=["es"])
    small, large = report["sizes"]
    assert (small["lines"], small["made_up"], large["lines"], large["made_up"]) == (2, 0, 30, 24)
    assert [size["floors"]["off"]["own"]["prompts"] for size in (small, large)] == [1, 2]
    assert "30 lines, 24 made up" in markdown(report)


# -- judgement -------------------------------------------------------------------------------------

CASES: dict[str, Any] = {
    "silence": {
        "silent": [{"kind": "ack", "lang": "en", "say": ["Thanks!", "Lovely."]}],
        "vague": [
            {
                "now": [{"user": "Draft a poem on moss."}, {"assistant": "Moss, so soft."}],
                "say": "Shorter.",
            }
        ],
    },
    "currency": {
        "cases": [
            {
                "id": "c1",
                "history": [
                    [date(2026, 1, 5), {"user": "The relay listens on port 7070."}],
                    [date(2026, 1, 19), {"Ann": "The relay moved to port 9191."}, {"tool": "up"}],
                ],
                "ask": "Which port does the relay listen on?",
                "now": ["9191"],
                "old": ["7070"],
                "by": "tool",
                "people": 2,
            }
        ]
    },
    "identity": {
        "cases": [
            {
                "id": "i1",
                "say": [{"ann": "My bicycle is green."}, {"bob": "My bicycle is yellow."}],
                "checks": [
                    {
                        "as": "ann",
                        "ask": "What colour is my bicycle?",
                        "want": ["green"],
                        "not": ["yellow"],
                    },
                    {
                        "as": "bob",
                        "ask": "Which colour has my bicycle?",
                        "want": ["yellow|gold"],
                        "not": [],
                    },
                ],
            }
        ]
    },
    "discretion": {
        "confided": [{"say": "Between us, I quit in June.", "key": "quit"}],
        "open": [{"say": "Remember that the printer is called Otto.", "key": "Otto"}],
    },
    "keep": {
        "keep": [
            {"say": "Remember that the bus line is 4711.", "fact": ["bus|line", "4711"]},
            {"say": "I always want metric units.", "always": True, "fact": ["metric"]},
        ],
        "none": [{"say": "What a day!"}],
    },
}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder of judgement sets with a case or two each."""
    folder = tmp_path / "judgement"
    folder.mkdir()
    for name, content in CASES.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def test_every_set_is_judged(cases: Path) -> None:
    """Each part says how many were judged; a score is made of its parts."""
    report = run_judgement(cases, failures=10)
    assert [*report["sets"]] == [*SETS]
    sets = report["sets"]
    assert sets["silence"]["of"] == {
        "silent": 2,
        "answered": 1,
        "vague, in sight": 1,
        "vague, out of sight": 1,
    }
    parts = sets["silence"]["parts"]
    vague = (parts["vague, in sight"] + parts["vague, out of sight"]) / 2
    score = 0.75 * (parts["silent"] + parts["answered"] - 1) + 0.25 * vague
    assert sets["silence"]["score"] == pytest.approx(score, abs=1e-3)
    assert sets["currency"]["of"]["first, by assistant or tool"] == 1
    assert sets["currency"]["of"]["first, of two people"] == 1
    assert sets["identity"]["of"] == {"told": 2, "nobody else's": 1, "right": 2}
    assert sets["discretion"]["of"] == {"kept private": 1, "shared": 1}
    assert sets["keep"]["of"] == {"kept": 2, "left alone": 1}
    assert len(report["per_question"]) == sum(sum(row["of"].values()) for row in sets.values())
    assert json.loads(json.dumps(report))["sets"] == report["sets"]


def test_who_never_speaks_scores_nothing() -> None:
    """With two sides, what is right on one alone is 0; failures have what was asked."""
    tally = Tally()
    tally.judge("silent", True, {"said": "Thanks!"})
    tally.judge("answered", False, {"said": "Which port?", "shown": []})
    score = tally.share("silent") + tally.share("answered") - 1
    report = tally.report(score, failures=5)
    assert (report["score"], report["parts"]) == (0.0, {"silent": 1.0, "answered": 0.0})
    assert report["failures"] == [{"part": "answered", "said": "Which port?", "shown": []}]
    assert tally.report(score, failures=0)["failures"] == []


def test_a_broken_folder_is_named(cases: Path) -> None:
    """A missing file, one without its list and an unknown set name file and remedy."""
    (cases / "identity.yaml").write_text("cases: 5")
    with pytest.raises(ImportFileError, match=r"identity\.yaml: expected a list 'cases'; .*docs"):
        run_judgement(cases, sets=["identity"])
    (cases / "keep.yaml").unlink()
    with pytest.raises(ImportFileError, match=r"keep\.yaml: .*described in docs/evaluation\.md"):
        run_judgement(cases, sets=["keep"])
    with pytest.raises(Unsupported, match="set 'wit'; one of: silence, currency, identity"):
        run_judgement(cases, sets=["wit"])
    assert set(bench.JUDGED) == set(SETS)


# -- commands --------------------------------------------------------------------------------------


def test_each_command_writes_its_report_and_is_compared(
    tmp_path: Path, two_sets: Path, cases: Path
) -> None:
    """JSON, Markdown and a plot; with itself nothing differs, and the parts are in a table."""
    silent = ["--dataset", "sets", "--data", two_sets, "--language", "es", "--sizes", "2"]
    commands: dict[str, list[str | Path]] = {
        "sets": ["sets", two_sets],
        "silence": ["silence", *silent, "--floor", "off", "--floor", floors()[-1]],
        "judgement": ["judgement", cases, "--sets", "keep,identity", "--failures", "1"],
    }
    shown = {"sets": "recall@10", "silence": "silent", "judgement": "right"}
    for name, command in commands.items():
        files = [tmp_path / f"{name}.{kind}" for kind in ("json", "md", "svg")]
        outputs = zip(("--json", "--markdown", "--plot"), files, strict=True)
        result = run(*command, *(part for pair in outputs for part in pair))
        assert result.exit_code == 0, result.output
        report = json.loads(files[0].read_text("utf-8"))
        assert files[1].read_text("utf-8") == markdown(report)
        assert files[2].read_text("utf-8").startswith("<?xml")
        compared = run_compare(files[0], files[0])
        assert shown[name] in compared["metrics"]
        assert not any(row["real"] for row in compared["metrics"].values())
        assert f"| {shown[name]} by category |" in markdown(compared)
        plot.draw(compared, tmp_path / "compared.svg")


def test_reports_on_other_sets_are_not_compared(tmp_path: Path, two_sets: Path) -> None:
    """One set more is other questions, and silence is no retrieval."""
    paths = [tmp_path / name for name in ("all.json", "one.json")]
    for path, data in zip(paths, (two_sets, two_sets / "one.json"), strict=True):
        path.write_text(json.dumps(run_sets(data)))
    with pytest.raises(ImportFileError, match="2 are in one of the two only"):
        run_compare(*paths)
