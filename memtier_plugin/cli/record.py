"""`memtier record`, `remember` and `private`: write messages or a fact, keep a session private."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import click

from memtier_plugin.cli.completion import complete_sessions
from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.core.errors import ImportFileError, MessageError
from memtier_plugin.ingest.messages import parse_messages, unknown_keys


@click.command(cls=CliCommand, example="messages.jsonl --session session-17")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--session", required=True, metavar="ID", help="The session they belong to.")
@click.option(
    "--run", metavar="ID", help="The run's id; recording a run again adds only new messages."
)
@click.pass_obj
def record(scope: Scope, file: IO[str], session: str, run: str | None) -> None:
    """Write messages (JSON or JSON Lines; - for stdin) to the log."""
    given = _read_messages(file)
    _check_messages(given)
    messages = [message for _, message in given]
    with scope.open(create=True) as memory:
        entries = memory.record(messages, session_id=session, run_id=run)
    report = {"recorded": len(entries), "given": len(messages), "ids": [e.id for e in entries]}
    ignored = unknown_keys(messages)
    scope.show({**report, **({"ignored_keys": [*ignored]} if ignored else {})})


def _check_messages(given: list[tuple[str, Any]]) -> None:
    """Refuse what would be left out of the log without a word, naming its line.

    Raises:
        MessageError: it is no message, or says nothing and calls no tool.
    """
    for where, message in given:
        try:
            parsed = parse_messages([message])
        except MessageError as error:
            raise MessageError(f"{where}: {str(error).removeprefix('message 0: ')}") from None
        if not any(part.content.strip() or part.tool_calls for part in parsed):
            raise MessageError(f"{where}: a message without content; nothing was recorded")


def _read_messages(file: IO[str]) -> list[tuple[str, Any]]:
    """Read a list of messages, an object with `messages`, or one message per line.

    Each comes with the name of where it stands.
    """
    try:
        content = file.read()
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{file.name}: expected UTF-8 text: {error}") from None
    try:
        document = json.loads(content)
    except RecursionError:
        raise ImportFileError(f"{file.name}: JSON nested too deeply") from None
    except ValueError:
        return [*_read_lines(file.name, content)]
    if isinstance(document, dict):
        document = document.get("messages", [document])
    if not isinstance(document, list):
        raise ImportFileError(f"{file.name}: expected a list of messages, found {document!r:.60}")
    return [(f"{file.name}: message {n}", message) for n, message in enumerate(document, 1)]


def _read_lines(name: str, content: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(content.split("\n"), 1):
        try:
            if line.strip():
                yield f"{name}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFileError(f"{name}:{number}: not JSON: {error}") from None


@click.command(cls=CliCommand, example='"The staging host is called heron."')
@click.argument("text")
@click.pass_obj
def remember(scope: Scope, text: str) -> None:
    """Store a fact that all agents of the project recall."""
    with scope.open(create=True) as memory:
        fact = memory.remember(text)
    scope.show({"fact": fact.id, "text": fact.text})


@click.command(cls=CliCommand, example="session-17")
@click.argument("session", shell_complete=complete_sessions)
@click.pass_obj
def private(scope: Scope, session: str) -> None:
    """Keep a session to its agent for good: no facts, nothing shared."""
    with scope.open() as memory:
        entries = memory.make_private(session)
    scope.show({"session": session, "agent": memory.agent_id, "private": len(entries)})
