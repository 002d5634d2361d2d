"""The web view in a real Chromium: hostile texts, hostile pages, a live tab, keys alone, looks."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from memtier_plugin.memory import MemTier
from memtier_plugin.web.snapshot import export_html
from scripts import take_screenshots
from tests.attacks.suite import SETS, cases
from tests.processes import wait_until
from tests.web.chromium import CHROMIUM, SWITCHES, TOKEN, served
from tests.web.test_guard import ledger_digest

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
EVIL_PAGE = Path(__file__).with_name("evil_page.html")
INERT = Path(__file__).with_name("inert.js")
AUDIT = Path(__file__).with_name("audit.js")
WEB_PAGE = Path(__file__).parents[2] / "docs" / "web.md"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 360, "height": 780}},
}
# What is known to run where text is put into a page as it is.
INJECTIONS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg/onload=window.pwned=1>",
    '"><script>window.pwned=1</script>',
    "' autofocus onfocus=window.pwned=1 x='",
    "javascript:window.pwned=1",
    "<a href=javascript:window.pwned=1 id=main>x</a>",
    "</textarea><script>window.pwned=1</script>",
    "</title><script>window.pwned=1</script>",
    "{{ ''.__class__ }}{% raw %}",
    "<div hx-get=/purge hx-trigger=load hx-on::load=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<style>*{background:url(http://evil.example/)}</style>",
    "<base href=http://evil.example/><meta http-equiv=refresh content=0;url=http://evil.example>",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="needs Chromium: apt install chromium"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Return a browser that reaches this machine alone."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture
def address(shop: MemTier) -> Iterator[str]:
    """Serve the shop."""
    with served(shop) as where:
        yield where


@dataclass
class Watched:
    """A tab, and what went wrong in it."""

    tab: Page
    problems: list[str] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)


def open_tab(context: BrowserContext, address: str) -> Watched:
    """Open the address of the start in a new tab that is watched."""
    watched = watch(context.new_page())
    watched.tab.goto(f"{address}/?token={TOKEN}")
    return watched


def watch(tab: Page) -> Watched:
    """Note from now on what goes wrong in a tab, and what it asks for."""
    watched = Watched(tab)
    watched.tab.on("console", lambda message: watched.problems.append(message.text))
    watched.tab.on("pageerror", lambda error: watched.problems.append(str(error)))
    watched.tab.on("dialog", lambda dialog: (watched.problems.append("dialog"), dialog.dismiss()))
    watched.tab.on("request", lambda request: watched.requested.add(request.url))
    return watched


def all_pages(memory: MemTier) -> dict[str, str]:
    """Return an address of each kind of page by its name."""
    weighed = max(memory.entries(), key=lambda entry: entry.cognitive_weight)
    facts = memory.knowledge.person.facts()
    recall = memory.events(kinds=["recall"])[-1]
    return {
        "home": "/",
        "log": "/log",
        "facts": "/facts?state=all",
        "rules": "/facts/rules",
        "todo": "/facts/todo",
        "timeline": f"/facts/about/{facts[0].fact.subject}",
        "fact": f"/lines/{facts[0].fact.id}",
        "line": f"/lines/{weighed.id}",
        "review": "/review",
        "recalls": "/recalls",
        "recall": f"/recalls/{recall.id}",
        "search": "/search",
        "health": "/health",
        "people": "/people",
        "uplift": "/uplift",
        "bill": "/bill",
        "purge": "/purge",
        "not-there": "/lines/ZZZZZZZZ",
    }


@pytest.mark.parametrize("look", LOOKS)
def test_each_page_fits_and_is_quiet(
    chromium: Browser, address: str, shop: MemTier, look: str
) -> None:
    """Each page fits its window, is readable and touchable, and logs nothing."""
    shop.note_hook("openclaw.main", "agent_end", True, ms=12)
    shop.note_hook("openclaw.main", "before_prompt_build", True, ms=31)
    folder = Path(os.environ.get("TEST_MEMTIER_SCREENSHOTS", SCREENSHOTS))
    folder.mkdir(parents=True, exist_ok=True)
    context = chromium.new_context(**LOOKS[look])
    watched = open_tab(context, address)
    tab = watched.tab
    for name, path in all_pages(shop).items():
        watched.problems.clear()
        tab.goto(address + path)
        if name == "search":
            tab.get_by_label("What for").fill("Which host is the shop on?")
            tab.get_by_role("button", name="Search").click()
            tab.wait_for_selector(".hit")
        if name == "line":
            tab.wait_for_selector(".plot canvas")
        for summary in tab.locator("main summary").all():
            summary.click()
        tab.screenshot(path=folder / f"{look}-{name}.png", full_page=True)
        audit = tab.evaluate(AUDIT.read_text("utf-8"), look == "phone")
        assert not audit, (look, name, audit)
        quiet = [text for text in watched.problems if "404" not in text or name != "not-there"]
        assert not quiet, (look, name, quiet)
    for step in ("Forget …", "Forget 1", "Bring back"):
        if step == "Forget …":
            tab.goto(f"{address}/lines/{next(shop.entries()).id}")
        button = tab.get_by_role("button", name=step.removesuffix(" 1")).first
        button.click()
        tab.screenshot(path=folder / f"{look}-{step.split()[0].lower()}-done.png", full_page=True)
    tab.goto(f"{address}/purge")
    tab.get_by_label("The text").fill("kestrel")
    tab.get_by_role("button", name="Look for it").click()
    tab.screenshot(path=folder / f"{look}-purge-asked.png", full_page=True)
    if look == "phone":
        tab.get_by_label("Erase it for good").check()
        tab.get_by_role("button", name="Purge", exact=True).click()
        tab.wait_for_selector("text=Receipt")
        tab.screenshot(path=folder / f"{look}-purge-receipt.png", full_page=True)
    context.close()


def test_no_hostile_text_is_executed(chromium: Browser, home: Path) -> None:
    """Neither the attack corpus nor what is made to run in pages does anything but stand there."""
    texts = [*INJECTIONS, *(case.text for texts in SETS.values() for case in cases(texts=texts))]
    with MemTier.open(home, "<img src=x onerror=pwned=1>", INJECTIONS[1]) as memory:
        for number, text in enumerate(texts):
            name = INJECTIONS[number % len(INJECTIONS)]
            call = {"id": "c", "function": {"name": name, "arguments": text}}
            memory.record(
                [
                    {"role": "user", "content": text, "speaker": name},
                    {"role": "assistant", "content": text, "tool_calls": [call]},
                    {"role": "tool", "content": text, "tool_call_id": "c", "name": name},
                ],
                session_id=name,
                run_id=f"{name}{number}",
                sender=name,
            )
        for text in INJECTIONS:
            memory.remember(f"The host {text} is called {text}.", sender=text)
            memory.recall(text, purpose="inject", session_id=text, run_id=text, sender=text)
            memory.note_hook(text, text, False, text, ms=3)
        memory.consolidate()
        with served(memory) as address:
            context = chromium.new_context()
            watched = open_tab(context, address)
            visited = visit_everything(watched, address, memory)
            context.close()
    foreign = {url for url in watched.requested if not url.startswith(address)}
    assert not foreign and len(texts) > 400 and visited > 60


def visit_everything(watched: Watched, address: str, memory: MemTier) -> int:
    """Open each kind of page, every page of the log and some lines; return how many."""
    days = {entry.observed_at.date().isoformat() for entry in memory.entries()}
    entries = [entry.id for entry in memory.entries()]
    recalls = [event.id for event in memory.events(kinds=["recall"])]
    facts = [view.fact.id for view in memory.knowledge.person.facts(include_superseded=True)]
    paths = [*all_pages(memory).values(), "/facts?state=proposed", "/recalls?all=yes"]
    paths += [f"/log?day={day}&page={page}" for day in days for page in range(1, 9)]
    paths += [f"/lines/{line}" for line in (*entries[:: max(1, len(entries) // 40)], *facts[:20])]
    paths += [f"/recalls/{recall}" for recall in recalls[:20]]
    for path in paths:
        watched.tab.goto(address + path)
        check_inert(watched, path)
    watched.tab.goto(f"{address}/search")
    for text in INJECTIONS:
        watched.tab.get_by_label("What for").fill(text)
        watched.tab.get_by_role("button", name="Search").click()
        check_inert(watched, text)
    return len(paths) + len(INJECTIONS)


def check_inert(watched: Watched, path: str) -> None:
    """Assert that a page has no code, no picture and no link but our own."""
    state = watched.tab.evaluate(INERT.read_text("utf-8"))
    clean = {"pwned": None, "scripts": 0, "frames": 0, "pictures": 0, "links": [], "handlers": 0}
    assert state == clean, (path, state)
    bad = [text for text in watched.problems if "404" not in text and "400" not in text]
    assert not bad, (path, bad)


@pytest.mark.parametrize("name", ("127.0.0.1", "localhost", "evil.example"))
def test_other_pages_reach_nothing(
    chromium: Browser, address: str, shop: MemTier, name: str
) -> None:
    """A page of another port or name, open in the browser that has our cookie, reads, writes 0."""
    line = next(shop.entries()).id
    form = f'[["id", "{line}"], ["confirmed", "yes"], ["decision", "accept"], ["query", "host"]]'
    page = EVIL_PAGE.read_text("utf-8")
    body = page.replace("ADDRESS", address).replace("FORM", form).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    context = chromium.new_context()
    open_tab(context, address)
    shop.catch_up()
    before = ledger_digest(shop)
    evil = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=evil.serve_forever)
    thread.start()
    try:
        tab = context.new_page()
        tab.goto(f"http://{name}:{evil.server_port}/")
        tab.wait_for_function("document.title.startsWith('tried')", timeout=30_000)
        assert tab.title() == "tried 26 read 0"
    finally:
        evil.shutdown()
        thread.join()
        evil.server_close()
    assert ledger_digest(shop) == before
    context.close()


def test_a_name_made_to_point_here(chromium: Browser, address: str) -> None:
    """By DNS rebinding a page's own name leads to our port; it gets 421 and none of the texts."""
    context = chromium.new_context()
    open_tab(context, address)
    tab = context.new_page()
    for path in ("/", f"/?token={TOKEN}", "/facts"):
        answer = tab.goto(address.replace("127.0.0.1", "evil.example") + path)
        assert answer is not None and answer.status == 421
        assert "kestrel" not in tab.content()
    context.close()


