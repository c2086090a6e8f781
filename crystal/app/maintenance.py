"""Maintenance of a store: its derived index, and the space of deleted rows. Optional: results do not depend on it."""

from __future__ import annotations

import time
from collections.abc import Callable

from crystal.errors import UnavailableError
from crystal.store import Store
from crystal.store.search.space import give_back, is_due


def index(store: Store, now: int, deadline: float, progress: Callable[[int, int], None] = lambda *_: None) -> None:
    """Update the derived index until ``deadline`` (of ``time.monotonic``).

    ``progress`` is called after each step with the entries of the log that are done, and their total.

    Raises:
        UnavailableError: The index cannot be written now; searches miss what it lacks.
    """
    from crystal.search.index import bring_up_to_date  # noqa: PLC0415 - most turns are too little for the index

    try:
        seconds = max(0.0, deadline - time.monotonic())
        bring_up_to_date(store, now=now, budget_seconds=seconds, progress=progress)
    except OSError as error:
        raise UnavailableError(
            f"the search index cannot be written: {error}", hint="check the folder and its disk"
        ) from error


def tidy(store: Store, deadline: float) -> None:
    """Return the space of deleted rows to the file system, if it is enough to be worth it."""
    if is_due(store):
        give_back(store, should_stop=lambda: time.monotonic() > deadline)
