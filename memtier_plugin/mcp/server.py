"""Serve MemTier over the Model Context Protocol, asking the resident for the answers."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, cast

from anyio import wrap_file
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.types import ASGIApp, Receive, Scope, Send

from memtier_plugin.core.asgi import deliver_refusals
from memtier_plugin.core.errors import MemTierError, SettingsError
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.paths import make_home
from memtier_plugin.core.residents import LOOPBACK, listen_on_loopback
from memtier_plugin.hooks.resident import ResidentClient
from memtier_plugin.hosts.project import launch_command
from memtier_plugin.mcp import definitions
from memtier_plugin.mcp.definitions import TOOLS
from memtier_plugin.mcp.opening import NAMES, Opening
from memtier_plugin.trust.escaping import escape_line

# -- Answer the tools, resources and prompt by asking the resident, for one project and agent
#
# Nothing is decided here: `hooks/tools.py` in the resident rules what a caller may see, store and
# hide, as for every other host.

CALL_SECONDS: Final = 30.0  # half of the strictest client's time-out
MAX_FACTS: Final = 100  # in one resource
_SCHEME: Final = "memtier://"


@dataclass(frozen=True, slots=True)
class Binding:
    """Which memory a server serves: an absolute home, a project and an agent."""

    home: Path
    project: str
    agent: str


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The text of an answer, the ids of what it shows, and whether it is an error."""

    text: str
    ids: tuple[str, ...] = ()
    failed: bool = False


class MemoryCalls:
    """Answers calls from any number of threads."""

    def __init__(self, resident: ResidentClient, binding: Binding) -> None:
        self._resident = resident
        self._scope = {
            "home": str(binding.home),
            "project": binding.project,
            "agent": binding.agent,
        }

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Check the arguments and call a tool; errors become answers that say what went wrong."""
        if name not in TOOLS:
            return ToolAnswer(
                f"there is no tool {name[:64]!r}; there are {', '.join(TOOLS)}", (), True
            )
        if problem := check_arguments(name, arguments):
            return ToolAnswer(f"{name}: {problem}", (), True)
        return self._ask(name, arguments)

    def read_resource(self, uri: str) -> ToolAnswer:
        """Return a resource's text."""
        kind, _, key = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME):
            return ToolAnswer(f"there is no resource {uri[:100]!r}", (), True)
        if kind in ("entry", "fact") and (problem := check_arguments("memory_get", {"id": key})):
            return ToolAnswer(problem, (), True)
        if kind in ("entry", "fact"):
            return self._ask("memory_get", {"id": key})
        if kind == "log" and key:
            return self._ask("memory_log", {"date": key})
        if (kind, key) == ("facts", ""):
            return self._list_facts()
        return ToolAnswer(f"there is no resource {uri[:100]!r}", (), True)

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        request = {"name": name, "arguments": dict(arguments), "context": {}, **self._scope}
        try:
            answer = self._resident.call("tool", request, CALL_SECONDS)
        except MemTierError as error:
            return ToolAnswer(f"{name} failed: {error}", (), True)
        if not answer["ok"]:  # the resident names the tools as the other hosts do
            return ToolAnswer(str(answer["text"]).replace("memtier_", "memory_"), (), True)
        return ToolAnswer(str(answer["text"]), tuple(answer["ids"]))

    def _list_facts(self) -> ToolAnswer:
        try:
            facts = self._resident.call("facts", {"limit": MAX_FACTS, **self._scope}, CALL_SECONDS)[
                "facts"
            ]
        except MemTierError as error:
            return ToolAnswer(f"the facts cannot be read: {error}", (), True)
        lines = [f"{fact['id']} ({fact['origin']}): {escape_line(fact['text'])}" for fact in facts]
        return ToolAnswer("\n".join(lines) or "There are no facts yet.")


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
    from jsonschema import Draft202012Validator  # slow to import

    return Draft202012Validator(TOOLS[tool]["inputSchema"])


# -- Serve MemTier over the Model Context Protocol, with its official SDK: stdio and streamable HTTP
#
# A thin shim: each request becomes one call of the resident, so that any number of clients and
# hooks write through one process.  Nothing but protocol goes to stdout.

TOKEN_FILE: Final = "mcp-token"
MIN_TOKEN_CHARS: Final = 32
MAX_BODY_BYTES: Final = 1024 * 1024  # of an HTTP request; the longest text fits many times


def serve_stdio(binding: Binding, opening: Opening) -> None:
    """Serve the client of an opening until it closes its side."""
    server = build_server(_open_calls(binding))
    lines = wrap_file(cast("IO[str]", opening))

    async def run() -> None:
        async with stdio_server(lines, lines) as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    asyncio.run(run())


