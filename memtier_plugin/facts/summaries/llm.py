"""Summaries in the words of a chat model, each sentence held against the lines that it cites.

A sentence that says a number or a name that its lines do not, that denies what they do not deny,
or most of whose words they lack, is dropped: it cannot be traced.  Source: seeds 5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import regex

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.facts.summaries.selection import SourceSentence, speaker_name
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompt import fence_data, load_prompt
from memtier_plugin.text.tokenizer import plain_words

PURPOSE: Final = "summary"
PROMPT_TOKENS: Final = 1500  # tokens of lines that a model is given
MAX_SENTENCES: Final = 5  # sentences
_CITED: Final = 3  # lines of one sentence
_ANSWER: Final = 900  # tokens; models that think aloud need more than the answer takes
_LONG: Final = 400  # characters of a sentence
_MIN_OVERLAP: Final = 0.6  # of a sentence's words must stand in its lines

SCHEMA: Final[Mapping[str, Any]] = {
    "title": "summary",
    "type": "object",
    "additionalProperties": False,
    "required": ["sentences"],
    "properties": {
        "sentences": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "cites"],
                "properties": {
                    "text": {"type": "string"},
                    "cites": {"type": "array", "items": {"type": "integer"}},
                },
            },
        }
    },
}
_DENIAL: Final = regex.compile(
    r"(?i)\b(?:no|not|never|none|nothing|nobody|without|cannot|\w+n['’]t|nicht|kein\w*|nie|niemals"
    r"|ohne|nunca|sin|ningun\w*|ne|pas|jamais|sans|aucune?)\b|不|没|沒|无|無"
)
_NUMBER: Final = regex.compile(r"\d+(?:[.,:/-]\d+)*")
# In the middle of a sentence; at its beginning every word is written large.
_NAME: Final = regex.compile(r"(?<=[\p{L}\p{N},;'’] )\p{Lu}[\p{L}\p{N}_-]+")


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """A sentence that its lines bear out."""

    text: str
    units: tuple[SourceSentence, ...]


class ChatSummariser:
    """Asks a chat model to sum up lines."""

    def __init__(self, model: ChatModel, words: Callable[[str], Sequence[str]]) -> None:
        """Take a model, and the tokenizer that tells whether words are the same."""
        self.model = model
        self.prompt = load_prompt("summarise")
        self._words = words

    def summarise(self, lines: Sequence[SourceSentence]) -> list[CitedSentence]:
        """Return what the model says of the lines that they bear out; nothing where that is none.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        shown = [
            f"[{number}] {line.entry.observed_at:%Y-%m-%d} {speaker_name(line.entry)}: {line.quote}"
            for number, line in enumerate(lines, 1)
        ]
        try:
            answer, _ = self.model.chat_json(
                self.prompt.text,
                fence_data(shown),
                purpose=PURPOSE,
                max_tokens=_ANSWER,
                schema=SCHEMA,
            )
        except BadAnswer:
            return []
        found = []
        for item in answer["sentences"][:MAX_SENTENCES]:
            text = " ".join(item["text"].split())
            cited = [n for n in dict.fromkeys(item["cites"]) if 1 <= n <= len(lines)][:_CITED]
            units = tuple(lines[number - 1] for number in cited)
            if len(cited) == len(item["cites"]) and self._is_supported(text, units):
                found.append(CitedSentence(text, units))
        return found

    def _is_supported(self, text: str, units: Sequence[SourceSentence]) -> bool:
        """Tell whether lines say what a sentence says, as far as words can tell."""
        if not units or not 0 < len(text) <= _LONG:
            return False
        said = " ".join(f"{speaker_name(u.entry)} {u.quote}" for u in units)
        days = [unit.entry.observed_at for unit in units]
        dates = " ".join(f"{day:%Y-%m-%d %Y %m %d %B} {day.day}" for day in days)
        there = f"{said} {dates}"
        if not set(_NUMBER.findall(text)) <= set(_NUMBER.findall(there)):
            return False
        if not {w for n in _NAME.findall(text) for w in plain_words(n)} <= {*plain_words(there)}:
            return False
        if bool(_DENIAL.search(text)) != bool(_DENIAL.search(said)):
            return False
        own, theirs = set(self._words(text)), set(self._words(there))
        return bool(own) and len(own & theirs) >= _MIN_OVERLAP * len(own)
