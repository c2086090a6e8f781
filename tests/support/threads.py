"""Several threads that do something at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def at_once(*acts: Callable[[], object], seconds: float = 60) -> None:
    """Do each in a thread of its own, and wait for them all."""
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads)
