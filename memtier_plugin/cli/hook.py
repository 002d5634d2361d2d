"""`memtier hook`: pass one event of a coding agent to the memory, for the agent's hooks."""

from __future__ import annotations

import json
import sys

import click

from memtier_plugin.cli.scope import CliCommand, Scope
from memtier_plugin.core.errors import MemTierError
from memtier_plugin.hooks.coding_agents import AgentHooks, read_event
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hosts.project import EVENTS, launch_command


@click.command(cls=CliCommand, example="claude-code")
@click.argument("agent_host", metavar="AGENT", type=click.Choice([*EVENTS]))
@click.pass_obj
def hook(scope: Scope, agent_host: str) -> None:
    """Pass an event from AGENT (JSON on stdin) to the memory."""
    answer, hooks, event = {}, None, {}
    try:
        event = read_event(sys.stdin.buffer.read().decode("utf-8", "replace"))
        client = ResidentClient(launch_command(), scope.path)
        hooks = AgentHooks(client, agent_host, scope.project_name)
        answer = hooks.pass_event(event)
    except (MemTierError, OSError) as error:  # the agent continues without memory
        click.echo(f"memtier: {error}", err=True)
        if EVENTS[agent_host].get(str(event.get("hook_event_name"))) == "prompt":
            answer = {"systemMessage": f"MemTier: no memory for this prompt: {error}"}
    click.echo(json.dumps(answer))  # some agents accept only JSON
    if hooks:
        hooks.finish(printed=sys.stdout is not None)
