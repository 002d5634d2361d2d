"""Open a project's storage: its own, or one that it shares by a server."""

from __future__ import annotations

from pathlib import Path

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.settings.schema import NOWHERE, Settings
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.shared.marker import shared_name
from memtier_plugin.storage.store import Store


def open_store(home: Path, project: str, settings: Settings) -> Store:
    """Return a project's storage: shared, if this machine joined it.

    Raises:
        SettingsError: it is shared, and `ledger.shared` does not say where.
    """
    folder = ProjectFolder.of(home, project)
    name = shared_name(folder.path)
    if name is None:
        return Store(home, project, settings)
    if settings.ledger.shared == NOWHERE:
        raise SettingsError(
            f"project {project!r} is shared: set ledger.shared in {home / 'config.yaml'}"
        )
    # Here: a project of this machine alone needs no client of a server.
    from memtier_plugin.storage.shared.engines import open_ledger
    from memtier_plugin.storage.shared.store import SharedStore

    url = settings.ledger.shared
    durable = settings.ledger.durability == "sync"
    return SharedStore(home, project, settings, open_ledger(url, name, durable=durable))
