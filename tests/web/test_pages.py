"""What the pages show is what the memory knows, and what a person decides there is written."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from memtier_plugin.core import plugins
from memtier_plugin.hosts import install
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.hook_calls import HookWait, note_waits
from memtier_plugin.telemetry.bill import read_bill
from tests.builders import say
from tests.web.conftest import OWN
from tests.web.test_guard import ledger_digest


def first_id(memory: MemTier, words: str) -> str:
    """Return the id of the first entry with these words."""
    return next(entry.id for entry in memory.entries() if words in entry.content)


def test_every_link_leads_somewhere(browser: TestClient) -> None:
    """No page of a project in use has a dead link, and none fails."""
    seen, to_do = set[str](), ["/", "/purge"]
    while to_do and len(seen) < 60:
        address = to_do.pop()
        if address in seen:
            continue
        seen.add(address)
        answer = browser.get(address)
        assert answer.status_code == 200, address
        for link in re.findall(r'href="([^"]+)"', answer.text):
            link = link.replace("&amp;", "&")
            to_do.append(address.partition("?")[0] + link if link[0] == "?" else link)
    assert len(seen) >= 40


def test_the_log_of_a_day(browser: TestClient, shop: MemTier) -> None:
    """The newest day comes first, with who said what; a session and an agent narrow it."""
    page = browser.get("/log").text
    assert "kestrel" in page and "osprey" not in page and "Mara" in page
    other = re.search(r'rel="prev" href="([^"]+)"', page)
    assert other and "short answers" in browser.get("/log" + other[1].replace("&amp;", "&")).text
    assert "kestrel" in browser.get("/log?session=telegram:mara:3").text
    assert "Nothing was said" in browser.get("/log?agent=nobody").text
    assert browser.get("/log?day=yesterday").status_code == 400
    assert browser.get("/log?page=0").status_code == 400


def test_a_line(browser: TestClient, shop: MemTier) -> None:
    """A line has its weight over time, the runs that moved it, and the recalls it was part of."""
    weighed = max(shop.entries(), key=lambda entry: entry.cognitive_weight)
    page = browser.get(f"/lines/{weighed.id[-8:]}").text
    assert "data-plot" in page and "run-" in page and "/recalls/" in page
    assert browser.get("/lines/ZZZZZZZZ").status_code == 404


def test_why_a_recall_chose_its_lines(browser: TestClient) -> None:
    """A recall has its signals as bars, the near misses, the block, or why it was silent."""
    page = browser.get("/recalls").text
    assert "silent:" in page
    [first, *_] = re.findall(r'href="/recalls/(\w+)"', page)
    recall = browser.get(f"/recalls/{first}").text
    for words in ("What the prompt got", "<rect", "Narrowly missed", "word for word", "memtier-"):
        assert words in recall
    assert browser.get("/recalls/ZZZZZZZZ").status_code == 404


def test_a_search_now_and_then(browser: TestClient, shop: MemTier) -> None:
    """A search shows the hits with those for a prompt; as of a time only what was said by then."""
    now = browser.post(
        "/search", data={"query": "Which host is the shop on?", "sender": "mara"}, headers=OWN
    ).text
    assert "kestrel" in now and "for the prompt" in now and "why these" in now
    day = min(shop.entries(), key=lambda entry: entry.observed_at).observed_at
    form = {
        "query": "Which host is the shop on?",
        "sender": "mara",
        "as_of": f"{day:%Y-%m-%dT23:00}",
    }
    then = browser.post("/search", data=form, headers=OWN).text
    assert "heron" in then and "kestrel" not in then and "why these" not in then
    bad = browser.post("/search", data={"query": "x", "as_of": "some day"}, headers=OWN)
    assert bad.status_code == 400
    before = ledger_digest(shop)
    other = browser.post("/search", data={"query": "x", "agent": "nobody"}, headers=OWN)
    assert other.status_code == 404 and ledger_digest(shop) == before


def test_a_search_of_every_agent(browser: TestClient, shop: MemTier) -> None:
    """Without an agent all that was recorded is searched; with one, its own."""
    with MemTier.open(shop.home, shop.project, "codex.main") as other:
        say(other, "The stocktaking scanner is called Bernhard.")
    form = {"query": "What is the stocktaking scanner called?", "sender": ""}
    for agent, is_there in (("", True), ("codex.main", True), (shop.agent_id, False)):
        page = browser.post("/search", data=form | {"agent": agent}, headers=OWN).text
        assert ("Bernhard" in page) is is_there, agent
        chosen = re.search(r"<option selected>([^<]*)", page)
        assert (chosen[1] if chosen else "") == agent


@pytest.mark.parametrize(
    "text", ("\x00", "../..", "' OR 1=1 --", "🦉" * 300, "%ED%A0%80", "{{7*7}}")
)
def test_odd_addresses(browser: TestClient, text: str) -> None:
    """Whatever stands in an address or a form, the answer is a page that says what is wrong."""
    odd = quote(text, safe="%")
    paths = [f"/lines/{odd}", f"/recalls/{odd}", f"/facts/about/{odd}", f"/{odd}"]
    paths += [f"/log?{name}={odd}" for name in ("agent", "session", "day", "page")]
    paths += [f"/facts?{name}={odd}" for name in ("query", "state", "page")]
    answers = [browser.get(path) for path in paths]
    posted = ("/review", "/reword", "/undo", "/close", "/forget", "/unforget", "/purge", "/search")
    for path in posted:
        form = {"id": text, "session": text, "decision": text, "query": text, "agent": text}
        answers.append(browser.post(path, data=form, headers=OWN))
    assert {answer.status_code for answer in answers} <= {200, 303, 307, 400, 404}
    assert not [answer for answer in answers if answer.status_code == 200 and ">49<" in answer.text]


def test_forget_is_asked_twice_and_undone(browser: TestClient, shop: MemTier) -> None:
    """The first request shows what would go with a line; only the confirmed one hides it."""
    words = "the platform team rotates it"
    line = first_id(shop, words)
    asked = browser.post("/forget", data={"id": line}, headers=OWN).text
    assert "Forget?" in asked and words in browser.get("/log").text
    browser.post("/forget", data={"id": line, "confirmed": "yes"}, headers=OWN)
    assert words not in browser.get("/log").text
    hidden = browser.get(f"/lines/{line}").text
    assert "Forgotten" in hidden and words not in hidden
    browser.post("/unforget", data={"id": line}, headers=OWN)
    assert words in browser.get("/log").text


def test_a_whole_session_is_forgotten(browser: TestClient, shop: MemTier) -> None:
    """A session goes as a whole, of the agent that is named, once that was confirmed."""
    form = {"session": "telegram:mara:3", "agent": "openclaw.main"}
    assert "Forget the whole session" in browser.get("/log?session=telegram:mara:3").text
    asked = browser.post("/forget", data=form, headers=OWN).text
    assert 'name="session" value="telegram:mara:3"' in asked
    browser.post("/forget", data={**form, "confirmed": "yes"}, headers=OWN)
    assert not [entry for entry in shop.entries() if entry.session_id == form["session"]]
    assert [entry for entry in shop.entries() if entry.session_id == "telegram:mara:2"]


@pytest.mark.parametrize("form", ({}, {"session": ""}, {"agent": "openclaw.main"}))
def test_nobody_forgets_everything_by_mistake(
    browser: TestClient, shop: MemTier, form: dict[str, str]
) -> None:
    """A request that names nothing, or a whole agent, hides and purges nothing."""
    for path in ("/forget", "/purge"):
        answer = browser.post(path, data={**form, "confirmed": "yes"}, headers=OWN)
        assert answer.status_code == 400


def test_purge_with_a_receipt(browser: TestClient, shop: MemTier) -> None:
    """A purge shows every copy first; confirmed for these copies it erases them, with a receipt."""
    asked = browser.post("/purge", data={"text": "kestrel"}, headers=OWN).text
    count = re.search(r'name="expected" value="(\d+)"', asked)
    assert count and int(count[1]) > 0
    other = {"text": "kestrel", "confirmed": "yes", "expected": "1"}
    assert "copies have changed" in browser.post("/purge", data=other, headers=OWN).text
    assert "kestrel" in browser.get("/log").text
    done = browser.post("/purge", data={**other, "expected": count[1]}, headers=OWN).text
    assert "No copy is left in reach" in done and "Receipt" in done
    assert "kestrel" not in browser.get("/log").text


def test_health(browser: TestClient, shop: MemTier) -> None:
    """Health has what is degraded, each hook's last call and latency, disk, and injected tokens."""
    shop.note_hook("openclaw.main", "agent_end", True, ms=12)
    shop.note_hook("openclaw.main", "before_prompt_build", False, "the index is <locked>", ms=900)
    page = browser.get("/health").text
    assert "the index is &lt;locked&gt;" in page and "900" in page
    assert "episodic" in page and "tokens a turn" in page


