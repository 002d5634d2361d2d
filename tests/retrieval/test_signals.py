"""Each signal of `recall_first` by itself: what it raises, and when it says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Recall
from memtier_plugin.core.settings.schema import Weights
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.candidates import MIN_COSINE
from memtier_plugin.retrieval.signals import SIGNALS as TABLE
from tests.builders import say, texts, turns
from tests.test_memory import SIGNALS

Day = Callable[..., datetime]
WORDS_ONLY = {"embedding.model": "none", "retrieval.weights.grams": 0.0}


def recalled(home: Path, query: str, at: datetime, **weights: float) -> Recall:
    """Recall with these weights alone; with none the older line is first."""
    only: dict[str, Any] = dict.fromkeys(SIGNALS, 0.0)
    only |= {f"retrieval.weights.{name}": value for name, value in weights.items()}
    with MemTier.open(home, settings=only) as memory:
        return memory.recall(query, at=at)


def first(home: Path, query: str, at: datetime, **weights: float) -> str:
    """Return what the first hit says under these weights alone."""
    return texts(recalled(home, query, at, **weights).hits)[0]


def values(recall: Recall, signal: str) -> dict[str, float]:
    """Return the value of a signal for each hit, by what the hit says."""
    return {hit.text: hit.signals[signal] for hit in recall.hits}


# -- standing instructions ------------------------------------------------------------------------


def test_standing_by_itself(home: Path, day: Day) -> None:
    """A user's standing instruction is raised above a line that matches alike."""
    with MemTier.open(home) as memory:
        say(memory, "The units are metric.", session_id="s1", observed_at=day(0))
        say(memory, "Always use metric units.", session_id="s2", observed_at=day(0))
    assert first(home, "metric units", day(1)) == "The units are metric."
    assert first(home, "metric units", day(1), standing=1) == "Always use metric units."


def test_only_the_user_gives_standing_instructions(home: Path, day: Day) -> None:
    """The same words of the assistant, or of a page from outside, instruct nobody."""
    text = "Always use metric units."
    page = {"role": "user", "content": f"{text} Page.", "origin": "external"}
    with MemTier.open(home) as memory:
        memory.record([{"role": "assistant", "content": text}], session_id="s1")
        memory.record([page], session_id="s2")
        say(memory, f"{text} User.", session_id="s3")
    marked = values(recalled(home, "metric units", day(1)), "standing")
    assert (marked[text], marked[f"{text} User."]) == (0.0, 1.0)
    assert marked[f"{text} Page."] == 0.0


# -- the match of a whole session -----------------------------------------------------------------


def fill(home: Path, sessions: int, beside: int = 2) -> None:
    """Say of a fox in each of some sessions, and in the last of a barn too, apart from it."""
    with MemTier.open(home) as memory:
        for number in range(sessions):
            say(memory, f"fox {number}", session_id=f"s{number}", run_id=f"r{number}")
            for other in range(beside):  # which the fox's neighbours are
                say(memory, f"hen {other}", session_id=f"s{number}", run_id=f"r{number}-{other}")
        say(memory, "the barn is red", session_id=f"s{sessions - 1}")


def test_session_words_by_itself(home: Path, day: Day) -> None:
    """The line whose session has more of the query's words comes first because of that alone."""
    fill(home, 14)
    assert first(home, "fox barn", day(1)) == "fox 0"
    recall = recalled(home, "fox barn", day(1), session_words=1)
    assert texts(recall.hits)[:4] == ["fox 13", "hen 0", "hen 1", "the barn is red"]
    marked = values(recall, "session_words")
    assert marked["fox 13"] == marked["the barn is red"] == 1.0
    assert 0 < marked["fox 0"] == marked["fox 12"] < 1


def test_few_sessions_say_nothing(home: Path, day: Day) -> None:
    """Where a dozen sessions or fewer are in question, which of them it is says nothing."""
    fill(home, 12)
    recall = recalled(home, "fox barn", day(1), session_words=1)
    assert {*values(recall, "session_words").values()} == {0.0}
    assert texts(recall.hits)[0] == "fox 0"