def test_a_tab_open_while_the_project_is_purged(
    chromium: Browser, address: str, shop: MemTier
) -> None:
    """What is purged elsewhere leaves an open tab by itself, and going back does not show it."""
    context = chromium.new_context()
    watched = open_tab(context, address)
    tab = watched.tab
    tab.wait_for_selector("text=kestrel now")
    tab.wait_for_selector("text=● live")
    line = next(entry.id for entry in shop.entries() if "kestrel now" in entry.content)
    tab.goto(f"{address}/lines/{line}")
    tab.goto(f"{address}/")
    tab.wait_for_selector("text=● live")
    with MemTier.open(shop.home, "shop", "openclaw.main") as other:  # as another process does
        assert other.purge("kestrel").gone
    wait_until(lambda: "kestrel" not in tab.locator("body").inner_text())
    tab.go_back()
    assert "kestrel" not in tab.locator("body").inner_text()
    answer = tab.goto(f"{address}/lines/{line}")
    assert answer is not None and answer.status in (200, 404)
    assert "kestrel" not in tab.locator("body").inner_text()
    assert not [text for text in watched.problems if "404" not in text]
    tab.goto(f"{address}/")
    tab.wait_for_selector("text=● live")
    shutil.rmtree(shop.folder)
    tab.wait_for_selector("text=That did not work", timeout=20_000)
    context.close()


