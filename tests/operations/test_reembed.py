"""Changing the embedding model: what is embedded anew, what it costs, and the bad days of it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import CapReached, EndpointError, LedgerError
from memtier_plugin.core.events import EmbedEvent
from memtier_plugin.core.files import release_lock, try_acquire_lock
from memtier_plugin.memory import MemTier
from memtier_plugin.operations import reembed
from memtier_plugin.operations.reembed import EmbeddingState, read_embedding_state
from memtier_plugin.providers import endpoint
from memtier_plugin.providers.embedding import remote
from memtier_plugin.storage.index.vector_coverage import VectorCoverage
from tests.builders import write_config
from tests.loopback import Loopback
from tests.processes import PATIENCE, wait_until
from tests.proofs.checks import rotated_model

jobs = import_module("memtier_plugin.daemon.jobs")
scheduler = import_module("memtier_plugin.daemon.scheduler")

ITEMS = 100
NO_SUMMARIES = {"summaries": {"enabled": False}}  # which would be items as well
PRICE = 1_000.0  # of a million tokens: a thousandth for each


@pytest.fixture
def server(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """Return a server; attempts follow each other faster, and vectors come in small steps."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(endpoint, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(reembed, "STEP", 32)
    return server


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fill a project with lines that the shipped model has embedded, and return its home."""
    home = tmp_path_factory.mktemp("filled") / "home"
    with MemTier.open(home, "p", settings={"embedding.model": "default"}) as memory:
        lines = [f"On day {n} the baker sold {n * 7} loaves of rye bread." for n in range(ITEMS)]
        memory.record([{"role": "user", "content": t} for t in lines], session_id="s", run_id="r")
        assert read_embedding_state(memory.store).missing == 0
    return home


@pytest.fixture
def filled(filled_once: Path, home: Path) -> Path:
    """Return the home of that project, which a test may change."""
    return shutil.copytree(filled_once, home)


Configured = Callable[..., MemTier]


@pytest.fixture
def with_endpoint(filled: Path, server: Loopback) -> Iterator[Configured]:
    """Open the project with the endpoint as its model, as config.yaml says."""
    opened = []

    def open_(*, model: str = "m", cap: float = 0.0, **more: Any) -> MemTier:
        about = {"base_url": server.base_url, **more}
        config = {
            "embedding": {"model": f"endpoint:local/{model}", "max_cost": cap},
            "endpoints": {"local": about},
            "consolidation": {"enabled": False},
        }
        write_config(filled, config)
        opened.append(MemTier.open(filled, "p"))
        return opened[-1]

    yield open_
    for memory in opened:
        memory.close()


def state(memory: MemTier) -> EmbeddingState:
    """Return how the vectors stand."""
    return read_embedding_state(memory.store)


def models(memory: MemTier) -> dict[str, int]:
    """Return how many vectors of each model are in the index."""
    rows = memory.store.index.connection().execute("SELECT model, count(*) FROM vectors GROUP BY 1")
    return {str(model): int(number) for model, number in rows}


def events(memory: MemTier) -> list[dict[str, Any]]:
    """Return what the journal says of embedding."""
    return [dict(event.data) for event in memory.events(kinds=["embed"])]


# -- switching -----------------------------------------------------------------------------------


def test_switch_to_another_static_model(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass embeds everything by the new model, and only then lets go of the old one's vectors."""
    monkeypatch.setattr(reembed, "STEP", 32)
    folder = rotated_model(tmp_path / "turned")
    with MemTier.open(filled, "p", settings={"embedding.model": str(folder)}) as memory:
        [old] = models(memory)
        assert state(memory).missing == ITEMS and state(memory).due
        stops = iter([False, True])
        report = memory.reembedding.run(stop=lambda: next(stops))
        assert (report.embedded, report.left) == (64, ITEMS - 64)
        assert models(memory)[old] == ITEMS
        report = memory.reembedding.run()
        assert report.left == 0
        assert models(memory) == {memory.store.embedder.name: ITEMS}  # type: ignore[union-attr]
        assert old not in models(memory)
        assert memory.recall("rye bread of the baker").label == "hybrid"
        assert not state(memory).due
        assert memory.reembedding.run().embedded == 0


