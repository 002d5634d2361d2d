"""Parse JSON that somebody else wrote, or may have changed; standard library only."""

from __future__ import annotations

import json
from typing import Any


def parse_json_text(text: str | bytes) -> Any:
    """Parse a JSON document as `json.loads` does.

    Raises:
        ValueError: it is none, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
