"""`memtier ask` and `memtier recall`: an answer with its lines, or a recall with its ranking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.scope import CliCommand, Scope, limit_option, progress_bar
from memtier_plugin.cli.views import (
    Document,
    indented,
    one_line,
    parse_optional_time,
    safe_text,
    short_id,
    written_option,
)
from memtier_plugin.core import plugins
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.core.formats import to_iso
from memtier_plugin.core.paths import encode_file_name, list_projects
from memtier_plugin.core.records import Entry
from memtier_plugin.core.results import Depth, Hit, Recall, RecallRequest
from memtier_plugin.memory import MemTier
from memtier_plugin.retrieval.recall import Recaller
from memtier_plugin.views.journal import describe_depth

# -- Which agents a command searches for the person at the machine, and which other projects

_MOST_PROJECTS: Final = 8  # that are searched where this one has nothing; the newest first


def find_agents(scope: Scope, sender: str) -> list[str]:
    """Return the agents a person spoke to, most recent first; only one with --agent."""
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
    """Describe which agents were searched and, if nothing was found, which others match."""
    with memory.store.session() as reader:
        everybody = memory.actor.everybody
        agents = sorted(reader.all_sessions()) if everybody else [memory.agent_id]
    searched = memory.project if everybody else None
    elsewhere = [*_find_elsewhere(scope, searched, query)] if empty else []
    named = {"project": memory.project, "agents": agents, "named": scope.agent is not None}
    return {**named, "elsewhere": elsewhere}


def _find_elsewhere(scope: Scope, searched: str | None, query: str) -> Iterator[dict[str, Any]]:
    """Yield other projects with matching lines; nothing is journalled in them."""
    top = scope.path / "projects"

    def written(name: str) -> float:
        with suppress(OSError):
            return (top / encode_file_name(name) / "index.sqlite3").stat().st_mtime
        return 0.0

    others = [name for name in list_projects(scope.path) if name != searched]
    for name in sorted(others, key=written, reverse=True)[:_MOST_PROJECTS]:
        with (
            suppress(MemTierError, OSError),  # do not report another project's errors here
            MemTier.open(scope.path, name, create=False, everybody=True) as memory,
        ):
            request = RecallRequest(purpose="preview")
            plan = Recaller(memory.actor).plan(query, memory.viewer(None), request)
            hits, _ = plan.block.fill("")
            if hits:
                yield {"project": name, "agents": sorted({*_agents_of(hits)})}


def _agents_of(hits: tuple[Hit, ...]) -> Iterator[str]:
    for hit in hits:
        yield hit.item.agent_id if isinstance(hit.item, Entry) else hit.sources[0].agent


def reach_view(document: Document) -> Iterator[Text]:
    """Render which agents were searched, and where else something was found."""
    search_scope = document["reach"]
    if not search_scope["named"] and search_scope["agents"] != ["main"]:  # the default agent
        agents, project = ", ".join(search_scope["agents"]), search_scope["project"]
        searched = f"Searched: what {agents} recorded in {project}."
        nothing = f"Nothing was recorded in {project} yet."
        yield safe_text(searched if search_scope["agents"] else nothing, "dim")
    for match in search_scope["elsewhere"]:
        has = f"{match['project']} has matching lines from {', '.join(match['agents'])}"
        same = match["project"] == search_scope["project"]
        how = "without --agent" if same else f"memtier --project {match['project']} ..."
        yield safe_text(f"{has}: {how}", "yellow")


# -- `memtier recall`: run a recall, and show its ranking


@click.command(cls=CliCommand, example='"Where does Ines live?" --k 4')
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@click.option("--k", type=click.IntRange(1), help="The most lines to inject.")
@click.option(
    "--budget", type=click.IntRange(1), metavar="TOKENS", help="The most tokens to inject."
)
@click.option(
    "--at", metavar="TIME", help="Assume this current time, such as 2026-03-14T09:00 (UTC)."
)
@click.option(
    "--as-of", metavar="TIME", help="Recall as of this time, using only what was said by then."
)
@written_option
@click.option(
    "--depth",
    type=click.Choice(["mixed", "facts", "raw", "auto"]),
    help="Search facts, the raw log, or both; auto lets the question decide [retrieval.depth].",
)
@limit_option(10, "How many hits to show.")
@click.option("--explain", "signals", is_flag=True, help="Show the signals behind each score.")
@click.option(
    "--inject-preview", is_flag=True, help="Show the block exactly as it would be injected."
)
@click.pass_obj
def recall(
    scope: Scope,
    words: tuple[str, ...],
    k: int | None,
    budget: int | None,
    at: str | None,
    as_of: str | None,
    written: bool,
    depth: Depth | None,
    limit: int,
    signals: bool,
    inject_preview: bool,
) -> None:
    """Recall the lines relevant to QUERY, each with its source."""
    query = " ".join(words)
    request = RecallRequest(
        at=parse_optional_time(at), k=k, token_budget=budget, depth=depth, purpose="preview"
    )
    with scope.open(everybody=True) as memory:
        notes = _preview_notes(memory) if inject_preview else []
        if then := parse_optional_time(as_of):
            with progress_bar() as report:
                step = partial(report, "reading the ledgers")
                result = memory.history.recall(
                    query,
                    then,
                    k=k,
                    token_budget=budget,
                    depth=depth,
                    purpose="preview",
                    written=written,
                    progress=step,
                )
        else:
            result = memory.recall(query, request=request)
        search_scope = describe_reach(scope, memory, query, empty=not result.hits)
    document = recall_document(result, limit)
    document |= {"signals": signals, "text": result.text if inject_preview else ""}
    document["reach"] = search_scope
    scope.show(document, recall_view)
    if inject_preview and not scope.as_json:
        for note in notes:
            click.echo(f"\n{note}")
        click.echo(f"\n{result.text}", nl=False)  # exactly as injected: no view wraps or styles it


def _preview_notes(memory: MemTier) -> list[str]:
    """Return what plugins say of how a prompt's lines may differ from a preview."""
    with memory.store.session() as reader:
        values = plugins.describe_status((), reader, memory.settings).values()
    return [value["preview"] for value in values if value and "preview" in value]


