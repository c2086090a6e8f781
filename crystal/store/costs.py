"""Keep the cost ledger: a row for every paid call, written before the call and corrected after it.

A call is *reserved* at its estimated price in the transaction that checks the cap, so concurrent processes cannot
spend the same money twice. A process killed between the two leaves the estimate: the ledger may overstate the cost,
but never understates it. A day is a UTC day.
"""

from crystal.model.named_tuple import NamedTuple
from crystal.store.connection import Store, columns_of

DAY_MS = 86_400_000


class Cost(NamedTuple):
    """One paid call. ``purpose`` is ``summary``, ``embedding``, ``search`` or ``learning``; ``usd`` may be 0."""

    at: int
    purpose: str
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    usd: float


def day_start(now: int) -> int:
    """Return the first millisecond of the UTC day that contains ``now``."""
    return now - now % DAY_MS


def add_cost(store: Store, cost: Cost) -> int:
    """Record a call that was made; return the row's id."""
    return store.insert("costs", columns_of(Cost), *cost)


def reserve(store: Store, estimate: Cost, *, daily_cap_usd: float) -> int | None:
    """Record a call before it is made, at its estimated price, in a separate transaction.

    Returns:
        The row's id for ``settle`` or ``release``; None if the estimate exceeds what is left of the cap for the purpose
        on the estimate's UTC day. A call that costs nothing always fits.
    """
    with store.transaction():
        spent = spent_since(store, day_start(estimate.at), purpose=estimate.purpose)
        if estimate.usd > 0 and not spent + estimate.usd <= daily_cap_usd:
            return None
        return add_cost(store, estimate)


def settle(store: Store, ident: int, *, input_tokens: int, output_tokens: int, usd: float) -> None:
    """Replace a reservation by the actual cost of the call."""
    store.execute(
        "UPDATE costs SET input_tokens = ?, output_tokens = ?, usd = ? WHERE id = ?",
        (input_tokens, output_tokens, usd, ident),
    )


def release(store: Store, ident: int) -> None:
    """Delete a reservation: the call was refused and costs nothing."""
    store.execute("DELETE FROM costs WHERE id = ?", (ident,))


def spent_since(store: Store, since: int, *, purpose: str | None = None) -> float:
    """Return the US dollars spent at or after ``since``, for one purpose or all, including reservations."""
    sql = "SELECT total(usd) FROM costs WHERE at >= ?1 AND (?2 IS NULL OR purpose = ?2)"
    return float(store.value(sql, (since, purpose)))


def spent_by_purpose(store: Store, since: int) -> dict[str, float]:
    """Return the US dollars spent at or after ``since`` by purpose, including reservations."""
    return dict(store.rows("SELECT purpose, total(usd) FROM costs WHERE at >= ? GROUP BY purpose", (since,)))


def spent_by_day(store: Store, since: int) -> dict[int, float]:
    """Return the US dollars spent at or after ``since`` by UTC day, counted from 1970, including reservations."""
    return dict(store.rows("SELECT at / ?, total(usd) FROM costs WHERE at >= ? GROUP BY 1", (DAY_MS, since)))
