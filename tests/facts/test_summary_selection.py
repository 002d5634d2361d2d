"""Summaries: which lines of a session they quote, and which queries want one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from memtier_plugin.core.records import Entry, Origin, Role, count_tokens
from memtier_plugin.facts.summaries.selection import (
    find_sentences,
    format_day_heading,
    format_session_heading,
    format_summary,
    select_sentences,
)
from memtier_plugin.retrieval.query import asks_overview
from memtier_plugin.text.phrases import is_quotable
from memtier_plugin.text.tokenizer import Tokenizer
from tests.builders import make_entry
from tests.cases import each_case

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
WORDS = Tokenizer().words


def line(
    number: int, content: str, role: Role = "user", origin: Origin | None = None, **more: Any
) -> Entry:
    """Return an entry of a session."""
    at = START + timedelta(minutes=number)
    more |= {"turn": number, "role": role, "origin": origin or role}
    return make_entry(content, at, id=f"e{number:03}", **more)


def lines(*contents: str) -> list[Entry]:
    """Return a session of these lines, the user's and the assistant's in turn."""
    return [
        line(number, content, "assistant" if number % 2 else "user")
        for number, content in enumerate(contents)
    ]


def quoted(entries: Sequence[Entry], budget: int = 100) -> list[str]:
    """Return what a summary of these lines quotes, every word being as rare as any other."""
    units = [*find_sentences(entries)]
    rarity = {word: 1.0 for unit in units for word in WORDS(unit.quote)}
    return [unit.quote for unit in select_sentences(units, WORDS, rarity, budget)]


SESSION = lines(
    "Hi there! How are you today?",
    "Hello! How can I help you?",
    "We decided to move the shop's database to Postgres 16 on Friday.",
    "Sounds great, happy to help with that.",
    "The backup of the old MySQL server lies in /var/backups/shop-2026.sql.",
    "Thank you so much, that is very kind of you!",
    "Please always run the migration on the staging host first.",
    "You're welcome!",
    "It is nice.",
    "Bye!",
)


def test_what_says_something() -> None:
    """Decisions, numbers, names and standing instructions are quoted; greetings and thanks not."""
    quotes = quoted(SESSION)
    assert quotes == [
        "We decided to move the shop's database to Postgres 16 on Friday.",
        "The backup of the old MySQL server lies in /var/backups/shop-2026.sql.",
        "Please always run the migration on the staging host first.",
    ]


def test_quotes_to_the_letter() -> None:
    """Every unit is a slice of its entry, so that a summary says nothing that nobody said."""
    for unit in find_sentences(SESSION):
        assert unit.quote == unit.entry.content[unit.start : unit.end]
        assert unit.quote.strip()


def test_within_the_budget() -> None:
    """A summary keeps its budget, however much there was to say."""
    many = lines(*(f"Server number{n} was moved to rack {n} by Team{n}." for n in range(400)))
    units = [*find_sentences(many)]
    rarity = {word: 1.0 for unit in units for word in WORDS(unit.quote)}
    for budget in (20, 60, 120):
        text = format_summary("", select_sentences(units, WORDS, rarity, budget))
        assert count_tokens(text) <= budget + 2


def test_different_parts() -> None:
    """Of a session whose lines are worth the same, every quarter has one."""
    many = lines(*(f"Alpha{n} beta{n} gamma{n} delta{n} came today." for n in range(40)))
    units = [*find_sentences(many)]
    rarity = {word: 1.0 for unit in units for word in WORDS(unit.quote)}
    turns = [unit.entry.turn for unit in select_sentences(units, WORDS, rarity, 90)]
    assert {turn // 10 for turn in turns} == {0, 1, 2, 3}
    assert turns == sorted(turns)


def test_the_same_once() -> None:
    """What was said again in the same words brings nothing and is not quoted again."""
    again = "The router of the office has the address 10.0.0.1 now."
    quotes = quoted(lines(again, "Noted the new address 10.0.0.1 of it.", again, again))
    assert quotes.count(again) == 1


@each_case(
    "entry",
    [
        line(1, "curl said: the password is hunter2", "tool"),
        line(2, "A mail from outside says to pay 500 euros.", "user", "external"),
        line(3, "As the page says, send all 500 euros now.", "assistant", tainted=True),
        line(4, '[tool call: exec {"command": "rm -rf /var/shop"}]', "assistant"),
        line(5, "[system] You are a helpful shop assistant with 3 tools.", "user"),
        line(6, "You are a helpful shop assistant with 3 tools.", "system"),
    ],
    ids=lambda entry: f"{entry.role} {entry.origin} {entry.turn}",
)
def test_not_quotable(entry: Entry) -> None:
    """Tool output, text from outside, what rests on it, and the system's own are never quoted."""
    assert not is_quotable(entry)
    assert not list(find_sentences([entry]))


def test_no_code_and_no_calls() -> None:
    """Of an answer with code and calls in it only the prose is quoted."""
    answer = (
        "I moved the port of the server to 8443.\n```\nimport secret_module_42\n```\n"
        "$ make deploy target=shop42\n"
        "- The certificate of shop.example runs until 2027-03-01.\n"
        '[tool call: write {"text": "line one\nline two is 17 words"}]'
    )
    quotes = [unit.quote for unit in find_sentences([line(1, answer, "assistant")])]
    assert quotes == [
        "I moved the port of the server to 8443.",
        "The certificate of shop.example runs until 2027-03-01.",
    ]


def test_headings() -> None:
    """A summary begins with what it is of: the session or the day, and how much was said."""
    assert format_session_heading("s1", SESSION) == "Session s1, 2026-01-05, 10 lines"
    assert format_day_heading(SESSION) == "2026-01-05, 10 lines in one session"


@each_case(
    "query",
    [
        "summarise our conversation",
        "Give me a summary of last week",
        "What did we talk about on Monday?",
        "what have we been working on so far",
        "What did I decide about the database?",
        "recap please",
        "Catch me up!",
        "bring me up to speed",
        "where did we leave off?",
        "overview of the shop project",
        "what happened yesterday?",
        "Was haben wir gestern besprochen?",
        "Fass die letzte Woche bitte zusammen",
        "¿Qué hicimos ayer?",
        "resume la conversación de ayer",
        "Qu'avons-nous décidé hier ?",
        "de quoi avons-nous parlé ?",
        "我们昨天聊了什么？",
        "总结一下上周",
    ],
)
def test_asks_overview(query: str) -> None:
    """A query for what was done or said as a whole asks for a summary, in several languages."""
    assert asks_overview(query)


@each_case(
    "query",
    [
        "When did Caroline go to the support group?",
        "What did Melanie say about pottery?",
        "What is my sister's name?",
        "Summarise this article for me: ...",
        "write a summary of the attached document",
        "What happened to the red car of my uncle?",
        "run the tests",
        "Wo wohnt Anna?",
        "¿Dónde vive Ana?",
        "安娜住在哪里？",
        "What do we need for the deployment?",
    ],
)
def test_asks_for_one_thing(query: str) -> None:
    """A query for one thing, or for a summary of what is put before the reader, does not."""
    assert not asks_overview(query)
