"""Shell completion of projects, agents, sessions and the short ids of items and recalls.

Click calls these completers; the context's object is the `Scope` (`CliGroup.make_context`). On an
error they return nothing, because a message would appear in the user's command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from memtier_plugin.core.errors import MemTierError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from memtier_plugin.storage.readers import Reader

    Values = Iterable[tuple[str, str]]  # value and description

Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]

_MOST_IDS: Final = 200  # the newest ones
_HELP_CHARS: Final = 60  # of an item's text shown beside its id


def complete_projects(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a project of this home."""
    from memtier_plugin.core.paths import list_projects

    try:
        names = list_projects(ctx.obj.path)
    except (MemTierError, OSError):
        return []
    return _matching(((name, "") for name in names), incomplete)


def _from_reader(values: Callable[[Reader], Values]) -> Completer:
    """Return a completer that reads the project's index."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with ctx.obj.open() as memory, memory.store.session() as reader:
                return _matching(values(reader), incomplete)
        except (MemTierError, OSError):
            return []

    return complete


def _agents(reader: Reader) -> Values:
    return ((agent, "") for agent in reader.all_sessions())


def _sessions(reader: Reader) -> Values:
    for span in reader.session_spans():
        yield span.session, f"{span.entries} lines by {span.agent}"


def _items(reader: Reader) -> Values:
    return _texts(reader, reader.newest_ids(_MOST_IDS))


def _facts(reader: Reader) -> Values:
    return _texts(reader, reader.newest_ids(_MOST_IDS, tier="semantic"))


def _forgotten(reader: Reader) -> Values:
    from memtier_plugin.cli.views import short_id

    return ((short_id(item), "") for item in reader.newest_ids(_MOST_IDS, forgotten=True))


def _recalls(reader: Reader) -> Values:
    from memtier_plugin.cli.views import short_id

    for event in reversed(reader.events(["recall"], newest=_MOST_IDS)):
        yield short_id(event.id), str(event.data.get("query", ""))


def _texts(reader: Reader, ids: list[str]) -> Values:
    from memtier_plugin.cli.views import short_id

    text_of = {item.id: item.text for item in reader.list_items(ids)}
    return ((short_id(item), text_of.get(item, "")) for item in ids)


def _matching(values: Values, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from memtier_plugin.cli.views import escape_controls, one_line

    begin = incomplete.casefold()
    return [
        CompletionItem(value, help=escape_controls(one_line(text, _HELP_CHARS)) or None)
        for value, text in values
        if value.casefold().startswith(begin)
    ]


complete_agents = _from_reader(_agents)
complete_sessions = _from_reader(_sessions)
complete_items = _from_reader(_items)
complete_facts = _from_reader(_facts)
complete_forgotten = _from_reader(_forgotten)
complete_recalls = _from_reader(_recalls)
