"""`memtier bench work`: how projects are read and played, and what each arm gets right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtier_bench.intervals import grouped_interval
from memtier_bench.reading import ReaderModel
from memtier_bench.work.obedience import keeps_rule
from memtier_bench.work.play import AskedProbe, ProjectPlayer, ShownLine
from memtier_bench.work.projects import SETS, WorkProbe, load_projects
from memtier_bench.work.run import MEMTIER, judge_probe, list_arms, run_work
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError, Unsupported
from tests.loopback import Loopback

PROJECT = """\
projects:
  - name: larkspur
    sessions:
      - day: 2026-03-02
        agent: main
        turns:
          - {user: "The staging server of Larkspur listens on port 8417."}
          - {assistant: "I'll look."}
          - {tool: bash, call: "curl localhost:8417", output: "refused", ok: false}
          - {assistant: "It refuses."}
      - day: 2026-03-09
        agent: main
        turns:
          - {user: "From now on the staging server of Larkspur listens on port 9250."}
          - {assistant: "Noted."}
    probes:
      - {day: 2026-03-16, agent: main, kind: change, needs: ["9250"], misleads: ["port 8417"],
         prompt: "Which port does the staging server of Larkspur listen on?"}
      - {day: 2026-03-16, agent: reviewer, kind: change, needs: ["9250"],
         prompt: "Which port does the staging server of Larkspur listen on?"}
      - {day: 2026-03-16, agent: main, kind: none, prompt: "thanks!", misleads: ["port 8417"]}
      - {day: 2026-03-01, agent: main, kind: decision, needs: ["8417"],
         prompt: "Which port does the staging server of Larkspur listen on?"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a file of one project, where MemTier answers all but what nobody had said yet."""
    file = tmp_path / "mine.yaml"
    file.write_text(PROJECT, "utf-8")
    return file


def right_of(report: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the shares of each arm over all probes."""
    return {
        arm: {figure: (kinds["all"][figure] or [None])[0] for figure in ("needed", "misled")}
        for arm, kinds in report["arms"].items()
    }


def test_each_arm_of_a_known_project(project: Path) -> None:
    """MemTier marks what is old, shares it as a fact, and keeps silent; each switch shows."""
    report = run_work(str(project))
    assert [*report["arms"]] == [*list_arms()]
    shares = right_of(report)
    assert shares[MEMTIER] == {"needed": pytest.approx(2 / 3, abs=1e-4), "misled": 0}
    assert shares["no-facts"]["needed"] == pytest.approx(1 / 3, abs=1e-4)  # the reviewer's is one
    assert shares["nothing"] == {"needed": 0, "misled": 0}
    assert shares["bm25-full"] == {"needed": pytest.approx(2 / 3, abs=1e-4), "misled": 1}
    assert shares["bm25"]["misled"] == 0.5  # as silent as MemTier before "thanks!"
    tokens = {arm: kinds["none"]["tokens"]["mean"] for arm, kinds in report["arms"].items()}
    assert tokens[MEMTIER] == tokens["bm25"] == tokens["nothing"] == 0
    assert min(tokens["bm25-always"], tokens["no-floor"]) > 0
    assert report["differences"]["nothing"]["needed"][0] == shares[MEMTIER]["needed"]
    assert {row["id"]: row["right"] for row in report["per_question"]} == {
        "larkspur/4": 0,  # asked before anything was said
        "larkspur/1": 1,
        "larkspur/2": 1,
        "larkspur/3": 1,
    }


def test_a_run_is_told_as_a_host_tells_it(project: Path, tmp_path: Path) -> None:
    """Each run has its words in order, and a call with its outcome; the days are the project's."""
    [larkspur] = load_projects(project)
    with ProjectPlayer(tmp_path / "home", larkspur, {}) as player:
        asked = [*player.play()]
        entries = [*player.memories["main"].entries()]
    assert [each.probe.day.day for each in asked] == [1, 16, 16, 16]
    assert [entry.role for entry in entries[:5]] == [
        *("user", "assistant", "assistant", "tool", "assistant")
    ]
    result = entries[3].tool
    assert result is not None and (result.name, result.ok) == ("bash", False)
    assert [f"{entry.observed_at:%m-%d}" for entry in entries] == [*["03-02"] * 5, *["03-09"] * 2]
    assert "8417" in entries[2].content
    assert not any("refused" in hit.text for hit in asked[-1].ranked)  # as in a block


def test_what_is_right() -> None:
    """One alternative of each need suffices; a trap misleads only where no note marks it."""
    probe = WorkProbe.from_json(
        {"day": "2026-03-16", "agent": "main", "kind": "change", "prompt": "?"}
        | {"needs": ["BUN|pnpm", "cents"], "misleads": ["npm install"]}
    )
    asked = AskedProbe(id="shop/1", probe=probe, lines=(), tokens=0, ranked=())

    def line(text: str, *, is_past: bool = False) -> ShownLine:
        return ShownLine(f"- [today] {text}", text, is_past)

    both = [line("We are on bun here."), line("Prices are Cents.")]
    assert judge_probe(asked, both, 9).right
    assert judge_probe(asked, both[:1], 9).lacks == ("cents",)
    assert judge_probe(asked, [*both, line("Run npm install.", is_past=True)], 9).right
    misled = judge_probe(asked, [*both, line("Run NPM install.")], 9)
    assert (misled.right, misled.needed, misled.misled_by) == (False, True, ("npm install",))


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("projects:", "project:", 1, "expected a list of projects"),
        ("kind: none", "kind: nil", 21, "kind: Invalid enum value 'nil'"),
        ('"thanks!", misleads: ["port 8417"]', '"thanks!"', 21, "a probe has needs, misleads or"),
        ('needs: ["8417"]', 'need: ["8417"]', 22, "no key 'need'; one of: day, agent, kind"),
        ('- {assistant: "Noted."}', "- {ok: false}", 15, "a turn is one of user, assistant and"),
        ("- day: 2026-03-09\n        agent: main", "- day: 2026-03-09", 11, "'agent' is missing"),
        ("day: 2026-03-09", "day: soon", 11, "day: "),
        ("- name: larkspur\n    sessions:", "- sessions:", 2, "'name' is missing"),
        ("    probes:\n", "    probes: 3\n    about:\n", 16, "expected a list of probes"),
        ('- {user: "The', '- {user: a, user: "The', 7, "'user' is set twice"),
        ('prompt: "thanks!"', "prompt: [", 21, "malformed YAML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, old: str, new: str, line: int, problem: str) -> None:
    """The message names the file, the line and what is wrong; nothing is played."""
    file = tmp_path / "bad.yaml"
    assert PROJECT.count(old) == 1
    file.write_text(PROJECT.replace(old, new), "utf-8")
    with pytest.raises(ImportFileError) as refused:
        run_work(str(file))
    assert str(refused.value).startswith(f"{file}:{line}:")
    assert problem in str(refused.value)


def test_what_else_is_refused(project: Path, tmp_path: Path) -> None:
    """A missing file, a name given twice, an unknown arm, and failures of what is held out."""
    twice = tmp_path / "twice.yaml"
    twice.write_text(PROJECT + PROJECT.removeprefix("projects:\n"), "utf-8")
    with pytest.raises(ImportFileError, match=r"twice\.yaml:24: a second project is called"):
        run_work(str(twice))
    with pytest.raises(ImportFileError, match=r"tnue: .*tune, held"):
        run_work("tnue")
    with pytest.raises(Unsupported, match="arm 'bm26'"):
        run_work(str(project), arms=["bm26"])
    with pytest.raises(Unsupported, match="--set tune"):
        run_work("held", failures=1)


def test_the_command(project: Path, tmp_path: Path) -> None:
    """It prints the tables and MemTier's failures, and writes the three files."""
    files = [tmp_path / f"report.{kind}" for kind in ("json", "md", "svg")]
    outputs = zip(("--json", "--markdown", "--plot"), map(str, files), strict=True)
    result = CliRunner().invoke(
        main,
        ["bench", "work", "--set", str(project), "--arms", "nothing", "--failures", "3"]
        + [part for pair in outputs for part in pair],
    )
    assert result.exit_code == 0, result.output
    assert "larkspur/4, decision" in result.output
    assert "lacks '8417'" in result.output
    assert [*json.loads(files[0].read_text("utf-8"))["arms"]] == [MEMTIER, "nothing"]
    assert "| memtier | 0.667 " in files[1].read_text("utf-8")
    assert "misled" in files[2].read_text("utf-8")


CORRECTED = """\
projects:
  - name: larkspur
    sessions:
      - day: 2026-03-02
        agent: main
        turns:
          - {user: "Add the date library."}
          - {assistant: "Done: yarn add dayjs."}
          - {user: "No, never use yarn here. Use pnpm."}
          - {assistant: "Understood."}
    probes:
      - {day: 2026-03-16, agent: main, kind: correction, needs: ["Use pnpm"],
         prompt: "Install lodash for the reports page.", keeps: ["pnpm add|pnpm i"],
         breaks: ["yarn add"]}
      - {day: 2026-03-16, agent: main, kind: unlike, misleads: ["yarn"],
         prompt: "Which painter made the Night Watch?"}
"""


def test_whether_a_model_keeps_the_rules(tmp_path: Path) -> None:
    """A model that does what it reads keeps a rule where its block has it, and not without one."""
    file = tmp_path / "corrected.yaml"
    file.write_text(CORRECTED, "utf-8")
    with Loopback() as server:
        server.answers(
            lambda body: (
                "PNPM add lodash"
                if "Use pnpm" in body["messages"][-1]["content"]
                else "yarn add lodash"
            )
        )
        reader = ReaderModel(server.base_url, "m")
        report = run_work(str(file), arms=["no-corrections"], reader=reader)
        assert server.count("/chat/completions") == 4  # one probe says what keeps its rule
    kept = {arm: row["kept"][0] for arm, row in report["obedience"]["arms"].items()}
    assert kept == {MEMTIER: 1, "bm25": 0, "nothing": 0, "rule": 1}
    assert report["obedience"]["probes"] == 1


def test_what_keeps_a_rule() -> None:
    """An answer has one alternative of each thing that it must have, and nothing forbidden."""
    probe = WorkProbe.from_json(
        {"day": "2026-03-16", "agent": "main", "kind": "correction", "prompt": "?"}
        | {"keeps": ["pnpm|bun", "cents"], "breaks": ["yarn"]}
    )
    assert keeps_rule(probe, "Bun: 5 Cents")
    assert not keeps_rule(probe, "pnpm")
    assert not keeps_rule(probe, "not Yarn but pnpm, cents")
    assert not keeps_rule(probe, '<memtier-memory recall="bench">\nUse pnpm, and cents.')


@pytest.mark.parametrize("name", [*SETS])
def test_the_projects_that_ship(name: str) -> None:
    """What a probe needs, and what misleads it, was said in its project."""
    unsaid = probes = 0
    for project in load_projects(SETS[name]):
        turns = [turn for session in project.sessions for turn in session.turns]
        spoken = "\n".join(f"{turn.user}\n{turn.assistant}" for turn in turns).casefold()
        for probe in project.probes:
            probes += 1
            for words in (*probe.needs, *probe.misleads):
                unsaid += not any(part in spoken for part in words.casefold().split("|"))
    assert (unsaid, probes) == (0, {"tune": 104, "held": 133}[name])


def test_projects_are_resampled_whole() -> None:
    """Values of one project count as one draw: their number narrows no interval."""
    assert grouped_interval([[1.0, 0.0] * 50]) == (0.5, 0.5)
    assert grouped_interval([[1.0] * 50, [0.0] * 50]) == (0.0, 1.0)
    with pytest.raises(ValueError, match="nothing"):
        grouped_interval([])
