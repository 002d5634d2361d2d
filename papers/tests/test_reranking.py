"""The shipped reranker: its order, its deadline, and what happens without an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_papers.true_memory.rerank_fusion import fuse_scores, modality_factor
from memtier_papers.true_memory.rerankers import find_reranker, to_relevances
from memtier_papers.true_memory.reranking import order_pages, warm_up
from memtier_papers.true_memory.settings import Rerank
from memtier_plugin import MemTier
from memtier_plugin.core.errors import RerankUnavailable
from memtier_plugin.core.settings.schema import Endpoint, Settings
from memtier_plugin.operations.status import collect_status
from memtier_plugin.retrieval.visibility import PageReader, Viewer
from tests.builders import say_each
from tests.cases import each_case
from tests.loopback import Loopback

Day = Callable[..., datetime]
FILE = Path(__file__).parent / "golden" / "true_memory.json"
GOLDEN = {g["id"]: g for g in json.loads(FILE.read_text("utf-8"))}
LINES = [
    "The boiler was serviced by Hartmann in spring.",
    "Boiler, boiler, boiler: it hums.",
    "Who serviced the boiler is on the invoice of Hartmann.",
]
QUERY = "Who serviced the boiler of Hartmann?"


@pytest.fixture
def server() -> Iterator[Loopback]:
    """Return a server with /rerank."""
    with Loopback() as running:
        yield running


def settings_of(server: Loopback, *, base_url: str = "", **more: Any) -> dict[str, Any]:
    """Return settings whose reranker is a model of the server's."""
    return {
        "endpoints.local.base_url": base_url or server.base_url,
        "rerank.model": f"endpoint:local/m{id(server)}",
        "embedding.model": "none",
        **more,
    }


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.startswith("tm_rerank")])
def test_scores_are_fused_as_published(name: str) -> None:
    """The fused scores of the reference come out of the shipped arithmetic."""
    golden = GOLDEN[name]
    inputs, expected = golden["inputs"], golden["expected"]
    scores = inputs["rerank"]
    if isinstance(expected, dict):  # what the reference multiplied before
        scores, expected = expected["rerank_after_modality"], expected["fused"]
    assert fuse_scores(scores, inputs["orig"]) == pytest.approx(expected, abs=golden["tolerance"])


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20))
def test_relevances_keep_the_order_within_bounds(scores: Sequence[float]) -> None:
    """Logits become values in 0..1 in the same order; what lies there already stays."""
    values = to_relevances(scores)
    assert all(0 <= value <= 1 for value in values)
    pairs = sorted(zip(scores, values, strict=True))
    assert [value for _, value in pairs] == sorted(values)
    inside = [min(1.0, abs(score) / 30) for score in scores]
    assert to_relevances(inside) == inside


@each_case(
    "query, factor",
    [
        ("When did we buy the boat?", 0.7),
        ("How many chairs are there?", 0.7),
        ("Give me an overview of the garden", 1.2),
        ("What did we discuss yesterday?", 1.2),
        ("the garden", 1.0),
    ],
)
def test_summaries_count_by_what_is_asked(query: str, factor: float) -> None:
    """A summary counts less for a detail and more for the whole; a line counts as it is.

    A factor below 1 lowers what a negative logit says, too: it is applied to the relevance.
    """
    assert modality_factor(query, is_summary=True) == factor
    assert modality_factor(query, is_summary=False) == 1.0
    [relevance] = to_relevances([-1.5])
    assert 0.7 * relevance < relevance


@pytest.mark.parametrize("field, logits", [("documents", False), ("documents", True), ("texts", 0)])
def test_each_shape_of_rerank_is_understood(
    server: Loopback, field: str, logits: bool, home: Path
) -> None:
    """Cohere, Jina and text-embeddings-inference are asked as they expect, each once in the end."""
    server.rerank_field, server.rerank_logits = field, bool(logits)
    base = server.base_url.removesuffix("/v1") if field == "texts" else ""
    with MemTier.open(home, settings=settings_of(server, base_url=base)) as memory:
        say_each(memory, *LINES)
        warm_up(memory.settings)  # the client's import may take longer than a recall has
        first = memory.recall(QUERY)
        second = memory.recall(QUERY)
    assert first.hits[0].text == LINES[2]
    assert "not reranked" not in first.label
    relevances = [hit.signals["rerank"] for hit in first.hits]
    assert relevances == sorted(relevances, reverse=True)
    assert [hit.id for hit in first.hits] == [hit.id for hit in second.hits]
    asked = [request["body"] for request in server.requests]
    assert len(asked) == 2 + (field == "texts")  # one attempt in the wrong shape, once
    assert all(line in " ".join(asked[-1][field]) for line in LINES)


