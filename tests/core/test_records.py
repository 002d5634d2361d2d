"""Records on disk: what is written is read back, and old, newer and broken lines are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin import MemTier
from memtier_plugin.core import formats
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.events import PAYLOADS
from memtier_plugin.core.formats import from_iso, new_id, to_iso
from memtier_plugin.core.records import (
    Entry,
    Fact,
    FactDraft,
    JournalEvent,
    Source,
    ToolCall,
    count_tokens,
)
from memtier_plugin.core.results import Hit

TEXT = st.text(st.characters())
NUMBER = st.integers(0, 2**40)
MOMENT = st.datetimes(timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
ORIGIN = st.sampled_from(["user", "assistant", "tool", "system", "external"])
SOURCE = st.builds(Source, agent=TEXT, session=TEXT, entry=TEXT)
TOOL = st.builds(ToolCall, arguments=TEXT, name=TEXT, exit_code=st.none() | NUMBER)
ENTRY = st.builds(
    Entry,
    schema=st.just(1), id=TEXT, timestamp=MOMENT, session_id=TEXT, project=TEXT, content=TEXT,
    tokens=NUMBER, promoted=st.booleans(), cognitive_weight=st.floats(-1, 1), agent_id=TEXT,
    run_id=TEXT, turn=NUMBER, role=st.sampled_from(["user", "assistant", "tool", "system"]),
    origin=ORIGIN, observed_at=MOMENT, sender=st.none() | TEXT, speaker=st.none() | TEXT,
    parent=st.none() | TEXT, tool=st.none() | TOOL, tainted=st.booleans(),
    truncated=st.booleans(), key=TEXT,
)  # fmt: skip
FACT = st.builds(
    Fact,
    schema=st.just(1), id=TEXT, timestamp=MOMENT, project=TEXT, subject=TEXT, relation=TEXT,
    value=TEXT, text=TEXT, sources=st.lists(SOURCE, min_size=1, max_size=3).map(tuple),
    valid_from=st.none() | MOMENT, valid_to=st.none() | MOMENT, quote=TEXT,
    span=st.none() | st.tuples(NUMBER, NUMBER), extractor=TEXT, model=st.none() | TEXT,
    prompt_hash=st.none() | TEXT, confidence=st.floats(0, 1), origin=ORIGIN,
    status=st.sampled_from(["active", "proposed"]),
    tier=st.sampled_from(["semantic", "procedural"]),
)  # fmt: skip
FACT_FIELDS = [f.name for f in fields(Fact)]
DRAFT = {f.name for f in fields(FactDraft)} & {*FACT_FIELDS}
COMMON = {f.name for f in fields(JournalEvent)} - {"data"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
EVENT = st.builds(
    JournalEvent,
    id=TEXT, timestamp=MOMENT, kind=TEXT, agent_id=TEXT, run_id=st.none() | TEXT,
    schema=st.just(1),
    data=st.dictionaries(TEXT.filter(lambda key: key not in COMMON), JSON, max_size=4),
)  # fmt: skip
RECORD = st.one_of(ENTRY, FACT, EVENT, SOURCE, TOOL)


def payloads(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for a record of the journal, by the types of its fields."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{each.name: values(hints[each.name]) for each in fields(kind)})


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field."""
    kinds = get_args(hint)
    if get_origin(hint) is UnionType:
        return st.one_of(*map(values, kinds))
    if get_origin(hint) is Mapping:
        return st.dictionaries(TEXT, values(kinds[1]), max_size=2)
    if get_origin(hint) is tuple:
        return st.lists(values(kinds[0]), max_size=2).map(tuple)
    plain = {str: TEXT, int: NUMBER, float: st.floats(allow_nan=False), Any: JSON}
    if hint in plain:
        return plain[hint]
    return payloads(hint) if is_dataclass(hint) else st.from_type(hint)


def through_disk(record: Any) -> Any:
    """Return a record's JSON form as it is after a ledger line."""
    return json.loads(json.dumps(record.to_json()))


@given(RECORD)
def test_round_trip(record: Any) -> None:
    """Every record that is written is read back equal, whatever its texts and times are."""
    assert type(record).from_json(through_disk(record)) == record


@given(st.sampled_from(sorted({*PAYLOADS} - {"recall"})).map(PAYLOADS.get).flatmap(payloads))
def test_the_payload_of_any_event(payload: Any) -> None:
    """Its line is read into an equal one, which is written as the same bytes, in the same order."""
    data = payload.to_data()
    line = formats.seal({"kind": payload.KIND, **data})
    assert type(payload).from_json(json.loads(line)) == payload
    assert formats.seal({"kind": payload.KIND, **type(payload).from_json(data).to_data()}) == line
    names = [each.name for each in fields(payload)]
    assert [*data] == [name for name in names if name in data]
    assert {*names} - {*data} == {n for n in names if getattr(payload, n) is None} - payload.NULLS


