"""The first page answers whether the memory works, and names the next step where it does not."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memtier_plugin.hosts import install
from memtier_plugin.memory import MemTier
from tests.builders import say
from tests.web.conftest import visit

PROMPT = "Which host does the shop run on?"


def set_up_host(memory: MemTier) -> None:
    """Install MemTier into a host of an own home folder."""
    install.install_host("gemini", memory.home, memory.project)


def record_line(memory: MemTier) -> None:
    """Record a line that answers the prompt."""
    say(memory, "The shop runs on the host heron.")


def ask(memory: MemTier) -> None:
    """Recall for a prompt of another session."""
    memory.recall(PROMPT, purpose="inject", session_id="next", run_id="r")


STEPS: tuple[tuple[Callable[[MemTier], object], str, str], ...] = (
    (lambda _: None, "Not yet", "memtier install"),
    (set_up_host, "Not yet", "gemini is set up."),
    (lambda memory: memory.note_hook("gemini.main", "agent_end", True), "Not yet", "A host calls"),
    (record_line, "Not yet", "No prompt has asked the memory yet."),
    (ask, "It works", "The last prompt got 1 line."),
    (lambda memory: memory.pause(), "There is a problem", "memtier on"),
)


@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda n: STEPS[n][2])
def test_the_verdict_of_a_first_day(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """From an empty project to the first recall, each step has its verdict and what comes next."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    with MemTier.open(home, "shop", "gemini.main") as memory:
        for step, _, _ in STEPS[: number + 1]:
            step(memory)
        page = html.unescape(visit(memory).get("/").text)
    _, verdict, why = STEPS[number]
    assert f'<h1 id="verdict">{verdict}</h1>' in page and why in page
    assert ("What to do next" in page) is (number < 2)


def test_a_failing_hook_is_a_problem(browser: TestClient, shop: MemTier) -> None:
    """An error of a hook is the verdict, and its agent is marked in the list of hosts."""
    shop.note_hook("codex.main", "agent_end", False, "the index is <locked>")
    page = browser.get("/").text
    assert "There is a problem" in page and "the index is &lt;locked&gt;" in page
    assert "memtier doctor" in page and ">fails<" in page


def test_the_last_run_the_last_recall_and_what_waits(browser: TestClient, shop: MemTier) -> None:
    """The newest prompt and what it got, the newest run, and the number to review stand there."""
    page = html.unescape(browser.get("/").text)
    recall = shop.events(kinds=["recall"])[-1]
    assert f'href="/recalls/{recall.id}"' in page and "We moved again" in page
    waiting = len(shop.knowledge.person.review_queue())
    assert f'href="/review">Review {waiting}</a>' in page
    assert "session=telegram%3Amara%3A3" in page
    shop.remember("The staging host is called robin.")  # in no host's run
    assert "session=telegram%3Amara%3A3" in browser.get("/").text


def test_a_forgotten_line_is_not_quoted(browser: TestClient, shop: MemTier) -> None:
    """What a prompt got and a person forgot since does not stand on the first page."""
    shop.remember("The canary is called Gerda.")
    shop.recall("What is the canary called?", purpose="inject", session_id="s", run_id="r")
    assert "is called Gerda" in browser.get("/").text
    shop.forget(ids=[entry.id for entry in shop.entries() if "Gerda" in entry.content])
    page = browser.get("/").text
    assert "is called Gerda" not in page and "(forgotten)" in page
