"""Set single values in hosts' YAML files, and record a user's consent to a host's model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import encode_file_name
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.core.settings.yaml_file import edit_yaml
from memtier_plugin.hosts.config_files import section
from memtier_plugin.operations.background import HealthFinding
from memtier_plugin.providers.chat import HOST_MODEL

# -- Set one value of a section in a YAML file


def read_value(text: str, where: str, section: str, key: str) -> Any:
    """Return a value of a section, None if it is missing.

    Raises:
        SettingsError: the text is not a valid configuration.
    """
    try:
        document = yaml.safe_load(text) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{where}: not YAML: {error}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{where}: expected a mapping")
    body = document.get(section)
    if body is not None and not isinstance(body, dict):
        raise SettingsError(f"{where}: {section} is {body!r:.40}, expected a mapping")
    return (body or {}).get(key)


def set_value(text: str, where: str, section: str, key: str, value: Any) -> str:
    """Return the text with this value.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    if read_value(text, where, section, key) == value:
        return text

    def change(document: Any) -> None:
        if not document.get(section):
            document[section] = {}
        document[section][key] = value

    return edit_yaml(text, where, change)


def restore_value(text: str, where: str, section: str, key: str, former: str) -> str:
    """Return the text with a value as in a former text, and without a section this empties.

    Raises:
        SettingsError: the text is not a valid configuration, or cannot be edited safely.
    """
    value = read_value(former, where, section, key)
    if value is not None or read_value(text, where, section, key) is None:
        return text if value is None else set_value(text, where, section, key, value)
    had_section = section in (yaml.safe_load(former) or {})

    def change(document: Any) -> None:
        del document[section][key]
        if not document[section] and not had_section:
            del document[section]

    return edit_yaml(text, where, change)


PROVIDER: Final = ("memory", "provider")  # in Hermes' configuration

# -- Record the user's consent to using a host's model
#
# Consent is given per project and host, and recorded in two places: the project's settings select
# the host's model for extracting facts, and the host's configuration permits this plugin to use it.
# Both are required.

_MODEL: Final = ("consolidation", "model")
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
    """Return a project's settings with the host's model selected or removed.

    Args:
        selected: whether the host's model is selected now, by these settings or the user's own.

    Raises:
        SettingsError: the settings name another model, or cannot be edited safely.
    """
    now = read_value(text, where, *_MODEL)
    if not use:
        return set_value(text, where, *_MODEL, _NONE) if selected else text
    if now not in (None, _NONE, HOST_MODEL):
        raise SettingsError(
            f"{where}: consolidation.model is {now}; remove it to use the host's model instead"
        )
    return set_value(text, where, *_MODEL, HOST_MODEL)


def restore_model(text: str, where: str, before: str) -> str:
    """Return a project's settings with the model selected before installation."""
    if read_value(text, where, *_MODEL) != HOST_MODEL:
        return text
    return restore_value(text, where, *_MODEL, before)


def openclaw_models(config: Mapping[str, Any], where: str) -> list[str]:
    """Return the configured models of OpenClaw's agents, named as in its policy.

    Raises:
        SettingsError: none is configured, so there is nothing to consent to.
    """
    agents = section(config, "agents")
    entries = agents.get("list")
    chosen = [section(agents, "defaults").get("model")]
    chosen += [section(e).get("model") for e in entries] if isinstance(entries, list) else []
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
    gates = {**section(entry, "llm")}
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
    ours = section(entry, "config")
    yield from _check_consent("openclaw", ours.get("hostModel"), ours.get("project"), home, where)
    permitted = section(entry, "llm").get("allowedCompletionModels")
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
