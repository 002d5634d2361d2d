"""Entry point for hosts that load this folder in place, as Hermes Agent does (MemoryProvider).

Hermes looks for the word register_memory_provider in this file to know it for what it is.
"""

import importlib.util
import sys
from pathlib import Path

# A host loads this folder under a name of its own; the code in it knows itself as memtier_plugin
# only.  Binding that one name keeps hooks/, daemon/ and config/ off sys.path, where their names
# would be anyone's.
_INIT = Path(__file__).parent / "memtier_plugin" / "__init__.py"
if "memtier_plugin" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("memtier_plugin", _INIT)
    assert _spec is not None and _spec.loader is not None
    sys.modules["memtier_plugin"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["memtier_plugin"])

from memtier_plugin import register  # noqa: E402

__all__ = ["register"]