def recall_document(recall: Recall, limit: int) -> dict[str, Any]:
    """Return a recall and its first hits as a JSON document."""
    injected = [hit.id for hit in recall.injected]
    notes = {hit.id: hit.note for hit in recall.injected}  # notes are added when lines are selected
    return {
        "id": recall.id,
        "query": recall.query,
        "label": recall.label,
        "silent": recall.silent,
        "found": len(recall.hits),
        "injected": injected,
        "tokens": recall.tokens,
        "ms": round(recall.ms, 3),
        "postings": recall.postings,
        "vectors": recall.vectors,
        "depth": recall.depth,
        "route": recall.route.to_json() if recall.route else None,
        "steps": [step.to_json() for step in recall.steps],
        "hits": [
            {
                **_hit_document(hit),
                "rank": rank,
                "injected": hit.id in injected,
                "note": notes.get(hit.id, hit.note),
            }
            for rank, hit in enumerate(recall.hits, 1)
            if rank <= limit or hit.id in injected
        ],
    }


def _hit_document(hit: Hit) -> dict[str, Any]:
    item = hit.item
    when = item.observed_at if isinstance(item, Entry) else item.valid_from or item.timestamp
    speaker = item.speaker or item.sender or item.role if isinstance(item, Entry) else "fact"
    first = hit.sources[0]
    return {
        "id": hit.id,
        "score": hit.score,
        "tier": hit.tier,
        "date": to_iso(when)[:10],
        "who": speaker,
        "text": hit.text,
        "place": f"{first.file}:{first.line}" if first.file else f"entry {first.entry}",
        "sources": [asdict(source) for source in hit.sources],
        "signals": dict(hit.signals),
        "weight": hit.weight,
        "note": hit.note,
    }


def recall_view(document: Document) -> RenderableType:
    """Render ranked hits with their ledger locations, marking those that would be injected."""
    parts: list[RenderableType] = []
    by_text: dict[str, list[Document]] = {}  # the same text may be a fact, or from another day
    for hit in document["hits"]:
        by_text.setdefault(" ".join(hit["text"].split()).casefold(), []).append(hit)
    for hit, *others in by_text.values():
        mark = Text("▸" if any(row["injected"] for row in (hit, *others)) else " ", "green")
        head = Text.assemble(mark, (f"{hit['rank']:>3} {hit['score']:.4f}  ", "bold"))
        shown = {**hit, "id": short_id(hit["id"])}
        source = " · ".join(str(shown[name]) for name in ("tier", "date", "who", "id", "place"))
        parts += [head.append_text(safe_text(one_line(hit["text"], 400)))]
        more = f" · {len(others)} more with the same text" if others else ""
        parts.append(indented(source + more, "cyan"))
        if hit["note"]:
            parts.append(indented(hit["note"], "yellow"))
        if document["signals"]:
            values = (f"{name} {value:.3f}" for name, value in hit["signals"].items() if value)
            parts.append(indented("  ".join(values), "dim"))
    parts.append(
        safe_text(
            f"{document['found']} found, {len(document['injected'])} (▸) would be injected: "
            f"{document['tokens']} tokens; {document['label']}, {document['ms']:.0f} ms, "
            f"{document['postings']} postings read; recall {short_id(document['id'])}",
            "dim",
        )
    )
    if document["silent"]:
        parts.append(safe_text(f"nothing would be injected: {document['silent']}", "yellow"))
    parts += reach_view(document)
    if document["route"]:
        parts.append(
            safe_text("; ".join(": ".join(row) for row in describe_depth(document)[:2]), "dim")
        )
    return Group(*parts)


