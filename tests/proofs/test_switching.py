"""The embedding model is changed while agents write and recall, and the change is killed midway."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from memtier_bench.planted import plant_lines
from memtier_bench.synthetic import SyntheticChat
from memtier_plugin.core.hookspecs import Embedder
from memtier_plugin.memory import MemTier
from memtier_plugin.operations.reembed import read_embedding_state
from memtier_plugin.providers.embedding.load import load_embedder
from memtier_plugin.providers.embedding.remote import BATCH_TEXTS, PROBE_TEXT
from tests.builders import write_config
from tests.loopback import Loopback
from tests.proofs.checks import child, of_another_space, outputs, rotated_model, show
from tests.proofs.processes import PROJECT

ENTRIES, QUESTIONS, READERS, KILLS = 20_000, 40, 2, 5
RUN = 50  # entries of a session
SMALL, PRICE = 2_000, 0.1  # entries for the endpoint, and its price of a million tokens


class Crossed:
    """Embeds a query by one model and the texts by another, as no recall may."""

    name, dimensions = "crossed", 0

    def __init__(self, query: Embedder | None, texts: Embedder | None) -> None:
        assert query and texts
        self._query, self._texts = query, texts

    def encode(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return vectors, the first of the other space."""
        return [*self._query.encode(texts[:1]), *self._texts.encode(texts[1:])]