def test_switch_to_an_endpoint(with_endpoint: Configured, server: Loopback) -> None:
    """An endpoint embeds what is stored in a pass; recalls are lexical before and hybrid after."""
    memory = with_endpoint()
    assert memory.recall("who sold bread?").label == "degraded: not embedded yet"
    assert not server.requests  # not even for the query: there is nothing to compare it with
    reported: list[tuple[int, int]] = []
    report = memory.reembedding.run(progress=lambda *at: reported.append(at))
    assert (report.embedded, report.left, report.dropped, report.cost) == (ITEMS, 0, ITEMS, 0.0)
    assert reported[-1] == (ITEMS, ITEMS) and reported == sorted(reported)
    assert server.texts == ITEMS + 1  # and the probe
    recall = memory.recall("who sold bread?")
    assert recall.label == "hybrid"
    assert server.requests[-1]["body"]["input"] == ["who sold bread?"]
    assert events(memory) == []  # what costs nothing is not journalled


def test_writing_asks_no_endpoint(with_endpoint: Configured, server: Loopback) -> None:
    """What is written or recalled is never embedded on that way; the next pass does it."""
    memory = with_endpoint()
    memory.reembedding.run()
    server.requests.clear()
    memory.record([{"role": "user", "content": "A new line."}], session_id="s", run_id="r2")
    assert not server.requests
    memory.catch_up()
    assert memory.recall("what is new?").hits
    assert [request["body"]["input"] for request in server.requests] == [["what is new?"]]
    assert state(memory).missing == 1
    assert memory.reembedding.run().embedded == 1


def test_no_secret_is_sent(with_endpoint: Configured, server: Loopback) -> None:
    """What redaction masks is masked in what an endpoint gets, queries included."""
    memory = with_endpoint()
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    memory.record(
        [{"role": "user", "content": f"the token is {secret}"}], session_id="s", run_id="r2"
    )
    memory.reembedding.run()
    memory.recall(f"what is {secret} for?")
    sent = json.dumps([request["body"] for request in server.requests])
    assert "what is [redacted" in sent and "the token is [redacted" in sent
    assert secret not in sent


def test_what_is_forgotten_is_not_sent(with_endpoint: Configured, server: Loopback) -> None:
    """A tombstone keeps a text from being embedded, and `[system]` lines are never."""
    memory = with_endpoint()
    [entry, _] = memory.record(
        [
            {"role": "user", "content": "xyzzy one"},
            {"role": "system", "content": "[system] xyzzy two"},
        ],
        session_id="s",
        run_id="r2",
    )
    memory.forget(ids=[entry.id])
    memory.reembedding.run()
    assert "xyzzy" not in json.dumps([request["body"] for request in server.requests])


def test_back_again(with_endpoint: Configured, filled: Path) -> None:
    """Who changes the model back before the pass is over needs nothing embedded anew."""
    memory = with_endpoint()
    stops = iter([True])
    memory.reembedding.run(stop=lambda: next(stops))
    assert len(models(memory)) == 2
    with MemTier.open(filled, "p", settings={"embedding.model": "default"}) as back:
        assert state(back).missing == 0
        assert back.recall("bread").label == "hybrid"
        assert back.reembedding.run().embedded == 0
        assert len(models(back)) == 1


def test_a_deletion_that_was_cut_off(filled: Path, tmp_path: Path) -> None:
    """A model half of whose vectors are deleted is never used; the next pass ends the deletion."""
    with MemTier.open(filled, "p", settings={"embedding.model": "default"}) as memory:
        name = memory.store.embedder.name  # type: ignore[union-attr]
        index = VectorCoverage(memory.store.index.connection())
        steps = index.drop_model(name, 10)
        next(steps)
        steps.close()  # as a SIGKILL between two transactions does
        assert models(memory) == {name: ITEMS - 10}
        assert state(memory).missing == ITEMS and state(memory).due
        recall = memory.recall("bread")
        assert (recall.label, recall.vectors) == ("degraded: not embedded yet", 0)
        report = memory.reembedding.run()
        assert report.left == 0 and models(memory) == {name: ITEMS}
        assert memory.recall("bread").label == "hybrid"
        assert memory.recall("bread").vectors >= ITEMS


def test_two_at_once(with_endpoint: Configured, server: Loopback) -> None:
    """While one process embeds, another is refused: nothing is paid for twice."""
    memory = with_endpoint()
    held = try_acquire_lock(memory.folder / ".embed.lock")
    assert held is not None
    with pytest.raises(LedgerError, match="another process is embedding the project 'p' now"):
        memory.reembedding.run()
    release_lock(held)
    assert memory.reembedding.run().embedded == ITEMS


