"""`bench compare` and `bench ablation`: what differs, whether it is real, and how it is shown."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memtier_bench import grid, plot, router_learning, system_tables, tiers
from memtier_bench.ablation import GROUPS, list_variants, run_ablation
from memtier_bench.cli import commands as bench
from memtier_bench.compare import METRICS, run_compare
from memtier_bench.paper_tables import TABLES, run_table
from memtier_bench.reading import ReaderModel
from memtier_bench.report import markdown
from memtier_bench.retrieval import run_retrieval
from memtier_papers.memtier import scorer as paper_scorer
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError, Unsupported
from memtier_plugin.core.installation import install_command
from memtier_plugin.core.settings.load import flatten_settings
from memtier_plugin.core.settings.schema import Settings
from tests.loopback import Loopback

TALK = [
    [
        ("Ada", "I planted runner beans behind the shed.", "Where are the beans?", "shed"),
        ("Ben", "My sister opened a bakery in Leeds.", "Where is the bakery?", "Leeds"),
        ("Ada", "The cello lesson moved to Thursday.", "When is the lesson?", "Thursday"),
    ],
    [
        ("Ben", "We are repainting the hallway in teal.", "Which colour is the hallway?", "teal"),
        ("Ada", "My cello needs a new bow.", "What does the cello need?", "bow"),
        ("Ben", "The bakery sold out of rye bread.", "What did the bakery sell?", "bread"),
    ],
]


def locomo(tmp_path: Path, times: int = 1) -> Path:
    """Write a LoCoMo file: each turn has a question, and is a fact that the data set states."""
    conversation: dict[str, Any] = {}
    questions, observed = [], {}
    for number, session in enumerate(TALK, start=1):
        turns = []
        facts: dict[str, list[list[str]]] = {}
        for turn, (who, text, question, answer) in enumerate(session, start=1):
            name = f"D{number}:{turn}"
            turns.append({"speaker": who, "dia_id": name, "text": text})
            facts.setdefault(who, []).append([text, name])
            category = turn % 2 + 1
            questions += [
                {"question": question, "answer": answer, "evidence": [name], "category": category}
            ] * times
        conversation[f"session_{number}_date_time"] = f"1:56 pm on {number} May, 2024"
        conversation[f"session_{number}"] = turns
        observed[f"session_{number}_observation"] = facts
    sample = {
        "sample_id": "s",
        "conversation": conversation,
        "qa": questions,
        "observation": observed,
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]))
    return path


def written(tmp_path: Path, name: str, report: dict[str, Any]) -> Path:
    """Write a report."""
    path = tmp_path / name
    path.write_text(json.dumps(report))
    return path


def run(*arguments: str | Path) -> Result:
    """Run `memtier bench`."""
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


# -- compare ---------------------------------------------------------------------------------------


def test_a_report_does_not_differ_from_itself(tmp_path: Path) -> None:
    """Compared with itself no metric differs, and nothing is real."""
    path = written(tmp_path, "a.json", run_retrieval("locomo", locomo(tmp_path)))
    report = run_compare(path, path)
    assert set(report["metrics"]) == {"recall@1", "recall@10", "mrr", "injected_recall", "tokens"}
    for row in report["metrics"].values():
        assert (row["difference"], row["low"], row["high"], row["p"]) == (0, 0, 0, 1)
        assert row["real"] is False
    assert report["settings"] == {}


def test_what_is_worse_on_every_question_is_real(tmp_path: Path) -> None:
    """A run that was made to find nothing loses for real, in either order, by the same amount."""
    good = run_retrieval("locomo", locomo(tmp_path))
    bad = json.loads(json.dumps(good))
    for row in bad["per_question"]:
        row["recall"]["10"] = row["recall"]["1"] = row["mrr"] = 0.0
    paths = written(tmp_path, "good.json", good), written(tmp_path, "bad.json", bad)
    ours, theirs = (run_compare(*order)["metrics"] for order in (paths, paths[::-1]))
    assert ours["recall@10"]["real"] and theirs["recall@10"]["real"]
    assert ours["recall@10"]["difference"] == -theirs["recall@10"]["difference"] > 0.5
    assert ours["recall@10"]["ours"] == good["recall"]["10"]
    assert not ours["injected_recall"]["real"]


def test_a_metric_that_one_did_not_measure_is_left_out(tmp_path: Path) -> None:
    """A baseline injects nothing; categories have the metrics that the whole has."""
    data = locomo(tmp_path)
    ours = written(tmp_path, "a.json", run_retrieval("locomo", data))
    theirs = written(tmp_path, "b.json", run_retrieval("locomo", data, baseline="bm25"))
    report = run_compare(ours, theirs)
    assert set(report["metrics"]) == {"recall@1", "recall@10", "mrr"}
    assert set(report["by_category"]["multi-hop"]) == {"recall@1", "recall@10", "mrr"}
    assert report["by_category"]["multi-hop"]["mrr"]["questions"] == 2
    assert (report["ours"]["profile"], report["theirs"]["profile"]) == ("recall_first", "bm25")


def test_answers_are_compared_too(tmp_path: Path) -> None:
    """Where both let a reader answer, its scores from the block are compared."""
    data = locomo(tmp_path)
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        ours = run_retrieval("locomo", data, reader=reader)
        tiny = {"retrieval.token_budget": 48}
        theirs = run_retrieval("locomo", data, reader=reader, overrides=tiny)
    report = run_compare(written(tmp_path, "a.json", ours), written(tmp_path, "b.json", theirs))
    assert set(report["metrics"]) == set(METRICS) - {
        "silent",
        "foreign_silent",
        "answered",
        "right",
    }
    assert report["metrics"]["f1"]["ours"] == ours["answers"]["memory"]["f1"]
    assert report["settings"] == {"retrieval.token_budget": [600, 48]}


def test_reports_on_other_questions_are_refused(tmp_path: Path) -> None:
    """Another data set, other questions, other texts under the same ids, and what is no report."""
    data = locomo(tmp_path)
    report = run_retrieval("locomo", data, baseline="bm25")
    path = written(tmp_path, "a.json", report)
    other = written(tmp_path, "b.json", {**report, "dataset": "beam"})
    with pytest.raises(ImportFileError, match=r"b\.json: measures beam, but .*a\.json measures"):
        run_compare(path, other)
    fewer = run_retrieval("locomo", data, baseline="bm25", limit=4)
    other = written(tmp_path, "b.json", fewer)
    with pytest.raises(ImportFileError, match=r"b\.json: .* \(2 are in one of the two only\): run"):
        run_compare(path, other)
    data.write_text(data.read_text().replace("Where is the bakery?", "Where was the bakery?"))
    other = written(tmp_path, "b.json", run_retrieval("locomo", data, baseline="bm25"))
    with pytest.raises(ImportFileError, match=r"b\.json: .* \(their texts differ\): run both with"):
        run_compare(path, other)
    other = written(tmp_path, "b.json", {"dataset": "scale", "sizes": []})
    with pytest.raises(ImportFileError, match=r"b\.json: a report of 'scale' lacks the figures"):
        run_compare(path, other)
    with pytest.raises(ImportFileError, match=r"c\.json: not a report with the figures"):
        run_compare(path, written(tmp_path, "c.json", {}))


def test_an_id_that_comes_twice_counts_twice(tmp_path: Path) -> None:
    """Two samples may share a name; their questions are told apart by their order."""
    path = locomo(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) * 2))
    report = run_retrieval("locomo", path, baseline="bm25")
    report_path = written(tmp_path, "a.json", report)
    assert run_compare(report_path, report_path)["questions"] == 12


# -- ablation --------------------------------------------------------------------------------------


def test_every_part_of_both_profiles_is_varied() -> None:
    """Each weight in use, each size, and the paper's variants; nothing that it is already."""
    settings = flatten_settings(Settings())
    for profile, section in (("recall_first", "retrieval"), ("paper", "paper")):
        variants = list(list_variants(profile, settings))
        used = {
            key.rpartition(".")[2]
            for key, value in settings.items()
            if key.startswith(f"{section}.weights.") and value
        }
        signals = [variant for variant in variants if variant.group == "signals"]
        assert {variant.name for variant in signals} == {f"without {name}" for name in used}
        for variant in variants:
            assert any(settings[key] != value for key, value in variant.overrides.items()), variant
        names = [variant.name for variant in variants]
        assert len(set(names)) == len(names)
    profiles = ("recall_first", "paper", "rrf")
    groups = {variant.group for name in profiles for variant in list_variants(name, settings)}
    assert groups | {"outcomes"} == set(GROUPS) == set(bench.PARTS)  # the last are no settings


