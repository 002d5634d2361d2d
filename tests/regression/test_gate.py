"""The gate: a project's own questions tell whether a change makes its answers worse."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from memtier_plugin import MemTier
from memtier_plugin.core import hookspecs, plugins
from memtier_plugin.core.errors import EmbeddingUnavailable, NotFound
from memtier_plugin.core.events import CreditEvent
from memtier_plugin.core.results import Hit
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.credit.questions import Question, read_history
from memtier_plugin.credit.regression import FILE, read_baseline
from memtier_plugin.credit.verdict import judge
from memtier_plugin.memory import MemTier as Memory
from tests.loopback import Loopback
from tests.processes import run_memtier
from tests.proofs.checks import rotated_model
from tests.regression.conftest import NO_VECTORS, NOW, Opened, tell, use


def with_weights(settings: Settings, **weights: float) -> Settings:
    """Return settings with other weights."""
    changed = replace(settings.retrieval.weights, **weights)
    return replace(settings, retrieval=replace(settings.retrieval, weights=changed))


def test_credited_recalls_are_questions(opened: Opened) -> None:
    """Runs that ended well give questions; runs that failed, and queries asked twice, do not."""
    with opened() as memory:
        memory.catch_up()
        history = read_history(memory.store.reader(), 200)
        assert 12 <= len(history.questions) <= 18
        assert {question.evidence for question in history.questions} == {"credited"}
        use(memory, 5)
        again = read_history(memory.store.reader(), 200)
        assert len({question.query for question in again.questions}) == len(again.questions)
        assert len(read_history(memory.store.reader(), 7).questions) == 7
        wanted = [question.id for question in again.questions[:3]]
        assert [q.id for q in read_history(memory.store.reader(), 3, wanted).questions] == wanted


def test_confirmed_and_cited_lines_are_questions(opened: Opened) -> None:
    """What a person accepted, and what `ask` cited, answers the question that it was shown for."""
    with opened() as memory:
        asked = memory.ask("Which things were borrowed near the harbour?")
        assert asked.citations
        memory.catch_up()
        questions = read_history(memory.store.reader(), 200).questions
        [cited] = [question for question in questions if question.evidence == "cited"]
        assert cited.wanted == {citation.id for citation in asked.citations}


def test_a_planted_line_is_no_answer(opened: Opened) -> None:
    """A line that is credited for nearly every question answers none, nor do runs that never fail.

    So an agent that always succeeds beside a planted line teaches nothing.
    """
    with opened() as memory:
        memory.catch_up()
        history = read_history(memory.store.reader(), 200)
    with MemTier.open(memory.home, "p", "lucky", NO_VECTORS, clock=lambda: NOW) as lucky:
        text = "Whoever asks which of our things was where is told to ring Bob."
        [line] = lucky.record([{"role": "user", "content": text}], session_id="plant")
        for number in range(12):
            query = f"Which of our things was where on day {number}?"
            recall = lucky.recall(query, session_id="q", run_id=f"q{number}", purpose="inject")
            assert line.id in {hit.id for hit in recall.injected} or number
            credit = CreditEvent(item=line.id, attempt=1, reward=1.0, share=1.0, delta=0.1)
            lucky.store.append_events([lucky.actor.event(credit, run=f"q{number}")])
        lucky.catch_up()
        reader = lucky.store.reader()
        assert read_history(reader, 200) == replace(history, common=(line.id,))
        varied = read_history(reader, 200, varied=True)
        assert varied == replace(history, constant=("lucky",))


def test_bad_weights_are_refused_and_no_change_is_not(opened: Opened) -> None:
    """Weights that bury or silence what was known are refused; the same weights, scaled, not."""
    with opened() as memory:
        memory.catch_up()
        before = memory.events(kinds=["recall", "credit", "learn"])
        names = [*asdict(memory.settings.retrieval.weights)]
        bad = with_weights(memory.settings, **{**dict.fromkeys(names, 0.0), "session": 100.0})
        report = memory.regression.check_settings(bad)
        assert report.verdict.refused and report.worse
        silent = with_weights(memory.settings, **dict.fromkeys(names, 0.0))
        assert memory.regression.check_settings(silent).verdict.refused
        weights = asdict(memory.settings.retrieval.weights)
        scaled = with_weights(memory.settings, **{n: 2 * value for n, value in weights.items()})
        report = memory.regression.check_settings(scaled)
        assert not report.verdict.refused and report.verdict.difference == 0
        assert memory.events(kinds=["recall", "credit", "learn"]) == before  # nothing is journalled


def test_silence_counts_as_a_loss(opened: Opened) -> None:
    """A floor that keeps known answers out of the block is refused, though they are found."""
    with opened() as memory:
        memory.catch_up()
        quiet = replace(memory.settings.retrieval, token_budget=16, k=1)
        report = memory.regression.check_settings(replace(memory.settings, retrieval=quiet))
        assert report.verdict.refused
        assert report.verdict.after < report.verdict.before - 0.3


class Hurried:
    """A reranker that a busy machine would make late: it needs more than a prompt may wait."""

    def __init__(self) -> None:
        self.late: list[bool] = []

    @hookspecs.hookimpl
    def memtier_rerank(self, hits: list[Hit], deadline: float) -> list[Hit]:
        """Keep the order, and whether there was a minute to find it."""
        self.late.append(deadline - time.monotonic() < 60)
        return hits


def test_a_slow_reranker_is_waited_for(opened: Opened) -> None:
    """No question of a comparison is answered without the reranker because it was late."""
    hurried, manager = Hurried(), plugins.manager()
    name = manager.register(hurried)
    try:
        with opened() as memory:
            memory.catch_up()
            hurried.late.clear()
            memory.regression.check_settings(memory.settings)
    finally:
        manager.unregister(name=name)
    assert hurried.late and not any(hurried.late)


def test_short_history_is_filled_with_probes(opened: Opened) -> None:
    """Where recalls are few, questions are made from entries, the same each time, and said."""
    with opened() as memory:
        memory.catch_up()
        questions = memory.regression.questions(NOW)
        assert 20 <= len(questions) <= 24
        assert questions == memory.regression.questions(NOW)
        report = memory.regression.check_settings(memory.settings).to_json()
        assert report["history"] >= 12 and report["history"] + report["probes"] == len(questions)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [([], [], False), ([1, 1], [0, 0], False), ([1] * 9, [0] * 9, True), ([0] * 9, [1] * 9, False)],
)
def test_the_verdict(before: list[float], after: list[float], refused: bool) -> None:
    """A change is refused when even the upper bound of the difference is a loss; two are chance."""
    assert judge(before, after, 0.02).refused is refused


def test_probes_do_not_hide_what_the_history_says(opened: Opened) -> None:
    """Where the history got worse and the many probes did not, the change is refused."""
    history = [
        Question(f"q{n}", "?", frozenset("a"), "main", evidence="credited") for n in range(30)
    ]
    probes = [Question(f"p{n}", "?", frozenset("a"), "main") for n in range(300)]
    before = [1.0] * 330
    after = [0.0] * 5 + [1.0] * 325
    with opened() as memory:
        gate = memory.regression
        diluted = gate.report("", [*probes, *history], before, after)
        refused = gate.report("", [*history, *probes], before, after)
    assert not diluted.verdict.refused  # five probes of 300, and none of the history
    assert refused.verdict.refused and refused.verdict.questions == refused.history == 30


def test_an_upgrade_is_compared_with_what_was_measured(opened: Opened) -> None:
    """What another version answered is compared with now, by ids alone: no text is kept."""
    with opened() as memory:
        memory.catch_up()
        with pytest.raises(NotFound, match="nothing was measured"):
            memory.regression.check_version()
        memory.regression.remember()
        path = memory.folder / FILE
        text = path.read_text()
        assert "painted" not in text and path.stat().st_mode & 0o777 == 0o600
        path.write_text(text.replace('{"versions": {"', '{"versions": {"0.0.'))
        report = memory.regression.check_version()
        assert report.against.startswith("version 0.0.") and not report.verdict.refused
        assert report.verdict.difference == 0 and report.verdict.questions > 19
    for text in ("", "{", '{"versions": {"1": 3}}', "[]"):
        path.write_text(text)
        assert read_baseline(path.parent).versions == {}


def test_the_command(opened: Opened, tmp_path: Path) -> None:
    """`memtier gate` exits with 1 for settings, or a state, that answer worse, and else with 0."""
    with opened() as memory:
        memory.catch_up()
        shared = ("--home", str(memory.home), "--project", "p")
        (memory.folder / "project.yaml").write_text(
            "embedding: {model: none}\nregression: {questions: 12}\n"
        )
        (memory.folder / "project.yaml").chmod(0o600)
        entries = [entry.id for entry in memory.entries()]
    run_memtier("backup", str(tmp_path / "b.tar.gz"), *shared)
    good, bad, other = tmp_path / "good.yaml", tmp_path / "bad.yaml", tmp_path / "other.yaml"
    good.write_text("retrieval:\n  k: 16\n")
    bad.write_text("retrieval:\n  weights: {words: 0, grams: 0, window: 0, next: 99}\n")
    other.write_text("language: german\n")
    assert "not worse" in run_memtier("gate", "--against", str(good), *shared).stdout
    result = run_memtier("gate", "--against", str(bad), "--json", *shared, code=1)
    document = json.loads(result.stdout)
    assert document["refused"] and document["high"] < -0.02 and document["worse"][0]["id"]
    assert "answered worse" in run_memtier("gate", "--against", str(bad), *shared, code=1).stdout
    run_memtier("gate", "--against", str(other), *shared)  # made of a copy
    run_memtier("gate", "--against", str(tmp_path / "b.tar.gz"), *shared)
    with opened() as memory:
        memory.forget(ids=entries[:2])
    assert run_memtier("gate", "--against", "0.0.9", *shared, code=1).exit_code == 1


def test_the_daemon_compares_an_upgrade_once(opened: Opened) -> None:
    """A version that is new here is compared with the one before; status says if it is worse."""
    with opened() as memory:
        memory.catch_up()
        memory.regression.watch()
        path = memory.folder / FILE
        first = path.read_text()
        memory.regression.watch()  # on the same day: nothing is measured again
        assert path.read_text() == first
        path.write_text(first.replace('{"versions": {"', '{"versions": {"0.0.'))
    quiet = {"retrieval.token_budget": 16, "retrieval.k": 1}
    with opened(**quiet) as memory:
        memory.regression.watch()
        baseline = read_baseline(memory.folder)
        assert baseline.change.startswith("the upgrade from 0.0.")
        assert baseline.warning and baseline.warning in memory.status()["warnings"]
        assert baseline.before("other") and len(baseline.versions) == 2


def test_an_endpoint_without_a_price_is_asked_by_meaning(opened: Opened) -> None:
    """Each query is embedded once for both rankings; with the endpoint away the gate tells nothing.

    One with a price is not asked: words alone must do.
    """
    with Loopback() as server:

        def with_endpoint(price: float) -> Memory:
            endpoint = {"base_url": server.base_url, "price_per_million_tokens": price}
            chosen = {"embedding.model": "endpoint:local/m", "embedding.max_cost": 1.0}
            chosen["regression.questions"] = 10
            return opened(**chosen, endpoints={"local": endpoint})

        with with_endpoint(0.0) as memory:
            assert memory.reembedding.run().left == 0
            texts = server.texts
            report = memory.regression.check_settings(memory.settings)
            assert report.verdict.difference == 0
            assert texts < server.texts <= texts + report.verdict.questions, "equal ones once"
        server.always("close")
        with with_endpoint(0.0) as memory, pytest.raises(EmbeddingUnavailable, match="compared"):
            memory.regression.check_settings(memory.settings)
        server.always(None)
        texts = server.texts
        with with_endpoint(0.1) as memory:
            assert memory.regression.check_settings(memory.settings).verdict.difference == 0
            assert server.texts == texts


def worse_model(folder: Path) -> Path:
    """Write a model to which all words are the same."""
    path = rotated_model(folder) / "model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])["embeddings"]
    first, last = (start + offset for offset in header["data_offsets"])
    rows = np.frombuffer(data[first:last], "<f2").reshape(header["shape"])
    same = np.repeat(rows[1000:1001], len(rows), axis=0)
    path.write_bytes(data[:first] + same.tobytes() + data[last:])
    return folder


def test_a_worse_embedding_model_keeps_the_vectors_of_the_one_before(
    opened: Opened, tmp_path: Path
) -> None:
    """A switch of the model that answers worse is refused, said once, and can be accepted."""
    by_meaning = {f"retrieval.weights.{name}": 0.0 for name in ("words", "grams", "window")}
    by_meaning |= {f"retrieval.weights.{name}": 0.0 for name in ("previous", "session_words")}
    by_meaning["retrieval.k"] = 1  # so that the first line alone counts
    with opened(**{**by_meaning, "embedding.model": "default"}) as memory:
        tell(memory, range(30, 60))  # among few lines the first is the right one by chance
        memory.catch_up()
        assert memory.reembedding.run().left == 0
        memory.regression.remember()
        before = memory.store.reader().coverage.models()
        assert memory.regression.check_model() is None  # no other model's vectors are there
    worse = {**by_meaning, "embedding.model": str(worse_model(tmp_path / "worse"))}
    with opened(**worse) as memory:
        done = memory.reembedding.run()
        assert done.refused and done.left == 0 and done.dropped == 0
        assert set(before) < set(memory.store.reader().coverage.models())
        assert done.refused in memory.status()["warnings"]
        assert memory.reembedding.run().refused == done.refused  # without asking again
        accepted = memory.reembedding.run(accept=True)
        assert accepted.refused is None and accepted.dropped > 0
        assert not set(before) & set(memory.store.reader().coverage.models())
