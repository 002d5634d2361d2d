"""The prompts for chat models: files in `prompts/`, each known by the hash of its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

PROMPT_FOLDER: Final = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text, and the hash that is stored with what it led to."""

    name: str
    text: str
    hash: str


@cache
def load_prompt(name: str) -> Prompt:
    """Return the prompt of a name."""
    text = (PROMPT_FOLDER / f"{name}.md").read_text("utf-8").strip()
    return Prompt(name, text, _digest(text))


def fence_data(lines: Sequence[str]) -> str:
    """Return data for a model between marks that nothing in it can imitate: they hold its hash.

    A line break within a line is indented, so that no line can pretend to be two.
    """
    whole = "\n".join("\n    ".join(line.splitlines()) for line in lines)
    mark = _digest(whole)
    return f"<<<data {mark}\n{whole}\n<<<end {mark}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
