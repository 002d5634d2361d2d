"""The rule-based extractor: what it finds, what it leaves alone, and that every fact is quoted."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.core.settings.schema import Facts
from memtier_plugin.facts.extraction.rules import (
    MAX_PER_ENTRY,
    Extraction,
    extract_facts,
)
from tests.builders import make_entry
from tests.cases import each_case

SAID = datetime(2023, 5, 7, 12, tzinfo=UTC)


def extract(*contents: str, speaker: str | None = None) -> Sequence[FactDraft]:
    entries = [
        make_entry(text, SAID, id=f"e{n}", speaker=speaker) for n, text in enumerate(contents)
    ]
    return extract_facts(entries).drafts


STATEMENTS = [
    ("My name is Ada Byron.", "user", "name", "Ada Byron", "The user's name is Ada Byron."),
    ("My dog is called Rex.", "The user's dog", "name", "Rex", "The user's dog is called Rex."),
    (
        "I live in Oslo, Norway.",
        "user",
        "lives_in",
        "Oslo, Norway",
        "The user lives in Oslo, Norway.",
    ),
    ("I'm based in Lima.", "user", "lives_in", "Lima", "The user is based in Lima."),
    (
        "I recently moved from Rome to Bern.",
        "user",
        "moved_to",
        "Bern",
        "The user recently moved from Rome to Bern.",
    ),
    ("I'm originally from Chile.", "user", "from", "Chile", "The user is originally from Chile."),
    ("I work at a bakery.", "user", "works_at", "a bakery", "The user works at a bakery."),
    ("I work as a welder.", "user", "works_as", "a welder", "The user works as a welder."),
    (
        "I'm a software engineer at Acme.",
        "user",
        "states",
        "I'm a software engineer at Acme",
        "The user is a software engineer at Acme.",
    ),
    (
        "My birthday is on March 3rd.",
        "user",
        "birthday",
        "March 3rd",
        "The user's birthday is on March 3rd (said on 2023-05-07).",
    ),
    ("I was born in 1980.", "user", "born", "in 1980", "The user was born in 1980."),
    ("I'm 44 years old.", "user", "age", "44", "The user is 44 years old."),
    (
        "I'm allergic to peanuts.",
        "user",
        "allergic_to",
        "peanuts",
        "The user is allergic to peanuts.",
    ),
    ("I'm a vegetarian.", "user", "diet", "vegetarian", "The user is a vegetarian."),
    ("I can't eat gluten.", "user", "prefers", "I can't eat gluten", "The user can't eat gluten."),
    ("I have two kids.", "user", "states", "I have two kids", "The user has two kids."),
    (
        "My favorite colour is green.",
        "The user's favorite colour",
        "favorite",
        "green",
        "The user's favorite colour is green.",
    ),
    (
        "I prefer tabs over spaces.",
        "user",
        "prefers",
        "tabs over spaces",
        "The user prefers tabs over spaces.",
    ),
    ("I do like jazz.", "user", "states", "I do like jazz", "The user does like jazz."),
    (
        "I don't like mushrooms.",
        "user",
        "dislikes",
        "mushrooms",
        "The user doesn't like mushrooms.",
    ),
    (
        "I can't stand loud music.",
        "user",
        "prefers",
        "I can't stand loud music",
        "The user can't stand loud music.",
    ),
    ("I hate mornings.", "user", "dislikes", "mornings", "The user hates mornings."),
    (
        "I never eat after 8 pm.",
        "user",
        "states",
        "I never eat after 8 pm",
        "The user never eats after 8 pm.",
    ),
    (
        "I've never been to Asia.",
        "user",
        "states",
        "I've never been to Asia",
        "The user has never been to Asia.",
    ),
    (
        "I usually watch the news.",
        "user",
        "states",
        "I usually watch the news",
        "The user usually watches the news.",
    ),
    (
        "Never push to main without my review.",
        "user",
        "never",
        "Never push to main without my review",
        "The user asks: Never push to main without my review.",
    ),
    (
        "Always use metric units.",
        "user",
        "always",
        "Always use metric units",
        "The user asks: Always use metric units.",
    ),
    (
        "We decided to drop Windows 7.",
        "user",
        "decided",
        "to drop Windows 7",
        "The user says: We decided to drop Windows 7.",
    ),
    (
        "I've decided against Redis.",
        "user",
        "decided",
        "against Redis",
        "The user has decided against Redis.",
    ),
    (
        "We'll go with the cheaper plan.",
        "user",
        "states",
        "We'll go with the cheaper plan",
        "The user says: We'll go with the cheaper plan.",
    ),
    (
        "We switched from MySQL to Postgres.",
        "user",
        "states",
        "We switched from MySQL to Postgres",
        "The user says: We switched from MySQL to Postgres.",
    ),
    (
        "We use Python 3.12 here.",
        "user",
        "uses",
        "Python 3.12 here",
        "The user says: We use Python 3.12 here.",
    ),
    (
        "The linter is pinned to v2.3.1.",
        "linter",
        "states",
        "is pinned to v2.3.1",
        "The linter is pinned to v2.3.1.",
    ),
    (
        "The staging database runs on port 5433.",
        "staging database",
        "runs_on_port",
        "5433",
        "The staging database runs on port 5433.",
    ),
    (
        "The config lives in /etc/app/main.toml.",
        "config",
        "located_at",
        "/etc/app/main.toml",
        "The config lives in /etc/app/main.toml.",
    ),
    (
        "We use Terraform for deployments.",
        "user",
        "uses",
        "Terraform for deployments",
        "The user says: We use Terraform for deployments.",
    ),
    (
        "I'm using the `fetch` API.",
        "user",
        "states",
        "I'm using the `fetch` API",
        "The user is using the `fetch` API.",
    ),
    (
        "The release is on March 29.",
        "release",
        "scheduled_for",
        "March 29",
        "The release is on March 29 (said on 2023-05-07).",
    ),
    (
        "The deadline for the grant is 2024-02-01.",
        "deadline for the grant",
        "amount",
        "2024-02-01",
        "The deadline for the grant is 2024-02-01.",
    ),
    (
        "Our demo is next Friday.",
        "The user's demo",
        "scheduled_for",
        "next Friday",
        "The user says: Our demo is next Friday (2023-05-12).",
    ),
    (
        "I went to a concert yesterday.",
        "user",
        "did",
        "I went to a concert yesterday",
        "The user went to a concert yesterday (2023-05-06).",
    ),
    (
        "I'm Ada, a nurse from Cork.",
        "user",
        "states",
        "I'm Ada, a nurse from Cork",
        "The user is Ada, a nurse from Cork.",
    ),
    (
        "I grew up in a small village.",
        "user",
        "did",
        "I grew up in a small village",
        "The user grew up in a small village.",
    ),
    ("I'm a single mom.", "user", "states", "I'm a single mom", "The user is a single mom."),
    (
        "I'm now part of the choir in Ghent.",
        "user",
        "states",
        "I'm now part of the choir in Ghent",
        "The user is now part of the choir in Ghent.",
    ),
    ("I own two kayaks.", "user", "states", "I own two kayaks", "The user owns two kayaks."),
    (
        "I can't live without coffee.",
        "user",
        "states",
        "I can't live without coffee",
        "The user can't live without coffee.",
    ),
    (
        "I'm more of a morning person.",
        "user",
        "prefers",
        "I'm more of a morning person",
        "The user is more of a morning person.",
    ),
    (
        "I'm not a fan of olives.",
        "user",
        "prefers",
        "I'm not a fan of olives",
        "The user is not a fan of olives.",
    ),
    (
        "I try to avoid sugar.",
        "user",
        "states",
        "I try to avoid sugar",
        "The user tries to avoid sugar.",
    ),
    (
        "I'd rather walk than drive.",
        "user",
        "prefers",
        "I'd rather walk than drive",
        "The user would rather walk than drive.",
    ),
    (
        "I swim twice a week.",
        "user",
        "states",
        "I swim twice a week",
        "The user swims twice a week.",
    ),
    (
        "I usually read, bake, and watch films.",
        "user",
        "states",
        "I usually read, bake, and watch films",
        "The user says: I usually read, bake, and watch films.",
    ),
    (
        "I used to play the oboe.",
        "user",
        "states",
        "I used to play the oboe",
        "The user used to play the oboe.",
    ),
    ("I play the oboe.", "user", "states", "I play the oboe", "The user plays the oboe."),
    ("I'm learning Welsh.", "user", "states", "I'm learning Welsh", "The user is learning Welsh."),
    (
        "I've been saving for a boat.",
        "user",
        "states",
        "I've been saving for a boat",
        "The user has been saving for a boat.",
    ),
    (
        "I've known Rosa for ten years.",
        "user",
        "states",
        "I've known Rosa for ten years",
        "The user has known Rosa for ten years.",
    ),
    ("I adopted a parrot.", "user", "did", "I adopted a parrot", "The user adopted a parrot."),
    (
        "Last Friday, I sold my car.",
        "Last Friday, I",
        "states",
        "sold my car",
        "The user says: Last Friday (2023-05-05), I sold my car.",
    ),
    (
        "I got promoted two weeks ago.",
        "user",
        "did",
        "I got promoted two weeks ago",
        "The user got promoted two weeks ago (around 2023-04-23).",
    ),
    (
        "I was diagnosed with asthma.",
        "user",
        "states",
        "I was diagnosed with asthma",
        "The user was diagnosed with asthma.",
    ),
    (
        "My laptop crashed last month.",
        "The user's laptop",
        "states",
        "crashed last month",
        "The user's laptop crashed last month (April 2023).",
    ),
    (
        "My sister is a vet in Turku.",
        "The user's sister",
        "states",
        "is a vet in Turku",
        "The user's sister is a vet in Turku.",
    ),
    (
        "My goal is to run a marathon.",
        "The user's goal",
        "states",
        "is to run a marathon",
        "The user's goal is to run a marathon.",
    ),
    (
        "We're flying to Lisbon next week.",
        "user",
        "plans",
        "flying to Lisbon next week",
        "The user says: We're flying to Lisbon next week (2023-05-08 to 2023-05-14).",
    ),
    (
        "I've always wanted to see the fjords.",
        "user",
        "states",
        "I've always wanted to see the fjords",
        "The user has always wanted to see the fjords.",
    ),
    (
        "Our timeout is 30 seconds.",
        "The user's timeout",
        "amount",
        "30 seconds",
        "The user says: Our timeout is 30 seconds.",
    ),
    (
        "From now on answer in French.",
        "user",
        "always",
        "From now on answer in French",
        "The user asks: From now on answer in French.",
    ),
    ("i'm allergic to bees", "user", "allergic_to", "bees", "The user is allergic to bees."),
    (
        "Remember that my flight leaves at 9.",
        "The user's flight",
        "scheduled_for",
        "9",
        "The user's flight leaves at 9.",
    ),
    (
        "Note: the key is under the mat.",
        "key",
        "states",
        "is under the mat",
        "The key is under the mat.",
    ),
]

SILENCES = [
    "Do I like jazz?",
    "I like jazz, right?",
    "If I move, I live in Oslo.",
    "I might use Redis.",
    "Maybe we use Python 3.12.",
    "I'd like a coffee.",
    "Can you use metric units?",
    "I love it!",
    "I love that.",
    "I love your dress.",
    "I love how you said it.",
    "I like his idea.",
    "I prefer this one.",
    "Hey, good to see you!",
    "I always wonder whether I prefer tabs.",
    "I'm a bit tired.",
    "I work at it.",
    "I went crazy.",
    "I bought it last week.",
    "I have a funny story.",
    "I want to see an example.",
    "I'm getting an error.",
    "I want to make sure I get this right.",
    "I took it yesterday.",
    "Never mind.",
    "Always here for you!",
    "Let's see.",
    "We use it.",
    "It runs on port 5433.",
    "The point is on the way.",
    "Remember that time we got lost?",
    "> I prefer tabs.",
    "$ I use Python 3.12",
    "```\nI prefer tabs.\n```",
    "    I prefer tabs.",
    'File "x.py", line 3\nTraceback: I use Flask 2',
    "",
    " \n\n ",
]


@each_case(("statement", "subject", "relation", "value", "text"), STATEMENTS)
def test_each_rule_finds_its_statement(
    statement: str, subject: str, relation: str, value: str, text: str
) -> None:
    """A plain statement becomes one draft with the exact words, as a sentence that stands alone.

    It holds from when it was said, or from the day of the past that it names.
    """
    (draft,) = extract(statement)
    assert (draft.subject, draft.relation, draft.value) == (subject, relation, value)
    assert draft.text == text
    assert draft.valid_from and draft.valid_from <= SAID
    assert draft.valid_from == SAID or f"{draft.valid_from:%Y}" in text
    assert draft.sources == (Source(agent="a", session="s", entry="e0"),)


@each_case("statement", SILENCES)
def test_what_states_nothing_gives_nothing(statement: str) -> None:
    """Questions, hypotheses, requests, quotations, code and words that point elsewhere are left."""
    assert extract(statement) == ()


def test_a_named_speaker_is_the_subject() -> None:
    """In talk between people the fact is about who said it."""
    (draft,) = extract("Hey Mel! Well, I prefer tea over coffee.", speaker="Ann")
    assert (draft.subject, draft.value) == ("Ann", "tea over coffee")
    assert draft.text == "Ann prefers tea over coffee."


def test_a_statement_before_a_question_is_read() -> None:
    """The question's part of a sentence is left, the statement before it is kept, with its span."""
    statement = "So I've decided to use SQLite 3.39, can you help me with the schema?"
    (draft,) = extract(statement)
    assert draft.quote == "I've decided to use SQLite 3.39"
    assert draft.span == (3, 34)


