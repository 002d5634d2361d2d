"""What was learned: put into the project's settings, listed, and undone to the byte."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.learn_log import LearnLog
from memtier_papers.mem_t.settings import Planner
from memtier_papers.settings_edit import edit_section
from memtier_plugin import MemTier
from memtier_plugin.core.errors import LedgerError, NotFound, SettingsError
from memtier_plugin.core.settings.load import load_settings, project_values
from memtier_plugin.core.settings.yaml_file import YamlFile
from tests.faults import injection
from tests.processes import run_memtier

WEIGHTS = ("retrieval", "weights")
FILES = (
    "",
    "# mine\n",
    "language: german\n",
    "language: german",
    "retrieval:\n",
    "retrieval:\n  k: 8  # eight\nlanguage: german\n",
    "retrieval:\n    weights:\n        words: 2.0\n        # note\n        grams: 0.5\n    k: 8\n",
    "retrieval:\n  k: 8\n  weights:\n    words: 2.0\n",
)


def opened(home: Path) -> MemTier:
    """Return the memory of a project."""
    return MemTier.open(home, "p", settings={"embedding.model": "none"})


@pytest.mark.parametrize("text", FILES)
def test_applied_and_undone_to_the_byte(text: str, tmp_path: Path) -> None:
    """Learned weights hold after they were applied; undone, the file is what it was."""
    with opened(tmp_path) as memory:
        learned = LearnLog(memory.actor)
        learned.path.write_text(text)
        learned.path.chmod(0o600)
        applied = learned.apply("weights", WEIGHTS, {"words": 1.5, "user": 0.0}, {"gain": 1})
        weights = load_settings(tmp_path, "p").retrieval.weights
        assert (weights.words, weights.user, weights.grams) == (1.5, 0.0, 1.0)
        [entry] = learned.entries()
        assert entry.event.id == applied and entry.applied
        learned.revert(applied[-8:])
        assert learned.path.read_text() == text
        assert [entry.applied for entry in learned.entries()] == [False, False]
        with pytest.raises(NotFound):
            learned.revert()


@pytest.mark.parametrize("text", [*FILES, "ask:\n  planner: rules\n  pages: 2\n", "ask: {}\n"])
def test_a_single_setting_is_applied_and_undone_to_the_byte(text: str, tmp_path: Path) -> None:
    """A setting that is no section is put in alone; its neighbours stay."""
    with opened(tmp_path) as memory:
        learned = LearnLog(memory.actor)
        learned.path.write_text(text)
        learned.path.chmod(0o600)
        path = "/a folder/with: a long name/" + 20 * "planner-" + ".json"
        before = load_settings(tmp_path, "p").ask
        try:
            learned.apply("policy", ("ask", "planner"), path, {})
        except SettingsError:
            assert text == "ask: {}\n" == learned.path.read_text()
            return
        after = load_settings(tmp_path, "p")
        assert after.of(Planner).planner == path and after.ask.pages == before.pages
        learned.revert()
        assert learned.path.read_text() == text


def test_the_newest_is_undone_first(tmp_path: Path) -> None:
    """Of two changes the later is in effect; undone, the earlier is again."""
    with opened(tmp_path) as memory:
        learned = LearnLog(memory.actor)
        learned.apply("weights", WEIGHTS, {"words": 1.5}, {})
        learned.apply("weights", WEIGHTS, {"words": 2.5}, {})
        assert [entry.applied for entry in learned.entries()] == [True, False]
        learned.revert()
        assert load_settings(tmp_path, "p").retrieval.weights.words == 1.5
        assert [entry.applied for entry in learned.entries()] == [False, False, True]


def test_what_was_edited_since_stays(tmp_path: Path) -> None:
    """Other lines that a person changed stay; weights that a person changed are not undone."""
    with opened(tmp_path) as memory:
        learned = LearnLog(memory.actor)
        learned.apply("weights", WEIGHTS, {"words": 1.5}, {})
        path = learned.path
        path.write_text("language: german\n" + path.read_text())
        learned.revert()
        assert path.read_text() == "language: german\n"
        learned.apply("weights", WEIGHTS, {"words": 1.5}, {})
        path.write_text(path.read_text().replace("1.5", "1.6"))
        with pytest.raises((SettingsError, NotFound)):
            learned.revert()
        assert "1.6" in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "retrieval:\n  weights:\n    words: 1",  # cut
        "retrieval:\n  weights:\n    wor",
        "retrieval:\n  weights:\n    a_later_version: 1.0\n",
        "{retrieval: {k: 8}}\n",
    ],
)
def test_a_file_that_is_cut_or_of_another_version(text: str, tmp_path: Path) -> None:
    """A file that is wrong, or cannot be edited safely, is left as it is, with the reason."""
    with opened(tmp_path) as memory:
        learned = LearnLog(memory.actor)
        learned.path.write_text(text)
        learned.path.chmod(0o600)
        try:
            learned.apply("weights", WEIGHTS, {"words": 1.5}, {})
        except SettingsError as error:
            assert str(learned.path) in str(error)
            assert learned.path.read_text() == text
        else:
            assert load_settings(tmp_path, "p").retrieval.weights.words == 1.5


@given(
    st.lists(
        st.sampled_from(
            ["language: german", "# note", "", "retrieval:\n  k: 8", "gate:\n  mode: tag"]
        ),
        unique=True,
    ),
    st.dictionaries(st.sampled_from(["words", "grams", "user"]), st.floats(0, 100), min_size=1),
)
def test_an_edit_sets_the_section_alone(lines: list[str], values: dict[str, float]) -> None:
    """Whatever else a file holds is read from it afterwards as before."""
    text = "\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "project.yaml"
        path.write_text(text)
        path.chmod(0o600)
        edit = edit_section(path, WEIGHTS, values)
    before = project_values(YamlFile.parse("before", text))
    after = project_values(YamlFile.parse("after", edit.after))
    assert after == before | {(*WEIGHTS, name): value for name, value in values.items()}


def test_two_learners_at_once(tmp_path: Path) -> None:
    """While a process learns from a project, another is refused."""
    refused = pytest.raises(LedgerError, match="another process")
    with opened(tmp_path) as memory, opened(tmp_path) as other, LearnLog(memory.actor).exclusive():
        with_lock = LearnLog(other.actor).exclusive()
        with refused, with_lock:
            pass


def applied_in_child(home: Path, fault: str = "", log: str = "") -> int:
    """Apply weights in a child that a fault ends, and return how it ended."""
    if (child := os.fork()) == 0:
        try:
            injection.arm(fault, log)
            with opened(home) as memory:
                LearnLog(memory.actor).apply("weights", WEIGHTS, {"words": 1.5}, {})
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def test_killed_at_each_write(tmp_path: Path) -> None:
    """A learner killed at any write leaves the settings as they were or changed, never a half."""

    def prepared(name: str) -> Path:
        home = tmp_path / name
        with opened(home) as memory:
            learned = LearnLog(memory.actor)
            learned.path.write_text("language: german\n")
            learned.path.chmod(0o600)
        return home

    log = tmp_path / "points"
    applied_in_child(prepared("all"), log=str(log))
    lines = [line.split("\t") for line in log.read_text().splitlines()]
    points = dict.fromkeys(point for point, _ in lines if point.endswith("project.yaml"))
    points |= dict.fromkeys(point for point, _ in lines if " append " in point)
    assert len(points) > 4
    outcomes = set()
    for number, point in enumerate(points):
        home = prepared(str(number))
        assert applied_in_child(home, point) == signal.SIGKILL
        with opened(home) as memory:
            learned = LearnLog(memory.actor)
            words = load_settings(home, "p").retrieval.weights.words
            applied = [entry.applied for entry in learned.entries()]
            assert (words, any(applied)) in ((1.0, False), (1.5, True))
            outcomes.add(words)
            learned.apply("weights", WEIGHTS, {"words": 2.0}, {})
            assert load_settings(home, "p").retrieval.weights.words == 2.0
    assert outcomes == {1.0, 1.5}


def test_the_commands(tmp_path: Path) -> None:
    """`memtier learn log` lists what was learned, and `learn revert` undoes it."""
    with opened(tmp_path) as memory:
        LearnLog(memory.actor).apply("weights", WEIGHTS, {"words": 1.5}, {"gain": 0.1})
    shared = ("--home", str(tmp_path), "--project", "p")
    assert "weights" in run_memtier("learn", "log", *shared).stdout
    run_memtier("learn", "revert", *shared)
    assert load_settings(tmp_path, "p").retrieval.weights.words == 1.0
    assert (
        "nothing that was learned is in effect"
        in run_memtier("learn", "revert", *shared, code=1).output
    )
