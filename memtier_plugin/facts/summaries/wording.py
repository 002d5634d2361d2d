"""Word a summary: by the model of a pass, or as quotations; and make the fact of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.errors import BadAnswer, CapReached, EndpointError, SettingsError
from memtier_plugin.core.formats import new_id
from memtier_plugin.core.records import Entry, Fact, Origin, count_tokens
from memtier_plugin.facts.summaries.selection import SourceSentence, format_summary, speaker_name
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompt import fence_data, load_prompt
from memtier_plugin.providers.prompting import INTEGER, STRING, list_of, object_of
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import LineGroup
from memtier_plugin.text.tokenizer import plain_words

# -- Summarise by a chat model, and verify each sentence against the lines that it cites
#
# A sentence is dropped if its lines lack one of its numbers or names or most of its words, or if it
# negates what they do not: it cannot be traced.

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


MAX_BY_MODEL: Final = 10  # summaries of a pass
_WEAKEST: Final[tuple[Origin, ...]] = ("assistant", "user")

Select = Callable[[], Sequence[SourceSentence]]


@dataclass(frozen=True, slots=True)
class Wording:
    """The text of a summary, what it rests on, and who worded it."""

    text: str
    quoted: Sequence[SourceSentence]
    model: str | None = None
    prompt_hash: str | None = None

    def to_fact(
        self,
        actor: Actor,
        group: LineGroup,
        lines: Sequence[Entry],
        *,
        subject: str,
        relation: str,
        value: str,
        extractor: str,
    ) -> Fact:
        """Return it as a fact of the group's agent and sender.

        Args:
            lines: all that were read for it.
        """
        entries = {sentence.entry.id: sentence.entry for sentence in self.quoted}
        origins = {entry.origin for entry in entries.values()}
        first = self.quoted[0]
        return Fact(
            id=new_id(),
            timestamp=actor.clock(),
            project=actor.store.project,
            subject=subject,
            relation=relation,
            value=value,
            text=self.text,
            sources=tuple(entry.source for entry in entries.values()),
            valid_from=min(line.observed_at for line in lines),
            quote=first.quote,
            span=(first.start, first.end),
            extractor=extractor,
            model=self.model,
            prompt_hash=self.prompt_hash,
            origin=next(origin for origin in _WEAKEST if origin in origins),
            private_to=(group.agent, group.sender),
        )


@dataclass(slots=True)
class PassModel:
    """The model of a pass, opened when it is first needed and asked a few times.

    The daily budget also serves the facts.  After a failure it is not asked again: the others must
    not wait for it.
    """

    budget: ChatBudget
    words: Callable[[str], Sequence[str]]
    prompt: str = "summarise"
    left: int = MAX_BY_MODEL
    problem: str = ""
    _chat: ChatSummariser | None = field(default=None)

    def word(self, heading: str, select: Select, room: int) -> Wording | None:
        """Return what the model says about the selected lines, within so many tokens.

        None where no model is configured, enough was asked, or it fails.
        """
        chat = self._open()
        if chat is None or not self.left:
            return None
        self.left -= 1
        try:
            worded = chat.summarise(select())
        except (CapReached, EndpointError) as error:
            self.left, self.problem = 0, str(error)
            return None
        quoted: dict[SourceSentence, None] = {}
        sentences: list[str] = []
        for each in worded:
            if count_tokens(" ".join([*sentences, each.text])) <= room:
                sentences.append(each.text)
                quoted.update(dict.fromkeys(each.units))
        if not sentences:
            return None
        text = f"{heading}: {' '.join(sentences)}"
        return Wording(text, [*quoted], chat.model.name, chat.prompt.hash)

    def _open(self) -> ChatSummariser | None:
        if self.left and self._chat is None:
            try:
                model = self.budget.chat_model()
            except SettingsError as error:
                model, self.problem = None, str(error)
            self._chat = ChatSummariser(model, self.words, self.prompt) if model else None
            self.left = self.left if model else 0
        return self._chat


def quote_lines(heading: str, quoted: Sequence[SourceSentence]) -> Wording:
    """Return a summary of quotations alone."""
    return Wording(format_summary(heading, quoted), quoted)
