"""The store that `memtier bench scale` grows, what is planted in it, and what is measured."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from memtier_bench import scale
from memtier_bench.planted import MAX_PLANTED, PEOPLE, plant_lines
from memtier_bench.report import markdown, print_report
from memtier_bench.scale import run_scale
from memtier_bench.synthetic import WORDS, Sentences, SyntheticChat
from memtier_plugin.cli.main import main
from memtier_plugin.core.errors import ImportFileError, Unsupported
from memtier_plugin.core.records import count_tokens
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding.static import ShippedEmbedder
from tests.cases import each_case
from tests.processes import run_python

# The figures of each size, in this order; more may follow.
KEYS = [
    "entries",
    "entries_per_s",
    "bytes_per_entry",
    "cold_ms",
    "latency_ms",
    "peak_rss_mb",
    "postings_read",
    "vectors_read",
    "planted_recall10",
    "ratio_to_rank_bm25",
]


def listed() -> list[tuple[str, int]]:
    """Return the shipped words with their counts."""
    rows = (line.split() for line in gzip.decompress(WORDS.read_bytes()).decode().splitlines())
    return [(word, int(count)) for word, count in rows]


def bare(text: str) -> list[str]:
    """Return the words of a text, lower-cased, without what stands around them."""
    return [word.strip(".,:?").removesuffix("'s").casefold() for word in text.split()]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Return what is measured in a small store of three agents, with vectors."""
    heard: list[tuple[str, int, int]] = []
    measured = run_scale(
        [60, 150],
        recalls=6,
        agents=3,
        overrides={"embedding.model": "default"},
        progress=lambda *step: heard.append(step),
    )
    return {**measured, "heard": heard}


# -- the text ----------------------------------------------------------------------------------


def test_the_word_list_is_as_its_provenance_says() -> None:
    """The list is large enough, small on disk, in order, and the one whose hash is recorded."""
    words = listed()
    counts = [count for _, count in words]
    assert len({word.casefold() for word, _ in words}) == len(words) >= 20_000
    assert counts == sorted(counts, reverse=True)
    assert WORDS.stat().st_size < 300_000
    provenance = (WORDS.parent / "PROVENANCE.md").read_text("utf-8")
    assert sha256(gzip.decompress(WORDS.read_bytes())).hexdigest() in provenance
    assert f"{len(words):,} words" in provenance
    assert "Princeton" in (WORDS.parent / "LICENSE").read_text("utf-8")


def test_the_made_up_store_is_the_same_for_the_same_seed() -> None:
    """Two generators with one seed say and ask the same; another seed does not."""
    first, same, other = (SyntheticChat(seed) for seed in (1, 1, 2))
    session = next(first.sessions())
    assert session == next(same.sessions()) != next(other.sessions())
    text = session.messages[1].content
    assert first.question(text) == same.question(text)
    assert first.questions(5) == same.questions(9)[:5] != other.questions(5)


def test_a_session_is_made_from_its_number_alone() -> None:
    """Nothing need be kept: a session is the same whichever others were made before it."""
    walked = SyntheticChat(3)
    sessions = [session for session, _ in zip(walked.sessions(), range(8), strict=False)]
    assert SyntheticChat(3).session(7) == sessions[7]
    assert len({session.session_id for session in sessions}) == 8
    times = [session.observed_at for session in sessions]
    assert times == sorted(times)


def test_texts_have_forty_tokens_and_the_frequencies_of_the_list() -> None:
    """A mean text has 40 tokens or more; words are as unevenly common as in the list (Zipf)."""
    source = SyntheticChat(1)
    texts = [message.content for n in range(100) for message in source.session(n).messages]
    assert sum(map(count_tokens, texts)) / len(texts) >= 40
    frequencies = Counter(word for text in texts for word in bare(text))
    total = frequencies.total()
    counts = listed()
    total_count = sum(count for _, count in counts)
    for word, count in counts[:20]:
        assert frequencies[word] / total == pytest.approx(count / total_count, rel=0.15)
    ranks = np.arange(1, 1001)
    heights = [math.log(count) for _, count in frequencies.most_common(1000)]
    slope = np.polyfit(np.log(ranks), heights, 1)[0]
    assert -1.3 < slope < -0.8
    rare = sum(count == 1 for count in frequencies.values())
    assert rare > 0.2 * len(frequencies)  # a long tail


def test_two_hundred_queries_hold_common_words() -> None:
    """No query is asked twice, and a third of their words or more are the commonest hundred."""
    queries = SyntheticChat(1).questions(200)
    assert len(set(queries)) == 200
    common = {word.casefold() for word, _ in listed()[:100]}
    shares = [sum(word in common for word in bare(query)) / len(bare(query)) for query in queries]
    assert sum(shares) / len(shares) > 1 / 3
    assert min(len(bare(query)) for query in queries) >= 7


