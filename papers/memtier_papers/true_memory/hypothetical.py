"""A made-up answer to a question, whose vector finds similar lines (`ask.hypothetical`).

Hypothetical document embeddings (True Memory, section 5; Gao et al. 2023): stored lines resemble an
answer more than the question.  One call of `ask.model` per question, for `ask` and searches, never
while a prompt waits.  The made-up line is embedded, but neither stored nor shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from memtier_papers.true_memory.settings import MadeUpAnswers
from memtier_plugin.core.errors import BadAnswer, CapReached, EndpointError, SettingsError
from memtier_plugin.core.records import FOR_PROMPTS
from memtier_plugin.core.results import RecallRequest, Step
from memtier_plugin.providers.pricing import ASK_PURPOSE
from memtier_plugin.providers.prompting import (
    STRING,
    fence_data,
    load_prompt,
    object_of,
    parse_json,
)
from memtier_plugin.retrieval.candidates import Expansion
from memtier_plugin.retrieval.query import QueryVector
from memtier_plugin.retrieval.search import embed_query
from memtier_plugin.retrieval.visibility import Viewer
from memtier_plugin.storage.budget import ChatBudget
from memtier_plugin.storage.store import Actor, Store

PROMPTS: Final = Path(__file__).parent / "prompts"
_LINE: Final[Mapping[str, Any]] = object_of("hypothetical", line=STRING)
SIGNAL: Final = "hypothetical"  # the similarity to the made-up answer
_MAX_TOKENS: Final = 150
_SHARE: Final = 0.5  # of the time left; the search needs the rest
_CACHED: Final = 16  # questions, as `ask` recalls several times for one

_lines: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()


class HypothesisWriter:
    """Writes made-up answers for one agent; the project's latest are cached."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self._cached = _lines.setdefault(actor.store, {})

    def applies(self, request: RecallRequest) -> bool:
        """Return whether a recall gets one: it is configured, and no prompt waits."""
        settings, embedder = self.actor.store.settings, self.actor.store.embedder
        is_on = settings.of(MadeUpAnswers).hypothetical and settings.ask.model != "none"
        return is_on and embedder is not None and request.purpose not in FOR_PROMPTS

    def write(self, text: str, viewer: Viewer, until: float | None) -> Expansion:
        """Return the vector of a made-up answer to a question.

        Args:
            until: the recall's deadline, by ``time.monotonic()``.
        """
        started, problems, tokens = time.monotonic(), list[str](), 0
        vector: QueryVector | None = None
        try:
            line, tokens = self._line(self.actor.redactor.redact(text).text, viewer, until)
            vector = embed_query(self.actor, line, viewer, until, problems) if line else None
        except (BadAnswer, CapReached, EndpointError, SettingsError) as error:
            problems.append(f"no hypothetical answer: {error}")
        ms = (time.monotonic() - started) * 1000
        step = Step(name=SIGNAL, ms=ms, tokens=tokens)
        return Expansion(SIGNAL, vector, step, (*problems,))

    def _line(self, text: str, viewer: Viewer, until: float | None) -> tuple[str, int]:
        if text in self._cached:
            return self._cached[text], 0
        budget = ChatBudget(self.actor.store, self.actor.agent, self.actor.clock)
        chat = budget.chat_model(self.actor.store.settings.ask.model, key="ask.model")
        assert chat is not None  # checked by `applies`
        seconds = None if until is None else _SHARE * (until - time.monotonic())
        if seconds is not None and seconds <= 0:
            raise EndpointError("no time was left")
        user = f"Asked on: {viewer.at:%Y-%m-%d}\n\n{fence_data([text])}"
        messages = [
            {"role": "system", "content": load_prompt("hypothetical", PROMPTS).text},
            {"role": "user", "content": user},
        ]
        reply = chat.chat(
            messages,
            purpose=ASK_PURPOSE,
            max_tokens=_MAX_TOKENS,
            schema=_LINE,
            attempts=1,
            seconds=seconds,
        )
        line = str(parse_json(reply.text, _LINE)["line"]).strip()
        self._cached[text] = line
        for oldest in [*self._cached][:-_CACHED]:
            self._cached.pop(oldest, None)
        return line, reply.prompt_tokens + reply.completion_tokens
