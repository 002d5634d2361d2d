"""Word a summary: by the model of a pass, or as quotations; and make the fact of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memtier_plugin.core.errors import CapReached, EndpointError, SettingsError
from memtier_plugin.core.ids import new_id
from memtier_plugin.core.records import Entry, Fact, Origin, count_tokens
from memtier_plugin.facts.summaries.llm import ChatSummariser
from memtier_plugin.facts.summaries.selection import SourceSentence, format_summary
from memtier_plugin.storage.actor import Actor
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import LineGroup

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
