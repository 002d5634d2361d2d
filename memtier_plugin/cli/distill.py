"""`memtier distill` and `memtier gate`: make an embedding model, compare answers."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from memtier_plugin.cli.scope import CliCommand, Scope, progress_bar
from memtier_plugin.cli.views import Document, name_value_table, safe_text, short_id, table_view
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.paths import encode_file_name, make_home
from memtier_plugin.core.settings.load import load_settings, project_values
from memtier_plugin.core.settings.schema import Settings
from memtier_plugin.core.settings.yaml_file import YamlFile, read_config_text
from memtier_plugin.credit.regression import GateReport, Progress
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding.conversion import (
    DEFAULT_DIMENSIONS,
    collect_shared_words,
    distill_model,
)
from memtier_plugin.storage.home_files import register_export
from memtier_plugin.transfer.archive import restore_backup

# -- `memtier distill`: distil an embedding model from a sentence encoder


@click.command(
    cls=CliCommand,
    epilog="TEACHER is a folder with a transformers model, or the name of one on the Hugging Face "
    "hub. Needs the extra `distill`.",
    example="sentence-transformers/LaBSE my-model",
)
@click.argument("teacher")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--vocabulary",
    type=click.Choice(["project", "none"]),
    default="none",
    show_default=True,
    help="Add words used in several of the project's sessions or by several people.",
)
@click.option(
    "--dims",
    type=click.IntRange(8, 4096),
    default=DEFAULT_DIMENSIONS,
    show_default=True,
    help="Dimensions of the vectors, at most the teacher's.",
)
@click.pass_obj
def distill(scope: Scope, teacher: str, folder: Path, vocabulary: str, dims: int) -> None:
    """Distil TEACHER into an embedding model in FOLDER."""
    folder = folder.expanduser().resolve()
    if folder.is_relative_to(scope.path.resolve()):
        raise SettingsError(
            f"{folder} is inside the home, where a purge rewrites files; choose a folder outside"
        )
    started = time.monotonic()
    settings_file = scope.path / "config.yaml"
    if vocabulary == "project":
        with scope.open() as memory:
            register_export(memory.folder, folder, "model")  # for the receipts of purges
            model = distill_model(teacher, folder, _project_words(memory), dims)
        projects = scope.path / "projects"
        settings_file = projects / encode_file_name(memory.project) / "project.yaml"
    else:
        model = distill_model(teacher, folder, dimensions=dims)
    document: dict[str, Any] = {
        "folder": str(model.folder),
        "name": model.name,
        "teacher": teacher,
        "dimensions": model.dimensions,
        "tokens": model.tokens,
        "added_words": model.added_words,
        "bytes": model.size,
        "seconds": round(time.monotonic() - started, 1),
        "next": f"set embedding.model to this folder in {settings_file}, then run `memtier embed`",
    }
    scope.show(document)


def _project_words(memory: MemTier) -> list[str]:
    """Return the words shared in the project, excluding agents that keep theirs private."""
    agents = memory.settings.agents
    private = {name for name, rights in agents.items() if rights.promote != "all"}
    return collect_shared_words(
        entry for entry in memory.entries() if entry.agent_id not in private
    )


# -- `memtier gate`: ask the project's questions before and after a change

_SHOWN = 20  # questions that got worse


@click.command(
    cls=CliCommand,
    epilog="SETTINGS is a YAML file in the form of project.yaml: would these settings make answers "
    "worse? BACKUP is an archive made by `memtier backup`, and VERSION one that ran here: have "
    "answers got worse since?",
    example="--against candidate.yaml",
)
@click.option(
    "--against",
    metavar="SETTINGS|BACKUP|VERSION",
    help="The version to compare with [the previous one here].",
)
@click.pass_context
def gate(ctx: click.Context, against: str | None) -> None:
    """Test whether a change makes answers worse; exit 1 if so."""
    scope: Scope = ctx.obj
    with scope.open() as memory, progress_bar() as report:
        memory.catch_up()
        document = _check(scope, memory, against, report).to_json()
    scope.show(document, gate_view)
    ctx.exit(int(document["refused"]))


def _check(scope: Scope, memory: MemTier, against: str | None, report: Progress) -> GateReport:
    path = Path(against).expanduser() if against else None
    if path is None or not path.is_file():
        return memory.regression.check_version(against, report)
    if path.suffix in (".yaml", ".yml"):
        return _check_settings(scope, memory, path, report)
    with _copied(scope, memory, path) as candidate:
        return memory.regression.check_other(candidate.actor, path.name, report, later=False)


def _check_settings(scope: Scope, memory: MemTier, path: Path, report: Progress) -> GateReport:
    values = project_values(
        YamlFile.parse(str(path), read_config_text(path, within=path.parent) or "")
    )
    overrides = {".".join(key): value for key, value in values.items()}
    candidate = load_settings(memory.home, memory.project, Path.cwd(), overrides)
    if not _changes_index(memory.settings, candidate):
        return memory.regression.check_settings(candidate, path.name, report)
    with _copied(scope, memory, None, candidate) as copy:  # whose index depends on them
        return memory.regression.check_other(copy.actor, path.name, report, later=True)


def _changes_index(now: Settings, candidate: Settings) -> bool:
    return (now.language, now.embedding.model) != (candidate.language, candidate.embedding.model)


@contextmanager
def _copied(
    scope: Scope, memory: MemTier, archive: Path | None, settings: Settings | None = None
) -> Iterator[MemTier]:
    """Copy the project, or restore an archive, into a temporary home.

    Yield it open, with its own settings unless given.
    """
    with temporary_home(scope) as home:
        if archive:
            restore_backup(archive, home, memory.project)
        else:
            copy = home / "projects" / encode_file_name(memory.project)
            skipped = shutil.ignore_patterns(".*", "index.sqlite3*")
            shutil.copytree(memory.folder, copy, ignore=skipped)
        with MemTier.open(home, memory.project, memory.agent_id, settings) as candidate:
            candidate.catch_up()
            yield candidate


@contextmanager
def temporary_home(scope: Scope) -> Iterator[Path]:
    """Yield an empty home with the user's settings, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="memtier-") as folder:
        home = make_home(Path(folder) / "home")
        user_settings = scope.path / "config.yaml"
        if user_settings.is_file():
            write_private_file(home / "config.yaml", user_settings.read_text("utf-8"))
        yield home


def gate_view(document: Document) -> RenderableType:
    """Render the verdict and the questions with worse answers."""
    made = f"{document['history']} of this project's history"
    if document["probes"]:
        made += f", {document['probes']} made from what users said, as history is short"
    interval = f"[{document['low']:+.3f}, {document['high']:+.3f}]"
    rows: list[tuple[str, object]] = [
        ("compared with", document["against"]),
        ("questions", f"{document['questions']} ({made})"),
        ("before", f"{document['before']:.3f}"),
        ("after", f"{document['after']:.3f}"),
        (
            "difference",
            f"{document['difference']:+.3f} {interval}, tolerated -{document['tolerance']}",
        ),
        ("verdict", Text(document["verdict"], style="bold red" if document["refused"] else "bold")),
    ]
    parts: list[RenderableType] = [name_value_table(rows)]
    if document["worse"]:
        names = ("answered worse", "id", "before", "after")
        questions = (
            (row["query"], short_id(row["id"]), f"{row['before']:g}", f"{row['after']:g}")
            for row in document["worse"][:_SHOWN]
        )
        parts += ["", table_view(names, questions, wide=names[:1])]
        if (more := len(document["worse"]) - _SHOWN) > 0:
            parts.append(safe_text(f"{more} more: --json lists all", "dim"))
    return Group(*parts)
