"""Implement MCP's Streamable HTTP: a request is one POST, its answer one JSON object, without sessions.

The server sends no messages of its own, so it has no stream of events: GET is answered by 405, as the specification
allows.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from functools import partial

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from crystal.credentials.access import MAX_GRANTS, Grant
from crystal.credentials.access_log import AccessLog
from crystal.mcp import protocol
from crystal.mcp.catalog import ALIASES, CONNECTOR, TOOLS
from crystal.mcp.handlers import ClientContext, RequestHandlers, Settings
from crystal.mcp.protocol import Dispatcher, McpError, Result, RpcMessage, parse_line, response, unsupported, version_of
from crystal.mcp.remote.token_guard import log_request
from crystal.mcp.stdio import encoded
from crystal.serving.request_checks import read_body

MAX_BODY = 1 << 20
DEFAULT_VERSION = "2025-03-26"
"""The version of a request without the version header."""
WRONG = (protocol.PARSE_ERROR, protocol.INVALID_REQUEST, protocol.HEADER_MISMATCH, protocol.UNSUPPORTED_VERSION)
STATUS = {**dict.fromkeys(WRONG, 400), protocol.FORBIDDEN: 403, protocol.BUSY: 503}
MODERN_STATUS = {**STATUS, protocol.INVALID_PARAMS: 400, protocol.METHOD_NOT_FOUND: 404}
NAMED = {"tools/call": "name", "resources/read": "uri"}
"""The parameter that a request of 2026 repeats in the header ``Mcp-Name``."""
TOOL_NAMES = frozenset(tool.name for tool in (*TOOLS, *ALIASES, *CONNECTOR))
"""Tool names that may be logged; other names are text of the client."""


class Transport:
    """MCP server over HTTP, with a dispatcher for each grant.

    Args:
        settings: As for ``RequestHandlers``.
        log: Gets an entry for each request.
        url: The address of this server, without a path.
    """

    def __init__(self, settings: Settings, log: AccessLog, url: str) -> None:
        self._settings, self._log, self._url = settings, log, url
        self._answers: dict[Grant, Dispatcher] = {}
        self._threads, self._waiting = CapacityLimiter(protocol.MAX_AT_ONCE), 0

    async def endpoint(self, request: Request) -> Response:
        """Answer one POST."""
        if request.method != "POST":
            return Response(status_code=405, headers={"allow": "POST"})
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _failed(McpError(protocol.INVALID_REQUEST, "the body is application/json"), 415)
        body = await read_body(request.receive, MAX_BODY)
        if body is None:
            return _failed(McpError(protocol.INVALID_REQUEST, f"a body has at most {MAX_BODY} bytes"), 413)
        if not body.strip():  # parse_line allows an empty line
            return _failed(McpError(protocol.PARSE_ERROR, "the body is empty"))
        message = None
        try:
            message = parse_line(body)
            if message is None or message.id is None:
                return Response(status_code=202)
            return await self._answer(request, message)
        except McpError as error:
            return _failed(error, ident=error.ident if message is None else message.id)

    async def _answer(self, request: Request, message: RpcMessage) -> Response:
        version = _checked_version(message, request.headers)
        answers = self.answers(request.state.grant)
        try:
            if message.method in protocol.GREETINGS:
                return _json(response(message.id, answers.greeting(message, version_of(message))))
            if not answers.knows(message.method):
                raise unsupported(message)
            return _sent(await self.call(request, message, version), version)
        except McpError as error:  # with a status of this version: to clients before 2026, 404 is a session that ended
            return _sent(error.response(message.id), version)

    async def call(self, request: Request, message: RpcMessage, version: str) -> Result:
        """Return the response to a request for tools or resources.

        Raises:
            McpError: Too many requests are waiting.
        """
        work = partial(self._work, message, version, request.state.grant, request.state.address)
        if self._waiting >= protocol.MAX_WAITING:
            raise McpError(protocol.BUSY, f"{protocol.MAX_WAITING} requests are waiting; try again in a moment")
        self._waiting += 1
        try:
            return await run_sync(work, limiter=self._threads)
        finally:
            self._waiting -= 1

    def answers(self, grant: Grant) -> Dispatcher:
        """Return the dispatcher of a grant; it keeps the previews of forgetting between requests."""
        if grant not in self._answers:
            if len(self._answers) > MAX_GRANTS:
                self._answers.clear()
            client = ClientContext(projects=grant.projects, url=self._url, is_reader="read" in grant.scopes)
            self._answers[grant] = Dispatcher(RequestHandlers(client, self._settings, grant.scopes).spec())
        return self._answers[grant]

    def _work(self, message: RpcMessage, version: str, grant: Grant, address: str) -> Result:
        begun = time.monotonic()
        answer = self.answers(grant).answer(message, version)
        name = message.params.get("name") if message.method == "tools/call" else None
        what = name if isinstance(name, str) and name in TOOL_NAMES else message.method
        log_request(self._log, grant, what, outcome_of(answer), time.monotonic() - begun, address)
        return answer


def challenge(scope: str) -> dict[str, str]:
    """Return the header that names the scope that a token lacks."""
    return {"www-authenticate": f'Bearer realm="crystal", error="insufficient_scope", scope="{scope}"'}


def outcome_of(answer: Result) -> str:
    """Return the outcome of a request for the log: ``ok``, ``error`` or ``refused``."""
    if "error" in answer:
        return "refused" if answer["error"]["code"] == protocol.FORBIDDEN else "error"
    return "error" if answer["result"].get("isError") else "ok"


def _checked_version(message: RpcMessage, headers: Headers) -> str:
    """Return the version of a request.

    Raises:
        McpError: The headers differ from the body, or the version is not supported.
    """
    named, header = version_of(message), headers.get("mcp-protocol-version")
    if named is None:
        if header in protocol.MODERN:
            raise McpError(protocol.INVALID_PARAMS, f"a request of {header} names its version in params._meta")
        if header is not None and header not in protocol.LEGACY and message.method != "initialize":
            known = {"supported": [*protocol.LEGACY, *protocol.MODERN], "requested": header[:40]}
            raise McpError(protocol.UNSUPPORTED_VERSION, f"version {header[:40]!r} is not supported", known)
        return header or DEFAULT_VERSION
    wanted = {"mcp-protocol-version": named, "mcp-method": message.method}
    if (key := NAMED.get(message.method)) and isinstance(value := message.params.get(key), str):
        wanted["mcp-name"] = value
    for name, value in wanted.items():
        if [_decoded(one) for one in headers.getlist(name)] != [value]:
            raise McpError(protocol.HEADER_MISMATCH, f"the header {name} does not say what the body says")
    return named


def _decoded(value: str) -> str:
    """Return the value of a header, decoded if it is in base64."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except ValueError:
        return value


def _sent(answer: Result, version: str) -> Response:
    if "error" not in answer:
        return _json(answer)
    code = answer["error"]["code"]
    headers = challenge(answer["error"]["data"]["scope"]) if code == protocol.FORBIDDEN else None
    return _json(answer, (MODERN_STATUS if version in protocol.MODERN else STATUS).get(code, 200), headers)


def _failed(error: McpError, status: int | None = None, ident: str | int | None = None) -> Response:
    return _json(error.response(ident), status or MODERN_STATUS.get(error.code, 400))


def _json(answer: Result, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encoded(answer), status, headers, "application/json")