@given(FACT)
def test_records_are_dataclasses_to_others(fact: Fact) -> None:
    """`dataclasses` reads, copies and changes a record; what callers give is checked again."""
    assert replace(fact, text="other").text == "other" and replace(fact) == fact
    assert asdict(fact)["sources"][0] == asdict(fact.sources[0])
    with pytest.raises(AttributeError):
        fact.text = "other"  # type: ignore[misc]
    with pytest.raises(MessageError, match=r"^value: "):
        replace(FactDraft(**{name: getattr(fact, name) for name in DRAFT}), value=5)


@given(RECORD.filter(lambda record: not isinstance(record, JournalEvent)), JSON)
def test_unknown_fields_are_ignored(record: Any, value: Any) -> None:
    """A field that a newer MemTier wrote does not stop this one from reading the line."""
    assert type(record).from_json(through_disk(record) | {"of a newer one": value}) == record


@given(ENTRY, st.integers(2, 9))
def test_newer_schema_is_read(entry: Entry, schema: int) -> None:
    """A line of a newer schema is read as far as it is known."""
    read = Entry.from_json(through_disk(entry) | {"schema": schema, "new": True})
    assert (read.id, read.content, read.schema) == (entry.id, entry.content, schema)


def test_the_papers_own_lines_are_read() -> None:
    """The paper's eight fields (schema 0) make an entry of the agent in whose ledger they stand."""
    line = {
        "id": "e1", "timestamp": "2026-01-05T09:00:00Z", "session_id": "s1", "project": "p",
        "content": "Postgres runs on port 5433", "tokens": 7, "promoted": False,
        "cognitive_weight": 0.25,
    }  # fmt: skip
    entry = Entry.from_json(line, owner="openclaw.main")
    assert entry.content == line["content"]
    assert entry.timestamp == entry.observed_at == datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert (entry.agent_id, entry.role, entry.origin) == ("openclaw.main", "user", "user")
    assert (entry.cognitive_weight, entry.schema) == (0.25, 1)
    assert Entry.from_json(through_disk(entry)) == entry
    other = Entry.from_json(line | {"id": "e2"}, owner="openclaw.main")
    assert other.run_id != entry.run_id
    assert other.key != entry.key


@given(RECORD, st.data())
def test_a_broken_field_is_refused_as_documented(record: Any, data: st.DataObject) -> None:
    """With any value in any field, or without it, a line is read or raises what it says."""
    line = through_disk(record)
    name = data.draw(st.sampled_from(sorted(line)))
    value = data.draw(st.none() | JSON | st.just(...))
    broken = {k: v for k, v in line.items() if k != name} | ({} if value is ... else {name: value})
    try:
        read = type(record).from_json(broken)
    except (KeyError, TypeError, ValueError):
        return
    assert isinstance(read, type(record))


@pytest.mark.parametrize("missing", ["id", "content", "timestamp", "session_id", "turn", "key"])
def test_a_line_without_its_main_fields_is_refused(
    missing: str, day: Callable[..., datetime]
) -> None:
    """What cannot be made up is not made up."""
    entry = Entry(
        id="e", timestamp=day(), session_id="s", project="p", content="c", tokens=1,
        agent_id="a", run_id="r", turn=1, role="user", origin="user", observed_at=day(), key="k",
    )  # fmt: skip
    line = through_disk(entry)
    del line[missing]
    with pytest.raises(KeyError, match=missing):
        Entry.from_json(line)


@pytest.mark.parametrize("change", [{"sources": []}, {"tier": "episodic"}, {"sources": ["e"]}])
def test_a_fact_needs_a_source_and_a_tier(change: Any, day: Callable[..., datetime]) -> None:
    """There is no fact without a source, nor one in the episodic tier."""
    fact = Fact(
        id="f", timestamp=day(), project="p", subject="s", relation="r", value="v", text="t",
        sources=(Source(agent="a", session="s", entry="e"),),
    )  # fmt: skip
    with pytest.raises((TypeError, ValueError)):
        Fact.from_json(through_disk(fact) | change)


