"""The relay as an ASGI application.

It needs no lifespan events: it is complete when ``create_app`` returns, also over ``httpx.ASGITransport``. If there are
events, shutdown ends waiting requests and records when tokens were last used. The caller that opened the store closes
it after the last request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from relay_worker.errors import ClientGoneError, RequestRefusedError
from relay_worker.http import objects, operating, pairing, streams, tokens
from relay_worker.http.reply import problem_reply
from relay_worker.http.resource import Handler, Resource
from relay_worker.metrics import Metrics
from relay_worker.services import Services, wall_clock
from relay_worker.settings import Settings
from relay_worker.store.sqlite import SqliteStore

BEARER = ("bearer",)
CLAIM = ("claim",)
EITHER = ("bearer", "claim")
OPEN: tuple[str, ...] = ()

# The most frequent first: they are tried in this order.
ROUTES: tuple[tuple[str, dict[str, Handler], tuple[str, ...]], ...] = (
    ("/v1/streams/{stream}/blobs/{seq}", {"PUT": streams.put_blob, "GET": streams.get_blob}, BEARER),
    ("/v1/streams", {"GET": streams.list_streams}, BEARER),
    ("/v1/streams/{stream}/blobs", {"GET": streams.list_blobs}, BEARER),
    ("/v1/streams/{stream}/ack", {"POST": streams.acknowledge}, BEARER),
    ("/v1/streams/{stream}", {"GET": streams.get_stream}, BEARER),
    (
        "/v1/objects/{id}",
        {"PUT": objects.put_object, "GET": objects.get_object, "DELETE": objects.delete_object},
        BEARER,
    ),
    ("/v1/objects", {"GET": objects.list_objects}, BEARER),
    ("/v1/tokens", {"GET": tokens.list_tokens, "POST": tokens.make_token}, BEARER),
    ("/v1/tokens/{token_id}", {"DELETE": tokens.revoke_token}, BEARER),
    ("/v1/pair", {"POST": pairing.open_mailbox}, BEARER),
    ("/v1/pair/{nameplate}", {"DELETE": pairing.close_mailbox}, EITHER),
    ("/v1/pair/{nameplate}/claim", {"PUT": pairing.claim_mailbox}, CLAIM),
    ("/v1/pair/{nameplate}/{side}/{phase}", {"PUT": pairing.put_mail, "GET": pairing.get_mail}, EITHER),
    ("/healthz", {"GET": operating.healthz}, OPEN),
    ("/readyz", {"GET": operating.readyz}, OPEN),
    ("/openapi.json", {"GET": operating.openapi_json}, OPEN),
    ("/openapi.yaml", {"GET": operating.openapi_yaml}, OPEN),
)


def create_app(
    settings: Settings,
    store: SqliteStore,
    *,
    metrics: Metrics | None = None,
    now: Callable[[], int] = wall_clock,
    monotonic: Callable[[], float] = time.monotonic,
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> RelayApp:
    """Build the application around an open store.

    Args:
        settings: The configuration: limits, rates, deadlines.
        store: The open store; closed by the caller.
        metrics: Passed by the caller if the store reports to them too.
        now: Returns milliseconds since 1970; tests replace it.
        monotonic: Returns seconds, for rates and deadlines.
        random: Returns that many random bytes.
    """
    return RelayApp(Services(settings, store, now, monotonic, random, metrics or Metrics()))


class RelayApp:
    """Outermost layer: request ids, errors as problem documents, counting and logging.

    Attributes:
        relay: Services shared by the routes.
    """

    def __init__(self, relay: Services) -> None:
        self.relay = relay
        self._router = Router(
            routes=[Route(path, Resource(relay, path, methods, who)) for path, methods, who in ROUTES],
            redirect_slashes=False,
            default=_not_found,
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        yield
        self.relay.signals.stop()
        await self.relay.sweep()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        began = time.perf_counter()
        status = 499
        scope["crystal.request_id"] = secrets.token_hex(8)
        started = False

        async def noting(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
            await send(message)

        try:
            await self._answer(scope, receive, noting)
        except ClientGoneError:
            pass
        except asyncio.CancelledError:
            if not started:
                await _send_problem(
                    RequestRefusedError("unavailable", "the relay is stopping", retry_after=5), scope, noting
                )
            raise
        except Exception:  # a bug: the client gets status 500, the log gets the traceback
            if not started:
                refusal = RequestRefusedError(
                    "internal", "the relay has a bug; its log has details under this request id"
                )
                await _send_problem(refusal, scope, noting)
            raise
        finally:
            self._note(scope, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._router(scope, receive, send)
        except RequestRefusedError as refusal:
            if refusal.__cause__ is not None and refusal.status >= 500:
                self.relay.log.error("store failed", exc_info=refusal.__cause__)  # noqa: TRY400 - the cause, not the refusal
            await _send_problem(refusal, scope, send)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        relay = self.relay
        route = scope.get("crystal.route", "none")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        relay.metrics.requests.labels(route, method, str(status)).inc()
        relay.metrics.seconds.labels(route).observe(seconds)
        if status == 401:
            relay.metrics.auth_failures.inc()
        elif status == 429:
            relay.metrics.rate_limited.inc()
        wanted = relay.settings.access_log
        if wanted == "all" or (wanted == "errors" and status >= 400):
            level = logging.ERROR if status >= 500 else logging.INFO
            relay.log.log(level, "request", extra={"fields": _fields(scope, route, method, status, seconds)})


_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})


def _fields(scope: Scope, route: str, method: str, status: int, seconds: float) -> dict[str, Any]:
    found = {
        "request_id": scope["crystal.request_id"],
        "method": method,
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 1),
    }
    token = scope.get("crystal.token")
    if token:
        found["token"] = token
    stream = scope.get("path_params", {}).get("stream", "")
    if token and stream:
        # Only enough to tell two apart, and no text chosen by the client.
        found["stream"] = stream[:8] if stream[:8].isalnum() and stream.isascii() else "?"
    return found


async def _send_problem(refusal: RequestRefusedError, scope: Scope, send: Send) -> None:
    reply = problem_reply(refusal)
    await reply.send(send, scope["crystal.request_id"], head_only=scope["method"] == "HEAD")


async def _not_found(*_: object) -> None:
    raise RequestRefusedError("not-found", "there is no such route")