def test_only_the_users_own_entries_are_read() -> None:
    """Tool, assistant, external, tainted and system text gives no facts, and is counted."""
    spoken = make_entry("I prefer tabs.", SAID)
    others = [
        replace(spoken, role="assistant", origin="assistant"),
        replace(spoken, role="tool", origin="tool"),
        replace(spoken, origin="external"),
        replace(spoken, tainted=True),
        replace(spoken, content="[system] I prefer tabs."),
    ]
    assert extract_facts(others) == Extraction((), {"not_user": 3, "tainted": 1, "system": 1})


def test_saying_it_again_adds_a_source() -> None:
    """One fact, two entries behind it."""
    (draft,) = extract("I prefer tabs.", "I prefer Tabs!")
    assert [source.entry for source in draft.sources] == ["e0", "e1"]


def test_going_back_is_a_change_where_one_value_is_current() -> None:
    """A, B, A of a single-valued relation are three facts; of another relation two."""
    entries = [
        make_entry(f"I live in {city}.", SAID, id=f"e{n}")
        for n, city in enumerate(["Rome", "Bern", "Rome"])
    ]
    assert [d.value for d in extract_facts(entries, Facts().single_valued).drafts] == [
        "Rome",
        "Bern",
        "Rome",
    ]
    assert [d.value for d in extract_facts(entries).drafts] == ["Rome", "Bern"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("Rowan, our new plumber, works for Castle Heating.", "Rowan"),
        ("Ottilie, my oldest aunt, sings in a choir in Graz.", "Ottilie"),
        ("Merlin, our build box, has 64 GB of memory.", "Merlin"),
    ],
)
def test_a_name_before_who_it_is_stays(content: str, name: str) -> None:
    """A name is no address where it is said who has it: a fact without it is about nobody."""
    [draft] = extract(content)
    assert name in draft.text
    [addressed] = extract(f"{name}, my bike is at the repair shop until Tuesday.")
    assert name not in addressed.text


