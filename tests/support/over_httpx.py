"""Connections of the relay's client that go through a transport of httpx: to an app in this process, or to a fake."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import httpcore
import httpx


class OverHttpx(httpcore.ConnectionPool):
    """What ``RelayClient`` takes as its transport. Errors of httpx become those of the same name in httpcore."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self.inner = inner

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        assert isinstance(request.stream, Iterable)
        url = request.url
        host = b"[%s]" % url.host if b":" in url.host else url.host
        authority = b"%s://%s%s" % (url.scheme, host, b"" if url.port is None else b":%d" % url.port)
        asked = httpx.Request(
            request.method.decode(),
            httpx.URL((authority + url.target).decode()),
            headers=request.headers,
            content=b"".join(request.stream),
            extensions=request.extensions,
        )
        with _errors():
            answer = self.inner.handle_request(asked)
        return httpcore.Response(answer.status_code, headers=answer.headers.raw, content=_Body(answer))

    def close(self) -> None:
        self.inner.close()


class _Body:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _errors():
            yield from self.answer.stream

    def close(self) -> None:
        self.answer.close()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise getattr(httpcore, type(error).__name__)(str(error)) from error


def down(request: httpx.Request) -> None:
    """Refuse the connection, as a relay does that is down."""
    raise httpx.ConnectError("refused", request=request)
