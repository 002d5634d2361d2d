"""Memory as a text: what is not changed changes nothing, and what is changed is found."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.formats import new_id
from memtier_plugin.lifecycle.edit import Change
from memtier_plugin.views.edit_text import EditLine, find_changes, render_text, short_ids
from tests.cases import each_case

NOTES = ["facts of the project p", "", "write a line"]
IDS = [new_id() for _ in range(8)]
any_text = st.text().filter(lambda text: text.strip())
plain_text = st.from_regex(r"[a-z]+( [a-zé#\[\]:]+)*", fullmatch=True)
heads = st.sampled_from(["", "09:30 Ines", "10:00 [x]: \n#"])


@st.composite
def documents(draw: st.DrawFn) -> list[EditLine]:
    """Draw the lines of a text: ids, words of any kind, groups and heads."""
    texts = draw(st.lists(any_text, min_size=1, max_size=len(IDS)))
    return [
        EditLine(IDS[n], text, draw(st.sampled_from(["", "Ines", "a\n[b"])), draw(heads))
        for n, text in enumerate(texts)
    ]


def summary(changes: list[Change]) -> list[tuple[str, str | None, str]]:
    """Return what some changes are, without their places."""
    return [(change.what, change.id, change.text) for change in changes]


@given(documents())
def test_what_is_not_changed_changes_nothing(lines: list[EditLine]) -> None:
    """Whatever the words are, the text as it was given out has no changes.

    Nor has it where an editor drops the spaces at the ends of lines, writes CRLF or a BOM, or a
    person moves lines, removes notes or adds empty lines between.
    """
    text = render_text(lines, NOTES)
    assert find_changes(lines, text, text) == []
    stripped = "\n".join(line.rstrip() for line in text.split("\n"))
    for other in (stripped, text.replace("\n", "\r\n"), f"\ufeff{text}", f"\n\n{text}\n\n"):
        assert find_changes(lines, text, other) == []
    notes = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    assert find_changes(lines, text, notes) == []
    moved = render_text([*reversed(lines)], NOTES)
    assert find_changes(lines, text, moved) == []


@given(documents(), st.data())
def test_each_change_is_found(lines: list[EditLine], data: st.DataObject) -> None:
    """What is deleted, reworded and added is told, and nothing else, wherever it stands."""
    text = render_text(lines, NOTES)
    fates = [data.draw(st.sampled_from(["keep", "forget", "reword"])) for _ in lines]
    kept: list[EditLine] = []
    expected: list[tuple[str, str | None, str]] = []
    for fate, line in zip(fates, lines, strict=True):
        words = f"{data.draw(plain_text)} {line.id}"
        if fate == "forget":
            expected.append(("forget", line.id, ""))
            continue
        kept.append(line if fate == "keep" else EditLine(line.id, words, line.group, line.head))
        if fate == "reword":
            expected.append(("reword", line.id, words))
    edited = render_text(kept, NOTES)
    new = data.draw(st.lists(plain_text.map(lambda words: f"a {words}"), max_size=3))
    at = data.draw(st.sampled_from(["start", "end"]))
    added = "".join(f"{words}\n  and more\n" for words in new)
    edited = added + edited if at == "start" else edited + added
    if not kept and not new:
        return  # notes alone are left: everything is forgotten, see below
    found_changes = find_changes(lines, text, edited)
    expected += [("add", None, f"{words}\nand more") for words in new]
    # A changed id may come out longer or shorter where the lines are fewer: ends of eight differ.
    assert sorted(summary(found_changes), key=str) == sorted(expected, key=str)
    numbers = [change.number for change in found_changes if change.what == "add"]
    assert [edited.split("\n")[number - 1] for number in numbers] == new


@given(documents(), st.text())
def test_garbage_is_refused_by_line(lines: list[EditLine], garbage: str) -> None:
    """A text of any kind is understood, or refused with the numbers of its lines and a remedy."""
    text = render_text(lines, NOTES)
    for edited in (garbage, text + garbage, garbage + text):
        try:
            changes = find_changes(lines, text, edited)
        except MessageError as error:
            count = edited.count("\n") + 1
            for problem in str(error).split("; line "):
                number = int(problem.removeprefix("line ").partition(":")[0])
                assert 1 <= number <= count
        else:
            assert {change.id for change in changes if change.id} <= {line.id for line in lines}


LINES = [
    EditLine("01M827XS57APQSCFC1Z6HMCKCG", "Ines lives in Lisbon.", "Ines"),
    EditLine("01M827XT020JAWYAYY0J6RV930", "Tea is at four.", "tea", "09:30 bot", "only a user"),
]


@each_case(
    ("edited", "problem"),
    [
        ("", "line 1: the text is empty"),
        (" \n\n", "line 1: the text is empty"),
        ("[Z6HMCKCG]\n", r"line 1: \[Z6HMCKCG\] has no words; delete the line"),
        ("[Z6HMCKCX] words\n", r"line 1: no line .* \[Z6HMCKCX\]; remove the brackets"),
        ("[Z6HMCKCG] a\nb\n[Z6HMCKCG] c\n", r"line 3: \[Z6HMCKCG\] is already on line 1"),
        ("[a b] words\n", "line 1: it starts with a bracket"),
        ("  orphan\n", "line 1: an indented line continues"),
        ("# note\n  orphan\n", "line 2: an indented line continues"),
        ("[0J6RV930] 09:30 bot: Tea is at five.\n", "line 1: only a user"),
        ("[ words\n[] x\n", "line 1: .*; line 2: "),
    ],
)
def test_bad_lines_are_named(edited: str, problem: str) -> None:
    """Each line that cannot be understood is named with its number and what to do."""
    text = render_text(LINES, NOTES)
    with pytest.raises(MessageError, match=problem):
        find_changes(LINES, text, edited)


def test_a_head_is_not_part_of_the_words() -> None:
    """What stands before the words of an entry must stay, and is not taken for words."""
    lines = [EditLine("01M827XS57APQSCFC1Z6HMCKCG", "Four pumps.", "s", "09:30 Ines")]
    text = render_text(lines, [])
    [change] = find_changes(lines, text, text.replace("Four", "Five"))
    assert (change.before, change.text) == ("Four pumps.", "Five pumps.")
    with pytest.raises(MessageError, match="leave '09:30 Ines:' before the words"):
        find_changes(lines, text, text.replace("09:30", "09:31"))


def test_notes_alone_forget_everything() -> None:
    """Whoever deletes every line, and leaves the notes, forgets them all."""
    text = render_text(LINES, NOTES)
    changes = find_changes(LINES, text, "# nothing is left\n")
    assert summary(changes) == [("forget", line.id, "") for line in LINES]


def test_equal_ends_of_ids_get_longer() -> None:
    """Ids that end alike are told apart by more characters."""
    lines = [EditLine("0A23456789", "a"), EditLine("0B23456789", "b")]
    assert [*short_ids(lines)] == ["A23456789", "B23456789"]
    text = render_text(lines, [])
    [change] = find_changes(lines, text, text.replace("] b", "] c"))
    assert change.id == "0B23456789"