def test_the_papers_weights_are_renormalised() -> None:
    """Without a signal of the paper the others sum to 1, as its Table 2 has them."""
    settings = flatten_settings(Settings())
    for variant in list_variants("paper", settings):
        if variant.group == "signals":
            name = variant.name.removeprefix("without ")
            weights = {key.rpartition(".")[2]: value for key, value in variant.overrides.items()}
            full = {key: settings[f"paper.weights.{key}"] for key in weights}
            assert weights == paper_scorer.ablate(full, name)
            assert sum(weights.values()) == pytest.approx(1.0)


@pytest.mark.slow
def test_an_ablation_measures_every_variant_on_the_same_questions(tmp_path: Path) -> None:
    """A row has figures of its own and the difference to the profile as it is."""
    report = run_ablation("locomo", locomo(tmp_path), facts="dataset")
    assert [row["profile"] for row in report["profiles"]] == ["recall_first", "paper", "rrf"]
    assert (report["questions"], report["facts_stored"]) == (6, 6)
    settings = flatten_settings(Settings())
    for measured in report["profiles"]:
        rows = measured["rows"]
        assert [row["name"] for row in rows] == [
            variant.name for variant in list_variants(measured["profile"], settings)
        ]
        base = measured["base"]
        for row in rows:
            change = row["difference"]["recall@10"]
            assert change["ours"] == row["recall"]["10"]
            assert change["theirs"] == base["recall"]["10"]
            difference = row["recall"]["10"] - base["recall"]["10"]
            assert change["difference"] == pytest.approx(difference, abs=2e-4)
    paper_rows = {row["name"]: row for row in report["profiles"][1]["rows"]}
    assert paper_rows["k 1"]["injected_recall"] < report["profiles"][1]["base"]["injected_recall"]
    assert paper_rows["without bm25"]["recall"]["1"] < 1.0


