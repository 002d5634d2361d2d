"""Record the user's consent that MemTier asks a host's own model.

Consent is given once per project and host, and stands in two places: the project's settings say
that its facts are extracted by the host's model, and the host's configuration that this plugin may
ask for it.  Without both nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import SettingsError
from memtier_plugin.core.paths import encode_file_name
from memtier_plugin.core.settings.load import load_settings
from memtier_plugin.hosts.yaml_edit import read_value, restore_value, set_value
from memtier_plugin.operations.health.finding import HealthFinding
from memtier_plugin.providers.host_model import HOST_MODEL

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
            f"{where}: consolidation.model is {now}; take it out to use the host's model instead"
        )
    return text if now == HOST_MODEL else set_value(text, where, _SECTION, _KEY, HOST_MODEL)


def restore_model(text: str, where: str, before: str) -> str:
    """Return a project's settings as they select a model without MemTier's installation."""
    former = read_value(before, where, _SECTION, _KEY)
    return restore_value(text, where, _SECTION, _KEY, HOST_MODEL, former, _NONE)


def openclaw_models(config: Mapping[str, Any], where: str) -> list[str]:
    """Return the models that OpenClaw's agents are configured with, as its policy names them.

    Raises:
        SettingsError: none is named, so that there is nothing to consent to.
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
    """Set, or with None take back, OpenClaw's own gate and the plugin's consent in its entry."""
    config = entry.setdefault("config", {})
    gates = {**_mapping(entry.get("llm"))}
    if models is not None:
        gates["allowedCompletionModels"] = models
        config["hostModel"] = True
    elif config.pop("hostModel", None):  # else the gate is the user's own
        gates.pop("allowedCompletionModels", None)
    if gates:
        entry["llm"] = gates
    else:
        entry.pop("llm", None)


def check_openclaw(
    config: Mapping[str, Any], entry: Mapping[str, Any], home: Path, where: str
) -> Iterator[HealthFinding]:
    """Check that OpenClaw and the project agree on whether its model may be asked."""
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
    """Check that Hermes and the project agree on whether its model may be asked."""
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
            "warn", f"{host} does not offer its model: nobody has consented there", where, again
        )
    elif selected:
        yield HealthFinding("ok", f"{host} offers its model for facts of {project!r}", where)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
