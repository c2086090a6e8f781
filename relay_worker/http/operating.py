"""Routes for operators and monitors, without a token. They reveal nothing about stored data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from relay_worker.errors import RequestRefusedError
from relay_worker.http.call import Call
from relay_worker.http.reply import Reply, json_reply

_FOLDER = Path(__file__).resolve().parent.parent


@cache
def _document(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


async def healthz(_: Call) -> Reply:
    """Answer that the process is alive, whatever the state of the store."""
    return json_reply({"status": "ok"})


async def readyz(call: Call) -> Reply:
    """Answer whether the store accepts writes."""
    if call.relay.signals.stopping:
        raise RequestRefusedError("unavailable", "the relay is stopping", retry_after=5)
    await call.relay.probe()
    return json_reply({"status": "ready"})


async def openapi_json(_: Call) -> Reply:
    """Return the OpenAPI description as JSON."""
    return Reply(200, ((b"content-type", b"application/json"),), _document("openapi.json"))


async def openapi_yaml(_: Call) -> Reply:
    """Return the OpenAPI description as YAML."""
    return Reply(200, ((b"content-type", b"application/yaml"),), _document("openapi.yaml"))
