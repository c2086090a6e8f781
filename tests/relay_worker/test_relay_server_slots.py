"""Large bodies wait for a slot, and give it back."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from relay_worker.errors import RequestRefusedError
from relay_worker.http import call
from relay_worker.limits import Slots
from relay_worker.tokens import new_token
from tests.relay_conformance.targets import OPEN, in_process
from tests.support.relay_server import STREAM, sealed


def test_who_waits_too_long_for_a_slot_is_told_so():
    async def waiting() -> None:
        slots = Slots(1, 0.01)
        await slots.take()
        with pytest.raises(RequestRefusedError) as caught:
            await slots.take()
        assert caught.value.code == "unavailable"
        slots.release()
        await slots.take()

    asyncio.run(waiting())


def test_a_refused_large_body_gives_its_slot_back(tmp_path):
    with in_process(tmp_path / "relay", **OPEN, large_uploads=1, body_total=2) as relay:
        assert [relay.put(STREAM, 1, bytes(200_000)).status_code for _ in range(2)] == [400, 400]
        assert relay.put(STREAM, 1, sealed(1, 200_000)).status_code == 201


def test_a_token_revoked_while_a_large_body_waits_for_its_slot_stores_nothing():
    async def waiting() -> None:
        slots, known = Slots(1, 5.0), new_token("default", "x", ["home"], 1, bytes)[0]
        tokens: dict[str, Any] = {known.id: known}

        async def find(ident: str) -> Any:
            return tokens.get(ident)

        relay = SimpleNamespace(
            uploads=slots, store=SimpleNamespace(token=find), settings=SimpleNamespace(body_total=5, body_idle=5),
            monotonic=time.monotonic, trusted=(), refused=SimpleNamespace(take=lambda _: 0),
        )  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": bytes(200_000)}

        headers = [(b"content-length", b"200000")]
        scope = {"headers": headers, "client": ("203.0.113.1", 1), "state": {"has_arrived": True}}
        asked = call.Call(scope, receive, relay)  # type: ignore[arg-type]
        asked.token = known
        await slots.take()
        reading = asyncio.ensure_future(asked.body(1 << 20))
        await asyncio.sleep(0)
        tokens.clear()
        slots.release()
        with pytest.raises(RequestRefusedError) as caught:
            await reading
        assert caught.value.code == "unauthenticated"
        asked.release()

    asyncio.run(waiting())
