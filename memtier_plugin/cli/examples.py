"""One example for the help of each command: what follows its name on the command line."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "agents": "",
    "ask": '"Which port does the staging proxy use?"',
    "backup": "memory.tar.gz",
    "bill": "--since 7d",
    "config": "show",
    "config check": "",
    "config show": "",
    "consolidate": "--dry-run",
    "daemon": "--once",
    "demo": "",
    "diff": "2d 1d",
    "distill": "sentence-transformers/LaBSE my-model",
    "doctor": "--fix",
    "edit": "facts --dry-run",
    "embed": "",
    "explain": "4QRY442D --why 5H61N2FJ",
    "export": "--output memory.md",
    "facts": "list",
    "facts diff": "2026-03-01 2026-04-01",
    "facts list": "--subject Ines",
    "facts review": "",
    "facts runs": "--limit 5",
    "facts search": '"staging host" --limit 3',
    "facts show": "5H61N2FJ",
    "facts timeline": "Ines",
    "forget": '--query "old staging host" --dry-run',
    "gate": "--against candidate.yaml",
    "hook": "claude-code",
    "import": "conversations.json --dry-run",
    "init": "--project shop",
    "install": "openclaw",
    "log": "--date 2026-03-14",
    "mcp": "--project shop",
    "web": "--open",
    "metrics": "",
    "off": "",
    "on": "",
    "people": "list",
    "people link": "telegram:4711 ines",
    "people list": "",
    "people show": "ines",
    "people unlink": "telegram:4711",
    "private": "session-17",
    "projects": "",
    "purge": '--text "the old password" --dry-run',
    "recall": '"Where does Ines live?" --k 4',
    "record": "messages.jsonl --session session-17",
    "reindex": "",
    "remember": '"The staging host is called heron."',
    "restore": "memory.tar.gz --project copy",
    "revert": "--run rules-1-8a72b8b7 --dry-run",
    "review": "--accept 5H61N2FJ",
    "self-check": "--json",
    "serve": "--tcp 127.0.0.1:7420",
    "sessions": "--limit 5",
    "shared": "status",
    "shared drain": "",
    "shared grant": "laptop --password-env LAPTOP_PASSWORD",
    "shared init": "--url postgresql://owner@db.example.org/memtier",
    "shared join": "",
    "shared leave": "",
    "shared migrate": "--url postgresql://owner@db.example.org/memtier",
    "shared purges": "",
    "shared revoke": "laptop",
    "shared snapshot": "harbor.tar",
    "shared status": "",
    "status": "--project shop",
    "token": "list",
    "token list": "",
    "token new": "shop --name web-frontend",
    "token revoke": "web-frontend",
    "tui": "",
    "unforget": "5H61N2FJ",
}


def example_of(words: str) -> str | None:
    """Return what follows a command's words in its example; None where it has none."""
    if words in EXAMPLES:
        return EXAMPLES[words]
    from memtier_plugin.core.plugins import find_commands

    return next(
        (spec.examples[words] for spec in find_commands().values() if words in spec.examples), None
    )
