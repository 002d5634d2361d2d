"""The `memtier` command, as a person and as a script use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from memtier_plugin import __version__
from memtier_plugin.cli.commands import COMMANDS, find_commands
from memtier_plugin.cli.main import main
from memtier_plugin.cli.views import escape_controls
from memtier_plugin.core.installation import install_command
from tests.builders import write_config
from tests.cases import each_case
from tests.processes import PATIENCE, fork_python, run_command, run_memtier

ROOT = Path(__file__).parents[2]
Run = Callable[..., Result]

MESSAGES = [
    {"role": "user", "content": "The ferry to Skagen leaves at seven.", "name": "Ines"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "timetable", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "timetable", "content": "07:00 Skagen"},
    {"role": "assistant", "content": "The timetable agrees: seven o'clock."},
]
# Moves the cursor, sets the title, reorders the line, and looks like rich's markup.
NASTY = "tide \x1b[2J\x1b]0;owned\x07 \x9b31m \u202egnp.exe \x7f\x08 [bold red]loud[/] end"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def run(folder: Path) -> Run:
    """Return what runs the command, in a folder of the test's own."""
    return run_memtier


@pytest.fixture
def run_recorded(run: Run) -> Run:
    """Return `run` in a project where a run with a tool call is recorded."""
    run("record", "-", "--session", "trip", "--run", "trip-1", input=json.dumps(MESSAGES))
    return run


def document(result: Result) -> Any:
    """Return the one JSON document on stdout."""
    return json.loads(result.stdout)


