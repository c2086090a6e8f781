"""Requests that take their time, each in a thread of a few: one slow search keeps nobody else waiting."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crystal.mcp.messages import BUSY, Id, McpError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

MAX_AT_ONCE = 4
MAX_WAITING = 200


@dataclass(slots=True, eq=False)
class PendingCall:
    """A request under way. ``cancelled`` is set when nobody waits for the answer any more."""

    id: Id
    cancelled: threading.Event = field(default_factory=threading.Event)


class Calls:
    """The threads and what they have to do."""

    def __init__(self) -> None:
        self._open: dict[Future[None], PendingCall] = {}

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor  # the greeting needs none

        return ThreadPoolExecutor(MAX_AT_ONCE, "call")

    def start(self, ident: Id, run: Callable[[PendingCall], None]) -> None:
        """Run something in a thread; ``run`` answers by itself, and raises nothing.

        Raises:
            McpError: Too many are waiting.
        """
        if len(self._open) >= MAX_WAITING:
            raise McpError(BUSY, f"{MAX_WAITING} requests are waiting; try again in a moment")
        call = PendingCall(ident)
        future = self._threads.submit(lambda: None if call.cancelled.is_set() else run(call))
        self._open[future] = call
        future.add_done_callback(self._open.pop)

    def cancel(self, ident: object) -> None:
        """Note that nobody waits for the answer to a request."""
        for call in list(self._open.values()):
            if call.id == ident and type(call.id) is type(ident):
                call.cancelled.set()

    def finish(self, seconds: float) -> None:
        """Wait until everything is answered, so long at most."""
        if self._open:
            from concurrent.futures import wait

            wait(list(self._open), seconds)
