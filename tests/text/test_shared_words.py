"""The words of a project that go into a model of its own, and those that stay out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memtier_plugin.core.records import Entry
from memtier_plugin.providers.embedding.conversion import MAX_WORDS, collect_shared_words

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def entry(content: str, session: str, sender: str | None = None, **more: Any) -> Entry:
    """Return a user's entry of a session."""
    fields: dict[str, Any] = {
        "id": f"{session}-{sender}-{content}", "timestamp": NOON, "observed_at": NOON,
        "session_id": session, "project": "p", "content": content, "tokens": 1, "agent_id": "main",
        "run_id": "r", "turn": 0, "role": "user", "origin": "user", "sender": sender, "key": "k",
    }  # fmt: skip
    return Entry(**{**fields, **more})


def in_sessions(content: str, *senders: str | None, **more: Any) -> list[Entry]:
    """Return one entry for each sender, each in a session of its own."""
    return [entry(content, f"s{n}", sender, **more) for n, sender in enumerate(senders)]


def test_words_recur_in_sessions() -> None:
    """A word counts from its third session on, however often one session repeats it."""
    twice = in_sessions("kestrel", None, None)
    often = [entry("osprey osprey osprey osprey", "s0")]
    assert collect_shared_words([*twice, *often]) == []
    assert collect_shared_words(in_sessions("kestrel", None, None, None)) == ["kestrel"]


def test_one_persons_words_stay_out() -> None:
    """Where several people talk, a word that only one of them uses is left out."""
    shared = in_sessions("pelican", "mara", "mara", "ines")
    private = in_sessions("diagnosis", "mara", "mara", "mara", "mara")
    other_agent = in_sessions("kestrel", None, None, None, agent_id="ops")
    assert collect_shared_words([*shared, *private, *other_agent]) == ["pelican"]
    assert collect_shared_words(private) == ["diagnosis"]


def test_only_peoples_own_words() -> None:
    """Tool output, tainted and system text, numbers and identifiers are no vocabulary."""
    three = (None, None, None)
    entries = [
        *in_sessions("gateway", *three, role="tool", origin="tool"),
        *in_sessions("obelisk", *three, tainted=True),
        *in_sessions("harness", *three, role="system", origin="system"),
        *in_sessions("4155550123 deadbeef12 k8s_prod ab 日本語", *three),
    ]
    assert collect_shared_words(entries) == []


def test_most_frequent_first() -> None:
    """Words come by frequency in their most frequent spelling, up to a limit."""
    texts = ["Skagen Skagen skagen", "Skagen ferry", "ferry Skagen", "ferry"]
    assert collect_shared_words(entry(text, text) for text in texts) == ["Skagen", "ferry"]
    letters = "abcdefghijklmnopqrst"
    words = [f"{a}{b}{c}x" for a in letters for b in letters for c in letters]
    assert len(words) > MAX_WORDS
    many = [entry(" ".join(words), f"s{n}") for n in range(3)]
    assert len(collect_shared_words(many)) == MAX_WORDS
