"""A small policy for multi-turn retrieval: which tool, with which words, and when to stop.

Pure.  In place of a model (Mem-T, section 3.1, phase II), a softmax over pairs of a tool and a
query form uses a few features of the question and of the lines shown.  `bench.trees` trains it.
Query forms are made from the question and the lines shown, without a model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from memtier_papers.mem_t.tool_calls import FINISH
from memtier_plugin.answering.store_search import FACTS, PERSONAS, SUMMARY, TURNS

Form = Literal["question", "keywords", "rest", "feedback", "name", ""]
Tokenize = Callable[[str], Sequence[str]]


class Action(NamedTuple):
    """A tool and the form of its query; `FINISH` has no form."""

    tool: str
    form: Form


ACTIONS: Final = (
    Action(TURNS, "question"),
    Action(TURNS, "keywords"),
    Action(TURNS, "rest"),
    Action(TURNS, "feedback"),
    Action(FACTS, "question"),
    Action(FACTS, "rest"),
    Action(PERSONAS, "name"),
    Action(SUMMARY, "question"),
    Action(FINISH, ""),
)
MAX_DEPTH: Final = 4  # searches per question (Mem-T, section 4.1)
_FEEDBACK_WORDS: Final = 4
_LINES: Final = 20  # normalises the number of lines shown
_TOOLS: Final = tuple(dict.fromkeys(action.tool for action in ACTIONS[:-1]))
FEATURES: Final = (
    "one",
    "first",
    "last",
    "covered",
    "lines",
    "new",
    "nothing",
    "names",
    "time",
    "several",
    *(f"used {tool}" for tool in _TOOLS),
)
_WORD: Final = re.compile(r"[^\W_][\w'\u2019-]*")
_ENDS: Final = re.compile(r"[.!?]\s")  # of a sentence
_TIME: Final = re.compile(r"\b(when|what (date|day|year|month|time)|how long|since)\b")
_SEVERAL: Final = re.compile(
    r"\b(how (many|often)|all|both|and|list|which"
    r"|what (kinds?|types?|sorts?|are|were|do|did|has|have))\b"
)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question, parsed once.

    Attributes:
        words: its words without function words, as written, by their stem.
    """

    text: str
    words: Mapping[str, str]
    name: str
    times: bool
    several: bool


class ShownLine(NamedTuple):
    """A line that was shown: its words as written, by their stem."""

    words: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanState:
    """The state of a question's searches.

    Attributes:
        taken: the index in `ACTIONS` and the query of each search so far.
        lines: all lines shown, in order.
        new: how many of them the last search showed.
    """

    question: AskedQuestion
    taken: tuple[tuple[int, str], ...] = ()
    lines: tuple[ShownLine, ...] = ()
    new: int = 0


def take_apart(text: str, tokenize: Tokenize) -> AskedQuestion:
    """Return a question with its words and its first name."""
    name = next(_names(text), "")
    folded = text.casefold()
    return AskedQuestion(
        text=text,
        words=words_of(text, tokenize),
        name=name.removesuffix("'s").removesuffix("\u2019s"),
        times=bool(_TIME.search(folded)),
        several=bool(_SEVERAL.search(folded)),
    )


def _names(text: str) -> Iterator[str]:
    """Yield the capitalised words of a text that do not begin a sentence."""
    end = 0
    for match in _WORD.finditer(text):
        _, mark, gap = text[end : match.start()].rpartition("_")
        begins = _ENDS.search(gap) or not (end or mark)
        end = match.end()
        if match[0][0].isupper() and len(match[0]) > 1 and not begins:
            yield match[0]


def words_of(text: str, tokenize: Tokenize) -> dict[str, str]:
    """Return the words of a text by their stem, without those that the tokenizer drops."""
    words: dict[str, str] = {}
    for word in _WORD.findall(text):
        for stem in tokenize(word):
            words.setdefault(stem, word)
    return words


def query_for(form: Form, state: PlanState) -> str:
    """Return the text of a search; empty if the form has none now."""
    question = state.question
    if form == "question":
        return question.text
    if form == "name":
        return question.name
    if form == "keywords":
        return " ".join(dict.fromkeys(question.words.values()))
    if not state.lines:
        return ""
    if form == "rest":
        shown = _shown_stems(state)
        rest = [word for stem, word in question.words.items() if stem not in shown]
        if not rest or len(rest) == len(question.words):
            return ""  # nothing is left, or it would repeat the keywords
        return " ".join(dict.fromkeys([*filter(None, [question.name]), *rest]))
    others = [word for stem, word in state.lines[0].words.items() if stem not in question.words]
    rare = sorted(dict.fromkeys(others), key=lambda word: (-len(word), word))[:_FEEDBACK_WORDS]
    if not rare:
        return ""
    return " ".join(dict.fromkeys([*question.words.values(), *rare]))


def legal_queries(state: PlanState) -> list[str | None]:
    """Return the query of each action that is a new call; None if it is not.

    Finishing is legal (with an empty query) after the first search, and the only legal action after
    `MAX_DEPTH` searches.
    """
    searching = len(state.taken) < MAX_DEPTH
    called = {(ACTIONS[index].tool, query) for index, query in state.taken}
    queries: list[str | None] = []
    for tool, form in ACTIONS:
        if tool == FINISH:
            queries.append("" if state.taken else None)
            continue
        query = query_for(form, state) if searching else ""
        queries.append(query if query and (tool, query) not in called else None)
    return queries


def features(state: PlanState) -> tuple[float, ...]:
    """Return the features of a state, each from 0 to 1, in the order of `FEATURES`."""
    question, steps = state.question, len(state.taken)
    shown = _shown_stems(state)
    covered = sum(stem in shown for stem in question.words) / max(1, len(question.words))
    used = {ACTIONS[index].tool for index, _ in state.taken}
    return (
        1.0,
        float(steps == 0),
        float(steps == MAX_DEPTH - 1),
        covered,
        min(1.0, len(state.lines) / _LINES),
        min(1.0, state.new / _LINES),
        float(steps > 0 and not state.new),
        float(bool(question.name)),
        float(question.times),
        float(question.several),
        *(float(tool in used) for tool in _TOOLS),
    )


def probabilities(
    weights: Sequence[Sequence[float]], values: Sequence[float], legal: Sequence[bool]
) -> list[float]:
    """Return the probability of each action: a softmax over the legal ones.

    Args:
        weights: a row for each action, a column for each feature.
    """
    scores = [
        math.fsum(weight * value for weight, value in zip(row, values, strict=True))
        for row in weights
    ]
    top = max(score for score, allowed in zip(scores, legal, strict=True) if allowed)
    parts = [
        math.exp(score - top) if allowed else 0.0
        for score, allowed in zip(scores, legal, strict=True)
    ]
    total = math.fsum(parts)
    return [part / total for part in parts]


def best_action(weights: Sequence[Sequence[float]], state: PlanState) -> int:
    """Return the likeliest action; the first of equal ones."""
    legal = [query is not None for query in legal_queries(state)]
    chances = probabilities(weights, features(state), legal)
    return max(range(len(chances)), key=lambda index: (chances[index], -index))


def _shown_stems(state: PlanState) -> Set[str]:
    return {stem for line in state.lines for stem in line.words}