# -- `memtier ask`: a question, its answer, and the ledger lines it cites


@click.command(cls=CliCommand, example='"Which port does the staging proxy use?"')
@click.argument("question")
@click.option(
    "--sender", metavar="NAME", help="On a shared channel, the person whose entries may be used."
)
@click.option(
    "--at", metavar="TIME", help="Assume this current time, such as 2026-03-14T09:00 (UTC)."
)
@click.option(
    "--session", metavar="ID", help="The session whose last subject a pronoun may refer to."
)
@click.option("--no-write-back", is_flag=True, help="Do not store findings as facts.")
@click.option("--steps", is_flag=True, help="Show each step's tokens and duration.")
@click.pass_obj
def ask(
    scope: Scope,
    question: str,
    sender: str | None,
    at: str | None,
    session: str | None,
    no_write_back: bool,
    steps: bool,
) -> None:
    """Answer QUESTION from memory, and cite the lines used."""
    write_back = False if no_write_back else None
    agents = [scope.agent] if sender is None else find_agents(scope, sender)
    for number, agent in enumerate(agents, 1):
        with replace(scope, agent=agent).open(everybody=sender is None) as memory:
            answer = memory.ask(
                question,
                sender=sender,
                at=parse_optional_time(at),
                write_back=write_back,
                session_id=session,
            )
            if answer.answered or number == len(agents):
                search_scope = describe_reach(scope, memory, question, empty=not answer.answered)
                break
    if sender is not None:
        search_scope["agents"] = agents[:number]
    scope.show(answer.to_document() | {"show_steps": steps, "reach": search_scope}, answer_view)


def answer_view(document: views.Document) -> RenderableType:
    """Render an answer with its cited lines."""
    parts: list[RenderableType] = [Text(views.escape_controls(document["answer"]))]
    if document["citations"]:
        parts.append(Text("\nSources", style="bold"))
    for cited in document["citations"]:
        where = f"{cited['file']}:{cited['line']}" if cited["file"] else "not in the index yet"
        speaker = views.escape_controls(cited["who"])
        head = f"  {cited['short']}  {cited['said'][:10]} {speaker}  {where}"
        parts += [Text(head, style="dim"), Text(f"    {views.escape_controls(cited['text'])}")]
    for fact in document["written"]:
        verb = "kept" if fact["status"] == "active" else "kept for review"
        parts.append(
            Text(f"\n{verb}: {views.escape_controls(fact['text'])}  {views.short_id(fact['id'])}")
        )
    parts.append(Text(f"\n{_describe_answer(document)}", style="dim"))
    parts += reach_view(document)
    if document.get("show_steps"):
        parts += [
            Text(f"  {s['name']:<18} {s['ms']:>9.1f} ms {s['tokens']:>7} tokens", style="dim")
            for s in document["steps"]
        ]
    return Group(*parts)


def _describe_answer(document: views.Document) -> str:
    """Describe how the question was answered, and why a configured model was not used."""
    route = {"S": "from the facts", "R": "from the log"}[document["route"]["action"]]
    if document["by"] == "extractive":
        problem = views.escape_controls(document["problem"])
        if document["answered"]:
            why = problem or "no model is configured (ask.model)"
            how = f"The matching lines, verbatim: {why}."
        else:
            why = problem or "nothing found answers the question"
            how = f"{why[0].upper()}{why[1:]}."
    else:
        rounds = f", {document['rounds']} rounds" if document["rounds"] else ""
        how = f"By {document['by']}, {route}{rounds}."
        if document["problem"]:
            how += f" {views.escape_controls(document['problem'])}."
    if not document["answered"]:
        how = f"Not answered. {how}"
    return f"{how} {document['tokens']} tokens, {document['ms']:.0f} ms."
