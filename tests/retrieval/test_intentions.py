"""What a user wants later comes back once, when its event or its day has come, until it is done."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import NotFound
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.dialogue_acts import closes, intends
from memtier_plugin.retrieval.intentions import asks_what_is_due, read_due, waits_for_session
from tests.builders import turns, write_config
from tests.cases import each_case

SAID_AT = datetime(2026, 9, 1, 9, tzinfo=UTC)
WISH = "Remind me to rotate the certificate when we next touch the gateway."
EVENT, OTHER = "Let us change the gateway config today.", "Name three rivers in Peru."


def say(memory: MemTier, *texts: str, session: str = "s") -> None:
    """Record what a user says, each in a run of its own, and consolidate it."""
    for number, text in enumerate(texts):
        run, at = f"{session}-{number}", SAID_AT + timedelta(minutes=number)
        memory.end_run(turns(text, "Will do."), session_id=session, run_id=run, observed_at=at)
    memory.consolidate()


def first(memory: MemTier, prompt: str, *, days: float = 3, **more: Any) -> list[str]:
    """Return what a prompt is reminded of."""
    at = SAID_AT + timedelta(days=days)
    more = {"session_id": "new", "purpose": "inject", "at": at} | more
    injected = memory.recall(prompt, **more).injected
    return [hit.text for hit in injected if not {"reminds", "due"}.isdisjoint(hit.signals)]


def test_once_when_its_event_comes(home: Path) -> None:
    """It leads the block of the prompt that its event comes with, and of no later one."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH)
        assert first(memory, OTHER) == []
        recall = memory.recall(EVENT, session_id="n", purpose="inject", at=SAID_AT)
        assert recall.injected[0].text == WISH
        assert first(memory, EVENT) == []
        [todo] = memory.knowledge.person.todo()
        assert (todo.fact.text, todo.shown) == (WISH, True)


def test_a_search_reminds_of_nothing(home: Path) -> None:
    """Only what stands in a prompt counts as shown."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH)
        memory.recall(EVENT)
        memory.recall(EVENT, session_id="n", purpose="preview")
        assert first(memory, EVENT) == [WISH]


def test_an_offer_counts_once_the_host_has_it(home: Path) -> None:
    """A block that came too late reminded nobody."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH)
        memory.recall(EVENT, session_id="n", purpose="offer")
        offer = memory.recall(EVENT, session_id="n", purpose="offer")
        assert "reminds" in offer.injected[0].signals
        memory.acknowledge(offer.id)
        assert first(memory, EVENT) == []


def test_said_again_it_comes_again(home: Path) -> None:
    """Repetition opens it anew."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH)
        assert first(memory, EVENT) == [WISH]
        say(memory, WISH, session="t")
        assert first(memory, EVENT, session_id="third") == [WISH]


def test_its_own_echo_is_no_event(home: Path) -> None:
    """Neither in its own session, nor by the assistant's words, does it come back."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH)
        soon = SAID_AT + timedelta(minutes=5)
        assert first(memory, "And what about the gateway?", session_id="s", at=soon) == []
        assert first(memory, EVENT, session_id="s", days=9) == [WISH]
        assert [todo.fact.text for todo in memory.knowledge.person.todo()] == [WISH]


def test_its_day(home: Path) -> None:
    """What names a day alone comes by itself the day before, and for the asking before that."""
    wish = "I have to return the library books by 3 October."
    with MemTier.open(home, "p", "a") as memory:
        say(memory, wish)
        assert first(memory, OTHER, days=20) == []
        assert first(memory, "What is due this month?", days=29) == [wish]
        assert first(memory, "Sort these photos by date for the album.", days=31) == [wish]
        assert first(memory, "Which deadlines are coming up?", days=31) == [wish]
        assert first(memory, "Which deadlines are coming up?", days=60) == []


def test_the_next_session(home: Path) -> None:
    """What waits for a session comes with the first prompt of another one, be it a greeting."""
    wish = "Remind me at the start of our next session to rotate the deploy key."
    with MemTier.open(home, "p", "a") as memory:
        say(memory, wish)
        say(memory, "Which port has the proxy?", session="t")
        soon = {"session_id": "t", "days": 0.1}
        assert first(memory, "Refactor the scheduler loop.", **soon) == []
        assert first(memory, "hi, I'm back") == [wish]
        assert first(memory, "Refactor the scheduler loop.") == []


def test_done(home: Path) -> None:
    """The user's own words close it, and its line stands in no block from then on."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH, "When Petra calls, I have to tell her about the tent.")
        say(memory, "I rotated the certificate of the gateway, that's done.", session="t")
        [todo] = memory.knowledge.person.todo()
        assert "Petra" in todo.fact.text
        recall = memory.recall(EVENT, session_id="new", purpose="inject")
        assert not any(WISH in hit.text for hit in recall.injected)


def test_done_by_hand(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`memtier todo` lists, closes and dismisses; what is no intention is refused."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH, "I prefer tea to coffee.")
        person = memory.knowledge.person
        [todo] = person.todo()
        other = next(fact.id for fact in memory.facts() if "tea" in fact.text)
        with pytest.raises(NotFound, match="no intention"):
            person.close(other)
    options = ["--home", str(home), "--project", "p"]
    main([*options, "todo"], standalone_mode=False)
    assert "rotate the certificate" in capsys.readouterr().out
    main([*options, "--json", "todo", "--dismiss", todo.fact.id], standalone_mode=False)
    assert '"todo": []' in capsys.readouterr().out
    with MemTier.open(home, "p", "a") as memory:
        assert first(memory, EVENT) == []
        assert memory.knowledge.person.fact(todo.fact.id).reviews[0].why == "dismissed"


def test_it_is_its_person_s(home: Path) -> None:
    """Nobody else is reminded, by whichever agent."""
    with MemTier.open(home, "p", "a") as memory:
        memory.end_run(turns(WISH, "Yes."), session_id="s", run_id="r", sender="ann")
        memory.consolidate()
    with MemTier.open(home, "p", "b") as other:
        later = datetime.now(UTC) + timedelta(days=2)
        assert first(other, EVENT, sender="ben", at=later) == []
        assert first(other, EVENT, sender="ann", at=later) == [WISH]


def test_the_same_after_a_rebuild(home: Path) -> None:
    """A rebuilt index knows what was shown."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, WISH)
        assert first(memory, EVENT) == [WISH]
        memory.reindex()
        assert first(memory, EVENT) == []


