"""What becomes of a new fact beside the ones that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from memtier_plugin.core.records import Fact, Source
from memtier_plugin.core.settings.schema import Facts
from memtier_plugin.facts.evolution import (
    Decision,
    content_words,
    decide,
    find_related,
    is_permitted,
    jaccard,
)
from tests.builders import make_fact

Day = Callable[..., datetime]
SINGLE = Facts().single_valued


def fact(
    day: Day, relation: str, value: str, text: str, *, at: float = 0, agent: str = "a", **more: Any
) -> Fact:
    """Return a fact about Ann, said on a day."""
    source = Source(agent=agent, session="s", entry=f"e{at}{value}")
    fields = {"subject": "Ann", "id": f"f{at}{value}{text}", "sources": (source,)} | more
    fields |= {"valid_from": day(at), "relation": relation, "value": value}
    return make_fact(text, day(at), **fields)


def decided(day: Day, old: Fact, new: Fact, context: str = "") -> Decision:
    """Return what becomes of a new fact beside an old one."""
    return decide(new, [old], SINGLE, day(100), context)


SAME = [
    (("likes", "hiking", "Ann likes hiking."), ("likes", " Hiking", "Ann loves hiking.")),
    (("lives_in", "Rome", "Ann lives in Rome."), ("home", "Rome", "Ann is living in Rome")),
    (("has", "two dogs", "Ann has two dogs."), ("owns", "dogs", "Ann has two dogs.")),
    (("likes", "tea", "Ann likes tea."), ("likes", "TEA.", "Ann really likes the tea.")),
]
OTHER = [
    # numbers, negation and names are not those of the other
    (("has", "dogs", "Ann has 2 dogs."), ("has", "dogs", "Ann has 3 dogs.")),
    (("uses", "Python", "Ann uses Python 3.11."), ("uses", "Python", "Ann uses Python 3.12.")),
    (("met", "Bob", "Ann met Bob."), ("met", "Rob", "Ann met Rob.")),
    (
        ("works_at", "Acme", "Ann started at Acme on 9 May 2023."),
        ("works_at", "Acme", "Ann has worked at Acme since 2019."),
    ),
    # who did it to whom
    (("beat", "Bob", "Ann beat Bob."), ("beat", "Ann", "Bob beat Ann.")),
    # other things of a relation with many values
    (("likes", "tea", "Ann likes tea."), ("likes", "jazz", "Ann likes jazz.")),
    (("likes", "tea", "Ann likes tea."), ("likes", "jazz", "Ann actually likes jazz.")),
    (("has", "a dog", "Ann has a dog."), ("has", "a cat", "Ann now has a cat.")),
    (("likes", "jazz", "Ann likes jazz."), ("likes", "free jazz", "Ann now likes free jazz.")),
    (
        ("likes", "dark roast coffee", "Ann likes dark roast coffee."),
        ("likes", "light roast coffee", "Ann likes light roast coffee."),
    ),
    # a longer text that speaks of something else
    (("likes", "paper", "Ann likes paper."), ("likes", "paper cups", "Ann likes paper cups.")),
    (("likes", "tea", "Ann likes tea."), ("likes", "green tea", "Ann likes green tea.")),
    # events happen again
    (
        ("did", "ran a race yesterday", "Ann ran a race yesterday (said on 2026-01-05)."),
        ("did", "ran a race yesterday", "Ann ran a race yesterday (said on 2026-03-05)."),
    ),
    (
        ("has", "an exam on Monday", "Ann has an exam on Monday (said on 2026-01-05)."),
        ("has", "an exam on Monday", "Ann has an exam on Monday (said on 2026-02-05)."),
    ),
    # a change of something else
    (
        ("likes", "Rome", "Ann likes Rome."),
        ("moved_to", "Oslo", "Ann moved from Rome to Oslo."),
    ),
    (("uses", "Vim", "Ann uses Vim."), ("uses", "Emacs", "Ann no longer uses Emacs.")),
    # what a thing is not is no value of it
    (
        ("states", "hangs by the stove", "The cellar key hangs by the stove."),
        ("states", "does not hang in the hall", "The cellar key does not hang in the hall."),
    ),
]
CHANGED = [
    # one value at a time
    (("lives_in", "Rome", "Ann lives in Rome."), ("lives_in", "Oslo", "Ann lives in Oslo.")),
    (("age", "41", "Ann is 41 years old."), ("age", "42", "Ann is 42 years old.")),
    (
        ("works_at", "Acme", "Ann works at Acme."),
        ("works_at", "Acme", "Ann no longer works at Acme."),
    ),
    # the words tell of a change
    (("uses", "Vim", "Ann uses Vim."), ("uses", "no longer Vim", "Ann no longer uses Vim.")),
    (("drinks", "tea", "Ann drinks tea."), ("drinks", "tea", "Ann does not drink tea any more.")),
    (("drinks", "tea", "Ann drinks tea."), ("drank", "tea", "Ann used to drink tea.")),
    (
        ("lives_in", "Rome", "Ann lives in Rome."),
        ("moved_to", "Oslo", "Ann moved from Rome to Oslo."),
    ),
    (("uses", "Slack", "Ann uses Slack."), ("decided", "Teams", "Ann moved from Slack to Teams.")),
    (
        ("likes", "early morning shifts", "Ann likes early morning shifts."),
        ("likes", "late morning shifts", "Ann likes late morning shifts these days."),
    ),
    (
        ("likes", "dunkles Brot mit Butter", "Ann mag dunkles Brot mit Butter."),
        ("likes", "helles Brot mit Butter", "Ann mag jetzt helles Brot mit Butter."),
    ),
    # the contrary of the very same
    (("likes", "olives", "Ann likes olives."), ("dislikes", "olives", "Ann dislikes olives.")),
    (("eats", "nuts", "Ann eats nuts."), ("eats", "nuts", "Ann never eats nuts.")),
]
MORE = [
    (("has", "a dog", "Ann has a dog."), ("has", "a dog named Rex", "Ann has a dog named Rex.")),
    (
        ("lives_in", "Rome", "Ann lives in Rome."),
        ("lives_in", "Rome, Italy", "Ann lives in Rome, Italy."),
    ),
    (
        ("allergic_to", "nuts", "Ann is allergic to nuts."),
        ("allergic_to", "nuts since 2019", "Ann is allergic to nuts since 2019."),
    ),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_says_the_same_is_ignored(day: Day, old: Any, new: Any) -> None:
    """A fact that says what a known one says adds only its source."""
    existing = fact(day, *old)
    decision = decided(day, existing, fact(day, *new, at=1))
    assert (decision.action, decision.target) == ("ignore", existing)


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_what_says_something_else_is_added(day: Day, old: Any, new: Any) -> None:
    """In doubt a fact is added: other numbers, another thing, another time."""
    assert decided(day, fact(day, *old), fact(day, *new, at=1)).action == "add"


@pytest.mark.parametrize(("old", "new"), CHANGED)
def test_what_has_changed_is_superseded(day: Day, old: Any, new: Any) -> None:
    """A new value of what has one at a time, or words that tell of a change, end the old fact."""
    existing, fresh = fact(day, *old), fact(day, *new, at=1)
    decision = decided(day, existing, fresh)
    assert (decision.action, decision.target, decision.late) == ("supersede", existing, False)


@pytest.mark.parametrize(("old", "new"), CHANGED)
def test_agents_do_not_end_each_others_facts(day: Day, old: Any, new: Any) -> None:
    """What two agents concluded stands side by side, however much it is contradictory."""
    existing = fact(day, *old, origin="assistant")
    fresh = fact(day, *new, at=1, agent="b", origin="assistant")
    assert decided(day, existing, fresh).action == "add"
    assert decided(day, existing, fact(day, *new, at=1, status="proposed")).action == "add"


@pytest.mark.parametrize(("old", "new"), MORE)
def test_what_says_more_is_an_update(day: Day, old: Any, new: Any) -> None:
    """A fact that says the same and goes on takes the old one's place; the shorter adds nothing."""
    short, long = fact(day, *old), fact(day, *new, at=1)
    assert decided(day, short, long) == Decision("update", short, "says more of the same")
    again = decided(day, long, fact(day, *old, at=2))
    assert (again.action, again.target) == ("ignore", long)
    late = decided(day, fact(day, *old, at=3), long)
    assert late.action in ("add", "supersede") and late.late == (late.action == "supersede")


