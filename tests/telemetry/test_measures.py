"""What is measured of each kind of record: every operation once, and reservations never."""

from __future__ import annotations

from datetime import UTC, datetime

from memtier_plugin.core.events import (
    ChatEvent,
    ConsolidateEvent,
    CreditEvent,
    EmbedEvent,
    ForgetEvent,
    HookFailedEvent,
    RecallEvent,
    SupersedeEvent,
    new_event,
)
from memtier_plugin.core.records import EventPayload, JournalEvent
from memtier_plugin.telemetry.measures import measures_of, operations_of, turns_after

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def event(payload: EventPayload) -> JournalEvent:
    """Return an event of the agent."""
    return new_event(payload, agent="main", at=NOON)


def measured(*payloads: EventPayload) -> dict[str, float]:
    """Return the sum of each instrument's values."""
    sums: dict[str, float] = {}
    for measure in measures_of("p", [event(payload) for payload in payloads]):
        name = measure.instrument.name.removeprefix("memtier.")
        sums[name] = sums.get(name, 0) + measure.value
    return sums


def spans(*payloads: EventPayload) -> list[tuple[str, str]]:
    """Return the name and the error of each span."""
    operations = operations_of("p", [event(payload) for payload in payloads], 1.0)
    return [(each.name, str(each.attributes.get("error.type", ""))) for each in operations]


def test_money_is_counted_when_it_is_settled() -> None:
    """A reservation is not what was spent; its settlement is, of chats and of embeddings."""
    reserved = ChatEvent(model="a/m", purpose="extract", reserves=9.0, calls=1, tokens=900)
    settled = ChatEvent(
        settles="x", model="a/m", purpose="extract", calls=1, tokens=90, output_tokens=10, cost=0.5
    )
    vectors = EmbedEvent(settles="y", model="a/v", tokens=100, cost=0.25)
    approved = EmbedEvent(model="a/v", approved=3.0)
    assert measured(reserved, approved) == {}
    assert measured(reserved, settled, approved, vectors) == {
        "endpoint.cost": 0.75,
        "endpoint.tokens": 200,
    }


def test_credits_are_counted_by_their_sign() -> None:
    """Each credit is one, whatever its size."""
    credits = [CreditEvent(item="i", attempt=1, delta=delta) for delta in (0.1, -0.05, 0.0)]
    signs = [m.attributes["memtier.credit"] for m in measures_of("p", [*map(event, credits)])]
    assert signs == ["positive", "negative", "zero"]


def test_each_operation_is_a_span() -> None:
    """Changes and failures are named as the conventions have it; a credit is none."""
    assert spans(
        SupersedeEvent(items=("a",), by="b"),
        ForgetEvent(items=("a", "b")),
        ConsolidateEvent(read=3),
        ConsolidateEvent(problem="LedgerError: locked"),
        HookFailedEvent(host_agent="h", hook="agent_end", error="DeadlinePassed: not done"),
        HookFailedEvent(host_agent="h", hook="session_start", error="it failed"),
        CreditEvent(item="i", attempt=1, delta=0.1),
    ) == [
        ("update_memory", ""),
        ("delete_memory", ""),
        ("consolidate", ""),
        ("consolidate", "LedgerError"),
        ("create_memory", "DeadlinePassed"),
    ]


def test_only_prompts_count_as_turns() -> None:
    """A search is no turn that has to be stored."""
    asked = [event(RecallEvent(query="q", purpose=purpose)) for purpose in ("inject", "search")]
    assert turns_after(asked, {"main": 2, "other": 1}) == {"main": 3, "other": 1}