# -- bad days ------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("429", "refuses further requests for now"),
        ("500", "is in trouble"),
        ("truncated", "returned an invalid answer"),
        ("close", "cannot be reached"),
        ("fewer", "returned an invalid answer"),
        ("dimension", "now returns vectors of 191 dimensions"),
    ],
)
def test_a_bad_day_midway(
    with_endpoint: Configured, server: Loopback, fault: str, message: str
) -> None:
    """A pass that the endpoint ends keeps what it has; `status` says why; the next one goes on."""
    memory = with_endpoint()
    server.script("ok", "ok")  # the probe, and one request
    server.always(fault)
    with pytest.raises(EndpointError, match=message):
        memory.reembedding.run()
    embedded = ITEMS - state(memory).missing
    assert 0 < embedded < ITEMS
    assert len({len(v) for (v,) in _vectors(memory)}) == 1
    degraded = " ".join(memory.status()["degraded"])
    assert message in degraded and server.base_url in degraded
    assert any(message in f.what and f.level == "error" for f in memory.doctor())
    assert memory.recall("bread").label == "degraded: not embedded yet"
    server.always(None)
    server.texts = 0
    report = memory.reembedding.run()
    assert (report.embedded, report.left) == (ITEMS - embedded, 0)
    assert server.texts == ITEMS - embedded + 1  # nothing twice, but for the probe
    assert memory.status()["degraded"] == []
    assert memory.recall("bread").label == "hybrid"


def _vectors(memory: MemTier) -> list[Any]:
    name = memory.store.embedder.name  # type: ignore[union-attr]
    rows = memory.store.index.connection().execute(
        "SELECT vector FROM vectors WHERE model = ?", (name,)
    )
    return rows.fetchall()


def test_the_endpoint_is_down(with_endpoint: Configured, server: Loopback) -> None:
    """With nobody listening nothing is lost: recalls go by words, and say that they do."""
    memory = with_endpoint()
    memory.reembedding.run()
    server.stop()
    recall = memory.recall("who sold bread on day 7?")
    assert recall.hits and recall.vectors == 0
    assert recall.label.startswith("degraded: embedding: the endpoint http://127.0.0.1:")
    assert "cannot be reached" in recall.label


def test_a_slow_endpoint_does_not_hold_a_recall(
    with_endpoint: Configured, server: Loopback
) -> None:
    """A recall with a deadline has its lexical hits in time, whatever the endpoint does."""
    memory = with_endpoint()
    memory.reembedding.run()
    server.always("slow")
    recall = memory.recall("who sold bread on day 7?", deadline_ms=4000)
    assert recall.ms < 4000
    assert recall.hits
    assert "did not answer within" in recall.label