def serve_http(binding: Binding, port: int, announce: Callable[[str, Path], None]) -> None:
    """Serve clients that have the home's token, on a loopback port, until a signal.

    Args:
        port: 0 for any that is free.
        announce: called with the address and the token's file once the port is open.

    Raises:
        Unsupported: the port cannot be opened.
        SettingsError: the token's file cannot be used.
    """
    import uvicorn

    token = read_token(binding.home)
    listener = listen_on_loopback(port)
    port = listener.getsockname()[1]
    with listener:
        guarded = _require_token(_http_app(build_server(_open_calls(binding)), port), token)
        app = deliver_refusals(guarded)
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        announce(f"http://{LOOPBACK}:{port}/mcp", binding.home / TOKEN_FILE)
        uvicorn.Server(config).run(sockets=[listener])


def read_token(home: Path) -> str:
    """Return the token that HTTP clients must send, made on the first use and kept (mode 0600).

    Raises:
        SettingsError: the file holds no usable token.
    """
    path = make_home(home) / TOKEN_FILE
    if not path.exists():
        write_private_file(path, secrets.token_urlsafe(32) + "\n")
    token = path.read_text("utf-8").strip()
    if len(token) < MIN_TOKEN_CHARS or not token.isascii():
        raise SettingsError(f"{path} holds no token; delete it, and a new one is made")
    return token


def build_server(calls: MemoryCalls) -> Server[Any]:
    """Return the SDK's server with our tools, resources and prompt."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*map(types.Tool.model_validate, _TOOLS)])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await _in_thread(calls.call_tool, params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(text=answer.text)],
            structured_content=None if answer.failed else _structured(answer),
            is_error=answer.failed,
        )

    async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
        resources = map(types.Resource.model_validate, definitions.RESOURCES)
        return types.ListResourcesResult(resources=[*resources])

    async def list_templates(_context: Any, _params: Any) -> types.ListResourceTemplatesResult:
        templates = map(types.ResourceTemplate.model_validate, definitions.TEMPLATES)
        return types.ListResourceTemplatesResult(resource_templates=[*templates])

    async def read_resource(
        _context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        text = _text_or_raise(await _in_thread(calls.read_resource, uri))
        contents = types.TextResourceContents(uri=uri, text=text, mime_type="text/plain")
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt.model_validate(definitions.PROMPT)])

    async def get_prompt(
        _context: Any, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        topic = (params.arguments or {}).get("topic", "")
        if params.name != definitions.PROMPT["name"] or not topic.strip():
            wanted = definitions.PROMPT["name"]
            raise MCPError(types.INVALID_PARAMS, f"the prompt is {wanted!r}, with a topic")
        text = _text_or_raise(await _in_thread(calls.call_tool, "memory_search", {"query": topic}))
        message = f"What do you remember about {topic}?\n\n{text}"
        content = types.TextContent(text=message)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    return Server(
        NAMES["name"],
        title=NAMES["title"],
        version=NAMES["version"],
        instructions=definitions.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


_TOOLS: Final = tuple(definitions.TOOLS.values())


def _structured(answer: ToolAnswer) -> dict[str, Any]:
    return {"text": answer.text, "ids": list(answer.ids)}


def _text_or_raise(answer: ToolAnswer) -> str:
    if answer.failed:
        raise MCPError(types.INVALID_PARAMS, answer.text)
    return answer.text


async def _in_thread(call: Callable[..., ToolAnswer], *arguments: Any) -> ToolAnswer:
    # The thread outlives a client that leaves: what it asked to store is stored.
    return await asyncio.to_thread(call, *arguments)


def _open_calls(binding: Binding) -> MemoryCalls:
    """Return the calls of a binding; the home's resident is started meanwhile, if none runs."""
    resident = ResidentClient(launch_command(), binding.home)

    def start() -> None:
        with suppress(MemTierError):  # the first call says why
            resident.call("ping", {}, CALL_SECONDS)

    threading.Thread(target=start, name="memtier-start", daemon=True).start()
    return MemoryCalls(resident, binding)


def _http_app(server: Server[Any], port: int) -> ASGIApp:
    """Return the SDK's app, which refuses foreign Host and Origin headers (DNS rebinding)."""
    hosts = [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
    security = TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )
    return server.streamable_http_app(
        max_request_body_size=MAX_BODY_BYTES, transport_security=security
    )


def _require_token(app: ASGIApp, token: str) -> ASGIApp:
    """Return an app that answers 401 to every request without the token."""
    expected = f"Bearer {token}".encode("ascii")

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(sent, expected):
                headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
                await send({"type": "http.response.start", "status": 401, "headers": headers})
                body = b"send the token of this MemTier home as Authorization: Bearer ...\n"
                await send({"type": "http.response.body", "body": body})
                return
        await app(scope, receive, send)

    return guarded
