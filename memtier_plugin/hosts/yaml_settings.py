"""Edit hosts' YAML files in place: one value, Hermes' provider, a consent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import encode_file_name
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.providers.chat import HOST_MODEL

# -- Set one value of a section in a YAML file, leaving every other byte unchanged
#
# The text is edited in place to keep comments, order and style; the result is parsed again and
# rejected unless it has exactly the intended values.  ruamel.yaml's round trip rewrites lines
# that are not edited: spaces, indents, the width of lists in braces.


def read_value(text: str, where: str, section: str, key: str) -> Any:
    """Return a value of a section, None if it is missing.

    Raises:
        SettingsError: the text is not a valid configuration.
    """
    return (_read(text, where, section).get(section) or {}).get(key)


def set_value(text: str, where: str, section: str, key: str, value: str) -> str:
    """Return the text with this value, given as YAML source.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    before = _read(text, where, section)
    body = _value(yaml.compose(text, Loader=yaml.SafeLoader), section)
    existing = _value(body, key)
    if existing is not None:
        new = text[: existing.start_mark.index] + value + text[existing.end_mark.index :]
    elif body is None and before:
        gap = "" if text.endswith("\n") else "\n"
        new = f"{text}{gap}{section}:\n  {key}: {value}\n"
    elif body is None:  # nothing but comments, or an empty mapping
        new = re.sub(r"\A(\s*)\{\s*\}", r"\1", text)
        gap = "" if not new or new.endswith("\n") else "\n"
        new = f"{new}{gap}{section}:\n  {key}: {value}\n"
    elif isinstance(body, yaml.MappingNode) and body.value:
        first = body.value[0][0].start_mark
        comma = ", " if body.flow_style else "\n" + " " * first.column
        new = f"{text[: first.index]}{key}: {value}{comma}{text[first.index :]}"
    else:  # an empty section, or `{}`
        start, end = body.start_mark.index, body.end_mark.index
        new = f"{text[:start].rstrip(' ')} {{{key}: {value}}}{text[end:]}"
    expected = {**before, section: {**(before.get(section) or {}), key: yaml.safe_load(value)}}
    if _again(new) != expected:
        raise SettingsError(f"{where}: set {section}.{key} to {value} manually, then try again")
    return new


def restore_value(
    text: str, where: str, section: str, key: str, ours: str, before: str | None, empty: str
) -> str:
    """Return the text with the former value, if it still has ours.

    Args:
        before: the former value, None for none.
        empty: the YAML for no value, where the key cannot be removed.
    """
    if read_value(text, where, section, key) != ours:
        return text
    if before is not None:
        return set_value(text, where, section, key, before)
    now = _read(text, where, section)
    line = rf"^[ \t]*{key}:[ \t]*{ours}[ \t]*(?:#[^\n]*)?(?:\n|\Z)"
    without = re.sub(line, "", text, count=1, flags=re.MULTILINE)
    rest = {name: value for name, value in now[section].items() if name != key}
    if rest and _again(without) == {**now, section: rest}:
        return without
    return set_value(text, where, section, key, empty)


def remove_value(text: str, where: str, section: str, key: str, former: str) -> str:
    """Return the text without a key of a section, or with its value in a former text.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    now = _read(text, where, section)
    body = dict(now.get(section) or {})
    if body.pop(key, None) is None:
        return text
    if (held := read_value(former, where, section, key)) is not None:
        return set_value(text, where, section, key, json.dumps(held, ensure_ascii=False))
    top: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    emptied = not body and section not in _read(former, where, section)
    node, name = (top, section) if emptied else (_value(top, section), key)
    [(name_node, entry)] = [pair for pair in node.value if pair[0].value == name]
    start, end = name_node.start_mark, entry.end_mark
    last = end.index - end.column  # of a block: where the next line begins
    if entry.flow_style:
        last = f"{text}\n".index("\n", end.index) + 1
    new = text[: start.index - start.column] + text[last:]
    expected = {**now, section: body or None}
    if emptied:
        del expected[section]
    if (_again(new) or {}) != expected:
        raise SettingsError(f"{where}: remove {section}.{key} manually, then try again")
    return new


def _read(text: str, where: str, section: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{where}: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{where}: expected a mapping")
    body = document.get(section)
    if body is not None and not isinstance(body, dict):
        raise SettingsError(f"{where}: {section} is {body!r:.40}, expected a mapping")
    return document


def _again(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _value(node: Any, name: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


# -- Edit the memory provider in Hermes' configuration, leaving every other byte unchanged


def read_provider(text: str, where: str) -> str | None:
    """Return the memory provider that a configuration selects.

    Raises:
        SettingsError: the text is not a valid configuration.
    """
    provider = read_value(text, where, "memory", "provider")
    return str(provider) if provider else None


def set_provider(text: str, where: str, provider: str) -> str:
    """Return the configuration with this memory provider.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    return set_value(text, where, "memory", "provider", provider)


