"""The thread that commits: nobody who asks it waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relay_worker.errors import RequestRefusedError
from relay_worker.store.writer import Writer
from tests.support.table import each_row


class Meeting(deque[Any]):
    """A queue at which two callers meet after both have appended, if nothing keeps them apart."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def append(self, one: Any) -> None:
        super().append(one)
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.3)


@each_row("is_closed", [False, True])
def test_of_two_event_loops_that_ask_at_once_both_are_answered(is_closed: bool) -> None:
    writer = Writer(lambda jobs, _: [job(None) for job in jobs], lambda error: error)
    writer._waiting = Meeting()
    if is_closed:
        writer.close()

    def ask(number: int) -> object:
        try:
            return asyncio.run(asyncio.wait_for(writer.run(lambda _: number), 5))
        except RequestRefusedError as refusal:
            return refusal.code

    with ThreadPoolExecutor(2) as callers:
        answers = list(callers.map(ask, [1, 2]))
    assert answers == (["unavailable"] * 2 if is_closed else [1, 2])
    writer.close()


def test_a_writer_that_is_closed_refuses_everyone_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(lambda jobs, _: [job(None) for job in jobs], lambda error: error)

    async def ask() -> None:
        other: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def submit(_: object) -> None:
            writer._waiting.append((lambda _: 2, "", other))
            raise RuntimeError

        monkeypatch.setattr(writer._thread, "submit", submit)
        for one in (writer.run(lambda _: 1), other):
            with pytest.raises(RequestRefusedError, match="stopping"):
                await asyncio.wait_for(one, 5)

    asyncio.run(ask())
