"""Answer `/memtier ...` commands typed in a host's chat.

These commands decide for a person, so they are not tools: a model cannot call them. A chat shows
and decides only items based on this agent's lines from this sender; `memtier review` on the
machine shows everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memtier_plugin.core.errors import MemTierError, NotFound
from memtier_plugin.core.results import RunContext
from memtier_plugin.facts.forgetting import Audience
from memtier_plugin.facts.review import ReviewItem
from memtier_plugin.memory import MemTier
from memtier_plugin.pool import memory_pool
from memtier_plugin.retrieval.block import SHORT_ID_CHARS
from memtier_plugin.trust.escaping import escape_line

_SHOWN: Final = 5  # items listed in an answer
_MAX_CHARS: Final = 300  # characters of a fact shown in a chat
_USAGE: Final = "/memtier review, /memtier review accept ID, reject ID, or edit ID NEW WORDING"


def answer_command(text: str, context: RunContext) -> str:
    """Return the answer to a command: a person's words after `/memtier`."""
    name, *words = text.split() or ["status"]
    command = COMMANDS.get(name.casefold())
    if command is None:
        return f"Unknown command {name!r}; use {', '.join(COMMANDS)}."
    try:
        with memory_pool.use(context) as memory:
            return command(memory, words, context)
    except MemTierError as error:
        return f"MemTier: {error}"


def _status(memory: MemTier, _words: Sequence[str], context: RunContext) -> str:
    """Return one line: last store and recall, pending reviews, and problems."""
    report = memory.status()
    hooks = report["hooks"].get(context.agent_id, {})

    def last(hook: str) -> str:
        when = hooks.get(hook, {}).get("last_ok")
        return str(when)[:16].replace("T", " ") if when else "never"

    held = report["waits"].get(context.agent_id, {}).get("before_prompt_build")
    waiting = sum(report["review"].values())
    parts = [
        f"MemTier, project {report['project']}: {report['entries']} lines, {report['facts']} facts",
        f"stored {last('agent_end')}, recalled {last('before_prompt_build')} (UTC)",
        *([f"recall took {held['last_ms']} ms, at most {held['slowest_ms']}"] if held else []),
        *([f"{waiting} to review (memtier review)"] if waiting else []),
        *report["degraded"],
        *report["warnings"],
    ]
    return f"{'; '.join(parts)}."


def _review(memory: MemTier, words: Sequence[str], context: RunContext) -> str:
    """List pending items, or accept, reject or edit one."""
    knowledge = memory.knowledge.of_sender(context.sender)
    queue = knowledge.review_queue(Audience(context.agent_id, context.sender))
    if not words:
        return _list_queue(queue)
    action, *rest = words
    if action.casefold() not in ("accept", "reject", "edit") or not rest:
        return f"Usage: {_USAGE}."
    item = _find(queue, rest[0])
    if action.casefold() == "edit":
        if not rest[1:]:
            return f"Usage: {_USAGE}."
        memory.edit_fact(item.id, " ".join(rest[1:]))
        done = "replaced by your wording"
    elif action.casefold() == "accept":
        [outcome] = knowledge.accept([item.id])
        done = outcome.now
    else:
        knowledge.reject([item.id])
        done = "rejected"
    return f"{_short_text(item)}: {done}. {_left(len(queue) - 1)}"


def _private(memory: MemTier, _words: Sequence[str], context: RunContext) -> str:
    """Make this session private, including what follows."""
    if not context.session_id:
        return "MemTier: the host does not identify this session."
    count = len(memory.make_private(context.session_id, sender=context.sender))
    return f"This session is now private: {count} lines, and everything that follows."


def _find(queue: Sequence[ReviewItem], end: str) -> ReviewItem:
    matches = [item for item in queue if item.id.endswith(end.upper())]
    if len(matches) != 1 or len(end) < SHORT_ID_CHARS:
        raise NotFound(f"no pending item has the id {end!r}; see /memtier review")
    return matches[0]


def _list_queue(queue: Sequence[ReviewItem]) -> str:
    if not queue:
        return "Nothing awaits your review here."
    lines = [f"{_left(len(queue))} {_USAGE}"]
    for item in queue[:_SHOWN]:
        why = f" ({escape_line(item.why)})" if item.why else ""
        lines.append(f"- {item.id[-SHORT_ID_CHARS:]}: {_short_text(item)}{why}")
        lines += [f"  instead of: {escape_line(v.fact.text)[:_MAX_CHARS]}" for v in item.against]
    if len(queue) > _SHOWN:
        lines.append(f"and {len(queue) - _SHOWN} more")
    return "\n".join(lines)


def _short_text(item: ReviewItem) -> str:
    return escape_line(item.text)[:_MAX_CHARS]


def _left(count: int) -> str:
    verb = "awaits" if count == 1 else "await"
    return f"{count} {verb} your review." if count else "Nothing else awaits your review here."


COMMANDS: Final[Mapping[str, Callable[[MemTier, Sequence[str], RunContext], str]]] = {
    "status": _status,
    "review": _review,
    "private": _private,
}
