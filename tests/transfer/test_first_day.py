"""What is there on the first day: sessions of coding agents, a repository's history and notes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import ImportFileError
from memtier_plugin.ingest.messages import Session
from memtier_plugin.memory import MemTier
from memtier_plugin.transfer.importers.discovery import find_sources
from memtier_plugin.transfer.importers.formats import detect_format, read_transcript
from tests.builders import user_message
from tests.processes import run_memtier

Left = list[tuple[str, str]]
WHEN = "2026-03-01T10:00:00.000Z"
TOKEN = "ghp_" + "aB3" * 12


def read(path: Path, form: str) -> tuple[list[Session], Left]:
    """Return the sessions of a file or folder, and what was left out."""
    left: Left = []
    return list(read_transcript(path, form, lambda *why: left.append(why))), left


def write_lines(path: Path, *records: Any) -> Path:
    """Write JSON Lines; bytes stay as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def claude(kind: str, key: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a line of a transcript of Claude Code."""
    message = {"role": kind, "content": content}
    head = {"type": kind, "uuid": key, "timestamp": WHEN, "sessionId": "s-1", "isSidechain": False}
    return {**head, "message": message, **more}


def claude_file(path: Path, *more: Any) -> Path:
    """Write a session as Claude Code 2.1 does, with a failed call."""
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make x"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "is_error": True}
    return write_lines(
        path,
        {"type": "queue-operation", "sessionId": "s-1", "timestamp": WHEN},
        claude("user", "u1", "My host is called pelican-9."),
        claude("user", "u2", "<system-reminder>\nBe good.\n</system-reminder>", isMeta=True),
        claude("assistant", "a1", [{"type": "thinking", "thinking": "hm"}]),
        claude("assistant", "a2", [{"type": "text", "text": "I try."}, call]),
        claude("user", "u3", [{**result, "content": "Exit code 2\nno rule"}]),
        claude("assistant", "a3", [{"type": "text", "text": "It failed."}], isSidechain=True),
        claude("assistant", "a4", [{"type": "text", "text": "Noted."}]),
        *more,
    )


def codex_file(path: Path, folder: str = "/work/shop") -> Path:
    """Write a session as Codex 0.171 does."""

    def item(kind: str, **fields: Any) -> dict[str, Any]:
        return {"timestamp": WHEN, "type": "response_item", "payload": {"type": kind, **fields}}

    def said(role: str, text: str) -> dict[str, Any]:
        return item("message", role=role, content=[{"type": "input_text", "text": text}])

    output = "Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code 3\nOutput:\nhello\n"
    return write_lines(
        path,
        {"timestamp": WHEN, "type": "session_meta", "payload": {"id": "c-1", "cwd": folder}},
        said("developer", "Be brief."),
        said("user", "<environment_context>\n<cwd>/work</cwd>\n</environment_context>"),
        said("user", "Use pnpm here."),
        {"timestamp": WHEN, "type": "event_msg", "payload": {"type": "token_count"}},
        item("function_call", name="exec_command", arguments='{"cmd": "x"}', call_id="k"),
        item("function_call_output", call_id="k", output=output),
        said("assistant", "Noted."),
    )


def gemini_file(path: Path) -> Path:
    """Write a session as Gemini CLI 0.61 does: a message is written again with its calls."""
    output = (
        "<untrusted_context>\nOutput: no\nExit Code: 3\nProcess Group PGID: 7\n</untrusted_context>"
    )
    response = {"functionResponse": {"response": {"output": output}}}
    call = {"id": "k", "name": "run_shell_command", "args": {"command": "x"}, "result": [response]}
    answer = {"id": "m2", "timestamp": WHEN, "type": "gemini", "content": ""}
    context = {"id": "m0", "timestamp": WHEN, "type": "user"}
    context["content"] = [{"text": "<session_context>\nhello\n</session_context>"}]  # type: ignore[assignment]
    return write_lines(
        path,
        {"sessionId": "g-1", "projectHash": "0", "startTime": WHEN},
        {"$set": {"messages": [context]}},
        {"id": "m1", "timestamp": WHEN, "type": "user", "content": [{"text": "The port is 4071."}]},
        answer,
        {**answer, "toolCalls": [{**call, "status": "success"}]},
        {"id": "m3", "timestamp": WHEN, "type": "user", "content": [response]},
        {"$set": {"messages": [context, answer]}},
        {"id": "m4", "timestamp": WHEN, "type": "gemini", "content": "Noted."},
    )


FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "claude-code": (claude_file, "s-1.jsonl"),
    "codex": (codex_file, "rollout-1.jsonl"),
    "gemini": (gemini_file, "session-1.jsonl"),
}


@pytest.mark.parametrize("form", FILES)
def test_a_session_of_a_coding_agent(form: str, tmp_path: Path) -> None:
    """Read are the prompt, the call with its exit code and the answer, none of the host's words."""
    write, name = FILES[form]
    path = write(tmp_path / "a" / name)
    assert detect_format(path) == detect_format(tmp_path / "a") == form
    [session], left = read(path, form)
    assert left == []
    roles = [m.role for m in session.messages if m.content or m.tool_calls]
    assert roles[0] == "user" and "tool" in roles and roles[-1] == "assistant"
    assert session.messages[-1].content == "Noted."
    [result] = [m for m in session.messages if m.tool]
    assert result.tool and result.tool.exit_code in (2, 3)
    assert result.origin == "tool" and "untrusted" not in result.content
    assert sum(m.role == "user" for m in session.messages) == 1
    assert len(session.exchanges) == 1
    assert session.observed_at and f"{session.observed_at:%Y-%m-%d}" == "2026-03-01"


@pytest.mark.parametrize("form", FILES)
def test_importing_a_session_twice_adds_nothing(form: str, tmp_path: Path, home: Path) -> None:
    """It goes to the host's agent, whose next prompt finds it; another import adds nothing."""
    write, name = FILES[form]
    write(tmp_path / "a" / name)

    def run(*more: str) -> Any:
        command = ("--project", "shop", "import", str(tmp_path / "a"), "--json")
        return json.loads(run_memtier(*command, *more).stdout)

    dry = run("--dry-run")
    first, second = run(), run()
    assert (first["format"], first["recorded"]) == (form, dry["new"])
    assert first["recorded"] > 3 and second["recorded"] == 0
    with MemTier.open(home, "shop", f"{form}.main") as memory:
        assert memory.recall("pelican-9 host pnpm port 4071").hits


def test_a_session_that_grew_adds_what_is_new(tmp_path: Path, home: Path) -> None:
    """Only the next turn is recorded."""
    counts = []
    more = claude("user", "u9", "And use tabs."), claude("assistant", "a9", "Fine.")
    with MemTier.open(home) as memory:
        for lines in ((), more):
            path = claude_file(tmp_path / "s-1.jsonl", *lines)
            sessions = read_transcript(path, "claude-code")
            counts.append(sum(map(len, memory.record_sessions(sessions))))
    assert counts == [5, 2]


def test_the_reason_of_a_refusal_is_imported_as_the_users(tmp_path: Path) -> None:
    """What a user refused a call with is theirs by the host's field; the call has no outcome."""
    text = "The user doesn't want to proceed. To tell you how to proceed, the user said:\nNo tabs."
    lines = []
    for number, denied in enumerate(({"toolDenialKind": "user-rejected"}, {})):
        call = {"type": "tool_use", "id": f"r{number}", "name": "Edit", "input": {"file_path": "x"}}
        result = {"type": "tool_result", "tool_use_id": f"r{number}", "content": text}
        lines.append(claude("assistant", f"b{number}", [call]))
        lines.append(claude("user", f"v{number}", [{**result, "is_error": True}], **denied))
    [session], _ = read(claude_file(tmp_path / "s-1.jsonl", *lines), "claude-code")
    spoken = [m.content for m in session.messages if m.role == "user"]
    assert spoken == ["My host is called pelican-9.", "No tabs."]
    assert [m.tool.ok for m in session.messages if m.tool] == [False, None, False]


def test_a_call_refused_without_a_word_is_imported(tmp_path: Path) -> None:
    """It is told as the user's act; one that the host itself denied is not."""
    lines = []
    for number, denial in enumerate(("user-rejected", "permission-rule")):
        command = {"command": f"rm -r Entwürfe{number}"}
        call = {"type": "tool_use", "id": f"r{number}", "name": "Bash", "input": command}
        result = {"type": "tool_result", "tool_use_id": f"r{number}", "content": "Rejected."}
        lines.append(claude("assistant", f"b{number}", [call]))
        lines.append(claude("user", f"v{number}", [result], toolDenialKind=denial))
    [session], _ = read(claude_file(tmp_path / "s-1.jsonl", *lines), "claude-code")
    acts = [m.content for m in session.messages if (m.role, m.origin) == ("system", "user")]
    assert acts == ["The user refused `rm -r Entwürfe0`."]


def test_answers_to_questions_are_imported_as_the_users(tmp_path: Path) -> None:
    """What a user answered stands after its question, as their word."""
    call = {"type": "tool_use", "id": "q1", "name": "AskUserQuestion", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "q1", "content": "Your questions: answered."}
    chosen = {"answers": {"Tabs or spaces?": "tabs", "How many?": "one"}}
    lines = (
        claude("assistant", "b1", [call]),
        claude("user", "v1", [result], toolUseResult=chosen),
    )
    [session], _ = read(claude_file(tmp_path / "s-1.jsonl", *lines), "claude-code")
    spoken = [m.content for m in session.messages if m.role == "user"]
    assert spoken[1:] == ["Tabs or spaces? tabs", "How many? one"]


def test_a_session_that_the_hooks_recorded_is_left_out(tmp_path: Path, home: Path) -> None:
    """What was recorded when it took place is not recorded again, and the report says so."""
    path = claude_file(tmp_path / "s-1.jsonl")
    with MemTier.open(home, "shop", "claude-code.main") as memory:
        memory.record([user_message("My host is called pelican-9.")], session_id="s-1", run_id="r")
    result = run_memtier("--project", "shop", "import", str(path), "--json")
    done = json.loads(result.stdout)
    assert done["recorded"] == 0
    assert done["why"][0]["why"] == "recorded when it took place"


def test_a_broken_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    """A line that is not JSON or no record is reported with its file and line."""
    path = claude_file(tmp_path / "a" / "s-1.jsonl", b'{"type": "user"', b"\xff\xfe", b"[1]")
    [session], left = read(path, "claude-code")
    assert len(session.messages) == 5
    assert [location for location, _ in left] == [f"{path}:{n}" for n in (9, 10, 11)]
    (tmp_path / "a" / "broken.jsonl").write_bytes(b"\xff\n")
    (tmp_path / "a" / "link.jsonl").symlink_to(path)
    sessions, left = read(tmp_path / "a", "claude-code")
    assert len(sessions) == 1 and len(left) == 4


@given(st.lists(st.binary(max_size=80), max_size=4), st.data())
def test_any_bytes_give_sessions_or_a_clear_error(
    tmp_path: Path, lines: list[bytes], data: st.DataObject
) -> None:
    """Whatever stands in a file, each line is read or named, and nothing else is raised."""
    form = data.draw(st.sampled_from(sorted(FILES)))
    good = FILES[form][0](tmp_path / "good.jsonl").read_bytes().splitlines()
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
        ),
        max_leaves=12,
    )
    odd = [json.dumps(data.draw(values)).encode() for _ in range(3)]
    path = tmp_path / "session-x.jsonl"
    path.write_bytes(b"\n".join([*good[:1], *odd, *lines, *good[1:]]))
    left: Left = []
    try:
        sessions = list(read_transcript(path, form, lambda *why: left.append(why)))
    except ImportFileError as error:
        assert str(path) in str(error)
        return
    assert all(str(path) in location for location, _ in left)
    assert any(m.content == "Noted." for s in sessions for m in s.messages)