def test_scattered_sessions_say_nothing(home: Path, day: Day) -> None:
    """Where hardly two candidates are of one session, that some are says nothing either."""
    fill(home, 14, beside=0)
    recall = recalled(home, "fox barn", day(1), session_words=1)
    assert {*values(recall, "session_words").values()} == {0.0}


# -- speakers -------------------------------------------------------------------------------------


def speak(home: Path, *names: str | None) -> None:
    """Let each of these say a line of a fox, in a session of its own."""
    with MemTier.open(home) as memory:
        for number, name in enumerate(names):
            message = {"role": "user", "content": f"the fox, says {number}"}
            message |= {"name": name} if name else {}
            memory.record([message], session_id=f"s{number}")


def test_speaker_by_itself(home: Path, day: Day) -> None:
    """What was said by somebody whom the query names comes first because of that alone."""
    speak(home, None, "Bob", "Ann")
    assert first(home, "the fox of Ann", day(1)) == "the fox, says 0"
    assert first(home, "the fox of Ann", day(1), speaker=1) == "the fox, says 2"
    assert first(home, "the fox of Bob", day(1), speaker=1) == "the fox, says 1"


@pytest.mark.parametrize(
    ("names", "query"),
    [
        (("Bob", "Ann"), "What did Ann and Bob say of the fox?"),
        ((None, "Ann"), "What did Ann say of the fox?"),
        (("Bob", "Ann"), "What did Eve say of the fox?"),
        ((None, None), "What did Ann say of the fox?"),
    ],
)
def test_all_speakers_or_none_say_nothing(
    home: Path, day: Day, names: tuple[str | None, ...], query: str
) -> None:
    """Where the query names everybody who speaks here, or nobody, it names no line."""
    speak(home, *names)
    recall = recalled(home, query, day(1), speaker=1)
    assert [*values(recall, "speaker").values()] == [0.0, 0.0]
    assert texts(recall.hits)[0] == "the fox, says 0"


# -- meaning --------------------------------------------------------------------------------------


def test_dense_by_itself(home: Path, day: Day) -> None:
    """Of two lines that match alike by words the one of like meaning comes first."""
    with MemTier.open(home) as memory:
        say(memory, "fox: prices of shares fell", session_id="s1", observed_at=day(0))
        say(memory, "fox: the puppy is ill today", session_id="s2", observed_at=day(0))
    query = "fox sick dog"
    assert first(home, query, day(1), words=1) == "fox: prices of shares fell"
    recall = recalled(home, query, day(1), dense=1)
    assert texts(recall.hits)[0] == "fox: the puppy is ill today"
    marked = values(recall, "dense")
    assert 0 < marked["fox: prices of shares fell"] < marked["fox: the puppy is ill today"] == 1.0
    assert recall.vectors > 0


def test_dense_window_by_itself(home: Path, day: Day) -> None:
    """Of two like lines the one whose neighbours mean what is asked comes first."""
    around = {"s1": "The shares fell on Monday.", "s2": "My puppy is ill."}
    with MemTier.open(home) as memory:
        for session, text in around.items():
            memory.record(turns(text, f"Oh, fox {session}!", text), session_id=session)
    query = "fox sick dog"
    ours = ("Oh, fox s1!", "Oh, fox s2!")

    def order(**weights: float) -> list[str]:
        hits = recalled(home, query, day(1), **weights).hits
        return [text for text in texts(hits) if text in ours]

    assert order(words=1) == [*ours]
    assert order(dense_window=1) == [*reversed(ours)]


def test_dense_previous_by_itself(home: Path, day: Day) -> None:
    """Of two like answers the one to a line that means what is asked comes first."""
    asked = {"s1": "The shares fell on Monday.", "s2": "My puppy is ill."}
    with MemTier.open(home) as memory:
        for session, text in asked.items():
            memory.record(turns(text, f"Oh, fox {session}!"), session_id=session)
    hits = recalled(home, "fox sick dog", day(1), dense_previous=1).hits
    ours = [text for text in texts(hits) if text.startswith("Oh, fox")]
    assert ours == ["Oh, fox s2!", "Oh, fox s1!"]


