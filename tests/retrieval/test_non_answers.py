"""Lines that answer nothing are left out of a block, and nothing stands there twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memtier_plugin.core.results import Evidence, Hit
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.duplicates import find_restated
from memtier_plugin.retrieval.floor import Judged
from memtier_plugin.retrieval.judgement import find_non_answers, is_similar, leave_out_letters
from memtier_plugin.text.phrases import only_acknowledges, only_asks, without_receipts
from memtier_plugin.text.tokenizer import Tokenizer
from memtier_plugin.trust.external_text import missing_statement
from tests.builders import make_entry, make_fact
from tests.cases import each_case

WORDS = Tokenizer("english").words


@each_case(
    ("text", "only"),
    [
        ("Noted.", True),
        ("Understood. I'll keep that in mind.", True),
        ("Got it, thanks for letting me know!", True),
        ("Alles klar, ist notiert.", True),
        ("Entendido, lo tendré en cuenta.", True),
        ("D'accord, c'est noté.", True),
        ("Perfetto, l'ho annotato.", True),
        ("Anotado, vou me lembrar disso.", True),
        ("Begrepen, ik zal het onthouden.", True),
        ("Понял, спасибо!", True),
        ("好的，我记住了。", True),
        ("わかりました。覚えておきます。", True),
        ("네, 알겠습니다.", True),
        ("Noted: the deploy day is Friday.", False),
        ("Okay, deploy on Friday.", False),
        ("Alles klar, Freitag.", False),
        ("Ok, 9443", False),
        ("好的，周五部署。", False),
        ("", False),
    ],
)
def test_acknowledgements(text: str, only: bool) -> None:
    """A text that consists of receipts and their fillers says nothing; a content word more does."""
    assert only_acknowledges(text) == only


@each_case(
    ("text", "only"),
    [
        ("What is the release branch called?", True),
        ("what is the release branch called", True),
        ("Hey! How are you? Where do you live now?", True),
        ("¿Dónde vivo?", True),
        ("Wo wohne ich?", True),
        ("你住在哪里？", True),
        ("When I deploy, I use heron.", False),
        ("Can you always answer in French?", False),
        ("¿Puedes recordarme la fecha?", False),
        ("Kannst du das immer auf Deutsch sagen?", False),
        ("你能帮我部署吗？", False),
        ("I live in Porto. Where do you live?", False),
        ("I have never been to Rome, so how do I get there?", False),
        ("The release branch is main.", False),
    ],
)
def test_questions(text: str, only: bool) -> None:
    """A text only asks if each of its sentences does; requests and statements before are more."""
    assert only_asks(text) == only


@each_case(
    ("role", "text", "missing"),
    [
        ("assistant", '[tool call: tool_call {"name": "exec", "args": {}}]', ""),
        ("assistant", '[tool call: exec {"command": "ls memory_search"}]', ""),
        ("assistant", "The port is 9443.\n[tool call: memory_store {}]", ""),
        ("assistant", "Noted.", "receipt"),
        ("user", "What is the port?", "question"),
        ("user", "Whenever I ask for the port, ask back?", ""),
        ("user", "The port is 9443.", ""),
    ],
)
def test_what_is_no_statement(role: str, text: str, missing: str) -> None:
    """Receipts and questions state nothing; what has a tool's call does."""
    assert missing_statement(make_entry(role=role, content=text)) == missing


def hit(text: str, name: str, *, role: str = "user", **evidence: float) -> Hit:
    """Return an entry as a hit with evidence."""
    entry = make_entry(role=role, content=text, id=name)
    shown = Evidence(**evidence)  # type: ignore[arg-type]
    return Hit(item=entry, score=1.0, signals={}, sources=(entry.source,), evidence=shown)