KEYS = (
    *("type", "message", "content", "uuid", "timestamp", "sessionId", "payload", "role", "text"),
    *("messages", "$set", "toolCalls", "id", "call_id", "output", "result", "input", "arguments"),
)


# -- a repository ----------------------------------------------------------------------------------


def git(folder: Path, *arguments: str, when: str = "2026-02-03T08:00:00+00:00") -> None:
    """Run git in a folder as Ana, at a time."""
    names = {f"GIT_{role}_NAME": "Ana" for role in ("AUTHOR", "COMMITTER")}
    mails = {f"GIT_{role}_EMAIL": "ana@example.com" for role in ("AUTHOR", "COMMITTER")}
    times = {f"GIT_{role}_DATE": when for role in ("AUTHOR", "COMMITTER")}
    nowhere = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ("git", "-C", str(folder), *arguments),
        check=True,
        capture_output=True,
        env={**os.environ, **names, **mails, **times, **nowhere},
    )


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a repository with notes, a decision, and a commit that was taken back."""
    folder = (tmp_path / "shop").resolve()
    (folder / "docs/adr").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "AGENTS.md").write_text(f"# Shop\n\n## Tools\n- Use pnpm.\n- Token: {TOKEN}\n")
    decision = "# 1. Use Postgres\n\n## Decision\nOrders are in Postgres.\n"
    (folder / "docs/adr/0001-postgres.md").write_text(decision)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Begin\n\nWith notes.\n\nSigned-off-by: Ana <a@b>")
    (folder / "cache.py").write_text("x")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Cache prices")
    git(folder, "rm", "-q", "cache.py")
    why = f"This reverts commit {'a' * 40}.\n\nPrices were stale."
    git(folder, "commit", "-q", "-m", f'Revert "Cache prices"\n\n{why}', when="2026-02-04T08:00Z")
    return folder


def test_the_history_of_a_repository(shop: Path) -> None:
    """Each commit is an entry with its date and files; what was taken back is a lesson besides."""
    assert detect_format(shop) == "git"
    sessions, left = read(shop, "git")
    assert left == []
    texts = [session.messages[0].content for session in sessions]
    first = "by Ana: Begin\nWith notes.\nTouched: AGENTS.md, docs/adr/0001-postgres.md"
    assert texts[0].endswith(first) and len(texts) == 4
    assert texts[3] == '"Cache prices" was tried and taken back on 2026-02-04: Prices were stale.'
    assert {m.origin for s in sessions for m in s.messages} == {"external"}
    assert [f"{s.observed_at:%m-%d}" for s in sessions] == ["02-03", "02-03", "02-04", "02-04"]
    with pytest.raises(ImportFileError, match="not a work tree"):
        read(shop.parent, "git")


def test_a_message_that_is_no_utf_8(shop: Path, home: Path) -> None:
    """It is read with marks in the place of what is no text, and recorded."""
    (shop / "message").write_bytes(b"Fix caf\xe9 \x1f prices")
    git(shop, "commit", "-q", "--allow-empty", "-F", "message")
    done = json.loads(run_memtier("--project", "shop", "import", str(shop), "--json").stdout)
    assert done["recorded"] + done["left_out"] == 5


def test_the_notes_of_a_project(shop: Path) -> None:
    """Notes have the date of their file's last commit; a decision's parts have its title."""
    assert detect_format(shop / "AGENTS.md") == "project-notes"
    assert detect_format(shop / "docs/adr/0001-postgres.md") == "project-notes"
    sessions, left = read(shop, "project-notes")
    assert left == []
    assert [session.messages[0].content for session in sessions] == [
        "## Tools\nUse pnpm.",
        f"## Tools\nToken: {TOKEN}",
        "# 1. Use Postgres, Decision\nOrders are in Postgres.",
    ]
    assert {f"{session.observed_at:%Y-%m-%d}" for session in sessions} == {"2026-02-03"}


def test_notes_elsewhere_are_not_read(shop: Path, tmp_path: Path) -> None:
    """A link leads to no file outside of the folder, whether it is the file or a folder above."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/0002-key.md").write_text("# Key\n\nIt is 1234.\n")
    (shop / "adr").symlink_to(tmp_path / "secret")
    (shop / "CLAUDE.md").symlink_to(tmp_path / "secret/0002-key.md")
    sessions, left = read(shop, "project-notes")
    assert len(sessions) == 3
    assert {why for _, why in left} == {"a symlink is not followed", "outside of the folder"}


