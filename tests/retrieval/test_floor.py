"""The floor: what is worth showing before a prompt, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from memtier_plugin.core.records import CallHistory
from memtier_plugin.core.results import Evidence, FloorLevel, Hit, Shown
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.floor import (
    LONG,
    NEAREST_NOTE,
    QueryEvidence,
    apply_floor,
    block_bar,
)
from memtier_plugin.retrieval.prompt_kind import PromptKinds
from tests.builders import make_entry

LEVELS: tuple[FloorLevel, ...] = ("off", "careful", "balanced", "quiet")
LINES = [
    "The staging server listens on port 9443.",
    "Our release branch is called kestrel.",
    "My sister Ana is allergic to peanuts.",
    "The dentist appointment is on 10 March at half past nine.",
    "We rent the flat for 1,340 a month.",
    "The support rota is on Teams.",
]
OWN = [
    "I play the bassoon in the town band.",
    "I can't get to the office before ten, there is no bus.",
    "We get our coffee from the roastery next door.",
    "I keep the garage key under the blue pot.",
    "My bike gets its service in May.",
]
shares = st.floats(0, 1)
evidence = st.builds(
    Evidence,
    coverage=shares,
    own_coverage=shares,
    matched=st.floats(0, 40),
    cosine=st.floats(-1, 1),
    time=shares,
    speaker=st.booleans(),
)
queries = st.builds(
    QueryEvidence,
    items=st.integers(0, 1_000_000),
    known=shares,
    model=st.sampled_from([None, "memtier-minilm-192-afae43c9", "minilm-384-b734ac95"]),
)


def hits_of(lines: list[Evidence]) -> list[Hit]:
    """Return hits with this evidence."""
    entries = [make_entry(f"line {n}", id=f"e{n}") for n in range(len(lines))]
    return [
        Hit(item=entry, score=1.0, signals={}, sources=(entry.source,), evidence=line)
        for entry, line in zip(entries, lines, strict=True)
    ]


@pytest.mark.parametrize(
    ("statement", "about"),
    [
        ("My sister had dinner with us today.", "sister"),
        ("We paid the rent for the flat today.", "rent"),
        ("The dentist was kind to me this morning.", "dentist"),
    ],
)
def test_what_is_told_gets_what_it_is_about(home: Path, statement: str, about: str) -> None:
    """A statement in the flow of a conversation brings no other lines of the day that it names."""
    with MemTier.open(home) as memory:
        memory.record([{"role": "user", "content": line} for line in LINES], session_id="s")
        shown = memory.recall(statement, purpose="inject", session_id="now").injected
    assert all(about in hit.text for hit in shown) and len(shown) <= 1


@pytest.mark.parametrize(
    ("asked", "answered", "question"),
    [
        ("Which colour should the kitchen get?", "Ochre, like in Lisbon.", "What about Lisbon?"),
        ("Who waters the tomatoes in August?", "It is Bruno's nephew Tim.", "Who is Tim?"),
        ("Where is the violin of grandma?", "With Mr Pauwels.", "What did Mr Pauwels get?"),
        ("How was your talk at the aquarium?", "They took Ines from Delft.", "Who is from Delft?"),
    ],
)
def test_what_says_little_brings_what_it_answers(
    home: Path, asked: str, answered: str, question: str
) -> None:
    """A line that only makes sense after its neighbour stands in the block together with it."""
    with MemTier.open(home) as memory:
        for number, line in enumerate(LINES):
            memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
        pair = [{"role": "assistant", "content": asked}, {"role": "user", "content": answered}]
        memory.record(pair, session_id="earlier")
        shown = memory.recall(question, purpose="inject", session_id="now").injected
    assert {asked, answered} <= {hit.text for hit in shown}


@given(queries, st.lists(evidence, max_size=24))
def test_a_higher_level_shows_no_more(query: QueryEvidence, lines: list[Evidence]) -> None:
    """Each level shows a part of what the level below it shows, in the same order."""
    hits = hits_of(lines)
    shown = [[hit.id for hit in apply_floor(level, query, hits).hits] for level in LEVELS]
    assert shown[0] == [hit.id for hit in hits]
    for more, fewer in pairwise(shown):
        assert [item for item in more if item in set(fewer)] == fewer


@given(queries, st.lists(evidence, max_size=24))
def test_what_worked_for_another_request_is_judged_like_any_line(
    query: QueryEvidence, lines: list[Evidence]
) -> None:
    """In an old store most lines served a call that worked: that alone answers no prompt."""
    hits = hits_of(lines)
    worked = [
        replace(hit, calls=CallHistory(worked_at=datetime(2026, 3, 2, tzinfo=UTC))) for hit in hits
    ]
    assert all(hit.calls.works for hit in worked)
    plain, proven = (apply_floor("balanced", query, each) for each in (hits, worked))
    assert [hit.id for hit in proven.hits] == [hit.id for hit in plain.hits]
    assert proven.silent == plain.silent


@given(queries, st.lists(evidence, min_size=1, max_size=24))
def test_all_is_accounted_for(query: QueryEvidence, lines: list[Evidence]) -> None:
    """A hit is shown or has a reason; a silent block has one in words, and a shown one its best."""
    hits = hits_of(lines)
    judged = apply_floor("balanced", query, hits)
    assert {hit.id for hit in judged.hits} | set(judged.left_out) == {hit.id for hit in hits}
    assert bool(judged.silent) != bool(judged.hits)
    assert judged.probability is not None and 0 <= judged.probability <= 1


def test_a_line_is_judged_beside_the_best() -> None:
    """A line that has some of a query's words is shown alone, and not beside one that has all."""
    query = QueryEvidence(items=200, known=1.0)
    answer = Evidence(coverage=1.0, own_coverage=1.0, matched=9.0, cosine=0.7)
    others = [Evidence(coverage=0.4, own_coverage=0.4, matched=4.0, cosine=0.4)] * 9
    [first, *_] = hits = hits_of([answer, *others])
    alone = apply_floor("balanced", query, hits[1:]).hits
    assert [hit.id for hit in alone[:3]] == ["e1", "e2", "e3"]
    assert hits[-1].id in apply_floor("balanced", query, hits).left_out
    in_sight = [replace(first, score=2.0)]
    judged = apply_floor("quiet", query, hits[9:], in_sight=in_sight)
    assert not judged.hits and "in sight" in judged.silent


