"""`memtier export --html` writes one file that needs no server, and that no text breaks out of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from memtier_plugin.cli.main import main
from memtier_plugin.core.installation import install_command
from memtier_plugin.memory import MemTier
from memtier_plugin.web.snapshot import export_html


def test_one_file_with_every_page(shop: MemTier) -> None:
    """The file has every day, fact and recall; each link leads to a page within it."""
    page = "".join(export_html(shop))
    for words in (
        "kestrel",
        "osprey",
        "short answers",
        "What the prompt got",
        "data-plot",
        "It works",
        "said once",
    ):
        assert words in page
    anchors = set(re.findall(r'<article class="page" id="(\w+)"', page))
    links = set(re.findall(r'href="([^"]*)"', page))
    assert {link.removeprefix("#") for link in links} <= anchors and len(anchors) > 30
    assert "Correct or forget" not in page
    assert "<form" not in page and " hx-" not in page.partition("<script>")[0]
    assert not re.search(r'(src|action)="', page.partition("<script>")[0])


def test_hostile_texts_stay_texts(home: Path) -> None:
    """A text that looks like our own markup is neither followed, nor cut, nor run."""
    text = '</style><script>alert(1)</script><form>x</form> href="/purge" <!-- pages --> hx-get="/"'
    with MemTier.open(home, "p") as memory:
        memory.record([{"role": "user", "content": text}], session_id=text, sender=text)
        page = "".join(export_html(memory))
    assert "alert(1)&lt;/script&gt;&lt;form&gt;x&lt;/form&gt;" in page
    assert page.count("<script>") == 1 and page.count("</style>") == 1


def test_the_file_is_new_private_and_known_to_a_purge(shop: MemTier, tmp_path: Path) -> None:
    """The command refuses to overwrite; a later purge names the file as one to delete."""
    target = tmp_path / "memory.html"
    command = ["--home", str(shop.home), "--project", "shop", "export", "--html", str(target)]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert CliRunner().invoke(main, command).exit_code == 1
    assert CliRunner().invoke(main, [*command, "--session", "s"]).exit_code == 2
    receipt = shop.purge("kestrel")
    assert not receipt.gone and [each["kind"] for each in receipt.copies.exports] == ["html"]
    assert shop.purge("kestrel", delete_exports=True).gone and not target.exists()


@pytest.mark.parametrize("missing", ("starlette", "jinja2"))
def test_without_the_extra(shop: MemTier, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Without the extra the commands say in one line what to install."""
    monkeypatch.setattr(
        "memtier_plugin.cli.screens.find_spec", lambda name: None if name == missing else object()
    )
    for words in (["web"], ["export", "--html", "x.html"]):
        command = ["--home", str(shop.home), "--project", "shop", *words]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1 and install_command("memtier[web]") in result.output