def test_a_new_line_appears_by_itself(chromium: Browser, address: str, shop: MemTier) -> None:
    """What another process records stands in an open log within seconds, without a reload."""
    context = chromium.new_context()
    tab = open_tab(context, address).tab
    tab.goto(f"{address}/log")
    tab.wait_for_selector("text=● live")
    when = max(entry.observed_at for entry in shop.entries())
    with MemTier.open(shop.home, "shop", "openclaw.main") as other:
        message = {"role": "user", "content": "The canary sings.", "observed_at": when.isoformat()}
        other.record([message], session_id="telegram:mara:3")
    tab.wait_for_selector("text=The canary sings.", timeout=20_000)
    context.close()


def test_many_tabs(chromium: Browser, address: str, shop: MemTier) -> None:
    """More tabs than a browser has connections are live, also once the first one is closed."""
    context = chromium.new_context()
    first = open_tab(context, address).tab
    tabs = [first]
    for _ in range(8):
        tabs.append(context.new_page())
        tabs[-1].goto(f"{address}/")
    for tab in tabs:
        tab.wait_for_selector("text=● live")
    when = max(entry.observed_at for entry in shop.entries()).isoformat()
    for number, listening in enumerate((tabs, tabs[1:])):
        message = {"role": "user", "content": f"Tab {number}.", "observed_at": when}
        shop.record([message], session_id="telegram:mara:3")
        for tab in listening:
            tab.wait_for_selector(f"text=Tab {number}.", timeout=20_000)
        first.close()
    context.close()


