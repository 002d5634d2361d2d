"""`memtier review`: decide on pending items, one by one or in groups."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, complete_facts
from memtier_plugin.cli.views import Document, format_time, one_line, safe_text, short_id
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.facts.review import ReviewItem, ReviewOutcome
from memtier_plugin.memory import MemTier

_CONTEXT_CHARS: Final = 160  # characters shown on either side of a quote
_SHOWN_OF_GROUP: Final = 8  # lines shown of a group
_KEYS: Final = {"a": "accept", "r": "reject", "e": "edit", "s": "skip", "q": "quit"}
_GROUP_KEYS: Final = {"a": "accept all", "r": "reject all", "o": "one by one"} | {
    key: _KEYS[key] for key in "sq"
}


@click.command(cls=CliCommand, example="--accept 5H61N2FJ")
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="ID",
    shell_complete=complete_facts,
    help="Accept this item.",
)
@click.option(
    "--reject",
    "rejected",
    multiple=True,
    metavar="ID",
    shell_complete=complete_facts,
    help="Reject this item.",
)
@click.option(
    "--edit",
    "edited",
    multiple=True,
    nargs=2,
    metavar="ID TEXT",
    help="Replace this fact with TEXT.",
)
@click.option("--why", default="", metavar="TEXT", help="The reason for the rejections.")
@click.pass_obj
def review(
    scope: Scope,
    accepted: tuple[str, ...],
    rejected: tuple[str, ...],
    edited: tuple[tuple[str, str], ...],
    why: str,
) -> None:
    """Review pending facts, forgets and contradictions."""
    with scope.open() as memory:
        person = memory.knowledge.person
        decided: list[ReviewOutcome] = []
        if accepted or rejected or edited:
            yes = [person.review_id(item) for item in accepted]
            no = [person.review_id(item) for item in rejected]
            new = [(person.review_id(item), text) for item, text in edited]
            decided += [*person.accept(yes), *person.reject(no, why)]
            decided += [memory.edit_fact(item, text) for item, text in new]
        elif not scope.as_json and sys.stdin.isatty():
            decided += _Dialogue(memory).run(person.review_queue())
        waiting = person.review_queue()
        held_back = {run.run: run.why for run in person.runs() if run.why and run.reverted}
    by_option = bool(accepted or rejected or edited)
    document = {
        "decided": [asdict(view) for view in decided],
        "waiting": [] if by_option else [item.to_json() for item in waiting],
        "left": len(waiting),
        "held_back": {
            run: why for run, why in held_back.items() if run and _is_held_back(waiting, run)
        },
    }
    scope.show(document, review_view)


def _is_held_back(waiting: Iterable[ReviewItem], run: str) -> bool:
    facts = [item.fact for item in waiting if item.fact is not None]
    return any(view.fact.run == run and view.state == "held back" for view in facts)


class _Quit(Exception):
    """The user quit the review."""


class _Dialogue:
    """Asks on the terminal; each decision is written before the next question."""

    def __init__(self, memory: MemTier) -> None:
        self._memory = memory
        self._person = memory.knowledge.person
        self._out = views.make_console(stderr=True)
        self._decided: list[ReviewOutcome] = []

    def run(self, waiting: Sequence[ReviewItem]) -> list[ReviewOutcome]:
        """Ask for a decision on each item or group; return the decisions."""
        number = 0
        try:
            for group, alike in groupby(waiting, key=lambda item: item.group):
                items = [*alike]
                if len(items) == 1 or not self._decide_group(group, items):
                    for position, item in enumerate(items, number + 1):
                        self._decide_item(item, f"{position} of {len(waiting)}")
                number += len(items)
        except _Quit:
            pass
        return self._decided

    def _decide_group(self, group: str, items: Sequence[ReviewItem]) -> bool:
        """Ask once for a group; return False to ask one by one."""
        self._out.print(safe_text(f"\n{len(items)} alike: {one_line(group)}", "bold"))
        for item in items[:_SHOWN_OF_GROUP]:
            self._out.print(safe_text(f"  {one_line(item.text)}"))
        if len(items) > _SHOWN_OF_GROUP:
            self._out.print(safe_text(f"  and {len(items) - _SHOWN_OF_GROUP} more", "dim"))
        key = _ask(_GROUP_KEYS)
        ids = [item.id for item in items]
        if key == "a":
            self._decided += self._person.accept(ids)
        elif key == "r":
            self._decided += self._person.reject(ids)
        return key != "o"

    def _decide_item(self, item: ReviewItem, title: str) -> None:
        self._out.print(safe_text(f"\n{title}", "bold"))
        self._out.print(item_view(item.to_json()))
        key = _ask(_KEYS)
        try:
            if key == "a":
                self._decided += self._person.accept([item.id])
            elif key == "r":
                self._decided += self._person.reject([item.id])
            elif key == "e":
                text = click.prompt("New wording", default=item.text, err=True)
                self._decided.append(self._memory.edit_fact(item.id, text))
        except MemTierError as error:  # already decided elsewhere
            self._out.print(safe_text(f"  {error}", "red"))


def _ask(keys: dict[str, str]) -> str:
    """Ask for one of these keys; raise `_Quit` for q."""
    labels = ", ".join(f"{key} {meaning}" for key, meaning in keys.items())
    key: str = click.prompt(
        labels,
        type=click.Choice([*keys], case_sensitive=False),
        default="s",
        show_choices=False,
        err=True,
    )
    if key.lower() == "q":
        raise _Quit
    return key.lower()


# -- views -----------------------------------------------------------------------------------


def source_lines(sources: Iterable[Document]) -> Iterator[Text]:
    """Yield each source line of a fact: time, agent, location and text."""
    for source in sources:
        entry = source["line_of"]
        owner = f"{source['agent']}/{source['session']}"
        if entry is None:
            yield safe_text(
                f"  {owner}  {source['entry']}\n    (forgotten, or another agent's)", "dim"
            )
            continue
        where = f"{source['file']}:{source['line']}"
        head = safe_text(
            f"  {format_time(entry['observed_at'])}  {owner}  {where}  {source['entry']}\n    "
        )
        speaker = entry["speaker"] or entry["role"]
        yield Text.assemble(
            head, safe_text(f"{speaker}: ", "dim"), _mark_quote(entry["content"], source["mark"])
        )


def _mark_quote(content: str, mark: Sequence[int] | None) -> Text:
    """Return a line with its quote marked, truncated to the quote's context."""
    if mark is None:
        return safe_text(one_line(content, 2 * _CONTEXT_CHARS))
    start, end = mark
    before, after = (
        content[max(0, start - _CONTEXT_CHARS) : start],
        content[end : end + _CONTEXT_CHARS],
    )
    parts = [safe_text("…" if start > _CONTEXT_CHARS else ""), safe_text(_collapse_spaces(before))]
    parts += [
        safe_text(f"⟦{_collapse_spaces(content[start:end])}⟧", "bold"),
        safe_text(_collapse_spaces(after)),
    ]
    return Text.assemble(*parts, safe_text("…" if len(content) > end + _CONTEXT_CHARS else ""))


