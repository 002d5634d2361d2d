"""How a project does, as `memtier status` shows it to a person."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType

from memtier_plugin.cli.views import Document, columns, one_line, pairs, said, stamp, text
from memtier_plugin.providers.pricing import money
from memtier_plugin.storage.quota import disk_line


def status_view(document: Document) -> RenderableType:
    """Show how a project does: what is stored, which hooks ran when, what is degraded."""
    first = ("project", "home", "paused", "entries", "facts", "index")
    parts: list[RenderableType] = [
        pairs(
            [
                *((name, said(document[name])) for name in first if name in document),
                *_facts_lines(document),
                ("embedding", embedding_line(document.get("embedding", {}))),
                ("disk", disk_line(document.get("disk", {}))),
            ]
        )
    ]
    jobs = columns("job", "last ok", "last error", "in a row", "next", right=["in a row"])
    background = document.get("background", {})
    for name, state in background.get("jobs", {}).items():
        again = stamp(state["next"]) if background["served"] else ""
        failures = str(state["failures"] or "")
        jobs.add_row(text(name), stamp(state["ok"]), stamp(state["failed"]), failures, again)
    parts += ["", jobs] if jobs.row_count else []
    hooks = columns("agent", "hook", "last ok", "last error", "error", wide=["error"])
    for agent, by_hook in document.get("hooks", {}).items():
        for hook, mark in by_hook.items():
            hooks.add_row(
                text(agent),
                text(hook),
                stamp(mark.get("last_ok")),
                stamp(mark.get("last_error")),
                text(one_line(mark.get("error") or "")),
            )
    parts += ["", hooks] if hooks.row_count else ["", text("No host has called a hook yet.", "dim")]
    figures = ("last ms", "slowest ms", "calls", "no answer")
    waits = columns("agent", "hook", *figures[:2], "on", *figures[2:], right=figures)
    for agent, hook, mark in _held(document):
        waits.add_row(
            text(agent),
            text(hook),
            str(mark["last_ms"]),
            str(mark["slowest_ms"]),
            stamp(mark["slowest_at"]),
            str(mark.get("calls") or mark["runs"]),
            str(mark.get("failed") or ""),
        )
    parts += ["", waits] if waits.row_count else []
    for agent, seen in document.get("agents", {}).items():
        if told := seen.get("injected"):
            line = "{tokens_a_turn} tokens injected a turn, {repeats_avoided} repeats avoided"
            parts.append(text(f"{agent}: {line.format(**told)} in {told['turns']} turns", "dim"))
    for name, style in (("degraded", "yellow"), ("warnings", "yellow")):
        parts += [text(f"{name}: {said(line)}", style) for line in document.get(name, ())]
    return Group(*parts)


def _held(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Yield how long each hook held its host; where the host's own side tells, it is right."""
    noted, waits = document.get("hooks", {}), document.get("waits", {})
    for agent in sorted({*noted, *waits}):
        seen = {hook: mark for hook, mark in noted.get(agent, {}).items() if "last_ms" in mark}
        for hook, mark in {**seen, **waits.get(agent, {})}.items():
            yield agent, hook, mark


def _facts_lines(document: Document) -> Iterator[tuple[str, str]]:
    """Say in a few lines how far the facts are, and what they wait for."""
    known = document.get("consolidation", {})
    served = document.get("background", {}).get("served")
    left = known.get("backlog", {})
    waits = ", ".join(f"{number} for the {name}" for name, number in left.items() if number)
    by = "a daemon serves the project" if served else "no daemon: the next session starts one"
    due = "due now" if known.get("due") else f"next {stamp(known.get('next'))}"
    yield "backlog", f"{waits} (entries)" if waits else "nothing"
    yield "consolidation", f"last {stamp(known.get('last'))}, {due}; {by}"
    if report := known.get("report"):
        yield "last report", said(report)
    spending = document.get("spending", {})
    if spending.get("model", "none") != "none" or spending.get("asked"):
        calls = f"{spending['calls']} of {spending['most_calls']} calls today"
        cost = f"spent {money(spending['cost'])} of {money(spending['most_cost'])}"
        yield "model", f"{spending['model']}: {calls}, {spending['asked']} to answer, {cost}"
    if number := document.get("proposals", {}).get("waiting"):
        oldest = stamp(document["proposals"]["oldest"])
        yield "proposals", f"{number} wait since {oldest}: memtier facts review"
    for held in document.get("held_back", ()):
        yield "held back", f"{stamp(held['at'])} {held['run']}: {said(held['why'])}"


def embedding_line(state: Document) -> str:
    """Say in a line how far the vectors are."""
    if not state.get("model"):
        return "none"
    done = f"{state['items'] - state['missing']} of {state['items']} items"
    cost = f", spent {money(state['spent'])} of {money(state['allowed'])}" if state["paid"] else ""
    more = f", the rest {money(state['cost'])}" if state["paid"] and state["missing"] else ""
    return f"{state['model']}: {done}{cost}{more}"
