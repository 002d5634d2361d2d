"""The names of code that a text mentions: files, symbols, branches, commands, versions.  Pure.

Whether a name is one is for the repository to say: what is found here is only written like one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, Literal, NamedTuple

from memtier_plugin.core import lazy_regex as regex

CodeKind = Literal["path", "symbol", "branch", "command", "version"]
MAX_CHARS: Final = 3_000  # of a text that are looked at

_QUOTES: Final = "`'\"\u2018\u201c\u201e\u00ab"
_TOKEN: Final = regex.compile(r"""[^\s"'`<>()\[\]{},;|=*\u2018-\u201f\u00ab\u00bb]+""")
_LINE: Final = regex.compile(r":\d+(?:[:-]\d+)?$")  # of a file, after its name
_EXTENSION: Final = regex.compile(r"\w\.[A-Za-z]\w{0,9}$|^\.?[\w-]+\.[A-Za-z]\w{0,9}$")
# Every project has a config.py: a name without its folder must be more than one short word.
_DISTINCT: Final = regex.compile(r"[a-z0-9][A-Z]|\w[_-]\w|[^\W\d_]{9}")
_ELSEWHERE: Final = ("~", "../", "$", "%")  # the beginnings of paths in no workspace
_IDENTIFIER: Final = regex.compile(r"(?<![\w$])[A-Za-z_$][\w$]{2,}(?![\w$])")
_SHAPE: Final = regex.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]")
_NOUNS: Final = regex.compile(r"\b(?:class|function|method|def|func|fn|struct|interface)\s+`?$")
_NAME: Final = r"[`'\"]?(\w[\w./+-]*[\w+])"
_BRANCHES: Final = tuple(
    regex.compile(pattern)
    for pattern in (
        rf"\bbranch(?:es)?\s+{_NAME}",
        rf"(?<![\w./+-]){_NAME}[`'\"]?\s+branch\b",
        rf"\bgit\s+(?:checkout|switch|merge|rebase|push\s+\w+)\s+(?:-\w+\s+)*{_NAME}",
    )
)
_SCRIPT_TOOLS: Final = ("npm ", "pnpm ", "yarn ", "bun ")
_TARGET_TOOLS: Final = ("make ", "just ")
_SCRIPTS: Final = regex.compile(
    r"(?<![\w-])(?P<tool>npm run|npm run-script|pnpm run|pnpm|yarn run|yarn|bun run)"
    r"\s+(?P<name>[\w][\w:.-]*)"
)
# "make" is a word of prose as well: it is a command in a quote, after a prompt, or after "run".
_TARGETS: Final = regex.compile(
    r"(?:[`$:;&\"']\s?|\b(?i:run|runs|ran|running|use|using|via|calls?|by|with)\s+`?|^)"
    r"(?P<tool>make|just)\s+(?P<name>[\w][\w.-]*)"
)
_NUMBER: Final = regex.compile(r"(?<=[@\sv^~])\d+(?:\.\d+)*(?![\w%])")
_PACKAGE: Final = regex.compile(r"(?<![\w/.@-])(@?[A-Za-z][\w./-]*)(?:@|\s+(?:version\s+)?)[v^~]?$")
_LONGEST: Final = 60  # characters of a package's name and what stands between it and its version


class CodeName(NamedTuple):
    """A name as it stands in a text, and what of it is looked up.

    ``detail`` is a command's tool, a package's version, and of a path "/" where it must be a path.
    """

    kind: CodeKind
    written: str
    name: str
    detail: str = ""


def find_code_names(text: str, symbols: Container[str]) -> Iterator[CodeName]:
    """Yield what a text names, of each kind in the order of the text.

    Args:
        symbols: those that are looked for.
    """
    text = text[:MAX_CHARS]
    yield from _find_paths(text)
    if "branch" in text or "git " in text:
        for pattern in _BRANCHES:
            for branch in pattern.finditer(text):
                yield CodeName("branch", branch[1], branch[1])
    for words, pattern in ((_SCRIPT_TOOLS, _SCRIPTS), (_TARGET_TOOLS, _TARGETS)):
        for command in pattern.finditer(text) if any(word in text for word in words) else ():
            name = command["name"].rstrip(".:-")
            yield CodeName("command", f"{command['tool']} {name}", name, command["tool"])
    for version in _NUMBER.finditer(text):
        start = version.start()
        if package := _PACKAGE.search(text, max(0, start - _LONGEST), start):
            yield CodeName("version", f"{package[1]} {version[0]}", package[1], version[0])
    for symbol in _IDENTIFIER.finditer(text) if symbols else ():
        if symbol[0] in symbols and _is_symbol(text, symbol.start(), symbol.end()):
            yield CodeName("symbol", symbol[0], symbol[0])


def _find_paths(text: str) -> Iterator[CodeName]:
    for token in _TOKEN.finditer(text):
        raw = token[0]
        if "/" not in raw and "." not in raw:
            continue
        raw = raw.rstrip(".:!?\u2026")
        if len(raw) < 3 or "\\" in raw or "//" in raw or raw.startswith(_ELSEWHERE):
            continue
        name = _LINE.sub("", raw).removeprefix("@").removeprefix("./")
        if ":" in name or "@" in name or "/../" in name:
            continue
        is_folder = name.endswith("/") and len(name) > 2
        quoted = token.start() > 0 and text[token.start() - 1] in _QUOTES
        if "/" in raw or (_EXTENSION.search(name) and _DISTINCT.search(name)):
            surely = is_folder or quoted or token[0].startswith("./")
            yield CodeName("path", name.rstrip("/"), name.rstrip("/"), "/" if surely else "")


def _is_symbol(text: str, start: int, end: int) -> bool:
    """Return whether an identifier is written like code, and is no part of a path."""
    before, after = text[start - 1 : start], text[end : end + 1]
    if before in ("/", "-", "@") or after in ("/", "-"):
        return False
    return bool(
        after == "("
        or (before == "`" and after in ("`", "(", "."))
        or _SHAPE.search(text, start, end)
        or _NOUNS.search(text, max(0, start - 16), start)
    )
