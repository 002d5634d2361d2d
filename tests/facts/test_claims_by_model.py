"""What a scripted model claims over HTTP: what is right holds, what is wrong never does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memtier_plugin.core.records import Entry, FactDraft
from memtier_plugin.core.settings.schema import Endpoint
from memtier_plugin.facts.extraction.llm import ChatExtractor
from memtier_plugin.facts.verification.verify import Claim, Provenance, verify_claim
from memtier_plugin.providers.chat import ChatModel
from tests.facts import claims, claims_fresh, claims_held_out
from tests.loopback import Loopback

MADE_BY = Provenance("scripted", "scripted", "0")
Shares = Mapping[str, Mapping[str, int]]


def statuses(
    server: Loopback,
    corpus: claims.Corpus,
    look_again: Callable[[FactDraft, Claim, Sequence[Entry]], FactDraft] | None = None,
) -> Shares:
    """Return, by kind, how many claims of a corpus that a model sends are held in which status."""
    local = Endpoint(base_url=server.base_url)
    chat = ChatExtractor(ChatModel.of_endpoint("local", local, "scripted"), 100_000)
    by_session: dict[str, list[claims.Case]] = defaultdict(list)
    for case in corpus.cases:
        by_session[case.session].append(case)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for session, cases in by_session.items():
        server.answers({"facts": [_item(case) for case in cases]})
        answered = chat.extract_claims(corpus.sessions[session]).claims
        assert len(answered) == len(cases)
        for case, claim in zip(cases, answered, strict=True):
            draft = verify_claim(claim, corpus.sessions[session], MADE_BY)
            if isinstance(draft, FactDraft) and look_again:
                draft = look_again(draft, claim, corpus.sessions[session])
            status = draft.status if isinstance(draft, FactDraft) else "rejected"
            counts[case.kind][status] += 1
    return counts


def _item(case: claims.Case) -> dict[str, Any]:
    claim = case.claim
    return {
        "kind": "fact",
        "line": None,
        "subject": claim.subject,
        "relation": claim.relation,
        "value": claim.value,
        "text": claim.text,
        "quote": claim.quote,
        "confidence": claim.confidence,
        "valid_from": None,
    }


def share(counts: Shares) -> float:
    """Return the share of claims that are held active."""
    total = sum(sum(kind.values()) for kind in counts.values())
    return sum(kind["active"] for kind in counts.values()) / total


def held(counts: Shares) -> dict[str, int]:
    """Return, by kind, how many are held active."""
    return {kind: count["active"] for kind, count in counts.items() if count["active"]}


RIGHT: Sequence[claims.Template] = (
    *claims.RIGHT,
    *claims_held_out.RIGHT,
    *claims_held_out.LATER_RIGHT,
)


def test_right_claims_hold(server: Loopback) -> None:
    """Of 400 right claims, put as they were said, at least 90 % are active at once."""
    assert share(statuses(server, claims.corpus(11, 400, 0, (RIGHT, ())))) >= 0.9


def test_wrong_claims_of_fresh_kinds_never_hold(server: Loopback) -> None:
    """Of 200 wrong claims in kinds that the rules were not written for, none is active."""
    counts = statuses(server, claims.corpus(12, 0, 200, ((), claims_fresh.WRONG)))
    assert len(counts) >= 25 and held(counts) == {}


def test_a_paraphrase_holds_or_waits(server: Loopback) -> None:
    """A right claim in other words is never lost: what the rules cannot prove waits for review."""
    counts = statuses(server, claims.corpus(13, 200, 0, (claims_fresh.PARAPHRASED, ())))
    assert sum(kind["rejected"] for kind in counts.values()) == 0
    assert share(counts) >= 0.25