def test_explanation_has_the_relevance(server: Loopback, home: Path) -> None:
    """The journal keeps what the reranker said of each line."""
    with MemTier.open(home, settings=settings_of(server)) as memory:
        say_each(memory, *LINES)
        recall = memory.recall(QUERY, purpose="inject", session_id="s")
        explained = memory.explain(recall.id)
    assert recall.injected
    assert all(line["signals"]["rerank"] > 0 for line in explained["injected"])


@pytest.mark.parametrize("fault", ["slow", "500", "truncated", "fewer", "close", "page"])
def test_without_an_answer_the_first_order_stands(server: Loopback, home: Path, fault: str) -> None:
    """A recall keeps its deadline and its order, and the label, explain and status say why."""
    with MemTier.open(home, settings={"embedding.model": "none"}) as memory:
        say_each(memory, *LINES)
        expected = [hit.id for hit in memory.recall(QUERY).hits]
    server.always(fault)
    with MemTier.open(home, settings=settings_of(server)) as memory:
        warm_up(memory.settings)  # the client's import is no part of what has a deadline
        recall = memory.recall(QUERY, purpose="inject", session_id="s", deadline_ms=4000)
        assert recall.ms < 1000 * server.slow / 2
        assert [hit.id for hit in recall.hits] == expected
        assert recall.label.startswith("degraded: not reranked: ")
        assert recall.injected
        asked = server.count()
        assert "not reranked" in memory.recall(QUERY, deadline_ms=4000).label
        assert server.count() == asked  # a model that failed rests
        assert memory.explain(recall.id)["label"] == recall.label
        status = collect_status(memory.store, datetime.now().astimezone())
    assert any("recalls were not reranked: " in line for line in status["degraded"])