def test_a_review_by_keys_alone(chromium: Browser, address: str, shop: MemTier) -> None:
    """From the address alone, keys reach the content and decide all that waits in one sitting."""
    for name in ("robin", "finch"):
        shop.remember(f"The spare host is called {name}.", by="assistant")
    first, second, third, *rest = shop.knowledge.person.review_queue()
    of, words = 3 + len(rest), "The spare host is called crane."
    context = chromium.new_context()
    tab = open_tab(context, address).tab
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    tab.goto(f"{address}/review")
    keys = tab.keyboard

    def label() -> str:
        return str(tab.evaluate("document.activeElement.getAttribute('aria-label')"))

    keys.press("j")
    keys.press("j")
    assert label() == f"2 of {of}"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    keys.press("k")
    keys.press("a")
    wait_until(lambda: label() == f"2 of {of}")  # the focus goes on by itself
    keys.press("r")
    wait_until(lambda: label() == f"3 of {of}")
    keys.press("e")
    assert tab.evaluate("document.activeElement.name") == "text"
    keys.press("Control+A")
    keys.type(f"a{words[1:]} raj")  # letters, no decisions
    keys.press("Control+A")
    keys.type(words)
    keys.press("Tab")
    keys.press("Enter")
    wait_until(lambda: label() == f"4 of {of}")
    keys.press("u")
    assert tab.evaluate("document.activeElement.textContent") == "Undo"
    context.close()
    views = shop.knowledge.person.facts(include_superseded=True)
    states = {view.fact.text: view.state for view in views}
    decided = [states[text] for text in (first.text, second.text, third.text, words)]
    assert decided == ["active", "rejected", "superseded", "active"]
    assert len(shop.knowledge.person.review_queue()) == len(rest)


