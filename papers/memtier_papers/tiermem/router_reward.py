"""The reward for routing a question, given what each route would have achieved.  Pure.

The rewards are those of TierMem (appendix B.7, eq. 1), with the coefficients that Table 11 prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from memtier_plugin.core.errors import BadAnswer
from memtier_plugin.providers.prompting import choice_of, object_of, parse_json

CORRECT: Final = 1.0
WRONG: Final = -1.5
COST_R: Final = 0.1  # of reading the log
WASTE_R: Final = 0.4  # of reading it although the facts suffice, whether or not the log is right
FORMAT: Final = -1.0  # of a reply that is not a decision
_DECISION: Final = object_of(action=choice_of("S", "R"))


def route_reward(action: str, s_right: bool, r_right: bool) -> float:
    """Return the reward of answering from the facts (S) or the log (R); of anything else `FORMAT`.

    Args:
        s_right, r_right: whether the facts alone, and the log, would have been right.
    """
    if action == "S":
        return CORRECT if s_right else WRONG
    if action == "R":
        return (CORRECT if r_right else WRONG) - COST_R - (WASTE_R if s_right else 0.0)
    return FORMAT


def route_label(s_right: bool, r_right: bool) -> Literal["S", "R"] | None:
    """Return the right decision; None if neither route is right (TierMem, appendix B)."""
    if s_right:
        return "S"
    return "R" if r_right else None


def repair_and_regress(counts: Mapping[str, int]) -> tuple[float, float]:
    """Return how much escalation repairs, and how much it spoils (TierMem, eq. 2 and 3).

    Args:
        counts: of the escalated questions, by "SR", "Sr", "sR" and "sr": a capital means that the
            facts (S), or the log (R), are right.
    """
    wrong, right = counts["sR"] + counts["sr"], counts["Sr"] + counts["SR"]
    return counts["sR"] / wrong if wrong else 0.0, counts["Sr"] / right if right else 0.0


def reward_completions(
    completions: Sequence[Any], s_right: Sequence[bool], r_right: Sequence[bool], **_: Any
) -> list[float]:
    """Return the reward of each of a model's completions, in the form of trl's `GRPOTrainer`.

    Args:
        completions: texts, or lists of messages whose last is the reply.
        s_right, r_right: the columns of `grpo.jsonl`.
    """
    return [
        route_reward(_read_action(completion), s, r)
        for completion, s, r in zip(completions, s_right, r_right, strict=True)
    ]


def _read_action(completion: Any) -> str:
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    try:
        return str(parse_json(text, _DECISION)["action"])
    except BadAnswer:
        return ""
