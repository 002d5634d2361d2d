"""What chat may cost: reserved before each call, settled after, across processes and crashes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from memtier_plugin import MemTier
from memtier_plugin.core.errors import (
    CapReached,
    EndpointError,
    EndpointRefused,
    LedgerError,
    SettingsError,
)
from memtier_plugin.core.records import JournalEvent, count_tokens
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.schema import Consolidation
from memtier_plugin.providers import endpoint
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.pricing import DailyChatBudget, Meter, Spending, Tariff
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.store import Store
from memtier_plugin.views.reading import read_log_lines
from tests.builders import Clock
from tests.loopback import Loopback, tokens_of
from tests.processes import fork_python

ROOT = Path(__file__).parents[2]
MESSAGES = [{"role": "user", "content": "Tell me about herons. Question: herons?"}]
ANSWER = "Tell me about herons."
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands at noon."""
    return Clock(NOON)


@pytest.fixture
def account(server: Loopback, home: Path, clock: Clock) -> Callable[..., ChatBudget]:
    """Return ``account(price=..., key=value)``: the default project's, each time opened anew."""

    def account(
        price: float = 0.0, output: float = 0.0, seconds: float = 0.5, **consolidation: Any
    ) -> ChatBudget:
        local = {
            "base_url": server.base_url,
            "timeout_s": seconds,
            "price_per_million_tokens": price,
            "price_per_million_output_tokens": output,
        }
        config = {
            "endpoints": {"local": local},
            "consolidation": {"model": "endpoint:local/m", **consolidation},
        }
        MemTier.open(home).close()
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        store = Store(home, "default", load_settings(home, "default"))
        return ChatBudget(store, "daemon", clock)

    return account


def ask(budget: ChatBudget, purpose: str = "extraction", max_tokens: int = 100, **more: Any) -> str:
    """Ask the account's model once and return its answer."""
    model = budget.chat_model()
    assert model is not None
    return model.chat(MESSAGES, purpose=purpose, max_tokens=max_tokens, **more).text


def refusal(budget: ChatBudget, purpose: str = "extraction", max_tokens: int = 100) -> str:
    """Return how the account refuses a call."""
    with pytest.raises(CapReached) as caught:
        ask(budget, purpose, max_tokens)
    return str(caught.value)


def lines(budget: ChatBudget) -> list[dict[str, Any]]:
    """Return what the journal says of chat, oldest first, without the times."""
    events = budget._store.reader().events(["chat"], since=datetime(2000, 1, 1, tzinfo=UTC))
    return [{"id": event.id, **event.data} for event in events]


def test_none_is_no_model(account: Callable[..., ChatBudget]) -> None:
    """Without a model in the settings there is none; a wrong one is told with its key."""
    assert account(model="none").chat_model() is None
    with pytest.raises(SettingsError, match=r"consolidation\.model is .*no endpoint 'other'"):
        account(model="endpoint:other/m").chat_model()
    with pytest.raises(SettingsError, match=r"ask\.model is 'gpt'; expected"):
        account().chat_model("gpt", key="ask.model")


def test_a_call_is_reserved_and_settled(
    account: Callable[..., ChatBudget], server: Loopback
) -> None:
    """Two lines of the journal: the most that it may cost before, what it took after."""
    budget = account(price=3e5, output=9e5, max_cost_per_day=1000.0)
    assert ask(budget) == ANSWER
    reserved, settled = lines(budget)
    estimated = count_tokens(MESSAGES[0]["content"])
    reading = tokens_of(MESSAGES[0]["content"])
    assert reserved["reserves"] == pytest.approx(0.3 * (1.5 * estimated + 3 * 100))
    assert (reserved["model"], reserved["purpose"]) == ("local/m", "extraction")
    assert settled == {
        "id": settled["id"],
        "settles": reserved["id"],
        "model": "local/m",
        "purpose": "extraction",
        "calls": 1,
        "tokens": reading,
        "output_tokens": tokens_of(ANSWER),
        "cost": pytest.approx(0.3 * (reading + 3 * tokens_of(ANSWER))),
    }
    day = budget.spent_today()
    tokens = settled["tokens"] + settled["output_tokens"]
    assert (day.background, day.asked) == (Spending(settled["cost"], 1, tokens), Spending())
    assert day.cost == settled["cost"]


