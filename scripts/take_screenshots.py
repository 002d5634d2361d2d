"""Take the pictures of docs/web.md: seed a project, serve it, and open it in Chromium.

The project is invented, and its clock stands still, so that its dates and ages are always the same.
"""

from __future__ import annotations

import base64
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from memtier_plugin.hosts import install
from memtier_plugin.memory import MemTier
from tests.builders import Clock
from tests.web.chromium import CHROMIUM, SWITCHES, TOKEN, served

FOLDER: Final = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES: Final = 60_000
START: Final = datetime(2026, 9, 14, 9, 5, tzinfo=UTC)
PROJECT, HOSTS = "harbour", ("claude-code", "codex")
QUESTION: Final = "How do I deploy to staging, and who approves it?"
# Per day and run: the host, what the user says, the command that follows, and the answer.
DAYS: Final = (
    (
        (0, "Install the packages of the booking service.", "yarn install", "All are installed."),
        (0, "No, never use yarn here. Use pnpm.", "pnpm install", "Done again with pnpm."),
    ),
    (
        (0, "Deploys to staging go through `make release`.", "", "Understood."),
        (1, "A deploy needs the approval of Ines.", "", "I will ask Ines before a deploy."),
        (1, "Tomas is on leave until 12 October.", "", "Then I leave his reviews to you."),
        (1, "The invoice run starts at 06:00 every Monday.", "", "I keep that hour free."),
    ),
    ((1, "Install the packages of the invoice service.", "pnpm install", "All are installed."),),
)
PROPOSED: Final = (
    "The staging database is restored from the nightly backup.",
    "The booking API answers in less than 200 ms.",
    "The team prefers feature flags over long branches.",
)
# Name, page, look and size.
PICTURES: Final = (
    ("web-home", "/", "light", (1180, 840)),
    ("web-recall", "/recalls/{recall}", "dark", (1180, 840)),
    ("web-review", "/review", "light", (1180, 840)),
    ("web-phone", "/facts/rules", "light", (360, 760)),
)


def seed(home: Path) -> MemTier:
    """Return a memory that two hosts used for three days, opened at a fixed time."""
    clock = Clock(START, tick=timedelta(seconds=3))
    for host in HOSTS:
        install.install_host(host, home, PROJECT)
    for number, runs in enumerate(DAYS):
        clock.now = START + timedelta(days=number)
        for turn, (host, *words) in enumerate(runs):
            clock.later(minutes=7)
            play(home, HOSTS[host], f"{number}-{turn}", clock, *words)
        with MemTier.open(home, PROJECT, f"{HOSTS[0]}.main", clock=clock) as memory:
            memory.consolidate()
    with MemTier.open(home, PROJECT, f"{HOSTS[1]}.main", clock=clock) as memory:
        for text in PROPOSED:
            memory.remember(text, by="assistant")
    clock.later(minutes=20)
    play(home, HOSTS[0], "last", clock, QUESTION, "", "Run `make release` once Ines agrees.")
    clock.later(minutes=4)
    clock.tick = timedelta(0)
    return MemTier.open(home, PROJECT, f"{HOSTS[0]}.main", clock=clock)


def play(
    home: Path, host: str, run: str, clock: Clock, prompt: str, command: str, answer: str
) -> None:
    """Play one run of a host: its recall, its lines, and the marks of its hooks."""
    names = {"session_id": f"{host}:{clock.now:%d}", "run_id": run, "sender": "mara"}
    call = {"id": "c", "function": {"name": "shell", "arguments": command}}
    messages = [
        {"role": "user", "content": prompt, "speaker": "Mara"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "Done in 2.1 s", "tool_call_id": "c", "name": "shell"},
        {"role": "assistant", "content": answer},
    ]
    messages = messages if command else [messages[0], messages[-1]]
    with MemTier.open(home, PROJECT, f"{host}.main", clock=clock) as memory:
        memory.recall(prompt, purpose="inject", **names)
        memory.note_hook(f"{host}.main", "before_prompt_build", ok=True, ms=34)
        memory.end_run(messages, **names)
        memory.note_hook(f"{host}.main", "agent_end", ok=True, ms=18)


def take(browser: Browser, address: str, look: str, size: tuple[int, int], path: str) -> bytes:
    """Return a picture of a page as PNG."""
    context = browser.new_context(
        color_scheme="dark" if look == "dark" else "light",
        viewport={"width": size[0], "height": size[1]},
        device_scale_factor=2 if size[0] < 500 else 1.5,
    )
    tab = context.new_page()
    tab.goto(f"{address}/?token={TOKEN}")
    tab.goto(address + path)
    tab.wait_for_selector("text=● live")
    if path == "/facts/rules":
        tab.locator("summary").first.click()
    picture = tab.screenshot()
    context.close()
    return picture


def compress(browser: Browser, picture: bytes) -> bytes:
    """Return a PNG as WebP, made by Chromium, of the best quality within the limit."""
    tab = browser.new_page()
    script = """async ([picture, quality]) => {
        const image = new Image();
        image.src = `data:image/png;base64,${picture}`;
        await image.decode();
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [image.width, image.height];
        canvas.getContext("2d").drawImage(image, 0, 0);
        return canvas.toDataURL("image/webp", quality).split(",")[1];
    }"""
    encoded = base64.b64encode(picture).decode()
    for quality in (0.95, 0.9, 0.8, 0.7, 0.6):
        packed = base64.b64decode(tab.evaluate(script, [encoded, quality]))
        if len(packed) <= MOST_BYTES:
            break
    tab.close()
    return packed


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.environ["HOME"] = folder  # the hosts of this machine are none of the project's
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        with seed(Path(folder, "memtier")) as memory, served(memory) as address:
            memory.catch_up()
            recall = memory.events(kinds=["recall"])[-1].id
            for name, path, look, size in PICTURES:
                picture = take(browser, address, look, size, path.format(recall=recall))
                packed = compress(browser, picture)
                (FOLDER / f"{name}.webp").write_bytes(packed)
                print(f"{name}: {len(packed):,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
