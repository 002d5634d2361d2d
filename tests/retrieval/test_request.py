"""The options of a recall: one record, or the same by name."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import get_type_hints

import pytest

from memtier_plugin import MemTier, RecallRequest
from memtier_plugin.core.errors import MessageError
from memtier_plugin.core.results import RecallOptions
from memtier_plugin.server.methods import Methods
from memtier_plugin.server.requests import BadParams, check_arguments


def test_options_are_the_fields_of_a_request() -> None:
    """Every field can be given by name, with the same type, and nothing else."""
    assert get_type_hints(RecallOptions) == get_type_hints(RecallRequest)
    assert set(get_type_hints(RecallOptions)) == {field.name for field in fields(RecallRequest)}


def test_a_request_and_its_options_by_name_recall_the_same(home: Path) -> None:
    """Options by name overrule those of the request; an unknown one is refused."""
    with MemTier.open(home) as memory:
        for text in ("a red fox", "a red hen", "a red barn"):
            memory.record([{"role": "user", "content": text}], session_id="s")
        by_name = memory.recall("red fox", k=2, depth="raw")
        request = RecallRequest(k=2, depth="raw")
        by_request = memory.recall("red fox", request=request)
        assert [hit.id for hit in by_request.injected] == [hit.id for hit in by_name.injected]
        assert len(memory.recall("red fox", request=request, k=1).injected) == 1
        with pytest.raises(MessageError, match="limit"):
            memory.recall("red fox", limit=3)  # type: ignore[call-arg]
        with pytest.raises(MessageError, match="k"):
            memory.recall("red fox", k="2")  # type: ignore[arg-type]


def test_a_request_over_json_has_the_same_options(home: Path) -> None:
    """Options are checked by their types, times are parsed, unknown names are refused."""
    recall = Methods(home, lambda context: None).recall
    checked = check_arguments(
        recall, {"query": "q", "at": "2026-03-01T09:00:00Z", "depth": "raw", "deadline_ms": 50}
    )
    assert checked["at"] == datetime.fromisoformat("2026-03-01T09:00:00+00:00")
    assert checked["depth"] == "raw" and checked["deadline_ms"] == 50
    for params, message in (
        ({"query": "q", "k": "3"}, "k: expected int or None, got str"),
        (
            {"query": "q", "depth": "deep"},
            "depth: expected mixed or facts or raw or auto, got 'deep'",
        ),
        ({"query": "q", "at": "noon"}, "at is not a time"),
        ({"query": "q", "limit": 3}, "unexpected keyword argument 'limit'"),
        ({"k": 3}, "query"),
    ):
        with pytest.raises(BadParams, match=message):
            check_arguments(recall, params)
