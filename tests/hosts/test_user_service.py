"""The user's service that starts the resident at login."""

from __future__ import annotations

import configparser
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memtier_plugin.core.residents import find_owner
from memtier_plugin.hosts.user_service import describe_service
from tests.processes import child_environment, run_command, run_memtier, running, wait_until

ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's own folders out of it, on a machine without a service manager."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "")


@pytest.mark.skipif(sys.platform == "darwin", reason="systemd's")
def test_a_unit_is_written_and_taken_back(tmp_path: Path) -> None:
    """The unit is where systemd looks; what could not be done is said, with the command for it."""
    path = tmp_path / "config/systemd/user/memtier.service"
    shown = run_memtier("install", "--service", "--dry-run").stdout
    assert "would write" in shown and not path.exists()
    shown = run_memtier("install", "--service").stdout.replace("\n", " ")
    assert "Not done: systemctl is not available here" in shown
    assert "systemctl --user daemon-reload" in shown
    assert path.is_file()
    run_memtier("install", "--service", "--uninstall")
    assert not path.exists()
    run_memtier("install", "--service", "--uninstall")
    run_memtier("install", "codex", "--service", code=2)


@pytest.mark.skipif(sys.platform == "darwin", reason="systemd's")
def test_a_masked_unit_stays_masked(tmp_path: Path) -> None:
    """What `systemctl mask` leaves, a link to nothing, is neither written to nor removed."""
    path = tmp_path / "config/systemd/user/memtier.service"
    path.parent.mkdir(parents=True)
    path.symlink_to(os.devnull)
    for more in ((), ("--uninstall",)):
        done = run_memtier("install", "--service", *more, code=1)
        assert "not a plain file" in done.stderr
        assert path.is_symlink() and path.is_char_device()


@pytest.mark.skipif(sys.platform == "darwin", reason="systemd's")
def test_what_the_unit_runs_is_the_resident(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's command serves the home, and is not ended for want of clients."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(describe_service(home).text)
    assert "IDLE_MINUTES=0" in unit["Service"]["Environment"]
    command = shlex.split(unit["Service"]["ExecStart"])
    with running(subprocess.Popen(command, env=child_environment())) as process:
        wait_until(lambda: (owner := find_owner(home)) and owner.pid == process.pid and owner.ready)


@pytest.mark.skipif(not ANALYZE, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", ["home", 'a b/50% $HOME "x" \\n\''])
def test_systemd_reads_the_unit(tmp_path: Path, name: str) -> None:
    """No line of the unit is one that systemd does not take, whatever the name of the home is."""
    unit = tmp_path / "memtier.service"
    unit.write_text(describe_service(tmp_path / name).text)
    environment = child_environment(XDG_RUNTIME_DIR=str(tmp_path))
    done = run_command(str(ANALYZE), "--user", "verify", unit, env=environment)
    assert "memtier.service" not in done.stderr
    unit.write_text(f"{unit.read_text()}NoSuchLine=1\n")
    done = run_command(str(ANALYZE), "--user", "verify", unit, env=environment)
    assert "NoSuchLine" in done.stderr, "it does read it"


def test_a_home_with_signs_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name is one argument, whatever is in it."""
    home = Path('/home/a b/50% "x"')
    assert '"/home/a b/50%% \\"x\\""' in describe_service(home).text
    monkeypatch.setattr(sys, "platform", "darwin")
    service = describe_service(home)
    entries = plistlib.loads(service.text.encode())
    assert entries["ProgramArguments"][-2:] == [str(home), "serve"]
    assert entries["RunAtLoad"] and service.path.suffix == ".plist"
