"""Store the last failure of each component: written when something external fails, deleted when it works again.

A component that waits before the next try keeps its ``retry_at`` here, so that a hook during an outage costs nothing.
Messages follow the rule for error messages: never a secret, never transcript text.
"""

from crystal.errors import CrystalError, ModelUnavailableError
from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store

DAY_MS = 86_400_000


class LastingProblem(NamedTuple):
    """A failure that lasts.

    ``since`` is the first failure since the component last worked, ``at`` the latest, ``tries`` their number in a row;
    ``retry_at`` is None when waiting does not help. ``cause`` is a fingerprint of the settings that failed: a failure
    with other settings is another failure, counted from one.
    """

    part: str
    message: str
    since: int
    at: int
    tries: int
    retry_at: int | None = None
    cause: str | None = None


COLUMNS = "room, message, since, at, tries, retry_at, cause"


def record_problem(
    store: Store, part: str, message: str, now: int, retry_at: int | None = None, cause: str | None = None
) -> None:
    """Record that ``part`` failed at ``now``; a lasting failure keeps the time of its first occurrence."""
    store.execute(
        f"INSERT INTO problems ({COLUMNS}) VALUES (?, ?, ?, ?, 1, ?, ?)"
        " ON CONFLICT (room) DO UPDATE SET message = excluded.message, at = excluded.at,"
        " since = iif(cause IS excluded.cause, since, excluded.since),"
        " tries = iif(cause IS excluded.cause, tries + 1, 1),"
        " retry_at = excluded.retry_at, cause = excluded.cause",
        (part, message.encode("utf-8", "backslashreplace").decode(), now, now, retry_at, cause),
    )


def clear_problem(store: Store, part: str) -> None:
    """Delete the failure of ``part``, which works again. Writes nothing if there is none."""
    if find_problem(store, part) is not None:
        store.execute("DELETE FROM problems WHERE room = ?", (part,))


def find_problem(store: Store, part: str) -> LastingProblem | None:
    """Return the failure of ``part`` that lasts, or None."""
    return store.find(LastingProblem, f"SELECT {COLUMNS} FROM problems WHERE room = ?", (part,))


def find_waiting_retry(store: Store, part: str, now: int) -> LastingProblem | None:
    """Return the failure of ``part`` if its next try is not due yet, or None."""
    found = find_problem(store, part)
    return found if found is not None and (found.retry_at or 0) > now else None


def list_problems(store: Store) -> list[LastingProblem]:
    """Return every failure that lasts, oldest first."""
    return store.all(LastingProblem, f"SELECT {COLUMNS} FROM problems ORDER BY since, room")


def asked_seconds(error: CrystalError) -> float:
    """Return how many seconds a provider asks to wait, or 0."""
    return (error.seconds or 0.0) if isinstance(error, ModelUnavailableError) else 0.0


def rest_ms(error: CrystalError, tries: int, first: int, most: int) -> int:
    """Return how long to wait after a failed run, in ms: doubled with each failure, or as a provider asks, up to a day.

    Args:
        error: The failure.
        tries: Number of consecutive failures, including this one.
        first: The wait after the first failure.
        most: The longest wait, unless the provider asks for a longer one.
    """
    doubled = min(most, first << min(tries - 1, 20))
    return max(doubled, min(DAY_MS, int(asked_seconds(error) * 1000)))
