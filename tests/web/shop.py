"""A project as it looks after some days of use, for the pages to show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from memtier_plugin.memory import MemTier
from tests.builders import Clock

AGENT = "openclaw.main"
DAYS = (
    (
        "Good morning. The shop moves to the new host heron on Friday, not to osprey.",
        "Noted: heron on Friday. Shall I prepare the deploy script for it?",
        "Yes. Always run the smoke tests before you deploy, and never deploy after 16:00.",
        "Understood: smoke tests first, and nothing after 16:00.",
    ),
    (
        "Which host do we deploy to, and when may you deploy?",
        "To heron, after the smoke tests and before 16:00.",
        "Good. My name is Mara Lindqvist, and I prefer short answers with the command first.",
        "Certainly, Mara.",
    ),
    (
        "Deploy the shop now, please.",
        "The smoke tests pass; the shop runs on heron.",
        "The database password is rotated every month by the platform team.",
        "I will remember that the platform team rotates it.",
        "We moved again: the shop's host is kestrel now.",
        "Then I deploy to kestrel from now on.",
    ),
)


def open_shop(home: Path, days: int = 3) -> MemTier:
    """Return a memory with some days of sessions, recalls, credits and facts.

    The last one of its days is the day before today.
    """
    start = datetime.now(UTC).replace(hour=9, minute=2, second=0, microsecond=0)
    clock = Clock(start - timedelta(days=days), tick=timedelta(seconds=41))
    memory = MemTier.open(home, "shop", AGENT, clock=clock)
    for number, texts in enumerate(DAYS[:days]):
        clock.now = start - timedelta(days=days - number)
        session = f"telegram:mara:{number + 1}"
        for turn in range(0, len(texts), 2):
            _run(memory, session, f"run-{number}-{turn}", texts[turn], texts[turn + 1])
    memory.consolidate()
    memory.remember("The staging host is called wren.", by="assistant")
    memory.remember("Releases are tagged by Jonas.", by="user")
    return memory


def _run(memory: MemTier, session: str, run: str, prompt: str, answer: str) -> None:
    """Play one turn with a tool call, which fails when asked at first and then succeeds."""
    memory.recall(prompt, purpose="inject", session_id=session, run_id=run, sender="mara")
    failed = "host do we" in prompt
    call = {"id": "c1", "function": {"name": "shell", "arguments": "make deploy"}}
    memory.end_run(
        [
            {"role": "user", "content": prompt, "speaker": "Mara"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
            {
                "role": "tool",
                "content": "error: no route to host osprey" if failed else "14 passed in 2.1 s",
                "tool_call_id": "c1",
                "name": "shell",
                "is_error": failed,
            },
            {"role": "assistant", "content": answer},
        ],
        session_id=session,
        run_id=run,
        sender="mara",
    )
