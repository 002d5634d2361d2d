"""`memtier import`, `export`, `backup` and `restore`."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, complete_sessions, progress_bar
from memtier_plugin.cli.screens import require_web
from memtier_plugin.cli.views import LengthOfTime
from memtier_plugin.core.errors import BackupError
from memtier_plugin.core.paths import encode_file_name
from memtier_plugin.hosts.project import agent_of
from memtier_plugin.ingest.messages import Session
from memtier_plugin.memory import MemTier
from memtier_plugin.storage import home_files
from memtier_plugin.transfer import archive as archives
from memtier_plugin.transfer.archive import new_file, refuse_taken
from memtier_plugin.transfer.importers.formats import (
    FORMATS,
    MEMTIER_FORMAT,
    detect_format,
    read_transcript,
)
from memtier_plugin.transfer.importers.memories import propose_facts
from memtier_plugin.transfer.importers.reading import DEFAULT_MINUTES, SkipCallback, TimeLimit

_EXAMPLES: Final = 3
_MAX_LEFT_OUT: Final = 20  # rows of skipped items


@click.command("import", cls=CliCommand, example="conversations.json --dry-run")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice([*sorted(FORMATS), MEMTIER_FORMAT]),
    help="The format [detected].",
)
@click.option("--dry-run", is_flag=True, help="Count and show examples, without importing.")
@click.option(
    "--minutes",
    type=LengthOfTime(0),
    default=DEFAULT_MINUTES,
    show_default=True,
    help="Stop after this time; the same command continues. 0: no limit.",
)
@click.pass_obj
def import_(scope: Scope, file: Path, form: str | None, dry_run: bool, minutes: float) -> None:
    """Import conversations or memories from FILE, folder or ZIP."""
    limit = TimeLimit(minutes)
    form = form or detect_format(file)
    scope = as_agent_of(scope, form)
    left_out: list[dict[str, str]] = []

    def skip(location: str, why: str) -> None:
        left_out.append({"place": location, "why": why})

    with open_memory(scope, dry_run) as memory:
        job = ImportJob(scope, memory, file, form, dry_run, skip, limit)
        document = job.memtier_export() if form == MEMTIER_FORMAT else job.transcript()
    shown = {"left_out": len(left_out), "why": left_out[:_MAX_LEFT_OUT]}
    scope.show({"format": form, "dry_run": dry_run, **document, **shown}, import_view)


def as_agent_of(scope: Scope, form: str) -> Scope:
    """Return the scope with the agent that a host's sessions belong to, unless one was named."""
    host = FORMATS[form].host if form in FORMATS else ""
    return replace(scope, agent=agent_of(host)) if host and scope.agent is None else scope


@contextmanager
def open_memory(scope: Scope, dry_run: bool) -> Iterator[MemTier]:
    """Open the memory; a dry run of a new project uses a temporary one."""
    if not dry_run or (scope.path / "projects" / encode_file_name(scope.project_name)).is_dir():
        with scope.open(create=not dry_run) as memory:
            yield memory
        return
    with (
        tempfile.TemporaryDirectory() as nowhere,
        MemTier.open(nowhere, scope.project_name, scope.agent or "main") as memory,
    ):
        yield memory


@dataclass(frozen=True, slots=True)
class ImportJob:
    """An import: its source, target and options."""

    scope: Scope
    memory: MemTier
    file: Path
    form: str
    dry_run: bool
    skip: SkipCallback
    limit: TimeLimit

    def transcript(self) -> dict[str, Any]:
        """Check the file completely, so that a rejected one leaves nothing; then record it."""
        names, origins, examples, total = set[str](), Counter[str](), list[str](), 0
        for session in self.limit.read(self._sessions(self.skip)):
            names.add(session.session_id)
            total += len(session.turns)
            origins.update(message.origin or message.role for message in session.messages)
            examples += [m.content for m in session.messages[: _EXAMPLES - len(examples)]]
        figures: dict[str, Any] = {
            "sessions": len(names),
            "messages": total,
            "origins": dict(sorted(origins.items())),
        }
        with progress_bar() as report:
            sessions = _report_progress(self._sessions(), report, total)
            if self.dry_run:
                new_ones = self.memory.count_new(self.limit.read(sessions))
                return {**figures, "new": new_ones, "examples": examples}
            recorded = proposed = 0
            proposes = FORMATS[self.form].proposes
            for new in self.memory.record_sessions(sessions):
                recorded += len(new)
                proposed += propose_facts(self.memory, new) if proposes else 0
                self.limit.check(recorded)
        return {**figures, "recorded": recorded, **({"proposed": proposed} if proposes else {})}

    def _sessions(self, skip: SkipCallback = lambda _location, _why: None) -> Iterator[Session]:
        """Yield the sessions of the file that the host's hooks did not record already."""
        host = FORMATS[self.form].host
        for session in read_transcript(self.file, self.form, skip):
            name = session.session_id.partition("/")[2] if host else ""
            if name and self.memory.has_session(agent_of(host), name):
                skip(f"{self.file}, session {name}", "recorded when it took place")
            else:
                yield session

    def memtier_export(self) -> dict[str, Any]:
        """Import entries and facts exactly as exported."""
        from memtier_plugin.transfer.memtier_export import import_memtier_export

        with progress_bar() as report:
            done = import_memtier_export(
                self.memory,
                self.file,
                self.skip,
                self.limit,
                agent=self.scope.agent,
                dry_run=self.dry_run,
                progress=lambda number: report("importing", number, 0),
            )
        new = ("new", "new_facts") if self.dry_run else ("recorded", "recorded_facts")
        return {
            "sessions": len(done.sessions),
            "messages": done.entries,
            "facts": done.facts,
            **dict(zip(new, (done.recorded, done.new_facts), strict=True)),
            **({"examples": done.examples} if self.dry_run else {}),
        }