def test_broken_lines_do_not_stop_the_others(home: Path) -> None:
    """Lines that somebody else broke are counted by file and line; what is around them serves."""
    message = {"role": "user", "content": "The cello lesson moved to Thursday."}
    with MemTier.open(home) as memory:
        [entry] = memory.record([message], session_id="s")
        fact = memory.remember("Ada plays the cello")
        memory.recall("cello")
    lines = {
        "episodic/main": [
            entry.to_json() | {"id": "b1", "speaker": 5},
            entry.to_json() | {"id": "b2", "turn": 10**30},
            entry.to_json() | {"id": "b3", "observed_at": "0001-01-01T00:00:00+09:00"},
            entry.to_json() | {"id": "b4", "tool": "hammer"},
            entry.to_json() | {"id": "good", "content": "A cello needs a bow."},
        ],
        "semantic": [
            fact.to_json() | {"id": "b5", "tier": "cosmic"},
            fact.to_json() | {"id": "b6", "sources": [{"agent": 1, "session": 2, "entry": 3}]},
        ],
        "journal/main": [
            {"id": "b7", "timestamp": to_iso(entry.timestamp), "kind": "credit",
             "agent_id": "main", "run_id": "r", "item": entry.id, "attempt": 1, "delta": "much"},
            {"id": "b8", "timestamp": to_iso(entry.timestamp), "kind": "consolidate",
             "agent_id": "main", "run_id": None, "cursors": 7},
        ],
    }  # fmt: skip
    for folder, records in lines.items():
        [path] = (memory.folder / folder).glob("*.jsonl")
        with path.open("a") as file:
            file.writelines(f"{json.dumps(record)}\n" for record in records)
    with MemTier.open(home) as memory:
        recall = memory.recall("cello")
        assert {entry.id, "good", fact.id} <= {hit.id for hit in recall.hits}
        assert not {hit.id for hit in recall.hits} & {f"b{n}" for n in range(9)}
        bad = memory.store.reader().bad_lines()
    assert len(bad) == 8
    assert {path.rpartition("/")[0] for path, _, _ in bad} == set(lines)


@given(MOMENT, MOMENT)
def test_text_order_is_time_order(moment: datetime, other: datetime) -> None:
    """Times on disk are of one width, and sort as text as they do as times, in every year."""
    assert (to_iso(moment) < to_iso(other)) == (moment < other)
    assert len(to_iso(moment)) == len("2026-01-05T09:00:00.000Z")
    assert from_iso(to_iso(moment)) == moment


@pytest.mark.parametrize(
    "text", ["2026-01-05T09:00:00Z", "2026-01-05T10:00+01:00", "2026-01-05 09:00", "20260105T09"]
)
def test_iso_forms(text: str) -> None:
    """ISO-8601 is read in its forms; a time without an offset is UTC."""
    assert from_iso(text) == datetime(2026, 1, 5, 9, tzinfo=UTC)


@given(st.integers(-14, 14), MOMENT)
def test_times_of_other_zones_are_written_in_utc(hours: int, moment: datetime) -> None:
    """A time of any zone is the same moment on disk."""
    moment = moment.replace(year=2024)  # a leap year, as any day may be drawn
    assert to_iso(moment.astimezone(timezone(timedelta(hours=hours)))) == to_iso(moment)


@given(TEXT, TEXT)
def test_tokens(text: str, other: str) -> None:
    """Tokens are at least a quarter of the UTF-8 bytes; joining texts never costs more."""
    assert 4 * count_tokens(text) >= len(text.encode("utf-8", "surrogatepass"))
    assert count_tokens(text + other) <= count_tokens(text) + count_tokens(other)
    assert bool(count_tokens(text)) == bool(text)
    assert [count_tokens(text) for text in ("", "abcd", "abcde", "é" * 4, "😀")] == [0, 1, 2, 2, 1]
    assert [count_tokens(text) for text in ("2024", "2024-05-07", "ABCD", "a1")] == [4, 9, 4, 2]


@given(st.lists(st.sampled_from(["word ", "2024-05-07 ", "QXW7 ", "\u3042"]), max_size=20))
def test_a_long_text_is_counted_as_its_parts(parts: list[str]) -> None:
    """The estimate is a sum over bytes: any text, however long, is read once and in any order."""
    text = "".join(parts) * 400
    quarters = sum(4 if c.isdigit() or c.isupper() else len(c.encode()) for c in text)
    assert count_tokens(text) == -(-quarters // 4) == count_tokens(text[::-1])


def test_all_ids_cost_the_same() -> None:
    """What is packed into a block never depends on the random part of an id."""
    assert {count_tokens(new_id()) for _ in range(200)} == {26}


def test_ids_are_sorted_as_they_are_made() -> None:
    """Ids made one after the other sort so, also within a millisecond."""
    ids = [new_id() for _ in range(2000)]
    assert sorted(set(ids)) == ids


def test_hit_tells_of_its_item(day: Callable[..., datetime]) -> None:
    """A hit has the id, the tier and the text of the fact or entry that it is of."""
    fact = Fact(
        id="f", timestamp=day(), project="p", subject="s", relation="r", value="v", text="said",
        sources=(Source(agent="a", session="s", entry="e"),), tier="procedural",
    )  # fmt: skip
    hit = Hit(item=fact, score=1.0, signals={}, sources=fact.sources)
    assert (hit.id, hit.tier, hit.text) == ("f", "procedural", "said")
