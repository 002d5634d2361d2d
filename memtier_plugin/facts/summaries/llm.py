"""Summarise by a chat model, and verify each sentence against the lines that it cites.

A sentence is dropped if its lines lack one of its numbers or names or most of its words, or if it
negates what they do not: it cannot be traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.facts.summaries.selection import SourceSentence, speaker_name
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompt import fence_data, load_prompt
from memtier_plugin.providers.structured_output import INTEGER, STRING, list_of, object_of
from memtier_plugin.text.tokenizer import plain_words

PURPOSE: Final = "summary"
PROMPT_TOKENS: Final = 1500  # of lines that a model is given
MAX_SENTENCES: Final = 5  # of a summary
_MAX_CITED: Final = 3  # lines of a sentence
_MAX_ANSWER_TOKENS: Final = 900  # reasoning models need more than the answer takes
_MAX_CHARS: Final = 400  # of a sentence
_MIN_OVERLAP: Final = 0.6  # share of a sentence's words that its lines must have

SCHEMA: Final = object_of(
    "summary", sentences=list_of(object_of(text=STRING, cites=list_of(INTEGER)))
)
_DENIAL: Final = regex.compile(
    r"(?i)\b(?:no|not|never|none|nothing|nobody|without|cannot|\w+n['’]t|nicht|kein\w*|nie|niemals"
    r"|ohne|nunca|sin|ningun\w*|ne|pas|jamais|sans|aucune?)\b|不|没|沒|无|無"
)
_NUMBER: Final = regex.compile(r"\d+(?:[.,:/-]\d+)*")
# Within a sentence; at its beginning every word is capitalised.
_NAME: Final = regex.compile(r"(?<=[\p{L}\p{N},;'’] )\p{Lu}[\p{L}\p{N}_-]+")


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """A sentence that its lines support."""

    text: str
    units: tuple[SourceSentence, ...]


class ChatSummariser:
    """Asks a chat model to summarise lines."""

    def __init__(
        self, model: ChatModel, words: Callable[[str], Sequence[str]], prompt: str = "summarise"
    ) -> None:
        """Bind to a model, the tokenizer used to compare words, and a prompt."""
        self.model = model
        self.prompt = load_prompt(prompt)
        self._words = words

    def summarise(self, lines: Sequence[SourceSentence]) -> list[CitedSentence]:
        """Return the model's sentences that their lines support; none for an unusable answer.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        numbered = [
            f"[{number}] {line.entry.observed_at:%Y-%m-%d} {speaker_name(line.entry)}: {line.quote}"
            for number, line in enumerate(lines, 1)
        ]
        try:
            answer, _ = self.model.chat_json(
                self.prompt.text,
                fence_data(numbered),
                purpose=PURPOSE,
                max_tokens=_MAX_ANSWER_TOKENS,
                schema=SCHEMA,
            )
        except BadAnswer:
            return []
        sentences = []
        for item in answer["sentences"][:MAX_SENTENCES]:
            text = " ".join(item["text"].split())
            numbers = dict.fromkeys(item["cites"])
            cited = [number for number in numbers if 1 <= number <= len(lines)][:_MAX_CITED]
            units = tuple(lines[number - 1] for number in cited)
            if len(cited) == len(item["cites"]) and self._is_supported(text, units):
                sentences.append(CitedSentence(text, units))
        return sentences

    def _is_supported(self, text: str, units: Sequence[SourceSentence]) -> bool:
        """Return whether lines support a sentence, as far as words can tell."""
        if not units or not 0 < len(text) <= _MAX_CHARS:
            return False
        quotes = " ".join(f"{speaker_name(unit.entry)} {unit.quote}" for unit in units)
        days = [unit.entry.observed_at for unit in units]
        dates = " ".join(f"{day:%Y-%m-%d %Y %m %d %B} {day.day}" for day in days)
        source = f"{quotes} {dates}"
        if not set(_NUMBER.findall(text)) <= set(_NUMBER.findall(source)):
            return False
        names = {word for name in _NAME.findall(text) for word in plain_words(name)}
        if not names <= set(plain_words(source)):
            return False
        if bool(_DENIAL.search(text)) != bool(_DENIAL.search(quotes)):
            return False
        words, source_words = set(self._words(text)), set(self._words(source))
        return bool(words) and len(words & source_words) >= _MIN_OVERLAP * len(words)
