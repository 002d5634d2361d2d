"""Load layered settings, and find the project that a folder belongs to.

Precedence: call > environment ``MEMTIER_*`` > workspace file > project > user > defaults.  Every
value is checked in its own layer, and keeps the place that set it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.paths import check_format, encode_file_name, make_home
from memtier_plugin.core.settings.schema import (
    NO_KEYS,
    AgentRights,
    Endpoint,
    ModelPrice,
    Settings,
    Within,
)
from memtier_plugin.core.settings.yaml_file import (
    USER_NAMED_SECTIONS,
    KeyPath,
    YamlFile,
    all_keys,
    edit_yaml,
    key_pattern,
    missing_package,
    plugin_sections,
    read_config_text,
)

if TYPE_CHECKING:
    from yaml import Node

Section = TypeVar("Section")


class SourcedValue(NamedTuple):
    """A value and where it was set: ``default``, ``file:line``, ``environment NAME``, ``call``."""

    value: Any
    source: str


_Layer = dict[KeyPath, SourcedValue]

_NOT_KEYS: Final = frozenset(
    {
        *("MEMTIER_HOME", "MEMTIER_PROJECT"),
        # Used by clients of residents on other machines (`hooks.remote`).
        *("MEMTIER_RESIDENTS", "MEMTIER_TOKEN", "MEMTIER_TOKEN_FILE", "MEMTIER_CA_FILE"),
    }
)
_UNSERVED: Final = "unserved"  # prefix of the paths of keys whose package is missing
_WORKSPACE_KEYS: Final = (
    ("project",),
    ("language",),
    ("retrieval", "k"),
    ("retrieval", "token_budget"),
    ("retrieval", "weights"),
)
_WORKSPACE_WEIGHTS: Final = Within(0, 1.0)
# Values that files of earlier versions use, with their present names.
_RENAMED: Final = {("ledger.durability", "fsync"): "sync"}

_Kind = Literal["user", "project", "workspace", "environment", "call"]


def load_settings(
    home: Path,
    project: str,
    workspace: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Settings:
    """Read all layers and return the effective settings.

    ``overrides`` (the call) are nested or have dotted keys; ``env`` is ``os.environ`` by default.

    Raises:
        SettingsError: naming the file and line, the key and the remedy.
        UnsafePath: a file in the home is a symlink or not the user's.
        HomeTooNew: a newer MemTier wrote the home.
    """
    layer = _merge_layers(home, project, workspace, overrides, env)
    unserved = tuple(f"{path[1]} ({s.source})" for path, s in layer.items() if path[0] == _UNSERVED)
    filled = [_fill_section(kind(), layer, path) for kind, path in plugin_sections()]
    chosen = {type(section): section for section in filled if section != type(section)()}
    return replace(_fill_section(Settings(), layer, ()), plugins=chosen, unserved=unserved)


def setting_sources(
    home: Path,
    project: str,
    workspace: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, SourcedValue]:
    """Return every dotted key with its value and the place that set it."""
    merged = _merge_layers(home, project, workspace, overrides, env)
    return {".".join(path): s for path, s in merged.items() if path[0] != _UNSERVED}


def flatten_settings(settings: Settings) -> dict[str, Any]:
    """Return every value by its dotted key; `load_settings` accepts them as overrides."""
    values = dict(_leaves(settings, ()))
    for section, path in plugin_sections():
        values = dict(_leaves(settings.of(section), path)) | values
    return {".".join(path): value for path, value in values.items()}


def resolve_project(home: Path, workspace: Path | None) -> str:
    """Return a folder's project: its binding, its nearest parent's binding, or its own.

    An unbound folder's project is derived from its real path; without a folder it is
    ``default``.
    """
    if workspace is None:
        return "default"
    folder = _real(workspace)
    bound = _nearest_binding(home, folder)
    if bound:
        return bound.project
    name = os.fsencode(folder.name).decode("utf-8", "replace") or "root"
    return f"{name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"


def bound_project(home: Path, workspace: Path) -> str | None:
    """Return the project that a folder, or its nearest parent, is bound to."""
    bound = _nearest_binding(home, _real(workspace))
    return bound.project if bound else None


def bind_workspace(home: Path, workspace: Path, project: str) -> None:
    """Bind a folder to a project in the user's ``config.yaml``.

    The file is replaced as a whole, with mode 0600.

    Raises:
        SettingsError: the file is already invalid, or too unusual to be edited safely.
        UnsafePath, LedgerWriteError: the home is not ours, or cannot be written.
    """
    if not project.strip():
        raise SettingsError(f"a project needs a name, not {project!r}")
    path, folder = make_home(home) / "config.yaml", str(_real(workspace))
    text = read_config_text(path) or ""
    _values(_file_layer(YamlFile.parse(str(path), text), "user"))

    def bind(settings: Any) -> None:
        settings["workspaces"] = settings.get("workspaces") or {}
        settings["workspaces"][folder] = project

    write_private_file(path, edit_yaml(text, str(path), bind))


def project_values(file: YamlFile) -> dict[KeyPath, Any]:
    """Return the keys that a project's file sets, with their values.

    Raises:
        SettingsError: a key or a value is wrong.
    """
    return _values(_file_layer(file, "project"))


def _is_section(path: KeyPath, source: str) -> bool:
    """Return whether a path is a section rather than a key; raise SettingsError if neither."""
    keys, pattern = all_keys(), key_pattern(path)
    if pattern in keys:
        return False
    if any(key[: len(pattern)] == pattern for key in keys):
        return True
    if missing_package(path):
        return False
    name = ".".join(path)[:80]
    names = [".".join(key) for key in keys]
    same_end = [".".join(key) for key in keys if key[-1] == path[-1]]
    raise SettingsError(f"{source}: unknown key {name!r}; {_hint(name, names, same_end)}")


def _hint(name: str, names: Iterable[str], best: list[str] | None = None) -> str:
    near = best or difflib.get_close_matches(name, names, 1, 0.5)
    return (
        f"did you mean {near[0]!r}?" if near else "remove it: `memtier config show` lists the keys"
    )


def _set(layer: _Layer, path: KeyPath, value: Any, source: str, kind: _Kind) -> None:
    """Add a value to a layer, if the key accepts it and its source may set it."""
    name, key = ".".join(path), all_keys().get(key_pattern(path))
    if kind == "workspace":
        # This file comes with a repository: it must not redirect, reveal or switch off anything.
        if not any(path[: len(allowed)] == allowed for allowed in _WORKSPACE_KEYS):
            names = ", ".join(".".join(allowed) for allowed in _WORKSPACE_KEYS)
            raise SettingsError(
                f"{source}: a workspace file may not set {name!r}, only {names}; "
                "set it in the home's config.yaml or project.yaml"
            )
        if path[:2] == ("retrieval", "weights"):
            key = key and key._replace(limits=_WORKSPACE_WEIGHTS)
    elif path[0] == "project" or (path[0] == "workspaces" and kind != "user"):
        file = "a workspace's .memtier.yaml" if path[0] == "project" else "the home's config.yaml"
        raise SettingsError(f"{source}: {name!r} can be set only in {file}")
    elif (path[0] == "endpoints" or path == ("ledger", "shared")) and kind not in ("user", "call"):
        # Only the user decides where texts and keys are sent, whoever shares a project's folder.
        raise SettingsError(f"{source}: {name!r} can be set only in the home's config.yaml")
    elif path[0] in ("resident", "telemetry") and kind == "project":  # for the same reason
        raise SettingsError(f"{source}: {name!r} can be set only in the home's config.yaml")
    if isinstance(value, str):  # any other value may be too large to print: aliases of aliases
        value = _RENAMED.get((name, value), value)
    if (key is None or not key.takes(value)) and missing_package(path, value):
        layer[_UNSERVED, name] = SourcedValue(value, source)
        return
    assert key  # `_is_section` has rejected unknown keys
    try:
        layer[path] = SourcedValue(key.accept(value), source)
    except ValueError as error:
        raise SettingsError(f"{source}: {name} is {_shorten(value)}; {error}") from None


def _shorten(value: Any) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to print an int of thousands of digits
        return "a very long number"


# --- One layer per source ---


def _merge_layers(
    home: Path,
    project: str,
    workspace: Path | None,
    overrides: Mapping[str, Any] | None,
    env: Mapping[str, str] | None,
) -> _Layer:
    """Merge the layers, each over the one below it."""
    merged = {
        path: SourcedValue(k.default, "default")
        for path, k in all_keys().items()
        if "*" not in path
    }
    merged |= _user_layer(home)
    merged |= _read_layer(home / "projects" / encode_file_name(project) / "project.yaml", "project")
    merged |= _workspace_layer(home, workspace) if workspace is not None else {}
    merged |= _environment_layer(os.environ if env is None else env)
    merged |= _call_layer(overrides or {}, ())
    merged |= _rest_of_named(merged)
    return {path: s for path, s in merged.items() if path[0] not in ("project", "workspaces")}


def _rest_of_named(merged: _Layer) -> _Layer:
    """Return the defaults for the keys that a user-named section leaves out."""
    named = {path[:2] for path in merged if path[0] in USER_NAMED_SECTIONS}
    return {
        (*name, *path[2:]): SourcedValue(key.default, "default")
        for path, key in all_keys().items()
        for name in sorted(named)
        if path[:2] == (name[0], "*")
        and key.default is not None
        and (*name, *path[2:]) not in merged
    }


def _user_layer(home: Path) -> _Layer:
    check_format(home)  # first: what a newer version calls its keys is no mistake of the user's
    return _read_layer(home / "config.yaml", "user")


def _read_layer(path: Path, kind: _Kind, within: Path | None = None) -> _Layer:
    text = read_config_text(path, within=within)
    return _file_layer(YamlFile.parse(str(path), text), kind) if text else {}


def _file_layer(file: YamlFile, kind: _Kind) -> _Layer:
    layer: _Layer = {}

    def walk(node: Node | None, prefix: KeyPath) -> None:
        for name, child, source in file.pairs(node, ".".join(prefix) or "the file"):
            here = (*prefix, name)
            if _is_section(here, source):
                walk(child, here)
            else:
                _set(layer, here, file.value(child), source, kind)

    walk(file.root, ())
    return layer


def _workspace_layer(home: Path, workspace: Path) -> _Layer:
    """Read the workspace's own file, or else that of the nearest bound parent folder."""
    folder = _real(workspace)
    bound = _nearest_binding(home, folder)
    layer = _read_layer(folder / ".memtier.yaml", "workspace", within=folder)
    if not layer and bound:
        layer = _read_layer(bound.folder / ".memtier.yaml", "workspace", within=bound.folder)
    named = layer.get(("project",))
    if named and named.value != (bound and bound.project):
        raise SettingsError(
            f"{named.source}: this folder asks for the project {named.value!r}, but you have not "
            f"bound it to that project; if you trust it: memtier init --project {named.value!r}"
        )
    return layer


