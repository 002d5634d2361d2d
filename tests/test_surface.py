"""What a user could call or set at 91fc2ae is there today."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_nothing_is_gone() -> None:
    """Every command, option, setting and JSON-RPC method of 91fc2ae is one of today's."""
    former = json.loads((ROOT / "tests" / "golden" / "surface_of_91fc2ae.json").read_text("utf-8"))
    now = runpy.run_path(str(ROOT / "scripts" / "list_surface.py"))["list_surface"]()
    for kind, items in former.items():
        assert items.keys() <= now[kind].keys(), kind
        for name, item in items.items():
            former_flags = {flag for flag in item.get("options", ()) if flag.startswith("-")}
            assert former_flags <= {*now[kind][name].get("options", ())}, name
