"""A relay that gives one answer to everything, and a client of it."""

from __future__ import annotations

import json

import httpx

from crystal.sync.client import RelayClient
from tests.support.over_httpx import OverHttpx

URL = "http://127.0.0.1:1"
TOKEN = "crt_0123456789abcdef_secretsecretsecretsecretsecretsecretsecret_00000000"
STREAM = bytes(range(16))
BLOB = b"CRB1" + bytes(range(200))


class Fake(httpx.BaseTransport):
    """Gives one answer to everything, and keeps what it was asked."""

    def __init__(self, status=200, body=b"", kind="application/json", **headers):
        self.asked: list[httpx.Request] = []
        self.closed = False
        names = {"Crystal-Relay-Version": "1", "Content-Type": kind, **headers}
        self.answer = (status, names, body if isinstance(body, bytes) else json.dumps(body).encode())

    def handle_request(self, request):
        request.read()
        self.asked.append(request)
        status, headers, body = self.answer
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    def close(self):
        self.closed = True


def client(transport, token=TOKEN, **more):
    return RelayClient(URL, token, transport=OverHttpx(transport), **more)


def problem(status, code="", **headers):
    """Answer with a problem, as the relay tells one."""
    body = {"type": "about:blank", "title": "x", "status": status, "code": code, "detail": "x"}
    return Fake(status, body, kind="application/problem+json", **headers)