def _environment_layer(env: Mapping[str, str]) -> _Layer:
    names = {"MEMTIER_" + "__".join(path).upper(): path for path in all_keys() if "*" not in path}
    layer: _Layer = {}
    for name, text in sorted(env.items()):
        if not name.startswith("MEMTIER_") or name in _NOT_KEYS:
            continue
        path = names.get(name) or tuple(name.removeprefix("MEMTIER_").lower().split("__"))
        if name not in names and not missing_package(path):
            raise SettingsError(
                f"environment {name}: unknown key; {_hint(name[:80], names)} "
                f"`unset {name[:80]}` removes it"
            )
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        _set(layer, path, value, f"environment {name}", "environment")
    return layer


def _call_layer(overrides: Mapping[str, Any], prefix: KeyPath) -> _Layer:
    layer: _Layer = {}
    for name, value in overrides.items():
        here = (*prefix, *_split(str(name), prefix))
        if not _is_section(here, "call"):
            _set(layer, here, value, "call", "call")
        elif isinstance(value, Mapping):
            layer |= _call_layer(value, here)
        else:
            raise SettingsError(f"call: {'.'.join(here)} must be a mapping, not {_shorten(value)}")
    return layer


def _split(name: str, prefix: KeyPath) -> KeyPath:
    """Split a dotted key; an agent's id or an endpoint's name may itself contain dots."""
    if prefix[:1] and prefix[0] in USER_NAMED_SECTIONS:
        return (name,)
    head, _, rest = name.partition(".")
    if head in USER_NAMED_SECTIONS and rest:
        agent, _, right = rest.rpartition(".")
        return (head, agent, right)
    return tuple(name.split("."))


