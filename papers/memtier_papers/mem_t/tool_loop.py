"""Multi-turn retrieval: a model searches step by step, and answers from the lines shown.

Mem-T, section 3.1 (phase II), with one difference: a search without results says so, since a model
at temperature 0 that gets no reply repeats itself until the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from memtier_papers.mem_t.tool_calls import TOOLS, FinishCall, parse_call
from memtier_plugin.answering.llm import AnswerFinding, AnsweringModel, ModelAnswer
from memtier_plugin.answering.store_search import MAX_STEPS, BadCall, StoreSearch
from memtier_plugin.providers.prompting import fence_data

_MAX_CALL_TOKENS: Final = 400


class Policy(Protocol):
    """Chooses the next call: a model, or a scripted sequence for measurements."""

    def next_call(self, question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
        """Return one call.

        Args:
            transcript: the earlier calls and their results.
            left: how many steps are left, including this one.
        """

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Return an answer from findings; None if there is none."""


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """Lets a model choose the next call, and answer."""

    model: AnsweringModel

    def next_call(self, question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
        """Return the model's next call of a tool, as text."""
        request = call_request(question, at, transcript, left)
        return self.model.complete("retrieve", request, _MAX_CALL_TOKENS, tools=TOOLS)

    def answer(
        self, question: str, at: datetime, findings: Sequence[AnswerFinding]
    ) -> ModelAnswer | None:
        """Return the model's answer from findings."""
        return self.model.answer(question, at, findings)


def call_request(question: str, at: datetime, transcript: Sequence[str], left: int) -> str:
    """Return the request to a model for its next call of a tool; the prompt is ``retrieve``."""
    return (
        f"Question: {question}\nAsked on: {at:%Y-%m-%d}\nSteps left: {left}\n\n"
        f"{fence_data([*transcript] or ['nothing was searched yet'])}"
    )


def retrieve(
    policy: Policy, search: StoreSearch, question: str, at: datetime, steps: int = MAX_STEPS
) -> ModelAnswer | None:
    """Return the answer of a policy that searches in at most ``steps`` steps.

    An invalid call uses up its step.  If an answer cites no line shown, or the steps run out, one
    more call answers from all lines shown.

    Returns:
        None if nothing was found, or no answer was given.
    """
    transcript: list[str] = []
    for step in range(steps):
        reply = policy.next_call(question, at, transcript, steps - step)
        call = parse_call(reply)
        if isinstance(call, FinishCall):
            if answer := _finished(call, search.findings):
                return answer
            break
        if isinstance(call, BadCall):
            transcript.append(f"step {step + 1}: error: {call.error}")
            continue
        transcript.append(f"step {step + 1}: {call.name}({call.query})")
        transcript += search.run(call)
    return policy.answer(question, at, search.findings) if search.findings else None


def _finished(call: FinishCall, findings: Sequence[AnswerFinding]) -> ModelAnswer | None:
    """Return the answer in a call, if it cites a line that was shown."""
    cites = tuple(findings[n - 1] for n in call.cites if 1 <= n <= len(findings))
    invented = len(call.cites) - len(cites)
    return ModelAnswer(True, call.answer, cites, invented) if cites else None
