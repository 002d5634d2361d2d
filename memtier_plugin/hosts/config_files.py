"""Read and edit hosts' JSON files in place, keeping comments, and show the changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, NamedTuple

from memtier_plugin.core.errors import LedgerWriteError, SettingsError
from memtier_plugin.core.files import check_replaceable
from memtier_plugin.core.formats import parse_json_text
from memtier_plugin.trust.redaction import Redactor

# -- Read and edit JSON with comments, trailing commas, bare and quoted keys
#
# OpenClaw reads JSON5, VS Code and others JSON with comments.  An edit changes the text of what
# differs and nothing else.  No maintained package does: `json5` reads values without positions;
# `json-five` (2024) keeps comments but adds no keys, and installs over the module of `json5`, on
# which Jupyter rests; `json5kit` (2023) has no edits; `jsonc-edit` starts a Node process.

_TOKEN: Final = re.compile(
    r"""(?P<gap>[\s\ufeff]+|//[^\r\n]*|/\*.*?\*/)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<mark>[{}\[\]:,])
      | (?P<word>[^\s{}\[\]:,"'/]+)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/)")  # at the end of a line
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|\r?\n|(.))", re.DOTALL)
_BARE: Final = {"Infinity": float("inf"), "NaN": float("nan")}
_MOST_EDITS: Final = 1_000


class _Token(NamedTuple):
    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A value with its position, and its children with their start positions.

    A child of an object starts at its key. ``comma`` is the end of a trailing comma.
    """

    start: int
    end: int
    value: Any
    keys: Sequence[str] = ()
    inner: Sequence[tuple[int, _Node]] = ()
    comma: int | None = None


def is_plain_json(text: str) -> bool:
    """Return whether a text is strict JSON."""
    try:
        parse_json_text(text)
    except ValueError:
        return False
    return True


def parse_json(text: str) -> Any:
    """Parse JSON, with or without comments.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return parse_json_text(text)
    except ValueError:
        return _parse(text).value


def edit_json(text: str, wanted: Any) -> str:
    """Return the text with another value; comments and everything unchanged are kept.

    Raises:
        ValueError: it cannot be read.
        SettingsError: too much would change.
    """
    for _ in range(_MOST_EDITS):
        edit = _find_edit(text, _parse(text), wanted)
        if edit is None:
            return text
        start, end, new = edit
        text = text[:start] + new + text[end:]
    raise SettingsError("too much would change in a configuration with comments: edit it manually")


# -- reading --------------------------------------------------------------------------------------


def _parse(text: str) -> _Node:
    tokens = _tokens(text)
    try:
        node = _read_value(text, next(tokens), tokens)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if (trailing := next(tokens)).kind:
        raise _unexpected(text, trailing)
    return node


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unexpected(text, _Token("?", at, at + 1))
        at = match.end()
        if match.lastgroup != "gap":
            yield _Token(str(match.lastgroup), match.start(), at)
    while True:
        yield _Token("", at, at)


def _unexpected(text: str, token: _Token) -> ValueError:
    line = text.count("\n", 0, token.start) + 1
    return ValueError(f"line {line}: unexpected {text[token.start : token.end] or 'end'!r:.40}")


def _read_value(text: str, token: _Token, tokens: Iterator[_Token]) -> _Node:
    written = text[token.start : token.end]
    if written in ("{", "["):
        return _read_inside(text, token, tokens, written == "{")
    if token.kind == "text":
        return _Node(token.start, token.end, _read_text(written))
    if token.kind == "word":
        return _Node(token.start, token.end, _read_word(text, token))
    raise _unexpected(text, token)


def _read_inside(text: str, opened: _Token, tokens: Iterator[_Token], is_object: bool) -> _Node:
    closing = "}" if is_object else "]"
    keys: list[str] = []
    inner: list[tuple[int, _Node]] = []
    comma: int | None = None
    token = next(tokens)
    while (written := text[token.start : token.end]) != closing:
        start = token.start
        if is_object:
            if token.kind not in ("text", "word"):
                raise _unexpected(text, token)
            keys.append(_read_text(written) if token.kind == "text" else written)
            token = next(tokens)
            if text[token.start : token.end] != ":":
                raise _unexpected(text, token)
            token = next(tokens)
        inner.append((start, _read_value(text, token, tokens)))
        token, comma = next(tokens), None
        if text[token.start : token.end] == ",":
            comma = token.end
            token = next(tokens)
        elif text[token.start : token.end] != closing:
            raise _unexpected(text, token)
    values = [node.value for _, node in inner]
    value = dict(zip(keys, values, strict=True)) if is_object else values
    return _Node(opened.start, token.end, value, keys, inner, comma)


def _read_text(written: str) -> str:
    if written[0] == "'":
        quoted = re.sub(r'(\\.)|(")', lambda m: m[1] or '\\"', written[1:-1], flags=re.DOTALL)
        written = f'"{quoted}"'
    return str(json.loads(_ESCAPE.sub(_plain_escape, written), strict=False))


def _plain_escape(match: re.Match[str]) -> str:
    """Return a JSON5 escape as a JSON escape."""
    if match[1]:
        return f"\\u00{match[1]}"
    if match[2] is None:
        return ""  # a line continuation
    known = {"v": "\\u000b", "0": "\\u0000"}
    return match[0] if match[2] in '"\\/bfnrtu' else known.get(match[2], match[2])


def _read_word(text: str, token: _Token) -> Any:
    word = text[token.start : token.end]
    sign, digits = (-1, word[1:]) if word[0] == "-" else (1, word.lstrip("+"))
    try:
        if digits in _BARE:
            return sign * _BARE[digits]
        if digits[:2] in ("0x", "0X"):
            return sign * int(digits, 16)
        return parse_json_text(word)
    except ValueError:
        try:
            return float(word)  # .5, 5. and +5
        except ValueError:
            raise _unexpected(text, token) from None


# -- editing --------------------------------------------------------------------------------------


_Edit = tuple[int, int, str]  # start, end and replacement


def _find_edit(text: str, node: _Node, wanted: Any) -> _Edit | None:
    """Return the first edit that brings a value closer to the wanted one."""
    # As JSON, because in Python 1 is True; the order of keys is the file's own.
    if json.dumps(node.value, sort_keys=True) == json.dumps(wanted, sort_keys=True):
        return None
    if isinstance(node.value, dict) and isinstance(wanted, Mapping):
        gone = [n for n, key in enumerate(node.keys) if key not in wanted]
        if gone:
            return _delete(text, node, gone[-1])
        for key, (_, inner) in zip(node.keys, node.inner, strict=True):
            if edit := _find_edit(text, inner, wanted[key]):
                return edit
        key = next(key for key in wanted if key not in node.keys)
        return _insert(text, node, f"{json.dumps(key, ensure_ascii=False)}: ", wanted[key])
    if isinstance(node.value, list) and isinstance(wanted, list):
        old = node.value
        for n in range(len(old)):
            if [*old[:n], *old[n + 1 :]] == wanted:
                return _delete(text, node, n)
        if len(old) < len(wanted) and wanted[: len(old)] == old:
            return _insert(text, node, "", wanted[len(old)])
        if len(old) == len(wanted):
            pairs = zip(node.inner, wanted, strict=True)
            return next(filter(None, (_find_edit(text, i, value) for (_, i), value in pairs)))
    return node.start, node.end, _dump_value(text, wanted, _indent_at(text, node.start))


def _delete(text: str, node: _Node, number: int) -> _Edit:
    """Return the edit that deletes a value, with its line if it is alone there."""
    start, inner = node.inner[number]
    begin = start - len(text[:start]) + len(text[:start].rstrip())
    if number + 1 < len(node.inner) or node.comma:
        comma = text.index(",", _after_comments(text, inner.end)) + 1
        return begin, comma, ""
    if not number:
        return begin, inner.end, ""
    before = node.inner[number - 1][1].end
    comma = _after_comments(text, before)
    return before, inner.end, text[before:comma] + text[comma + 1 : begin]


def _after_comments(text: str, at: int) -> int:
    """Return the end of the comments and spaces that start at a position."""
    while (match := _TOKEN.match(text, at)) and match.lastgroup == "gap":
        at = match.end()
    return at


def _insert(text: str, node: _Node, label: str, value: Any) -> _Edit:
    """Return the edit that appends a value, in the style of the others."""
    lines = "\n" in text[node.start : node.end] or (not node.inner and "\n" in text)
    outer = _indent_at(text, node.start)
    if not lines:
        at = node.inner[-1][1].end if node.inner else node.start + 1
        gap = ", " if node.inner else ""
        return at, node.comma or at, gap + label + json.dumps(value, ensure_ascii=False)
    indent = _indent_at(text, node.inner[0][0]) if node.inner else outer + _step(text)
    line = _newline(text) + indent + label + _dump_value(text, value, indent)
    if not node.inner:
        end = node.end - 1
        at = len(text[:end].rstrip())
        tail = "" if "\n" in text[at:end] else _newline(text) + outer
        return at, at, line + tail
    last = node.inner[-1][1].end
    at = node.comma or last
    if comment := _COMMENT.match(text, at):
        at = comment.end()
    between = text[last:at]
    return last, at, between + line + "," if node.comma else f",{between}{line}"


def _dump_value(text: str, value: Any, indent: str) -> str:
    plain = json.dumps(value, indent=_step(text) if "\n" in text else None, ensure_ascii=False)
    return plain.replace("\n", _newline(text) + indent)


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _step(text: str) -> str:
    line = re.search(r"\{(?:\s|//[^\n]*)*?\n([ \t]+)\S", text)
    return line[1] if line else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# -- Read and write JSON configuration files


def read_text(path: Path) -> str | None:
    """Return a file's text with its line endings, None if it does not exist.

    Raises:
        SettingsError: it cannot be read, or is a device or a pipe.
    """
    try:
        check_replaceable(path)
        return path.read_bytes().decode("utf-8")  # keep its line endings
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, LedgerWriteError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def read_json(path: Path, by_hand: str) -> dict[str, Any]:
    """Return the object in a configuration file, empty if it does not exist.

    Raises:
        SettingsError: it is not JSON; the message ends with ``by_hand``.
    """
    text = read_text(path)
    try:
        document = parse_json(text) if text and text.strip() else {}
    except ValueError as error:
        raise SettingsError(f"{path}: not JSON ({error}); mend it, {by_hand}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: expected an object")
    return document


def load_json(path: Path) -> Any:
    """Return a JSON document, None if it cannot be read."""
    try:
        return parse_json(path.read_text("utf-8") or "{}")
    except (OSError, ValueError):
        return None


def section(config: Any, *names: str) -> Mapping[str, Any]:
    """Return a nested section, empty if it is missing or not a mapping."""
    for name in names:
        config = config.get(name) if isinstance(config, Mapping) else None
    return config if isinstance(config, Mapping) else {}


def format_json(document: Mapping[str, Any], like: str | None) -> str:
    """Return a document as JSON, indented and escaped like the text it replaces.

    In a text with comments only the differences are edited.
    """
    indent: str | int | None = 2
    if like and like.strip():
        if not is_plain_json(like):
            return edit_json(like, document)
        line = re.search(r"\n([ \t]+)\S", like)
        indent = line[1] if line else None
    plain = json.dumps(document, indent=indent, ensure_ascii=not like or like.isascii())
    return plain + ("\n" if not like or like.endswith("\n") else "")


def open_section(config: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Return a section of a configuration, created if missing.

    Raises:
        SettingsError: its key holds something else.
    """
    section = config.setdefault(name, {})
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {name} is {section!r:.40}, expected an object")
    return section


# -- Show an installation's changes in a host's file, and nothing else from it
#
# A host's configuration holds the user's keys and tokens.  So a JSON or YAML document is reduced to
# the keys that change before it is compared; the lines around them are never printed.

_MASKED: Final = "[masked]"
_SECRET_NAME: Final = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|passphrase|credentials?|authorization|cookie)s?\Z",
    re.IGNORECASE,
)


def diff_file(path: Path, before: str | None, after: str | None) -> str:
    """Return the unified diff of a file (None: it does not exist), with secrets masked."""
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
    """Return the document of a JSON or YAML file, None if it cannot be reduced."""
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
    """Return two documents without their common parts."""
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
    """Return a value with every text under a secret-sounding key masked."""
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
