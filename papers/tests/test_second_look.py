"""A model's second look at claims that wait for their wording alone, and what it cannot lift."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memtier_papers.mem_t.second_look import PROMPTS, SecondLook, is_liftable, lift
from memtier_plugin.core.records import Entry, Fact, FactDraft
from memtier_plugin.facts.verification.verify import Claim
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.prompting import load_prompt
from tests.builders import say, write_config
from tests.facts import claims, claims_fresh
from tests.facts.test_claims_by_model import share, statuses
from tests.loopback import Loopback

SAID = "I'm a vegetarian since last year."
PARAPHRASED = "The user eats no meat."
Check = dict[str, Any]
Extract = Callable[..., list[Fact]]


@pytest.fixture
def extract(home: Path, server: Loopback) -> Iterator[Extract]:
    """Return a function that has the model claim something of a line, and look at it again."""

    def run(
        check: Check | str, line: str = SAID, text: str = PARAPHRASED, **more: Any
    ) -> list[Fact]:
        value = text.removeprefix("The user ").rstrip(".")
        item = {"kind": "fact", "subject": "user", "relation": "states", "value": value}
        item |= {"text": text, "quote": line, "line": 1, "since": None}

        def answer(body: dict[str, Any]) -> Any:
            if body["messages"][0]["content"] != load_prompt("entail", PROMPTS).text:
                return {"facts": [item]}
            return check if isinstance(check, str) else {"checks": [{"claim": 1} | check]}

        server.answers(answer)
        settings = {"model": "endpoint:local/m", "second_look": True, "probes": 0} | more
        endpoints = {"local": {"base_url": server.base_url}}
        write_config(home, {"consolidation": settings, "endpoints": endpoints})
        with MemTier.open(home, "p", "a") as memory:
            say(memory, line)
            memory.consolidate(extractor="model")
            return memory.facts(include_superseded=True)

    yield run


def follows(quote: str = SAID, confidence: float = 0.95) -> Check:
    """Return a check by which the claim follows."""
    return {"verdict": "follows", "quote": quote, "confidence": confidence}


def test_what_follows_holds(extract: Extract, server: Loopback) -> None:
    """The fact has the quote and the confidence of the second look, and names its prompt."""
    [fact] = extract(follows("I'm a vegetarian"))
    assert (fact.status, fact.reason, fact.quote) == ("active", "", "I'm a vegetarian")
    assert (fact.confidence, fact.prompt_hash) == (0.95, load_prompt("entail", PROMPTS).hash)
    shown = server.requests[-1]["body"]["messages"][-1]["content"]
    assert PARAPHRASED in shown and SAID in shown


@pytest.mark.parametrize(
    "check",
    [
        {"verdict": "unsure", "quote": "", "confidence": 0.99},
        {"verdict": "differs", "quote": "", "confidence": 0.99},
        follows(quote="I never eat any meat."),
        follows(quote=""),
        follows(confidence=0.6),
        follows(confidence=7.0),
        follows() | {"claim": 2},
        "That follows.",
    ],
    ids=["unsure", "differs", "invented", "empty", "guessed", "beyond", "another", "no JSON"],
)
def test_what_does_not_follow_waits(extract: Extract, check: Check | str) -> None:
    """A doubt, a quote that nobody line, or an answer that is none: a person decides."""
    [fact] = extract(check)
    assert fact.status == "proposed"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Hugo promised to move to Kyoto.", "Hugo moved to Kyoto."),
        ("I used to like tea, I think.", "The user likes tea."),
        ("I run 5 km a day.", "The user runs 6 km a day."),
        ("I don't like tea.", "The user likes tea."),
    ],
)
def test_what_code_sees_is_not_argued_with(extract: Extract, line: str, text: str) -> None:
    """What leaves something out, is doubted or contradicts its source is lifted by no model."""
    assert all(fact.status == "proposed" for fact in extract(follows(line), line, text))


def test_a_mode_that_asks_the_user_still_asks(home: Path, extract: Extract) -> None:
    """Where nothing extracted becomes a fact by itself, a second look changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMTIER_FACTS__MODE", "review")
        [fact] = extract(follows())
    assert fact.status == "proposed"


def test_it_is_asked_for(extract: Extract, server: Loopback) -> None:
    """Without the setting there is no second request, and the claim waits."""
    [fact] = extract(follows(), second_look=False)
    assert (fact.status, server.count()) == ("proposed", 1)
    assert json.dumps(server.requests).count("You check whether") == 0


def affirmed(draft: FactDraft, claim: Claim, entries: Sequence[Entry]) -> FactDraft:
    """Return a draft after a look that affirms every claim, right or wrong, on its own quote."""
    look = SecondLook(claim.quote, 0.95)
    return lift(draft, entries, look, "1") if is_liftable(draft) else draft


def test_a_second_look_lifts_paraphrases(server: Loopback) -> None:
    """Two of three paraphrases hold then; a model that affirms all lifts few wrong ones."""
    corpus = claims.corpus(13, 200, 0, (claims_fresh.PARAPHRASED, ()))
    assert share(statuses(server, corpus, affirmed)) >= 0.65
    corpus = claims.corpus(12, 0, 200, ((), claims_fresh.WRONG))
    assert share(statuses(server, corpus, affirmed)) <= 0.1
