"""Wait until there is something to send or to fetch, at the cost of one question a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from crystal.errors import CrystalError, UnavailableError
from crystal.sync.client import MAX_WAIT, RelayClient

IDLE_SECONDS = 300.0
"""A step is taken this often even if nothing seems to have changed."""
EARLY_SECONDS = 1.0
MAX_REST = 60.0
MAX_DOUBLINGS = 10


class RelayNews:
    """Asks the relay in a thread whether streams changed, until the block ends.

    A relay without a place for one more waiting request answers at once. So an early answer without news counts as a
    failure, too: otherwise thousands of homes would ask such a relay again and again.

    Args:
        client: The relay.
        own_prefix: Prefix of the streams that this machine writes: they are not news.

    Attributes:
        came: Set when streams changed, or the relay failed.
    """

    def __init__(self, client: RelayClient, own_prefix: bytes | None = None) -> None:
        self._client, self._own_prefix = client, own_prefix
        self._stopped = threading.Event()
        self.came = threading.Event()

    def __enter__(self) -> RelayNews:
        """Begin to ask."""
        threading.Thread(target=self._ask_until_stopped, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ask no more. The last question ends with its connection."""
        self._stopped.set()

    def _ask_until_stopped(self) -> None:
        change: int | None = None
        failures = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                listed = self._client.streams(changed_after=change, wait=0 if change is None else MAX_WAIT)
            except CrystalError:
                failures += 1
                self.came.set()
            else:
                if any(one.stream[:8] != self._own_prefix for one in listed.streams):
                    self.came.set()
                is_early = listed.change == change and time.monotonic() - began < EARLY_SECONDS
                failures = failures + 1 if is_early else 0
                change = listed.change
            self._stopped.wait(_rest(1.0, failures) if failures else 0)


def watch(
    step: Callable[[], None],
    news: threading.Event,
    *,
    is_due: Callable[[], bool],
    pause: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[UnavailableError | None]:
    """Take a step at once, and again whenever there is news. Gives each outcome: None, or a failure that may pass.

    Args:
        step: What to do.
        news: Set when the relay has something new.
        is_due: Returns True if this machine has something to do.
        pause: Seconds between two steps at least; after failures more.
        should_stop: Asked many times a second.
    """
    failures = 0
    while not should_stop():
        news.clear()
        try:
            step()
            failures = 0
            yield None
        except UnavailableError as error:
            failures += 1
            yield error
        ended = time.monotonic()
        rest = _rest(pause, failures)
        while not should_stop():
            passed = time.monotonic() - ended
            if passed >= rest and (failures or news.is_set() or passed >= IDLE_SECONDS or is_due()):
                break
            time.sleep(0.05)


def _rest(pause: float, failures: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    return min(MAX_REST, pause * 2.0 ** min(failures, MAX_DOUBLINGS))
