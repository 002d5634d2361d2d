"""The sets of lines and questions by language, and the command that measures them."""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from memtier_bench.languages import (
    FOLDER,
    LANGUAGES,
    LanguageQuestion,
    LanguageSet,
    load_language_set,
    measure_languages,
    run_languages,
)
from memtier_bench.report import print_report
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError, Unsupported

# How Unicode names the letters of each script, and letters that the language needs of it.
SCRIPTS = {
    "chinese": ("CJK",),
    "japanese": ("CJK", "HIRAGANA", "KATAKANA"),
    "korean": ("HANGUL",),
    "german": ("LATIN",),
    "russian": ("CYRILLIC",),
    "arabic": ("ARABIC",),
    "hindi": ("DEVANAGARI",),
    "identifiers": ("LATIN",),
}
OWN = {"japanese": "のはをでに", "german": "äöüß"}
LEAST_ASKED = {"identifiers": 30}


@pytest.fixture(scope="module", params=LANGUAGES)
def shipped(request: pytest.FixtureRequest) -> LanguageSet:
    """Load each shipped set once."""
    return load_language_set(FOLDER / f"{request.param}.yaml")


def letters(text: str) -> Iterator[str]:
    """Yield the script of every letter of a text."""
    for character in text:
        if character.isalpha():
            yield unicodedata.name(character, "").split()[0]


def small(tmp_path: Path, **more: object) -> Path:
    """Write a set of three lines and one question, changed by ``more``."""
    lines = ["The ferry leaves at seven.", "I bake rye bread.", "The cello needs a bow."]
    questions = [{"ask": "When does the ferry leave?", "gold": lines[0]}]
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({"lines": lines, "questions": questions, **more}), "utf-8")
    return path


def test_sets_are_large_enough(shipped: LanguageSet) -> None:
    """Each set has 15 questions (identifiers 30), and 200 lines that answer none of them."""
    assert len(shipped.questions) >= LEAST_ASKED.get(shipped.language, 15)
    assert len({question.ask for question in shipped.questions}) == len(shipped.questions)
    golds = {question.gold for question in shipped.questions}
    assert len(golds) >= min(15, len(shipped.questions))
    assert len(shipped.lines) - len(golds) >= 200


def test_lines_are_whole_and_different(shipped: LanguageSet) -> None:
    """A line is text of its own: none is empty, padded, or another one in other letters."""
    assert all(line and line == line.strip() for line in shipped.lines)
    assert len({line.casefold().rstrip(".!?。？！।؟ ") for line in shipped.lines}) == len(
        shipped.lines
    )


def test_questions_are_no_copies(shipped: LanguageSet) -> None:
    """A question is no line, and no piece of one: it could be found without any search."""
    for question in shipped.questions:
        bare = question.ask.rstrip("?？؟ ")
        assert not any(bare in line for line in shipped.lines), question.ask


def test_scripts_are_right(shipped: LanguageSet) -> None:
    """Every set is written in the script of its language; names and code may be Latin."""
    texts = [*shipped.lines, *(question.ask for question in shipped.questions)]
    scripts = [script for text in texts for script in letters(text)]
    own = [script for script in scripts if script in SCRIPTS[shipped.language]]
    assert len(own) > 0.95 * len(scripts)
    assert set(OWN.get(shipped.language, "")) <= set("".join(texts))
    kana = {"HIRAGANA", "KATAKANA"} & set(scripts)
    assert bool(kana) == (shipped.language == "japanese")


def test_sets_are_few_and_small() -> None:
    """What ships is the sets that are named, and at most 400 KB of them."""
    files = sorted(FOLDER.iterdir())
    names = sorted(f"{name}.yaml" for name in (*LANGUAGES, "generic"))
    assert [path.name for path in files] == names
    assert sum(path.stat().st_size for path in files) <= 400 * 1024


