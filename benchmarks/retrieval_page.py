"""What a run found as a part of a Markdown page, with a plot beside it.

The part stands between two comments that name the scope and the model; it replaces an older one of the same name, and
nothing else of the page is touched.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from retrieval_metrics import METRICS, Estimate
from retrieval_plot import Panel, plot
from retrieval_report import CRYSTAL, JUDGED, LEVELS, Run, Table, table, verdicts

SCOPES = {False: "project", True: "everywhere"}
MEANING = {
    "project": "Each question is asked within the project of its conversation.",
    "everywhere": "Each question is asked over the whole set at once.",
}


def write_page(run: Run, page: Path) -> None:
    """Write or replace the part of the page that tells of this run, and draw its plot."""
    scope = SCOPES[run.everywhere]
    name = f"{scope}, {run.embedding}"
    picture = page.with_name(f"{page.stem}-{scope}-{run.embedding}.svg")
    if not run.everywhere and verdicts(run):
        picture.write_text(_picture(run), "utf-8")
    body = "\n".join(_part(run, scope, picture.name))
    begin, end = f"<!-- measured: {name} -->", f"<!-- end of measured: {name} -->"
    part = f"{begin}\n\n{body.strip()}\n\n{end}"
    text = page.read_text("utf-8") if page.exists() else "# Retrieval, measured\n"
    if begin in text:
        text = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: part, text, flags=re.DOTALL)
    else:
        text = f"{text.rstrip()}\n\n{part}\n"
    page.write_text(text, "utf-8")


def _part(run: Run, scope: str, picture: str) -> Iterator[str]:
    counts = "; ".join(f"{name}: {run.sizes[name]:,} messages, {len(run.of(name)):,} questions" for name in run.kinds)
    day = time.strftime("%d %B %Y", time.gmtime()).lstrip("0")
    yield f"Measured on {day} with the model `{run.embedding}`. {counts}.".replace(". ", ".\n")
    yield MEANING[scope]
    if verdicts(run):
        yield ""
        yield "crystal beside the best baseline of each metric, over all questions of all sets:"
        yield ""
        yield from _verdicts(run)
        if not run.everywhere:
            yield ""
            yield f"![A point with its interval for each system and metric]({picture})"
    yield from _group(run, run.groups[-1])
    if len(run.groups) > 1 and not run.everywhere:
        yield from _sets(run)
    yield ""
    yield from _latency(run)


def _verdicts(run: Run) -> Iterator[str]:
    yield "| level | metric | crystal | best baseline | | difference | |"
    yield "|---|---|---|---|---|---|---|"
    for one in verdicts(run):
        apart = f"{one.difference.mean:+.3f} ({one.difference.low:+.3f} to {one.difference.high:+.3f})"
        yield (
            f"| {one.level} | {one.metric} | {one.ours} | {one.best} | {one.theirs.mean:.3f} | {apart} | "
            f"{one.verdict} |"
        )


def _group(run: Run, group: str) -> Iterator[str]:
    for level in LEVELS:
        rows = [row for row in run.of(group) if row[level]]
        if rows:
            yield ""
            yield f"**{group}, {level}**, {len(rows):,} questions"
            yield ""
            yield from _table(table(rows, level, run.systems))


def _sets(run: Run) -> Iterator[str]:
    """Each set alone: crystal, and the baseline whose MRR is best there."""
    yield ""
    yield "**each set**, crystal and the baseline with the best MRR there"
    yield ""
    yield f"| set | level | system | {' | '.join(METRICS)} |"
    yield f"|---|---|---|{'---|' * len(METRICS)}"
    for name in run.kinds:
        for level in LEVELS:
            rows = [row for row in run.of(name) if row[level]]
            if rows:
                found = table(rows, level, run.systems)
                others = sorted(found.keys() - {CRYSTAL}, key=lambda one: -found[one][METRICS.index("MRR")].mean)
                for line in list(_table({one: found[one] for one in (CRYSTAL, *others[:1])}))[2:]:
                    yield f"| {name} | {level} {line}"


def _table(found: Table) -> Iterator[str]:
    yield f"| | {' | '.join(METRICS)} |"
    yield f"|---|{'---|' * len(METRICS)}"
    best = [max(cells[place].mean for cells in found.values()) for place in range(len(METRICS))]
    for system, cells in found.items():
        shown = [_cell(cell, is_best=cell.mean >= top) for cell, top in zip(cells, best, strict=True)]
        yield f"| {system} | {' | '.join(shown)} |"


def _cell(estimate: Estimate, *, is_best: bool) -> str:
    mean = f"**{estimate.mean:.3f}**" if is_best else f"{estimate.mean:.3f}"
    return f"{mean} ({estimate.low:.3f}–{estimate.high:.3f})"  # noqa: RUF001


def _latency(run: Run) -> Iterator[str]:
    yield "| one question through the Python API | median, ms | 95 %, ms |"
    yield "|---|---|---|"
    for name in run.kinds:
        taken = sorted(row["ms"] for row in run.of(name))
        if taken:
            p95 = taken[min(len(taken) - 1, round(len(taken) * 0.95))]
            yield f"| {name} | {statistics.median(taken):.1f} | {p95:.1f} |"


def _picture(run: Run) -> str:
    grid = []
    for level in LEVELS:
        rows = [row for row in run.rows if row[level]]
        if not rows:
            continue
        found = table(rows, level, run.systems)
        grid.append([
            Panel(f"{level.removesuffix('s')} {metric}", {name: found[name][METRICS.index(metric)] for name in found})
            for metric in JUDGED
        ])  # fmt: skip
    where = ", ".join(run.kinds)
    note = f"{where}: means over all questions with 95 % bootstrap intervals; dashed: the best of the others"
    title = f"Finding the right turn and the right session (project, model {run.embedding})"
    return plot(title, note, grid, CRYSTAL)
