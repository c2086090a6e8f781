"""One event loop for the clients of applications in this process."""

from __future__ import annotations

import atexit
import contextlib
import functools

from anyio.from_thread import BlockingPortal, start_blocking_portal


@functools.cache
def shared_portal() -> BlockingPortal:
    """Start a loop in a thread until the process ends; Starlette's client starts one for each request."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(start_blocking_portal())
