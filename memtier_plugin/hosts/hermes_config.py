"""Edit the memory provider in Hermes' configuration, leaving every other byte unchanged."""

from __future__ import annotations

from memtier_plugin.hosts.yaml_edit import read_value, restore_value, set_value


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
