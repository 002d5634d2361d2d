"""The gates: what is worth keeping of a session, and what is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import FactDraft, Source
from memtier_plugin.facts.extraction.rules import extract_facts
from memtier_plugin.facts.filters import apply_filters, is_code_or_dump, is_question, is_small_talk
from memtier_plugin.retrieval.duplicates import DENIES
from tests.cases import each_case
from tests.facts.claims import conversation


def draft(text: str, value: str = "", source: str = "e1", **more: object) -> FactDraft:
    fields: dict[str, object] = {"subject": "Ann", "relation": "likes", "extractor": "chat", **more}
    return FactDraft(
        text=text,
        value=value or text.rstrip(".").rpartition(" ")[2],
        sources=(Source(agent="a", session="s", entry=source),),
        **fields,
    )  # type: ignore[arg-type]


KEPT = [
    "Ann lives in Oslo.",
    "Ann is allergic to peanuts.",
    "Ann never eats after 8 pm.",
    "The user asks: never push to main without their review.",
    "Ann's dog is named Rex.",
    "The user uses `make test` to run the tests.",
    "The staging server runs on port 8080.",
    "The user asked to remember: the key is under the mat.",
    "Ann's favourite book is Great Gatsby.",
    "The user prefers pip install over conda install.",
    "Anna wohnt in Köln.",
    "Ann对花生过敏。",
    "Ann needs a wheelchair.",
    "Ann uses PostgreSQL 15.3 with pgvector 0.5.",
    "The user wants replies in French.",
    "Ann requests a summary every Friday.",
]
TURNED_AWAY = [
    ("Ann says hi.", "hi", "small talk"),
    ("Thanks!", "thanks", "small talk"),
    ("Hello Bob!", "hello", "small talk"),
    ("Ann thanked Bob for the help.", "help", "small talk"),
    ("Danke!", "danke", "small talk"),
    ("你好", "你好", "small talk"),
    ("Ann agreed: sounds good.", "sounds good", "small talk"),
    ("Ann asked how to install Docker.", "Docker", "question"),
    ("Ann wants to know whether it rains.", "rain", "question"),
    ("The user is looking for recommendations.", "recommendations", "question"),
    ("Does Ann live in Oslo?", "Oslo", "question"),
    ("def f(x): return x", "f", "code or dump"),
    ("const a = [1, 2];", "a", "code or dump"),
    ("$ git push --force", "git", "code or dump"),
    ("sudo rm -rf /tmp/x", "rm", "code or dump"),
    ("SELECT id FROM users WHERE a = 1", "id", "code or dump"),
    ('Traceback (most recent call last): File "a.py", line 3', "a.py", "code or dump"),
    ("java.lang.NullPointerException: null\n  at com.x.Y.run(Y.java:12)", "null", "code or dump"),
    ("aGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8=", "x1", "code or dump"),
    ("deadbeefdeadbeefdeadbeefdeadbeef", "x1", "code or dump"),
    ('{"a": 1, "b": [1, 2], "c": {"d": 2}}', "a", "code or dump"),
    ("01HXYZABCDEFGHJKMNPQRSTVWX", "01HXYZ", "only an id"),
    ("482", "482", "only an id"),
    ("Ann likes it.", "it", "no information"),
    ("Ann likes these things.", "these things", "no information"),
    ("Ann likes.", "!!", "no information"),
    ("Ann likes " + "very " * 200 + "much tea.", "tea", "too long"),
]


@each_case("text", KEPT)
def test_facts_pass(text: str) -> None:
    """A plain statement passes, also one that names a command or an order."""
    assert apply_filters([draft(text)], cap=5) == ([draft(text)], {})


@each_case(("text", "value", "reason"), TURNED_AWAY)
def test_what_says_nothing_is_turned_away(text: str, value: str, reason: str) -> None:
    """Greetings, questions, dumps, ids and pointing words are no facts, each counted by reason."""
    assert apply_filters([draft(text, value)], cap=5) == ([], {reason: 1})


def test_helpers() -> None:
    """What a text is can be asked for by itself."""
    assert is_small_talk("Thank you so much!") and not is_small_talk("Great Gatsby")
    assert is_question("Ann asked about visas.") and not is_question("Ann asks for tea every day.")
    assert is_code_or_dump("$ ls -la") and not is_code_or_dump(
        "Run `ls -la /srv` first.", procedure=True
    )


def test_exact_duplicates_are_one() -> None:
    """The same again adds its source, whatever its case and spaces; the surer text stays."""
    first = draft("Ann likes tea.", source="e1", confidence=0.5)
    two = draft("Ann likes  Tea.", "Tea", source="e2", confidence=0.9)
    drafts, rejected = apply_filters([first, two], cap=5)
    assert [source.entry for source in drafts[0].sources] == ["e2", "e1"]
    assert (drafts[0].confidence, rejected) == (0.9, {"duplicate": 1})


NEARLY = "Ann likes to take a long walk with the old dog along the quiet river at dawn every day."


def test_near_duplicates_are_one() -> None:
    """Two texts that differ in one small word of many are one fact."""
    other = NEARLY.replace("every day", "each day")
    drafts, rejected = apply_filters(
        [draft(NEARLY, "walk"), draft(other, "walk", source="e2")], cap=5
    )
    assert len(drafts) == 1 and len(drafts[0].sources) == 2 and rejected == {"duplicate": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [("likes to", "never likes to"), ("a long", "1 long"), ("the quiet river", "the quiet Rhine")],
)
def test_what_differs_in_substance_is_two(old: str, new: str) -> None:
    """A number, a name or a denial that differs makes another fact, however alike the rest."""
    twins = [draft(NEARLY, "walk"), draft(NEARLY.replace(old, new), "walk to dawn")]
    drafts, rejected = apply_filters(twins, cap=5)
    assert (len(drafts), rejected) == (2, {})


def test_value_differs() -> None:
    """Near-duplicates with different values are two: it is the value that is looked up."""
    other = NEARLY.replace("river", "canal")
    assert len(apply_filters([draft(NEARLY, "river"), draft(other, "canal")], cap=5)[0]) == 2


def test_going_back_is_a_change() -> None:
    """A, B and A again in a relation of one value are three statements, in one of many two."""
    back = [draft("Ann lives in Oslo."), draft("Ann lives in Bergen."), draft("Ann lives in Oslo.")]
    homes = [replace(fact, relation="lives_in") for fact in back]
    assert len(apply_filters(homes, cap=5)[0]) == 3
    assert len(apply_filters(back, cap=5)[0]) == 2


def test_a_proposal_lends_nothing() -> None:
    """An active fact does not rest on the sources of a proposal that says the same."""
    active = draft("Ann likes tea.", source="e1")
    waiting = replace(
        active,
        sources=(Source(agent="a", session="s", entry="e2"),),
        status="proposed",
        origin="tool",
    )
    assert apply_filters([waiting, active], cap=5)[0] == [active]


def test_privacy_keeps_apart() -> None:
    """What is private to one sender is no duplicate of what is not."""
    mine = draft("Ann likes tea.")
    assert len(apply_filters([mine, replace(mine, private_to=("a", "x"))], cap=5)[0]) == 2


def test_the_weakest_origin_stays() -> None:
    """Merged facts are of the weakest origin among their sources."""
    stated = draft("Ann likes tea.")
    concluded = replace(
        stated, origin="assistant", sources=(Source(agent="a", session="s", entry="e2"),)
    )
    assert apply_filters([stated, concluded], cap=5)[0][0].origin == "assistant"


def test_cap() -> None:
    """Over the cap the least sure go first, but constraints last; the order stays."""
    many = [
        draft(f"Ann likes film number {n}.", f"film number {n}", confidence=n / 20)
        for n in range(12)
    ]
    spared = draft("Ann is allergic to nuts.", relation="allergic_to", confidence=0.1)
    drafts, rejected = apply_filters([spared, *many], cap=4)
    assert drafts == [spared, *many[-3:]] and rejected == {"cap": 9}
    assert apply_filters(many, cap=0) == ([], {"cap": 12})


def test_denials_take_no_facts_place() -> None:
    """What only says that something is not so becomes no fact, and counts for none."""
    denials = [draft(f"Ann never eats dish {n}.", f"dish {n}", relation=DENIES) for n in range(5)]
    facts = [draft(f"Ann likes film number {n}.", f"film number {n}") for n in range(4)]
    passed, rejected = apply_filters([*denials, *facts], cap=3)
    assert [each for each in passed if each.relation != DENIES] == facts[:3]
    assert rejected == {"cap": 1}


def test_a_denial_swallows_no_fact() -> None:
    """A sentence that takes facts back and becomes one itself is kept as both."""
    text = "Guests may not park behind the bakery."
    denial = draft(text, text, relation=DENIES)
    fact = draft(text, "may not park behind the bakery", relation="states")
    assert apply_filters([denial, fact], cap=5) == ([denial, fact], {})


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=12)), max_size=12), st.integers(0, 8)
)
def test_gates_only_take_away(pairs: list[tuple[str, str]], cap: int) -> None:
    """Whatever comes in, what comes out was in it, within the cap, all accounted for."""
    drafts = [draft(text, value or "x") for text, value in pairs]
    passed, rejected = apply_filters(drafts, cap=cap)
    assert len(passed) <= cap and len(passed) + sum(rejected.values()) == len(drafts)
    assert {draft.text for draft in passed} <= {draft.text for draft in drafts}


@given(st.integers(0, 40), st.integers(0, 10))
def test_a_larger_cap_keeps_more(seed: int, cap: int) -> None:
    """What is kept under a cap is kept under a larger one."""
    entries = conversation(seed).entries
    drafts = extract_facts(entries).drafts
    less, more = (apply_filters(drafts, cap=size)[0] for size in (cap, cap + 3))
    assert all(draft in more for draft in less)


def test_once_is_enough() -> None:
    """What has passed passes again, unchanged."""
    drafts, _ = apply_filters([draft(text) for text in KEPT], cap=50)
    assert apply_filters(drafts, cap=50) == (drafts, {})
