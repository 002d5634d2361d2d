"""Answer the tools, resources and prompt by asking the resident, for one project and agent.

Nothing is decided here: what a caller may see, store and hide is the business of `hooks/tools.py`
in the resident, as for every other host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import MemTierError
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.mcp.definitions import TOOLS
from memtier_plugin.trust.escaping import escape_line

CALL_SECONDS: Final = 30.0  # half of what the most impatient client gives a call
MAX_FACTS: Final = 100  # in one resource
_SCHEME: Final = "memtier://"


@dataclass(frozen=True, slots=True)
class Binding:
    """Whose memory a server gives: an absolute home, a project and an agent."""

    home: Path
    project: str
    agent: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of an answer, the ids of what it shows, and whether it is an error."""

    text: str
    ids: tuple[str, ...] = ()
    failed: bool = False


class MemoryCalls:
    """Answers calls of any number of threads."""

    def __init__(self, resident: ResidentClient, binding: Binding) -> None:
        self._resident = resident
        self._scope = {
            "home": str(binding.home),
            "project": binding.project,
            "agent": binding.agent,
        }

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Check the arguments and call a tool; whatever goes wrong is an answer that says so."""
        if name not in TOOLS:
            return Answer(f"there is no tool {name[:64]!r}; there are {', '.join(TOOLS)}", (), True)
        if problem := check_arguments(name, arguments):
            return Answer(f"{name}: {problem}", (), True)
        return self._ask(name, arguments)

    def read_resource(self, uri: str) -> Answer:
        """Return a resource's text."""
        kind, _, key = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME):
            return Answer(f"there is no resource {uri[:100]!r}", (), True)
        if kind in ("entry", "fact") and (problem := check_arguments("memory_get", {"id": key})):
            return Answer(problem, (), True)
        if kind in ("entry", "fact"):
            return self._ask("memory_get", {"id": key})
        if kind == "log" and key:
            return self._ask("memory_log", {"date": key})
        if (kind, key) == ("facts", ""):
            return self._list_facts()
        return Answer(f"there is no resource {uri[:100]!r}", (), True)

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        request = {"name": name, "arguments": dict(arguments), "context": {}, **self._scope}
        try:
            answer = self._resident.call("tool", request, CALL_SECONDS)
        except MemTierError as error:
            return Answer(f"{name} failed: {error}", (), True)
        if not answer["ok"]:  # the resident names the tools as the other hosts do
            return Answer(str(answer["text"]).replace("memtier_", "memory_"), (), True)
        return Answer(str(answer["text"]), tuple(answer["ids"]))

    def _list_facts(self) -> Answer:
        try:
            facts = self._resident.call("facts", {"limit": MAX_FACTS, **self._scope}, CALL_SECONDS)[
                "facts"
            ]
        except MemTierError as error:
            return Answer(f"the facts cannot be read: {error}", (), True)
        lines = [f"{fact['id']} ({fact['origin']}): {escape_line(fact['text'])}" for fact in facts]
        return Answer("\n".join(lines) or "There are no facts yet.")


def check_arguments(tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a tool's arguments, without the values, or None."""
    for error in _validator(tool).iter_errors(dict(arguments)):
        where = ".".join(map(str, error.absolute_path)) or "the arguments"
        rule = error.validator_value if error.validator != "additionalProperties" else "none"
        names = ", ".join(TOOLS[tool]["inputSchema"]["properties"]) or "none"
        return f"{where} must have {error.validator} {rule}; the arguments are: {names}"
    return None


@cache
def _validator(tool: str) -> Any:
    from jsonschema import Draft202012Validator  # takes longer to load than all of this

    return Draft202012Validator(TOOLS[tool]["inputSchema"])
