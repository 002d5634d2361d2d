"""What a client of `memtier serve --tcp` may ask: its requests, narrowed to what its token reaches.

Isolation is kept here, never by what the client says: a request may name a home, a workspace or a
folder, but not with effect; the project, the agent and the sender are checked twice, in the request
and in the context that the host's payload translates to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.errors import NotGranted
from memtier_plugin.core.host import RunContext
from memtier_plugin.server.parameters import BadParams
from memtier_plugin.server.tokens import Grant
from memtier_plugin.storage.project_folder import ProjectFolder
from memtier_plugin.storage.shared.marker import shared_name

# Not `offers` and `complete`, which are for this home's own jobs.
METHODS: Final = frozenset(
    {
        *("hook", "tool", "command", "recall", "ask", "explain", "record", "end_run", "remember"),
        *("forget", "unforget", "facts", "fact", "review", "status", "ping", "acknowledge"),
    }
)
# They say who in a context.
_OF_CONTEXTS: Final = frozenset({"hook", "tool", "command", "acknowledge"})
_WITHOUT_SENDER: Final = frozenset({"status"})  # it is of all senders
# The payloads of other hosts name files of their machine.
_HOSTS: Final = (None, "openclaw", "hermes")
_FOLDERS: Final = ("home", "workspace", "workspaceDir", "cwd")


@dataclass(frozen=True, slots=True)
class Access:
    """A connection's access.

    Attributes:
        home: the home that is served.
        stand_in: the client cannot reach the resident that comes first for its projects; only a
            shared project may be answered, as this resident's own would be another memory.
    """

    grant: Grant
    home: Path
    stand_in: bool = False

    def narrow(self, method: str, params: Any) -> Any:
        """Return the parameters of a request, narrowed to what is granted.

        Raises:
            NotGranted: it asks for something else.
            BadParams: it does not say which project it is about.
        """
        if method not in METHODS:
            raise NotGranted(f"{method} is not for clients over TCP")
        if method == "ping" or not isinstance(params, Mapping):
            return params
        grant = self.grant
        project = params.get("project")
        project = grant.only_project() if project is None else project
        if not isinstance(project, str):
            raise BadParams("project is missing: this token reaches several")
        narrowed = {**params, "project": project}
        narrowed.pop("home", None)
        self._check_project(project)
        if method in _OF_CONTEXTS:
            narrowed["context"] = self._narrow_context(narrowed)
            return narrowed
        agent = narrowed.setdefault("agent", grant.agent or "main")
        sender = narrowed.get("sender")
        if not isinstance(agent, str) or not isinstance(sender, str | None):
            raise BadParams("agent and sender are texts")
        run = grant.check(RunContext(agent_id=agent, project=project, sender=sender))
        if grant.sender is not None:
            if method in _WITHOUT_SENDER:
                raise NotGranted(f"this token is bound to a sender, and {method} shows all of them")
            narrowed["sender"] = run.sender
        return narrowed

    def _narrow_context(self, params: dict[str, Any]) -> Any:
        if params.get("host") not in _HOSTS:
            raise NotGranted(f"the hooks of {params.get('host')!r} are not for clients over TCP")
        context = params.get("context")
        if not isinstance(context, Mapping):
            return context
        if self.grant.agent is not None and params.get("host") is None:
            params["agent"] = params.get("agent") or self.grant.agent
        event = params.get("event")
        if isinstance(event, Mapping):
            params["event"] = {k: v for k, v in event.items() if k not in _FOLDERS}
        return {name: value for name, value in context.items() if name not in _FOLDERS}

    def bind(self, run: RunContext) -> RunContext:
        """Return the context of a call as it is granted, in the home that is served.

        Raises:
            NotGranted: the project, the agent or the sender is not granted.
        """
        granted = self.grant.check(replace(run, home=str(self.home), workspace=None))
        self._check_project(str(granted.project))
        return granted

    def _check_project(self, project: str) -> None:
        if not self.grant.reaches(project):
            raise NotGranted(f"this token does not reach the project {project!r}")
        if self.stand_in and shared_name(ProjectFolder.of(self.home, project).path) is None:
            raise NotGranted(
                f"project {project!r} is kept by another resident, which does not answer: "
                "start it again, or share the project with `memtier shared`"
            )

    def state_folder(self, project: str | None) -> str:
        """Return a name for where a host's state is kept, apart from that of all others."""
        who = (project, self.grant.agent, self.grant.sender)
        return sha256(repr(who).encode("utf-8", "surrogatepass")).hexdigest()[:32]
