"""What the ledger of paid calls holds."""

from __future__ import annotations

from typing import NamedTuple

from crystal.store import Store


class CostTotal(NamedTuple):
    """What one purpose has cost with one model."""

    purpose: str
    provider: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float


def totals(store: Store, since: int = 0) -> list[CostTotal]:
    """Return what was spent at or after ``since``, by purpose, provider and model, most expensive first."""
    rows = store.rows(
        "SELECT purpose, provider, model, count(*), sum(input_tokens), sum(output_tokens), total(usd) FROM costs"
        " WHERE at >= ? GROUP BY purpose, provider, model ORDER BY total(usd) DESC, purpose, provider, model",
        (since,),
    )
    return [CostTotal(*row) for row in rows]