def test_the_key_is_missing(
    with_endpoint: Configured, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the key nothing is sent, and `doctor` names the variable."""
    server.key = "k"
    memory = with_endpoint(key_env="BREAD_KEY")
    with pytest.raises(EndpointError, match="the environment variable BREAD_KEY is not set"):
        memory.reembedding.run()
    assert not server.requests
    assert any("BREAD_KEY is not set here" in finding.what for finding in memory.doctor())
    monkeypatch.setenv("BREAD_KEY", "k")
    assert memory.reembedding.run().left == 0
    assert not any("BREAD_KEY" in finding.what for finding in memory.doctor())


def test_another_model_by_the_same_name(with_endpoint: Configured, server: Loopback) -> None:
    """Vectors of one length but another space are found out before any is kept."""
    memory = with_endpoint()
    memory.reembedding.run()
    memory.record([{"role": "user", "content": "A new line."}], session_id="s", run_id="r2")
    server.always("other")
    with pytest.raises(
        EndpointError, match="returns different vectors for 'm' from those in the index"
    ):
        memory.reembedding.run()
    assert state(memory).missing == 1
    report = memory.reembedding.run(afresh=True)
    assert (report.embedded, report.left) == (ITEMS + 1, 0)
    assert memory.reembedding.run().left == 0


def test_a_model_that_cannot_be_had(filled: Path) -> None:
    """A model that is not there breaks neither writing nor recalling; `doctor` says what to do."""
    settings = {"embedding.model": "endpoint:nobody/m"}
    with MemTier.open(filled, "p", settings=settings) as memory:
        memory.record([{"role": "user", "content": "A new line."}], session_id="s", run_id="r2")
        recall = memory.recall("a new line")
        assert recall.hits[0].text == "A new line."
        assert "no endpoint 'nobody' is configured" in recall.label
        assert "no endpoint 'nobody'" in " ".join(memory.status()["degraded"])
        assert any("no endpoint 'nobody'" in finding.what for finding in memory.doctor())


def test_unencrypted(with_endpoint: Configured, server: Loopback) -> None:
    """`doctor` warns of an endpoint beyond this machine that is spoken to in the clear."""
    clear = with_endpoint(base_url="http://192.0.2.1/v1", key_env="HOME")
    assert any(
        "the key and all texts go to the endpoint unencrypted" in f.what for f in clear.doctor()
    )
    here = with_endpoint()
    assert not any("unencrypted" in finding.what for finding in here.doctor())


# -- money ---------------------------------------------------------------------------------------


def test_nothing_is_spent_unasked(with_endpoint: Configured, server: Loopback) -> None:
    """A priced endpoint gets no request before the user has seen the estimate and allowed it."""
    memory = with_endpoint(price_per_million_tokens=PRICE)
    before = state(memory)
    assert before.paid and not before.due
    assert before.cost == pytest.approx(before.tokens * PRICE / 1e6)
    with pytest.raises(CapReached, match=r"0\.0000 of the 0\.0000 allowed, and the 100 items left"):
        memory.reembedding.run()
    scheduler.serve_projects(memory.home, ["p"], once=True)
    memory.recall("bread")
    assert not server.requests
    assert "would cost about" in " ".join(memory.status()["degraded"])


def test_approval(with_endpoint: Configured, server: Loopback) -> None:
    """What was approved is spent and no more; the journal has what it was, to the token."""
    memory = with_endpoint(price_per_million_tokens=PRICE)
    estimate = state(memory).cost
    allowed = memory.reembedding.approve().allowed
    assert estimate < allowed < 2 * estimate
    report = memory.reembedding.run()
    assert report.left == 0
    assert report.tokens == server.tokens
    assert report.cost == pytest.approx(server.tokens * PRICE / 1e6)
    after = state(memory)
    assert after.spent == pytest.approx(report.cost) and after.spent <= allowed
    journal = events(memory)
    assert sum(event.get("tokens", 0) for event in journal) == server.tokens
    assert sum(event.get("embedded", 0) for event in journal) == ITEMS


def test_the_cap(with_endpoint: Configured, server: Loopback) -> None:
    """A pass stops before the cap is passed, says what is left, and goes on when it is raised."""
    memory = with_endpoint(price_per_million_tokens=PRICE)
    cap = state(memory).cost / 2
    memory = with_endpoint(price_per_million_tokens=PRICE, cap=cap)
    with pytest.raises(CapReached, match="`memtier embed --yes` allows it"):
        memory.reembedding.run()
    spent = server.tokens * PRICE / 1e6
    assert 0 < spent <= cap
    half = state(memory)
    assert half.spent == pytest.approx(spent)
    assert 0 < half.missing < ITEMS
    requests = server.count()
    with pytest.raises(CapReached):
        memory.reembedding.run()  # another pass, the same cap
    assert server.tokens * PRICE / 1e6 <= cap
    assert server.count() <= requests + 2
    memory = with_endpoint(price_per_million_tokens=PRICE, cap=cap * 4)
    assert memory.reembedding.run().left == 0
    assert state(memory).spent == pytest.approx(server.tokens * PRICE / 1e6)


def test_a_cap_holds_for_texts_with_more_tokens(
    with_endpoint: Configured, server: Loopback
) -> None:
    """Where a text has more tokens than our rule counts, no more than one request goes over."""
    server.tokens_each = 3  # for each that our own rule counts
    memory = with_endpoint(price_per_million_tokens=PRICE)
    cap = state(memory).cost
    memory = with_endpoint(price_per_million_tokens=PRICE, cap=cap)
    with pytest.raises(CapReached):
        memory.reembedding.run()
    most = max(
        sum(server.count_tokens(text) for text in request["body"]["input"])
        for request in server.requests
    )
    assert server.tokens * PRICE / 1e6 <= cap + most * PRICE / 1e6


def test_spending_survives_the_index(with_endpoint: Configured, server: Loopback) -> None:
    """What was spent stands in the ledger: a new index knows it, and no text is paid for twice."""
    memory = with_endpoint(price_per_million_tokens=PRICE)
    memory.reembedding.approve()
    memory.reembedding.run()
    spent = state(memory).spent
    requests = server.count()
    at = memory.recall("bread").hits[0].item.timestamp
    before = memory.recall("bread", at=at)
    memory.reindex()
    assert state(memory).spent == spent
    assert state(memory).missing == 0
    after = memory.recall("bread", at=at)
    assert [(h.id, h.score) for h in after.hits] == [(h.id, h.score) for h in before.hits]
    assert after.label == "hybrid"
    assert server.count() == requests + 1  # for the query


def test_a_changed_line_is_embedded_anew(with_endpoint: Configured, server: Loopback) -> None:
    """A vector outlives a reindex only where its item is the same to the byte."""
    memory = with_endpoint()
    memory.reembedding.run()
    [path] = (memory.folder / "episodic" / "main").glob("*.jsonl")
    path.write_text(path.read_text().replace("day 7 the baker", "day 7 the brewer"))
    memory.reindex()
    assert state(memory).missing == 1


def test_a_crash_hides_no_spending(with_endpoint: Configured, server: Loopback) -> None:
    """A reservation that nobody settled counts whole: its requests may have been made."""
    memory = with_endpoint(price_per_million_tokens=PRICE)
    memory.reembedding.approve()
    name = memory.store.embedder.name  # type: ignore[union-attr]
    memory.reembedding._write(EmbedEvent(model=name, reserves=0.25))  # and then it was killed
    assert state(memory).spent == 0.25
    memory.reembedding._write(EmbedEvent(model="another", reserves=9.0))
    assert state(memory).spent == 0.25


def test_a_failed_request_is_counted(with_endpoint: Configured, server: Loopback) -> None:
    """An answer that never came may have been charged: the cap counts it."""
    memory = with_endpoint(price_per_million_tokens=PRICE)
    memory.reembedding.approve()
    server.script("ok")
    server.always("truncated")
    with pytest.raises(EndpointError):
        memory.reembedding.run()
    [settled] = [event for event in events(memory) if "settles" in event]
    assert settled["embedded"] == 0 and settled["tokens"] > 100


# -- by command, in the background ---------------------------------------------------------------


def memtier(home: Path, *arguments: str) -> Result:
    """Run the command."""
    options = ["--home", str(home), "--project", "p"]
    return CliRunner().invoke(main, ["embed", *options, *arguments])


def test_the_command(with_endpoint: Configured, server: Loopback, filled: Path) -> None:
    """`memtier embed` estimates, refuses what is not allowed, and does what `--yes` allows."""
    with_endpoint(price_per_million_tokens=PRICE).close()
    shown = json.loads(memtier(filled, "--estimate", "--json").stdout)
    assert shown["missing"] == ITEMS and shown["cost"] > 0 and shown["spent"] == 0
    assert not server.requests
    refused = memtier(filled)
    assert refused.exit_code == 1 and "`memtier embed --yes` allows it" in refused.stderr
    assert not server.requests
    done = json.loads(memtier(filled, "--yes", "--json").stdout)
    assert (done["embedded"], done["left"]) == (ITEMS, 0)
    assert done["state"]["spent"] == pytest.approx(done["cost"])
    plain = memtier(filled, "--estimate")
    assert "missing" in plain.stdout and "spent" in plain.stdout
    result = CliRunner().invoke(main, ["log", "--home", str(filled), "--project", "p"])
    assert result.exit_code == 0
    assert re.search(r"embedding by local/m-\w+: up to \d\.\d+ allowed", result.stdout)
    assert re.search(r"embedding by local/m-\w+: \d+ items for \d\.\d+", result.stdout)


def test_a_very_small_store_can_be_paid_for(home: Path, server: Loopback) -> None:
    """What an approval allows is enough, also where the requests' own overhead is most of it."""
    about = {"base_url": server.base_url, "price_per_million_tokens": 0.02}
    settings = {"embedding.model": "endpoint:local/m", "endpoints": {"local": about}}
    with MemTier.open(home, "p", settings=settings) as memory:
        memory.record([{"role": "user", "content": "tea"}], session_id="s", run_id="r")
        memory.reembedding.approve()
        assert memory.reembedding.run().left == 0


def test_the_command_without_a_model(home: Path) -> None:
    """With no model there is nothing to do, and that is no error."""
    with MemTier.open(home, "p"):
        write_config(home, "embedding: {model: none}\n")
    shown = memtier(home, "--json")
    assert shown.exit_code == 0 and json.loads(shown.stdout)["model"] is None


def test_the_daemon_embeds(filled: Path, tmp_path: Path) -> None:
    """`memtier daemon --once` makes the vectors of a changed model and lets go of the old ones."""
    folder = rotated_model(tmp_path / "turned")
    jobs = {"consolidation": {"enabled": False}, **NO_SUMMARIES}  # no items but those of before
    write_config(filled, {"embedding": {"model": str(folder)}, **jobs})
    scheduler.serve_projects(filled, ["p"], once=True)
    with MemTier.open(filled, "p") as memory:
        assert models(memory) == {memory.store.embedder.name: ITEMS}  # type: ignore[union-attr]


def test_the_scheduler_embeds(filled: Path, tmp_path: Path) -> None:
    """A daemon that runs notices a changed model at its next interval, and can be stopped."""
    folder = rotated_model(tmp_path / "turned")
    jobs = {"consolidation": {"enabled": False}, **NO_SUMMARIES}  # no items but those of before
    write_config(filled, jobs)
    served = scheduler.Scheduler(interval=0.1)
    served.add(filled, "p")
    write_config(filled, {"embedding": {"model": str(folder)}, **jobs})
    with MemTier.open(filled, "p") as memory:
        try:
            wait_until(lambda: not state(memory).due)
        finally:
            assert served.stop(PATIENCE)
        assert models(memory) == {memory.store.embedder.name: ITEMS}  # type: ignore[union-attr]


@pytest.mark.usefixtures("daemons")
def test_a_session_starts_the_daemon(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first session after the model was changed starts a detached daemon."""
    from memtier_plugin.core import plugins
    from memtier_plugin.core.results import RunContext

    folder = rotated_model(tmp_path / "turned")
    jobs = {"consolidation": {"enabled": False}, **NO_SUMMARIES}
    write_config(filled, {"embedding": {"model": str(folder)}, **jobs})
    context = RunContext(agent_id="main", home=str(filled), project="p", session_id="s")
    plugins.manager().hook.session_start(context=context)
    with MemTier.open(filled, "p") as memory:
        wait_until(lambda: not state(memory).due)
        assert models(memory) == {memory.store.embedder.name: ITEMS}  # type: ignore[union-attr]
        lock = import_module("memtier_plugin.daemon.child")
        wait_until(lambda: not lock.is_held(filled, "p"))


def test_a_session_warms_the_endpoint_up(
    with_endpoint: Configured, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's start loads the client, and a key that is missing does not break it."""
    from memtier_plugin.core import plugins
    from memtier_plugin.core.results import RunContext
    from memtier_plugin.pool import memory_pool

    with_endpoint(key_env="BREAD_KEY", price_per_million_tokens=PRICE)
    plugins.manager().hook.session_start(
        context=RunContext(agent_id="a", home=str(filled), project="p", session_id="s")
    )
    monkeypatch.setenv("BREAD_KEY", "k")
    context = RunContext(agent_id="b", home=str(filled), project="p", session_id="s")
    plugins.manager().hook.session_start(context=context)
    with memory_pool.use(context) as memory:
        embedder = memory.store.embedder
        assert isinstance(embedder, remote.EndpointEmbedder)
        assert embedder._client._opened is not None
        hooks = memory.status()["hooks"]
    assert [hooks[agent]["session_start"]["error"] for agent in "ab"] == [None, None]


def test_a_failure_in_the_background_is_told(
    with_endpoint: Configured, server: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon whose endpoint fails says so in its log and in `status`, and does the rest."""
    memory = with_endpoint()
    server.always("500")
    scheduler.serve_projects(memory.home, ["p"], once=True)
    assert "is in trouble" in caplog.text
    assert "is in trouble" in " ".join(memory.status()["degraded"])
    assert remote.PROBE_TEXT in json.dumps(server.requests[0]["body"])