def test_an_entry_gives_few_drafts() -> None:
    """A wall of statements is capped and the rest counted."""
    result = extract_facts(
        [
            make_entry(
                " ".join(f"I'm allergic to nut{n}." for n in range(MAX_PER_ENTRY + 3)),
                SAID,
            )
        ]
    )
    assert len(result.drafts) == MAX_PER_ENTRY
    assert result.rejected["cap"] == 3


def test_negation_numbers_and_names_stay_in_the_text() -> None:
    """What is negated stays negated, in value or verb, and every number is kept."""
    (draft,) = extract("I don't enjoy meetings before 10:30 with Bob.")
    assert draft.relation == "dislikes"
    assert "doesn't" in draft.text
    assert "10:30 with Bob" in draft.text


@pytest.mark.parametrize(
    "unit", [" ", "I like ", "I switched from ", ", and I", "a", ".", "; ", "\n>"]
)
@pytest.mark.parametrize("chars", [20_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_hostile_repetition_ends(unit: str, chars: int) -> None:
    """No rule takes quadratic time on a long text."""
    extract_facts([make_entry(unit * (chars // len(unit)), SAID)])


snippets = st.sampled_from([statement for statement, *_ in STATEMENTS] + SILENCES)
glue = st.sampled_from([" ", "\n", ", ", " and ", ". ", "```\n", "\r\n", "\u2028", "; so "])


@given(st.lists(st.one_of(st.text(max_size=15), snippets, glue), max_size=10).map("".join))
def test_every_draft_is_quoted_exactly(content: str) -> None:
    """Whatever the text: no error, the span gives the quote, and the quote holds the value."""
    for draft in extract_facts([make_entry(content, SAID)], Facts().single_valued).drafts:
        assert draft.span is not None
        assert content[slice(*draft.span)] == draft.quote
        assert draft.value in draft.quote
        assert draft.value.strip() == draft.value != ""
        assert draft.text.endswith((".", "。"))