def test_hits_without_evidence_are_shown() -> None:
    """What could not be judged (a plugin's hit) is never left out."""
    [weak] = hits_of([Evidence()])
    entry = make_entry("not read by the index yet", id="new")
    unjudged = Hit(item=entry, score=0.1, signals={}, sources=(entry.source,))
    judged = apply_floor("quiet", QueryEvidence(items=1000), [weak, unjudged])
    assert judged.hits == (unjudged,) and judged.silent == ""


@pytest.fixture
def memory(tmp_path: Path) -> MemTier:
    """Return a memory of a few statements."""
    memory = MemTier.open(tmp_path / "home", "floor")
    for number, line in enumerate(LINES):
        memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
    return memory


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which port does staging listen on?", "9443"),
        ("What is our release branch called?", "kestrel"),
        ("What is Ana allergic to?", "peanuts"),
        ("When is my dentist appointment?", "10 March"),
    ],
)
def test_questions_are_answered(memory: MemTier, question: str, answer: str) -> None:
    """A question that a line answers gets that line."""
    recall = memory.recall(question, purpose="inject", session_id="new")
    assert answer in recall.injected[0].text
    assert recall.silent == "" and recall.label in ("hybrid", "lexical")


@pytest.mark.parametrize(
    "prompt",
    [
        "How do I bake sourdough bread?",
        "Write a function that reverses a string.",
        "Who painted the Mona Lisa?",
        "Explain photosynthesis to a child.",
    ],
)
def test_prompts_that_need_nothing_get_nothing(memory: MemTier, prompt: str) -> None:
    """A prompt that no line fits gets an empty block, labelled silent, with the reason."""
    recall = memory.recall(prompt, purpose="inject", session_id="new")
    assert recall.injected == () and recall.text == "" and recall.tokens == 0
    if recall.hits:
        assert recall.label == "silent" and "fits" in recall.silent


