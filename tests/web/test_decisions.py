"""What a person decides in the web view is written as in the terminal, and can be taken back."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memtier_plugin.facts.views import FactView
from memtier_plugin.memory import MemTier
from tests.builders import say
from tests.web.conftest import OWN, visit
from tests.web.shop import AGENT
from tests.web.test_pages import first_id

INLINE = {**OWN, "HX-Request": "true"}
WISH = "Remind me to rotate the certificate when we next touch the gateway."


def views_by_text(memory: MemTier) -> dict[str, FactView]:
    """Return every fact by its text, those that do not hold included."""
    facts = memory.knowledge.person.facts(include_superseded=True)
    return {view.fact.text: view for view in facts}


def test_review(browser: TestClient, shop: MemTier) -> None:
    """What waits is accepted, rejected, or replaced by a new version; the old one is kept."""
    waiting = shop.knowledge.person.review_queue()
    assert len(waiting) >= 2 and waiting[0].text in html.unescape(browser.get("/review").text)
    first, second = waiting[0].id, waiting[1].id
    assert "1 of 2" in browser.get("/review").text
    done = browser.post("/review", data={"id": first, "decision": "accept", "of": "2"}, headers=OWN)
    assert "now <strong>active" in done.text and waiting[1].text in html.unescape(done.text)
    assert "2 of 2" in done.text and "1 of 2" not in done.text  # counted on in this sitting
    wording = "The staging host is called robin."
    form = {"id": second, "decision": "edit", "text": wording}
    assert browser.post("/review", data=form, headers=OWN).status_code == 200
    views = {view.fact.text: view for view in shop.knowledge.person.facts(include_superseded=True)}
    assert views[wording].state == "active"
    assert views[waiting[1].text].state == "superseded"
    again = browser.post("/review", data={"id": "ZZZZ", "decision": "reject"}, headers=OWN)
    assert again.status_code == 404
    assert browser.post("/review", data={"decision": "accept"}, headers=OWN).status_code == 400


def test_a_fact_is_corrected(browser: TestClient, shop: MemTier) -> None:
    """A fact that holds gets the person's words on its page; the old ones stay as its history."""
    wrong = next(view for view in shop.knowledge.person.facts() if view.state == "active")
    page = browser.get(f"/lines/{wrong.fact.id}").text
    assert 'action="/reword"' in page and "Correct" in page
    words = "The deploy key is turned on Thursdays."
    form = {"id": wrong.fact.id[-8:], "text": words}
    done = browser.post("/reword", data=form, headers=OWN)
    assert "Corrected" in done.text and words in html.unescape(done.text)
    views = {view.fact.text: view for view in shop.knowledge.person.facts(include_superseded=True)}
    assert (views[words].state, views[wrong.fact.text].state) == ("active", "superseded")
    again = browser.post("/reword", data=form, headers=OWN)
    assert again.status_code == 404 and "superseded meanwhile" in again.text
    assert "/reword" not in browser.get(f"/lines/{wrong.fact.id}").text
    entry = first_id(shop, "the platform team rotates it")
    assert "/reword" not in browser.get(f"/lines/{entry}").text
    assert browser.post("/reword", data={**form, "id": entry}, headers=OWN).status_code == 404
    for unusable in (" ", f" {words} "):
        form = {"id": views[words].fact.id, "text": unusable}
        assert browser.post("/reword", data=form, headers=OWN).status_code == 400


def test_a_correction_is_undone(browser: TestClient, shop: MemTier) -> None:
    """Where a fact was corrected it can be taken back: its first words hold again, ours do not."""
    wrong = next(view.fact for view in shop.knowledge.person.facts())
    words = "The deploy key is turned on Thursdays."
    assert "/undo" not in browser.get(f"/lines/{wrong.id}").text
    done = browser.post("/reword", data={"id": wrong.id, "text": words}, headers=INLINE).text
    new = views_by_text(shop)[words].fact.id
    assert "<html" not in done and f'value="{new}"' in done and 'action="/undo"' in done
    assert 'action="/undo"' in browser.get(f"/lines/{new}").text
    undone = browser.post("/undo", data={"id": new}, headers=INLINE).text
    assert wrong.text in html.unescape(undone)
    assert views_by_text(shop)[wrong.text].state == "active"
    assert words not in views_by_text(shop)
    assert browser.post("/undo", data={"id": wrong.id}, headers=OWN).status_code == 400


