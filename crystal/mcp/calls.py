"""Requests that take their time, each in a thread of a few: one slow search keeps nobody else waiting."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crystal.mcp.messages import BUSY, Id, Refused

MAX_AT_ONCE = 4
MAX_WAITING = 200


@dataclass(slots=True, eq=False)
class Call:
    """A request under way. ``cancelled`` is set when nobody waits for the answer any more."""

    id: Id
    run: Callable[[Call], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


class Calls:
    """The threads and what they have to do. They end with the process."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._open: list[Call] = []
        self._changed = threading.Condition()
        self._threads = 0

    def start(self, ident: Id, run: Callable[[Call], None]) -> None:
        """Run something in a thread; ``run`` answers by itself, and raises nothing.

        Raises:
            Refused: Too many are waiting.
        """
        call = Call(ident, run)
        with self._changed:
            if len(self._open) >= MAX_WAITING:
                raise Refused(BUSY, f"{MAX_WAITING} requests are waiting; try again in a moment")
            self._open.append(call)
            if self._threads < min(MAX_AT_ONCE, len(self._open)):
                self._threads += 1
                threading.Thread(target=self._work, name=f"call-{self._threads}", daemon=True).start()
        self._waiting.put(call)

    def cancel(self, ident: object) -> None:
        """Note that nobody waits for the answer to a request."""
        with self._changed:
            for call in self._open:
                if call.id == ident and type(call.id) is type(ident):
                    call.cancelled.set()

    def finish(self, seconds: float) -> bool:
        """Wait until everything is answered, so long at most; tell whether it is."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._open and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return not self._open

    def _work(self) -> None:
        while True:
            call = self._waiting.get()
            try:
                if not call.cancelled.is_set():
                    call.run(call)
            finally:
                with self._changed:
                    self._open.remove(call)
                    self._changed.notify_all()