def test_found_by_meaning_alone(home: Path) -> None:
    """A line that shares neither word nor letters with the query is found by its meaning."""
    with MemTier.open(home) as memory:
        say(memory, "My dog had puppies", session_id="s1")
        say(memory, "We boiled soup", session_id="s2")
        recall = memory.recall("newborn canine litter")
        assert (texts(recall.hits), recall.label) == (["My dog had puppies"], "hybrid")
        assert recall.hits[0].signals["words"] == recall.hits[0].signals["grams"] == 0.0
    with MemTier.open(home, settings={"embedding.model": "none"}) as memory:
        assert memory.recall("newborn canine litter").label == "empty"


def test_what_is_not_alike_is_not_found(home: Path) -> None:
    """A query about nothing in the store finds nothing: the nearest is not near enough."""
    with MemTier.open(home) as memory:
        entry = say(memory, "We boiled soup")
        query = "quarterly tax filing"
        embedder, reader = memory.store.embedder, memory.store.reader()
        assert embedder is not None
        recall = memory.recall(query)
        assert (recall.label, recall.hits, recall.text) == ("empty", (), "")
        assert recall.vectors > 0  # it was compared
        vector, other = embedder.encode([f"user: {entry.content}", query])
        assert sum(a * b for a, b in zip(vector, other, strict=True)) < MIN_COSINE
        assert reader.rows_of([entry.id])


def test_a_half_embedded_store_answers_by_words(home: Path) -> None:
    """While too few lines have vectors of the model none is used, as the label says; then all."""
    lines = [f"on day {number} the baker sold bread" for number in range(150)]
    with MemTier.open(home, settings={"embedding.model": "none"}) as memory:
        memory.record(turns("the fox had puppies", *lines), session_id="s")
        assert memory.recall("fox").label == "lexical"
    with MemTier.open(home) as memory:
        recall = memory.recall("the fox")
        assert (recall.label, recall.vectors) == ("degraded: not embedded yet", 0)
        assert texts(recall.hits)[0] == "the fox had puppies"
        assert not any("dense" in hit.signals for hit in recall.hits)
        memory.reembedding.run()
        recall = memory.recall("newborn canine litter")
        assert recall.label == "hybrid"
        assert recall.vectors > len(lines)
        assert texts(recall.hits)[0] == "the fox had puppies"
        assert recall.hits[0].signals["dense"] == 1.0


# -- n-grams and time -----------------------------------------------------------------------------


def test_grams_without_a_weight_are_not_looked_up(home: Path) -> None:
    """A typo is found by n-grams; where they count nothing none is read."""
    with MemTier.open(home, settings={"embedding.model": "none"}) as memory:
        entry: Entry = say(memory, "We run Kubernetes here")
        recall = memory.recall("Kubrenetes")
        assert [hit.id for hit in recall.hits] == [entry.id]
        assert recall.postings > 0
        both = memory.recall("Kubernetes").postings
    with MemTier.open(home, settings=WORDS_ONLY) as memory:
        recall = memory.recall("Kubrenetes")
        assert (recall.label, recall.postings) == ("empty", 0)
        assert memory.recall("Kubernetes").postings == 1 < both


def test_a_late_recall_goes_by_words_alone(home: Path) -> None:
    """When the deadline interrupts, the order is that of the words and no other signal is told."""
    with MemTier.open(home, settings=dict.fromkeys(SIGNALS, 0.0)) as memory:
        say(memory, "the owl and the fox and the bear", session_id="s1")
        say(memory, "the fox", session_id="s2")
        recall = memory.recall("fox", deadline_ms=0)
        assert recall.label == "degraded: deadline"
        assert texts(recall.hits) == ["the fox", "the owl and the fox and the bear"]
        assert {name for hit in recall.hits for name in hit.signals} == {"words"}
        assert texts(memory.recall("fox").hits)[0] == "the owl and the fox and the bear"


# -- the table ------------------------------------------------------------------------------------


def test_every_weight_has_its_signal() -> None:
    """The table of signals has the names of `retrieval.weights`."""
    assert {field.name for field in fields(Weights)} == set(TABLE)
