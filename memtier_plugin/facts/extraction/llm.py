"""Ask a chat model for claims in entries, and how a claim relates to existing facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from string import Template
from typing import Any, Final
from unicodedata import category

from memtier_plugin.core.errors import AnswerLate, BadAnswer, ContextTooLong, EndpointRefused
from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.facts.evolution import Action
from memtier_plugin.facts.verification.verify import Claim
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.prompting import (
    INTEGER,
    PROMPT_FOLDER,
    STRING,
    ListedAnswer,
    begun_items,
    choice_of,
    fence_data,
    list_of,
    load_prompt,
    object_of,
    parse_items,
    strip_reasoning,
)
from memtier_plugin.text.lexicon import lexicon
from memtier_plugin.text.passages import chunk_text

# -- Extract claims from entries with a chat model
#
# A claim is not a fact yet: `verification` checks it against the entries first. An answer is only
# parsed for claims, whatever else it says.

PURPOSE: Final = "extraction"
MIN_ANSWER_TOKENS: Final = 1000  # an answer to a short request; longer ones get more
MAX_ANSWER_TOKENS: Final = 4000
MIN_TEXT_TOKENS: Final = 100  # a shorter text is not split further
_LINE_TOKENS: Final = 12  # for the number, the date and the name before each text
_MAX_LINE_DIGITS: Final = 7

BAD_ITEM: Final = "claim of another shape"
TOO_LONG: Final = "more than the model reads"
CUT: Final = "more than the model answers"
THOUGHT: Final = "thought up to the limit of an answer"
REFUSED: Final = "refused by the endpoint"
LATE: Final = "more than the model reads in its time"

_WEEKDAYS: Final = tuple(name[:3].title() for name in lexicon("english").weekday_names)
_LENGTHS: Final = {"subject": 120, "relation": 60, "value": 500, "text": 600, "quote": 1000}
_ITEM: Final = object_of(
    kind=choice_of("fact", "experience"),
    subject=STRING,
    relation=STRING,
    value=STRING,
    text=STRING,
    quote=STRING,
    line=INTEGER,
    since={"type": ["string", "null"]},
)
SCHEMA: Final = object_of("facts", facts=list_of(_ITEM))
# Accepted from small models, which omit fields and may spell out a line number.
_LENIENT_ITEM: Final = {
    **_ITEM,
    "required": ["subject", "relation", "value", "text", "quote"],
    "properties": {**_ITEM["properties"], "line": {"type": ["integer", "string", "null"]}},
}
_LENIENT_SCHEMA: Final = object_of("facts", facts=list_of(_LENIENT_ITEM))


@dataclass(frozen=True, slots=True)
class ClaimBatch:
    """A model's claims about some entries, and their cost.

    ``rejected`` counts answers and their items by reason; ``unread`` lists entries of which some
    text has no usable answer.
    """

    claims: tuple[Claim, ...] = ()
    rejected: Counter[str] = field(default_factory=Counter)
    unread: tuple[str, ...] = ()
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: ClaimBatch) -> ClaimBatch:
        return ClaimBatch(
            self.claims + other.claims,
            self.rejected + other.rejected,
            self.unread + tuple(entry for entry in other.unread if entry not in self.unread),
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True)
class _PromptText:
    """An entry, or a part of a long one, as a line of a prompt."""

    entry: Entry
    content: str
    continued: bool = False

    @property
    def tokens(self) -> int:
        return count_tokens(self.content) + _LINE_TOKENS

    def halves(self) -> tuple[_PromptText, ...]:
        """Split this text into two or more parts, unless it is small."""
        return self.parts(self.tokens // 2) if self.tokens > MIN_TEXT_TOKENS else (self,)

    def parts(self, tokens: int) -> tuple[_PromptText, ...]:
        """Split this text into runs of whole sentences of about ``tokens`` tokens each."""
        size = max(1, tokens * len(self.content) // count_tokens(self.content or " "))
        texts = chunk_text(self.content, size, len(self.content))
        return tuple(
            replace(self, content=text, continued=self.continued or number > 0)
            for number, text in enumerate(texts)
        )

    def line(self, number: int) -> str:
        """Format the text as the model sees it."""
        entry, said_at = self.entry, self.entry.observed_at
        role: str = entry.role
        who = entry.speaker or ("a tool" if role == "tool" else f"the {role}")
        if entry.tool:
            outcome = {True: "ok", False: "failed", None: ""}[entry.tool.ok]
            code = f"exit {entry.tool.exit_code}" if entry.tool.exit_code is not None else ""
            who, role = entry.tool.name, ", ".join(filter(None, ("tool", outcome, code)))
        role += ", continued" if self.continued else ""
        stamp = f"{said_at:%Y-%m-%d} {_WEEKDAYS[said_at.weekday()]} {said_at:%H:%M}"
        return f"[{number}] {stamp} | {' '.join(who.split())} ({role}): {self.content.strip()}"


def prompt_lines(entries: Iterable[Entry]) -> list[str]:
    """Return entries as the numbered lines of a prompt that asks for facts."""
    return [_PromptText(entry, entry.content).line(n) for n, entry in enumerate(entries, 1)]


class ChatExtractor:
    """Extracts claims with a chat model; use one instance per pass."""

    name: Final = "chat"
    prompt_name: str = "extract"
    prompt_folder: Path = PROMPT_FOLDER

    def __init__(self, model: ChatModel, batch_tokens: int = 4000) -> None:
        self.model = model
        self.prompt = load_prompt(self.prompt_name, self.prompt_folder)
        self.batch_tokens = batch_tokens
        self._request_tokens = batch_tokens  # reduced once the model rejects a longer request
        self._served = False

    def batches(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
        """Yield the entries in batches of one session each, in order.

        Each batch goes into one request, unless the model cannot take it. A caller that stores the
        claims of each batch before it asks for the next loses little when a request fails.
        """
        sessions: dict[tuple[str, str, str | None], list[Entry]] = {}
        for entry in entries:
            sessions.setdefault((entry.agent_id, entry.session_id, entry.sender), []).append(entry)
        for session in sessions.values():
            batch: list[Entry] = []
            room = self.batch_tokens
            for entry in session:
                size = _PromptText(entry, entry.content).tokens
                if batch and size > room:
                    yield tuple(batch)
                    batch, room = [], self.batch_tokens
                batch.append(entry)
                room -= size
            yield tuple(batch)

    def extract_claims(self, entries: Sequence[Entry]) -> ClaimBatch:
        """Ask the model for the claims in these entries.

        Raises:
            CapReached: the day's budget is used up.
            EndpointError: the endpoint does not answer; no entry is marked as read or unread.
                One that takes too long is asked for less until the texts cannot be split further.
        """
        claims = ClaimBatch()
        for batch in self.batches(entry for entry in entries if entry.retrievable):
            for texts in self._requests(batch):
                claims += self._read(texts)
        return claims

    def _requests(self, batch: Sequence[Entry]) -> Iterator[list[_PromptText]]:
        """Yield the texts of each request: one batch, split if it exceeds the context."""
        texts: list[_PromptText] = []
        for entry in batch:
            text = _PromptText(entry, entry.content)
            fits = text.tokens <= self._request_tokens
            parts = (text,) if fits else text.parts(self._request_tokens - _LINE_TOKENS)
            for part in parts:
                if (
                    texts
                    and sum(text.tokens for text in texts) + part.tokens > self._request_tokens
                ):
                    yield texts
                    texts = []
                texts.append(part)
        if texts:
            yield texts

    def _read(self, texts: Sequence[_PromptText], patience: int = 2) -> ClaimBatch:
        """Ask for the claims in these texts, in parts if the model cannot take them at once.

        Args:
            patience: how often to retry in parts when the model's reasoning used up its answer,
                or a short text as it is when its answer came too late.
        """
        try:
            reply = self._ask(texts)
        except ContextTooLong:
            self._ask_for_less(texts)
            return self._read_in_halves(texts, TOO_LONG, patience)
        except AnswerLate:
            if sum(text.tokens for text in texts) > MIN_TEXT_TOKENS:
                self._ask_for_less(texts)
                return self._read_in_halves(texts, LATE, patience)
            if not patience:
                raise
            return self._read(texts, patience - 1)
        except EndpointRefused:
            self._probe()
            return self._read_in_halves(texts, REFUSED, patience)
        try:
            return self._usage_of(reply) + self._parse_claims(reply, texts, patience)
        except BadAnswer as error:
            reason = error.reason
        try:
            reminder = load_prompt(f"{self.prompt_name}_again", self.prompt_folder).text
            again = self._ask(texts, Template(reminder).substitute(reason=reason))
        except EndpointRefused:
            return self._usage_of(reply) + _as_unread(texts, reason)
        both = self._usage_of(reply) + self._usage_of(again)
        try:
            return both + self._parse_claims(again, texts, patience)
        except BadAnswer as error:
            return both + _as_unread(texts, error.reason)

    def _ask_for_less(self, texts: Sequence[_PromptText]) -> None:
        """Have later requests hold half as much as this one at most."""
        half = sum(text.tokens for text in texts) // 2
        self._request_tokens = max(MIN_TEXT_TOKENS, min(self._request_tokens, half))

    def _parse_claims(
        self, reply: ChatReply, texts: Sequence[_PromptText], patience: int
    ) -> ClaimBatch:
        """Parse the claims in an answer; for a truncated one, ask again in parts.

        Raises:
            BadAnswer: the answer is complete, but contains no parsable claims.
        """
        if reply.truncated:
            if strip_reasoning(reply.text):
                return self._read_on(reply, texts, patience)
            return (
                self._read_in_halves(texts, THOUGHT, patience - 1)
                if patience
                else _as_unread(texts, THOUGHT)
            )
        answer = self._items(reply.text)
        claims = [_parse_claim(item, texts) for item in answer.items]
        good = tuple(claim for claim in claims if claim)
        bad = answer.rejected + len(claims) - len(good)
        return ClaimBatch(good, Counter({BAD_ITEM: bad} if bad else ()))

    def _read_on(self, reply: ChatReply, texts: Sequence[_PromptText], patience: int) -> ClaimBatch:
        """Keep the claims of an answer that was cut off; ask on from the last line that it reached.

        A small model repeats itself until it is cut off: what it says again counts once.
        """
        items = begun_items(reply.text, _LENIENT_SCHEMA)
        reached = max((_number(item.get("line")) for item in items), default=0)
        if not 1 < reached <= len(texts):
            return self._read_in_halves(texts, CUT, patience)
        claims = dict.fromkeys(filter(None, (_parse_claim(item, texts) for item in items)))
        earlier = {text.entry.id for text in texts[: reached - 1]}
        kept = tuple(claim for claim in claims if claim.entry in earlier)
        return ClaimBatch(kept) + self._read(texts[reached - 1 :], patience)

    def _items(self, text: str) -> ListedAnswer:
        """Return the items of an answer (raises BadAnswer: it has another form)."""
        return parse_items(text, _LENIENT_SCHEMA)

    def _read_in_halves(
        self, texts: Sequence[_PromptText], reason: str, patience: int
    ) -> ClaimBatch:
        """Read these texts in two halves; a text that cannot be halved is counted as unread."""
        if len(texts) > 1:
            middle = len(texts) // 2
            return self._read(texts[:middle], patience) + self._read(texts[middle:], patience)
        parts = texts[0].halves()
        if len(parts) == 1:
            if reason == TOO_LONG:
                self._probe()
            return _as_unread(texts, reason)
        claims = ClaimBatch()
        for part in parts:
            claims += self._read([part], patience)
        return claims

    def _probe(self) -> None:
        """Find out, once, whether the endpoint refuses certain texts or every request.

        Raises:
            EndpointRefused: it refuses every request.
        """
        if not self._served:
            self._request(fence_data(["[1] 2026-01-05 Mon 09:00 | Ann (user): Good morning!"]), 100)
            self._served = True

    def _ask(self, texts: Sequence[_PromptText], reminder: str = "") -> ChatReply:
        lines = [text.line(number) for number, text in enumerate(texts, 1)]
        size = sum(text.tokens for text in texts)
        prompt = fence_data(lines) + (f"\n\n{reminder}" if reminder else "")
        reply = self._request(prompt, min(MAX_ANSWER_TOKENS, MIN_ANSWER_TOKENS + size))
        self._served = True
        return reply

    def _request(self, user: str, max_tokens: int) -> ChatReply:
        messages = [
            {"role": "system", "content": self.prompt.text},
            {"role": "user", "content": user},
        ]
        return self.model.chat(messages, purpose=PURPOSE, max_tokens=max_tokens, schema=SCHEMA)

    def _usage_of(self, reply: ChatReply) -> ClaimBatch:
        return ClaimBatch(
            calls=1,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost=self.model.cost(reply),
        )


def _as_unread(texts: Sequence[_PromptText], reason: str) -> ClaimBatch:
    entries = tuple(dict.fromkeys(text.entry.id for text in texts))
    return ClaimBatch(rejected=Counter({reason: 1}), unread=entries)


def _parse_claim(item: Mapping[str, Any], texts: Sequence[_PromptText]) -> Claim | None:
    """Parse one item of an answer; None if a field is missing or far too long."""
    fields = {name: _clean(item[name]) for name in _LENGTHS}
    if any(not 0 < len(fields[name]) <= most for name, most in _LENGTHS.items()):
        return None
    number = _number(item.get("line"))
    return Claim(
        subject=_one_line(fields["subject"]),
        relation="_".join(fields["relation"].casefold().replace("-", " ").split()),
        value=_one_line(fields["value"]),
        text=_one_line(fields["text"]),
        quote=fields["quote"],
        entry=texts[number - 1].entry.id if 1 <= number <= len(texts) else None,
        tier="procedural" if item.get("kind") == "experience" else "semantic",
        valid_from=_day(item.get("since")),
    )


def _clean(text: str) -> str:
    """Return a text without control characters and lone surrogates, which JSON allows."""
    return "".join(c for c in text if c.isspace() or category(c) not in ("Cc", "Cs")).strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _number(line: Any) -> int:
    """Parse a line number, written as 3, "[3]" or "line 3"; 0 for none."""
    if isinstance(line, str):
        digits = line.strip("[]. \t").casefold().removeprefix("line").removeprefix("l").strip()
        return int(digits) if digits.isdecimal() and len(digits) <= _MAX_LINE_DIGITS else 0
    return line or 0


def _day(text: Any) -> datetime | None:
    """Parse a date that a model wrote; None if it is incomplete."""
    try:
        return datetime.combine(date.fromisoformat(text[:10]), time(), UTC) if text else None
    except ValueError:
        return None


# -- Ask a chat model how a new fact relates to existing ones

EVOLUTION_PURPOSE: Final = "evolution"
EVOLUTION_ANSWER_TOKENS: Final = 500  # reasoning models need more than the answer takes
EVOLUTION_SCHEMA: Final = object_of(
    "decision",
    action=choice_of("add", "update", "supersede", "ignore"),
    target={"type": ["integer", "null"]},
)
_CHECKED: Final = {**EVOLUTION_SCHEMA, "required": ["action"]}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model's choice; ``target`` is the index of the existing fact that it concerns."""

    action: Action
    target: int | None = None