def test_secrets_and_foreign_lines_are_not_sent(server: Loopback, home: Path) -> None:
    """The query is masked, and only what its asker may see is sent."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    with MemTier.open(home, agent_id="other", settings={"embedding.model": "none"}) as memory:
        say_each(memory, "The boiler code of Hartmann is with the neighbour.")
    with MemTier.open(home, settings=settings_of(server)) as memory:
        say_each(memory, *LINES)
        memory.recall(f"{QUERY} {secret}")
    sent = json.dumps(server.requests[-1]["body"])
    assert secret not in sent
    assert "neighbour" not in sent


def test_off_unless_configured_and_never_as_published(server: Loopback, home: Path) -> None:
    """By default nothing is asked; nor is anything where MemTier ranks as published."""
    paper = settings_of(server, **{"retrieval.profile": "paper"})
    for settings in ({"embedding.model": "none"}, paper):
        with MemTier.open(home, settings=settings) as memory:
            say_each(memory, *LINES)
            assert all("rerank" not in hit.signals for hit in memory.recall(QUERY).hits)
    assert not server.requests
    assert Settings().of(Rerank).model == "none"


@pytest.mark.parametrize("model", ["endpoint:nobody/m", "/no/such/folder"])
def test_wrong_names_do_no_harm(home: Path, model: str) -> None:
    """A reranker that is not there leaves the order, and the label names the remedy."""
    settings = {"rerank.model": model, "embedding.model": "none"}
    with MemTier.open(home, settings=settings) as memory:
        say_each(memory, *LINES)
        label = memory.recall(QUERY).label
    assert label.startswith("degraded: not reranked: rerank.model is ")


def test_pages_are_ordered_by_their_best_part(server: Loopback, home: Path, day: Day) -> None:
    """The page with the most relevant text comes first; without an answer they stay."""
    texts = [f"Nothing of note, entry {n}. " + "The weather was mild. " * 40 for n in range(12)]
    texts[9] = LINES[2]
    config = {"local": Endpoint(base_url=server.base_url)}
    settings = Settings(endpoints=config)
    with MemTier.open(home, settings={"embedding.model": "none"}) as memory:
        say_each(memory, *texts)
        with memory.store.session() as reader:
            pages = PageReader(reader, Viewer("main", None, False, day(9)))
            hits = [*pages.visible_entries([entry.id for entry in memory.entries()]).values()]
            linked = pages.pages_of_hits(sorted(hits, key=lambda hit: hit.id))
            assert len(linked) > 2
            assert order_pages(QUERY, linked, pages, settings, 5.0) == linked  # none is configured
            chosen = with_reranker(settings, "endpoint:local/pages")
            first = order_pages(QUERY, linked, pages, chosen, 5.0)[0]
            assert any(hit.text == LINES[2] for hit in pages.hits_on(first))
            server.always("500")
            with pytest.raises(RerankUnavailable):
                order_pages(QUERY, linked, pages, chosen, 5.0)


def with_reranker(settings: Settings, model: str) -> Settings:
    """Return settings with another reranker."""
    return settings.having(Rerank(model=model))


def write_overlap_model(folder: Path) -> Path:
    """Write a cross-encoder whose logit is the number of words that both texts share, less 2.5."""
    np = pytest.importorskip("numpy")
    pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers")
    from memtier_plugin.providers.embedding.conversion import OnnxGraph

    words = sorted(
        {word.strip(".,:?").lower() for line in [*LINES, QUERY] for word in line.split()}
    )
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2} | {w: n for n, w in enumerate(words, 3)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    graph = OnnxGraph()
    graph.constant("sep", np.array(2, np.int64))
    graph.constant("two", np.array(2, np.int64))
    graph.constant("axis", np.array(1, np.int64))
    graph.constant("axes", np.array([1, 2], np.int64))
    graph.constant("rows", np.array([2], np.int64))
    graph.constant("columns", np.array([1], np.int64))
    graph.constant("bias", np.array(2.5, np.float32))
    graph.constant("one_f", np.array(1.0, np.float32))
    graph.constant("half", np.array(0.5, np.float32))
    graph.node("Cast", [graph.node("Equal", ["input_ids", "sep"], "is_sep")], "seps", to=1)
    graph.node("CumSum", ["seps", "axis"], "ends")  # 0 in the query, 1 in the text
    graph.node("Cast", [graph.node("Less", ["ends", "half"], "in_query")], "query", to=1)
    graph.node("Sub", ["one_f", "query"], "text")
    graph.node("Cast", [graph.node("Greater", ["input_ids", "two"], "is_word")], "word", to=1)
    graph.node("Unsqueeze", [graph.node("Mul", ["query", "word"], "qw"), "rows"], "q3")
    graph.node("Unsqueeze", [graph.node("Mul", ["text", "word"], "tw"), "columns"], "t3")
    graph.node("Unsqueeze", ["input_ids", "rows"], "id_rows")
    graph.node("Unsqueeze", ["input_ids", "columns"], "id_columns")
    graph.node("Cast", [graph.node("Equal", ["id_rows", "id_columns"], "equal")], "same", to=1)
    graph.node("Mul", [graph.node("Mul", ["same", "q3"], "sq"), "t3"], "both")
    graph.node("ReduceSum", ["both", "axes"], "count", keepdims=0)
    graph.node("Sub", ["count", "bias"], "logit")
    folder.mkdir()
    model = graph.to_bytes("input_ids", [1, "tokens"], "logit", [1])
    (folder / "model.onnx").write_bytes(model)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_local_cross_encoder_reranks(home: Path, tmp_path: Path) -> None:
    """A folder's ONNX model reads each pair; late, it leaves the first order."""
    folder = write_overlap_model(tmp_path / "overlap")
    reranker = find_reranker(str(folder), {})
    values = reranker.relevances(QUERY, LINES, 5.0)
    # Shared are serviced, the, boiler, Hartmann; three times boiler; and who, of, the once more.
    assert values == pytest.approx(to_relevances([1.5, 0.5, 4.5]), abs=1e-6)
    settings: Mapping[str, Any] = {"rerank.model": str(folder), "embedding.model": "none"}
    with MemTier.open(home, settings=settings) as memory:
        say_each(memory, *LINES)
        recall = memory.recall(QUERY)
        assert recall.hits[0].text == LINES[2]
        assert "rerank" in recall.hits[0].signals
    with pytest.raises(RerankUnavailable, match="of 3000 texts were scored within"):
        reranker.relevances(QUERY, LINES * 1000, 0.02)
