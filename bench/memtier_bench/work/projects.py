"""Read projects of scripted work: sessions in order, and probes with their needs and traps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from memtier_plugin.core.errors import ImportFileError, SettingsError
from memtier_plugin.core.settings.yaml_file import YamlFile
from memtier_plugin.core.structs import Record, convert

SETS: Final = {name: Path(__file__).parent / f"projects/{name}.yaml" for name in ("tune", "held")}
R = TypeVar("R", bound=Record)

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

    A bar stands between alternatives of a need.  An answer that keeps the user's rule has all of
    ``keeps``, which may have such bars, and nothing of ``breaks``.
    """

    day: date
    agent: str
    kind: ProbeKind
    prompt: str
    needs: tuple[str, ...] = ()
    misleads: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()


class WorkProject(Record, frozen=True):
    """A project; ``language`` is an ISO 639 code, for the baseline's stemmer."""

    name: str
    sessions: tuple[WorkSession, ...]
    probes: tuple[WorkProbe, ...]
    language: str = "en"
    about: str = ""

    def by_day(self) -> Iterator[tuple[date, list[tuple[int, WorkSession | WorkProbe]]]]:
        """Yield each day with its sessions and then its probes, each with its number."""
        items: list[tuple[int, WorkSession | WorkProbe]] = [
            *enumerate(self.sessions),
            *enumerate(self.probes),
        ]  # the sort keeps their order
        items.sort(key=lambda item: item[1].day)
        for day, of_day in groupby(items, key=lambda item: item[1].day):
            yield day, [*of_day]


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
            project = _read(file, node, WorkProject, sessions=_read_session, probes=_read_probe)
            if project.name in projects:
                raise _problem(file, node, f"a second project is called {project.name!r}")
            projects[project.name] = project
    except (OSError, UnicodeDecodeError) as error:
        raise ImportFileError(f"{path}: {error}; the sets that ship: {', '.join(SETS)}") from None
    except SettingsError as error:
        raise ImportFileError(str(error)) from None
    return [*projects.values()]


def _problem(file: YamlFile, node: Any, reason: str) -> ImportFileError:
    where = f"{file.name}:1" if node is None else file.location(node)
    return ImportFileError(f"{where}: {reason}; see the projects of {SETS['tune']}")


def _items(file: YamlFile, node: Any, name: str) -> Iterator[Any]:
    """Yield the nodes of a list that must not be empty."""
    if node is None or node.id != "sequence" or not node.value:
        raise _problem(file, node, f"expected a list of {name}, found none")
    yield from node.value


def _read_session(file: YamlFile, node: Any) -> WorkSession:
    return _read(file, node, WorkSession, turns=_read_turn)


def _read_turn(file: YamlFile, node: Any) -> WorkTurn:
    turn = _read(file, node, WorkTurn)
    if sum(map(bool, (turn.user, turn.assistant, turn.tool))) != 1:
        raise _problem(file, node, "a turn is one of user, assistant and tool")
    return turn


def _read_probe(file: YamlFile, node: Any) -> WorkProbe:
    probe = _read(file, node, WorkProbe)
    if not (probe.needs or probe.misleads):
        raise _problem(file, node, "a probe has needs, misleads or both")
    return probe


def _read(file: YamlFile, node: Any, cls: type[R], **lists: Callable[[YamlFile, Any], Record]) -> R:
    """Read a record; the items of its ``lists`` are read by themselves, each with its line."""
    fields = {key: child for key, child, _ in file.pairs(node, "an item of a list")}
    if unknown := [key for key in fields if key not in cls.__struct_fields__]:
        names = ", ".join(cls.__struct_fields__)
        raise _problem(file, fields[unknown[0]], f"no key {unknown[0]!r}; one of: {names}")
    values: dict[str, Any] = {
        key: file.value(child) for key, child in fields.items() if key not in lists
    }
    for name, read in lists.items():
        values[name] = [read(file, item) for item in _items(file, fields.get(name, node), name)]
    try:
        return convert(values, cls)
    except KeyError as error:
        raise _problem(file, node, f"{error} is missing") from None
    except ValueError as error:
        raise _problem(file, node, str(error)) from None
