"""Whose memory a command reads for the person at the machine, and where else an answer may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from rich.text import Text

from memtier_plugin.cli.scope import Scope
from memtier_plugin.cli.views import Document, safe_text
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.paths import encode_file_name, list_projects
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Hit, RecallRequest
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.recall import Recaller

_MOST_PROJECTS: Final = 8  # that are searched where this one has nothing; the newest first


def find_agents(scope: Scope, sender: str) -> list[str]:
    """Return the agents that a person spoke to, the last one first; with --agent only that."""
    if scope.agent is not None:
        return [scope.agent]
    with scope.open() as memory:
        memory.store.catch_up_all()
        with memory.store.session() as reader:
            ids = reader.entries(sender=memory.actor.mask_name(sender))
            stored = reader.items(ids)
    newest = [stored[identity].item for identity in reversed(ids)]
    agents = dict.fromkeys(item.agent_id for item in newest if isinstance(item, Entry))
    return [*agents] or [memory.agent_id]


def describe_reach(scope: Scope, memory: MemTier, query: str, *, empty: bool) -> dict[str, Any]:
    """Return whose lines were searched and, where nothing was found, who has some that fit."""
    with memory.store.session() as reader:
        everybody = memory.actor.everybody
        agents = sorted(reader.all_sessions()) if everybody else [memory.agent_id]
    searched = memory.project if everybody else None
    elsewhere = [*_find_elsewhere(scope, searched, query)] if empty else []
    named = {"project": memory.project, "agents": agents, "named": scope.agent is not None}
    return {**named, "elsewhere": elsewhere}


def _find_elsewhere(scope: Scope, searched: str | None, query: str) -> Iterator[dict[str, Any]]:
    """Yield the projects whose agents have something; nothing is journalled in them."""
    top = scope.path / "projects"

    def written(name: str) -> float:
        with suppress(OSError):
            return (top / encode_file_name(name) / "index.sqlite3").stat().st_mtime
        return 0.0

    others = [name for name in list_projects(scope.path) if name != searched]
    for name in sorted(others, key=written, reverse=True)[:_MOST_PROJECTS]:
        with (
            suppress(MemTierError, OSError),  # another project's faults are not shown here
            MemTier.open(scope.path, name, create=False, everybody=True) as other,
        ):
            request = RecallRequest(purpose="preview")
            plan = Recaller(other.actor).plan(query, other.viewer(None), request)
            hits, _ = plan.block.fill("")
            if hits:
                yield {"project": name, "agents": sorted({*_agents_of(hits)})}


def _agents_of(hits: tuple[Hit, ...]) -> Iterator[str]:
    for hit in hits:
        yield hit.item.agent_id if isinstance(hit.item, Entry) else hit.sources[0].agent


def reach_view(document: Document) -> Iterator[Text]:
    """Yield the lines on whose memory was searched, and on where something is."""
    reach = document["reach"]
    if not reach["named"] and reach["agents"] != ["main"]:  # who says nothing means that one
        searched = f"Searched: what {', '.join(reach['agents'])} recorded in {reach['project']}."
        nothing = f"Nothing was recorded in {reach['project']} yet."
        yield safe_text(searched if reach["agents"] else nothing, "dim")
    for other in reach["elsewhere"]:
        has = f"{other['project']} has something on it, of {', '.join(other['agents'])}"
        same = other["project"] == reach["project"]
        how = "without --agent" if same else f"memtier --project {other['project']} ..."
        yield safe_text(f"{has}: {how}", "yellow")