def test_texts_are_recombined_from_the_sentences_of_a_data_set(tmp_path: Path) -> None:
    """With a data set every sentence of a text is one of its own, and so is how a query begins."""
    turns = [
        {"speaker": who, "dia_id": f"D1:{n}", "text": f"Number {n} is {who}'s. It was raining {n}!"}
        for n, who in enumerate(("Ada", "Ben") * 10)
    ]
    sample = {
        "sample_id": "conv",
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_1": turns,
            "session_1_date_time": "1:56 pm on 8 May, 2023",
        },
        "qa": [{"question": "Whose number is it now?", "evidence": ["D1:1"], "category": 4}],
    }
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample]), "utf-8")
    source_sentences = {
        f"{part}." for turn in turns for part in turn["text"].rstrip("!").split(". ")
    }
    source = SyntheticChat(1, Sentences.read(path))
    sentences: set[str] = set()
    for message in source.session(0).messages:
        sentences |= {
            f"{part}." for part in message.content.replace("!", ".").rstrip(".").split(". ")
        }
    assert len(sentences) > 20
    assert sentences <= source_sentences
    assert all(query.startswith("Whose number is ") for query in source.questions(20))
    with pytest.raises(ImportFileError, match="expected a list"):
        path.write_text("{}", "utf-8")
        Sentences.read(path)


# -- what is planted ---------------------------------------------------------------------------


def test_every_planted_line_has_two_questions_of_its_own() -> None:
    """Of 200 lines no two are equal, and no question is asked of two of them."""
    lines = plant_lines(200, 1)
    assert len({line.line for line in lines}) == MAX_PLANTED == 200
    assert len({q for line in lines for q in (line.own_words, line.paraphrase)}) == 400
    assert {line.person for line in lines} == set(PEOPLE)
    for line in lines:
        assert all(line.person in text for text in (line.line, line.own_words, line.paraphrase))
    assert plant_lines(200, 1) == lines != plant_lines(200, 2)
    assert plant_lines(7, 1) == lines[:7]


def test_a_paraphrase_shares_meaning_and_hardly_a_word() -> None:
    """A paraphrase has almost none of the line's words but the name; the model sees the likeness.

    The answer is not given away: each question lacks words that its line has.
    """
    lines = plant_lines(200, 1)
    common = {word.casefold() for word, _ in listed()[:100]} | {name.casefold() for name in PEOPLE}

    def shared(question: str, line: str) -> float:
        words = set(bare(question)) - common
        return len(words & set(bare(line))) / len(words)

    assert sum(shared(line.own_words, line.line) for line in lines) / 200 > 0.6
    assert sum(shared(line.paraphrase, line.line) for line in lines) / 200 < 0.05
    for line in lines:
        assert set(bare(line.line)) - set(bare(line.own_words)) - common
    embedder = ShippedEmbedder()
    texts, questions = (
        np.asarray(embedder.encode([getattr(line, name) for line in lines]))
        for name in ("line", "paraphrase")
    )
    cosines = questions @ texts.T
    better = (cosines > np.diag(cosines)[:, None]).sum(axis=1)
    assert (better < 10).mean() > 0.9


# -- the store ---------------------------------------------------------------------------------


def test_the_store_holds_what_can_be_made_again(home: Path) -> None:
    """What is recorded is what `texts` makes again; agents share evenly; lines are where asked."""
    store = scale._GrowingStore(60, 3, SyntheticChat(1), 1)
    for size in (60, 130):
        grown = store.grow(home, size, None, lambda done, total: None)
    assert (grown["entries"], store.entries) == (70, 130)
    with MemTier.open(home, "scale", "agent-0") as memory:
        entries = list(memory.entries())
    assert Counter(entry.content for entry in entries) == Counter(store.texts())
    counts = Counter(entry.agent_id for entry in entries)
    assert sorted(counts) == ["agent-0", "agent-1", "agent-2"]
    assert max(counts.values()) - min(counts.values()) <= 20
    mine = Counter(entry.content for entry in entries if entry.agent_id == "agent-1")
    assert mine == Counter(store.texts(agent=1))
    by_id = {entry.id: entry for entry in entries}
    lines = {line.own_words: line.line for line in plant_lines(12, 1)}
    questions_by_agent = store.planted_questions()
    assert sum(map(len, questions_by_agent.values())) == 24
    for agent, questions in questions_by_agent.items():
        assert len(questions) == 8  # four lines each, asked twice
        for kind, question, entry in questions:
            assert by_id[entry].agent_id == agent
            if kind == "own_words":
                assert by_id[entry].content == lines[question]
    assert all(entry.observed_at < store.now for entry in entries)


