"""Turn a matched path into an answer: check method, version and authentication, then call the route's function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.types import Receive, Scope, Send

from relay_worker.errors import RequestRefusedError
from relay_worker.http.call import Call
from relay_worker.http.reply import Reply
from relay_worker.services import Services

Handler: TypeAlias = "Callable[[Call], Awaitable[Reply]]"


class Resource:
    """One path: an ASGI application that answers with ``Reply`` or raises ``RequestRefusedError``.

    Args:
        relay: Services shared by the routes.
        path: The route pattern; its name in logs and metrics.
        methods: The handlers by method; ``GET`` also answers ``HEAD``.
        schemes: Accepted authentication: ``bearer``, ``claim``; none is required if empty.
    """

    def __init__(self, relay: Services, path: str, methods: Mapping[str, Handler], schemes: tuple[str, ...]) -> None:
        self._relay = relay
        self._path = path
        self._methods = dict(methods)
        if "GET" in self._methods:
            self._methods["HEAD"] = self._methods["GET"]
        self._schemes = schemes
        self._allow = ", ".join(sorted(self._methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        scope["crystal.route"] = self._path
        handler = self._methods.get(scope["method"])
        if handler is None:
            raise RequestRefusedError("method-not-allowed", f"here: {self._allow}", headers=(("Allow", self._allow),))
        call = Call(scope, receive, self._relay)
        with call.counted():
            if self._schemes:
                call.check_version()
                call.authenticate(*self._schemes)
                scope["crystal.token"] = call.token.id if call.token else None
                await self._relay.sweep_if_due()
            reply = await handler(call)
            await reply.send(send, scope["crystal.request_id"], head_only=scope["method"] == "HEAD")
