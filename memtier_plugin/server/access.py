"""Tokens of `memtier serve --tcp`, and the requests each allows."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from memtier_plugin.core.concurrency import Mutex
from memtier_plugin.core.errors import NotFound, NotGranted, SettingsError
from memtier_plugin.core.files import hold_lock, write_private_file
from memtier_plugin.core.formats import from_iso, parse_json_text, to_iso
from memtier_plugin.core.paths import ProjectFolder, make_home, shared_name
from memtier_plugin.core.results import RunContext
from memtier_plugin.server.requests import BadParams

# -- Tokens that identify clients of `memtier serve --tcp`, and their permissions
#
# A token is 256 random bits, which nobody can guess, so storing its plain SHA-256 is safe.

FILE: Final = "tokens.json"
PREFIX: Final = "mt"
MAX_TOKEN_CHARS: Final = 200
_LOCK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Grant:
    """The scope of a token.

    Attributes:
        projects: names; one that ends with `*` is a prefix.
        agent: the only agent it may act as, including its dotted sub-agents.
        sender: the only person it may act for.
        expires: ISO 8601 time of expiry; None for never.
    """

    id: str
    name: str
    projects: tuple[str, ...]
    agent: str | None = None
    sender: str | None = None
    created: str = ""
    expires: str | None = None

    def reaches(self, project: str) -> bool:
        """Return whether the token grants a project."""
        return any(
            project.startswith(name[:-1]) if name.endswith("*") else project == name
            for name in self.projects
        )

    def covers(self, agent: str) -> bool:
        """Return whether the token may act as an agent."""
        return self.agent is None or agent == self.agent or agent.startswith(f"{self.agent}.")

    def is_over(self, now: datetime) -> bool:
        """Return whether the token has expired."""
        return self.expires is not None and now >= from_iso(self.expires)

    def only_project(self) -> str | None:
        """Return the only granted project; the default if the token names none."""
        name = self.projects[0]
        return name if len(self.projects) == 1 and not name.endswith("*") else None

    def check(self, run: RunContext) -> RunContext:
        """Return the context of a call, restricted to the granted sender if any.

        Raises:
            NotGranted: the project, the agent or the sender is not granted.
        """
        if run.project is None or not self.reaches(run.project):
            raise NotGranted(f"this token does not reach the project {run.project!r}")
        if not self.covers(run.agent_id):
            raise NotGranted(f"this token is bound to agent {self.agent!r}, not {run.agent_id!r}")
        if self.sender is None:
            return run
        if run.sender not in (None, self.sender):
            raise NotGranted(f"this token is bound to sender {self.sender!r}, not {run.sender!r}")
        return replace(run, sender=self.sender)


class Tokens:
    """The tokens of a home, kept in `tokens.json` as hashes with their scopes."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.path = home / FILE
        self._lock = Mutex()
        self._read: tuple[int, int, int] | None = None  # of the file version last read
        self._hashes: dict[str, tuple[bytes, Grant]] = {}

    def new(
        self,
        projects: Sequence[str],
        *,
        name: str = "",
        agent: str | None = None,
        sender: str | None = None,
        expires: datetime | None = None,
    ) -> tuple[str, Grant]:
        """Create a token; return it, which is shown only once, and its scope.

        Raises:
            LedgerError: the home cannot be written.
            SettingsError: the existing tokens cannot be read.
        """
        secret, now = secrets.token_urlsafe(32), datetime.now(UTC)
        until = to_iso(expires) if expires else None
        grant = Grant(
            secrets.token_hex(4), name, tuple(projects), agent, sender, to_iso(now), until
        )
        make_home(self._home)
        with hold_lock(self._home / f".{FILE}.lock", _LOCK_SECONDS):
            self._write({**self._load(), grant.id: (_hash(secret), grant)})
        return f"{PREFIX}_{grant.id}_{secret}", grant

    def revoke(self, key: str) -> Grant:
        """Revoke a token by id or name; its connections end with their next call.

        Raises:
            NotFound: no token, or more than one, has that id or name.
            LedgerError, SettingsError: as `new`.
        """
        make_home(self._home)
        with hold_lock(self._home / f".{FILE}.lock", _LOCK_SECONDS):
            tokens = self._load()
            matching = [grant for _, grant in tokens.values() if key in (grant.id, grant.name)]
            if len(matching) != 1:
                many = f"{len(matching)} tokens have the name" if matching else "there is no token"
                raise NotFound(f"{many} {key!r}; `memtier token list` shows their ids")
            del tokens[matching[0].id]
            self._write(tokens)
        return matching[0]

    def grants(self) -> list[Grant]:
        """Return all tokens' scopes, oldest first.

        Raises:
            SettingsError: the file cannot be read.
        """
        return [grant for _, grant in self._current().values()]

    def check(self, token: object) -> Grant | None:
        """Return a token's scope; None if it is unknown, revoked or expired.

        Raises:
            SettingsError: the file cannot be read.
        """
        text = token if isinstance(token, str) and len(token) <= MAX_TOKEN_CHARS else ""
        prefix, _, rest = text.partition("_")
        key, _, secret = rest.partition("_")
        expected, grant = self._current().get(key, (_hash(""), None))
        same = hmac.compare_digest(
            _hash(secret), expected
        )  # also for an unknown id, in constant time
        if not (same and prefix == PREFIX and grant) or grant.is_over(datetime.now(UTC)):
            return None
        return grant

    def _current(self) -> dict[str, tuple[bytes, Grant]]:
        """Return the tokens, rereading the file if it was replaced."""
        try:
            status = self.path.stat()
        except OSError:
            return {}
        read = (status.st_ino, status.st_mtime_ns, status.st_size)
        with self._lock:
            if read != self._read:
                self._hashes, self._read = self._load(), read
            return self._hashes

    def _load(self) -> dict[str, tuple[bytes, Grant]]:
        try:
            document = parse_json_text(self.path.read_text("utf-8"))
            return {record["id"]: _parse(record) for record in document["tokens"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise SettingsError(
                f"{self.path} cannot be read: {error}; restore it from a backup, or delete it and "
                "make new tokens with `memtier token new`"
            ) from error

    def _write(self, tokens: dict[str, tuple[bytes, Grant]]) -> None:
        records = [{**asdict(grant), "sha256": key.hex()} for key, grant in tokens.values()]
        write_private_file(self.path, json.dumps({"tokens": records}, indent=1), durable=True)


def _parse(record: dict[str, Any]) -> tuple[bytes, Grant]:
    fields = {**record, "projects": tuple(map(str, record["projects"]))}
    key = bytes.fromhex(fields.pop("sha256"))
    grant = Grant(**fields)
    if not grant.projects or len(key) != sha256().digest_size:
        raise ValueError(f"the token {grant.id} is damaged")
    if grant.expires is not None:
        from_iso(grant.expires)
    return key, grant


def _hash(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


# -- Restrict a TCP client's requests to the scope of its token
#
# Isolation never depends on what the client says: a home, workspace or folder in a request has no
# effect, and project, agent and sender are checked twice: in the request, and in the context that
# the host's payload is translated to.

# `offers` and `complete` are only for this home's jobs.
METHODS: Final = frozenset(
    {
        *("hook", "tool", "command", "recall", "ask", "explain", "record", "end_run", "remember"),
        *("forget", "unforget", "facts", "fact", "review", "status", "ping", "acknowledge"),
    }
)
# Methods whose context names the caller.
_OF_CONTEXTS: Final = frozenset({"hook", "tool", "command", "acknowledge"})
_WITHOUT_SENDER: Final = frozenset({"status"})  # it shows all senders
# Other hosts' payloads name files on their machine.
_HOSTS: Final = (None, "openclaw", "hermes")
_FOLDERS: Final = ("home", "workspace", "workspaceDir", "cwd")


@dataclass(frozen=True, slots=True)
class Access:
    """A connection's access.

    Attributes:
        home: the home that is served.
        stand_in: this resident replaces the client's unreachable one, so only shared projects are
            answered; an unshared project here would be a different memory.
    """

    grant: Grant
    home: Path
    stand_in: bool = False

    def narrow(self, method: str, params: Any) -> Any:
        """Return a request's parameters, restricted to the token's scope.

        Raises:
            NotGranted: the request exceeds it.
            BadParams: no project is named.
        """
        if method not in METHODS:
            raise NotGranted(f"{method} is not available over TCP")
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
            raise BadParams("agent and sender must be strings")
        run = grant.check(RunContext(agent_id=agent, project=project, sender=sender))
        if grant.sender is not None:
            if method in _WITHOUT_SENDER:
                raise NotGranted(f"this token is bound to a sender, and {method} shows all of them")
            narrowed["sender"] = run.sender
        return narrowed

    def _narrow_context(self, params: dict[str, Any]) -> Any:
        if params.get("host") not in _HOSTS:
            raise NotGranted(f"the hooks of {params.get('host')!r} are not available over TCP")
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
        """Return the context of a call, restricted to the token's scope and the served home.

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
        """Return a name for the folder of a host's state, unique to the token's scope."""
        scope = (project, self.grant.agent, self.grant.sender)
        return sha256(repr(scope).encode("utf-8", "surrogatepass")).hexdigest()[:32]
