"""Reading conversations from files: what each format gives, and what a wrong file says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.ingest.messages import Session
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.importers.formats import FORMATS, read_transcript


def read(tmp_path: Path, format: str, content: Any, name: str = "chat.json") -> list[Session]:
    """Write the content (JSON unless it is text) to a file and read it."""
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return list(read_transcript(path, format))


def lines_of(session: Session) -> list[tuple[str, str | None, str]]:
    """Return role, speaker and words of each message."""
    return [(m.role, m.speaker, m.content) for m in session.messages]


def locomo(**more: Any) -> list[dict[str, Any]]:
    """Return a LoCoMo file with one sample of two sessions."""
    turns = [
        {"speaker": "Ada", "dia_id": "D1:1", "text": "I planted beans."},
        {"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red door"},
        {"speaker": "Ada", "dia_id": "D1:3", "text": "Nice."},
    ]
    conversation = {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_10": [{"speaker": "Ben", "dia_id": "D10:1", "text": "Hello again."}],
        "session_10_date_time": "12:09 am on 13 September, 2024",
        "session_2": turns,
        "session_2_date_time": "1:56 pm on 8 May, 2024",
        "session_11_date_time": "1:56 pm on 9 May, 2024",
    }
    return [{"sample_id": "s", "conversation": conversation, "qa": [], **more}]


def test_locomo_sessions_are_dated_and_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Session 2 comes before session 10; `1:56 pm on 8 May` is UTC; one without turns is none."""
    first, second = read(tmp_path, "locomo", locomo())
    assert [first.session_id, second.session_id] == ["s/session_2", "s/session_10"]
    assert first.observed_at == datetime(2024, 5, 8, 13, 56, tzinfo=UTC)
    assert second.observed_at == datetime(2024, 9, 13, 0, 9, tzinfo=UTC)


def test_locomo_speakers_are_two_users_and_captions_are_text(tmp_path: Path) -> None:
    """Both people speak as `user`, told apart by `speaker`; dialogue ids name the turns."""
    session = read(tmp_path, "locomo", locomo())[0]
    assert lines_of(session) == [
        ("user", "Ada", "I planted beans."),
        ("user", "Ben", "Look! [image: a red door]"),
        ("user", "Ada", "Nice."),
    ]
    assert [turn.id for turn in session.turns] == ["D1:1", "D1:2", "D1:3"]


def test_between_people_an_exchange_starts_with_the_one_who_opened(tmp_path: Path) -> None:
    """Ada, Ben is one run and Ada's next turn opens another."""
    session = read(tmp_path, "locomo", locomo())[0]
    assert [(run.run_id, len(run.turns)) for run in session.exchanges] == [
        ("s/session_2:1", 2),
        ("s/session_2:2", 1),
    ]


def test_a_chat_exchange_is_a_question_and_all_that_follows(tmp_path: Path) -> None:
    """Tool calls and answers belong to the question before; two questions in a row to one run."""
    roles = ["assistant", "user", "user", "assistant", "tool", "assistant", "user"]
    session = read(tmp_path, "openai", [{"role": r, "content": "x"} for r in roles])[0]
    assert [[m.role for m in run.messages] for run in session.exchanges] == [
        ["assistant"],
        ["user", "user", "assistant", "tool", "assistant"],
        ["user"],
    ]


def test_longmemeval_sessions_keep_their_ids_and_dates(tmp_path: Path) -> None:
    """A haystack's sessions have the ids and dates listed beside them."""
    item = {
        "haystack_session_ids": ["a_1", "b"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 09:00"],
        "haystack_sessions": [
            [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}],
            [{"role": "assistant", "content": "hello", "has_answer": True}],
        ],
    }
    first, second = read(tmp_path, "longmemeval", [item])
    assert first.observed_at == datetime(2023, 5, 20, 2, 21, tzinfo=UTC)
    assert [turn.id for turn in (*first.turns, *second.turns)] == ["a_1:0", "a_1:1", "b:0"]


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ([{"role": "user", "content": "hi"}], ["chat-1"]),
        ({"id": "c7", "messages": [{"role": "user", "content": "hi"}]}, ["c7"]),
        ([{"messages": [{"role": "user", "content": "hi"}]}] * 2, ["chat-1", "chat-2"]),
        (
            '[{"role": "user", "content": "hi"}]\n\n'
            '{"id": "b", "messages": [{"role": "user", "content": "hi"}]}\n',
            ["chat-1", "b"],
        ),
    ],
)
def test_openai_takes_a_list_an_object_and_json_lines(
    tmp_path: Path, content: Any, ids: list[str]
) -> None:
    """A file holds one conversation, several, or one a line; without an id it gets a number."""
    sessions = read(tmp_path, "openai", content)
    assert [session.session_id for session in sessions] == ids
    assert all(lines_of(session) == [("user", None, "hi")] for session in sessions)


