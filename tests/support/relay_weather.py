"""Bad weather for a ``World``: a machine's next requests go wrong in a way that a test chooses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import httpx
import orjson


class Weather(httpx.BaseTransport):
    """What lies between a machine and the relay. ``before`` and ``after`` may raise, or change what passes."""

    def __init__(self, inner: Callable[[], httpx.BaseTransport]) -> None:
        self.inner = inner
        self.before: Callable[[httpx.Request], None] = lambda request: None
        self.after: Callable[[httpx.Request, httpx.Response], httpx.Response] = lambda request, response: response

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.before(request)
        response = self.inner().handle_request(request)
        return self.after(request, response)


def refusing_puts(status: int, code: str) -> Callable[[httpx.Request, httpx.Response], httpx.Response]:
    """Something for ``after``: what is sent is refused."""
    problem = {"content-type": "application/problem+json"}
    return lambda request, response: (
        httpx.Response(status, json={"code": code}, headers=problem) if request.method == "PUT" else response
    )


FAULTS = (
    "lost before",
    "lost after",
    "twice",
    "late",
    "cut",
    "flip",
    "replay",
    "swap",
    "withhold",
    "server error",
    "too many",
)


class Storm:
    """What goes wrong on the way of one machine."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._coming: deque[str] = deque()
        self._seen: deque[bytes] = deque(maxlen=8)
        self._late: list[httpx.Request] = []
        self.heads: dict[str, int] = {}
        weather.before, weather.after = self._before, self._after

    def expect(self, *faults: str) -> None:
        """Let the next requests go wrong; an empty word lets one pass."""
        self._coming.extend(faults)

    def clear(self) -> None:
        """Let the sun shine. What was late never comes."""
        self._coming.clear()
        self._late.clear()

    def arrive_late(self) -> None:
        """Let what was on its way for long arrive now, the last one first."""
        late, self._late = self._late[::-1], []
        for request in late:
            self._weather.inner().handle_request(request).read()

    def _before(self, request: httpx.Request) -> None:
        self._fault = self._coming.popleft() if self._coming else ""
        if self._fault == "lost before":
            raise httpx.ConnectError("lost on the way")
        if self._fault == "late" and request.method == "PUT":
            self._late.append(request)
            raise httpx.ReadTimeout("no answer")
        if self._fault == "twice":
            self._weather.inner().handle_request(request).read()

    def _after(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        fault, body = self._fault, response.read()
        if fault == "lost after":
            raise httpx.ReadError("the answer was lost")
        if fault == "server error":
            return httpx.Response(503, content=b"oops")
        if fault == "too many":
            return httpx.Response(429, headers={"Retry-After": "7"})
        kind = response.headers.get("content-type", "")
        if request.method == "GET" and kind == "application/octet-stream":
            body = self._damaged(fault, body)
        elif request.method == "GET" and kind == "application/json" and "/v1/streams" in request.url.path:
            body = self._listed(fault, body)
        kept = ("content-type", "crystal-relay-version", "retry-after")
        headers = {name: response.headers[name] for name in kept if name in response.headers}
        return httpx.Response(response.status_code, content=body, headers=headers)

    def _damaged(self, fault: str, body: bytes) -> bytes:
        seen = list(self._seen)
        self._seen.append(body)
        if fault == "cut":
            return body[: len(body) * 2 // 3]
        if fault == "flip":
            at = len(body) // 2
            return body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]
        if fault == "replay" and seen:
            return seen[0]
        if fault == "swap" and seen:
            return seen[-1]
        return body

    def _listed(self, fault: str, body: bytes) -> bytes:
        fields = orjson.loads(body)
        if fault == "withhold":
            if fields.get("blobs"):
                gone = fields["blobs"].pop()
                fields["head"] = gone["seq"] - 1
            for one in fields.get("streams", [])[:1]:
                one.update(head=0, acked=0, count=0, bytes=0, expired_upto=0)
        for one in fields.get("streams", []):
            self.heads[one["stream"]] = one["head"]
        return orjson.dumps(fields)
