"""Commit jobs in groups: while a COMMIT waits for the disk, jobs queue up, and the next transaction takes them all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from relay_worker.errors import RequestRefusedError

T = TypeVar("T")
Job: TypeAlias = "Callable[[Any], Any]"
_Queued: TypeAlias = "tuple[Job, str, asyncio.Future[Any]]"
MAX_BATCH = 512


def stopping() -> RequestRefusedError:
    """Return the refusal of a store that is being closed."""
    return RequestRefusedError("unavailable", "the relay is stopping", retry_after=5)


async def run_in(pool: ThreadPoolExecutor, call: Callable[..., T], *values: Any) -> T:
    """Call a function in a thread of a pool."""
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, call, *values)
    except RuntimeError as error:  # the pool is closed
        raise stopping() from error


def attempt(job: Job, transaction: Any) -> Any:
    """Run a job; return its result, or its refusal, before which it wrote nothing."""
    try:
        return job(transaction)
    except RequestRefusedError as refusal:
        return refusal


class Writer:
    """Runs jobs in transactions, in order of arrival, in a separate thread.

    Args:
        commit: Runs jobs, and takes their locks, in one transaction; returns the result or the refusal of each once
            they are durable. If it raises, nothing was stored: each job is then tried alone, so that a failing job does
            not harm the others.
        refusal: Returns the client's refusal for an error.
    """

    def __init__(
        self, commit: Callable[[list[Job], set[str]], list[Any]], refusal: Callable[[Exception], Exception]
    ) -> None:
        self._commit, self._refusal = commit, refusal
        self._waiting: deque[_Queued] = deque()
        self._queueing = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "relay-writer")

    async def run(self, job: Callable[[Any], T], lock: str = "") -> T:
        """Run a job and return after its COMMIT. Cancelling the caller does not undo queued jobs."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            with self._queueing:
                self._waiting.append((job, lock, done))
                if len(self._waiting) == 1:  # else the work already queued runs this job too
                    self._thread.submit(self._work)
        except RuntimeError:  # the pool is closed
            _answer((other, stopping()) for *_, other in self._take())
        return await done

    def close(self) -> None:
        """Finish all jobs."""
        self._thread.shutdown()

    def _work(self) -> None:
        """Run jobs until none waits."""
        while jobs := self._take():
            self._transact(jobs)

    def _take(self) -> list[_Queued]:
        with self._queueing:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]

    def _transact(self, jobs: list[_Queued]) -> None:
        try:
            results = self._commit([job for job, _, _ in jobs], {lock for _, lock, _ in jobs})
        except RequestRefusedError as refusal:  # of the store itself: no job can be served
            results = [refusal] * len(jobs)
        except Exception as error:  # noqa: BLE001 - its place is the caller's future: the thread lives on for the others
            if len(jobs) > 1:
                for job in jobs:
                    self._transact([job])
                return
            results = [self._refusal(error)]
        _answer((done, result) for (*_, done), result in zip(jobs, results, strict=True))


def _answer(results: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    """Deliver results, waking each event loop once: a wake-up costs as much as a small request."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for done, result in results:
        loops.setdefault(done.get_loop(), []).append((done, result))
    for loop, some in loops.items():
        with contextlib.suppress(RuntimeError):  # the event loop is closed, with all its requests
            loop.call_soon_threadsafe(_set, some)


def _set(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, result in results:
        if done.done():  # the caller was cancelled
            continue
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)
