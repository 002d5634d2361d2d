"""The fence around injected memory: mark it, recognise it, strip it."""

from __future__ import annotations

from typing import Final

import regex

FENCE: Final = "memtier-memory"


# Our own block in a message that comes back to us; a recalled line cannot end it early.
_BLOCK: Final = regex.compile(
    rf"<{FENCE} recall=\"[0-9A-Za-z]+\">\n.*?\n</{FENCE}>\n?", regex.DOTALL
)


def remove_blocks(text: str) -> str:
    """Return a message without the block that we put into it."""
    return str(_BLOCK.sub("", text))


def add_first_line(block: str, line: str) -> str:
    """Return a block with one more line at its beginning."""
    head, separator, body = block.partition("\n")
    return f"{head}\n{line}\n{body}" if separator and head.startswith(f"<{FENCE}") else block


def add_line(block: str, line: str) -> str:
    """Return a block with one more line at its end."""
    body, end, after = block.rpartition(f"</{FENCE}>")
    return f"{body}{line}\n{end}{after}" if end else block
