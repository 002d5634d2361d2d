"""What a purge does to one line: nothing of the words stays, and the line keeps its length."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st

from memtier_plugin.core.records import Entry, Message
from memtier_plugin.ingest.messages import Delivery, key_after
from memtier_plugin.lifecycle.purge.plan import (
    PURGED_MARK,
    ItemFinder,
    PlainFileEdit,
    PurgePlan,
    TextFinder,
    find_edits,
    replace_spans,
    word_set,
)
from memtier_plugin.storage.ledger.jsonl import to_line
from tests.builders import make_entry

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
entry = partial(make_entry, at=NOW, id="01KEYAAAAAAAAAAAAAAAAAAAAA", key="k")


@given(st.text(min_size=1, max_size=80))
@example("x")
def test_a_stub_keeps_the_length_and_nothing_else(content: str) -> None:
    """A stub is as long as the line was, is an entry of the same id, and says nothing."""
    line = to_line(entry(content, speaker="Mara").to_json())
    rewritten = PurgePlan(
        "P", stubs={entry(content).id}, keys={entry(content).id: "purged:k"}
    ).rewrite_line(line)
    assert len(rewritten) == len(line) and rewritten.endswith(b"\n")
    left = Entry.from_json(json.loads(rewritten))
    assert (left.id, left.content, left.key, left.speaker) == (entry("").id, "", "purged:k", None)


@given(st.text(min_size=8, max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_a_text_goes_wherever_it_stands(secret: str, before: str, after: str) -> None:
    """What is searched for is not found in a line that was redacted; what is around it stays."""
    if len("".join(secret.split())) < 8 or PURGED_MARK.casefold() in secret.casefold():
        return
    finder = TextFinder(secret)
    record = entry(f"{before} {secret} {after}").to_json()
    edits = find_edits(record, finder, names=True)
    assert edits
    rewritten = json.loads(
        PurgePlan("P", edits={record["id"]: edits}).rewrite_line(to_line(record))
    )
    assert secret not in rewritten["content"]
    assert rewritten["id"] == record["id"]


def test_a_text_is_found_in_other_forms() -> None:
    """Case, white space, JSON's own writing and a cut end do not hide a text."""
    finder = TextFinder('Pale "Heron" 77')
    for value in (
        'so: pale "heron" 77.', 'pale\n  "HERON"\t77', r'{"a": "Pale \"Heron\" 77"}',
        'and it ends with pale "her', 'pale "heron\n[... 200 characters left out]',
    ):  # fmt: skip
        assert finder(value), value
        assert "heron" not in replace_spans(value, finder(value)).casefold()
        assert "her" not in replace_spans(value, finder(value)).casefold()
    assert not finder("a heron, pale as 77")


def test_an_item_is_known_by_what_only_it_says() -> None:
    """A text that repeats an item whole, or has a word of its own, is found; others are not."""
    finder = ItemFinder(["The pump runs on diesel."], word_set("kestrel-4471 pump"))
    assert finder("the pump  runs on diesel.") and finder("what is kestrel-4471?")
    assert not finder("The pump runs.") and not finder(PURGED_MARK) and not finder("")
    assert finder.has_unique_word("kestrel-4471") and not finder.has_unique_word(
        "The pump runs on diesel."
    )
    assert word_set("It is at 4471, near Kestrel!") == {"4471", "kestrel"}


def test_a_plan_holds_no_words_and_can_be_done_twice() -> None:
    """What is written ahead names places only; doing it once more changes nothing."""
    record = entry("the code is quail-9920 for you").to_json()
    plan = PurgePlan(
        "P", edits={record["id"]: find_edits(record, TextFinder("quail-9920"), names=True)},
        lines=frozenset({"abc"}), plain=[PlainFileEdit("/x", [(1, 2)], "d")], files=["/y"],
    )  # fmt: skip
    written = json.dumps(plan.to_json())
    assert "quail" not in written
    again = PurgePlan.from_json(json.loads(written))
    once = again.rewrite_line(to_line(record))
    assert json.loads(once)["content"] == f"the code is {PURGED_MARK} for you"
    assert again.rewrite_line(once) == once and plan.rewrite_line(to_line(record)) == once
    assert again.rewrite_line(b"not json\n") == b"not json\n"
    assert bool(plan) and not PurgePlan("P")


def test_a_key_forgets_the_words() -> None:
    """A purged entry is known by its place in the run; a key that is not ours stays."""
    original = entry("quail-9920")
    delivery = Delivery.of(original)
    key = delivery.key(7, Message(role="user", content="quail-9920"))
    assert key_after(entry("quail-9920", key=key)) == delivery.place_key(7, "user")
    assert key_after(entry("quail-9920", key="id:1")) == "id:1"
