"""Lines that stand in the conversation already are not injected again, and that is counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memtier_plugin.core import plugins
from memtier_plugin.core.records import Fact, FactDraft, Source
from memtier_plugin.core.results import Depth, PromptEvent, Recall, RunContext, Shown
from memtier_plugin.hooks.hermes_payloads import HermesTranslator as Hermes
from memtier_plugin.hooks.openclaw_payloads import OpenClawTranslator as OpenClaw
from memtier_plugin.memory import MemTier
from tests.builders import say_each

Day = Callable[..., datetime]
BAG = "My bag is in the blue locker."


@pytest.fixture
def memory(home: Path, day: Day) -> MemTier:
    """Return a memory in which the bag was spoken of in two sessions."""
    opened = MemTier.open(home, "p", "openclaw.main", clock=lambda: day(9))
    say_each(opened, BAG, session_id="old", observed_at=day(0))
    say_each(opened, "The bag in the locker is mine.", session_id="now", observed_at=day(8))
    return opened


def inject(memory: MemTier, shown: Shown | None, session: str = "now") -> Recall:
    """Recall for a prompt of a session."""
    return memory.recall(
        "Where is my bag?", session_id=session, run_id="r", purpose="inject", shown=shown
    )


def sessions(recall: Recall) -> set[str]:
    """Return the sessions that the block has lines of."""
    return {source.session for hit in recall.injected for source in hit.sources}


def test_what_was_said_here_is_not_repeated(memory: MemTier, day: Day) -> None:
    """Lines of this session since the given moment are left out; others and older ones are not."""
    assert sessions(inject(memory, None)) == {"old", "now"}
    assert sessions(inject(memory, Shown(since=day(7)))) == {"old"}
    assert sessions(inject(memory, Shown(since=day(8, hours=1)))) == {"old", "now"}
    assert sessions(inject(memory, Shown(since=day(7)), session="other")) == {"old", "now"}


def test_a_message_told_twice_with_other_times(memory: MemTier, day: Day) -> None:
    """A host's clock of a message may differ by a little from turn to turn."""
    shown = Shown(since=day(8) + timedelta(milliseconds=900))
    assert sessions(inject(memory, shown)) == {"old"}


def test_a_fact_of_this_conversation(home: Path, day: Day) -> None:
    """A fact is left out when all that it rests on stands in the conversation, and not before."""
    with MemTier.open(home, "p", "openclaw.main", clock=lambda: day(9)) as memory:
        fact = memory.remember("The gate code is on the board.", session_id="now")

        def injected(session: str, shown: Shown | None) -> set[str]:
            recall = memory.recall(
                "Where is the gate code?", session_id=session, purpose="inject", shown=shown
            )
            return {hit.id for hit in recall.injected}

        assert fact.id in injected("now", None)
        assert fact.id not in injected("now", Shown(since=day(8)))
        assert fact.id in injected("other", Shown(since=day(8)))
        assert fact.id in injected("now", Shown(since=day(10)))


def test_what_was_injected_stays(home: Path, memory: MemTier, day: Day) -> None:
    """Where a host keeps injected lines they come once, until the host shortens the session."""
    shown = Shown(since=day(8, hours=1), injected=True)
    assert sessions(inject(memory, shown)) == {"old", "now"}
    assert inject(memory, shown).injected == ()
    assert inject(memory, Shown(since=day(8, hours=1))).injected
    assert inject(memory, Shown(since=day(9, hours=1), injected=True)).injected
    assert inject(memory, shown, session="another").injected
    with MemTier.open(home, "p", "openclaw.main", clock=lambda: day(9)) as later:
        assert inject(later, shown).injected == (), "another process knows it from the journal"


def test_no_copy_of_what_is_in_sight(home: Path, day: Day) -> None:
    """Of a line in sight nothing is injected that says the same: no other entry, and no fact."""
    question = "Which port does staging of Larch have?"
    with MemTier.open(home, "p", "openclaw.main", clock=lambda: day(9)) as memory:
        for number in range(2):
            say_each(
                memory,
                "Staging of Larch listens on port 8120.",
                "The printer of Larch is on the second floor.",
                session_id=f"old-{number}",
                observed_at=day(number),
            )
        shown = Shown(since=day(8), injected=True)

        def injected(purpose: Shown | None) -> list[str]:
            recall = memory.recall(question, session_id="now", purpose="inject", shown=purpose)
            return [hit.text for hit in recall.injected]

        first = injected(shown)
        assert first.count("Staging of Larch listens on port 8120.") == 1
        memory.remember("Staging of Larch listens on port 8120.", session_id="old-0")
        assert not {*injected(shown)} & {*first}
        assert injected(None)[0] == first[0]


