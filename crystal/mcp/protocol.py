"""Implement the protocol: JSON-RPC messages, greetings, errors, and requests in threads. No tool is named here.

Two generations of the protocol are supported. Up to 2025-11-25 a client begins with ``initialize``; from 2026-07-28 on
each request has its version, and ``server/discover`` returns what the server can do. Greetings are answered without
other modules; other requests are checked with the official types, which take long to load.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from crystal.mcp.stdio import MAX_BYTES, Wire

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions that begin with ``initialize``, the newest last."""
MODERN = ("2026-07-28",)
"""The versions that are named in each request."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

CAPABILITIES = {"tools": {"listChanged": False}, "resources": {"listChanged": False, "subscribe": False}}
GREETINGS = ("initialize", "server/discover", "ping")
"""Methods that read nothing from the memory."""
WITHOUT_PARAMS = ("tools/list", "resources/list", "resources/templates/list")
"""Methods that need no parameters."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
BUSY = -32000
FORBIDDEN = -32003
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

MAX_AT_ONCE = 4
MAX_WAITING = 200
SECONDS_AFTER_THE_END = 10.0
"""Time for requests that are open when the input ends."""

Id = str | int
Result = dict[str, Any]


class McpError(Exception):
    """Error of the protocol that answers a message; ``ident`` is the id of its request, None if unknown."""

    def __init__(self, code: int, message: str, data: Any = None, *, ident: Id | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.ident = code, message, data, ident

    def response(self, ident: Id | None) -> Result:
        """Return the response to a request; without an id if the request is not known."""
        error = {"code": self.code, "message": self.message, **({} if self.data is None else {"data": self.data})}
        return {"jsonrpc": "2.0", "id": ident, "error": error}


@dataclass(slots=True)
class RpcMessage:
    """A request, or a notification, which has no id and gets no answer.

    ``is_cancelled``: the client no longer waits for the answer.
    """

    id: Id | None
    method: str
    params: Mapping[str, Any]
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """Specification of a server, with a function from params to result for each method except the greetings."""

    name: str
    version: str
    instructions: str
    methods: Mapping[str, Callable[[Mapping[str, Any]], Result]]


def parse_line(line: bytes) -> RpcMessage | None:
    """Parse a line; None for an empty one, an answer, and a notification with invalid parameters.

    Raises:
        McpError: It is not a message.
    """
    if not line.strip():
        return None
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise McpError(PARSE_ERROR, "this JSON is nested too deeply") from None
    except ValueError:  # and UnicodeDecodeError, which is one
        raise McpError(PARSE_ERROR, "this is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise McpError(INVALID_REQUEST, "a message is a JSON object")
    return _message(value)


def _message(value: dict[str, Any]) -> RpcMessage | None:
    ident, method, params = value.get("id"), value.get("method"), value.get("params")
    known = ident if isinstance(ident, str | int) and not isinstance(ident, bool) else None
    if method is None and ("result" in value or "error" in value):
        return None
    if value.get("jsonrpc") != "2.0":
        raise McpError(INVALID_REQUEST, 'a message has "jsonrpc": "2.0"', ident=known)
    if not isinstance(method, str):
        raise McpError(INVALID_REQUEST, "a message names its method", ident=known)
    if "id" in value and known is None:
        raise McpError(INVALID_REQUEST, "the id of a request is a string or a whole number")
    if params is None or isinstance(params, dict):
        return RpcMessage(known, method, params or {})
    if known is None:
        return None
    raise McpError(INVALID_PARAMS, "params is an object", ident=known)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


class Dispatcher:
    """Answers requests, independent of the transport."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec

    def knows(self, method: str) -> bool:
        """Return True if the server has this method; greetings do not count."""
        return method in self._spec.methods

    def answer(self, message: RpcMessage, version: str) -> Result:
        """Return the response to a request; an exception becomes an error response."""
        try:
            _check(message, version)
            result = self._stamped(message.method, version, self._spec.methods[message.method](message.params))
            return response(message.id, result)
        except McpError as error:
            return error.response(message.id)
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the others
            from crystal.config.packages import broken_package

            broken = broken_package(error)
            if broken is not None:  # without what follows a colon: it may have a path
                words = f"{broken.message.partition(':')[0]}; on the machine of the memory run: crystal doctor"
                return McpError(INTERNAL_ERROR, words).response(message.id)
            sys.excepthook(type(error), error, error.__traceback__)
            words = f"{type(error).__name__} in crystal; see standard error"
            return McpError(INTERNAL_ERROR, words).response(message.id)

    def greeting(self, request: RpcMessage, version: str | None) -> Result:
        """Return the result of a greeting.

        Raises:
            McpError: The request lacks the protocol version.
        """
        if request.method == "ping":
            return {} if version is None else self._stamped("ping", version, {})
        about = {"capabilities": CAPABILITIES, "instructions": self._spec.instructions}
        if request.method == "server/discover":
            if version is None:
                raise McpError(METHOD_NOT_FOUND, f"server/discover belongs to {MODERN[-1]}: name it in params._meta")
            return self._stamped("server/discover", version, {"supportedVersions": list(MODERN), **about})
        asked = request.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise McpError(INVALID_PARAMS, "protocolVersion is missing")
        agreed = asked if asked in LEGACY else LEGACY[-1]
        return {"protocolVersion": agreed, "serverInfo": self._info(), **about}

    def _stamped(self, method: str, version: str, result: Result) -> Result:
        """Return a result with the fields that version 2026-07-28 requires."""
        if version not in MODERN:
            return result
        cache = {} if method in ("ping", "tools/call") else {"ttlMs": 0, "cacheScope": "private"}
        return {"resultType": "complete", **cache, **result, "_meta": {SERVER_KEY: self._info()}}

    def _info(self) -> Result:
        return {"name": self._spec.name, "title": self._spec.name, "version": self._spec.version}


class Server:
    """Serves one client until its input ends. Requests run in threads, so that a slow one does not block the others."""

    def __init__(self, wire: Wire, spec: ServerSpec) -> None:
        self._wire, self._answers = wire, Dispatcher(spec)
        self._version = LEGACY[-1]
        self._open: dict[Future[None], RpcMessage] = {}

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # the greeting needs none

        return ThreadPoolExecutor(MAX_AT_ONCE, "call")

    def run(self) -> None:
        """Answer until the input ends, then finish the open requests."""
        for line in self._wire.lines():
            message = None
            try:
                if line is None:
                    raise McpError(PARSE_ERROR, f"a line has more than {MAX_BYTES} bytes")
                message = parse_line(line)
                if message is not None:
                    self._take(message)
            except McpError as error:
                self._wire.write(error.response(error.ident if message is None else message.id))
        if self._open:
            from concurrent.futures import wait

            wait(list(self._open), SECONDS_AFTER_THE_END)

    def _take(self, message: RpcMessage) -> None:
        if message.id is None:
            if message.method == "notifications/cancelled":
                self._cancel(message.params.get("requestId"))
            return
        version = version_of(message)
        if message.method in GREETINGS:
            result = self._answers.greeting(message, version)
            self._version = result.get("protocolVersion", self._version)
            self._wire.write(response(message.id, result))
        elif self._answers.knows(message.method):
            self._start(message, version or self._version)
        else:
            raise unsupported(message)

    def _cancel(self, ident: object) -> None:
        for message in list(self._open.values()):
            if message.id == ident and type(message.id) is type(ident):
                message.is_cancelled = True

    def _start(self, message: RpcMessage, version: str) -> None:
        if len(self._open) >= MAX_WAITING:
            raise McpError(BUSY, f"{MAX_WAITING} requests are waiting; try again in a moment")
        future = self._threads.submit(self._work, message, version)
        self._open[future] = message
        future.add_done_callback(self._open.pop)

    def _work(self, message: RpcMessage, version: str) -> None:
        if message.is_cancelled:
            return
        answer = self._answers.answer(message, version)
        if not message.is_cancelled:
            self._wire.write(answer)


def response(ident: Id | None, result: Result) -> Result:
    """Return the message that answers a request."""
    return {"jsonrpc": "2.0", "id": ident, "result": result}


def unsupported(message: RpcMessage) -> McpError:
    """Return the error for an unknown method."""
    return McpError(METHOD_NOT_FOUND, f"method {message.method[:100]!r} is not supported")


def version_of(request: RpcMessage) -> str | None:
    """Return the protocol version in a request's ``_meta``; None if it has none, and for ``initialize``.

    Raises:
        McpError: The fields are malformed, or the version is not supported.
    """
    meta = request.params.get("_meta")
    if request.method == "initialize" or not isinstance(meta, dict) or VERSION_KEY not in meta:
        return None
    version = meta[VERSION_KEY]
    if not isinstance(version, str) or not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise McpError(INVALID_PARAMS, f"params._meta has a string {VERSION_KEY} and an object {CAPABILITIES_KEY}")
    if version not in MODERN:
        known = {"supported": list(MODERN), "requested": version}
        raise McpError(UNSUPPORTED_VERSION, f"version {version[:40]!r} is not supported", known)
    return version


def _check(request: RpcMessage, version: str) -> None:
    """Check the parameters of a request with the official types, which are loaded only if there are parameters."""
    if not set(request.params) - {"_meta"} and request.method in WITHOUT_PARAMS:
        return
    from mcp_types import methods
    from pydantic import ValidationError

    try:
        methods.validate_client_request(request.method, version, request.params)
    except KeyError:
        raise McpError(METHOD_NOT_FOUND, f"method {request.method!r} is not in version {version}") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in wrong["loc"])
        raise McpError(INVALID_PARAMS, f"{request.method}: {place}: {wrong['msg']}") from None


def serve(spec: ServerSpec) -> None:
    """Serve the client on standard input and output, then end the process.

    Nothing needs cleaning up, because each tool writes in one transaction.
    """

    def leave(number: int, _: object) -> None:
        os._exit(128 + number)

    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, leave)
    try:
        wire = Wire.claim(gone=lambda: os._exit(0))
    except OSError:  # standard input or output is closed
        os._exit(0)
    Server(wire, spec).run()
    sys.stderr.flush()
    os._exit(0)
