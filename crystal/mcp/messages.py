"""From a line to a JSON-RPC message, and from an answer to one. Pure; no line raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
BUSY = -32000
RESOURCE_NOT_FOUND = -32002
UNSUPPORTED_VERSION = -32022

Id = str | int

MAX_IN_A_BATCH = 100


class McpError(Exception):
    """A request is answered by an error of the protocol."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True, slots=True)
class Request:
    """What wants an answer."""

    id: Id
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """What wants none."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bad:
    """What is no message; ``id`` is that of the request that it meant to be, where it can be told."""

    code: int
    message: str
    id: Id | None = None


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Several messages in one line: a thing of one version of the protocol (2025-03-26)."""

    messages: tuple[Request | Notification | Bad, ...]


def parse_line(line: bytes) -> Request | Notification | MessageBatch | Bad | None:
    """Read a line; None for what wants nothing: an empty one, or an answer to something that was never asked."""
    if not line.strip():
        return None
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        return Bad(PARSE_ERROR, "this JSON is nested too deeply")
    except ValueError:  # and UnicodeDecodeError, which is one
        return Bad(PARSE_ERROR, "this line is not JSON in UTF-8")
    if isinstance(value, list):
        if not value or len(value) > MAX_IN_A_BATCH:
            return Bad(INVALID_REQUEST, f"a batch has 1 to {MAX_IN_A_BATCH} messages, this one has {len(value)}")
        found = (_message(one) for one in value)
        return MessageBatch(tuple(one for one in found if one is not None))
    return _message(value)


def result_of(ident: Id, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a response."""
    return {"jsonrpc": "2.0", "id": ident, "result": result}


def error_of(ident: Id | None, code: int, message: str, data: Any = None) -> dict[str, Any]:
    """Return an error as a response; without an id if the request is not known."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": ident, "error": error}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _message(value: Any) -> Request | Notification | Bad | None:
    if not isinstance(value, dict):
        return Bad(INVALID_REQUEST, "a message is a JSON object")
    ident, method, params = value.get("id"), value.get("method"), value.get("params")
    known = ident if isinstance(ident, str | int) and not isinstance(ident, bool) else None
    if method is None and ("result" in value or "error" in value):
        return None
    if value.get("jsonrpc") != "2.0":
        return Bad(INVALID_REQUEST, 'a message has "jsonrpc": "2.0"', known)
    if not isinstance(method, str):
        return Bad(INVALID_REQUEST, "a message names its method", known)
    if "id" in value and known is None:
        return Bad(INVALID_REQUEST, "the id of a request is a string or a whole number")
    if params is not None and not isinstance(params, dict):
        return Bad(INVALID_PARAMS, "params is an object", known) if known is not None else None
    return Notification(method, params or {}) if known is None else Request(known, method, params or {})
