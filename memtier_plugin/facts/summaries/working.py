"""Working memory: the running summary of a session; and the wording shared by all summaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.core.errors import BadAnswer, CapReached, EndpointError, SettingsError
from memtier_plugin.core.events import SupersedeEvent
from memtier_plugin.core.formats import new_id, to_iso
from memtier_plugin.core.records import Entry, Fact, Origin, count_tokens
from memtier_plugin.facts.summaries.selection import (
    SourceSentence,
    find_sentences,
    format_quote,
    format_summary,
    is_telling,
    select_sentences,
    speaker_name,
)
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.prompting import (
    INTEGER,
    STRING,
    fence_data,
    list_of,
    load_prompt,
    object_of,
)
from memtier_plugin.retrieval.session import AT_COMPACTION, RELATION, SHELF
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.index.overviews import LineGroup
from memtier_plugin.storage.store import Actor
from memtier_plugin.text.tokenizer import plain_words

# -- Summarise with a chat model, and verify each sentence against the lines that it cites
#
# A sentence is dropped if its lines lack one of its numbers or names or most of its words, or if it
# negates what they do not: it cannot be traced.

PURPOSE: Final = "summary"
PROMPT_TOKENS: Final = 1500  # of lines given to a model
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


MAX_BY_MODEL: Final = 10  # summaries per pass
_WEAKEST: Final[tuple[Origin, ...]] = ("assistant", "user")

Select = Callable[[], Sequence[SourceSentence]]


@dataclass(frozen=True, slots=True)
class Wording:
    """The text of a summary, its sources, and its author."""

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
            lines: all lines read for it.
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
    """The model of a pass, opened on first use and asked a limited number of times.

    The daily budget also serves the facts.  After a failure it is not asked again, so that other
    items do not wait for it.
    """

    budget: ChatBudget
    words: Callable[[str], Sequence[str]]
    prompt: str = "summarise"
    left: int = MAX_BY_MODEL
    problem: str = ""
    _chat: ChatSummariser | None = field(default=None)

    def word(self, heading: str, select: Select, room: int) -> Wording | None:
        """Return the model's summary of the selected lines, within ``room`` tokens.

        None if no model is configured, the limit is reached, or it fails.
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
    """Return a summary made only of quotations."""
    return Wording(format_summary(heading, quoted), quoted)


# -- Working memory: the running summary of a session, stored as a fact of its agent and sender
#
# Derived from the session's lines, it can be regenerated at any time; a later one supersedes it,
# and it shares the fate of the lines that it quotes (forgotten, purged).  Made by rules if a host
# waits; the background job may ask a model to word it (Mem-T, 3.1, UpdWork).

# -- Keep a running summary of a session: fold four lines at a time into a few sentences.  Pure
#
# The update rule of Mem-T's working memory (3.1, UpdWork) without a model: it always contains the
# session's purpose and the user's newest words; from the earlier sentences and the new lines it
# keeps the most informative.  Extractive, so that it contains nothing that nobody said.

BATCH: Final = 4  # lines folded in at once (Mem-T, 3.1)
MAX_TOKENS: Final = 240  # of quotations

Tokenize = Callable[[str], Sequence[str]]


def fold_session(
    lines: Sequence[Entry], words: Tokenize, rarity: Mapping[str, float], budget: int = MAX_TOKENS
) -> list[SourceSentence]:
    """Return the sentences of a running summary after all lines, in their order.

    Args:
        lines: of one session, in order.
        words: the tokenizer.
        rarity: the worth of each word, by how few lines have it.
        budget: tokens of quotations.
    """
    kept: list[SourceSentence] = []
    for start in range(0, len(lines), BATCH):
        kept = _fold(kept, lines[start : start + BATCH], words, rarity, budget)
    return kept


def _fold(
    kept: Sequence[SourceSentence],
    batch: Sequence[Entry],
    words: Tokenize,
    rarity: Mapping[str, float],
    budget: int,
) -> list[SourceSentence]:
    """Return the summary after a batch: the purpose, the newest wish, and the best of the rest."""
    new = [sentence for sentence in find_sentences(batch) if is_telling(sentence, words)]
    from_user = [sentence for sentence in new if sentence.entry.role == "user"]
    pinned = dict.fromkeys([*(kept[:1] or from_user[:1]), *from_user[-1:]])
    left = budget - sum(count_tokens(format_quote(sentence)) + 1 for sentence in pinned)
    rest = [sentence for sentence in (*kept, *new) if sentence not in pinned]
    chosen = {*pinned, *select_sentences(rest, words, rarity, left, filled=True)}
    return [sentence for sentence in (*kept, *new) if sentence in chosen]