def test_a_fact_is_corrected_on_the_list(chromium: Browser, address: str, shop: MemTier) -> None:
    """On the list of facts one is corrected, taken back and forgotten without leaving the page."""
    fact = next(f for f in shop.facts() if "tagged by Jonas" in f.text)
    context = chromium.new_context()
    tab = open_tab(context, address).tab
    tab.goto(f"{address}/facts")
    row = tab.locator(".rows > .item", has_text=fact.text)
    row.get_by_text("Correct or forget").click()
    row.get_by_role("textbox").fill("Releases are tagged by Ada.")
    row.get_by_role("button", name="Correct").click()
    tab.get_by_role("heading", name="Corrected").wait_for()
    assert "Releases are tagged by Ada." in [each.text for each in shop.facts()]
    assert tab.evaluate("document.activeElement.className").startswith("item")
    tab.get_by_role("button", name="Undo").click()
    tab.get_by_role("heading", name="Undone").wait_for()
    assert fact in shop.facts()
    tab.reload()
    row = tab.locator(".rows > .item", has_text=fact.text)
    row.get_by_text("Correct or forget").click()
    row.get_by_role("button", name="Forget …").click()
    tab.get_by_role("button", name="Forget 1").click()
    tab.get_by_role("button", name="Bring back").wait_for()
    assert fact not in shop.facts()
    assert tab.url == f"{address}/facts"
    context.close()


def test_a_rule_is_withdrawn_without_javascript(
    chromium: Browser, address: str, shop: MemTier
) -> None:
    """Plain forms withdraw a rule, and bring it back."""
    rule = shop.knowledge.person.rules()[0].fact
    context = chromium.new_context(java_script_enabled=False)
    tab = open_tab(context, address).tab
    tab.get_by_role("link", name="Facts").click()
    tab.get_by_role("link", name="Rules").click()
    row = tab.locator(".rows > .item", has_text=rule.text)
    row.get_by_text("Correct or withdraw").click()
    row.get_by_role("button", name="Withdraw …").click()
    tab.get_by_role("button", name="Forget 1").click()
    assert rule not in [each.fact for each in shop.knowledge.person.rules()]
    tab.get_by_role("button", name="Bring back").click()
    assert rule in [each.fact for each in shop.knowledge.person.rules()]
    context.close()


def test_without_javascript(chromium: Browser, address: str, shop: MemTier) -> None:
    """Reading, searching and deciding need no script."""
    context = chromium.new_context(java_script_enabled=False)
    tab = open_tab(context, address).tab
    tab.goto(f"{address}/review")
    tab.get_by_role("button", name="Accept").first.click()
    assert "is now active" in tab.locator("main").inner_text()
    tab.goto(f"{address}/search")
    tab.get_by_label("What for").fill("Which host is the shop on?")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("text=kestrel")
    context.close()


def test_the_pictures_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script takes each picture that docs/web.md shows, small enough for a repository."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(take_screenshots, "FOLDER", tmp_path / "images")
    with ThreadPoolExecutor() as thread:  # this one has playwright's own loop
        thread.submit(take_screenshots.main).result()
    shown = set(re.findall(r"images/([\w-]+\.webp)", WEB_PAGE.read_text("utf-8")))
    taken = {path.name: path.stat().st_size for path in (tmp_path / "images").iterdir()}
    assert shown == taken.keys() and max(taken.values()) <= take_screenshots.MOST_BYTES


def test_the_exported_file(chromium: Browser, shop: MemTier, tmp_path: Path) -> None:
    """Opened from the disk it shows its pages and curves, and asks nobody for anything."""
    file = tmp_path / "memory.html"
    with ThreadPoolExecutor() as thread:  # this one has playwright's own loop
        file.write_text(thread.submit(lambda: "".join(export_html(shop))).result(), "utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    watched = watch(context.new_page())
    tab = watched.tab
    tab.goto(file.as_uri())
    assert "It works" in tab.locator("main").inner_text()
    tab.get_by_role("link", name="Recalls").click()
    tab.get_by_role("link", name="We moved again").click()
    assert "What the prompt got" in tab.locator("main").inner_text()
    tab.locator(".page:target .id").first.click()
    tab.wait_for_selector(".page:target .plot canvas")
    tab.screenshot(path=SCREENSHOTS / "exported-line.png")
    assert not watched.problems and watched.requested == {file.as_uri()}
    context.close()