def test_init_offers_what_is_there(
    shop: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows counts, and reads nothing unless told to; then all of it, once, secrets masked."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(shop)
    user = tmp_path / "user"
    name = str(shop).replace("/", "-").replace("_", "-").replace(".", "-")
    claude_file(user / ".claude/projects" / name / "s-1.jsonl")
    codex_file(user / ".codex/sessions/2026/03/01/rollout-1.jsonl", str(shop))
    codex_file(user / ".codex/sessions/2026/03/01/rollout-2.jsonl", "/elsewhere")
    gemini_file(user / ".gemini/tmp/shop/chats/session-1.jsonl")
    (user / ".gemini/tmp/shop/.project_root").write_text(str(shop))

    def init(*more: str) -> Any:
        return json.loads(run_memtier("init", "--json", *more).stdout)

    offered = {row["format"]: row["items"] for row in init()["to import"]}
    assert offered == {"git": 3, "project-notes": 2, "claude-code": 1, "codex": 2, "gemini": 1}
    assert not [*home.rglob("episodic/*/*.jsonl")]
    assert "to import" not in init("--no-import")
    done = {row["format"]: row["recorded"] for row in init("--import")["imported"]}
    assert done == {"git": 4, "project-notes": 3, "claude-code": 5, "codex": 4, "gemini": 4}
    again = init("--import")["imported"]
    assert sum(row["recorded"] + row["proposed"] for row in again) == 0
    kept = b"".join(path.read_bytes() for path in home.rglob("*.jsonl"))
    assert TOKEN.encode() not in kept and b"redacted:" in kept


def test_nothing_is_offered_where_nothing_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty folder has nothing to import, and other folders' sessions are none of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    claude_file(tmp_path / ".claude/projects/-other" / "s-1.jsonl")
    (tmp_path / "empty").mkdir()
    assert find_sources(tmp_path / "empty") == []
