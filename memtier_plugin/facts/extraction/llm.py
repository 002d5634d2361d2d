"""Claims from entries by a chat model: what it is asked, and what of its answer is kept.

A claim is only that: `provenance` holds it against the entries before anything comes of it.  An
answer is read for claims and for nothing else, whatever it says.  Source: seeds 1.6, 2.1; issue 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from string import Template
from typing import Any, Final
from unicodedata import category

from memtier_plugin.core.errors import BadAnswer, ContextTooLong, EndpointRefused
from memtier_plugin.core.records import Entry, count_tokens
from memtier_plugin.facts.verification.verify import Claim
from memtier_plugin.providers.chat import ChatModel
from memtier_plugin.providers.endpoint import ChatReply
from memtier_plugin.providers.prompt import fence_data, load_prompt
from memtier_plugin.providers.structured_output import parse_items, strip_reasoning
from memtier_plugin.text.passages import chunk_text

PURPOSE: Final = "extraction"
MIN_ANSWER_TOKENS: Final = 1000  # tokens that an answer may have, at least; more for more lines
MAX_ANSWER_TOKENS: Final = 4000
MIN_TEXT_TOKENS: Final = 100  # tokens of a text that is not cut any further

BAD_ITEM: Final = "claim of another shape"
TOO_LONG: Final = "more than the model reads"
CUT: Final = "more than the model answers"
THOUGHT: Final = "thought up to the limit of an answer"
REFUSED: Final = "refused by the endpoint"

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LENGTHS: Final = {"subject": 120, "relation": 60, "value": 500, "text": 600, "quote": 1000}
_ITEM: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["kind", "subject", "relation", "value", "text", "quote", "line", "since"],
    "properties": {
        "kind": {"type": "string", "enum": ["fact", "experience"]},
        "subject": {"type": "string"},
        "relation": {"type": "string"},
        "value": {"type": "string"},
        "text": {"type": "string"},
        "quote": {"type": "string"},
        "line": {"type": "integer"},
        "since": {"type": ["string", "null"]},
    },
}
SCHEMA: Final[Mapping[str, Any]] = {
    "title": "facts",
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {"facts": {"type": "array", "items": _ITEM}},
}
# Small models leave out what they have nothing to say for, and may name a line in words.
_NEEDED: Final = {
    **_ITEM,
    "required": ["subject", "relation", "value", "text", "quote"],
    "properties": {
        **_ITEM["properties"],
        "line": {"type": ["integer", "string", "null"]},
    },
}
_CHECKED: Final = {**SCHEMA, "properties": {"facts": {"type": "array", "items": _NEEDED}}}


@dataclass(frozen=True, slots=True)
class ClaimBatch:
    """What a model claims of some entries, and what it took.

    ``rejected`` counts, by reason, items of answers and answers; ``unread`` are the entries of
    which some text was answered by nothing that can be used.
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
            self.unread + tuple(one for one in other.unread if one not in self.unread),
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True)
class _PromptText:
    """An entry, or a part of a long one, as a line of a request."""

    entry: Entry
    content: str
    continued: bool = False

    @property
    def tokens(self) -> int:
        return count_tokens(self.content) + 12  # the number, the date, the name

    def halves(self) -> tuple[_PromptText, ...]:
        """Return this text in two or more parts; itself where it is small."""
        return self.parts(self.tokens // 2) if self.tokens > MIN_TEXT_TOKENS else (self,)

    def parts(self, tokens: int) -> tuple[_PromptText, ...]:
        """Return this text in runs of whole sentences of about so many tokens."""
        size = max(1, tokens * len(self.content) // count_tokens(self.content or " "))
        texts = chunk_text(self.content, size, len(self.content))
        return tuple(
            replace(self, content=text, continued=self.continued or number > 0)
            for number, text in enumerate(texts)
        )

    def line(self, number: int) -> str:
        """Return the line that the model is shown."""
        entry, at = self.entry, self.entry.observed_at
        role: str = entry.role
        who = entry.speaker or ("a tool" if role == "tool" else f"the {role}")
        if entry.tool:
            went = {True: "ok", False: "failed", None: ""}[entry.tool.ok]
            code = f"exit {entry.tool.exit_code}" if entry.tool.exit_code is not None else ""
            who, role = entry.tool.name, ", ".join(filter(None, ("tool", went, code)))
        role += ", continued" if self.continued else ""
        moment = f"{at:%Y-%m-%d} {_DAYS[at.weekday()]} {at:%H:%M}"
        return f"[{number}] {moment} | {' '.join(who.split())} ({role}): {self.content.strip()}"


class ChatExtractor:
    """Reads entries with a chat model; one of these serves one pass."""

    name: Final = "chat"

    def __init__(self, model: ChatModel, batch_tokens: int = 4000) -> None:
        self.model = model
        self.prompt = load_prompt("extract")
        self.batch_tokens = batch_tokens
        self._fits = batch_tokens  # less once the model turned out to read less
        self._served = False

    def batches(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
        """Yield the entries as they are asked for together: of one session, in their order.

        Each batch goes into one request, unless the model cannot take it: whoever keeps what one
        gave before asking for the next loses little when the next one fails.
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
        """Return what the model claims of these entries.

        Raises:
            CapReached: no more may be spent today.
            EndpointError: the endpoint gives no answers; nothing is said of the entries.
        """
        found = ClaimBatch()
        for batch in self.batches(entry for entry in entries if entry.retrievable):
            for texts in self._requests(batch):
                found += self._read(texts)
        return found

    def _requests(self, batch: Sequence[Entry]) -> Iterator[list[_PromptText]]:
        """Yield what each request holds: one batch, but for what is longer than the room."""
        texts: list[_PromptText] = []
        for entry in batch:
            whole = _PromptText(entry, entry.content)
            parts = (whole,) if whole.tokens <= self._fits else whole.parts(self._fits - 12)
            for part in parts:
                if texts and sum(text.tokens for text in texts) + part.tokens > self._fits:
                    yield texts
                    texts = []
                texts.append(part)
        if texts:
            yield texts

    def _read(self, texts: Sequence[_PromptText], patience: int = 2) -> ClaimBatch:
        """Ask for the claims of these texts; in parts where that is too much for the model.

        Args:
            patience: how often less is tried where a model has thought up to its limit.
        """
        try:
            reply = self._ask(texts)
        except ContextTooLong:
            self._fits = max(
                MIN_TEXT_TOKENS, min(self._fits, sum(text.tokens for text in texts) // 2)
            )
            return self._read_in_halves(texts, TOO_LONG, patience)
        except EndpointRefused:
            self._probe()
            return self._read_in_halves(texts, REFUSED, patience)
        try:
            return self._usage_of(reply) + self._parse_claims(reply, texts, patience)
        except BadAnswer as error:
            reason = error.reason
        try:
            reminder = Template(load_prompt("extract_again").text).substitute(reason=reason)
            again = self._ask(texts, reminder)
        except EndpointRefused:
            return self._usage_of(reply) + _as_unread(texts, reason)
        both = self._usage_of(reply) + self._usage_of(again)
        try:
            return both + self._parse_claims(again, texts, patience)
        except BadAnswer as error:
            return both + _as_unread(texts, error.reason)

    def _parse_claims(
        self, reply: ChatReply, texts: Sequence[_PromptText], patience: int
    ) -> ClaimBatch:
        """Return what an answer claims; one that was cut off is asked for in parts.

        Raises:
            BadAnswer: it is whole, and claims nothing that can be read.
        """
        if reply.truncated:
            if strip_reasoning(reply.text):
                return self._read_in_halves(texts, CUT, patience)
            return (
                self._read_in_halves(texts, THOUGHT, patience - 1)
                if patience
                else _as_unread(texts, THOUGHT)
            )
        answer = parse_items(reply.text, _CHECKED)
        claims = [_parse_claim(item, texts) for item in answer.items]
        good = tuple(claim for claim in claims if claim)
        bad = answer.rejected + len(claims) - len(good)
        return ClaimBatch(good, Counter({BAD_ITEM: bad} if bad else ()))

    def _read_in_halves(
        self, texts: Sequence[_PromptText], reason: str, patience: int
    ) -> ClaimBatch:
        """Read these texts in two halves; a text that cannot be halved is left, and counted."""
        if len(texts) > 1:
            middle = len(texts) // 2
            return self._read(texts[:middle], patience) + self._read(texts[middle:], patience)
        parts = texts[0].halves()
        if len(parts) == 1:
            if reason == TOO_LONG:
                self._probe()
            return _as_unread(texts, reason)
        found = ClaimBatch()
        for part in parts:
            found += self._read([part], patience)
        return found

    def _probe(self) -> None:
        """Find out, once, whether it is a text that is refused or everything.

        Raises:
            EndpointRefused: it is everything.
        """
        if not self._served:
            self._request(fence_data(["[1] 2026-01-05 Mon 09:00 | Ann (user): Good morning!"]), 100)
            self._served = True

    def _ask(self, texts: Sequence[_PromptText], reminder: str = "") -> ChatReply:
        lines = [text.line(number) for number, text in enumerate(texts, 1)]
        size = sum(text.tokens for text in texts)
        asked = fence_data(lines) + (f"\n\n{reminder}" if reminder else "")
        reply = self._request(asked, min(MAX_ANSWER_TOKENS, MIN_ANSWER_TOKENS + size))
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
    """Return what an item claims; None where a part of it is missing, or far too long."""
    said = {name: _clean(item[name]) for name in _LENGTHS}
    if any(not 0 < len(said[name]) <= most for name, most in _LENGTHS.items()):
        return None
    number = _number(item.get("line"))
    return Claim(
        subject=_one_line(said["subject"]),
        relation="_".join(said["relation"].casefold().replace("-", " ").split()),
        value=_one_line(said["value"]),
        text=_one_line(said["text"]),
        quote=said["quote"],
        entry=texts[number - 1].entry.id if 1 <= number <= len(texts) else None,
        tier="procedural" if item.get("kind") == "experience" else "semantic",
        valid_from=_day(item.get("since")),
    )


def _clean(text: str) -> str:
    """Return a text without control characters and the halves of characters that JSON allows."""
    kept = "".join(c for c in text if c.isspace() or category(c) not in ("Cc", "Cs"))
    return kept.strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _number(line: Any) -> int:
    """Return the number of a line, also of "[3]" and "line 3"; 0 for none."""
    if isinstance(line, str):
        digits = line.strip("[]. \t").casefold().removeprefix("line").removeprefix("l").strip()
        return int(digits) if digits.isdecimal() and len(digits) < 8 else 0
    return line or 0


def _day(text: Any) -> datetime | None:
    """Return a date that a model wrote; what is less than a whole date is none."""
    try:
        return datetime.combine(date.fromisoformat(text[:10]), time(), UTC) if text else None
    except ValueError:
        return None
