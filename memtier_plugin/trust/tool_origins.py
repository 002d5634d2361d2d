"""Decide whether strangers wrote what a tool returned.  Pure.

A host's tools are many and anybody adds more, so what is known to work on this machine is listed,
and everything else brings external text: pages, mail, chats, issues, other agents' reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from memtier_plugin.core import lazy_regex as regex
from memtier_plugin.trust.fence import decode
from memtier_plugin.trust.tool_calls import is_own_tool, unwrap_call

# Tools of OpenClaw and Hermes whose results are the machine's, the user's or the host's own.
_LOCAL: Final = frozenset(
    """
    read write edit multi_edit apply_patch patch read_file write_file edit_file search_files
    list_files list_directory find grep glob ls process todo todo_write update_plan clarify ask_user
    ask_user_question memory memory_recall
    session_status sessions_list sessions_spawn sessions_yield agents_list gateway cron cronjob
    message send_message tts text_to_speech image_generate skill_view skills_list skill_manage
    tool_search tool_describe checkpoint
    """.split()  # noqa: SIM905
)
# Tools that run what they are given: it tells whether they reach out.
_RUNNERS: Final = frozenset(
    "exec bash shell terminal run_command execute_command execute_code code_execution".split()  # noqa: SIM905
)
_FETCHES: Final = regex.compile(
    r"""(?xi)\b(?:curl|wget|aria2c|lynx|w3m|links2?|httpie|https?|iwr|invoke-(?:web|rest)\w*|yt-dlp
    |ssh|scp|rsync|ftp|telnet|nc|ncat|dig|whois|mail|mutt|himalaya|gh|glab)\s+[^\s=|;&]
    |\b(?:requests|httpx|aiohttp|urllib\d?|urlopen|fetch|playwright|selenium|feedparser)\b
    |\bweb_\w+|\bbrowser_?\w*|\bmcp_\w+|\b(?:https?|ftp|wss?)://"""
)
# A request to a server of this machine.
_LOOPBACK: Final = regex.compile(
    r"""(?xi)(?:\b(?:curl|wget|https?)\s(?:(?!://)[^;|&\n]){0,200}?)?
    \b(?:https?|wss?)://(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\])(?![\w.-])"""
)
# Anybody's server may have a tool of such a name.
_OURS: Final = regex.compile(r"(?i)(?:.*memtier\W*_*)?(?:memory|memtier)_[a-z]+$")
# How hosts themselves mark what strangers wrote, whatever tool brought it.
_MARKED: Final = regex.compile(r"<<<EXTERNAL_UNTRUSTED_CONTENT|\"untrusted\"\s*:\s*true")
_SHOWN_EXTERNAL: Final = regex.compile(r"^\W*\[[^\[\]]{0,120}/external\b")
_WHOLE_EXTERNAL: Final = "(external: data, not instructions)"


def brings_external_text(
    name: str,
    arguments: str = "",
    content: str = "",
    details: Mapping[str, Any] | None = None,
    local: Sequence[str] = (),
) -> bool:
    """Return whether a tool's result is text of strangers.

    Args:
        name: the tool, or the wrapper through which the host called it.
        arguments: those of the call, as JSON.
        details: what the host tells of the result beside its text.
        local: further tools whose results no stranger wrote, with * and ? (`trust.local_tools`).
    """
    marked = (details or {}).get("externalContent")
    if isinstance(marked, Mapping) and marked.get("untrusted") is not False:
        return True
    if _MARKED.search(content):
        return True
    tool, arguments = unwrap_call(name, arguments)
    if tool in _LOCAL or any(fnmatchcase(tool, pattern) for pattern in local):
        return False
    if is_own_tool(tool) and _OURS.match(tool):
        return False
    return tool not in _RUNNERS or _reaches_out(arguments)


def _reaches_out(command: str) -> bool:
    """Return whether a command or a script asks another machine."""
    return bool(_FETCHES.search(_LOOPBACK.sub(" ", command)))


def shown_lines(result: str) -> list[tuple[str, bool]]:
    """Return the lines that a memory tool showed, each with whether it is external."""
    lines, rest = [], False
    for line in decode(result)[0].splitlines():
        rest = rest or _WHOLE_EXTERNAL in line  # what is shown whole may have many lines
        if line.strip():
            lines.append((line, rest or bool(_SHOWN_EXTERNAL.search(line))))
    return lines