@pytest.mark.parametrize(
    "task",
    [
        "Write a haiku about the first snow.",
        "Then turn these notes into bullet points: buy paint, sand the door, two coats.",
    ],
)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which port does staging listen on?", "9443"),
        ("What is Ana allergic to?", "peanuts"),
        ("When is my dentist appointment?", "10 March"),
    ],
)
def test_a_question_beside_a_task(
    memory: MemTier, question: str, answer: str, task: str, first: bool
) -> None:
    """What else a prompt wants does not hide what it asks."""
    prompt = f"{question} {task}" if first else f"{task} {question}"
    recall = memory.recall(prompt, purpose="inject", session_id="new")
    assert any(answer in hit.text for hit in recall.injected)


@pytest.mark.parametrize(
    ("lines", "question"),
    [
        (["I repair violins in Cremona.", "My boat is called Gannet."], "What's my trade?"),
        (["I can't digest milk."], "What must I avoid at breakfast?"),
        (["Ich spiele Bratsche.", "Der Zaun ist grün."], "Was ist mein Instrument?"),
        (["我养了两只兔子。"], "我有什么宠物？"),
    ],
)
def test_a_question_on_oneself_in_a_small_store(
    home: Path, lines: list[str], question: str
) -> None:
    """Where there is hardly anything to choose from, what the asker said of themselves is shown."""
    with MemTier.open(home) as memory:
        for number, line in enumerate(lines):
            memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
        shown = memory.recall(question, purpose="inject", session_id="new").injected
        assert lines[0] in [hit.text for hit in shown]


@pytest.mark.parametrize(
    "prompt",
    ["Add 9 and 10.", "We had dinner with a support act.", "The port was lovely.", "My flat tyre!"],
)
def test_talk_that_shares_a_word_gets_nothing(memory: MemTier, prompt: str) -> None:
    """An amount, or one word of what is told or ordered, brings up no line."""
    assert memory.recall(prompt, purpose="inject", session_id="new").injected == ()


@pytest.mark.parametrize(
    ("prompt", "shown"), [("What is Ana allergic to?", 1), ("We had dinner with a support act.", 0)]
)
def test_a_late_recall_keeps_the_standard(memory: MemTier, prompt: str, shown: int) -> None:
    """What is found by words alone before the deadline is judged like all else."""
    memory.recall("anything", purpose="search")  # so that the index is there
    recall = memory.recall(prompt, purpose="inject", session_id="new", deadline_ms=0)
    assert "deadline" in recall.label and len(recall.injected) == shown


@pytest.mark.parametrize(
    "prompt",
    ["Why do we get the hiccups?", "Will you get me a poem about rain?", "What are you up to?"],
)
def test_talk_in_the_first_person_gets_nothing(home: Path, prompt: str) -> None:
    """What speaks of its asker is about them only where a line of theirs is near it."""
    with MemTier.open(home) as memory:
        for number, line in enumerate([*LINES, *OWN]):
            memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
        recall = memory.recall(prompt, purpose="inject", session_id="new")
        assert recall.injected == () and (recall.probability or 0) < 0.18  # a bar of 0.23
        own = memory.recall("What instrument do I play?", purpose="inject", session_id="new")
        assert own.injected[0].text == OWN[0]


@pytest.mark.parametrize("shown", [Shown(since=datetime(2000, 1, 1, tzinfo=UTC)), None])
@pytest.mark.parametrize("prompt", ["more about the port", "same for the port"])
def test_what_leans_on_lines_in_sight_gets_no_others(
    memory: MemTier, prompt: str, shown: Shown | None
) -> None:
    """A prompt that points at the turn before is not about another session's line."""
    memory.record([{"role": "user", "content": "Which gate sells port?"}], session_id="now")
    recall = memory.recall(prompt, purpose="inject", session_id="now", shown=shown)
    assert bool(recall.injected) == (shown is None)


@pytest.mark.parametrize("question", ["Can you help me?", "How are you?", "Is that possible?"])
def test_a_question_that_asks_nothing(memory: MemTier, question: str) -> None:
    """A question of no topic beside a task adds nothing."""
    prompt = f"{question} Write a function that reverses a string."
    assert memory.recall(prompt, purpose="inject", session_id="new").injected == ()


