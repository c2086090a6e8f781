"""The relay's app, served on loopback from a thread of this process by the relay's own protocol.

with ServedApp(RelayApp(...)) as served:
    client = RelayClient(served.url, token)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import httpx
import uvicorn
from uvicorn.server import ServerState

from relay_worker.app import RelayApp
from relay_worker.bounded_protocol import BoundedProtocol

SECONDS = 30.0


class ServedApp:
    """One running app. ``transport`` sends any request to it, whatever its address.

    Args:
        app: The relay's app.
        lifespan: Tell it of its start and its end.
    """

    def __init__(self, app: RelayApp, *, lifespan: bool = True) -> None:
        self.app = app
        self.errors: list[Exception] = []
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._answer,
            http=BoundedProtocol,
            ws="none",
            interface="asgi3",
            lifespan="on" if lifespan else "off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ServedApp:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> ServedApp:
        self._thread.start()
        port = self.call(self._begin())
        self.url = f"http://127.0.0.1:{port}"
        self.transport = _ToPort(port)
        return self

    def stop(self) -> None:
        """End as a server does on SIGTERM: requests in flight are dropped after the app's own end."""
        if self._thread.is_alive():
            self.call(self._life.shutdown())
            self.kill()

    def kill(self) -> None:
        """End at once, as without power: nothing of the app runs any more."""
        self.call(self._cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()
        self.transport.close()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the app's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.app(scope, receive, send)
        except Exception as error:
            self.errors.append(error)
            raise

    async def _begin(self) -> int:
        self._config.load()
        self._life = self._config.lifespan_class(self._config)
        await self._life.startup()
        assert not self._life.should_exit
        self._server = await self._loop.create_server(
            lambda: BoundedProtocol(config=self._config, server_state=self._state, app_state=self._life.state),
            "127.0.0.1",
        )
        return self._server.sockets[0].getsockname()[1]

    async def _cancel(self) -> None:
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5) if tasks else None
        await self._loop.shutdown_default_executor()


class _ToPort(httpx.HTTPTransport):
    def __init__(self, port: int) -> None:
        super().__init__(trust_env=False)
        self._port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
        return super().handle_request(request)