def test_openai_times_are_iso_or_seconds_or_milliseconds(tmp_path: Path) -> None:
    """A message's own time wins where it has one; the conversation's is the session's."""
    when = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
    for given_time in ("2026-03-14T09:30:00Z", when.timestamp(), when.timestamp() * 1000):
        chat = {
            "created_at": given_time,
            "messages": [{"role": "user", "content": "hi", "timestamp": given_time}],
        }
        session = read(tmp_path, "openai", chat)[0]
        assert session.observed_at == session.messages[0].observed_at == when


def test_a_chatgpt_export_is_read_along_the_branch_last_seen(tmp_path: Path) -> None:
    """Edited-away branches, system notes and what is no text are left out."""

    def node(parent: str | None, role: str, *parts: Any) -> dict[str, Any]:
        message = {"author": {"role": role}, "content": {"parts": list(parts)}, "create_time": 1e9}
        return {"parent": parent, "message": message}

    mapping = {
        "root": {"parent": None, "message": None},
        "sys": node("root", "system", ""),
        "old": node("sys", "user", "the first try"),
        "ask": node("sys", "user", "the second try", {"asset_pointer": "x"}),
        "say": node("ask", "assistant", "an answer"),
    }
    chat = {"id": "g", "create_time": 1e9, "mapping": mapping, "current_node": "say"}
    session = read(tmp_path, "openai", [chat])[0]
    assert lines_of(session) == [
        ("user", None, "the second try"),
        ("assistant", None, "an answer"),
    ]
    assert session.messages[0].observed_at == session.observed_at


def openclaw_messages() -> list[dict[str, Any]]:
    """Return a made-up session: a plain exchange, then one with three tool calls."""
    call = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "make"}}

    def result(**more: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": "out"}]
        return {
            "role": "toolResult",
            "toolCallId": "c1",
            "toolName": "exec",
            "content": content,
        } | {
            "isError": False,
            **more,
        }

    return [
        {"role": "compactionSummary", "summary": "long ago", "timestamp": 1795293462000},
        {"role": "user", "content": "Hello", "timestamp": 1795293462704},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}],
            "__openclaw": {"runId": "run-a"},
        },
        {"role": "user", "content": [{"type": "text", "text": "Build it"}]},
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        result(details={"status": "completed", "exitCode": 0}),
        result(details={"status": "completed", "exitCode": 3}),
        result(details={"status": "error"}, isError=True),
        {"role": "assistant", "content": [], "stopReason": "error"},
        {"role": "assistant", "content": [{"type": "text", "text": "Built"}]},
    ]


def test_openclaw_tool_results_fail_by_flag_or_by_exit_code(tmp_path: Path) -> None:
    """A command that ends with 3 failed although its isError is false."""
    lines = "\n".join(json.dumps(m) for m in openclaw_messages())
    session = read(tmp_path, "openclaw", lines, "s1.jsonl")[0]
    tools = [m.tool for m in session.messages if m.tool]
    assert [(t.name, t.call_id, t.ok, t.exit_code) for t in tools] == [
        ("exec", "c1", True, 0),
        ("exec", "c1", False, 3),
        ("exec", "c1", False, None),
    ]


def test_openclaw_keeps_what_was_said_and_done(tmp_path: Path) -> None:
    """Summaries, thoughts and empty answers are no messages; a tool call is one without words."""
    lines = "\n".join(json.dumps(m) for m in openclaw_messages())
    session = read(tmp_path, "openclaw", lines, "s1.jsonl")[0]
    assert session.session_id == "s1"
    assert session.observed_at == datetime(2026, 11, 21, 20, 37, 42, 704000, tzinfo=UTC)
    assert [(m.role, m.content) for m in session.messages if m.role != "tool"] == [
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "Build it"),
        ("assistant", ""),
        ("assistant", "Built"),
    ]
    (call,) = session.messages[3].tool_calls
    assert (call.name, json.loads(call.arguments)) == ("exec", {"command": "make"})


def test_pages_in_an_openclaw_transcript_are_external(tmp_path: Path) -> None:
    """What a tool fetched from elsewhere is external in an imported session too."""
    origins = {}
    for tool in ("web_fetch", "read"):
        call = {"type": "toolCall", "id": "c", "name": tool, "arguments": {}}
        lines: list[dict[str, Any]] = [
            {"role": "assistant", "content": [call]},
            {"role": "toolResult", "toolCallId": "c", "toolName": tool, "content": "A page."},
        ]
        [session] = read(tmp_path, "openclaw", "\n".join(map(json.dumps, lines)), "s1.jsonl")
        origins[tool] = session.turns[-1].message.origin
    assert origins == {"web_fetch": "external", "read": None}


