"""Serve the relay as an ASGI application.

It needs no lifespan events: it is complete when it is made, also over ``httpx.ASGITransport``. If there are events,
shutdown ends waiting requests and records when tokens were last used. The caller that opened the store closes it after
the last request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable

from relay_worker.errors import ClientGoneError, RequestRefusedError
from relay_worker.http.call import Call, Message, Receive, Send
from relay_worker.http.reply import Reply, problem_reply
from relay_worker.http.routes import ROUTES, Handler
from relay_worker.services import Services

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"})
_PATTERNS = [
    (re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", route[0].replace(".", r"\."))), route) for route in ROUTES
]


class RelayApp:
    """Routes requests; answers with problem documents to errors; counts and logs.

    Attributes:
        relay: Services shared by the routes.
    """

    def __init__(self, relay: Services) -> None:
        self.relay = relay

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        began = time.perf_counter()
        call = Call(scope, receive, self.relay)
        status = 0

        async def answer(reply: Reply) -> None:
            nonlocal status
            status = status or reply.status
            await reply.send(send, call.request_id, head_only=scope["method"] == "HEAD")

        try:
            await self._answer(call, answer)
        except ClientGoneError:
            pass
        except asyncio.CancelledError:
            if not status:
                await answer(problem_reply(RequestRefusedError("unavailable", "the relay is stopping", retry_after=5)))
            raise
        except Exception:  # a bug: the client gets status 500, the log gets the traceback
            if not status:
                detail = "the relay has a bug; its log has details under this request id"
                await answer(problem_reply(RequestRefusedError("internal", detail)))
            raise
        finally:
            call.release()
            self._note(call, status or 499, time.perf_counter() - began)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        self.relay.signals.stop()
        with contextlib.suppress(RequestRefusedError):  # the store cannot do it later either
            await self.relay.sweep()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, call: Call, answer: Callable[[Reply], Awaitable[None]]) -> None:
        try:
            handler, schemes = _route(call)
            self.relay.tell_rates_if_due()
            call.admit()
            if schemes:
                call.check_version()
                await call.authenticate(schemes)
                await self.relay.sweep_if_due()
            await answer(await handler(call))
        except RequestRefusedError as refusal:
            if refusal.__cause__ is not None and refusal.status >= 500:
                self.relay.log.error("store failed", exc_info=refusal.__cause__)  # noqa: TRY400 - the cause, not the refusal
            await answer(problem_reply(refusal))

    def _note(self, call: Call, status: int, seconds: float) -> None:
        relay = self.relay
        method = call.scope["method"] if call.scope["method"] in _METHODS else "other"
        relay.metrics.requests_of(call.route, method, str(status)).inc()
        relay.metrics.seconds_of(call.route).observe(seconds)
        wanted = relay.settings.access_log
        if wanted == "all" or (wanted == "errors" and status >= 400):
            fields = {
                "request_id": call.request_id,
                "method": method,
                "route": call.route,
                "status": status,
                "ms": round(seconds * 1000, 1),
            }
            if call.token:
                fields["token"] = call.token.id
            stream = call.parts.get("stream", "")
            if call.token and stream:
                # Only enough to distinguish two streams, and no text chosen by the client.
                fields["stream"] = stream[:8] if stream[:8].isalnum() and stream.isascii() else "?"
            relay.log.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra={"fields": fields})


def _route(call: Call) -> tuple[Handler, tuple[str, ...]]:
    """Return the handler of a request, and the ways in which its client may authenticate."""
    method = call.scope["method"]
    for pattern, (route, methods, schemes) in _PATTERNS:
        found = pattern.fullmatch(call.scope["path"])
        if found is None:
            continue
        call.route, call.parts = route, found.groupdict()
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            allow = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
            raise RequestRefusedError("method-not-allowed", f"here: {allow}", headers=(("Allow", allow),))
        return handler, schemes
    raise RequestRefusedError("not-found", "there is no such route")
