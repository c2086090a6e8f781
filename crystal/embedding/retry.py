"""When to try again: short waits within one run, longer and longer ones between runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from crystal.errors import ModelUnavailableError, UnavailableError

Answer = TypeVar("Answer")

FIRST_WAIT_MS = 30_000
MAX_WAIT_MS = 900_000
MAX_ASKED_MS = 86_400_000
PERMANENT_WAIT_MS = 3_600_000
"""How long to wait after a failure that waiting does not fix, unless the configuration changes first."""

QUICK_WAITS = (0.5, 2.0)
"""Seconds before the second and the third attempt of one call."""


def call_with_retries(
    call: Callable[[], Answer], *, sleep: Callable[[float], None], patience: Callable[[], float]
) -> Answer:
    """Call once more, and once more, as long as it is ``UnavailableError`` and the wait fits into what is left.

    Args:
        call: What to try.
        sleep: Waits for seconds.
        patience: The seconds that may still be spent on waiting.
    """
    for pause in QUICK_WAITS:
        try:
            return call()
        except UnavailableError as error:
            wait = max(pause, asked_seconds(error))
            if wait > patience():
                raise
            sleep(wait)
    return call()


def asked_seconds(error: UnavailableError) -> float:
    """Return how many seconds the provider asks to wait, 0 if it does not say."""
    return (error.seconds or 0.0) if isinstance(error, ModelUnavailableError) else 0.0


def next_attempt(error: Exception, tries: int, now: int) -> int:
    """Return when to try again after a failed run, in ms.

    The wait doubles with every try up to a quarter of an hour; a provider that asks for longer gets up to a day.
    An error that waiting does not fix is retried after ``PERMANENT_WAIT_MS``.

    Args:
        error: What failed.
        tries: How often it has failed in a row, this one included.
        now: The present.
    """
    if not isinstance(error, UnavailableError):
        return now + PERMANENT_WAIT_MS
    doubled = min(MAX_WAIT_MS, FIRST_WAIT_MS << min(tries - 1, 20))
    asked = min(MAX_ASKED_MS, int(asked_seconds(error) * 1000))
    return now + max(doubled, asked)