def test_an_openclaw_transcript_has_a_header_and_other_lines(tmp_path: Path) -> None:
    """The header names the session; lines of other types than `message` are not its words."""
    lines = [
        {"type": "session", "id": "abc", "version": 3},
        {"type": "model_change", "modelId": "m"},
        {"type": "message", "id": "1", "message": {"role": "user", "content": "Hello"}},
        {"type": "compaction", "summary": "long ago"},
        {"type": "message", "id": "2", "message": {"role": "assistant", "content": "Hi"}},
    ]
    sessions = read(tmp_path, "openclaw", "\n".join(map(json.dumps, lines)), "s1.jsonl")
    assert [(s.session_id, [m.content for m in s.messages]) for s in sessions] == [
        ("abc", ["Hello", "Hi"])
    ]


def test_a_captured_agent_end_gives_its_runs_their_own_ids(tmp_path: Path) -> None:
    """The last exchange is the payload's run; older ones carry their run ids in the messages."""
    payload = {
        "hook": "agent_end",
        "event": {"messages": openclaw_messages(), "runId": "run-b", "success": True},
        "ctx": {"sessionId": "sess", "sessionKey": "agent:main:main"},
    }
    other = {"hook": "session_end", "event": {}}
    (session,) = read(tmp_path, "openclaw", [other, payload])
    assert session.session_id == "sess"
    assert [(run.run_id, len(run.turns)) for run in session.exchanges] == [
        ("run-a", 2),
        ("run-b", 6),
    ]


def test_a_sub_agents_report_is_not_the_users_word(tmp_path: Path) -> None:
    """The message that announces a sub-agent's result has the origin `external`."""
    messages = [
        {"role": "user", "content": "A background task completed."},
        {"role": "assistant", "content": "Done."},
    ]
    event = {"messages": messages, "runId": "announce:v1:x"}
    (session,) = read(tmp_path, "openclaw", {"hook": "agent_end", "event": event, "ctx": {}})
    assert [m.origin for m in session.messages] == ["external", None]


def test_text_has_speakers_continued_lines_and_sessions(tmp_path: Path) -> None:
    """Up to the first heading an empty line parts sessions; an indented line continues."""
    text = "Ada: I like teal.\n  Note: and blue.\nBen: I see\nwhy.\n\nUser: hi\nAssistant: yes\n"
    first, second = read(tmp_path, "text", text, "talk.txt")
    assert lines_of(first) == [
        ("user", "Ada", "I like teal.\nNote: and blue."),
        ("user", "Ben", "I see\nwhy."),
    ]
    assert lines_of(second) == [("user", None, "hi"), ("assistant", None, "yes")]
    assert [first.session_id, second.session_id] == ["talk-1", "talk-2"]
    assert first.observed_at is None


def test_text_headings_date_the_sessions_below_them(tmp_path: Path) -> None:
    """Under a heading an empty line parts nothing; the next heading does."""
    text = "# 2026-03-14 09:30\n\nAda: one\n\nBen: two\n# 2026-03-15\nAda: three\n"
    first, second = read(tmp_path, "text", text, "talk.txt")
    assert first.observed_at == datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
    assert lines_of(first) == [("user", "Ada", "one"), ("user", "Ben", "two")]
    assert second.observed_at == datetime(2026, 3, 15, tzinfo=UTC)
    assert lines_of(second) == [("user", "Ada", "three")]


def test_a_link_is_no_speaker(tmp_path: Path) -> None:
    """`https://…` at the start of a line continues the message before it."""
    (session,) = read(tmp_path, "text", "Ada: see\nhttps://example.org\n", "talk.txt")
    assert lines_of(session) == [("user", "Ada", "see\nhttps://example.org")]