@pytest.mark.parametrize(
    "more",
    [
        {"lines": ["I bake rye bread."]},
        {"lines": ["The ferry leaves at seven."] * 2},
        {"questions": [{"ask": "When?"}]},
        {"questions": None},
    ],
)
def test_malformed_sets_are_refused(tmp_path: Path, more: dict[str, object]) -> None:
    """A set whose gold is no line, or stands there twice, would be counted wrongly."""
    with pytest.raises(ImportFileError, match=r"small\.yaml"):
        load_language_set(small(tmp_path, **more))
    with pytest.raises(ImportFileError, match=r"nothing\.yaml"):
        load_language_set(tmp_path / "nothing.yaml")


def test_recall_is_the_share_of_questions(tmp_path: Path) -> None:
    """A gold line that is found first counts 1, one that no recall brings 0: the mean is half."""
    loaded = load_language_set(small(tmp_path))
    lines = (*loaded.lines, *load_language_set(FOLDER / "korean.yaml").lines[:60], "Ω")
    missed = LanguageQuestion(ask="When does the ferry leave, or not?", gold="Ω")
    both = LanguageSet(language="small", lines=lines, questions=(*loaded.questions, missed))
    (row,) = measure_languages([both])["sets"]
    assert row["recall5"] == 0.5
    assert 0.5 <= row["mrr"] < 0.6
    assert row["lines"] == 64


def test_stems_are_a_column_where_there_are_some() -> None:
    """With its own Snowball language a set's inflected words meet; others have no such column."""
    # By n-grams alone the others win: they have all of the word's, the gold line has not.
    others = [f"Hauhaus {line}" for line in load_language_set(FOLDER / "korean.yaml").lines[:40]]
    lines = ("Die Häuser sind verkauft.", *others)
    questions = (LanguageQuestion(ask="Wo ist das Haus?", gold=lines[0]),)
    steps: list[tuple[str, int, int]] = []
    sets = [
        LanguageSet(language=language, lines=lines, questions=questions)
        for language in ("german", "identifiers")
    ]
    german, other = measure_languages(sets, lambda *step: steps.append(step))["sets"]
    assert german["recall5_stemmed"] == 1.0
    assert other["recall5_stemmed"] is None
    assert steps[-1] == ("identifiers", 5, 5)


def test_unknown_language() -> None:
    """A language without a set is refused with those that have one."""
    with pytest.raises(Unsupported, match=r"'klingon'; one of: chinese, japanese"):
        run_languages(["klingon"])


def test_command_measures_a_set(tmp_path: Path) -> None:
    """`memtier bench languages` finds most of what a set asks, and writes the report as JSON."""
    file = tmp_path / "out.json"
    done = CliRunner().invoke(
        main, ["bench", "languages", "--language", "korean", "--json", str(file)]
    )
    assert done.exit_code == 0, done.output
    assert "korean" in done.stdout
    report = json.loads(file.read_text("utf-8"))
    assert set(report) == {"dataset", "sets", "version", "settings"}
    (row,) = report["sets"]
    assert list(row) == [
        "language",
        "lines",
        "questions",
        "recall5",
        "mrr",
        "recall5_no_grams",
        "recall5_stemmed",
    ]
    assert 0.6 < row["recall5"] <= 1
    most = row["recall5"] + (1 - row["recall5"]) / 6  # what is not among five is sixth at best
    assert row["recall5"] / 5 <= row["mrr"] + 1e-4 <= most + 2e-4
    assert report["settings"]["language"] == "english"
    assert report["settings"]["retrieval.weights.grams"] > 0


def test_table_shows_what_is_missing() -> None:
    """The table has a row for each set, and a dash where there is no figure."""
    row = dict.fromkeys(("recall5", "mrr", "recall5_no_grams"), 0.25)
    sets = [{"language": "hindi", "lines": 3, "questions": 2, "recall5_stemmed": None, **row}]
    shown = io.StringIO()
    print_report({"dataset": "languages", "sets": sets}, Console(file=shown, width=100))
    assert shown.getvalue().split()[-7:] == ["hindi", "3", "2", "0.250", "0.250", "0.250", "-"]