def test_facts_are_corrected_where_they_are_listed(browser: TestClient, shop: MemTier) -> None:
    """Each fact that holds has its forms on the list; none that does not hold has any."""
    active = [view.fact for view in shop.knowledge.person.facts()]
    listed = browser.get("/facts").text
    for path in ("/reword", "/forget"):
        assert listed.count(f'action="{path}"') == len(active)
    proposed = browser.get("/facts?state=proposed").text
    assert "/lines/" in proposed and "/reword" not in proposed


def test_a_rule_is_withdrawn(browser: TestClient, shop: MemTier) -> None:
    """A rule stands there with what came of it; withdrawn after a question, it can be restored."""
    rule = shop.knowledge.person.rules()[-1]
    listed = html.unescape(browser.get("/facts/rules").text)
    assert rule.fact.text in listed and "said once, shown never" in listed
    asked = browser.post("/forget", data={"id": rule.fact.id}, headers=INLINE).text
    assert "Forget?" in asked and rule.fact in [r.fact for r in shop.knowledge.person.rules()]
    form = {"id": rule.fact.id, "confirmed": "yes"}
    done = browser.post("/forget", data=form, headers=INLINE).text
    assert "Bring back" in done
    assert rule.fact.text not in html.unescape(browser.get("/facts/rules").text)
    browser.post("/unforget", data={"id": rule.fact.id}, headers=INLINE)
    assert rule.fact.text in html.unescape(browser.get("/facts/rules").text)


@pytest.mark.parametrize("why", ("done", "dismissed"))
def test_an_intention_is_closed(home: Path, why: str) -> None:
    """What a user wants to be reminded of is closed on its page, and opened again."""
    with MemTier.open(home, "shop", AGENT, settings={"facts.intentions": True}) as memory:
        say(memory, WISH)
        memory.consolidate()
        browser = visit(memory)
        [intention] = memory.knowledge.person.todo()
        page = browser.get("/facts/todo").text
        assert WISH in page and "touch the gateway" in page
        form = {"id": intention.fact.id, "why": why}
        closed = browser.post("/close", data=form, headers=INLINE).text
        assert why.capitalize() in closed and memory.knowledge.person.todo() == []
        assert "Nothing to be reminded of" in browser.get("/facts/todo").text
        again = dict(re.findall(r'name="(id|decision)" value="(\w+)"', closed))
        browser.post("/review", data=again, headers=INLINE)
        assert [each.fact.id for each in memory.knowledge.person.todo()] == [intention.fact.id]
        wrong = browser.post("/close", data={**form, "why": "never"}, headers=OWN)
        assert wrong.status_code == 400


def test_a_rejection_is_taken_back(browser: TestClient, shop: MemTier) -> None:
    """What was rejected in error is accepted from the notice of its rejection."""
    item = shop.knowledge.person.review_queue()[0]
    form = {"id": item.id, "decision": "reject"}
    notice = browser.post("/review", data=form, headers=INLINE).text
    assert "Accept after all" in notice and item.text in html.unescape(notice)
    browser.post("/review", data={"id": item.id, "decision": "accept"}, headers=INLINE)
    assert views_by_text(shop)[item.text].state == "active"


def test_a_rewording_in_the_review_waits_again(browser: TestClient, shop: MemTier) -> None:
    """Undone, a new version of what waited is gone, and the old one waits as before."""
    item = shop.knowledge.person.review_queue()[-1]
    form = {"id": item.id, "decision": "edit", "text": "The staging host is called robin."}
    notice = browser.post("/review", data=form, headers=INLINE).text
    new = views_by_text(shop)[form["text"]].fact.id
    assert 'action="/undo"' in notice and new in notice
    browser.post("/undo", data={"id": new}, headers=INLINE)
    assert [each.id for each in shop.knowledge.person.review_queue()][-1] == item.id


def test_a_forget_that_waits_is_decided(browser: TestClient, shop: MemTier) -> None:
    """Accepted, a forget hides the fact that it is about; its notice restores it."""
    fact = shop.knowledge.person.facts()[0].fact
    shop.knowledge.propose_forget([fact.id])
    item = next(i for i in shop.knowledge.person.review_queue() if i.kind == "forget")
    form = {"id": item.id, "decision": "accept"}
    notice = browser.post("/review", data=form, headers=INLINE).text
    assert f"/lines/{fact.id}" in notice and "Bring back" in notice
    assert browser.get(f"/lines/{fact.id}").status_code == 200
    browser.post("/unforget", data={"id": fact.id}, headers=INLINE)
    assert views_by_text(shop)[fact.text].state == "active"
