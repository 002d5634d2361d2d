"""`memtier edit`: edit facts or a day as text; changes become events."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.views import (
    Document,
    make_console,
    one_line,
    parse_optional_time,
    safe_text,
    short_id,
)
from memtier_plugin.core.errors import MemTierError, MessageError, NotFound
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.formats import new_id, to_iso
from memtier_plugin.core.paths import encode_file_name, make_private_folder
from memtier_plugin.lifecycle.edit import Change, Done
from memtier_plugin.memory import MemTier
from memtier_plugin.views.edit_text import EditLine, find_changes, render_text
from memtier_plugin.views.reading import read_log_lines

FOLDER: Final = "edits"  # in the home
_RULES: Final = (
    "Nothing is edited in place; your changes are written as events:",
    "change the text after an [id] to replace it;",
    "delete a line to forget it (`memtier unforget` restores it);",
    "add a line without an [id] to remember it; indent its further lines.",
    "Lines may be moved. Lines that start with # are ignored.",
)
_SIGNS: Final = {"forget": ("-", "red"), "reword": ("~", "cyan"), "add": ("+", "green")}


@click.command(cls=CliCommand, example="facts --dry-run")
@click.argument("target", metavar="facts|DAY")
@click.option("--dry-run", is_flag=True, help="Show what would change, without changing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def edit(scope: Scope, target: str, dry_run: bool, yes: bool) -> None:
    """Edit facts, or a day of the log, as text in $EDITOR."""
    if not (dry_run or yes) and (scope.as_json or not sys.stdin.isatty()):
        raise click.UsageError(
            "give --yes, or --dry-run to see the changes: there is no terminal to ask at"
        )
    with scope.open() as memory:
        lines = _lines_of(memory, scope, target)
        text = _Text(memory, target, render_text(lines, _notes(memory, target)))
        changes, plan = _edit_until_understood(memory, lines, text)
        document = _document(plan, applied=False)
        if changes and not dry_run:
            if not yes:
                make_console(stderr=True).print(changes_view(document))
                with text.kept_unless_done():
                    click.confirm(f"Write these {len(changes)}?", abort=True, err=True)
            with text.kept_unless_done():
                document = _document([*memory.editor.apply(changes)], applied=True)
        text.remove()
    scope.show(document, changes_view)


class _Text:
    """The edited file; if it is rejected it is kept, and its path reported.

    It has its own folder in the home, which a purge covers, for the editor's backup files.
    """

    def __init__(self, memory: MemTier, target: str, before: str) -> None:
        name = f"{encode_file_name(memory.project)}-{encode_file_name(target)}-{new_id()[-8:]}"
        self._folder = make_private_folder(memory.home, FOLDER, name)
        self.path: Path = self._folder / "memory.txt"
        self.before = before
        write_private_file(self.path, before)

    def edit(self) -> str:
        """Open the editor and return the edited text.

        Raises:
            click.ClickException: no editor is set, or it failed.
            MessageError: it is no longer UTF-8 text.
        """
        try:
            click.edit(filename=str(self.path))
            return self.path.read_bytes().decode()
        except click.ClickException as error:
            raise click.ClickException(f"{error.message}{self._where()}") from error
        except UnicodeDecodeError as error:
            raise MessageError(f"line {self._line_at(error)}: it is not UTF-8 text") from None

    def _line_at(self, error: UnicodeDecodeError) -> int:
        return bytes(error.object[: error.start]).count(b"\n") + 1

    def refuse(self, error: MemTierError) -> MemTierError:
        """Return an error that names the kept file."""
        return type(error)(f"{error}{self._where()}")

    @contextmanager
    def kept_unless_done(self) -> Iterator[None]:
        """Report the kept file if the block fails or the user declines."""
        try:
            yield
        except MemTierError as error:
            raise self.refuse(error) from error
        except click.Abort:
            click.echo(f"memtier: nothing was changed{self._where()}", err=True)
            raise

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _where(self) -> str:
        return f". Your text is kept in {self.path}"


def _edit_until_understood(
    memory: MemTier, lines: Sequence[EditLine], text: _Text
) -> tuple[list[Change], list[Done]]:
    """Open the editor until the text can be parsed, and return its changes.

    Raises:
        MessageError, NotFound: the text is rejected, and kept.
    """
    while True:
        try:
            changes = find_changes(lines, text.before, text.edit())
            return changes, memory.editor.plan(changes)
        except MessageError as error:
            if not sys.stdin.isatty():
                raise text.refuse(error) from error
            make_console(stderr=True).print(safe_text(error, "red"))
            if not click.confirm("Edit again?", default=True, err=True):
                raise text.refuse(error) from error
        except MemTierError as error:
            raise text.refuse(error) from error


def _lines_of(memory: MemTier, scope: Scope, target: str) -> list[EditLine]:
    """Return the lines to edit: the active facts by subject, or the entries of a day."""
    if target == "facts":
        views = memory.knowledge.person.facts(shelves=False)
        ordered = sorted(views, key=lambda view: (view.fact.subject.casefold(), view.fact.id))
        lines = [EditLine(v.fact.id, v.fact.text, v.fact.subject) for v in ordered]
    else:
        lines = list(_entries_of(memory, scope.agent, _day_of(target)))
    if not lines:
        raise NotFound("there is nothing to edit; see `memtier log` and `memtier facts`")
    return lines


def _day_of(target: str) -> str:
    try:
        moment = parse_optional_time(target)
    except click.BadParameter:
        moment = None
    if moment is None:
        raise click.UsageError(f"{target!r} is neither `facts` nor a day such as 2026-03-14")
    return to_iso(moment)[:10]


def _entries_of(memory: MemTier, agent: str | None, day: str) -> Iterator[EditLine]:
    for line in read_log_lines(memory, agent=agent, date=day):
        if line["kind"] != "entry" or not line["content"].strip():
            continue
        speaker = line["speaker"] or line["sender"] or line["role"]
        by_user = line["role"] == "user" and line["origin"] == "user" and not line["parent"]
        yield EditLine(
            line["id"],
            line["content"],
            f"session {line['session_id']}  agent {line['agent_id']}",
            f"{line['observed_at'][11:16]} {speaker}",
            "" if by_user else "only lines said by a user can be reworded",
        )


def _notes(memory: MemTier, target: str) -> list[str]:
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    name = "facts" if target == "facts" else f"the log of {_day_of(target)}"
    title = f"{name} in the project {memory.project}, as of {now}"
    return [" ".join(title.split()), "", *_RULES]


def _document(done: Sequence[Done], *, applied: bool) -> dict[str, Any]:
    return {"applied": applied, "changes": [each.to_json() for each in done]}


def changes_view(document: Document) -> RenderableType:
    """Render changes, planned or written."""
    parts: list[RenderableType] = []
    for change in document["changes"]:
        sign, style = _SIGNS[change["what"]]
        identity = f"  {short_id(change['id'])}" if change["id"] else ""
        before, after = (one_line(change[name], 300) for name in ("before", "text"))
        parts.append(safe_text(f"{sign} {before or after}{identity}", style))
        if change["what"] == "reword":
            parts.append(safe_text(f"  → {after}"))
        if others := [item for item in change["hidden"] if item != change["id"]]:
            parts.append(safe_text(f"  and {len(others)} that depend on it alone", "dim"))
    verb = "written" if document["applied"] else "would be written"
    summary = f"{len(document['changes'])} changes {verb}"
    return Group(*parts, safe_text(summary if parts else "No changes.", "dim"))
