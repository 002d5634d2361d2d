"""Share a run's reward among lines by the words that they share with its answer (MemTier, eq. 1).

With the profile `paper`, and by `attribution.proxy`, this takes the place of the credit by call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from memtier_papers.memtier.events import OutcomeEvent
from memtier_papers.memtier.settings import ModelAttribution, PublishedProfile, credits_runs
from memtier_plugin.core.records import Message
from memtier_plugin.credit.assignment import ItemCredit, RunCredit, RunShares, unless_stated
from memtier_plugin.storage.readers import Reader
from memtier_plugin.text.tokenizer import plain_words

Proxy = Literal["jaccard", "overlap"]


def credit_run(
    run: RunShares, reader: Reader, messages: Sequence[Message], reward: float, confidence: float
) -> RunCredit:
    """Return what the items of a run earn by its reward, and its outcome if a job will need it.

    Raises:
        IndexProblem: the index cannot be used.
    """
    credit = RunCredit()
    if credits_runs(run.actor.store.settings):
        credit = share_by_words(run, reader, messages, reward, confidence)
    return credit._replace(events=_outcome(run, reader, reward, confidence))


def share_by_words(
    run: RunShares, reader: Reader, messages: Sequence[Message], reward: float, confidence: float
) -> RunCredit:
    """Return what each item earns of a run's reward, by the words it shares with the answer."""
    texts = run.texts(reader)
    proxy = run.actor.store.settings.of(ModelAttribution).proxy
    values = share_reward(
        [texts.get(item, "") for item in run.items],
        answer_words(messages),
        "overlap" if proxy == "overlap" else "jaccard",  # until the job of another has run
    )
    shares = {item: share for item, share in zip(run.items, values, strict=True) if share}
    for item in shares:
        del run.uncredited[item]
    return share_out(run, shares, reward, confidence)


def share_out(
    run: RunShares, shares: Mapping[str, float], reward: float, confidence: float
) -> RunCredit:
    """Return what each item earns of a run's reward, by its share (MemTier, eq. 1)."""
    earned = {
        item: ItemCredit(reward * confidence * share, reward, share, confidence)
        for item, share in shares.items()
    }
    profile = run.actor.store.settings.of(PublishedProfile).profile
    return RunCredit(earned, limited=profile != "paper")  # eq. 1 sets no limit


def _outcome(
    run: RunShares, reader: Reader, reward: float, confidence: float
) -> list[OutcomeEvent]:
    """Return the outcome to journal, if a job will need it and it differs from the last one."""
    withheld = any(recall.withheld for recall in run.recalls.values())
    scored = run.actor.store.settings.of(ModelAttribution).proxy == "logprob"
    if not withheld and not (scored and reward and run.items):
        return []
    stated = unless_stated(confidence)
    events = reader.events(agent=run.agent, run=run.run, kinds=[OutcomeEvent.KIND])
    last = max(map(OutcomeEvent.of, events), key=lambda each: each.attempt, default=None)
    if last and (last.reward, last.confidence) == (reward, stated):
        return []
    attempt = last.attempt + 1 if last else 1
    recalls = tuple(run.recalls)
    return [OutcomeEvent(attempt=attempt, reward=reward, confidence=stated, recalls=recalls)]


def answer_words(messages: Sequence[Message]) -> set[str]:
    """Return the words that the agent produced: its last text and its tool-call arguments.

    Tool results and the injected block are excluded, or each injected line would credit itself.
    """
    texts = [m.content for m in messages if m.role == "assistant" and m.content.strip()][-1:]
    texts += [call.arguments for message in messages for call in message.tool_calls]
    return {word for text in texts for word in plain_words(text)}


def share_reward(
    texts: Iterable[str], answer: Collection[str], proxy: Proxy = "jaccard"
) -> list[float]:
    """Return a_hat of the memories of these texts, by the words they share with the answer."""
    return normalise_shares([affinity(plain_words(text), answer, proxy) for text in texts])


def affinity(memory: Collection[str], answer: Collection[str], proxy: Proxy = "jaccard") -> float:
    """Return a_i: shared words over the union (jaccard) or over the memory's words (overlap)."""
    memory_words, answer_side = set(memory), set(answer)
    union = memory_words | answer_side if proxy == "jaccard" else memory_words
    return len(memory_words & answer_side) / len(union) if union else 0.0


def normalise_shares(affinities: Sequence[float]) -> list[float]:
    """Return a_hat: each affinity divided by their sum; all 0 if the sum is 0."""
    total = sum(affinities)
    return [value / total if total else 0.0 for value in affinities]