def test_an_ablation_ends_with_everything_asked(tmp_path: Path) -> None:
    """What is told of the progress counts every variant, and each recording once."""
    heard: dict[str, tuple[int, int]] = {}
    report = run_ablation(
        "locomo",
        locomo(tmp_path),
        profile="paper",
        only=["stage_one", "k"],
        progress=lambda what, done, total: heard.update({what: (done, total)}),
    )
    arms = 1 + len(report["profiles"][0]["rows"])
    assert heard["ask"] == (6 * arms, 6 * arms)
    turns, total = heard["ingest"]
    assert turns == total
    groups = {row["group"] for row in report["profiles"][0]["rows"]}
    assert groups == {"stage_one", "k"}


def test_an_ablation_can_let_a_reader_answer(tmp_path: Path) -> None:
    """Every row then has the answers from its own block, and their difference."""
    with Loopback() as server:
        reader = ReaderModel(server.base_url, "m")
        report = run_ablation("locomo", locomo(tmp_path), "paper", only=["k"], reader=reader)
    rows = {row["name"]: row for row in report["profiles"][0]["rows"]}
    base = report["profiles"][0]["base"]["answers"]
    assert set(base) == {"memory"}
    change = rows["k 1"]["difference"]["soft_em"]
    assert change["ours"] == rows["k 1"]["answers"]["memory"]["soft_em"]
    assert change["theirs"] == base["memory"]["soft_em"]
    assert "soft-EM" in markdown(report)