# --- Settings from a layer and back ---


def _fill_section(section: Section, layer: _Layer, path: KeyPath) -> Section:
    """Return a section of the defaults with the layer's values."""
    values: dict[str, Any] = {}
    for f in fields(section):  # type: ignore[arg-type]
        here, default = (*path, f.name), getattr(section, f.name)
        if is_dataclass(default):
            values[f.name] = _fill_section(default, layer, here)
        elif isinstance(default, Mapping):
            names = dict.fromkeys(p[1] for p in layer if p[:1] == here)
            values[f.name] = {n: _named(here[0], layer, (*here, n)) for n in names}
        elif here in layer:
            values[f.name] = layer[here].value
    return replace(section, **values)  # type: ignore[type-var]


def _named(section: str, layer: _Layer, path: KeyPath) -> AgentRights | Endpoint | ModelPrice:
    """Return what the layer sets in a user-named section."""
    if section == "agents":
        return _fill_section(AgentRights(), layer, path)
    if section == "prices":
        return _fill_section(ModelPrice(), layer, path)
    if (*path, "base_url") not in layer:
        source = next(sourced.source for p, sourced in layer.items() if p[:2] == path)
        raise SettingsError(f"{source}: {'.'.join(path)} has no base_url")
    return _fill_section(Endpoint(base_url=""), layer, path)


def _leaves(section: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    names = section if isinstance(section, Mapping) else [f.name for f in fields(section)]
    for name in names:
        if not path and name in NO_KEYS:
            continue
        value = section[name] if isinstance(section, Mapping) else getattr(section, name)
        if is_dataclass(value) or isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _values(layer: _Layer) -> dict[KeyPath, Any]:
    return {path: sourced.value for path, sourced in layer.items()}


# --- Folders and the projects that they are bound to ---


class _Binding(NamedTuple):
    folder: Path
    project: str


def _nearest_binding(home: Path, folder: Path) -> _Binding | None:
    """Return the nearest bound folder: this real path, or a parent of it."""
    bindings = _values(_user_layer(home))
    for candidate in (folder, *folder.parents):
        project = bindings.get(("workspaces", str(candidate)))
        if project:
            return _Binding(candidate, project)
    return None


def _real(workspace: Path) -> Path:
    try:
        return Path(os.path.realpath(workspace))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the workspace {str(workspace)!r} is not a valid folder: {error}"
        ) from None
