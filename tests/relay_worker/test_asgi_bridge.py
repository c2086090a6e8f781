"""Claims about the bridge that other tests stand on: an app behind it looks as it does behind a socket."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

from tests.support.asgi_bridge import AsgiBridge

HTTP = "http://127.0.0.1/"


def asks(bridge, method="GET", *, content=None, read=5.0, path=""):
    request = httpx.Request(method, HTTP + path, content=content, extensions={"timeout": {"read": read}})
    response = bridge.transport().handle_request(request)
    try:
        return response.status_code, response.read()
    finally:
        response.close()


async def answer(send, status=200, *bodies, headers=(), last=True):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    for at, body in enumerate(bodies or (b"",)):
        more = not last or at < len(bodies) - 1
        await send({"type": "http.response.body", "body": body, "more_body": more})


def bridged(handler):
    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await handler(scope, receive, send)

    return AsgiBridge(app)


async def whole(receive):
    held = b""
    while True:
        message = await receive()
        held += message.get("body", b"")
        if not message.get("more_body"):
            return held


def test_bodies_arrive_whole_in_both_directions():
    async def echo(scope, receive, send):
        await answer(send, 200, await whole(receive))

    with bridged(echo) as bridge:
        sent = bytes(range(256)) * 3000
        assert asks(bridge, "POST", content=sent) == (200, sent)
        assert asks(bridge, "POST", content=iter([b"a", b"b"])) == (200, b"ab")


def test_an_app_that_answers_before_the_body_never_pulls_it():
    pulled = []

    async def refuse(scope, receive, send):
        await answer(send, 401)

    def body():
        pulled.append(1)
        yield b"x"

    with bridged(refuse) as bridge:
        assert asks(bridge, "PUT", content=body()) == (401, b"")
    assert not pulled


@pytest.mark.parametrize("bodies", [(b"abc",), ()])
def test_an_answer_shorter_than_it_said_is_an_error(bodies):
    async def short(scope, receive, send):
        await answer(send, 200, *bodies, headers=[(b"content-length", b"10")])

    with bridged(short) as bridge, pytest.raises(httpx.RemoteProtocolError, match="complete"):
        asks(bridge)


def test_an_app_that_gives_up_is_a_closed_connection():
    async def silent(scope, receive, send):
        if scope["path"] == "/half":
            await answer(send, 200, b"abc", last=False)
        if scope["path"] == "/raise":
            raise RuntimeError("boom")

    with bridged(silent) as bridge:
        with pytest.raises(httpx.RemoteProtocolError, match="disconnected"):
            asks(bridge)
        with pytest.raises(httpx.RemoteProtocolError, match="complete"):
            asks(bridge, path="half")
        with pytest.raises(httpx.RemoteProtocolError, match="disconnected"):
            asks(bridge, path="raise")
        assert [str(error) for error in bridge.errors] == ["boom"]


def test_an_endless_answer_is_held_back_and_the_app_hears_that_the_client_left():
    given, left = [], threading.Event()

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await whole(receive)
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            given.append(1)
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
            await asyncio.sleep(0)
        left.set()

    with bridged(endless) as bridge:
        response = bridge.transport().handle_request(httpx.Request("GET", HTTP))
        pieces = iter(response.stream)
        assert next(pieces) == b"x" * 1000
        assert len(given) < 100
        response.close()
        assert left.wait(5)


def test_a_late_answer_is_a_read_timeout_and_a_long_poll_blocks_only_who_asked():
    async def poll(scope, receive, send):
        if scope["path"] == "/wake":
            scope["state"]["wake"].set()
        elif scope["path"] == "/wait":
            await scope["state"]["wake"].wait()
        else:
            await asyncio.Event().wait()
        await answer(send, 200, scope["path"].encode())

    with bridged(poll) as bridge:
        bridge.state["wake"] = asyncio.Event()
        with pytest.raises(httpx.ReadTimeout):
            asks(bridge, read=0.05, path="never")
        got = []
        waiting = threading.Thread(target=lambda: got.append(asks(bridge, path="wait")))
        waiting.start()
        assert asks(bridge, path="wake") == (200, b"/wake")
        waiting.join(5)
        assert got == [(200, b"/wait")]


def test_killing_ends_who_waits_and_who_comes_later():
    entered = threading.Event()

    async def forever(scope, receive, send):
        entered.set()
        await asyncio.Event().wait()

    bridge = bridged(forever).start()
    failed = []

    def ask():
        try:
            asks(bridge)
        except httpx.HTTPError as error:
            failed.append(type(error))

    waiting = threading.Thread(target=ask)
    waiting.start()
    assert entered.wait(5)
    bridge.kill()
    waiting.join(5)
    assert failed == [httpx.RemoteProtocolError]
    with pytest.raises(httpx.ConnectError):
        asks(bridge)
    bridge.stop()


def test_an_app_that_cannot_start_says_so():
    async def app(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no disk"})

    with pytest.raises(RuntimeError, match="no disk"):
        AsgiBridge(app).start()