def fill(home: Path, entries: int) -> list[tuple[str, str]]:
    """Fill a project under the shipped model; return questions, each with the entry that answers.

    Half of them ask in the words of the line, half in others.
    """
    source, lines = SyntheticChat(3), plant_lines(QUESTIONS, 3)
    every = entries // QUESTIONS
    questions = []
    with MemTier.open(home, PROJECT, settings={"embedding.model": "default"}) as memory:
        for number in range(entries // RUN):
            session = source.session(number, RUN)
            messages: list[Any] = [turn.message for turn in session.turns]
            position, line = divmod(number * RUN, every)
            mine = position if line < RUN and position < QUESTIONS else None
            if mine is not None:
                messages[0] = {"role": "user", "content": lines[mine].line}
            written = memory.record(
                messages,
                session_id=session.session_id,
                run_id=session.session_id,
                observed_at=session.observed_at,
            )
            if mine is not None:
                text = lines[mine].paraphrase if mine % 2 else lines[mine].own_words
                questions.append((text, written[0].id))
        memory.catch_up()
        assert read_embedding_state(memory.store).missing == 0
    return questions


def embedded(home: Path) -> Counter[str]:
    """Return how many items have vectors of each model."""
    with MemTier.open(home, PROJECT) as memory:
        rows = memory.store.index.connection().execute("SELECT model, items FROM embedded")
        return Counter({str(model): int(items) for model, items in rows})


def killed(home: Path, chance: random.Random) -> bool:
    """Start an embedding and kill it after some steps; return whether it was still at work."""
    process = child("embed", home)
    assert process.stdout is not None
    steps = chance.randint(4, 12)
    for line in process.stdout:
        steps -= 1
        if steps <= 0 or isinstance(json.loads(line), dict):
            break
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    return process.wait() == -signal.SIGKILL


def killed_while_it_deletes(home: Path) -> None:
    """Start an embedding and kill it a moment after the last step, while old vectors go."""
    process = child("embed", home)
    assert process.stdout is not None
    for line in process.stdout:
        progress = json.loads(line)
        if isinstance(progress, dict) or progress[0] >= progress[1]:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def summed(readers: Sequence[Popen[str]]) -> list[dict[str, Any]]:
    """Return the rounds of all readers."""
    return [json.loads(line) for text in outputs(readers) for line in text.splitlines()]


def figures(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up rounds as they are printed."""
    labels: Counter[str] = Counter()
    for report in rounds:
        labels.update(report["labels"])
    recalls = sum(report["recalls"] for report in rounds)
    return {
        "recalls": recalls,
        "failed": sum(report.get("failed", 0) for report in rounds),
        "recall@10": round(sum(report["found"] for report in rounds) / recalls, 3),
        "by words": round(sum(report["found_by_words"] for report in rounds) / recalls, 3),
        "hits checked": sum(report["checked"] for report in rounds),
        "of another space": sum(report["mixed"] for report in rounds),
        "slowest ms": max(report["slowest_ms"] for report in rounds),
        "labels": dict(labels),
    }


@pytest.mark.slow
def test_switching_under_load(home: Path, tmp_path: Path) -> None:
    """No recall fails, none is worse than by words alone, none mixes spaces; kills lose nothing."""
    cases = fill(home, ENTRIES)
    questions, done = tmp_path / "questions.json", tmp_path / "done"
    questions.write_text(json.dumps(cases))
    turned = rotated_model(tmp_path / "turned")
    write_config(home, {"embedding": {"model": "default"}})
    chance = random.Random(7)
    readers = [child("ask", home, questions, done) for _ in range(READERS)]
    resumed = []
    try:
        writer = child("write", home, "w", 150)
        write_config(home, {"embedding": {"model": str(turned)}})
        started = time.perf_counter()
        before: Counter[str] = Counter()
        new = load_embedder(str(turned))
        assert new is not None
        for _ in range(KILLS - 1):
            assert killed(home, chance)
            now = embedded(home)
            assert now[new.name] >= before[new.name]  # what was made stays
            resumed.append(now[new.name])
            before = now
        assert 0 < before[new.name] < ENTRIES
        killed_while_it_deletes(home)
        outputs([writer])
        last = json.loads(outputs([child("embed", home)])[0].splitlines()[-1])
        seconds = time.perf_counter() - started
        assert last["left"] == 0
        time.sleep(1)  # some rounds of the new model alone
    finally:
        done.touch()
        rounds = summed(readers)
    assert set(embedded(home)) == {new.name}
    with MemTier.open(home, PROJECT) as memory:
        vectors = memory.store.index.connection().execute("SELECT DISTINCT model FROM vectors")
        assert vectors.fetchall() == [(new.name,)]
        sample = memory.recall(cases[1][0])
    assert resumed == sorted(resumed)
    totals = figures(rounds)
    assert totals["failed"] == 0
    assert totals["of another space"] == 0 < totals["hits checked"]
    assert all(report["found"] >= report["found_by_words"] for report in rounds)
    during = [report for report in rounds if report["labels"].get("degraded: not embedded yet")]
    assert during, "no recall was made meanwhile"
    # And the check sees what it looks for: a query of one space, texts of another.
    checked, strange = of_another_space(sample, Crossed(new, load_embedder()))
    assert strange > checked / 2
    show(
        f"{ENTRIES} entries, model changed under {READERS} readers and a writer",
        {"kills": KILLS, "embedded at each kill": resumed, "seconds": round(seconds, 1), **totals},
    )
    show("of these, while the new model was not complete", figures(during))


@pytest.mark.slow
def test_switching_to_an_endpoint_under_load(home: Path, tmp_path: Path) -> None:
    """The same with an endpoint that fails now and then, has a price, and is paid for once."""
    cases = fill(home, SMALL)
    questions, done = tmp_path / "questions.json", tmp_path / "done"
    questions.write_text(json.dumps(cases))
    write_config(home, {"embedding": {"model": "default"}})
    chance = random.Random(7)
    with Loopback() as server:
        about = {"base_url": server.base_url, "price_per_million_tokens": PRICE}
        reader = child("ask", home, questions, done)
        try:
            # Each kill leaves a reservation that counts whole, so the cap is a generous one.
            model = {"model": "endpoint:local/m", "max_cost": 0.1}
            write_config(home, {"embedding": model, "endpoints": {"local": about}})
            with MemTier.open(home, PROJECT) as memory:
                estimate = read_embedding_state(memory.store).cost
            server.script(*chance.choices(["ok", "ok", "ok", "429", "500", "truncated"], k=60))
            kills = sum(killed(home, chance) for _ in range(3))
            # The day is so bad that a pass may end; the next one goes on.
            passes, left = 0, None
            while left != 0:
                last = json.loads(outputs([child("embed", home)])[0].splitlines()[-1])
                passes, left = passes + 1, last["left"]
            time.sleep(1)
        finally:
            done.touch()
            rounds = summed([reader])
        with MemTier.open(home, PROJECT) as memory:
            state = read_embedding_state(memory.store)
        charged = server.tokens * PRICE / 1e6
    totals = figures(rounds)
    assert (state.missing, state.old) == (0, False)
    assert totals["failed"] == 0
    assert totals["of another space"] == 0 < totals["hits checked"]
    assert all(report["found"] >= report["found_by_words"] for report in rounds)
    assert state.spent <= state.allowed == 0.1
    answered = [request for request in server.requests if request["fault"] == "ok"]
    sent = [text for request in answered for text in request["body"]["input"]]
    queries = {text for text, _ in cases}
    texts = [text for text in sent if text not in queries and text != PROBE_TEXT]
    twice = len(texts) - len(set(texts))
    assert twice <= kills * BATCH_TEXTS  # a kill loses the request that is under way, no more
    show(
        f"{SMALL} entries, to an endpoint",
        {
            "kills": kills,
            "passes": passes,
            "requests": server.count(),
            "that failed": server.count() - len(answered),
            "texts sent": len(texts),
            "sent twice": twice,
            "queries sent": len(sent) - len(texts),
            "cost estimated": round(estimate, 4),
            "counted": round(state.spent, 4),
            "charged, queries with it": round(charged, 4),
            **totals,
        },
    )