def _collapse_spaces(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def item_view(document: Document) -> RenderableType:
    """Render a pending item: its text, the reason, what it would replace, and its source lines."""
    fact = document["fact"] or {"state": "a line of the log", "origin": ""}
    head = Text.assemble(
        safe_text(one_line(document["text"], 2 * _CONTEXT_CHARS), "bold"),
        safe_text(f"  {short_id(document['id'])}  {fact['state']}", "dim"),
    )
    why, origin = document["why"], f" (origin: {fact['origin']})" if fact["origin"] else ""
    parts: list[RenderableType] = [head]
    if why:
        parts.append(safe_text(f"  {why}{origin}", "yellow"))
    parts += [
        safe_text(
            f"  replaces if accepted: {fact_replaced['text']}  {short_id(fact_replaced['id'])}"
        )
        for fact_replaced in document["against"]
    ]
    return Group(*parts, *source_lines(document["sources"]))


def review_view(document: Document) -> RenderableType:
    """Render the decisions made and what remains, grouped."""
    parts: list[RenderableType] = []
    for item in document["decided"]:
        replaced = f", replacing {', '.join(map(short_id, item['superseded']))}"
        parts.append(
            safe_text(
                f"{short_id(item['id'])} {item['now']}{replaced if item['superseded'] else ''}"
            )
        )
    for run, why in document["held_back"].items():
        parts += [safe_text(f"{run} was held back: {why}", "yellow")]
    for _, alike in groupby(document["waiting"], key=lambda item: str(item["group"])):
        items: list[dict[str, Any]] = [*alike]
        if len(items) > 1:
            parts += ["", safe_text(f"{len(items)} alike: {one_line(items[0]['group'])}", "cyan")]
        for item in items:
            parts += ["", item_view(item)]
    if count := document["left"]:
        how = "memtier review on a terminal, or --accept ID, --reject ID, --edit ID TEXT"
        parts += ["", safe_text(f"{count} wait: {how}", "dim")]
    else:
        parts.append(safe_text("Nothing awaits review.", "dim"))
    return Group(*parts)
