"""A preview: what a prompt would get, for a person to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtier_plugin.memory import MemTier

LINES = [
    {"role": "user", "content": "The ferry to Skagen leaves at seven."},
    {"role": "assistant", "content": "Understood."},
    {"role": "tool", "name": "timetable", "content": "07:00 ferry to Skagen"},
]


@pytest.mark.parametrize("query", ["When does the ferry leave?", "ferry", "thanks!", "in short"])
def test_a_preview_is_what_a_prompt_gets(tmp_path: Path, query: str) -> None:
    """The block, its lines and the reason of silence are those of a prompt; nothing is credited."""
    with MemTier.open(home=tmp_path / "home", project="p", agent_id="main") as memory:
        memory.record(LINES, session_id="s1")
        preview = memory.recall(query, purpose="preview")
        recall = memory.recall(query, purpose="inject")
        assert preview.text.splitlines()[1:] == recall.text.splitlines()[1:]
        assert [hit.id for hit in preview.injected] == [hit.id for hit in recall.injected]
        assert (preview.label, preview.silent) == (recall.label, recall.silent)
        answer = [{"role": "assistant", "content": "The ferry leaves at seven."}]
        run = memory.end_run(answer, session_id="s2", recall_ids=[preview.id])
        assert not run.credits and "prompt" in run.uncredited[preview.id]