def restore_provider(text: str, where: str, before: str | None) -> str:
    """Return the configuration with the former provider, if it still selects MemTier.

    Args:
        before: the former provider, None for none.
    """
    return restore_value(text, where, "memory", "provider", "memtier", before, '""')


# -- Record the user's consent to using a host's model
#
# Consent is given per project and host, and recorded in two places: the project's settings select
# the host's model for extracting facts, and the host's configuration permits this plugin to use it.
# Both are required.

_SECTION: Final = "consolidation"
_KEY: Final = "model"
_NONE: Final = "none"


def settings_path(home: Path, project: str) -> Path:
    """Return the path of a project's settings."""
    return home / "projects" / encode_file_name(project) / "project.yaml"


def is_consented(home: Path, project: str) -> bool:
    """Return whether a project's settings select the host's model.

    Raises:
        SettingsError: the settings are not valid.
    """
    return load_settings(home, project).consolidation.model == HOST_MODEL


def select_model(text: str, where: str, *, use: bool, selected: bool) -> str:
    """Return a project's settings with the host's model, or without it.

    Args:
        selected: whether the host's model is selected now, by these settings or the user's own.

    Raises:
        SettingsError: the settings name another model, or cannot be edited safely.
    """
    now = read_value(text, where, _SECTION, _KEY)
    if not use:
        return set_value(text, where, _SECTION, _KEY, _NONE) if selected else text
    if now not in (None, _NONE, HOST_MODEL):
        raise SettingsError(
            f"{where}: consolidation.model is {now}; remove it to use the host's model instead"
        )
    return text if now == HOST_MODEL else set_value(text, where, _SECTION, _KEY, HOST_MODEL)


def restore_model(text: str, where: str, before: str) -> str:
    """Return a project's settings with the model selected before installation."""
    former = read_value(before, where, _SECTION, _KEY)
    return restore_value(text, where, _SECTION, _KEY, HOST_MODEL, former, _NONE)


def openclaw_models(config: Mapping[str, Any], where: str) -> list[str]:
    """Return the configured models of OpenClaw's agents, named as in its policy.

    Raises:
        SettingsError: none is configured, so there is nothing to consent to.
    """
    agents = _mapping(config.get("agents"))
    entries = agents.get("list")
    chosen = [_mapping(agents.get("defaults")).get("model")]
    chosen += (
        [_mapping(entry).get("model") for entry in entries] if isinstance(entries, list) else []
    )
    models = [
        model["primary"] if isinstance(model, dict) and "primary" in model else model
        for model in chosen
    ]
    named = [model for model in dict.fromkeys(m for m in models if isinstance(m, str)) if model]
    if not named:
        raise SettingsError(
            f"{where}: agents.defaults.model names no model to consent to; set it first"
        )
    return named


def permit_openclaw(entry: dict[str, Any], models: list[str] | None) -> None:
    """Set OpenClaw's model policy and the plugin's consent in its entry, or remove both if None."""
    config = entry.setdefault("config", {})
    gates = {**_mapping(entry.get("llm"))}
    if models is not None:
        gates["allowedCompletionModels"] = models
        config["hostModel"] = True
    elif config.pop("hostModel", None):  # otherwise the policy is the user's own
        gates.pop("allowedCompletionModels", None)
    if gates:
        entry["llm"] = gates
    else:
        entry.pop("llm", None)


def check_openclaw(
    config: Mapping[str, Any], entry: Mapping[str, Any], home: Path, where: str
) -> Iterator[HealthFinding]:
    """Check that OpenClaw and the project agree on the use of its model."""
    ours = _mapping(entry.get("config"))
    yield from _check_consent("openclaw", ours.get("hostModel"), ours.get("project"), home, where)
    permitted = _mapping(entry.get("llm")).get("allowedCompletionModels")
    if ours.get("hostModel") is not True or not isinstance(permitted, list) or "*" in permitted:
        return
    try:
        models = openclaw_models(config, where)
    except SettingsError:
        return
    if changed := [model for model in models if model not in permitted]:
        yield HealthFinding(
            "warn",
            f"OpenClaw refuses MemTier its model {', '.join(changed)}: the consent was given for "
            + ", ".join(map(str, permitted)),
            where,
            "memtier install openclaw --use-host-model",
        )


def check_hermes(
    plugin_config: Mapping[str, Any], home: Path, where: str
) -> Iterator[HealthFinding]:
    """Check that Hermes and the project agree on the use of its model."""
    project = plugin_config.get("project")
    yield from _check_consent("hermes", plugin_config.get("host_model"), project, home, where)


def _check_consent(
    host: str, permitted: Any, project: Any, home: Path, where: str
) -> Iterator[HealthFinding]:
    if not isinstance(project, str):
        return
    try:
        selected = is_consented(home, project)
    except SettingsError:
        return  # reported with the settings
    again = f"memtier install {host} --use-host-model"
    if selected and permitted is not True:
        yield HealthFinding(
            "warn", f"{host} does not offer its model: consent is missing there", where, again
        )
    elif selected:
        yield HealthFinding("ok", f"{host} offers its model for facts of {project!r}", where)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
