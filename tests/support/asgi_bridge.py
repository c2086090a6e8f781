"""A sync httpx transport that runs an ASGI app in this process, as a server on a socket would.

    with AsgiBridge(RelayApp(...)) as bridge:
        client = RelayClient("http://127.0.0.1", token, transport=OverHttpx(bridge.transport()))

One thread runs the event loop; any number of threads may ask at once, and a long-poll blocks only who asked. Bodies
stream in both directions: the app gets the next piece of a request when it asks for it, and is held back while
nobody reads its answer. What a server would do to the connection becomes the httpx error that a client would see:

- the app returns without an answer, or raises: "disconnected" (``errors`` keeps what was raised),
- it sends less than its Content-Length, or ends without its last piece: "closed ... incomplete",
- it does not answer in time: ReadTimeout, and the app is told that the client has gone.

``kill()`` is the power cord: tasks are cancelled where they stand and no shutdown runs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import httpx

App = Callable[[Any, Any, Any], Any]

PIECE = 64 * 1024
AHEAD = 16
START_SECONDS = 30.0


class AsgiBridge:
    """One running app. ``with`` starts and ends it; ``transport`` gives clients their ways to it.

    Args:
        app: ASGI 3.
        lifespan: Run its start and its end.
        client: Whose address the app sees; a transport may have another.
    """

    def __init__(self, app: App, *, lifespan: bool = True, client: str = "127.0.0.1") -> None:
        self.app = app
        self.client = client
        self.errors: list[BaseException] = []
        self.state: dict[str, Any] = {}
        self.alive = False
        self._lifespan = lifespan
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="asgi-bridge", daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: asyncio.Event | None = None
        self._life: asyncio.Task[Any] | None = None

    def __enter__(self) -> AsgiBridge:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def transport(self, client: str | None = None) -> BridgeTransport:
        """A way to the app; closing it leaves the app running."""
        return BridgeTransport(self, client or self.client)

    def start(self) -> AsgiBridge:
        self._thread.start()
        self.alive = True
        if self._lifespan:
            try:
                self.call(self._begin(), START_SECONDS)
            except BaseException:
                self._close()
                raise
        return self

    def stop(self) -> None:
        """End as a server does on SIGTERM: requests in flight are dropped after the app's own end."""
        if not self.alive:
            return
        try:
            if self._lifespan:
                self.call(self._finish(), START_SECONDS)
        finally:
            self._close()

    def kill(self) -> None:
        """End at once: nothing of the app runs any more."""
        if self.alive:
            self._close()

    def call(self, work: Any, timeout: float | None = None) -> Any:
        """Run a coroutine in the app's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _close(self) -> None:
        self.alive = False
        with contextlib.suppress(TimeoutError, concurrent.futures.TimeoutError):
            self.call(self._cancel(), START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    async def _cancel(self) -> None:
        own = asyncio.current_task()
        # Not only ours: what the app left running dies with its process too.
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5) if tasks else None
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    # -------------------------------------------------------------------------------------------------- lifespan

    async def _begin(self) -> None:
        started: asyncio.Future[str] = self._loop.create_future()
        ended: asyncio.Future[str] = self._loop.create_future()
        self._ending = asyncio.Event()
        told = iter(["lifespan.startup"])

        async def receive() -> dict[str, Any]:
            for kind in told:
                return {"type": kind}
            await self._ending.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: dict[str, Any]) -> None:
            waiting = started if "startup" in message["type"] else ended
            if not waiting.done():
                waiting.set_result(message.get("message", "") if message["type"].endswith("failed") else "")

        async def live() -> None:
            scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
            try:
                await self.app(scope, receive, send)
            finally:
                for waiting in (started, ended):
                    if not waiting.done():
                        waiting.set_result("")

        self._life = asyncio.ensure_future(live())
        self._ended = ended
        failed = await started
        if self._life.done():
            self._life.result()
        if failed:
            raise RuntimeError(f"the app did not start: {failed}")

    async def _finish(self) -> None:
        if self._life is None or self._ending is None:
            return
        self._ending.set()
        failed = await self._ended
        await self._life
        if failed:
            raise RuntimeError(f"the app did not end: {failed}")

    # -------------------------------------------------------------------------------------------------- requests

    def _submit(self, one: _Request) -> None:
        """Run a request; whatever happens, the one who waits hears of it."""

        async def run() -> None:
            try:
                await self.app(one.scope, one.receive, one.send)
            except asyncio.CancelledError:
                one.end()
                raise
            except BaseException as error:  # noqa: BLE001 - a server logs it and closes the connection
                self.errors.append(error)
                one.end()
            else:
                one.end()

        def spawn() -> None:
            task = self._loop.create_task(run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        try:
            self._loop.call_soon_threadsafe(spawn)
        except RuntimeError as error:
            raise httpx.ConnectError("the app is not running") from error


class BridgeTransport(httpx.BaseTransport):
    """The way of one client to a bridge's app."""

    def __init__(self, bridge: AsgiBridge, client: str) -> None:
        self.bridge = bridge
        self.client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self.bridge.alive:
            raise httpx.ConnectError("the app is not running")
        one = _Request(self.bridge, request, self.client)
        self.bridge._submit(one)
        try:
            status, headers = one.head()
        except BaseException:
            one.leave()
            raise
        return httpx.Response(status, headers=headers, stream=_Body(one))