def test_a_search_shows_the_nearest(memory: MemTier) -> None:
    """A search has the whole ranking, whatever the floor."""
    search = memory.recall("How do I bake sourdough bread?", purpose="search")
    assert search.label != "silent" and len(search.injected) == len(search.hits)
    assert all(hit.note == NEAREST_NOTE for hit in search.injected)
    answered = memory.recall("What is Ana allergic to?", purpose="search")
    assert answered.injected[0].note == ""


def test_status_counts_silent_short_and_full_blocks(memory: MemTier) -> None:
    """The status tells how many turns got nothing, something, and all that was allowed."""
    for prompt in ("Who painted the Mona Lisa?", "What is Ana allergic to?"):
        memory.recall(prompt, purpose="inject", session_id="new")
    memory.recall("What is Ana allergic to?", purpose="inject", session_id="new", k=1)
    blocks = memory.status()["agents"]["main"]["injected"]["blocks"]
    assert blocks == {"silent": 1, "short": 1, "full": 1}


def test_off_shows_everything(tmp_path: Path) -> None:
    """With the floor off, whatever was found is shown."""
    with MemTier.open(tmp_path / "home", "floor", settings={"retrieval.floor": "off"}) as memory:
        memory.record([{"role": "user", "content": LINES[0]}], session_id="s")
        recall = memory.recall("Is there a port in Genoa?", purpose="inject", session_id="new")
        assert len(recall.injected) == 1 and recall.probability is None


@pytest.mark.parametrize("length", [0, 1, 4])
def test_a_long_prompt_need_not_be_covered_whole(home: Path, length: int) -> None:
    """A line that has several of a prompt's rare words is shown, whatever else the prompt says."""
    talk = (
        "I have been thinking a lot this week about how slowly everything goes and whether patience"
        " pays off, and honestly the weather does not help either. "
    )
    with MemTier.open(home) as memory:
        for number, line in enumerate(LINES):
            memory.record([{"role": "user", "content": line}], session_id=f"s{number}")
        asked = "My sister Ana comes for dinner, she told me about peanuts once. " + talk * length
        assert [h.text for h in memory.recall(asked, purpose="inject").injected][:1] == LINES[2:3]
        assert not memory.recall(talk * max(1, length), purpose="inject").injected


@pytest.mark.parametrize("level", LEVELS[1:])
def test_the_kind_of_a_prompt_is_evidence(level: FloorLevel) -> None:
    """What anybody could ask for needs better lines than a question of one's own."""
    query, [line] = QueryEvidence(items=200, known=0.5), [Evidence(coverage=0.3, own_coverage=0.3)]
    own = apply_floor(level, query, hits_of([line])).probability
    for kind in ("task", "general", "follow_up", "log"):
        asked = replace(query, kinds=PromptKinds(**{kind: 1.0}))
        probability = apply_floor(level, asked, hits_of([line])).probability
        assert probability is not None and own is not None and probability < own


def test_an_embedder_that_the_floor_was_fitted_with_has_levels_of_its_own() -> None:
    """The shipped model and the encoder are judged by their cosines, any other by words."""
    by_words = block_bar("balanced", QueryEvidence())
    shipped, encoder, other = (
        block_bar("balanced", QueryEvidence(model=f"{title}-384-0123abcd"))
        for title in ("memtier-minilm", "minilm", "potion")
    )
    assert other == by_words
    assert len({shipped, encoder, by_words}) == 3


def test_a_long_prompt_has_a_level_of_its_own() -> None:
    """What tells at length and asks in passing is covered less by any line; only where fitted."""
    short, long = (PromptKinds(words=count) for count in (LONG, LONG + 1))
    for model, differs in ((None, False), ("memtier-minilm-192-0", False), ("minilm-384-0", True)):
        bars = [
            block_bar("balanced", QueryEvidence(model=model, kinds=kinds))
            for kinds in (short, long)
        ]
        assert bars[1] < bars[0] if differs else bars[1] == bars[0]


def test_cosines_of_the_encoder_count() -> None:
    """What is near in meaning, and shares no word with the prompt, is shown with the encoder."""
    line = Evidence(cosine=0.7)
    hits = hits_of([line])
    query = QueryEvidence(items=20, known=0.2)
    assert not apply_floor("balanced", query, hits).hits
    assert apply_floor("balanced", replace(query, model="minilm-384-0123abcd"), hits).hits
