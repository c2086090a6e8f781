"""The cost ledger: what is reserved counts, what is settled is right, and the cap holds between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crystal.config.prices import FREE, PRICES, UNKNOWN, price_of
from crystal.store import Store
from crystal.store.costs import DAY_MS, Cost, add_cost, day_start, release, reserve, settle, spent_since
from tests.support.costs import totals
from tests.support.summary_store import START, open_store
from tests.support.table import each_row

NOON = START + DAY_MS // 2


def cost(usd: float, *, at: int = NOON, purpose: str = "summary", model: str = "gpt-4o-mini") -> Cost:
    return Cost(at, purpose, "openai", model, 100, 10, usd)


def test_a_reservation_counts_as_spent_until_it_is_settled_or_released(store: Store) -> None:
    first = reserve(store, cost(0.3), daily_cap_usd=0.5)
    assert first is not None
    assert reserve(store, cost(0.3), daily_cap_usd=0.5) is None
    settle(store, first, input_tokens=7, output_tokens=3, usd=0.01)
    second = reserve(store, cost(0.3), daily_cap_usd=0.5)
    assert second is not None
    release(store, second)
    assert spent_since(store, START) == pytest.approx(0.01)
    assert [(total.calls, total.input_tokens, total.output_tokens) for total in totals(store)] == [(1, 7, 3)]


def test_the_cap_is_for_one_purpose_and_one_utc_day(store: Store) -> None:
    add_cost(store, cost(0.5, at=day_start(NOON) - 1))
    add_cost(store, cost(0.5, purpose="embedding", model="text-embedding-3-small"))
    assert reserve(store, cost(0.5), daily_cap_usd=0.5) is not None
    assert reserve(store, cost(0.001), daily_cap_usd=0.5) is None
    assert reserve(store, cost(0.001, at=day_start(NOON) + DAY_MS), daily_cap_usd=0.5) is not None


def test_a_cap_of_nothing_lets_free_calls_through_and_no_other(store: Store) -> None:
    assert reserve(store, cost(0.0), daily_cap_usd=0) is not None
    assert reserve(store, cost(1e-9), daily_cap_usd=0) is None
    assert reserve(store, cost(1e-9), daily_cap_usd=float("nan")) is None


def test_totals_name_the_dearest_first(store: Store) -> None:
    add_cost(store, cost(0.1, purpose="embedding"))
    add_cost(store, cost(0.2))
    add_cost(store, cost(0.2))
    assert [(total.purpose, total.calls) for total in totals(store)] == [("summary", 2), ("embedding", 1)]
    assert totals(store, since=NOON + 1) == []


@pytest.mark.slow
def test_processes_that_reserve_at_once_stay_under_the_cap_together(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    code = (
        "import sys; from pathlib import Path; from crystal.store import Store; from crystal.store.costs import Cost, reserve\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "for _ in range(20): reserve(store, Cost(1, 'summary', 'openai', 'm', 1, 1, 0.1), daily_cap_usd=1.0)\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "crystal.db")]) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    with Store.open(tmp_path / "crystal.db") as store:
        assert 0.9 <= spent_since(store, 0) <= 1.0 + 1e-9


@each_row(
    ("provider", "model", "price"),
    [
        ("openai", "gpt-4o-mini", PRICES["gpt-4o-mini"]),
        ("openai", "gpt-4o-mini-2024-07-18", PRICES["gpt-4o-mini"]),
        ("openai", "openai/GPT-4o-mini", PRICES["gpt-4o-mini"]),
        ("google", "models/gemini-2.5-flash-lite", PRICES["gemini-2.5-flash-lite"]),
        ("openai", "somebody-elses-model", UNKNOWN),
        ("openai", "", UNKNOWN),
        ("ollama", "gpt-4o-mini", FREE),
    ],
)
def test_every_model_has_a_price(provider: str, model: str, price: object) -> None:
    assert price_of(provider, model) == price


def test_a_call_to_gpt_4o_mini_costs_what_the_price_list_says() -> None:
    assert price_of("openai", "gpt-4o-mini").usd(1_000_000, 1_000_000) == pytest.approx(0.75)
