"""Have a model do what probes ask, and tell by its words whether it kept the user's rule.

The model gets MemTier's block, one by BM25 of the same size, nothing, or the rule's own line
(``rule``), which is the most that it can make of a memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from memtier_bench.intervals import named_mean
from memtier_bench.metrics import mean
from memtier_bench.progress import Progress
from memtier_bench.reading import ReaderModel
from memtier_bench.work.play import AskedProbe, ShownLine
from memtier_bench.work.projects import WorkProbe
from memtier_plugin.retrieval.block import format_line, frame_lines
from memtier_plugin.trust.escaping import FENCE

INSTRUCTION: Final = (
    "You are the user's assistant. You do what the user asks: you write the command, the code or "
    "the text itself, briefly and without an explanation. Notes of earlier sessions may stand "
    "above the request: keep to the user's wishes in them."
)
ANSWER_TOKENS: Final = 80


def measure_obedience(
    asked: Sequence[AskedProbe],
    blocks: Mapping[str, Sequence[Sequence[ShownLine]]],
    reader: ReaderModel,
    seed: int,
    tell: Progress,
) -> dict[str, Any]:
    """Return the share of answers that keep the user's rule, and what they cost, by arm.

    Args:
        asked: all probes; those are put to the model whose obedience can be judged.
        blocks: the lines that each probe gets, by arm.
        seed: of the resampled projects.

    Raises:
        EndpointError: the model does not answer.
    """
    judged = [n for n, each in enumerate(asked) if each.probe.keeps or each.probe.breaks]
    lines = {arm: [[s.line for s in of[n]] for n in judged] for arm, of in blocks.items()}
    lines["rule"] = [_rule_lines(asked[n]) for n in judged]
    arms: dict[str, Any] = {}
    answers: list[dict[str, Any]] = [{"id": asked[n].id} for n in judged]
    for number, (arm, of_arm) in enumerate(lines.items()):
        kept: list[bool] = []
        tokens: list[int] = []
        for nth, (position, shown) in enumerate(zip(judged, of_arm, strict=True)):
            tell(f"obey {arm}", number * len(judged) + nth, len(lines) * len(judged))
            probe = asked[position].probe
            block = frame_lines("bench", shown) if shown else ""
            today = f"Today is {probe.day:%A, %d %B %Y}."
            request = f"{today}\nThe user's request: {probe.prompt}\nWhat you write or run for it:"
            reply = reader.reply(request, block)
            kept.append(keeps_rule(probe, reply["answer"]))
            tokens.append(reply["prompt_tokens"])
            answers[nth][arm] = {"answer": reply["answer"], "kept": kept[-1]}
        projects = [asked[n].id.rpartition("/")[0] for n in judged]
        share = named_mean([*zip(projects, map(float, kept), strict=True)], seed)
        arms[arm] = {"kept": share, "prompt_tokens": round(mean(tokens), 1)}
    return {"reader": reader.describe(), "probes": len(judged), "arms": arms, "answers": answers}


def keeps_rule(probe: WorkProbe, answer: str) -> bool:
    """Return whether an answer has everything in ``keeps`` and nothing in ``breaks``.

    An answer that repeats its block keeps nothing.
    """
    text = answer.casefold()
    if FENCE in text:
        return False
    kept = all(any(w in text for w in each.casefold().split("|")) for each in probe.keeps)
    return kept and not any(each.casefold() in text for each in probe.breaks)


def _rule_lines(asked: AskedProbe) -> list[str]:
    """Return the lines of the log that have what a probe needs, as a block shows them."""
    words = [need.casefold().split("|") for need in asked.probe.needs]
    return [
        format_line(hit, hit.text)
        for hit in asked.ranked
        if any(any(w in hit.text.casefold() for w in need) for need in words)
    ][: len(words)]
