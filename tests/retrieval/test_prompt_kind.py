"""What kind of prompt it is: told by closed word classes, in every language, without a model."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtier_plugin.core.results import PromptKind
from memtier_plugin.retrieval.pasted_text import split_printed
from memtier_plugin.retrieval.prompt_kind import PromptKinds, prompt_kinds
from tests.cases import each_case

TRACE = "Traceback (most recent call last):\n  File \"b.py\", line 9, in run\nKeyError: 'berth'"

SMALL_TALK = [
    "cheers mate",
    "that's great, thanks a lot",
    "Thanks for the quick answer!",
    "have a nice weekend!",
    "Guten Morgen",
    "passt, danke",
    "vale, perfecto",
    "Merci, c'est parfait",
    "grazie mille!",
    "bom dia",
    "prima, dank je",
    "спасибо, отлично",
    "好的谢谢",
    "了解です",
    "네 알겠습니다",
    "👍",
]
COMMANDS = ["/reset", "/model small", "!git status -s"]
FOLLOW_UPS = [
    "same for the second paragraph",
    "could you elaborate?",
    "swap them",
    "why?",
    "noch eins",
    "ändere den zweiten Satz",
    "cambia el segundo",
    "encore une fois",
    "più breve",
    "a segunda opção",
    "короче",
    "换一个",
    "もっと短く",
    "더 짧게",
]
LEANING = [
    "and for teenagers?",
    "replace it with a poem",
    "it still fails",
    "und auf Englisch?",
    "¿y en inglés?",
    "а по-английски?",
]
TASKS = [
    "Write a haiku about rain",
    "Can you explain recursion?",
    "Schreib eine Funktion, die Primzahlen findet",
    "Explica la teoría de la relatividad",
    "Scrivi una poesia",
    "Напиши стих про осень",
    "写一个快速排序",
    "俳句を書いてください",
    "파이썬으로 피보나치 함수 써줘",
]
QUESTIONS_TO_THE_MEMORY = [
    "What is my sister called?",
    "Which port does the staging host use?",
    "Is it true that Ann owns the checkout service?",
    "What should I cook for Ana?",
    "When is stand-up?",
    "What's the plan for this weekend?",
    "List the cities I lived in",
    "Wie heißt mein Hund?",
    "¿Dónde vive mi hermana?",
    "¿Dónde vivo?",
    "¿Quién tiene razón?",
    "我妹妹叫什么名字？",
    "私の犬の名前は？",
]


@each_case("prompt", SMALL_TALK)
def test_small_talk(prompt: str) -> None:
    """What greets, thanks or acknowledges, and nothing else, is silent by itself."""
    assert prompt_kinds(prompt).silence == "the prompt is small talk"


@pytest.mark.parametrize("prompt", COMMANDS)
def test_commands(prompt: str) -> None:
    """A host's command is silent by itself; a path, or a command that asks at length, is none."""
    assert prompt_kinds(prompt).silence == "the prompt is a command of the host"
    assert not prompt_kinds("/etc/fstab has two swap lines").silence
    assert not prompt_kinds("/recap what we agreed on for the harbor invoices").silence


@each_case("prompt", FOLLOW_UPS)
def test_follow_ups_without_content(prompt: str) -> None:
    """A prompt of pointers alone says nothing that could be searched for."""
    assert prompt_kinds(prompt).is_empty


@each_case("prompt", LEANING)
def test_follow_ups_with_content(prompt: str) -> None:
    """A short prompt that points back may still be searched for; that it points back is known."""
    assert 0 < prompt_kinds(prompt).follow_up < 1


@each_case("prompt", TASKS)
def test_tasks(prompt: str) -> None:
    """A request that anybody could make opens with its verb, or ends with it in other languages."""
    kinds = prompt_kinds(prompt)
    assert kinds.task == 1.0 and not kinds.is_empty
    assert not prompt_kinds("List the order in which I brought up my trips").task


@each_case(
    "prompt",
    [
        "I planted the tomatoes this morning.",
        "the second chart looks better",
        "Wir haben das Sofa endlich verkauft.",
        "Mon frère arrive demain.",
        "Mi prima se queda hasta el lunes.",
        "我昨天把阳台打扫了。",
    ],
)
def test_statements(prompt: str) -> None:
    """What only tells something is a statement; what also asks, or orders something, is none."""
    assert prompt_kinds(prompt).states
    for other in (f"{prompt} Who pays for it?", "Translate the second chart", "where is my sofa"):
        assert not prompt_kinds(other).states


@each_case("prompt", QUESTIONS_TO_THE_MEMORY)
def test_questions_keep_their_rights(prompt: str) -> None:
    """A question that a memory may answer is not silent, and states nothing."""
    kinds = prompt_kinds(prompt)
    assert not (kinds.silence or kinds.is_empty or kinds.states)
    assert kinds.query == prompt


@each_case(
    ("prompt", "kind"),
    [
        ("Can you tell me a story?", "task"),
        ("How many invoices are open?", "several"),
        ("What is my rent?", "personal"),
        ("How do you say goodbye in Polish?", "general"),
    ],
)
def test_what_a_question_is_about(prompt: str, kind: str) -> None:
    """A task, several things, the person and the world are told apart."""
    assert getattr(prompt_kinds(prompt), kind) == 1.0


@pytest.mark.parametrize(
    "prompt", ["What did you recommend for my knee?", "Was hast du mir empfohlen?"]
)
def test_the_assistants_words_are_no_knowledge_of_the_world(prompt: str) -> None:
    """A question for what the assistant said is neither a task nor one about the world."""
    kinds = prompt_kinds(prompt)
    assert not (kinds.task or kinds.general)


def test_words_around_a_paste_are_the_query() -> None:
    """What a person asks around a log is searched for; a log alone is the query itself."""
    kinds = prompt_kinds(f"Did we fix this for the berth planner?\n{TRACE}")
    assert kinds.query == "Did we fix this for the berth planner?" and 0 < kinds.log < 1
    assert prompt_kinds(TRACE).query == TRACE and prompt_kinds(TRACE).log
    fenced = "How do we log this?\n```\nlet a = 1;\nlet b = 2;\n```"
    assert split_printed(fenced)[0] == "How do we log this?"


def test_quotations_are_not_read() -> None:
    """Words in quotation marks are not the asker's: they neither point nor speak of a person."""
    kinds = prompt_kinds('How do you say "I am lost" in Korean?')
    assert kinds.general and not kinds.personal


@each_case("kind", get_args(PromptKind))
def test_the_host_knows_better(kind: PromptKind) -> None:
    """The kind that a host states replaces what the rules say."""
    stated = prompt_kinds("thanks!", kind)
    assert bool(stated.silence) == (kind in ("chat", "command"))
    assert kind == "chat" or stated != prompt_kinds("thanks!")


@given(st.text(max_size=200))
def test_any_text_has_kinds(text: str) -> None:
    """Every text is classified, and every weight lies in [0, 1]."""
    kinds = prompt_kinds(text)
    weights = [getattr(kinds, name) for name in PromptKinds.__slots__]
    assert all(0 <= weight <= 1 for weight in weights if isinstance(weight, float))
    assert kinds.query in (text, split_printed(text)[0])
