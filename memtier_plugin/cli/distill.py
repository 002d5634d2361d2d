"""`memtier distill`: make an embedding model of one's own from a sentence encoder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import encode_file_name
from memtier_plugin.memory import MemTier
from memtier_plugin.providers.embedding.distill import DEFAULT_DIMENSIONS, distill_model
from memtier_plugin.storage.export_register import register_export
from memtier_plugin.text.shared_words import collect_shared_words


@click.command(
    cls=CliCommand,
    epilog="TEACHER is a folder with a transformers model, or the name of one on the Hugging Face "
    "hub. Needs the extra: pip install 'memtier[distill]'.",
    example="sentence-transformers/LaBSE my-model",
)
@click.argument("teacher")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--vocabulary",
    type=click.Choice(["project", "none"]),
    default="none",
    show_default=True,
    help="Add the words that the project's sessions and people share.",
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
    """Distil an embedding model of TEACHER into FOLDER."""
    folder = folder.expanduser().resolve()
    if folder.is_relative_to(scope.path.resolve()):
        raise SettingsError(
            f"{folder} lies in the home, where a purge rewrites files; name a folder outside"
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
    """Return the words that the project shares, but for agents whose words stay their own."""
    agents = memory.settings.agents
    private = {name for name, rights in agents.items() if rights.promote != "all"}
    return collect_shared_words(
        entry for entry in memory.entries() if entry.agent_id not in private
    )
