"""Show what an installation changes in a host's file, and nothing else of that file.

A host's configuration holds the user's keys and tokens.  So a JSON or YAML document is reduced to
the keys that change before it is compared; the lines around them are never printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from memtier_plugin.hosts.json_comments import parse_json
from memtier_plugin.trust.redaction import Redactor

_MASKED: Final = "[masked]"
_SECRET_NAME: Final = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie)s?\Z",
    re.IGNORECASE,
)


def diff_file(path: Path, before: str | None, after: str | None) -> str:
    """Return the unified diff of a file (None: it is not there), with secrets masked."""
    old, new = _load(path, before), _load(path, after)
    reduced = old is not None and new is not None
    if old is not None and new is not None:
        old, new = _keep_differences(old, new)
        before, after = (_dump(path, _mask(document)) for document in (old, new))
    old_lines, new_lines = ((text or "").splitlines() for text in (before, after))
    note = " (the changed keys only)" if reduced else ""
    old_name, new_name = (
        f"{path}{note}" if text is not None else "/dev/null" for text in (before, after)
    )
    context = len(old_lines) + len(new_lines) if reduced else 2
    diff = unified_diff(old_lines, new_lines, old_name, new_name, lineterm="", n=context)
    return Redactor().redact("\n".join(diff)).text


def _load(path: Path, text: str | None) -> dict[str, Any] | None:
    """Return the document of a JSON or YAML file, None if there is none to reduce."""
    if text is None or path.suffix not in (".json", ".yaml", ".yml"):
        return None
    if path.suffix == ".json":
        load: Any = parse_json
        error: type[Exception] = ValueError
    else:
        import yaml

        load, error = yaml.safe_load, yaml.YAMLError
    try:
        document = load(text) if text.strip() else {}
    except error:
        return None
    return {} if document is None else document if isinstance(document, dict) else None


def _keep_differences(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two documents without what they have in common."""
    kept_old: dict[str, Any] = {}
    kept_new: dict[str, Any] = {}
    for key in {**new, **old}:
        if key in old and key in new:
            if old[key] == new[key]:
                continue
            kept_old[key], kept_new[key] = _keep_different_values(old[key], new[key])
        elif key in old:
            kept_old[key] = old[key]
        else:
            kept_new[key] = new[key]
    return kept_old, kept_new


def _keep_different_values(old: Any, new: Any) -> tuple[Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        return _keep_differences(old, new)
    if isinstance(old, list) and isinstance(new, list):
        gone = [value for value in old if value not in new]
        return gone, [value for value in new if value not in old]
    return old, new


def _mask(value: Any) -> Any:
    """Return a value with a mark in the place of every text whose name says that it is secret."""
    if isinstance(value, dict):
        return {
            key: _MASKED
            if isinstance(inner, str) and _SECRET_NAME.search(str(key))
            else _mask(inner)
            for key, inner in value.items()
        }
    return [_mask(inner) for inner in value] if isinstance(value, list) else value


def _dump(path: Path, document: Any) -> str:
    if path.suffix == ".json":
        return json.dumps(document, indent=2, ensure_ascii=False)
    import yaml

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True)) if document else ""
