"""Tell a pasted log, trace, code or data from the words around it, by how lines look.  Pure."""

from __future__ import annotations

from typing import Final

from memtier_plugin.core import lazy_regex as regex

MIN_PASTED_LINES: Final = 2
_MIN_PASTED_SHARE: Final = 0.5  # of the characters

_LOG_LINE: Final = regex.compile(
    r"""(?x)^\s*(?:
      Traceback\ \(most\ recent | File\ "[^"]+",\ line\ \d | at\ [\w.$<>/]+\s?\( | Caused\ by:
    | [\w.]*(?:Error|Exception|Warning)\b[^.?!]{0,40}: | (?i:error|warning)(?:\[\w+\])?:\s
    | -->\ | \.{3}\ \d+\ more | npm\ (?:ERR!|WARN) | panic: | fatal: | goroutine\ \d
    | \[\s*\d+\.\d+\] | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d | \[?\d\d:\d\d:\d\d
    | (?:[A-Z][a-z]{2}\ [\ \d]\d|\d\d/\w{3}/\d{4})[\ :]\d\d:\d\d:\d\d
    | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\]?[\s:|]
    | \d{1,3}(?:\.\d{1,3}){3}\s | (?:\+\+\+|---|@@)\s | diff\ --git | [$>#]\s\w+\s?.*$(?<![.?!])
    | \d+:\d+\s+(?:error|warning)\s | (?:/[\w.-]+){2,}:\d+
    )"""
)
_CODE_LINE: Final = regex.compile(
    r"""(?x)^\s*(?:
      [\]})]+[;,]?$ | ["'][\w .-]+["']\s?:\s.* | [{[(]$ | </?[a-z][\w-]*[^>]*>.* | \#include\b.*
    | (?:def|class|fn|func|function|const|let|var|public|private|static|import|from|package|using
        |return|struct|impl|interface|enum|async|await|export|if|for|while|else|elif|try|except
        |catch|switch|case|select|insert|update|create\ table)\b.*[:;{}()=,>]
    | .*[{};]$ | [\w.\[\]]+\s?(?:=|:=|\+=|->)\s?\S.* | [\w.]+\([^)]*\);? | @\w+(?:\(.*\))? | //.*
    | \#\ ?\w+[^.?!]*$ | \|.*\|$ | [\w-]+:\ ?\S*$ | -\ [\w-]+:\s?\S*$
    )$"""
)
_FENCE: Final = regex.compile(r"^\s*(?:```|~~~)")


def split_pasted(text: str) -> tuple[str, float]:
    """Return the words around what is pasted, and the share of what is; 0 where it is too little.

    Pasted are fenced blocks, and lines that look like logs, traces, code or data.
    """
    lines = text.splitlines()
    if len(lines) < MIN_PASTED_LINES:
        return (
            ("", 1.0) if _LOG_LINE.match(text) and not text.rstrip().endswith("?") else (text, 0.0)
        )
    around: list[str] = []
    pasted = count = 0
    fenced = False
    for line in lines:
        fence = bool(_FENCE.match(line))
        if fenced or fence or _looks_pasted(line):
            pasted += len(line.strip())
            count += bool(line.strip())
        elif line.strip():
            around.append(line)
        fenced ^= fence
    total = pasted + sum(len(line.strip()) for line in around)
    share = pasted / total if total else 0.0
    if count < MIN_PASTED_LINES or (share < _MIN_PASTED_SHARE and count < 2 * MIN_PASTED_LINES):
        return text, 0.0
    return "\n".join(around), share


def _looks_pasted(line: str) -> bool:
    if not line.strip():
        return False
    line = line[:400]
    return bool(_LOG_LINE.match(line) or _CODE_LINE.match(line)) or (
        line[0] in " \t"
        and line.strip()[-1:] not in ".?!"
        and any(s in line for s in "=(){};:[]<>")
    )