def test_lines_are_all_there_at_the_smallest_size() -> None:
    """200 lines stand among the first thousand entries, ten with each of twenty agents."""
    store = scale._GrowingStore(1000, 20, SyntheticChat(1), 1)
    assert len(store.lines) == 200
    assert max(store.lines) < 1000
    agents = Counter(position // store._length % 20 for position in store.lines)
    assert set(agents.values()) == {10}


# -- the report --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_has_what_the_issue_names(report: dict[str, Any]) -> None:
    """Each size has the named keys first; ratios are of the figures that stand beside them."""
    sizes = json.loads(json.dumps(report))["sizes"]
    assert [size["entries"] for size in sizes] == [60, 150]
    for size in sizes:
        assert list(size)[: len(KEYS)] == KEYS
        assert list(size["latency_ms"]) == ["p50", "p95", "p99"]
        assert size["cold_ms"] > 0 < size["bytes_per_entry"]
        assert size["postings_read_max"] >= size["postings_read"] > 0
        assert sum(size["labels"].values()) == 7  # the cold one and six warm ones
        scan, p50 = size["rank_bm25_ms"], size["latency_ms"]["p50"]
        assert size["ratio_to_rank_bm25"] == pytest.approx(scan / p50, abs=0.001)
        share = size["entries_per_s"] / size["encoded_per_s"]
        assert size["ingest_share_of_encoding"] == pytest.approx(share, abs=0.001)
        assert {"episodic", "index"} <= set(size["files_mb"])
    small, large = (size["latency_ms"]["p95"] for size in sizes)
    assert report["p95_ratios"] == {"150/60": pytest.approx(large / small, abs=0.001)}
    assert (report["agents"], report["planted"], report["queries"]) == (3, 12, 200)


@pytest.mark.slow
def test_planted_lines_are_found(report: dict[str, Any]) -> None:
    """In a small store the lines are found by their own words and by paraphrase."""
    for size in report["sizes"]:
        by = size["planted_recall10_by"]
        assert by["own_words"] == 1.0
        assert by["paraphrase"] >= 0.9
        assert size["planted_recall10"] == pytest.approx(sum(by.values()) / 2)


@pytest.mark.slow
def test_progress_is_told(report: dict[str, Any]) -> None:
    """Ingest and every later step are told, each up to its end."""
    ends = {what: (done, total) for what, done, total in report["heard"]}
    assert ends["ingest"] == (150, 150)
    assert ends["scans of 150"] == (3, 3)


@pytest.mark.slow
def test_the_report_is_shown_as_a_table(report: dict[str, Any]) -> None:
    """A person sees the figures of every size, and how p95 grew."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=140)
    print_report(report, console)
    for words in ("60 entries", "first recall", "asked by paraphrase", "p95(150) / p95(60) ="):
        assert words in console.file.getvalue()
        assert words in markdown(report)


@pytest.mark.slow
def test_above_a_hundred_thousand_there_is_no_full_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rank-bm25 scans no longer, its ratio is null; the asking agent's scan goes on."""
    monkeypatch.setattr(scale, "_MOST_SCANNED", 40)
    [size] = run_scale([45], recalls=2, agents=2)["sizes"]
    assert size["ratio_to_rank_bm25"] is size["rank_bm25_ms"] is None
    assert size["rank_bm25_agent_ms"] > 0 < size["numpy_ms"]


def test_the_peak_is_of_the_process_and_not_of_its_parent() -> None:
    """A process made by a large one does not report that one's memory as its own."""
    large = b"x" * (300 << 20)
    code = "from memtier_bench.probe import peak_rss_mb; print(peak_rss_mb())"
    assert 5 < float(run_python(code)) < len(large) / 2**20


def test_a_cold_recall_pays_for_what_it_loads() -> None:
    """Nothing that only a recall needs is loaded before the clock of the cold recall starts."""
    code = "import sys; from memtier_bench import probe; print(*sys.modules)"
    loaded = run_python(code).split()
    assert "memtier_bench.probe" in loaded
    assert not {"numpy", "tokenizers", "apsw"} & set(loaded)


@pytest.mark.parametrize("sizes", [[], [100, 50], [50, 50], [0, 10]])
def test_sizes_that_do_not_ascend_are_refused(sizes: list[int]) -> None:
    """A store cannot shrink, and there is nothing to measure in an empty one."""
    with pytest.raises(Unsupported, match="expected ascending"):
        run_scale(sizes)


@each_case("sizes", ["100,50", "50,50", "0,10", "ten", "10,", "1e3"])
def test_a_bad_list_of_sizes_is_a_usage_error(sizes: str) -> None:
    """`--entries` names what is wrong with it and measures nothing."""
    result = CliRunner().invoke(main, ["bench", "scale", "--entries", sizes])
    assert result.exit_code == 2
    assert f"{sizes!r}: expected" in result.output
