"""What the tests of the web view get: a project after some days, and a browser's side of HTTP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from memtier_plugin.memory import MemTier
from memtier_plugin.web.app import build_app
from memtier_plugin.web.guard import LedgerWatch
from tests.web.chromium import TOKEN
from tests.web.shop import AGENT, open_shop

PORT = 8767
ADDRESS = f"http://127.0.0.1:{PORT}"
OWN = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="session")
def shop_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a project that has been in use, made once; nobody writes to it."""
    home = tmp_path_factory.mktemp("shop") / "home"
    open_shop(home).close()
    return home


@pytest.fixture
def shop(shop_home: Path, home: Path) -> Iterator[MemTier]:
    """Return a memory of the shop that a test may change."""
    shutil.copytree(shop_home, home)
    with MemTier.open(home, "shop", AGENT) as memory:
        yield memory


def visit(memory: MemTier, *, opened: bool = True, token: str = TOKEN) -> TestClient:
    """Return a browser, with our cookie if it opened the address of the start."""
    app = build_app(memory, LedgerWatch(memory), token=token, port=PORT)
    browser = TestClient(app, base_url=ADDRESS, follow_redirects=False)
    if opened:
        assert browser.get(f"/?token={token}").status_code == 303
    return browser


@pytest.fixture
def browser(shop: MemTier) -> TestClient:
    """Return a browser that opened the address of the start."""
    return visit(shop)