MAX_LINES: Final = 400  # newest lines of a session that are read
MAX_SESSIONS: Final = 50  # most recently active ones per pass
RECENT: Final = timedelta(days=7)  # an older session is considered finished
_LOCK: Final = "working"
_LOCK_SECONDS: Final = 0.5


class WorkingMemory:
    """Writes the running summaries of a project on behalf of an agent."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._store = actor.store

    @property
    def enabled(self) -> bool:
        """Whether the project keeps working memory."""
        return not self._store.paused and self._store.settings.summaries.working

    def compacted(self, session: str, sender: str | None) -> Fact | None:
        """Write the summary of this agent's session before its lines leave the model's context.

        By rules only, as a host waits.  Returns None if there is nothing to write.

        Raises:
            LedgerError, IndexProblem: it was not written.
        """
        if not self.enabled:
            return None
        session, who = self._actor.mask_name(session) or "", self._actor.mask_name(sender) or ""
        with self._store.exclusive(_LOCK, _LOCK_SECONDS), self._store.session() as reader:
            self._store.refresh(self._actor.agent, wait_ms=100)
            group = reader.overviews.session_group(self._actor.agent, who, session)
            return self._update(group, AT_COMPACTION, None) if group else None

    def run(self, stop: Callable[[], bool] = lambda: False) -> int:
        """Write the summaries of recent sessions with a complete new batch; return how many.

        Raises:
            LedgerError: nothing could be written.
            IndexProblem: the index cannot be read.
        """
        if not self.enabled:
            return 0
        budget = ChatBudget(self._store, self._actor.agent, self._actor.clock)
        model = PassModel(budget, self._store.tokenizer.words, "working")
        written, least = 0, (self._actor.clock() - RECENT).timestamp()
        with self._store.session() as reader:
            self._store.catch_up_all()
            groups = reader.overviews.session_groups(BATCH)[:MAX_SESSIONS]
            for group in groups:
                if stop() or group.last < least:
                    break
                with self._store.exclusive(_LOCK, _LOCK_SECONDS):
                    written += self._update(group, RELATION, model) is not None
        return written

    def _update(self, group: LineGroup, relation: str, model: PassModel | None) -> Fact | None:
        """Write a session's summary and supersede its older one; None if none is due."""
        reader = self._store.reader()
        about = group.agent, group.sender, group.name
        existing = reader.overviews.shelved_facts(SHELF, about)
        covered = group.lines - group.lines % BATCH if relation == RELATION else group.lines
        value = f"{covered} lines"
        same = [fact for fact in existing if fact.value == value and fact.relation == relation]
        shown_later = relation == RELATION and any(
            fact.value == value or fact.value == f"{group.lines} lines" for fact in existing
        )
        if any(f.withdrawn or (f.in_place and f.indexed) for f in same) or shown_later:
            return None
        rows = reader.overviews.group_rows(group, MAX_LINES)
        stored = reader.items_by_row(rows)
        lines = [item for r in rows if r in stored and isinstance(item := stored[r].item, Entry)]
        lines = lines[: len(lines) - (group.lines - covered)]
        fact = self._summarise(group, lines, relation, value, model)
        if fact is None:
            return None
        now, old = self._actor.clock(), tuple(fact.id for fact in existing if fact.in_place)
        self._store.append_facts([fact], now)
        if old:
            event = SupersedeEvent(items=old, by=fact.id, valid_to=to_iso(now))
            self._store.append_events([self._actor.event(event)], shared=True)
        return fact

    def _summarise(
        self,
        group: LineGroup,
        lines: Sequence[Entry],
        relation: str,
        value: str,
        model: PassModel | None,
    ) -> Fact | None:
        """Return the summary of lines; None if no sentence is informative."""
        words = self._store.tokenizer.words
        vocabulary = {word for line in lines for word in words(line.content)}
        overviews = self._store.reader().overviews
        rarity = overviews.word_rarity(group.agent, group.sender, vocabulary)
        quoted = fold_session(lines, words, rarity)
        if not quoted:
            return None
        heading = f"So far ({value}, the purpose first)"
        wide = partial(fold_session, lines, words, rarity, PROMPT_TOKENS)
        worded = model.word(heading, wide, MAX_TOKENS) if model else None
        return (worded or quote_lines(heading, quoted)).to_fact(
            self._actor,
            group,
            lines,
            subject=group.name,
            relation=relation,
            value=value,
            extractor=SHELF,
        )