@pytest.mark.parametrize(
    ("format", "content", "says"),
    [
        ("locomo", "{", "chat.json: not JSON at line 1"),
        ("locomo", {}, "chat.json: expected 'sample_id' to be a string"),
        ("locomo", [{"conversation": {}}], "item 0: expected 'sample_id' to be a string"),
        ("locomo", locomo(conversation={"session_1": []}), "session_1: expected 'session_1_date"),
        (
            "locomo",
            locomo(conversation={"session_1": [{}], "session_1_date_time": "1:56 pm on 8"}),
            "item 0, session_1: expected a date as",
        ),
        (
            "locomo",
            locomo(
                conversation={
                    "session_1": [{"text": 3}],
                    "session_1_date_time": "1:56 pm on 8 May, 2024",
                }
            ),
            "session_1[0]: expected 'text' to be a string, found 3",
        ),
        (
            "longmemeval",
            [{"haystack_sessions": [[]], "haystack_session_ids": [], "haystack_dates": []}],
            "item 0: 1 haystack_sessions, 0 ids and 0 dates",
        ),
        ("openai", '[{"role": "user", "content": "hi"}]\n{"mess', "chat.json:2: not JSON"),
        ("openai", [{"role": "king", "content": "hi"}], "chat.json:1, message 0: the role 'king'"),
        ("openai", {"messages": "hi"}, "chat.json:1: expected 'messages' to be a list"),
        ("openai", {"messages": [], "created_at": "soon"}, "expected an ISO time"),
        ("openai", [], "no messages in it that format 'openai' knows"),
        ("openai", "", "not JSON"),
        ("openclaw", [{"speaker": "Ada"}], "chat.json:1[0]: expected a transcript line"),
        ("openclaw", [{"role": "user", "content": 3}], "[0]: the content is a int"),
        ("openclaw", {"hook": "agent_end", "event": {}}, "expected 'messages' to be a list"),
        ("text", "\n  hello there", "chat.json:2: expected 'Speaker: words'"),
        ("text", "# a title\nAda: hi", "chat.json:1: expected an ISO time"),
        ("html", "", "unknown format 'html'; one of: chatgpt"),
    ],
)
def test_a_wrong_file_is_named_with_the_place_and_what_was_expected(
    tmp_path: Path, format: str, content: Any, says: str
) -> None:
    """Every error is an ImportFileError that names the file, the place and the expectation."""
    with pytest.raises(ImportFileError) as error:
        read(tmp_path, format, content)
    assert says in str(error.value)


def test_what_is_no_text_is_named_by_its_line(tmp_path: Path) -> None:
    """Binary content is refused with its line, a missing file with its reason."""
    path = tmp_path / "chat.txt"
    path.write_bytes(b"Ada: hi\nBen: \xff\xfe\n")
    with pytest.raises(ImportFileError, match=r"chat\.txt:2: expected UTF-8 text"):
        list(read_transcript(path, "text"))
    with pytest.raises(ImportFileError, match="none: cannot be read: No such file"):
        list(read_transcript(tmp_path / "none", "text"))


def test_json_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    """A million brackets are an error, not a crash."""
    with pytest.raises(ImportFileError):
        read(tmp_path, "openai", "[" * 1_000_000)


def test_sessions_of_json_lines_come_before_the_broken_line(tmp_path: Path) -> None:
    """What stands before a half-written line is yielded."""
    path = tmp_path / "chat.jsonl"
    path.write_text('[{"role": "user", "content": "hi"}]\n[{"role"', encoding="utf-8")
    sessions = read_transcript(path, "openai")
    assert next(sessions).session_id == "chat-1"
    with pytest.raises(ImportFileError, match=r"chat\.jsonl:2: not JSON"):
        next(sessions)


KEYS = """
    role content messages type text id hook event ctx message mapping current_node timestamp details
    created_at conversation sample_id session_1 session_1_date_time haystack_sessions runId author
    haystack_session_ids haystack_dates toolResult user assistant agent_end tool_calls
"""
WORDS = st.sampled_from(KEYS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)


@given(document=JSON | st.text(max_size=60), format=st.sampled_from(sorted(FORMATS)))
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, document: Any, format: str
) -> None:
    """Whatever a file holds, the answer is sessions or an ImportFileError."""
    path = tmp_path_factory.mktemp("any") / "chat.json"
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_text(text, encoding="utf-8")
    try:
        sessions = list(read_transcript(path, format))
    except ImportFileError:
        return
    assert all(session.turns and session.exchanges for session in sessions)


@pytest.mark.parametrize("format", ["locomo", "openclaw", "text"])
def test_importing_a_file_again_records_nothing_new(
    tmp_path: Path, home: Path, format: str
) -> None:
    """Run ids are the same at each reading, so the ledger recognises every message."""
    content: Any = {
        "locomo": locomo(),
        "openclaw": openclaw_messages(),
        "text": "# 2026-03-14\nAda: one\nBen: two\nAda: one\n",
    }[format]
    counts = []
    with MemTier.open(home) as memory:
        for _ in range(2):
            sessions = read(tmp_path, format, content)
            counts += [
                len(
                    memory.record(
                        run.messages,
                        session_id=session.session_id,
                        run_id=run.run_id,
                        observed_at=session.observed_at,
                    )
                )
                for session in sessions
                for run in session.exchanges
            ]
    assert all(counts[: len(counts) // 2])
    assert not any(counts[len(counts) // 2 :])
