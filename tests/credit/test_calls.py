"""What a call rests on, and why a failure is nobody's fault."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.records import Message, ToolCall
from memtier_plugin.credit.calls import (
    JudgedCall,
    find_basis,
    is_same_call,
    judge_each,
    last_outcomes,
    outside_reason,
)
from memtier_plugin.credit.outcomes import judge_results
from memtier_plugin.text.tokenizer import plain_words

LINES = {
    "rsync": "Backups go to the shelf NAS with `rsync -a --delete`.",
    "restic": "We make backups with `restic backup --tag nightly`.",
    "innocent": "The shelf NAS was bought in spring by Ada.",
}
PROMPT = "Please run the backups."


def run_of(*tries: tuple[str, bool | None, str], tool: str = "exec") -> list[Message]:
    """Return the messages of a run with one call for each (command, outcome, result)."""
    messages = [Message(role="user", content=PROMPT)]
    for number, (command, ok, result) in enumerate(tries):
        call = ToolCall(name=tool, call_id=f"c{number}", arguments=f'{{"command": "{command}"}}')
        messages.append(Message(role="assistant", content="", tool_calls=(call,)))
        outcome = ToolCall(name=tool, call_id=f"c{number}", ok=ok)
        messages.append(Message(role="tool", content=result, tool=outcome))
    return messages


def judge(messages: list[Message]) -> list[JudgedCall]:
    """Return the calls of a run with their outcomes."""
    return judge_each(messages, judge_results(messages))


def basis_of(command: str, ok: bool = True, result: str = "done") -> dict[str, float]:
    """Return what one call rests on."""
    [call] = judge(run_of((command, ok, result)))
    return find_basis(call, LINES, PROMPT, plain_words)


@pytest.mark.parametrize(
    ("command", "used"),
    [
        ("rsync -a --delete /srv nas:/shelf", {"rsync"}),
        ("restic backup --tag nightly /srv", {"restic"}),
        ("ls -la", set()),
        ("duplicity /srv file:///mnt", set()),
    ],
)
def test_a_call_rests_on_the_line_that_it_took_its_command_from(
    command: str, used: set[str]
) -> None:
    """A line counts by what it alone adds to the prompt; one that is merely about it does not."""
    assert set(basis_of(command)) == used


def test_an_answer_that_restates_a_line_takes_no_credit_away() -> None:
    """Lines that say the same of a call share it; a rival that differs in what it took does not."""
    answer = "The shelf NAS gets the backups with `rsync -a --delete`, as always."
    [call] = judge(run_of(("rsync -a --delete /srv nas:/shelf", True, "done")))
    used = find_basis(call, LINES | {"answer": answer}, PROMPT, plain_words)
    assert set(used) == {"rsync", "answer"}
    rivals = {"custom": "Dump it with `pg_dump -Fc`.", "plain": "Dump it with `pg_dump -Fp`."}
    [call] = judge(run_of(("pg_dump -Fc shop", True, "done")))
    assert set(find_basis(call, rivals, PROMPT, plain_words)) == {"custom"}


@given(st.text(max_size=80), st.lists(st.text(max_size=60), max_size=5), st.text(max_size=40))
def test_shares_are_a_distribution(command: str, texts: list[str], prompt: str) -> None:
    """The shares of a call are positive and sum to 1, or there are none."""
    [call] = judge(run_of((command, True, "ok")))
    lines = {str(number): text for number, text in enumerate(texts)}
    shares = find_basis(call, lines, prompt, plain_words)
    assert all(share > 0 for share in shares.values())
    assert not shares or sum(shares.values()) == pytest.approx(1)


def test_a_retry_that_works_is_no_contradiction() -> None:
    """The last try of one call counts; another call in between does not change that."""
    tries = (("make deploy", False, "boom"), ("ls", True, "x"), ("make deploy", True, "ok"))
    calls = judge(run_of(*tries))
    assert [call.ok for call in calls] == [False, True, True]
    assert [(call.text, call.ok) for call in last_outcomes(calls)] == [
        ("ls", True),
        ("make deploy", True),
    ]
    assert is_same_call(calls[0], calls[2]) and not is_same_call(calls[0], calls[1])


@pytest.mark.parametrize(
    ("result", "code", "trouble"),
    [
        (os.strerror(errno.ENOSPC), 1, "no room"),
        ("connect ECONNRESET 10.0.0.7:443", 1, "the network"),
        ("fatal: unable to access: Could not resolve host: git.example.org", 128, "the network"),
        ("HTTP/1.1 503 Service Unavailable", 22, "the server"),
        ("API rate limit exceeded", 1, "a limit of requests"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend", 100, "a lock"),
        ("", 137, "it was killed"),
        ("UPGRADE FAILED: chart not compatible", 1, ""),
        ("pyproject.toml changed since poetry.lock was generated", 1, ""),
        ("3 failed, 20 passed", 1, ""),
        ("error: unknown option '--fast'", 2, ""),
    ],
)
def test_reasons_outside_the_memory(result: str, code: int, trouble: str) -> None:
    """A failure that no other recipe would have avoided has a reason; any other has none."""
    assert outside_reason(result, code) == trouble


def test_what_is_missing_blames_only_who_names_it() -> None:
    """A missing file that the model made up is no line's fault; one that a line names is."""
    invented = "rsync: link_stat '/srv/photos2031' failed: No such file or directory"
    assert basis_of("rsync -a --delete /srv/photos2031", False, invented) == {}
    gone = "bash: rsync: command not found"
    assert set(basis_of("rsync -a --delete /srv", False, gone)) == {"rsync"}


def test_the_words_of_a_stranger_are_no_outcome() -> None:
    """A page that speaks of an exit code states none; a command's own words do."""
    page = "The manual says: command exited with exit code 1"
    [fetched] = judge(run_of(("curl https://example.org", None, page)))
    [ran] = judge(run_of(("make", None, page)))
    assert fetched.ok is None and ran.ok is False
