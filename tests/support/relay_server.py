"""A relay's store for tests, and envelopes that look like sealed ones from outside."""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay_worker.model import NewBody
from relay_worker.settings import Settings
from relay_worker.store import accounts, blobs, choice
from relay_worker.tokens import new_token

NOW = 1_767_225_600_000
DAY = 86_400_000
STREAM = bytes(range(16))


def sealed(seq: int, size: int = 300, *, stream: bytes = STREAM, tag: bytes = b"") -> bytes:
    """What a relay takes for a blob of so many bytes; nobody could open it."""
    inside = size - 148
    head = struct.pack(">4sBBBB16s16sQ32s32sI", b"CRB1", 1, 1, 1, 0, b"k" * 16, stream, seq, b"", b"s" * 32, inside)
    return head + os.urandom(inside) + (tag or os.urandom(32))


class OpenStore:
    """A store with one account, driven from ordinary code; in PostgreSQL if the limits name an address."""

    def __init__(self, folder: Path, limits: Settings | None = None, now: int = NOW) -> None:
        self.folder = folder
        self.batches: list[int] = []
        settings = replace(limits or Settings(), data_dir=folder)
        self.store = choice.open_store(settings, now=now, observe=lambda jobs, _: self.batches.append(jobs))
        self.text = self.token("home")

    def __enter__(self) -> OpenStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def token(self, *scopes: str, account: str = "default") -> str:
        token, text = new_token(account, "test", scopes, NOW, os.urandom)
        self.run(self.store.write(account, accounts.add, token))
        return text

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    def put(self, body: bytes, seq: int = 1, *, stream: bytes = STREAM, resend: bool = False, now: int = NOW) -> str:
        return self.run(self.putting(body, seq, stream=stream, resend=resend, now=now))

    async def putting(
        self, body: bytes, seq: int = 1, *, stream: bytes = STREAM, resend: bool = False, now: int = NOW
    ) -> str:
        tag, digest = body[-32:], hashlib.sha256(body).digest()
        new = NewBody("default", body, digest, resend, now)
        return "created" if await self.store.put(blobs.put, new, stream, seq, tag) else "duplicate"

    def get(self, seq: int = 1, *, stream: bytes = STREAM) -> bytes:
        async def reading() -> bytes:
            body = (await self.store.fetch(blobs.find, "default", stream, seq)).body
            if isinstance(body, bytes):
                return body
            with body.file:
                return b"".join([chunk async for chunk in body.chunks()])

        return self.run(reading())

    def state(self, stream: bytes = STREAM) -> Any:
        return self.run(self.store.read(blobs.state, "default", stream))

    def seqs(self, after: int = 0, limit: int = 100) -> list[int]:
        _, page = self.run(self.store.read(blobs.list_after, "default", STREAM, after, limit))
        return [one.seq for one in page]

    def ack(self, upto: int) -> None:
        self.run(self.store.write("default", blobs.ack, "default", STREAM, upto, NOW))

    def streams(self, changed_after: int = 0) -> Any:
        return self.run(self.store.read(blobs.streams, "default", (b"",), changed_after))

    def files(self) -> list[Path]:
        return [path for path in (self.folder / "bodies").rglob("*") if path.is_file()]