def test_a_question_yields_to_a_statement() -> None:
    """A question that repeats the prompt is left out where a statement competes, and only there."""
    terms = WORDS("What is the release branch called?")
    asked = hit("What was the release branch called?", "asked", coverage=1, own_coverage=1)
    other = hit("Who reviews the parser of the compiler?", "other", coverage=1, own_coverage=0.1)
    stated = hit("The release branch is main.", "stated", coverage=0.8, own_coverage=0.8)
    assert find_non_answers([asked, other, stated], terms, WORDS) == {"asked": "question"}
    assert find_non_answers([asked, other], terms, WORDS) == {}


def test_letters_alone_are_no_evidence() -> None:
    """A line or fact without a word of the prompt needs meaning, neighbours, or a form of one."""
    lines = [
        hit("The bins are collected on Tuesdays.", "letters"),
        hit("The colours of the kubernets cluster", "typo"),
        hit("Meine Kaffeemaschine tropft", "compound"),
        hit("Yes, at nine.", "neighbour", coverage=0.6),
        hit("It rained.", "meaning", cosine=0.5),
    ]
    terms = WORDS("kubernetes colander Maschine")
    judged = leave_out_letters(Judged(tuple(lines)), terms, WORDS)
    assert judged.left_out == {"letters": "letters"}
    assert [line.id for line in judged.hits] == ["typo", "compound", "neighbour", "meaning"]
    fact = make_fact("The user has a canary called Bo.")
    stated = replace(lines[0], item=fact, sources=fact.sources)
    assert leave_out_letters(Judged((stated,)), terms, WORDS).left_out == {fact.id: "letters"}
    alone = leave_out_letters(Judged((lines[0],)), WORDS("sourdough"), WORDS)
    assert not alone.hits and alone.silent


@each_case(
    ("word", "other", "similar"),
    [
        ("kubernetes", "kubernets", True),
        ("lieblingsfarben", "lieblingsfarbe", True),
        ("kaffeemaschine", "maschine", True),
        ("bread", "break", False),
        ("staging", "stage", False),
        ("electricity", "contract", False),
    ],
)
def test_similar_words(word: str, other: str, similar: bool) -> None:
    """A typo, an inflection or a compound is spelt like the word; chance likeness is not enough."""
    assert is_similar(word, other) == similar


def test_an_echo_is_no_second_line() -> None:
    """What the assistant repeats of the user's words is left out, unless it denies or adds."""
    statement = hit("The deploy day of the shop is Friday.", "said")
    echo = hit("Noted: the deploy day is Friday.", "echo", role="assistant")
    more = hit("The deploy day is Friday at noon.", "more", role="assistant")
    denied = hit("The deploy day is not Friday.", "denied", role="assistant")
    assert find_restated([statement, echo, more, denied], WORDS) == {"echo": "said"}
    assert without_receipts("Got it! Noted: the port is 1.") == "the port is 1."


def test_remembered_once(tmp_path: Path) -> None:
    """`remember X; recall X`: one line says X."""
    with MemTier.open(tmp_path, "p") as memory:
        memory.remember("The deploy day is Friday.")
        for purpose in ("search", "inject"):
            recall = memory.recall("What is the deploy day?", purpose=purpose)  # type: ignore[arg-type]
            assert len([line for line in recall.injected if "Friday" in line.text]) == 1


def test_a_block_without_receipts_and_repeated_questions(tmp_path: Path) -> None:
    """In a memory: the statement is shown; its question, and the receipt, only by a search."""
    with MemTier.open(tmp_path, "p") as memory:
        messages = [
            {"role": "user", "content": "What is the release branch called?"},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": "The release branch is called heron."},
        ]
        for number, message in enumerate(messages):
            memory.end_run([message], session_id=f"s{number}", run_id=f"r{number}")
        prompt = "What is our release branch called?"
        shown = [line.text for line in memory.recall(prompt, purpose="inject").injected]
        assert shown == ["The release branch is called heron."]
        recall = memory.recall(prompt, purpose="inject", session_id="new")
        question = next(h for h in memory.recall(prompt).hits if h.text.endswith("called?"))
        assert memory.explain(recall.id, why=question.id)["why"]["reason"] == "question"