def test_what_a_profile_does_not_have_cannot_be_varied(tmp_path: Path) -> None:
    """`recall_first` has no Stage 1 to replace."""
    with pytest.raises(Unsupported, match="nothing to vary in recall_first: stage_one"):
        run_ablation("locomo", locomo(tmp_path), "recall_first", only=["stage_one"])


# -- the paper's tables ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", TABLES)
def test_every_table_of_the_paper_runs(tmp_path: Path, number: str) -> None:
    """Each is a command, with the paper's sizes, and has accuracy where a reader answers."""
    path = tmp_path / "table.json"
    with Loopback() as server:
        result = run(
            "table",
            number,
            "--data",
            locomo(tmp_path),
            "--dataset",
            "locomo",
            "--facts",
            "dataset",
            "--reader",
            server.base_url,
            "--reader-model",
            "m",
            "--json",
            path,
            "--plot",
            tmp_path / "table.svg",
        )
    assert result.exit_code == 0, result.output
    title = f"Table {number}" if number.isdigit() else "Appendix E"
    assert f"{title} of the MemTier paper: {TABLES[number].title}" in result.output
    report = json.loads(path.read_text("utf-8"))
    [first, *_] = report["parts"]
    if number not in ("4", "5"):
        shown = first["report"]
        answers = shown.get("answers") or shown["profiles"][0]["base"]["answers"]
        assert answers["memory"]["soft_em"] > 0
    assert texts(tmp_path / "table.svg")


def test_tables_have_the_papers_settings(tmp_path: Path) -> None:
    """The appendices take two lines and 600 tokens, and Stage 1 as it is named."""
    report = run_table("5", locomo(tmp_path), "locomo", facts="dataset")
    for part, how in zip(report["parts"], ("bm25", "dense", "rrf"), strict=True):
        settings = part["report"]["settings"]
        assert (settings["paper.k"], settings["paper.token_budget"]) == (2, 600)
        assert settings["paper.stage_one"] == how
        assert settings["retrieval.profile"] == "paper"
    parts = (tiers, system_tables, grid, router_learning)
    assert [*TABLES, *(name for part in parts for name in part.TABLES)] == list(bench.TABLES)
    with pytest.raises(Unsupported, match="no table '10' in the paper; one of: 1, 2, 3"):
        run_table("10", locomo(tmp_path))


def test_a_table_gives_the_same_digits_twice(tmp_path: Path) -> None:
    """Two recordings have other ids and times; every figure but the milliseconds is the same."""
    timed = {"ingest", "latency_ms", "inject_latency_ms", "peak_rss_mb"}
    path = locomo(tmp_path)
    runs = [run_table("5", path, "locomo", facts="dataset")["parts"] for _ in range(2)]
    once, again = (
        [
            {name: value for name, value in part["report"].items() if name not in timed}
            for part in run
        ]
        for run in runs
    )
    assert once == again
    assert {part["facts_stored"] for part in once} == {6}


def test_facts_in_force_are_counted(tmp_path: Path) -> None:
    """A fact that a later one replaces is made, and is not in force."""
    path = locomo(tmp_path)
    [sample] = json.loads(path.read_text("utf-8"))
    for session, text in (
        ("session_1", "I live in Aarhus."),
        ("session_2", "I live in Porto now."),
    ):
        for turn in sample["conversation"][session]:
            turn["text"] = "See you soon."
        sample["conversation"][session][0] |= {"speaker": "Ada", "text": text}
    path.write_text(json.dumps([sample]), "utf-8")
    report = run_retrieval("locomo", path, facts="extracted")
    assert report["facts_stored"] == 1
    assert "1 facts in force" in markdown(report)


