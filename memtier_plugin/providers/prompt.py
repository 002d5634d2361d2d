"""Load the prompts for chat models: files in `prompts/`, each identified by its text's hash."""

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
    """The text of a prompt, and its hash, which is stored with the prompt's results."""

    name: str
    text: str
    hash: str


@cache
def load_prompt(name: str, folder: Path = PROMPT_FOLDER) -> Prompt:
    """Return the prompt of a name in a folder."""
    text = (folder / f"{name}.md").read_text("utf-8").strip()
    return Prompt(name, text, _digest(text))


def fence_data(lines: Sequence[str]) -> str:
    """Fence data for a model with marks that the data cannot imitate, as they hold its hash.

    Continuations of a line are indented, so that no line can pass for two.
    """
    data = "\n".join("\n    ".join(line.splitlines()) for line in lines)
    mark = _digest(data)
    return f"<<<data {mark}\n{data}\n<<<end {mark}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
