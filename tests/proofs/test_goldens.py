"""A change of the code's shape changes no block and no fact."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.proofs.goldens import DIGESTS, STORES, digests, write_goldens

EXPECTED: dict[str, Any] = json.loads(DIGESTS.read_text("utf-8"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("language", STORES)
def test_blocks_and_facts_stay(language: str) -> None:
    """What is shown for 40 prompts and kept of 18 lines is what the digests were made of.

    A change on purpose renews them: `python -m tests.proofs.goldens --update`.
    """
    goldens = dict(write_goldens(language))
    own = {name: text for name, text in EXPECTED.items() if name.startswith(f"{language}/")}
    differing = {n: goldens[n] for n, text in digests(goldens).items() if own.get(n) != text}
    assert not differing and len(own) == 41