def test_an_old_value_learned_late(day: Day) -> None:
    """An old value that is learned late does not replace a newer one, and ends those before it."""
    oldest = fact(day, "lives_in", "Bern", "Ann lives in Bern.")
    newest = fact(day, "lives_in", "Oslo", "Ann lives in Oslo.", at=5)
    middle = fact(day, "lives_in", "Rome", "Ann lives in Rome.", at=3)
    decision = decide(middle, [oldest, newest], SINGLE, day(100))
    assert decision.target == newest and decision.late and decision.others == (oldest,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("is", "on May 1", "Ann's birthday is on May 1."),
         ("birthday", "on May 5", "Ann's birthday is on May 5.")),
        (("states", "is with Rosa", "The spare key is with Rosa."),
         ("states", "is with Ivo now", "The spare key is with Ivo now.")),
    ],
)  # fmt: skip
def test_the_order_of_learning_makes_no_difference(day: Day, old: Any, new: Any) -> None:
    """Of two values in different relations the older is over, whichever of them is learned last."""
    first, second = fact(day, *old), fact(day, *new, at=5)
    in_order = decided(day, first, second)
    assert (in_order.action, in_order.target, in_order.late) == ("supersede", first, False)
    first = replace(first, timestamp=day(9))
    late = decided(day, second, first)
    assert (late.action, late.target, late.late) == ("supersede", second, True)


