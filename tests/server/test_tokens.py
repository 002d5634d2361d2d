"""Tokens: what is one, what it reaches, and that no other text is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.errors import NotFound, NotGranted, SettingsError
from memtier_plugin.core.results import RunContext
from memtier_plugin.server.access import Grant, Tokens
from tests.processes import run_memtier

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.data())
def test_only_the_token_itself_is_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """No other text is taken for it: neither a piece, nor a longer one, nor one that is changed."""
    tokens = Tokens(tmp_path_factory.mktemp("home"))
    text, grant = tokens.new(["shop"])
    assert tokens.check(text) == grant
    cut = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.text(max_size=3))
    for changed in (text[:cut], text[:cut] + other + text[cut + 1 :], text + (other or "x"), other):
        assert changed == text or tokens.check(changed) is None


@given(st.lists(NAMES, min_size=1, max_size=3), NAMES, st.none() | NAMES, st.none() | NAMES, NAMES)
def test_a_grant_reaches_no_more_than_it_says(
    projects: list[str], project: str, agent: str | None, sender: str | None, other: str
) -> None:
    """A context passes exactly where its project, agent and sender are all granted."""
    grant = Grant("id", "", tuple(projects), agent, sender)
    for run in (
        RunContext(agent_id=agent or other, project=project, sender=sender),
        RunContext(agent_id=other, project=projects[0].rstrip("*") or "x", sender=None),
        RunContext(agent_id=agent or other, project=projects[0], sender=other),
    ):
        name = str(run.project)
        reached = any(
            name == each or (each[-1] == "*" and name.startswith(each[:-1]))
            for each in projects
            if each[-1] == "*" or name == each
        )
        covered = agent is None or f"{run.agent_id}.".startswith(f"{agent}.")
        known = sender is None or run.sender in (None, sender)
        if reached and covered and known:
            assert grant.check(run).sender == (run.sender if sender is None else sender)
        else:
            with pytest.raises(NotGranted):
                grant.check(run)


def test_a_token_ends(home: Path) -> None:
    """One that has expired, or was revoked by another process, holds no more; others do."""
    tokens = Tokens(home)
    past = datetime.now(UTC) - timedelta(seconds=1)
    over, _ = tokens.new(["shop"], expires=past)
    text, grant = tokens.new(["shop"], name="front", expires=past + timedelta(days=1))
    assert tokens.check(over) is None and tokens.check(text) == grant
    Tokens(home).revoke("front")
    assert tokens.check(text) is None
    for _ in range(2):
        tokens.new(["shop"], name="twice")
    with pytest.raises(NotFound, match="2 tokens"):
        tokens.revoke("twice")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"tokens": [{"id": "x"}]}', '{"tokens": [{}]}'])
def test_a_damaged_file(home: Path, text: str) -> None:
    """It lets nobody in, and is named with its remedy; the server does not start with it."""
    text_of, _ = Tokens(home).new(["shop"])
    (home / "tokens.json").write_text(text)
    with pytest.raises(SettingsError, match="memtier token new"):
        Tokens(home).check(text_of)
    answer = run_memtier("--home", home, "serve", "--tcp", "127.0.0.1:0", code=1).output
    assert "tokens.json" in answer


def test_the_command(home: Path) -> None:
    """A token is shown once, for the project of the command if none is named; revoke ends it."""
    scope = ("--json", "--home", home, "--project", "harbor")
    made = json.loads(
        run_memtier(*scope, "token", "new", "--days", "30", "--only-agent", "a").output
    )
    grant = Tokens(home).check(made["token"])
    assert grant and grant.projects == ("harbor",) and (grant.agent, grant.sender) == ("a", None)
    [listed] = json.loads(run_memtier(*scope, "token", "list").output)["tokens"]
    assert "token" not in listed and listed["id"] == made["id"] and not listed["over"]
    run_memtier(*scope, "token", "revoke", made["id"])
    assert json.loads(run_memtier(*scope, "token", "list").output) == {"tokens": []}
