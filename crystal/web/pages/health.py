"""Show the state of the memory: capture, queues, the hook's durations, costs, other devices, the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from crystal.app.agents import look_at_files
from crystal.app.context import Machine
from crystal.app.status import gather_shown
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture.hook_runs import last_runs
from crystal.store.costs import DAY_MS, spent_by_day
from crystal.store.health.stats import ledger_by_transcript
from crystal.web.responses import Page, RequestValues

TRANSCRIPTS = 25
RUNS = 200
WIDTH, HEIGHT = 600, 120
DAYS = 30


class Plot(NamedTuple):
    """A curve of the hook's durations, in units of the drawing.

    Attributes:
        points: For a polyline.
        most: The upper end of the scale, ms.
        lines: Position and label of each line of the scale.
    """

    points: str
    most: float
    lines: Sequence[tuple[float, str]]


class Bar(NamedTuple):
    """Costs of models on one day, as a bar of the drawing."""

    x: int
    height: float
    label: str


def show(machine: Machine, params: RequestValues) -> Page:
    """Show the state of capture, queues, hook, costs, devices and disk."""
    limit = params.number("limit") or TRANSCRIPTS
    found = ledger_by_transcript(machine.store, limit + 1)
    today = machine.now() // DAY_MS
    values = {
        "bars": bars(spent_by_day(machine.store, (today - DAYS + 1) * DAY_MS), today),
        "status": gather_shown(machine, look_at_files(machine)), "ledger": found[:limit],
        "more": limit * 4 if len(found) > limit else None,
        "plot": plot([ms for _, ms in last_runs(machine.store, RUNS)]),
    }  # fmt: skip
    return Page("health.html", "Health", values)


def plot(durations: Sequence[float]) -> Plot | None:
    """Return the curve of durations in ms, the oldest first; None for fewer than two."""
    if len(durations) < 2:
        return None
    most = next(scale for scale in (10, 20, 50, 100, 200, 500, 1_000, 10_000, float("inf")) if max(durations) <= scale)
    most = max(durations) if most == float("inf") else most
    step = WIDTH / (len(durations) - 1)
    points = " ".join(f"{at * step:.1f},{HEIGHT - ms / most * HEIGHT:.1f}" for at, ms in enumerate(durations))
    return Plot(points, most, [(HEIGHT - HEIGHT * part, f"{most * part:g} ms") for part in (0, 0.5, 1)])


def bars(spent: Mapping[int, float], today: int) -> list[Bar]:
    """Return a bar for each of the last 30 days, the oldest first; empty if nothing was spent. Days count from 1970."""
    most, step = max(spent.values(), default=0.0), WIDTH // DAYS
    found = [(day, spent.get(day, 0.0)) for day in range(today - DAYS + 1, today + 1)] if most > 0 else []
    return [
        Bar(at * step, round(HEIGHT * usd / most, 1), f"{date(1970, 1, 1) + timedelta(days=day)}: ${usd:.2f}")
        for at, (day, usd) in enumerate(found)
    ]