def test_the_log_tells_it(account: Callable[..., ChatBudget], home: Path) -> None:
    """`memtier log` says in words what was asked, for what, and what it cost."""
    ask(account(price=1000.0, max_cost_per_day=1.0), "summary", 10)
    with MemTier.open(home) as memory:
        texts = [line["text"] for line in read_log_lines(memory, date="2026-01-05")]
    assert texts == [
        "summary by local/m: asked, for up to 0.0280",
        "summary by local/m: 10 tokens read, 6 written, for 0.0160",
    ]


def test_output_costs_as_input_unless_told() -> None:
    """A price of the input alone counts for what is written too, so that no cap is too wide."""
    configured = endpoint.Endpoint(base_url="http://127.0.0.1:9/v1", price_per_million_tokens=2.0)
    assert ChatModel.of_endpoint("local", configured, "m").tariff == Tariff("local/m", 2e-6, 2e-6)


def test_nothing_is_spent_unasked(account: Callable[..., ChatBudget], server: Loopback) -> None:
    """An endpoint with a price is not asked before the user says how much a day; a free one is."""
    budget = account(price=1.0)
    assert "set consolidation.max_cost_per_day" in refusal(budget)
    assert not server.requests
    assert not lines(budget)
    assert ask(account()) == ANSWER


def test_a_days_money(account: Callable[..., ChatBudget], server: Loopback, clock: Clock) -> None:
    """What is spent in a day stays within the cap, whatever it was for; the next day is new."""
    budget = account(price=1e6, max_cost_per_day=300.0)
    calls = 0
    with pytest.raises(CapReached) as caught:
        for calls in range(100):
            ask(budget, ("extraction", "ask", "summary")[calls % 3])
    assert calls > 3
    assert server.count() == calls
    assert 185 < budget.spent_today().cost < 300
    assert caught.value.until == datetime(2026, 1, 6, tzinfo=UTC)
    assert "more from 2026-01-06 00:00 UTC, or set consolidation.max_cost_per_day" in str(
        caught.value
    )
    assert "one call to local/m may cost 500" in refusal(budget, max_tokens=500_000)[:40]
    clock.now = datetime(2026, 1, 6, 0, 1, tzinfo=UTC)
    assert budget.spent_today().cost == 0
    assert ask(budget) == ANSWER


def test_a_days_calls(account: Callable[..., ChatBudget], server: Loopback, clock: Clock) -> None:
    """A free endpoint is asked so often a day; what a user asks has a count of its own."""
    budget = account(max_calls_per_day=2)
    ask(budget, "extraction")
    ask(budget, "evolution")
    assert refusal(budget, "summary").startswith(
        "2 of 2 calls to local/m were made today; more from"
    )
    ask(budget, "ask")
    ask(budget, "ask")
    assert "2 of 2 calls" in refusal(budget, "ask")
    assert server.count() == 4
    clock.now = datetime(2026, 1, 7, tzinfo=UTC)
    ask(budget)
    clock.now = datetime(2026, 1, 1, tzinfo=UTC)  # a clock that was set back
    ask(budget)


def test_each_attempt_counts(account: Callable[..., ChatBudget], server: Loopback) -> None:
    """Answers that came too late or unreadably are charged; refusals and a dead server are not."""
    budget = account(price=1e6, max_cost_per_day=10_000.0)
    server.script("truncated", "500", "page", "ok")
    assert ask(budget) == ANSWER
    counted = [(line["calls"], line["cost"]) for line in lines(budget) if "settles" in line]
    most = count_tokens(MESSAGES[0]["content"]) + 100
    real = tokens_of(MESSAGES[0]["content"]) + tokens_of(ANSWER)
    assert counted == [(1, most), (1, most), (1, real)], "the 500 left its reservation to the next"
    before = budget.spent_today().cost
    server.refuse = "herons"
    with pytest.raises(EndpointRefused):
        ask(budget)
    server.stop()
    with pytest.raises(EndpointError):
        ask(budget)
    assert budget.spent_today().cost == before
    assert budget.spent_today().background.calls == 3


def test_a_dead_server_uses_up_no_calls(
    account: Callable[..., ChatBudget], server: Loopback
) -> None:
    """An endpoint that is down all day is asked when it is back: failures do not fill the count."""
    budget = account(max_calls_per_day=1)
    server.script(*["close"] * 8)
    for _ in range(2):
        with pytest.raises(EndpointError):
            ask(budget)
    assert len(lines(budget)) == 4, "nor the journal"
    assert ask(budget) == ANSWER