class ChatEvolution:
    """Asks a chat model how a new fact relates to existing ones."""

    prompt_name: str = "evolve"
    prompt_folder: Path = PROMPT_FOLDER

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self.prompt = load_prompt(self.prompt_name, self.prompt_folder)

    def decide(self, text: str, nearest: Sequence[str]) -> ModelChoice | None:
        """Return the model's choice; None for an unusable answer, in which case the rules decide.

        Args:
            text: the text of the new fact.
            nearest: the texts of the existing ones, at least one; a target is an index into these.

        Raises:
            CapReached, EndpointError: the model was not asked, or did not answer.
        """
        existing = [f"known fact [{number}]: {fact}" for number, fact in enumerate(nearest, 1)]
        question = fence_data([*existing, f"new fact: {text}"])
        try:
            return self._choose(question, len(nearest))
        except BadAnswer:
            return None

    def _choose(self, question: str, known: int) -> ModelChoice | None:
        """Ask, and return the choice; None, or BadAnswer, for an unusable answer."""
        choice, _ = self.model.chat_json(
            self.prompt.text,
            question,
            purpose=EVOLUTION_PURPOSE,
            max_tokens=EVOLUTION_ANSWER_TOKENS,
            schema=EVOLUTION_SCHEMA,
            checked=_CHECKED,
        )
        if choice["action"] == "add":
            return ModelChoice("add")
        return choice_of_known(choice["action"], choice.get("target"), known)


def choice_of_known(action: Action, number: int | None, known: int) -> ModelChoice | None:
    """Return a choice about a known fact, by its number from 1; None for an invalid number."""
    if number is None or not 1 <= number <= known:
        return None
    return ModelChoice(action, number - 1)
