"""Nobody but the user's own browser reads or writes through the web view."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import memtier_plugin.web
from memtier_plugin.memory import MemTier
from tests.web.conftest import ADDRESS, OWN, PORT, TOKEN, visit
from tests.web.shop import AGENT

READS = (
    "/",
    "/facts",
    "/facts/rules",
    "/facts/todo",
    "/log",
    "/review",
    "/recalls",
    "/search",
    "/health",
    "/metrics",
    "/purge",
    "/static/app.js",
)
WRITES = (
    *("/review", "/reword", "/undo", "/close"),
    *("/forget", "/unforget", "/purge", "/search"),
)


@pytest.fixture(scope="module")
def shop(shop_home: Path) -> Iterator[MemTier]:
    """Return a memory that no test here may change, however it tries."""
    with MemTier.open(shop_home, "shop", AGENT) as memory:
        yield memory


@pytest.fixture(scope="module")
def browser(shop: MemTier) -> TestClient:
    """Return a browser that opened the address of the start."""
    return visit(shop)


@pytest.fixture
def stranger(shop: MemTier) -> TestClient:
    """Return a browser without our cookie."""
    return visit(shop, opened=False)


def ledger_digest(memory: MemTier) -> str:
    """Return a digest of every ledger line."""
    digest = hashlib.sha256()
    for path in sorted(memory.folder.rglob("*.jsonl")):
        digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def some_line(memory: MemTier) -> str:
    """Return the id of an entry."""
    return next(memory.entries()).id


@pytest.mark.parametrize("path", READS)
def test_without_the_token_nothing_is_shown(stranger: TestClient, path: str) -> None:
    """Every address answers 401 without the cookie, with a wrong cookie and with a wrong token."""
    assert stranger.get(path).status_code == 401
    assert stranger.get(path, headers={"Cookie": f"memtier-{PORT}=guess"}).status_code == 401
    assert stranger.get(f"{path}?token=guess").status_code == 401
    assert stranger.get(path, headers={"Authorization": "Bearer guess"}).status_code == 401


def test_prometheus_gets_the_metrics(stranger: TestClient) -> None:
    """The token as a bearer, as Prometheus sends it, gets the metrics in its format."""
    answer = stranger.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'memtier_stored_total{gen_ai_memory_store_id="shop",memtier_kind="entry"}' in answer.text


def test_the_token_leaves_the_address(stranger: TestClient) -> None:
    """The token is exchanged for a cookie that no script and no other site gets to see."""
    answer = stranger.get(f"/facts?state=all&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/facts?state=all")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
    assert stranger.get("/facts").status_code == 200


def test_no_redirect_leads_elsewhere(stranger: TestClient) -> None:
    """An address that begins with two slashes is no other host once the token is taken off."""
    answer = stranger.get(f"{ADDRESS}//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/"


@pytest.mark.parametrize("host", ("evil.example", f"evil.example:{PORT}", "127.0.0.1", "[::1]:1"))
def test_foreign_hosts(browser: TestClient, host: str) -> None:
    """A name that was made to point at this machine (DNS rebinding) is refused, cookie or not."""
    assert browser.get("/", headers={"Host": host}).status_code == 421
    assert browser.post("/forget", headers={**OWN, "Host": host}).status_code == 421


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    "headers",
    (
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:3000"},  # another server on this machine: the same site
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{PORT}"},
        {**OWN, "Sec-Fetch-Site": "cross-site"},
        {**OWN, "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a form of a page
        {},
    ),
)
def test_requests_of_other_pages(
    browser: TestClient, shop: MemTier, path: str, headers: dict[str, str]
) -> None:
    """A page of another origin writes nothing, though the browser may send our cookie along."""
    before = ledger_digest(shop)
    form = {"id": some_line(shop), "decision": "accept", "confirmed": "yes", "query": "host"}
    assert browser.post(path, data=form, headers=headers).status_code == 403
    assert ledger_digest(shop) == before


def test_other_pages_read_nothing(browser: TestClient) -> None:
    """A script or picture of another page is refused; a link to a page of ours may be followed."""
    assert browser.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert browser.get("/live", headers={"Sec-Fetch-Site": "same-site"}).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert browser.get("/", headers=link).status_code == 200


def test_a_get_writes_nothing(browser: TestClient, shop: MemTier) -> None:
    """Reading any page, and any address of a change by GET or HEAD, leaves the ledgers alone."""
    shop.catch_up()
    before, line = ledger_digest(shop), some_line(shop)
    addresses = {f"{path}?id={line}&confirmed=yes&decision=accept&query=host" for path in WRITES}
    addresses |= {*READS, f"/lines/{line}"}
    links = re.findall(r'href="(/[^"]*)"', "".join(browser.get(path).text for path in READS[:-1]))
    for path in sorted({*addresses, *links}):
        assert browser.get(path).status_code in (200, 405)
        browser.head(path)
    assert ledger_digest(shop) == before


def test_every_answer_has_the_policy(browser: TestClient, stranger: TestClient) -> None:
    """No inline code or style, no frame, no other server, no cache: also for what is refused."""
    for answer in (
        browser.get("/"),
        browser.get("/static/app.js"),
        browser.get("/nothing"),
        stranger.get("/", headers={"Host": "evil.example"}),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_templates_have_no_inline_code() -> None:
    """No page has a script, a style, or an attribute that holds one; none marks text as safe.

    The exported file has the only ones, by whose hashes its policy allows them.
    """
    inline = r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|\|\s*(safe|source)\b"
    templates = Path(memtier_plugin.web.__file__).parent / "templates"
    broken = {path.name for path in templates.iterdir() if re.search(inline, path.read_text())}
    assert broken == {"snapshot.html"}


def test_vendored_files_are_those_that_are_named() -> None:
    """What we serve of others is as they published it, and each has its licence beside it."""
    vendor = Path(memtier_plugin.web.__file__).parent / "static" / "vendor"
    rows = re.findall(r"\| ([\w.]+) \| .* \| (\w{64}) \|", (vendor / "PROVENANCE.md").read_text())
    assert len(rows) == 3
    for name, digest in rows:
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
        assert (vendor / f"{name.partition('.')[0]}.LICENSE.txt").is_file()


def test_large_and_broken_forms(browser: TestClient) -> None:
    """A form of megabytes, or none, is refused with a page that says why."""
    large = browser.post("/search", content=b"query=" + b"x" * 5_000_000, headers=OWN)
    broken = browser.post("/review", content=b"\xff\xfe", headers=OWN)
    assert (large.status_code, broken.status_code) == (400, 400)
    assert "kB" in large.text


def test_two_starts(shop: MemTier, browser: TestClient) -> None:
    """The cookie and the token of one start open no other."""
    other = visit(shop, opened=False, token="another")
    other.cookies.update(browser.cookies)
    assert other.get("/").status_code == 401
    assert other.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 401
