"""The word classes of each language, as their data files have them."""

import json
from pathlib import Path

import pytest

from memtier_plugin.text import lexicon as module
from memtier_plugin.text.lexicon import LANGUAGES, Lexicon, lexicon, lexicons, words_of
from tests.cases import each_case

DATA = Path(module.__file__).parent / "data"
CLASSES = {name for name in Lexicon.__annotations__ if name != "language"}


@each_case("path", sorted(DATA.iterdir()), ids=lambda path: path.stem)
def test_a_file_has_known_classes_only(path: Path) -> None:
    """Each data file is a language that is loaded, and each of its keys is a class of words."""
    assert path.stem in {words.language for words in lexicons()}
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data.keys() <= CLASSES


def test_no_class_is_unused() -> None:
    """Each class has words in at least one language, and reads as nothing where it has none."""
    for name in CLASSES:
        assert any(getattr(words, name) for words in lexicons()), name
        assert not lexicon("korean").months and lexicon("korean").abbreviations == frozenset()


@each_case("language", LANGUAGES)
def test_time_words_are_complete(language: str) -> None:
    """A language names all months and weekdays or none, and relative times by unit and distance."""
    words = lexicon(language)
    assert len(words.months) in (0, 12) and len(words.weekdays) in (0, 7)
    assert words.ambiguous_months <= {name for names in words.months for name in names.split()}
    for key in words.relative_times:
        unit, offset = key.split()
        assert unit in ("day", "week", "month", "year") and abs(int(offset)) <= 2


def test_words_are_lower_case() -> None:
    """Words are compared in lower case, so none is written otherwise but "im Jahr"."""
    for words in lexicons():
        raw = json.loads((DATA / f"{words.language}.json").read_text(encoding="utf-8"))
        plain = [v for k, v in raw.items() if k != "year_cues" and not k.endswith("_patterns")]
        text = json.dumps(plain, ensure_ascii=False)
        assert text == text.lower()


def test_a_misspelt_class_raises() -> None:
    """A class that does not exist is an error, not an empty one."""
    with pytest.raises(AttributeError):
        getattr(lexicon("english"), "stopwords")  # noqa: B009 (no type checker sees this one)


def test_values() -> None:
    """Word lists are split at spaces, phrases are not; classes join over languages."""
    english = lexicon("english")
    assert english.numbers["twelve"] == 12 and english.number_words(1, 3) == ("one", "two", "three")
    assert english.month_names[4] == "may" and english.weekday_names[6] == "sunday"
    assert "thank you" in english.thanks and "не" in lexicon("russian").negations
    assert {"if", "wenn", "si", "如果"} <= words_of("conditionals")
