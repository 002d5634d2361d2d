"""Read projects of scripted work: sessions in order, and probes with their needs and traps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal

from memtier_plugin.core.errors import ImportFileError, SettingsError
from memtier_plugin.core.settings.yaml_file import YamlFile
from memtier_plugin.core.structs import Record, T, convert

SETS: Final = {name: Path(__file__).parent / f"projects/{name}.yaml" for name in ("tune", "held")}
# correction: a rule from an earlier correction; decision: what was decided, which the task would
# decide anew; intention: its event or date has come; change: of a value that was replaced; unlike:
# another task than any before; none: needs no memory.
ProbeKind = Literal["correction", "decision", "intention", "change", "unlike", "none"]


class WorkTurn(Record, frozen=True):
    """What a user or an assistant says, or a tool's call, its output, and whether it worked."""

    user: str = ""
    assistant: str = ""
    tool: str = ""
    call: str = ""
    output: str = ""
    ok: bool = True


class WorkSession(Record, frozen=True):
    """A session of an agent on a day."""

    day: date
    agent: str
    turns: tuple[WorkTurn, ...]


class WorkProbe(Record, frozen=True):
    """A prompt, what its block must have, and what it must not have unmarked.

    A bar stands between alternatives of a need.
    """

    day: date
    agent: str
    kind: ProbeKind
    prompt: str
    needs: tuple[str, ...] = ()
    misleads: tuple[str, ...] = ()


class WorkProject(Record, frozen=True):
    """A project; ``language`` is an ISO 639 code, for the baseline's stemmer."""

    name: str
    sessions: tuple[WorkSession, ...]
    probes: tuple[WorkProbe, ...]
    language: str = "en"


def load_projects(path: Path) -> list[WorkProject]:
    """Read the projects of a file.

    Raises:
        ImportFileError: it is missing or malformed; names file, line and remedy.
    """
    try:
        file = YamlFile.parse(str(path), path.read_text("utf-8"))
        fields = {key: node for key, node, _ in file.pairs(file.root)}
        projects: dict[str, WorkProject] = {}
        for node in _items(file, fields.get("projects", file.root), "projects"):
            project = _read_project(file, node)
            if project.name in projects:
                raise _problem(file, node, f"a second project is called {project.name!r}")
            projects[project.name] = project
    except (OSError, UnicodeDecodeError) as error:
        raise ImportFileError(f"{path}: {error}; the sets that ship: {', '.join(SETS)}") from None
    except SettingsError as error:
        raise ImportFileError(str(error)) from None
    return [*projects.values()]


def _problem(file: YamlFile, node: Any, reason: str) -> ImportFileError:
    where = file.location(node) if node is not None else f"{file.name}:1"
    return ImportFileError(f"{where}: {reason}; see the projects of {SETS['tune']}")


def _items(file: YamlFile, node: Any, name: str) -> Iterator[Any]:
    """Yield the nodes of a list that must not be empty."""
    if node is None or node.id != "sequence" or not node.value:
        raise _problem(file, node, f"expected a list of {name}, found none")
    yield from node.value


def _read_project(file: YamlFile, node: Any) -> WorkProject:
    fields = {key: child for key, child, _ in file.pairs(node, "a project")}
    sessions = [
        _read(file, each, WorkSession) for each in _items(file, fields.get("sessions"), "sessions")
    ]
    probes = [_read(file, each, WorkProbe) for each in _items(file, fields.get("probes"), "probes")]
    rest = {key: file.value(child) for key, child in fields.items() if key in ("name", "language")}
    try:
        return convert({**rest, "sessions": sessions, "probes": probes}, WorkProject)
    except (KeyError, ValueError) as error:
        raise _problem(file, node, _reason(error)) from None


def _read(file: YamlFile, node: Any, cls: type[T]) -> T:
    try:
        record = convert(file.value(node), cls)
    except (KeyError, ValueError) as error:
        raise _problem(file, node, _reason(error)) from None
    if isinstance(record, WorkSession):
        for turn in record.turns:
            if sum(map(bool, (turn.user, turn.assistant, turn.tool))) != 1:
                raise _problem(file, node, "a turn is one of user, assistant and tool")
    elif isinstance(record, WorkProbe) and not (record.needs or record.misleads):
        raise _problem(file, node, "a probe has needs, misleads or both")
    return record


def _reason(error: KeyError | ValueError) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
