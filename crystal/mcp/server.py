"""The protocol: who greets, what there is, what is asked for. It knows no tool by name.

Two eras of the protocol are spoken on the same wire. Up to 2025-11-25 a client greets with ``initialize``; from
2026-07-28 on each request carries its version, and ``server/discover`` tells what there is. The greetings are answered
from this file alone; whatever follows is checked by the official types, which take their time to load.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from crystal.mcp.calls import Calls, PendingCall
from crystal.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Bad,
    McpError,
    MessageBatch,
    Notification,
    Request,
    error_of,
    parse_line,
    result_of,
)
from crystal.mcp.wire import MAX_BYTES, Wire

GREETED = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions that begin with ``initialize``, the newest last."""
MODERN = ("2026-07-28",)
"""The versions that each request names."""
WITH_BATCHES = "2025-03-26"

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

CAPABILITIES = {"tools": {"listChanged": False}, "resources": {"listChanged": False, "subscribe": False}}
WITHOUT_PARAMS = ("tools/list", "resources/list", "resources/templates/list")
"""What may be asked without saying more."""

SECONDS_AFTER_THE_END = 10.0
"""So long what was asked before the end of the input is still worked on."""

Result = dict[str, Any]


class ServerMethods(Protocol):
    """What a server has to offer, by method: each function takes the params and gives the result."""

    name: str
    version: str
    title: str
    instructions: str

    def methods(self) -> Mapping[str, Callable[[Mapping[str, Any], PendingCall], Result]]:
        """Return every method except the handshake."""


class Server:
    """One client, from its first line to the end of its input."""

    def __init__(self, wire: Wire, offer: ServerMethods) -> None:
        self._wire, self._offer = wire, offer
        self._calls = Calls()
        self._version = GREETED[-1]
        self._methods = offer.methods()

    def run(self) -> None:
        """Answer until the input ends, then what is still open."""
        for line in self._wire.lines():
            if line is None:
                self._wire.write(error_of(None, PARSE_ERROR, f"a line has more than {MAX_BYTES} bytes"))
                continue
            message = parse_line(line)
            if isinstance(message, MessageBatch):
                self._take_batch(message)
            elif message is not None:
                self._take(message)
        self._calls.finish(SECONDS_AFTER_THE_END)

    def _take_batch(self, batch: MessageBatch) -> None:
        if self._version != WITH_BATCHES:
            self._wire.write(error_of(None, INVALID_REQUEST, f"only version {WITH_BATCHES} has batches"))
            return
        for message in batch.messages:
            self._take(message)

    def _take(self, message: Request | Notification | Bad) -> None:
        if isinstance(message, Bad):
            self._wire.write(error_of(message.id, message.code, message.message))
        elif isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                self._calls.cancel(message.params.get("requestId"))
        else:
            try:
                self._answer(message)
            except McpError as error:
                self._wire.write(error_of(message.id, error.code, error.message, error.data))

    def _answer(self, request: Request) -> None:
        version = _version_of(request)
        if request.method in ("initialize", "server/discover", "ping"):
            self._wire.write(result_of(request.id, self._greeting(request, version)))
        elif request.method in self._methods:
            self._calls.start(request.id, lambda call: self._work(request, version or self._version, call))
        else:
            raise McpError(METHOD_NOT_FOUND, f"method {request.method[:100]!r} is not supported")

    def _greeting(self, request: Request, version: str | None) -> Result:
        if request.method == "ping":
            return {} if version is None else self._stamped("ping", version, {})
        about = {"capabilities": CAPABILITIES, "instructions": self._offer.instructions}
        if request.method == "server/discover":
            if version is None:
                raise McpError(METHOD_NOT_FOUND, f"server/discover belongs to {MODERN[-1]}: name it in params._meta")
            return self._stamped("server/discover", version, {"supportedVersions": list(MODERN), **about})
        asked = request.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise McpError(INVALID_PARAMS, "protocolVersion is missing")
        self._version = asked if asked in GREETED else GREETED[-1]
        return {"protocolVersion": self._version, "serverInfo": self._info(), **about}

    def _work(self, request: Request, version: str, call: PendingCall) -> None:
        """Answer a request in a thread, whatever happens."""
        try:
            _check(request, version)
            result = self._stamped(request.method, version, self._methods[request.method](request.params, call))
            answer = result_of(request.id, result)
        except McpError as error:
            answer = error_of(request.id, error.code, error.message, error.data)
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the others
            sys.excepthook(type(error), error, error.__traceback__)
            answer = error_of(request.id, INTERNAL_ERROR, f"{type(error).__name__} in crystal; see standard error")
        if not call.cancelled.is_set():
            self._wire.write(answer)

    def _stamped(self, method: str, version: str, result: Result) -> Result:
        """Return a result with the fields that the protocol version of 2026 requires on each."""
        if version not in MODERN:
            return result
        meta = {**result.get("_meta", {}), SERVER_KEY: self._info()}
        cache = {} if method in ("ping", "tools/call") else {"ttlMs": 0, "cacheScope": "private"}
        return {"resultType": "complete", **cache, **result, "_meta": meta}

    def _info(self) -> Result:
        return {"name": self._offer.name, "title": self._offer.title, "version": self._offer.version}


def _version_of(request: Request) -> str | None:
    """Return the version that a request names for itself; None if it leaves that to ``initialize``."""
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


def _check(request: Request, version: str) -> None:
    """Let the official types judge the params of a request; they load when there are some."""
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


def serve(offer: ServerMethods) -> None:
    """Serve the client at the other end of this process's standard input and output; ends the process.

    Nothing is left to clean up: what a tool writes, it writes in one transaction.
    """

    def leave(number: int, _: object) -> None:
        os._exit(128 + number)

    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, leave)
    try:
        wire = Wire.claim(gone=lambda: os._exit(0))
    except OSError:  # nobody is there
        os._exit(0)
    Server(wire, offer).run()
    sys.stderr.flush()
    os._exit(0)