@pytest.mark.parametrize("key", ["facts.intentions", "facts.corrections"])
def test_switched_off(home: Path, key: str) -> None:
    """A setting keeps and shows none."""
    with MemTier.open(home, "p", "a", settings={key: False}) as memory:
        say(memory, WISH, "No, never use yarn here. Use pnpm.")
        relations = {fact.relation for fact in memory.facts()}
        assert ("intended" in relations) == (key != "facts.intentions")
        assert ("corrected" in relations) == (key != "facts.corrections")


@each_case(
    "text",
    [
        "When Nadia comes up again, ask me whether she got the keys.",
        "The application has to be in by Friday.",
        "Erinnere mich morgen an den Zahnarzt.",
        "Dès que les tests passent, supprime l'ancien dossier.",
        "下次见到王医生，提醒我问化验结果。",
    ],
)
def test_what_is_an_intention(text: str) -> None:
    """An event or a day to come, and what is to be done then."""
    assert intends(text)


@each_case(
    "text",
    [
        "When does the next train leave?",
        "When I was in Rome, I lost my phone.",
        "Remind me what a monad is.",
        "The meeting is on 12 October.",
        "Thanks, that fixed it.",
    ],
)
def test_what_is_none(text: str) -> None:
    """Questions, the past, what is only planned, and talk are none."""
    assert not intends(text)


def test_what_closes() -> None:
    """What is told to be done closes; a request does not."""
    assert closes("I've paid the deposit.")
    assert not closes("Write a mail to the landlord about the heating.")


def test_what_it_waits_for() -> None:
    """A day, or the next session, whatever that is about."""
    day = SAID_AT.date()
    assert read_due("Bis zum 5. Oktober muss die Steuererklärung raus.", day) is not None
    assert read_due("Once the new laptop is here, I have to move the SSH keys.", day) is None
    assert waits_for_session("Next time we talk, ask me how the exam went.")
    assert not waits_for_session("Next time we talk about the budget, bring up the invoice.")


@each_case(
    "text",
    [
        "Welche Fristen habe ich im Oktober?",
        "anything I still owe somebody this week",
        "Qu'est-ce que je dois encore faire avant vendredi ?",
        "我这周还有什么要做的？",
    ],
)
def test_what_asks_what_is_due(text: str) -> None:
    """A question about all that is to be done, in whichever words."""
    assert asks_what_is_due(text)


@each_case(
    "text",
    [
        "Why does the login page flicker?",
        "Add a due date column to the invoices.",
        "When is the rent due?",
        "How do I show pending tasks in Jira?",
    ],
)
def test_what_does_not(text: str) -> None:
    """A question about one thing that is due, or work on such things, does not ask it."""
    assert not asks_what_is_due(text)


def test_a_short_message_stays_together(home: Path) -> None:
    """What "it" refers to is in the sentence before, so a short message is kept as it is."""
    message = "The trial of that planner ends soon. Remind me to cancel it by 20 September."
    with MemTier.open(home, "p", "a") as memory:
        say(memory, message)
        [todo] = memory.knowledge.person.todo()
        assert todo.fact.text == message
        assert todo.to_json()["due"] == "2026-09-20"


def test_a_wish_to_be_asked_is_no_question(home: Path) -> None:
    """Words that only report a question are kept where they are a wish."""
    with MemTier.open(home, "p", "a") as memory:
        say(memory, "Next time we talk, ask me how the inspection went.")
        assert len(memory.knowledge.person.todo()) == 1


def test_todo_says_that_nothing_is_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where intentions are off, an empty list is no news: the setting and its file are named."""
    with MemTier.open(home, "q", "a") as memory:
        say(memory, "I prefer tea to coffee.")
    write_config(home, {"facts": {"intentions": False}})
    main(["--home", str(home), "--project", "q", "todo"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "`facts.intentions: true` in " in shown and str(home / "config.yaml") in shown
    assert "Nothing to do" not in shown
    write_config(home, {"facts": {"intentions": True}})
    main(["--home", str(home), "--project", "q", "todo"], standalone_mode=False)
    assert capsys.readouterr().out == "Nothing to do.\n"


def test_what_waits_comes_beside_what_is_due(home: Path) -> None:
    """A question about what is due hides nothing that waits for the session."""
    wish = "Next time we talk, ask me how the inspection went."
    with MemTier.open(home, "p", "a") as memory:
        say(memory, wish)
        assert first(memory, "What is due this week?") == [wish]