def commands(group: click.Group = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


# As `python -m memtier_plugin`, but Ctrl-C works even where the tests run in the background, whose
# children ignore it.
START = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("memtier_plugin", run_name="__main__", alter_sys=True)
"""


def memtier(*args: str, **more: Any) -> subprocess.Popen[str]:
    """Start the real command in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return fork_python("-c", START, *args, text=True, **pipes, **more)


def test_help_and_version(run: Run) -> None:
    """`--help` explains the commands, each in one line of 80 columns; `--version` names it."""
    shown = run("--help").stdout
    assert shown.startswith("Usage: ") and "recall" in shown
    lines = shown[shown.index("Every day:") :].splitlines()
    assert [line for line in lines if line.startswith("   ") or len(line) > 80] == []
    assert run("--version").stdout == f"memtier {__version__}\n"


@each_case(("name", "command"), [pytest.param(*c, id=c[0]) for c in commands()])
def test_commands_have_help(name: str, command: click.Command) -> None:
    """Every command, and every option of it, is explained in one line."""
    assert command.help and "\n" not in command.help and command.help.endswith((".", "]."))
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{name}: {param.name}"


def test_a_command_of_a_package_that_is_not_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with what to install, not taken for a mistyped one."""
    monkeypatch.setattr(main, "_added", dict)
    result = run("bench", "locomo", code=2)
    assert install_command("memtier-bench") in result.stderr and "Did you mean" not in result.stderr
    assert "bench" not in run("--help").stdout.split()


def test_help_lists_each_command_by_its_own_line(run: Run) -> None:
    """The lines that `memtier --help` shows without loading a command are the commands' own."""
    own = {name: command.help for name, command in commands() if " " not in name}
    lazy = {name: spec for name, spec in find_commands().items() if " " not in name}
    for section in COMMANDS.values():
        lazy |= section
    assert own == {name: each.help for name, each in lazy.items() if " " not in name}
    shown = run("--help").stdout
    assert all(f"\n  {name:<13}{(text or '')[:40]}" in shown for name, text in own.items())


def test_help_loads_no_command() -> None:
    """What a command needs is imported when it is called, so that `memtier --help` is quick."""
    code = (
        "import sys\n"
        "from memtier_plugin.__main__ import run\n"
        "sys.argv = ['memtier', '--help']\n"
        "run()\n"
        "own = {n.split('.')[1] for n in sys.modules if n.startswith('memtier_plugin.')}\n"
        "print(*sorted(own), {'click', 'pluggy', 'rich'} & {*sys.modules}, file=sys.stderr)\n"
    )
    assert run_command(sys.executable, "-c", code).stderr.split() == [
        "__main__",
        "cli",
        "core",
        "set()",
    ]


def test_init_twice_changes_nothing(run: Run, folder: Path, home: Path) -> None:
    """`init` makes home and project and binds the folder; again, it has nothing to do."""
    first = document(run("init", "--project", "harbor", "--json"))
    assert first["bound"] and first["project"] == "harbor" and len(first["created"]) == 2
    before = {path: path.read_bytes() for path in home.rglob("*.yaml")}
    second = document(run("init", "--json"))
    assert second["project"] == "harbor" and not second["bound"] and not second["created"]
    assert before == {path: path.read_bytes() for path in home.rglob("*.yaml")}
    assert str(folder) in run("init").stdout


def test_options_go_before_or_after(run_recorded: Run) -> None:
    """The common options mean the same before and after the command's name."""
    before = document(run_recorded("--json", "--agent", "main", "facts", "list"))
    assert before == document(run_recorded("facts", "list", "--agent", "main", "--json"))


def test_record_takes_json_and_lines(run: Run, folder: Path) -> None:
    """Messages come as a list, as an object that holds one, or one a line; from file or stdin."""
    Path("lines.jsonl").write_text("\n".join(map(json.dumps, MESSAGES)) + "\n\n")
    Path("object.json").write_text(json.dumps({"messages": MESSAGES}))
    for number, args in enumerate((["lines.jsonl"], ["object.json"])):
        report = document(run("record", *args, "--session", f"s{number}", "--json"))
        assert report["given"] == 4 and report["recorded"] >= 3


def test_record_names_the_keys_that_it_does_not_read(run: Run) -> None:
    """A misspelt `speaker` is no error, as the turn would be lost, but it is told."""
    messages = [{"role": "user", "content": "My bag is blue.", "speeker": "Mara"}]
    result = run("record", "-", "--session", "s", "--json", input=json.dumps(messages))
    report = document(result)
    assert (report["recorded"], report["ignored_keys"]) == (1, ["speeker"])


def test_record_again_adds_nothing(run_recorded: Run) -> None:
    """A run that is recorded again under its id adds nothing."""
    again = run_recorded(
        "record", "-", "--session", "trip", "--run", "trip-1", "--json", input=json.dumps(MESSAGES)
    )
    assert document(again)["recorded"] == 0


@pytest.mark.parametrize(
    ("content", "named"),
    [("{\n", ":1"), ('{"role": "user"}\n{"ro', ":2"), ("7", "list"), ('[{"x": 1}]', "role")],
)
def test_record_refuses(run: Run, content: str, named: str) -> None:
    """What is not messages is refused with its place, and nothing is written."""
    result = run("record", "-", "--session", "s", input=content, code=1)
    assert result.stderr.startswith("memtier: ") and named in result.stderr
    assert not result.stdout


def test_options_after_search(run_recorded: Run) -> None:
    """`search` is `recall`: what follows may be words without quotes, and options among them."""
    for words in (["--k", "1", "Skagen", "ferry"], ["Skagen", "ferry", "--k", "1"]):
        recalled = json.loads(run_recorded("search", *words, "--json").stdout)
        assert (recalled["query"], len(recalled["injected"])) == ("Skagen ferry", 1)


def test_status_and_doctor(run_recorded: Run) -> None:
    """`status` counts what is stored; `doctor` finds nothing wrong in a new project."""
    assert document(run_recorded("status", "--json"))["entries"] >= 3
    assert "stored        4 entries, 0 facts from 1 session; " in run_recorded("status").stdout
    findings = document(run_recorded("doctor", "--json"))["findings"]
    assert findings and all(finding["level"] != "error" for finding in findings)
    assert "✓" in run_recorded("doctor").stdout


def test_doctor_exits_1_on_errors(run_recorded: Run, home: Path) -> None:
    """A broken ledger line is named by `doctor`, with its file and line."""
    ledger = next(home.rglob("episodic/*/*.jsonl"))
    with ledger.open("a") as file:
        file.write("not json\n")
    result = CliRunner().invoke(main, ["doctor", "--json"])
    bad = [f for f in document(result)["findings"] if f["level"] != "ok"]
    assert any(ledger.name in finding["where"] for finding in bad)
    assert result.exit_code == any(finding["level"] == "error" for finding in bad)


def test_log_reads_like_a_log(run_recorded: Run) -> None:
    """The log has a heading a session, who said what, and what was recalled in between."""
    run_recorded("recall", "ferry")
    text = run_recorded("log").stdout
    assert "session trip  agent main" in text
    assert "Ines" in text and "The ferry to Skagen leaves at seven." in text
    lines = document(run_recorded("log", "--json"))["lines"]
    assert [line["id"] for line in lines] == sorted(line["id"] for line in lines)
    assert {"entry"} <= {line["kind"] for line in lines}
    assert "heading" not in {line["kind"] for line in lines}


def test_log_is_chosen(run_recorded: Run) -> None:
    """`--session`, `--date` and `--agent` choose; a day without lines is an empty log."""
    for args in (["--date", "2001-01-01"], ["--agent", "nobody"]):
        assert document(run_recorded("log", *args, "--json"))["lines"] == []
    assert (
        len(document(run_recorded("log", "--session", "trip", "--date", "all", "--json"))["lines"])
        >= 3
    )


def test_log_marks_tools_and_weights(run: Run) -> None:
    """A failed tool has its mark, and a blamed line its weight."""
    run("record", "-", "--session", "a", input='{"role": "user", "content": "use the red pump"}')
    from memtier_plugin.core.paths import resolve_home
    from memtier_plugin.core.settings.load import resolve_project
    from memtier_plugin.memory import MemTier

    folder = resolve_home()
    with MemTier.open(folder, resolve_project(folder, Path.cwd())) as memory:
        recall = memory.recall("pump", session_id="b", run_id="r", purpose="inject")
        memory.end_run(
            [
                {"role": "user", "content": "go"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {"id": "1", "function": {"name": "pump", "arguments": "red pump"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": "burst", "is_error": True},
                {"role": "assistant", "content": "the red pump burst"},
            ],
            session_id="b",
            run_id="r",
            recall_ids=[recall.id],
        )
    text = run("log").stdout
    assert "✗ burst" in text and "-0.0" in text and "blamed -0.0" in text
    explanation = document(run("explain", recall.id, "--json"))
    assert explanation["injected"][0]["weight_now"] < 0 == explanation["injected"][0]["weight_then"]
    assert recall.id[-8:] in run("explain", recall.id).stdout


def test_explain_why(run_recorded: Run) -> None:
    """`explain --why` says why a line is not there, with ranks and the words of both sides."""
    for n, words in enumerate(("boat", "a horn of the ferry", "ferry ferry timetable")):
        message = {"role": "user", "content": words}
        run_recorded("record", "-", "--session", f"s{n}", input=json.dumps([message]))
    recall = document(run_recorded("recall", "ferry", "--k", "1", "--json"))
    [shown] = recall["injected"]
    missed = next(hit["id"] for hit in recall["hits"] if not hit["injected"])
    text = run_recorded("explain", recall["id"], "--why", shown).stdout
    assert f"{shown[-8:]}: injected\nit was injected, on line 1" in text
    explanation = document(run_recorded("explain", recall["id"], "--why", missed, "--json"))["why"]
    assert explanation["reason"] == "k" and explanation["now"]["rank"] > 1
    text = run_recorded("explain", recall["id"], "--why", missed).stdout
    assert "recomputed now: rank" in text and "ahead by: " in text and "×" in text
    text = run_recorded("explain", recall["id"]).stdout
    assert "near misses" in text and "(0" in text
    assert "unknown" in run_recorded("explain", recall["id"], "--why", "\x1b[2J").stdout


def test_recall_names_places(run_recorded: Run, home: Path) -> None:
    """Every hit has score, tier, date, who, id, and the file and line where it stands."""
    hit = document(run_recorded("recall", "when does the ferry leave?", "--json"))["hits"][0]
    assert hit["who"] == "Ines" and hit["tier"] == "episodic" and hit["injected"]
    name, _, line = hit["place"].rpartition(":")
    path = next(home.glob(f"projects/*/{name}"))
    assert json.loads(path.read_text().splitlines()[int(line) - 1])["id"] == hit["id"]
    text = run_recorded("recall", "when does the ferry leave?").stdout
    assert hit["id"][-8:] in text and "would be injected" in text


def test_piped_output_is_not_folded(run: Run) -> None:
    """Off a terminal a text stays on its line, none is filled up, and a preview is the block."""
    text = "The ferry to the northern islands leaves from pier nine, " * 3
    run("record", "-", "--session", "s", input=json.dumps([{"role": "user", "content": text}]))
    lines = run("recall", "ferry", "--inject-preview").stdout.split("\n")
    assert any(line.endswith(text.strip()) for line in lines)
    assert not any(line.endswith(" ") for line in lines)
    block = document(run("recall", "ferry", "--inject-preview", "--json"))["text"].splitlines()
    shown = lines[next(n for n, line in enumerate(lines) if line.startswith("<memtier")) : -1]
    assert shown[1:] == block[1:]  # the first line has the recall's own id


def test_recall_says_that_a_prompt_would_get_nothing(run_recorded: Run) -> None:
    """`recall` judges as for a prompt: where that would have no block, it says so and why."""
    shown = run_recorded("recall", "thanks!", "--inject-preview").stdout
    assert "nothing would be injected: the prompt is small talk" in shown
    assert "<memtier-memory" not in shown


def test_recall_previews_and_explains(run_recorded: Run) -> None:
    """`--inject-preview` shows the block and `--explain` the signals; `--k` bounds the lines."""
    text = run_recorded("recall", "ferry", "--inject-preview", "--explain", "--k", "1").stdout
    assert "memtier-memory" in text and "words 1.000" in text
    assert "1 (▸) would be injected" in text
    for args in (("recall", "ferry", "--at"), ("log", "--date")):
        assert "not a time" in run_recorded(*args, "tomorrow", code=2).stderr


@pytest.mark.parametrize("query", ["", " ", "\udcff", "\x00", '"AND NEAR(', "x" * 100_000])
def test_any_query_is_answered(run_recorded: Run, query: str) -> None:
    """Whatever stands on the command line, there is an answer and no traceback."""
    assert document(run_recorded("recall", query, "--json"))["label"]
    assert "would be injected" in run_recorded("recall", query, "--inject-preview").stdout


def test_nothing_found_is_no_error(run_recorded: Run) -> None:
    """A question without an answer gives an empty list and exit 0."""
    assert document(run_recorded("recall", "zzzz", "--json"))["hits"] == []
    assert "0 found" in run_recorded("recall", "zzzz").stdout


def test_remember_and_facts(run: Run) -> None:
    """A fact told is listed, shown with its source, and named by the last characters of its id."""
    fact = document(run("remember", "The pump room is on deck three.", "--json"))["fact"]
    assert fact[-8:] in run("facts", "list").stdout
    shown = document(run("facts", "show", fact[-8:].lower(), "--json"))
    assert shown["fact"]["id"] == fact and shown["sources"]
    assert "deck three" in run("facts", "show", fact).stdout


def test_forget(run_recorded: Run) -> None:
    """A dry run hides nothing; with a yes it is hidden at once, and `unforget` brings it back."""
    entry = document(run_recorded("recall", "ferry", "--json"))["hits"][0]["id"]
    assert "would be forgotten" in run_recorded("forget", entry[-8:], "--dry-run").stdout
    assert document(run_recorded("recall", "ferry", "--json"))["hits"]
    assert "--yes" in run_recorded("forget", entry, "--json", code=2).stderr
    assert document(run_recorded("forget", entry, "--json", "--yes"))["entries"][0]["id"] == entry
    assert entry not in run_recorded("recall", "ferry", "--json").stdout.split('"hits"')[1]
    assert "no entry or fact" in run_recorded("forget", "ZZZZZZ", code=1).stderr
    assert "too short" in run_recorded("forget", entry[-1:], code=1).stderr
    assert "--session" in run_recorded("forget", code=2).stderr
    assert "1 would be restored" in run_recorded("unforget", entry, "--dry-run").stdout
    assert document(run_recorded("unforget", entry[-8:], "--json"))["ids"] == [entry]
    assert entry in run_recorded("recall", "ferry", "--json").stdout.split('"hits"')[1]
    assert "not forgotten" in run_recorded("unforget", entry, code=1).stderr


def test_forget_asks_a_person(run_recorded: Run) -> None:
    """On a terminal the lines are shown and nothing goes without a yes."""
    master, slave = os.openpty()
    process = memtier("forget", "--session", "trip", stdin=slave)
    os.write(master, b"n\n")
    _, errors = process.communicate(timeout=PATIENCE)
    os.close(master)
    os.close(slave)
    assert process.returncode == 1 and "leaves at seven" in errors and "Aborted" in errors
    assert document(run_recorded("recall", "ferry", "--json"))["hits"]


def test_forget_a_session(run_recorded: Run) -> None:
    """`--session` forgets all of it."""
    forgotten = document(run_recorded("forget", "--session", "trip", "--json", "--yes"))
    assert len(forgotten["entries"]) >= 3
    assert document(run_recorded("recall", "ferry Skagen timetable", "--json"))["hits"] == []


def test_import_twice(run: Run) -> None:
    """A conversation that is imported again is recognised."""
    Path("talk.txt").write_text("# 2026-03-14\nInes: The ferry leaves at seven.\nAI: Noted.\n")
    first = document(run("import", "talk.txt", "--format", "text", "--json"))
    assert (first["sessions"], first["messages"], first["recorded"]) == (1, 2, 2)
    second = document(run("import", "talk.txt", "--format", "text", "--json"))
    assert second["recorded"] == 0
    assert "2026-03-14" in run("recall", "ferry").stdout


def test_no_project_is_no_traceback(run: Run) -> None:
    """Where nothing was recorded yet, a reading command says what to do; and so does a bad home."""
    assert "memtier init" in run("status", code=1).stderr
    Path("file").write_text("")
    assert run("remember", "x", "--home", "file", code=1).stderr.startswith("memtier: ")


def test_import_refuses(run: Run) -> None:
    """A file of another format is refused with its place; one that is not there, by click."""
    Path("talk.txt").write_text("no speaker here\n")
    assert "talk.txt:1" in run("import", "talk.txt", "--format", "text", code=1).stderr
    assert run("import", "missing", "--format", "text", code=2).stderr


def test_config(run: Run, home: Path) -> None:
    """`show` says where a value was set; `check` names the file and line of what is wrong."""
    write_config(home, "retrieval:\n  k: 7\n")
    rows = {row["key"]: row for row in document(run("config", "show", "--json"))["settings"]}
    assert rows["retrieval.k"]["value"] == 7 and "config.yaml:2" in rows["retrieval.k"]["from"]
    assert rows["language"]["from"] == "default"
    assert "config.yaml:2" in run("config", "show").stdout
    assert document(run("config", "check", "--json"))["settings"] == "fine"
    write_config(home, "retrieval:\n  kk: 7\n")
    wrong = run("config", "check", code=1).stderr
    assert "config.yaml:2" in wrong and "'retrieval.k'" in wrong.replace('"', "'")


def test_off_and_on(run_recorded: Run) -> None:
    """While a project is off nothing is recorded; `on` takes it up again."""
    assert document(run_recorded("off", "--json"))["paused"]
    assert document(run_recorded("status", "--json"))["paused"]
    result = run_recorded(
        "record", "-", "--session", "x", "--json", input=json.dumps(MESSAGES), code=1
    )
    assert document(result)["kind"] == "Paused" and "memtier on" in result.stderr
    run_recorded("on")
    assert not document(run_recorded("status", "--json"))["paused"]


def test_consolidate_and_reindex(run_recorded: Run) -> None:
    """Both say what they did, in numbers."""
    assert document(run_recorded("consolidate", "--json"))["read"] >= 1
    before = document(run_recorded("recall", "ferry", "--json"))["hits"]
    assert document(run_recorded("reindex", "--json"))
    after = document(run_recorded("recall", "ferry", "--json"))["hits"]
    assert [hit["id"] for hit in before] == [hit["id"] for hit in after]


@pytest.mark.parametrize(
    "args",
    [["explain", "01ARZ3NDEKTSV4RRFFQ69G5FAV"], ["facts", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV"]],
)
def test_refusals_have_no_traceback(run_recorded: Run, args: list[str]) -> None:
    """What is refused is one line on stderr and exit 1; with --json a document on stdout too."""
    result = run_recorded(*args, "--json", code=1)
    assert document(result)["kind"] == "NotFound" and document(result)["error"]
    assert result.stderr.startswith("memtier: ") and "Traceback" not in result.stderr
    assert not run_recorded(*args, code=1).stdout


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["doctor"],
        ["log"],
        ["recall", "ferry"],
        ["remember", "x is y"],
        ["facts", "list"],
        ["consolidate"],
        ["reindex"],
        ["config", "show"],
        ["config", "check"],
        ["init"],
        ["off"],
        ["on"],
    ],
    ids=" ".join,
)
def test_json_is_pure(run_recorded: Run, args: list[str]) -> None:
    """With --json stdout is exactly one JSON document."""
    assert isinstance(document(run_recorded(*args, "--json")), dict)


def test_remembered_text_cannot_drive_the_terminal(run: Run) -> None:
    """Control characters come out visible, markup as it is, in every command that shows text."""
    run("record", "-", "--session", NASTY, input=json.dumps({"role": "user", "content": NASTY}))
    run("remember", f"The tide is {NASTY}")
    fact = document(run("facts", "list", "--json"))["facts"][0]["id"]
    recall = document(run("recall", "tide", "--json"))["id"]
    for args in (
        ["log", "--date", "all"],
        ["recall", NASTY, "--inject-preview", "--explain"],
        ["explain", recall],
        ["facts", "list"],
        ["facts", "show", fact],
        ["forget", "--session", NASTY, "--dry-run"],
        ["status"],
    ):
        shown = run(*args)
        for stream in (shown.stdout, shown.stderr):
            control = {c for c in stream if unicodedata.category(c) in ("Cc", "Cf", "Cs")}
            assert control <= {"\n"}, args
    assert "[bold red]loud[/]" in run("log").stdout.replace("\n", "")
    assert "\x1b" not in run("explain", "\x1b[2J", code=1).stderr


def test_plain() -> None:
    """Escapes are shown as pictures or code points; newlines, tabs and letters stay."""
    assert escape_controls("a\tb\nü中") == "a\tb\nü中"
    assert escape_controls("\x1b[2J\x7f\x9b\u202e\ud800") == "␛[2J␡<U+009B><U+202E><U+D800>"


def test_a_closed_pipe_is_no_error(run_recorded: Run, home: Path) -> None:
    """When the reader goes away, the command ends without a traceback."""
    many = [{"role": "user", "content": f"line {n} " + "x" * 400} for n in range(400)]
    run_recorded("record", "-", "--session", "many", input=json.dumps(many))
    process = memtier("log")
    assert process.stdout and process.stderr
    process.stdout.read(10)
    process.stdout.close()
    with process.stderr:
        assert "Traceback" not in process.stderr.read()
    process.wait(PATIENCE)


def test_log_follows(run_recorded: Run) -> None:
    """`--follow --json` prints a line for what is written later, and ends quietly on Ctrl-C."""
    process = memtier("log", "--follow", "--json")
    assert process.stdout and process.stderr
    seen = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert all(line["kind"] == "entry" for line in seen)
    run_recorded(
        "record", "-", "--session", "x", input='{"role": "user", "content": "the wind turns"}'
    )
    while json.loads(process.stdout.readline()).get("content") != "the wind turns":
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "Traceback" not in errors


def test_daemon_and_serve_start(run_recorded: Run) -> None:
    """`daemon --once` reads what is new; `serve` answers a ping and ends with its input."""
    process = memtier("daemon", "--once", "--json", stdin=subprocess.DEVNULL)
    output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert json.loads(output)["ended"]
    process = memtier("serve", "--no-socket", stdin=subprocess.PIPE)
    output, errors = process.communicate(
        '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n', timeout=60
    )
    assert process.returncode == 0, errors
    assert json.loads(output)["result"]["version"] == __version__


def test_bench_writes_its_report(run: Run) -> None:
    """`bench` prints tables, and with `--json FILE` writes the whole report there."""
    turns = [
        {"speaker": "Ines", "dia_id": "D1:1", "text": "The ferry to Skagen leaves at seven."},
        {"speaker": "Olaf", "dia_id": "D1:2", "text": "I shall bring sandwiches."},
    ]
    sample = {
        "sample_id": "made-up",
        "conversation": {
            "speaker_a": "Ines",
            "speaker_b": "Olaf",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": turns,
        },
        "qa": [{"question": "When does the ferry leave?", "evidence": ["D1:1"], "category": 4}],
    }
    Path("data.json").write_text(json.dumps([sample]))
    result = run("bench", "locomo", "--data", "data.json", "--json", "out.json")
    assert "recall" in result.stdout
    assert json.loads(Path("out.json").read_text())["recall"]["1"] == 1.0
