"""What is worth keeping is decided for every sentence alike, and told in its speaker's words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtier_plugin.facts.extraction.sentences import read_words
from memtier_plugin.retrieval import worth
from tests.cases import each_case
from tests.facts.test_statements import drafts_of

SAID = datetime(2026, 3, 4, 10, tzinfo=UTC)

KEPT = [
    "The ledger service listens on port 7711.",
    "Visitors leave their umbrellas in the porch.",
    "Choir practice's in the crypt on Mondays.",
    "I can't smell anything since the accident.",
    "Even-numbered seats belong to the sponsors.",
    "Always round prices up to full euros.",
    "Wir liefern nur noch mit dem Rad aus.",
    "Mi madre no puede comer sal.",
    "Notre chat s'appelle Biscotte.",
    "我爸爸对海鲜过敏。",
]

LEFT = [
    "My bike has a flat tyre this morning.",
    "Always lovely to hear from you.",
    "What a gorgeous sunset!",
    "Never mind, my report is finished.",
    "You did a fantastic job, Ines.",
    "Give me a list of five islands.",
    "I couldn't agree more.",
    "¡Qué bien te ha quedado!",
    "On verra demain.",
]


@each_case("text", KEPT)
def test_a_name_makes_no_difference(text: str) -> None:
    """Whether a message names its speaker, the sentence is worth the same."""
    [unnamed], [named] = drafts_of(text), drafts_of(text, "Dana")
    assert (named.quote, named.relation) == (unnamed.quote, unnamed.relation)


@each_case("text", KEPT[:5])
def test_typed_in_haste_it_is_kept_as_well(text: str) -> None:
    """A small first letter and no full stop take nothing from a statement."""
    assert drafts_of(text[:1].lower() + text[1:].rstrip("."))


@each_case("text", LEFT)
@each_case("speaker", [None, "Dana"])
def test_what_passes_is_left(text: str, speaker: str | None) -> None:
    """States of the moment, praise, idioms and requests are no facts, whoever says them."""
    assert [draft.text for draft in drafts_of(text, speaker)] == []


@each_case(
    ("text", "fact"),
    [
        ("I rebuilt the search page in Elm.", "The user rebuilt the search page in Elm."),
        ("I lent the tent to Petra.", "The user lent the tent to Petra."),
        ("I withdrew the planning application.", "The user withdrew the planning application."),
        ("We run the shop.", "The user says: We run the shop."),
        ("Our dog is called Pip.", "The user says: Our dog is called Pip."),
        ("We ourselves run the shop.", "The user says: We ourselves run the shop."),
        ("I myself run the shop.", "The user says: I myself run the shop."),
        ("I for one run a shop in Lisbon.", "The user says: I for one run a shop in Lisbon."),
        ("I almost never work on Fridays.", "The user almost never works on Fridays."),
        ("I own two kayaks.", "The user owns two kayaks."),
        ("I shot the film in Oslo.", "The user says: I shot the film in Oslo."),
        ("I collect old radios.", "The user collects old radios."),
        ("My tram leaves at 7:12.", "The user's tram leaves at 7:12."),
        (
            "I told my boss that I leave in May.",
            "The user says: I told my boss that I leave in May",
        ),
        ("I hike and ski in Tyrol.", "The user says: I hike and ski in Tyrol."),
        ("Ask me before you close a ticket.", "The user asks: Ask me before you close a ticket."),
        ("我们的主机叫heron。", "用户说：我们的主机叫heron。"),
    ],
)
def test_only_what_is_sure_is_rephrased(text: str, fact: str) -> None:
    """A simple sentence is told in the third person, any other as its speaker said it."""
    [draft] = drafts_of(text)
    assert draft.text.startswith(fact)


@each_case(
    ("text", "lasting"),
    [
        ("I now like oolong with milk.", True),
        ("I now prefer the window seat.", True),
        ("These days we use the cargo bike.", True),
        ("I'm now on my way to the gym.", False),
        ("I'm going to water the plants now.", False),
    ],
)
def test_what_is_so_by_now_lasts(text: str, lasting: bool) -> None:
    """A relation of oneself that holds "now" is a change; any other now is a passing moment."""
    assert bool(drafts_of(text)) == lasting


@each_case(
    ("text", "kept"),
    [
        ("Trace the missing crate 88 for me.", False),
        ("Please polish the brass lamp.", False),
        ("Switch us to the larger plan.", False),
        ("Cancel the booking at the lake.", False),
        ("Write about 12 slogans for Bergen Bakery.", False),
        ("Give me a top 5 of Norwegian bakeries.", False),
        ("Replace the filter every spring.", True),
        ("Move the concert to Dresden.", True),
        ("Postpone the launch to 14 June.", True),
        ("The missing crate is number 88.", True),
    ],
)
def test_a_request_for_once_is_no_fact(text: str, kept: bool) -> None:
    """What is to be done once to one thing is none, unless it tells how that is from then on."""
    assert bool(drafts_of(text)) == kept


@pytest.mark.parametrize(
    "text", ["What are the duties of a harbour pilot.", "how do i register a bakery in Norway"]
)
def test_a_question_needs_no_mark(text: str) -> None:
    """What opens like a question states nothing, although no mark ends it."""
    assert drafts_of(text) == ()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Harbour pilots board large ships from a small boat.", False),
        ("I'm ready for the third lesson on knots.", False),
        ("My boat is a Folkboat from 1971 with a diesel engine.", True),
        ("Always log the engine hours of the Folkboat.", True),
    ],
)
def test_amid_a_plan_only_ones_own_is_kept(text: str, kept: bool) -> None:
    """Of a plan that was pasted only what is in the first person, or an order for good, is kept."""
    plan = (
        "Week 1: Basics. Knots and ropes. Week 2: Weather. Clouds tell of wind. {} Week 3: Charts."
    )
    assert bool([d for d in drafts_of(plan.format(text)) if d.quote == text]) == kept


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("I rented 'The Old Mill.'", "The user rented 'The Old Mill.'"),
        ("I travel in the last week of May.", "The user travels in the last week of May"),
        ("He's a carpenter and builds boats in Lübeck.", "He's a carpenter"),
    ],
)
def test_a_fact_is_worded_whole_and_in_its_language(text: str, fact: str) -> None:
    """A closing quotation mark stays, a week "of May" is not last week, English stays English."""
    texts = [draft.text for draft in drafts_of(f"My uncle is Ralf. {text}")]
    assert any(fact in text for text in texts), texts


def test_only_what_lasts_is_always_so() -> None:
    """An order that does not say that it is for good is kept as what was asked."""
    orders = ("Use oak for the shelves.", "Always use oak for the shelves.", "Never use oak here.")
    assert [draft.relation for text in orders for draft in drafts_of(text)] == [
        "asks", "always", "never",
    ]  # fmt: skip


def test_a_pronoun_brings_the_sentence_that_it_points_to() -> None:
    """What is only understood with the sentence before is kept together with it, or not at all."""
    [*_, draft] = drafts_of("The new scanner arrived. It is in room 12 behind the copier.")
    assert draft.quote == "The new scanner arrived. It is in room 12 behind the copier."
    assert drafts_of("It is in room 12 behind the copier.") == ()


def test_a_correction_keeps_what_is_right() -> None:
    """The order that says what to do instead stands beside the one that forbids."""
    drafts = drafts_of("No, never use grunt here. Use vite.")
    assert any("vite" in draft.text for draft in drafts)


@each_case(
    ("text", "name"),
    [
        ("Ines here, I look after the mail server.", "Ines"),
        ("Hello, Ravi here.", "Ravi"),
        ("This is Maren from the billing team.", "Maren"),
        ("hallo, Piet hier", "Piet"),
        ("I'm Olga and I run the archive.", "Olga"),
        ("call me Sven", "Sven"),
        ("Same here!", None),
        ("Nothing here.", None),
    ],
)
def test_an_introduction_is_understood(text: str, name: str | None) -> None:
    """People say who they are in passing; a word of every day is no name."""
    names = [draft.value for draft in drafts_of(text) if draft.relation == "name"]
    assert names == ([name] if name else [])


def test_the_coefficients_fit_the_features() -> None:
    """Every feature has its coefficient, and every coefficient its feature."""
    models = json.loads(Path(worth.__file__).with_suffix(".json").read_text())
    words = read_words("We use Postgres.")
    fitting = {"alone": worth.features(words), "amid": worth.features_amid(words, 3)}
    assert models.keys() == fitting.keys()
    for name, values in fitting.items():
        assert models[name]["weights"].keys() == values.keys()
        assert len(models[name]["vector"]) == len(worth.vector(words.text))
