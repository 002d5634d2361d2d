"""The bill: what hosts report is added up once, and what is compared is counted alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin import MemTier
from memtier_plugin.core.records import UsageEvent
from memtier_plugin.core.results import RunEvent
from memtier_plugin.hooks.payloads import MOST_TOKENS, usage_of
from memtier_plugin.telemetry.bill import read_bill
from tests.processes import run_memtier

OPENCLAW = {
    "role": "assistant",
    "provider": "anthropic",
    "model": "sonnet",
    "usage": {"input": 100, "output": 20, "cacheRead": 900, "cacheWrite": 50, "total": 1070},
}
HERMES = {
    "provider": "anthropic",
    "model": "sonnet",
    "usage": {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 900},
}
PRICES = {"prices": {"anthropic/sonnet": {"input": 3.0, "cached": 0.3, "output": 15.0}}}
PORT = {"role": "user", "content": "The staging database runs on port 5433."}


def test_what_hosts_report_becomes_usage() -> None:
    """Both hosts' reports are read, calls of one model are one record, and others are apart."""
    other = {**OPENCLAW, "model": "haiku"}
    assert usage_of([OPENCLAW, {"role": "user"}, OPENCLAW, other]) == (
        UsageEvent(
            model="anthropic/sonnet", calls=2, input=200, cached=1800, cache_write=100, output=40
        ),
        UsageEvent(
            model="anthropic/haiku", calls=1, input=100, cached=900, cache_write=50, output=20
        ),
    )
    assert usage_of([HERMES]) == (
        UsageEvent(model="anthropic/sonnet", calls=1, input=100, cached=900, output=20),
    )


@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.dictionaries(
                st.sampled_from(["usage", "model", "input", "cacheRead", "output_tokens"]), inner
            ),
        )
    )
)
def test_any_report_is_read(reports: list[Any]) -> None:
    """Whatever a host says of usage, no count is negative or beyond reason, and nothing raises."""
    for usage in usage_of(reports):
        counts = (usage.input, usage.cached, usage.cache_write, usage.output)
        assert all(0 <= count <= MOST_TOKENS * len(reports) for count in counts)


def test_the_bill_adds_up(tmp_path: Path) -> None:
    """Tokens and money are those of the recalls and of the last report of each run."""
    with MemTier.open(tmp_path / "home", "shop", settings=PRICES) as memory:
        entries = memory.record([PORT], session_id="s1")
        recall = memory.recall(
            "Which port does staging use?", session_id="s2", run_id="r1", purpose="inject"
        )
        memory.recall("thanks!", session_id="s2", run_id="r2", purpose="inject")
        for delivered in (1, 2):  # delivered again, with what it took in the end
            used = {"model": "anthropic/sonnet", "calls": delivered, "input": 1000, "cached": 9000}
            memory.note_usage([UsageEvent(**used)], "r1")
        bill = read_bill(memory.store, None)
    block, everything = recall.tokens, entries[0].tokens
    assert (bill.turns, bill.blocks, bill.injected, bill.lines) == (2, 1, block, 1)
    [model] = bill.models
    assert (model.runs, model.calls, model.input, model.cached_share) == (1, 2, 1000, 0.9)
    assert model.cost == pytest.approx((1000 * 3 + 9000 * 0.3) / 1e6)
    assert bill.memory_tokens == 2 * block  # in both calls of the run
    assert bill.memory_cost == pytest.approx((block * 3 + block * 0.3) / 1e6)
    assert bill.system_prompt_tokens == 3 * everything  # and in the one of the other run
    assert bill.system_prompt_cost == pytest.approx((everything * 3 + everything * 0.3) / 1e6)
    shown = run_memtier("bill", "--json", "--home", tmp_path / "home", "--project", "shop").stdout
    assert json.loads(shown)["models"][0]["cost"] is None  # there are no prices in this home
    none = run_memtier(
        "bill", "--since", "2099-01-01", "--home", tmp_path / "home", "--project", "shop"
    )
    assert "No host has reported" in none.stdout


def test_a_run_brings_its_usage(tmp_path: Path) -> None:
    """What the event of a run says of usage is in the journal after the hook."""
    from memtier_plugin.core import plugins
    from memtier_plugin.core.records import Message
    from memtier_plugin.core.results import RunContext

    context = RunContext(
        agent_id="openclaw.main",
        session_id="s",
        run_id="r",
        home=str(tmp_path / "home"),
        project="p",
    )
    event = RunEvent(messages=(Message(role="user", content="hello"),), usage=usage_of([OPENCLAW]))
    plugins.manager().hook.agent_end(event=event, context=context)
    with MemTier.open(tmp_path / "home", "p") as memory:
        [written] = memory.events(kinds=["usage"])
    assert (written.agent_id, written.run_id, written.data["cached"]) == ("openclaw.main", "r", 900)
