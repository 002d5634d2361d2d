"""Prometheus' text: what it says is read back by Prometheus' own parser."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from memtier_plugin import MemTier
from memtier_plugin.telemetry.measures import CREDITS, RECALL_DURATION, Measure
from memtier_plugin.telemetry.prometheus import JournalMetrics, Registry
from tests.processes import run_memtier


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the value of each sample by its name and the label that tells it from others."""
    telling = ("memtier_recall_label", "memtier_kind", "gen_ai_agent_id", "gen_ai_memory_store_id")
    return {
        (sample.name, next((v for n in telling if (v := sample.labels.get(n))), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@given(st.text(), st.lists(st.floats(0, 1), min_size=1))
def test_any_label_and_value_is_read_back(label: str, seconds: list[float]) -> None:
    """A label of any text survives, and a histogram's buckets add up to its count."""
    registry = Registry()
    registry.add(Measure(CREDITS, 2, {"memtier.credit": label}))
    for each in seconds:
        registry.add(Measure(RECALL_DURATION, each, {}))
    families = {f.name: f.samples for f in text_string_to_metric_families(registry.render())}
    assert families["memtier_credits"][0].labels["memtier_credit"] == label
    buckets = [s for s in families["memtier_recall_duration_seconds"] if s.name.endswith("bucket")]
    assert buckets[-1].value == len(seconds)
    assert [b.value for b in buckets] == [
        sum(each <= float(b.labels["le"]) for each in seconds) for b in buckets
    ]


def test_the_metrics_of_a_project(tmp_path: Path) -> None:
    """A kept instance counts each event once, and a new one comes to the same text."""
    with MemTier.open(tmp_path / "home", "shop") as memory:
        memory.record(
            [{"role": "user", "content": "The staging database runs on port 5433."}],
            session_id="s1",
        )
        metrics = JournalMetrics(memory.store)
        for question in ("Which port does staging use?", "thanks!"):
            memory.recall(question, session_id="s2", purpose="inject")
            metrics.render()
        text = metrics.render()
        assert text == JournalMetrics(memory.store).render()
    found_samples = samples(text)
    assert found_samples["memtier_recall_duration_seconds_count", "silent"] == 1
    assert found_samples["memtier_recall_lines_total", "shop"] == 1
    assert found_samples["memtier_recall_tokens_total", "shop"] > 10
    assert found_samples["memtier_stored_total", "entry"] == 1
    assert found_samples["memtier_turns_since_capture", "main"] == 2
    assert found_samples["memtier_queue_depth", ""] == 0
    printed = run_memtier("metrics", "--home", tmp_path / "home", "--project", "shop").stdout
    assert printed == text
