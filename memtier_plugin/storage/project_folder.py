"""The folder that a project has on this machine, besides its log and its index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from memtier_plugin.core.paths import encode_file_name, make_private_folder


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """Where a project keeps its notes: settings, hook marks, job states, a purge's plan.

    Every backend has this folder, wherever its log is.  The files that also lie in it with this
    backend, the ledgers and the index, are reached through the store only.

    Attributes:
        home: the folder of all projects, with the hosts' queue, the logs and the socket.
        path: the project's own folder.
    """

    home: Path
    path: Path

    @classmethod
    def of(cls, home: Path, project: str) -> ProjectFolder:
        """Return the folder of a project, which need not exist."""
        return cls(home, home / "projects" / encode_file_name(project))

    def make(self, *parts: str) -> Path:
        """Create the folder, or one within it, and return it.

        Raises:
            UnsafePath: a step is a symlink, not a folder, or belongs to somebody else.
            LedgerWriteError: it cannot be made.
        """
        return make_private_folder(self.home, "projects", self.path.name, *parts)
