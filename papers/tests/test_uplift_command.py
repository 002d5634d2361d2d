"""`memtier uplift`, and what other commands say of lines that are left out."""

from __future__ import annotations

import json
from pathlib import Path

from memtier_plugin import MemTier
from papers.tests.test_causes import WITHHOLD, history
from tests.builders import say, write_config
from tests.processes import run_memtier
from tests.web.conftest import visit


def test_uplift_shows_lines_and_kinds(home: Path) -> None:
    """Lines and kinds are listed with their figures, as text and as JSON; ids and kinds choose."""
    write_config(home, {"causes": {"withhold": 0.5}})
    with MemTier.open(home, "shop") as memory:
        barn = say(memory, "the barn is red", run_id="r1").id
        fact = memory.remember("The oak is tall.").id
        history(memory, [barn, fact], {None: [1.0] * 40, barn: [-0.5] * 25, fact: [1.0] * 5})
    document = json.loads(run_memtier("uplift", "--project", "shop", "--json").stdout)
    assert (document["runs"], document["withheld"], document["proposed"]) == (70, 30, [])
    by_id = {row["id"]: row for row in document["lines"]}
    assert by_id[barn]["verdict"] == "helps" and by_id[barn]["mean"] == 1.5
    assert by_id[fact]["verdict"] == "too few runs" and by_id[fact]["kind"] == "fact"
    assert {row["kind"] for row in document["kinds"]} == {"user", "fact"}
    text = run_memtier("uplift", "--project", "shop").stdout
    assert "70 runs took part" in text and "+1.50" in text and "20 of either" in text
    chosen = ("uplift", fact[-8:], "--kind", "fact", "--project", "shop", "--json")
    assert [row["id"] for row in json.loads(run_memtier(*chosen).stdout)["lines"]] == [fact]
    preview = ("recall", "--inject-preview", "Is the barn red?", "--project", "shop")
    assert "50% of the runs" in run_memtier(*preview).stdout
    status = run_memtier("status", "--project", "shop").stdout
    assert "30 of the newest 70 prompts lacked it" in status


def test_uplift_of_nothing(home: Path) -> None:
    """A project that withholds nothing says so, and what would change it."""
    with MemTier.open(home, "shop", settings=WITHHOLD) as memory:
        say(memory, "the barn is red")
    shown = run_memtier("uplift", "--project", "shop", "--propose").stdout
    assert "causes.withhold" in shown and "0 runs took part" in shown


def test_the_web_view_has_a_page_of_it(home: Path) -> None:
    """`/uplift` shows lines and kinds with their figures, and says that nothing is withheld now."""
    with MemTier.open(home, "shop") as memory:
        barn = say(memory, "the barn is red", run_id="r1").id
        history(memory, [barn], {None: [1.0] * 40, barn: [-0.5] * 25})
        page = visit(memory).get("/uplift").text
    assert "no run goes without one now" in page and "+1.50" in page and "the barn is red" in page