def test_a_time_to_come_proves_nothing(day: Day) -> None:
    """A value that a wrong clock dated into the future gives way to what is said now."""
    wrong = fact(day, "lives_in", "Rome", "Ann lives in Rome.", at=3650)
    new = fact(day, "lives_in", "Oslo", "Ann lives in Oslo.", at=1)
    decision = decide(new, [wrong], SINGLE, now=day(2))
    assert (decision.action, decision.target, decision.late) == ("supersede", wrong, False)


def test_another_subject_has_nothing_to_do_with_it(day: Day) -> None:
    """Whatever is said of Bob changes nothing about Ann."""
    old = fact(day, "lives_in", "Rome", "Ann lives in Rome.")
    new = fact(day, "lives_in", "Oslo", "Bob moved from Rome to Oslo.", subject="Bob", at=1)
    assert decided(day, old, new) == Decision("add")


def test_what_a_model_may_not_do(day: Day) -> None:
    """A model's choice counts unless it crosses agents, or drops a number or a negation."""
    old = fact(day, "has", "dogs", "Ann has 2 dogs.")
    mine = fact(day, "has", "dogs", "Ann has 3 dogs.", at=1)
    theirs = fact(day, "has", "dogs", "Ann has 3 dogs.", at=1, agent="b", origin="assistant")
    none = fact(day, "has", "dogs", "Ann has never had 2 dogs.", at=1)
    alike = fact(day, "has", "dogs", "Ann owns 2 dogs.", at=1)
    unknown = fact(day, "has", "cats", "Ann has 2 cats.")
    assert is_permitted(Decision("add"), mine, [old])
    assert is_permitted(Decision("supersede", old), mine, [old])
    assert is_permitted(Decision("update", old), mine, [old])
    assert is_permitted(Decision("ignore", old), alike, [old])
    assert not is_permitted(Decision("supersede", old), theirs, [old])
    assert not is_permitted(Decision("ignore", old), mine, [old])
    assert not is_permitted(Decision("ignore", old), none, [old])
    assert not is_permitted(Decision("supersede", unknown), mine, [old])
    assert not is_permitted(Decision("supersede"), mine, [old])
    waiting = fact(day, "has", "dogs", "Ann has 3 dogs.", at=1, status="proposed")
    assert not is_permitted(Decision("supersede", old), waiting, [old])


def test_what_a_model_is_asked_about(day: Day) -> None:
    """Only facts of the subject that share the relation or many words are worth a question."""
    new = fact(day, "likes", "jazz", "Ann likes jazz.", at=1)
    near = fact(day, "likes", "tea", "Ann likes tea.")
    far = fact(day, "has", "a dog", "Ann has a dog.")
    other = fact(day, "likes", "jazz", "Bob likes jazz.", subject="Bob")
    assert find_related(new, [near, far, other]) == [near]


def test_words_and_likeness() -> None:
    """Words lose their endings and what says nothing; likeness is the share they have in common."""
    assert content_words("Ann is living in the cities", leave_out=content_words("Ann")) == (
        "liv",
        "city",
    )
    assert jaccard(("a", "b"), ("b", "c")) == pytest.approx(1 / 3)
    assert jaccard((), ()) == 0.0


def test_the_moment_itself_is_not_older(day: Day) -> None:
    """Of two values of the same moment the one learned later stands."""
    old = fact(day, "lives_in", "Rome", "Ann lives in Rome.", at=1)
    new = fact(day, "lives_in", "Oslo", "Ann lives in Oslo.", at=1, id="a")
    assert decide(new, [old], SINGLE, day(1) + timedelta(hours=1)).late is False