def test_people(browser: TestClient) -> None:
    """Who spoke stands there by name."""
    assert "Mara Lindqvist" in browser.get("/people").text


def test_pages_of_plugins(browser: TestClient) -> None:
    """The health page links to each page that a plugin adds, and it is served."""
    health = browser.get("/health").text
    for page in plugins.find_web_pages():
        assert f'<a href="{page.path}">{page.link}</a>' in health
        assert page.title in browser.get(page.path).text


def test_the_bill(browser: TestClient, shop: MemTier) -> None:
    """The bill is that of `memtier bill`, of all turns or of the last days."""
    bill = read_bill(shop.store, None)
    page = browser.get("/bill").text
    assert f"{bill.blocks} of {bill.turns}" in page and "No host has reported" in page
    assert bill.turns and "0 of 0" not in browser.get("/bill?days=30").text
    assert browser.get("/bill?days=x").status_code == 400


def test_a_host_that_went_silent(
    browser: TestClient, shop: MemTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page and the health page tell of a host whose sessions go on without a call."""
    assert "last called MemTier" not in browser.get("/health").text
    monkeypatch.setenv("HOME", str(tmp_path))
    install.install_host("gemini", shop.home, shop.project)
    called = shop.actor.clock() - timedelta(days=9)
    wait = HookWait(shop.project, "gemini.main", "before_prompt_build", 9)
    note_waits(shop.home, "gemini", [wait], called)
    session = tmp_path / ".gemini/tmp/work/chats/session-1.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text("{}")
    used = (called + timedelta(days=2)).timestamp()
    os.utime(session, (used, used))
    for path in ("/", "/health"):
        assert "gemini last called MemTier on" in browser.get(path).text