def test_a_crash_counts_whole(account: Callable[..., ChatBudget], server: Loopback) -> None:
    """A call that SIGKILL left without its answer counts as if it had cost the most."""
    budget = account(price=1e6, max_cost_per_day=1000.0)
    server.always("slow")
    code = (
        "import sys; from pathlib import Path; from datetime import UTC, datetime\n"
        "from memtier_plugin.storage.budget import ChatBudget\n"
        "from memtier_plugin.core.settings.load import load_settings\n"
        "from memtier_plugin.storage.store import Store\n"
        "home = Path(sys.argv[1])\n"
        "store = Store(home, 'default', load_settings(home, 'default'))\n"
        f"noon = datetime.fromisoformat({NOON.isoformat()!r})\n"
        "account = ChatBudget(store, 'daemon', lambda: noon)\n"
        f"account.chat_model().chat({MESSAGES!r}, purpose='extraction', max_tokens=100)\n"
    )
    child = fork_python("-c", code, budget._store.project_folder.home)
    while not server.requests:
        assert child.poll() is None
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    budget._store.catch_up_all()
    [reserved] = lines(budget)
    tokens = reserved["tokens"] + reserved["output_tokens"]
    assert budget.spent_today().background == Spending(reserved["reserves"], 1, tokens)


def test_an_interrupt_counts_whole(account: Callable[..., ChatBudget], server: Loopback) -> None:
    """Ctrl-C while the answer is awaited settles for what the call may have cost."""
    budget = account(price=1e6, max_cost_per_day=1000.0, seconds=60.0)
    server.always("slow")

    def interrupt() -> None:
        while not server.requests:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # some runners ignore it
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            ask(budget)
    finally:
        signal.signal(signal.SIGINT, before)
    assert budget.spent_today().background.calls == 1
    assert budget.spent_today().cost == count_tokens(MESSAGES[0]["content"]) + 100


def test_two_at_once(account: Callable[..., ChatBudget], server: Loopback) -> None:
    """Threads and processes that ask at the same time share one count, to the last call."""
    budget = account(max_calls_per_day=5)
    done: list[str] = []
    refused: list[CapReached] = []

    def many() -> None:
        for _ in range(4):
            try:
                done.append(ask(budget))
            except CapReached as error:
                refused.append(error)

    threads = [threading.Thread(target=many) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), len(refused)) == (5, 7)
    assert server.count() == 5


def test_what_cannot_be_counted_is_not_asked(
    account: Callable[..., ChatBudget], server: Loopback
) -> None:
    """Where the journal cannot be written no call is made."""
    budget = account()
    ask(budget)
    journal = budget._store.project_folder.path / "journal" / "_project"
    for path in journal.iterdir():
        path.unlink()
        path.mkdir()
    with pytest.raises(LedgerError):
        ask(budget)
    assert server.count() == 1


def test_lines_come_in_any_order() -> None:
    """The fold of a day does not depend on the order of the lines, nor on those of other days."""

    def event(identity: str, day: int, **data: Any) -> JournalEvent:
        at = NOON.replace(day=day)
        return JournalEvent(id=identity, timestamp=at, kind="chat", agent_id="a", data=data)

    events = [
        event("1", 5, purpose="extraction", reserves=9.0, calls=1, tokens=90),
        event("2", 5, purpose="extraction", settles="1", cost=2.0, calls=1, tokens=7),
        event("3", 5, purpose="ask", reserves=4.0, calls=1, tokens=30, output_tokens=10),
        event("4", 4, purpose="extraction", reserves=100.0, calls=1),
        event("5", 6, purpose="extraction", cost=50.0, calls=1),
        event("6", 5, purpose="summary", cost=0.5, calls=1),
    ]
    expected = DailyChatBudget(
        datetime(2026, 1, 6, tzinfo=UTC), Spending(2.5, 2, 7), Spending(4.0, 1, 40), 10, 1.0, 500
    )
    limits = Consolidation(max_calls_per_day=10, max_cost_per_day=1.0, max_tokens_per_day=500)
    assert DailyChatBudget.from_events(events, NOON, limits) == expected
    assert DailyChatBudget.from_events(reversed(events), NOON, limits) == expected
    assert expected.cost == 6.5


def test_a_model_without_an_account(server: Loopback) -> None:
    """Where nothing is to be counted a model is asked all the same (the bench's reader)."""
    model = ChatModel.of_endpoint("local", endpoint.Endpoint(base_url=server.base_url), "m")
    assert model.chat(MESSAGES, purpose="bench", max_tokens=9).text == ANSWER
    assert Meter() == Meter(0, 0, 0, 0)
