"""Tell what a user did to a coding agent's work without words: undid an edit, refused a call.

At the end of a turn the edits are noted that stand in their files; at the next prompt an edit is
undone if its old text is back and the new one gone.  Where git's HEAD moved in between, by another
branch, a stash or a reset, files say nothing about the edits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .host_words import ASKING

if TYPE_CHECKING:  # a hook's process imports this before a prompt, and that not
    from memtier_plugin.core.records import Entry, Message

_MAX_EDITS: Final = 16  # of a turn, the last
_MAX_BYTES: Final = 1_000_000  # of a file that is read
_MAX_SHOWN: Final = 120  # characters of what an edit removed or added


class Edit(NamedTuple):
    """A text in a file that was replaced by another; ``restored``: what stands there if undone."""

    tool: str
    path: str
    old: str
    new: str
    restored: str = ""

    def describe(self, folder: str, tense: str) -> str:
        """Return in words what the edit did, or would have done, to a file of a folder."""
        removed = _shown(_lines_without(self.old, self.new))
        added = _shown(_lines_without(self.new, self.old))
        change = f"added {added}" if added else f"removed {removed}" if removed else "moved lines"
        change = f"replaced {removed} by {added}" if removed and added else change
        path = os.path.relpath(self.path, os.path.realpath(folder))
        return f"`{self.tool} {path}`, which {tense} {change}"


def note_standing(events: Sequence[Mapping[str, Any]], folder: str) -> dict[str, Any]:
    """Return what `find_undone` compares with later: the edits that stand, and git's state."""
    if not os.path.isabs(folder):
        return {}
    calls = [(str(each.get("tool_name")), each.get("tool_input")) for each in events]
    edits = dict.fromkeys(edit for call in calls for edit in _edits_of(*call, folder))
    standing = [each for edit in [*edits][-_MAX_EDITS:] if (each := _standing(edit))]
    return {"standing": standing, "head": _head(folder)} if standing else {}


def find_undone(events: Sequence[Mapping[str, Any]], folder: str) -> list[str]:
    """Return the edits that stood at the end of a turn and that the user undid, in words.

    Args:
        events: the turn's, among them a note of `note_standing`.
        folder: the session's working directory.
    """
    note = next((event for event in reversed(events) if "standing" in event), None)
    if note is None or note.get("head") != _head(folder):
        return []
    edits = [Edit(*map(str, each)) for each in note["standing"] if len(each) == len(Edit._fields)]
    return [edit.describe(folder, "had") for edit in edits if _is_undone(edit)]


def tells_act(message: Message | Entry) -> bool:
    """Return whether a message tells what a user did, not in their words."""
    return message.role == "system" and message.origin == "user"


def act_message(act: str) -> dict[str, str]:
    """Return the message that tells what a user did, such as "undid ..."."""
    return {"role": "system", "origin": "user", "content": f"The user {act}."}


def refusals(name: str, given: Any, folder: str) -> Iterator[dict[str, str]]:
    """Yield the message that a user refused a call without a reason, if the call was work.

    Args:
        name, given: the tool, and the host's object of its arguments.
        folder: the session's working directory.
    """
    if name in ASKING:
        return
    edits = [edit.describe(folder, "would have") for edit in _edits_of(name, given, folder)]
    given = given if isinstance(given, Mapping) else {}
    command = given.get("command") or given.get("cmd")
    call = (
        command if isinstance(command, str) else f"{name} {json.dumps(given, ensure_ascii=False)}"
    )
    yield act_message(f"refused {'; '.join(edits) or _shown(call.split())}")


def _edits_of(name: str, given: Any, folder: str) -> Iterator[Edit]:
    """Yield the replacements of a tool call, in files of a folder."""
    if not isinstance(given, Mapping) or not isinstance(given.get("file_path"), str) or not folder:
        return
    if "\0" in given["file_path"]:
        return
    path = os.path.realpath(os.path.join(folder, given["file_path"]))
    if not path.startswith(os.path.join(os.path.realpath(folder), "")):
        return
    several = given.get("edits")
    for each in several if isinstance(several, list) else [given]:
        if not isinstance(each, Mapping):
            continue
        old, new = each.get("old_string"), each.get("new_string")
        if isinstance(old, str) and isinstance(new, str) and old.strip() and old != new:
            yield Edit(name, path, old, new)


def _standing(edit: Edit) -> Edit | None:
    """Return an edit with the text that stands there if it is undone; None if none tells."""
    text = _read(edit.path)
    if text is None or edit.new not in text:
        return None
    restored = edit.old
    if restored in text:  # the new text has it, or it is elsewhere: what stands around it tells
        if not edit.new or text.count(edit.new) > 1:
            return None
        before, _, after = text.partition(edit.new)
        before = "".join(before.splitlines(keepends=True)[-2:])
        after = "".join(after.splitlines(keepends=True)[:2])
        restored = before + edit.old + after
    return edit._replace(restored=restored) if restored not in text else None


def _is_undone(edit: Edit) -> bool:
    """Return whether an edit's file has the restored text again, and the new one nowhere else."""
    text = _read(edit.path)
    if text is None or edit.restored not in text:
        return False
    return not edit.new or edit.new not in text.replace(edit.restored, "\0")


def _lines_without(text: str, other: str) -> list[str]:
    """Return the lines of a text, without indentation, that another lacks."""
    known = {line.strip() for line in other.splitlines()}
    return [
        line.strip() for line in text.splitlines() if line.strip() and line.strip() not in known
    ]


def _shown(lines: Sequence[str]) -> str:
    text = " ".join(lines)
    cut = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3].rstrip()}..."
    return f"`{cut}`" if cut else ""


def _read(path: str) -> str | None:
    """Return a text file, with a null character where it begins and ends."""
    with suppress(OSError, ValueError):
        if os.path.getsize(path) <= _MAX_BYTES:
            return f"\0{Path(path).read_text('utf-8')}\0"
    return None


def _head(folder: str) -> str:
    """Return a mark of git's HEAD that changes when it moves; empty where there is no git."""
    for top in (Path(folder), *Path(folder).parents):
        git = top / ".git"
        with suppress(OSError):
            if git.is_file():  # a work tree of another repository, or a submodule
                git = top / git.read_text("utf-8").partition("gitdir:")[2].strip()
            if git.is_dir():
                return str(os.stat(git / "logs" / "HEAD").st_mtime_ns)
    return ""
