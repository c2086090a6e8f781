"""A picture of what a run found, as SVG: a point for each system with its 95 % interval, a panel for each metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from retrieval_metrics import Estimate

LABELS, PANEL, GAP, ROW = 258, 262, 28, 23
TOP, TITLE, AXIS = 54, 30, 34
OURS, THEIRS, INK, PALE, LINE = "#c2410c", "#475569", "#0f172a", "#64748b", "#e2e8f0"
FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\""


@dataclass(frozen=True)
class Panel:
    """One metric of all systems."""

    title: str
    points: dict[str, Estimate]


def plot(title: str, note: str, grid: Sequence[Sequence[Panel]], ours: str) -> str:
    """Panels in rows. ``ours`` is drawn in colour; a dashed line stands at the best of the others."""
    systems = list(grid[0][0].points)
    inner = TITLE + ROW * len(systems) + AXIS
    width = LABELS + max(len(row) for row in grid) * (PANEL + GAP)
    height = TOP + len(grid) * inner + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT} role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(16, 28, title, size=17, weight=600),
    ]
    for number, row in enumerate(grid):
        top = TOP + number * inner
        parts += _labels(systems, top + TITLE, ours)
        for place, panel in enumerate(row):
            parts += _panel(panel, LABELS + place * (PANEL + GAP), top, ours)
    parts.append(_text(16, height - 12, note, size=11.5, fill=PALE))
    return "\n".join([*parts, "</svg>", ""])


def _labels(systems: Sequence[str], top: float, ours: str) -> Iterable[str]:
    for place, system in enumerate(systems):
        mine = system == ours
        fill, weight = (OURS, 600) if mine else (INK, 400)
        yield _text(LABELS - 14, _middle(top, place) + 4.5, system, size=13, fill=fill, weight=weight, anchor="end")


def _panel(panel: Panel, left: float, top: float, ours: str) -> Iterable[str]:
    start, end = _range(panel.points.values())
    body, bottom = top + TITLE, top + TITLE + ROW * len(panel.points)

    def at(value: float) -> float:
        return left + (value - start) / (end - start) * PANEL

    yield _text(left, top + 18, panel.title, size=13.5, weight=600)
    for tick in _ticks(start, end):
        yield f'<path d="M{at(tick):.1f} {body}V{bottom}" stroke="{LINE}"/>'
        yield _text(at(tick), bottom + 16, f"{tick:g}", size=11, fill=PALE, anchor="middle")
    others = [one.mean for system, one in panel.points.items() if system != ours]
    if others:
        best = at(max(others))
        yield f'<path d="M{best:.1f} {body}V{bottom}" stroke="{THEIRS}" stroke-dasharray="3 3"/>'
    for place, (system, one) in enumerate(panel.points.items()):
        colour, y = OURS if system == ours else THEIRS, _middle(body, place)
        radius = 5 if system == ours else 4
        yield f'<path d="M{at(one.low):.1f} {y}H{at(one.high):.1f}" stroke="{colour}" stroke-width="2"/>'
        yield f'<circle cx="{at(one.mean):.1f}" cy="{y}" r="{radius}" fill="{colour}"/>'


def _middle(top: float, place: int) -> float:
    return top + ROW * (place + 0.5)


def _range(points: Iterable[Estimate]) -> tuple[float, float]:
    """From a tenth at or below the lowest bound to one at or above the highest."""
    low, high = (
        (min(one.low for one in points), max(one.high for one in points)) if (points := list(points)) else (0, 1)
    )
    start, end = int(low * 10) / 10, -int(-high * 10 - 0.999) / 10
    return start, max(end, start + 0.1)


def _ticks(start: float, end: float) -> list[float]:
    step = 0.2 if end - start > 0.5 else 0.1
    first = -int(-start / step - 0.0001)
    return [round(number * step, 2) for number in range(first, 11) if start - 1e-9 <= number * step <= end + 1e-9]


def _text(
    x: float, y: float, words: str, *, size: float, fill: str = INK, weight: int = 400, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{fill}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