def _report_progress(sessions: Iterable[Session], report: Any, total: int) -> Iterator[Session]:
    done = 0
    for session in sessions:
        yield session
        done += len(session.turns)
        report("importing", done, total)


def import_view(document: views.Document) -> RenderableType:
    """Render the result of an import, with skipped items and the reasons."""
    new = "new" if document["dry_run"] else "recorded"
    pairs = [("messages", new), ("facts", f"{new}_facts")]
    counts = " and ".join(
        f"{document[number]:,} of {views.count_words({kind: document[kind]}, empty=True)}"
        for kind, number in pairs
        if kind in document
    )
    done = f"{counts} in {views.count_words({'sessions': document['sessions']}, empty=True)}"
    by = ", ".join(f"{role} {number:,}" for role, number in document.get("origins", {}).items())
    done += f" ({by})" if by else ""
    parts: list[RenderableType] = [
        views.safe_text(
            f"Nothing was written. New: {done}." if document["dry_run"] else f"Imported {done}."
        )
    ]
    if proposed := document.get("proposed"):
        facts = views.count_words({"facts": proposed})
        parts.append(views.safe_text(f"Proposed {facts}: `memtier review` decides."))
    parts += [
        views.safe_text(f"  {views.one_line(example, 90)}", "dim")
        for example in document.get("examples", ())
    ]
    parts += [
        views.safe_text(f"left out: {item['place']}: {item['why']}", "yellow")
        for item in document["why"]
    ]
    if document["left_out"] > len(document["why"]):
        parts.append(views.safe_text(f"... and {document['left_out'] - len(document['why'])} more"))
    return Group(*parts)


@click.command(cls=CliCommand, example="--output memory.md")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "markdown"]),
    help="jsonl to import again, md to read [by --output's suffix, else jsonl].",
)
@click.option(
    "--session", metavar="ID", shell_complete=complete_sessions, help="Only this session."
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to a new file [stdout].",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the project's web view to one new file.",
)
@click.pass_obj
def export(
    scope: Scope, form: str | None, session: str | None, output: Path | None, html: Path | None
) -> None:
    """Export the project's memory, or one agent's with --agent."""
    if html and (output or session or scope.agent):
        raise click.UsageError("--html writes the whole project to its FILE")
    if form is None:
        form = "markdown" if output and output.suffix in (".md", ".markdown") else "jsonl"
    output, form = (html, "html") if html else (output, form)
    with scope.open() as memory:
        chunks = _exporter(form)(memory, scope.agent, session)
        if output is None:
            for chunk in chunks:
                click.echo(chunk, nl=False)
            return
        refuse_taken(output)
        # Registered before the file is visible, and again with its contents.
        path = output.resolve()
        home_files.register_export(memory.folder, path, form)
        with progress_bar() as report:
            written = _write_new_file(output, chunks, partial(report, "exporting"))
        home_files.register_export(memory.folder, path, form, content=path)
    scope.show({"file": str(output), "format": form, "bytes": written})


def _exporter(form: str) -> Callable[[MemTier, str | None, str | None], Iterable[str]]:
    """Return the exporter of a format.

    Raises:
        Unsupported: it needs an extra.
    """
    if form == "html":
        require_web("`memtier export --html`")
        from memtier_plugin.web.snapshot import export_html

        return lambda memory, _agent, _session: export_html(memory)
    from memtier_plugin.transfer import memtier_export as exporting

    return exporting.export_jsonl if form == "jsonl" else exporting.export_markdown


def _write_new_file(path: Path, chunks: Iterable[str], report: Any) -> int:
    """Write a new file (mode 0600) and return its size; a partial file is removed."""
    try:
        with new_file(path) as file:
            for number, chunk in enumerate(chunks, start=1):
                file.write(chunk.encode("utf-8", "backslashreplace"))
                report(number, 0)
            return file.tell()
    except FileExistsError:
        raise BackupError(f"{path} exists; choose another file") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@click.command(cls=CliCommand, example="memory.tar.gz")
@click.argument("dest", default=".", type=click.Path(path_type=Path))
@click.pass_obj
def backup(scope: Scope, dest: Path) -> None:
    """Back up the project into an archive, DEST, while it is used."""
    with scope.open() as memory, progress_bar() as report:
        now = datetime.now(UTC)
        archive = archives.write_backup(
            memory.folder, memory.project, dest, now, partial(report, "backing up")
        )
        manifest = archives.verify_backup(archive, partial(report, "verifying"))
    scope.show(
        {"archive": str(archive), **_manifest_figures(manifest), "bytes": archive.stat().st_size}
    )


@click.command(cls=CliCommand, example="memory.tar.gz --project copy")
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Only verify the archive.")
@click.pass_obj
def restore(scope: Scope, archive: Path, dry_run: bool) -> None:
    """Restore an archive as a new project."""
    with progress_bar() as report:
        if dry_run:
            manifest = archives.verify_backup(archive, partial(report, "verifying"))
            scope.show({"archive": str(archive), **_manifest_figures(manifest), "verified": True})
            return
        name, folder = archives.restore_backup(
            archive, scope.path, scope.project, partial(report, "restoring")
        )
        with MemTier.open(scope.path, name, create=False) as memory:
            counts = memory.reindex(partial(report, "reading the ledgers"))
    scope.show({"project": name, "folder": str(folder), **counts})


def _manifest_figures(manifest: views.Document) -> dict[str, Any]:
    names = ("project", "made", "memtier")
    return {**{name: manifest[name] for name in names}, "files": len(manifest["files"])}