# -- files and plots -------------------------------------------------------------------------------


def texts(path: Path) -> list[str]:
    """Return what stands in an SVG."""
    root = ET.fromstring(path.read_text("utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]


def test_every_bench_writes_json_markdown_and_a_plot(tmp_path: Path) -> None:
    """A run, its baseline, their comparison and an ablation each write the three files."""
    data = ["--data", locomo(tmp_path)]
    commands: dict[str, list[str | Path]] = {
        "ours": ["locomo", *data],
        "theirs": ["locomo", *data, "--baseline", "bm25"],
        "compare": ["compare", tmp_path / "ours.json", tmp_path / "theirs.json"],
        "ablation": ["ablation", "locomo", *data, "--profile", "paper", "--only", "scope"],
    }
    for name, command in commands.items():
        files = [tmp_path / f"{name}.{kind}" for kind in ("json", "md", "svg")]
        outputs = zip(("--json", "--markdown", "--plot"), files, strict=True)
        result = run(*command, *(part for pair in outputs for part in pair))
        assert result.exit_code == 0, result.output
        report = json.loads(files[0].read_text("utf-8"))
        assert files[1].read_text("utf-8") == markdown(report)
        again = tmp_path / "again.svg"
        plot.draw(report, again)
        assert again.read_bytes() == files[2].read_bytes()  # the same report, the same file
    assert "recall@10" in texts(tmp_path / "compare.svg")
    assert "scope none" in texts(tmp_path / "ablation.svg")
    assert {"multi-hop", "all", "recall@k"} <= set(texts(tmp_path / "ours.svg"))


@pytest.mark.slow
def test_scale_and_languages_are_plotted(tmp_path: Path) -> None:
    """Latency stands beside the scans of the same run, and each language has its bars."""
    path = tmp_path / "plot.svg"
    result = run("scale", "--entries", "45", "--recalls", "2", "--plot", path)
    assert result.exit_code == 0, result.output
    assert {"recall p95", "rank-bm25 scan", "exact numpy scan"} <= set(texts(path))
    result = run("languages", "--language", "korean", "--plot", path)
    assert result.exit_code == 0, result.output
    assert {"korean", "without n-grams"} <= set(texts(path))


def test_answers_are_plotted(tmp_path: Path) -> None:
    """Where a reader answered, the plot has a bar for each condition."""
    path = tmp_path / "plot.svg"
    with Loopback() as server:
        result = run(
            "locomo",
            "--data",
            locomo(tmp_path),
            "--reader",
            server.base_url,
            "--reader-model",
            "m",
            "--condition",
            "memory",
            "--condition",
            "oracle",
            "--plot",
            path,
        )
    assert result.exit_code == 0, result.output
    assert {"memory", "oracle", "soft-EM", "by tokens", "F1"} <= set(texts(path))
    assert "oracle - memory" in result.output


def test_a_plot_that_cannot_be_drawn_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is no SVG, or no matplotlib: told before anything is measured."""
    data = locomo(tmp_path)
    result = run("locomo", "--data", data, "--plot", tmp_path / "plot.png")
    assert result.exit_code == 1
    assert "plots are SVG; name the file *.svg" in result.output
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match=re.escape(install_command("memtier-bench[plot]"))):
        plot.require(tmp_path / "plot.svg")


def test_a_reader_is_named_whole(tmp_path: Path) -> None:
    """An endpoint needs a model, and a model an endpoint."""
    data = locomo(tmp_path)
    result = run("locomo", "--data", data, "--reader", "http://127.0.0.1:9/v1")
    assert (result.exit_code, "--reader needs --reader-model" in result.output) == (2, True)
    result = run("locomo", "--data", data, "--reader-model", "m")
    assert (result.exit_code, "need --reader" in result.output) == (2, True)