class _Request:
    """One request between the thread that asks and the loop that answers."""

    def __init__(self, bridge: AsgiBridge, request: httpx.Request, client: str) -> None:
        self._bridge = bridge
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._loop = bridge._loop
        self._gone = asyncio.Event()
        self._room = asyncio.Semaphore(AHEAD)
        self._timeout = request.extensions.get("timeout", {}).get("read")
        self._pieces = _pieces(request)
        self._blocking = not isinstance(request.stream, httpx.ByteStream)
        self._sent_all = False
        self._head_only = request.method == "HEAD"
        self._declared: int | None = None
        self._given = 0
        self._started = False
        self._complete = False
        self.scope = _scope(request, client, bridge.state)

    # in the loop

    async def receive(self) -> dict[str, Any]:
        if self._sent_all or self._gone.is_set():
            await self._gone.wait()
            return {"type": "http.disconnect"}
        try:
            if self._blocking:
                piece = await self._loop.run_in_executor(None, next, self._pieces, None)
            else:
                piece = next(self._pieces, None)
        except Exception as error:  # noqa: BLE001 - the sender broke off
            self._events.put(("broken", error))
            self._gone.set()
            return {"type": "http.disconnect"}
        if self._gone.is_set():
            return {"type": "http.disconnect"}
        if piece is None:
            self._sent_all = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(self, message: dict[str, Any]) -> None:
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            assert not self._started, "an answer begins once"
            self._started = True
            headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", [])]
            length = dict(headers).get(b"content-length")
            self._declared = int(length) if length is not None else None
            self._events.put(("start", (message["status"], headers)))
        elif message["type"] == "http.response.body":
            assert self._started, "an answer begins with its status"
            body = bytes(message.get("body", b""))
            if body and not self._head_only:
                await self._room.acquire()
                self._given += len(body)
                self._events.put(("body", body))
            if not message.get("more_body", False):
                self._complete = True
                self._events.put(("done", None))

    def end(self) -> None:
        self._events.put(("end", None))

    # in the thread that asks

    def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        kind, value = self._next()
        if kind == "start":
            return value
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    def body(self) -> Iterator[bytes]:
        while True:
            kind, value = self._next()
            if kind == "body":
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._room.release)
                yield value
            elif kind == "done":
                break
            else:
                raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        if self._declared is not None and not self._head_only and self._given != self._declared:
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")

    def leave(self) -> None:
        """Tell the app that nobody listens any more."""

        def gone() -> None:
            self._gone.set()
            for _ in range(AHEAD):
                self._room.release()

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(gone)

    def _next(self) -> tuple[str, Any]:
        try:
            kind, value = self._events.get(timeout=self._timeout)
        except queue.Empty:
            raise httpx.ReadTimeout("timed out") from None
        if kind == "broken":
            raise value
        return kind, value


class _Body(httpx.SyncByteStream):
    def __init__(self, one: _Request) -> None:
        self._one = one

    def __iter__(self) -> Iterator[bytes]:
        yield from self._one.body()

    def close(self) -> None:
        self._one.leave()


def _pieces(request: httpx.Request) -> Iterator[bytes]:
    assert isinstance(request.stream, httpx.SyncByteStream)
    for chunk in request.stream:
        for at in range(0, len(chunk), PIECE):
            yield chunk[at : at + PIECE]


def _scope(request: httpx.Request, client: str, state: dict[str, Any]) -> dict[str, Any]:
    raw_path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (request.url.host, request.url.port or 80),
        "client": (client, 50_000),
        "state": dict(state),
    }
