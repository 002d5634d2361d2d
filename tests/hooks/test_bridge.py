"""OpenClaw's side of the pipe, in JavaScript, run by node's own test runner."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from memtier_plugin.core.paths import socket_path
from tests.processes import child_environment, run_command

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "hooks" / "openclaw"
node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")


def run(*arguments: str | Path, **environment: str) -> str:
    """Run node and return what it prints; the test fails with it if it fails."""
    return run_command("node", *arguments, env=child_environment(**environment)).stdout


@node
@pytest.mark.slow
def test_the_bridge() -> None:
    """Deadline, restart, queue and socket hold in JavaScript as they do in Python."""
    serve = json.dumps([sys.executable, "-W", "ignore", "-m", "memtier_plugin"])
    output = run("--test", "--test-reporter=tap", ROOT / "tests/shim/bridge.test.mjs", SERVE=serve)
    assert re.search(r"^# pass \d\d$", output, re.MULTILINE)
    assert re.search(r"^# (fail|skipped|cancelled) 0$", output, re.MULTILINE)


@node
@pytest.mark.parametrize("runtime", [None, "/run/user/1000", "/run/" + "x" * 100])
@pytest.mark.parametrize("home", ["/home/mara/.memtier", "/home/mära/" + "x" * 90 + "/.memtier"])
def test_both_sides_mean_the_same_socket(
    runtime: str | None, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JavaScript and Python look for the resident of a home at the same place."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    code = (
        f"import {{ socketPath }} from {json.dumps(str(SHIM / 'bridge.js'))};"
        f"console.log(socketPath({json.dumps(home)}));"
    )
    assert run("--input-type=module", "-e", code).strip() == str(socket_path(Path(home)))


@node
def test_both_sides_agree_on_the_limits() -> None:
    """What both pipes know by number is the same number."""
    python = (ROOT / "hooks" / "resident.py").read_text("utf-8")
    script = (SHIM / "bridge.js").read_text("utf-8")
    for name in ("MAX_QUEUED", "MAX_IN_MEMORY", "MAX_REQUEST_BYTES"):
        (ours,) = re.findall(rf"^{name}: Final = ([^#\n]+?)\s*(?:#|$)", python, re.MULTILINE)
        (theirs,) = re.findall(rf"^const {name} = ([^;]+);", script, re.MULTILINE)
        assert ours == theirs, name
    python = (ROOT / "memtier_plugin" / "operations" / "hook_latency.py").read_text("utf-8")
    waits = (SHIM / "waits.js").read_text("utf-8")
    for name in ("MAX_NOTED", "SLOWEST_DAYS"):
        (ours,) = re.findall(rf"^{name}: Final = (\d+)", python, re.MULTILINE)
        assert f"const {name} = {ours};" in waits
    python = (ROOT / "hooks" / "resident.py").read_text("utf-8")
    (allowed,) = re.findall(r'r"\(\?:(.*)\)\\Z"', python)
    assert f"/^({allowed})$/" in script


def test_the_manifest_names_every_tool() -> None:
    """OpenClaw drops a tool that its manifest does not name."""
    manifest = json.loads((SHIM / "openclaw.plugin.json").read_text("utf-8"))
    script = (SHIM / "index.js").read_text("utf-8")
    tools = re.findall(r"^  (memory_\w+): \{$", script, re.MULTILINE)
    assert manifest["contracts"]["tools"] == tools
    package = json.loads((SHIM / "package.json").read_text("utf-8"))
    assert package["version"] == manifest["version"]
    assert not package.get("dependencies")
