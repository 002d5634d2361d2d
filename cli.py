"""`hermes memtier` where Hermes Agent loads this folder in place: Hermes looks for it in this file.

Hermes imports this file before, or without, the `__init__.py` beside it, so it binds the one name
`memtier_plugin` in the same way.
"""

import importlib.util
import sys
from pathlib import Path

_INIT = Path(__file__).parent / "memtier_plugin" / "__init__.py"
if "memtier_plugin" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("memtier_plugin", _INIT)
    assert _spec is not None and _spec.loader is not None
    sys.modules["memtier_plugin"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["memtier_plugin"])

from memtier_plugin.hooks.hermes_commands import memtier_command, register_cli  # noqa: E402

__all__ = ["memtier_command", "register_cli"]
