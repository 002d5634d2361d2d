"""`memtier ask`: a question, its answer, and the ledger lines that it rests on."""

from __future__ import annotations

from dataclasses import replace

import click
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from memtier_plugin.cli import views
from memtier_plugin.cli.reach import describe_reach, find_agents, reach_view
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.cli.times import parse_optional_time


@click.command(cls=CliCommand, example='"Which port does the staging proxy use?"')
@click.argument("question")
@click.option("--sender", metavar="NAME", help="On a shared channel, whose entries may be seen.")
@click.option("--at", metavar="TIME", help="The current time to assume, as 2026-03-14T09:00 (UTC).")
@click.option("--session", metavar="ID", help="Whose last subject a pronoun may mean.")
@click.option("--no-write-back", is_flag=True, help="Keep none of the findings as facts.")
@click.option("--steps", is_flag=True, help="Show the tokens and milliseconds of each step.")
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
    """Answer QUESTION from what is remembered, with the lines it rests on."""
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
                reach = describe_reach(scope, memory, question, empty=not answer.answered)
                break
    if sender is not None:
        reach["agents"] = agents[:number]
    scope.show(answer.to_document() | {"show_steps": steps, "reach": reach}, answer_view)


def answer_view(document: views.Document) -> RenderableType:
    """Return an answer the way a person reads it."""
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
    return Lines(*parts)


def _describe_answer(document: views.Document) -> str:
    """Print how it was answered, and why a configured model was not used."""
    route = {"S": "from the facts", "R": "from the log"}[document["route"]["action"]]
    if document["by"] == "extractive":
        problem = views.escape_controls(document["problem"])
        if document["answered"]:
            why = problem or "no model is configured (ask.model)"
            how = f"The lines that fit, verbatim: {why}."
        else:
            why = problem or "nothing that was found fits the question"
            how = f"{why[0].upper()}{why[1:]}."
    else:
        rounds = f", {document['rounds']} rounds" if document["rounds"] else ""
        how = f"By {document['by']}, {route}{rounds}."
        if document["problem"]:
            how += f" {views.escape_controls(document['problem'])}."
    if not document["answered"]:
        how = f"Not answered. {how}"
    return f"{how} {document['tokens']} tokens, {document['ms']:.0f} ms."