def test_a_fact_of_an_injected_line_is_in_sight(home: Path, day: Day) -> None:
    """A fact made from a line after that line was injected repeats it; of a long one it may not."""
    short = "The booking site of Larch is called Harbor. It runs on a server of the studio."
    long = f"The kiln of Larch is a Rohde. {'It was bought at a fair in the north. ' * 12}"
    shown = Shown(since=day(8), injected=True)
    with MemTier.open(home, "p", "openclaw.main", clock=lambda: day(9)) as memory:
        entries = say_each(memory, short, long, session_id="old", observed_at=day(1))

        def facts_injected() -> set[str]:
            recalls = [
                memory.recall(question, session_id="now", purpose="inject", shown=shown)
                for question in ("What is Larch's booking site?", "Which kiln does Larch have?")
            ]
            hits = [hit for recall in recalls for hit in recall.injected]
            return {hit.text for hit in hits if isinstance(hit.item, Fact)}

        assert not facts_injected()
        texts = ("The booking site of Larch is called Harbor.", "The kiln of Larch is a Rohde.")
        for text, entry in zip(texts, entries, strict=True):
            source = Source(agent=entry.agent_id, session="old", entry=entry.id)
            named = {"subject": text[:20], "relation": "note", "value": text}
            memory.add_facts([FactDraft(text=text, sources=(source,), **named)])
        assert facts_injected() == {texts[1]}


def test_a_line_that_an_injected_fact_states_is_in_sight(home: Path, day: Day) -> None:
    """A line is in sight where a fact made of nearly all of it was injected, a longer one not."""
    long = f"The kiln of Larch is a Rohde. {'It was bought at a fair in the north. ' * 12}"
    lines = ["The booking site of Larch is called Harbor.", long]
    shown = Shown(since=day(8), injected=True)
    with MemTier.open(home, "p", "openclaw.main", clock=lambda: day(9)) as memory:
        entries = say_each(memory, *lines, session_id="old", observed_at=day(1))
        for text, entry in zip((lines[0], "The kiln of Larch is a Rohde."), entries, strict=True):
            source = Source(agent=entry.agent_id, session="old", entry=entry.id)
            named = {"subject": text[:20], "relation": "note", "value": text, "quote": text}
            memory.add_facts([FactDraft(text=text, sources=(source,), **named)])

        def inject(question: str, depth: Depth) -> set[str]:
            recall = memory.recall(
                question, session_id="now", purpose="inject", shown=shown, depth=depth
            )
            return {hit.id for hit in recall.injected}

        question = "What is Larch's booking site, and which kiln does Larch have?"
        assert len(inject(question, "facts")) == 2
        assert inject(question, "raw") == {entries[1].id}


def test_a_search_repeats_what_is_asked_for(memory: MemTier) -> None:
    """Who searches gets what is there, also what was injected before."""
    inject(memory, None)
    assert memory.recall("Where is my bag?", session_id="now").injected


def test_it_is_counted_and_explained(memory: MemTier, day: Day) -> None:
    """The journal, explain and status tell what was spared, and how much each turn got."""
    recall = inject(memory, Shown(since=day(7)))
    memory.catch_up()
    [event] = memory.events(kinds=["recall"])
    [repeat] = event.data["repeats"]
    assert event.data["tokens"] == recall.tokens > 0
    assert memory.explain(recall.id, repeat)["why"]["reason"] == "repeat"
    assert memory.status()["agents"]["openclaw.main"]["injected"] == {
        "turns": 1,
        "late": 0,
        "tokens_a_turn": float(recall.tokens),
        "lines": len(recall.injected),
        "repeats_avoided": 1,
        "blocks": {"short": 1},
    }


def test_openclaw_tells_its_history(home: Path, day: Day) -> None:
    """What OpenClaw's history begins with is what is shown; a summary of older turns is not."""
    stamp = int(day(8).timestamp() * 1000)
    history = [
        {"role": "compactionSummary", "summary": "...", "timestamp": 1},
        {"role": "assistant", "content": [], "timestamp": stamp + 5},
        {"role": "user", "content": "?", "timestamp": stamp},
    ]
    translator = OpenClaw(home)

    def event(messages: object) -> PromptEvent:
        call = translator.translate(
            "before_prompt_build",
            {"prompt": "Where?", "messages": messages},
            {"sessionKey": "k"},
            RunContext(agent_id=""),
        )
        assert call is not None and isinstance(call.event, PromptEvent)
        return call.event

    assert event(history) == PromptEvent(prompt="Where?", visible_since=day(8))
    assert event([]).visible_since is None


def test_hermes_has_all_since_it_shortened(home: Path, day: Day) -> None:
    """Hermes' session is whole until a compaction, which the next resident knows of too."""

    def event(session: str) -> PromptEvent:
        call = Hermes(home).translate(
            "prefetch", {"query": "Where?"}, {"session_id": session}, RunContext(agent_id="")
        )
        assert call is not None and isinstance(call.event, PromptEvent)
        return call.event

    assert event("s1").keeps_injected
    assert event("s1").visible_since == datetime(1, 1, 2, tzinfo=UTC)
    Hermes(home).translate(
        "on_pre_compress", {"messages": []}, {"session_id": "s1"}, RunContext(agent_id=""), day(3)
    )
    assert event("s1").visible_since == day(3)
    assert event("s2").visible_since == datetime(1, 1, 2, tzinfo=UTC)


def test_through_the_hook(home: Path) -> None:
    """The hook leaves out what its event says is visible."""
    context = RunContext(agent_id="openclaw.main", session_id="now", run_id="r", project="p")
    with MemTier.open(home, "p", "openclaw.main") as memory:
        memory.record([{"role": "user", "content": BAG}], session_id="now")
    hook = plugins.manager().hook.before_prompt_build
    prompt = "Where is my bag?"
    assert hook(event=PromptEvent(prompt=prompt), context=context) is not None
    since = datetime.now(UTC) - timedelta(hours=1)
    assert hook(event=PromptEvent(prompt=prompt, visible_since=since), context=context) is None
