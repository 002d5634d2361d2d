"""OpenClaw is upgraded under a home that has MemTier: it stays the memory; `doctor` is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.runtimes.hosts import OLDER_OPENCLAW, OPENCLAW, Ground, OpenClaw
from tests.runtimes.test_install import files, memtier

LINE = "My bag is in the blue locker."


def version(prefix: Path) -> str:
    """Return the version of the OpenClaw in a folder."""
    manifest = prefix / "node_modules" / "openclaw" / "package.json"
    return str(json.loads(manifest.read_text("utf-8"))["version"])


def check_doctor(ground: Ground, openclaw: OpenClaw, by: str) -> None:
    """Check that `doctor` has no error, and was told by the host whose the tools and hooks are."""
    code, document = memtier(ground, openclaw, "doctor", "--project", "shared")
    findings = [finding["what"] for finding in document["findings"]]
    assert code == 0, findings
    assert any(f"are MemTier's in OpenClaw, says {by}" in what for what in findings), findings
    assert any("OpenClaw calls MemTier's before_prompt_build, agent_end" in f for f in findings)


@pytest.mark.skipif(not OLDER_OPENCLAW.exists(), reason="`make test-runtimes-all` installs it")
def test_an_upgrade_of_openclaw(ground: Ground) -> None:
    """What the older version recorded the newer one recalls; nothing has to be installed again."""
    openclaw = OpenClaw(ground, prefix=OLDER_OPENCLAW)
    assert version(OLDER_OPENCLAW) != version(OPENCLAW)
    openclaw.say(LINE)
    wait_until(lambda: ground.said(openclaw.agent) == [LINE])
    check_doctor(ground, openclaw, "a fresh process")

    openclaw.prefix = OPENCLAW
    ours = json.loads(openclaw.config.read_text())["plugins"]["entries"]["memtier"]
    with openclaw.gateway():
        for number in range(2):
            openclaw.post(f"Where is my bag? (question {number})", f"agent:main:new-{number}")
        check_doctor(ground, openclaw, "the running Gateway")
    wait_until(lambda: len(ground.said(openclaw.agent)) == 3)
    assert any("blue locker" in prompt for prompt in ground.model.asked()[-2:])
    assert openclaw.errors() == []
    assert json.loads(openclaw.config.read_text())["plugins"]["entries"]["memtier"] == ours
    memtier(ground, openclaw, "install", "openclaw", "--uninstall")
    assert "memtier" not in json.loads(openclaw.config.read_text()).get("plugins", {})
    assert not [name for name in files(openclaw.top / "state") if name.endswith("/memtier")]
