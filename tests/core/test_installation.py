"""The command that installs what is missing names a source that exists."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memtier_plugin.core import installation
from memtier_plugin.core.installation import install_command

Origin = Callable[..., None]


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    """Return a function that installs a package's record of its source into a path of its own."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "missing")])

    def write(name: str, record: Any) -> None:
        folder = tmp_path / "site" / f"{name}-0.1.0.dist-info"
        folder.mkdir(parents=True)
        text = record if isinstance(record, str) else json.dumps(record)
        (folder / "direct_url.json").write_text(text)

    monkeypatch.setattr(installation, "find_spec", lambda name: name)
    install_command.cache_clear()
    yield write
    install_command.cache_clear()


def requirements(name: str) -> list[str]:
    """Return what the command installs, after checking that this Python runs pip."""
    words = shlex.split(install_command(name))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    return words[4:]


def project(folder: Path) -> Path:
    """Make a folder that pip could install."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    return folder


def test_from_a_folder(tmp_path: Path, origin: Origin) -> None:
    """The folder is named, and stays editable if it was; its other packages lie in it."""
    source = project(tmp_path / "a check out")
    origin("memtier", {"url": source.as_uri(), "dir_info": {"editable": True}})
    assert requirements("memtier[web]") == ["-e", f"{source}[web]"]
    papers, bench = project(source / "papers"), project(source / "bench")
    assert requirements("memtier-bench[plot]") == ["-e", str(papers), "-e", f"{bench}[plot]"]
    origin("memtier_papers", {"url": papers.as_uri(), "dir_info": {}})
    install_command.cache_clear()
    assert requirements("memtier-papers") == [str(papers)]


def test_from_a_wheel_or_a_repository(tmp_path: Path, origin: Origin) -> None:
    """A wheel is named while it exists; a repository, with the commit that is installed."""
    wheel = tmp_path / "memtier-0.1.0-py3-none-any.whl"
    wheel.touch()
    origin("memtier", {"url": wheel.as_uri(), "archive_info": {}})
    assert requirements("memtier[web]") == [f"memtier[web] @ {wheel.as_uri()}"]
    assert requirements("memtier-papers") == ["memtier-papers"]
    wheel.unlink()
    install_command.cache_clear()
    assert requirements("memtier[web]") == ["memtier[web]"]
    vcs = {"vcs": "git", "commit_id": "0123abc"}
    origin("memtier_papers", {"url": "https://host.example/m.git", "vcs_info": vcs})
    install_command.cache_clear()
    expected = "memtier-papers @ git+https://host.example/m.git@0123abc"
    assert requirements("memtier-papers") == [expected]


def test_without_a_record(origin: Origin) -> None:
    """A folder that a host loads in place is named itself; a package of the index, by its name."""
    checkout = Path(installation.__file__).parents[2]
    assert requirements("memtier[web]") == [f"{checkout}[web]"]
    assert requirements("torch") == ["torch"]


@pytest.mark.parametrize("record", ["{", "[]", {"url": 3}])
def test_a_broken_record(origin: Origin, record: Any) -> None:
    """A record that cannot be read counts as none."""
    origin("memtier", record)
    checkout = Path(installation.__file__).parents[2]
    assert requirements("memtier[web]") == [f"{checkout}[web]"]


def test_without_pip(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without pip, as `uv tool` makes them, is filled by uv."""
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert install_command("torch") == shlex.join(
        ["uv", "pip", "install", "--python", sys.executable, "torch"]
    )
