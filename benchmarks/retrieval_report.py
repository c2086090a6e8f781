"""What a run found, as numbers and as text: tables, verdicts, differences between runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from retrieval_data import DataSet
from retrieval_longmemeval import published
from retrieval_metrics import METRICS, Estimate, Values, estimates, values_of

CRYSTAL = "crystal"
LEVELS = ("turns", "sessions")
JUDGED = ("hit@1", "hit@5", "MRR")
SUM = "all sets"

Row = dict[str, Any]
Table = dict[str, list[Estimate]]
"""For each system its metrics, in the order of ``METRICS``."""


@dataclass
class Run:
    """All questions of all sets, with the ranks at which each system found their gold. No text is in it."""

    everywhere: bool
    embedding: str
    kinds: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def add(self, dataset: DataSet, rows: Sequence[Row]) -> None:
        self.kinds[dataset.name] = dataset.kind
        self.sizes[dataset.name] = len(dataset.messages)
        self.rows += rows

    def of(self, name: str) -> list[Row]:
        """The rows of a set, or of all."""
        return self.rows if name == SUM else [row for row in self.rows if row["set"] == name]

    @property
    def groups(self) -> list[str]:
        """The sets, and their sum if there is more than one."""
        return [*self.kinds, *([SUM] if len(self.kinds) > 1 else [])]

    @property
    def systems(self) -> list[str]:
        return list(self.rows[0]["systems"]) if self.rows else [CRYSTAL]

    def write(self, path: Path) -> None:
        head = {"everywhere": self.everywhere, "embedding": self.embedding, "kinds": self.kinds, "sizes": self.sizes}
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in self.rows)
        path.write_text(json.dumps(head)[:-1] + ', "rows": [\n' + rows + "\n]}\n", "utf-8")

    @classmethod
    def read(cls, path: Path) -> Run:
        return cls(**json.loads(path.read_text("utf-8")))


@dataclass(frozen=True)
class Verdict:
    """crystal against the best baseline: ``clear`` when its whole interval is above that one's mean."""

    level: str
    metric: str
    ours: Estimate
    best: str
    theirs: Estimate
    difference: Estimate

    @property
    def verdict(self) -> str:
        return "clear" if self.ours.low > self.theirs.mean else "better" if self.difference.mean > 0 else "not"


def values(rows: Sequence[Row], level: str, system: str) -> Values:
    """The metrics of the questions that have gold at this level, a row each."""
    at = LEVELS.index(level)
    found = [values_of(row["systems"][system][at], row[level]) for row in rows if row[level]]
    return np.array(found, np.float64).reshape(-1, len(METRICS))


def table(rows: Sequence[Row], level: str, systems: Sequence[str]) -> Table:
    """Means over questions, with intervals."""
    found = estimates(np.hstack([values(rows, level, system) for system in systems]))
    width = len(METRICS)
    return {system: found[place * width : (place + 1) * width] for place, system in enumerate(systems)}


def verdicts(run: Run) -> list[Verdict]:
    """crystal against the best baseline of each metric, over all questions of all sets."""
    found = []
    rivals = [system for system in run.systems if system != CRYSTAL]
    for level in LEVELS if rivals else ():
        rows = [row for row in run.rows if row[level]]
        if not rows:
            continue
        all_of_them = table(rows, level, run.systems)
        for metric in JUDGED:
            at = METRICS.index(metric)
            best = max(rivals, key=lambda system: all_of_them[system][at].mean)
            apart = values(rows, level, CRYSTAL)[:, at : at + 1] - values(rows, level, best)[:, at : at + 1]
            ours, theirs = all_of_them[CRYSTAL][at], all_of_them[best][at]
            found.append(Verdict(level, metric, ours, best, theirs, estimates(apart)[0]))
    return found


def categories(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by category, the largest first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["category"], []).append(row)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


# ------------------------------------------------------------------------------------------------------------ words


def report(run: Run, *, by_category: bool) -> str:
    """Everything, for a terminal of 190 columns."""
    return "\n".join([*_tables(run, by_category=by_category), *_published(run), *_verdict_lines(run)])


def compared(old: Run, new: Run) -> str:
    """The differences of crystal's figures between two runs, question by question."""
    before = {(row["set"], row["qid"]): row for row in old.rows}
    lines = ["", "compared with the run before: new figure, difference (95 % of it), questions better and worse by MRR"]
    for name in new.groups:
        for level in LEVELS:
            pairs = [
                (before[key], row)
                for row in new.of(name)
                if row[level] and (key := (row["set"], row["qid"])) in before and before[key][level] == row[level]
            ]
            if pairs:
                lines.append(_difference_line(name, level, pairs))
    return "\n".join(lines)


def short(estimate: Estimate) -> str:
    """``0.311 .283-.340``."""
    low, high = (f"{bound:.3f}".removeprefix("0") for bound in (estimate.low, estimate.high))
    return f"{estimate.mean:.3f} {low}-{high}"


def _difference_line(name: str, level: str, pairs: Sequence[tuple[Row, Row]]) -> str:
    was, now = (values([pair[side] for pair in pairs], level, CRYSTAL) for side in (0, 1))
    apart = estimates(now - was)
    at = METRICS.index("MRR")
    up, down = int((now[:, at] > was[:, at]).sum()), int((now[:, at] < was[:, at]).sum())
    cells = [
        f"{metric} {now[:, place].mean():.3f} {apart[place].mean:+.3f} "
        f"({apart[place].low:+.3f} to {apart[place].high:+.3f})"
        for place, metric in enumerate(METRICS)
        if metric in (*JUDGED, "nDCG@10")
    ]
    return f"{name}, {level} ({len(pairs)}): " + "; ".join(cells) + f"; {up} better, {down} worse"


def _tables(run: Run, *, by_category: bool) -> Iterator[str]:
    for name in run.groups:
        for level in LEVELS:
            yield from _text_table(f"{name}, {level}", run.of(name), level, run.systems)
            for category, rows in categories(run.of(name)).items() if by_category and name != SUM else ():
                yield from _text_table(f"{name}, {category}, {level}", rows, level, run.systems)


def _text_table(title: str, rows: Sequence[Row], level: str, systems: Sequence[str]) -> Iterator[str]:
    kept = [row for row in rows if row[level]]
    if kept:
        yield from _lines(f"{title} ({len(kept)} questions)", table(kept, level, systems))


def _lines(title: str, found: Table) -> Iterator[str]:
    width = max(map(len, found))
    yield ""
    yield title
    yield " " * width + "".join(f"  {metric:<15}" for metric in METRICS)
    for system, cells in found.items():
        yield f"{system:<{width}}" + "".join(f"  {short(cell)}" for cell in cells)


def _published(run: Run) -> Iterator[str]:
    for name, kind in run.kinds.items():
        if kind != "longmemeval":
            continue
        yield ""
        for system in run.systems:
            rows = [(row["qid"], row["systems"][system][1], row["sessions"]) for row in run.of(name)]
            scores = [f"{how} {value:.3f} on {count}" for how, (value, count) in published(rows).items()]
            yield f"{name}, as published, {system}: {', '.join(scores)}"


def _verdict_lines(run: Run) -> Iterator[str]:
    yield ""
    for one in verdicts(run):
        yield (
            f"verdict: {one.level} {one.metric}: {one.verdict}: crystal {short(one.ours)} against "
            f"{one.theirs.mean:.3f} of {one.best}; apart {one.difference.mean:+.3f} "
            f"({one.difference.low:+.3f} to {one.difference.high:+.3f})"
        )
