"""Show the history of a file, a symbol, an error or a branch, related files, and who wrote a file's lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from crystal.app.about import Event, RelatedFile, ThingHistory, about, edited_lately, most_telling
from crystal.app.blame import blame
from crystal.app.context import Machine
from crystal.capture.finder import look_at
from crystal.config.paths import system_errors
from crystal.errors import CrystalError
from crystal.store.sessions.contexts import project_rows
from crystal.store.work.queries import RecordedCall
from crystal.text.harmless import harmless
from crystal.web.responses import Page, RequestValues

LIMIT = 40
MAX_LIMIT = 1_000
MAX_LINES = 2_000
"""Maximum lines shown of a file."""
WIDTH, HEIGHT, RADIUS = 840, 280, 115
"""Size of the drawing, in its units: a name of 30 letters has room beside it."""


@dataclass(frozen=True, slots=True)
class DrawnFile:
    """A related file in the drawing; ``weight`` is the width of its line to the middle, in pixels."""

    file: str
    label: str
    sessions: int
    x: float
    y: float
    anchor: str
    weight: float


@dataclass(frozen=True, slots=True)
class WrittenLines:
    """Consecutive lines of a file, and the call that wrote them; None if it is unknown."""

    first: int
    text: tuple[str, ...]
    call: RecordedCall | None


def show(machine: Machine, params: RequestValues) -> Page:
    """Show the history of a thing, or an empty form."""
    thing, project, file = params.text("thing"), params.text("project"), None
    found, notes = ThingHistory("", "name", (), 0, ()), list[str]()
    limit = min(params.number("limit") or LIMIT, MAX_LIMIT)
    if thing is not None:
        found = about(machine, thing, project=project, is_only=project is not None)
        file, notes = _file_here(machine, found.events) if found.kind == "file" else None, [*found.notes]
    lately = [] if found.events else edited_lately(machine, project)
    lines = list[WrittenLines]()
    if file is not None and params.text("lines"):
        try:
            lines = list(_written(machine, file))
        except CrystalError as error:
            notes.append(error.message)
    return Page(
        "about.html",
        f"{thing} · About" if thing else "About",
        {
            "thing": thing, "project": project, "found": found, "events": most_telling(found.events, limit),
            "more": min(MAX_LIMIT, limit * 5) if len(found.events) > limit < MAX_LIMIT else None,
            "nodes": list(_around(found.related)), "size": (WIDTH, HEIGHT), "has_file": file is not None,
            "lines": lines, "notes": notes, "lately": lately,
        },
    )  # fmt: skip


def _around(related: Sequence[RelatedFile]) -> Iterator[DrawnFile]:
    """Yield the files, placed on an ellipse with their names on its outer side."""
    most = max((one.sessions for one in related), default=1)
    for number, one in enumerate(related):
        angle = 2 * math.pi * (number + 0.5) / len(related) - math.pi / 2
        x, y = WIDTH / 2 + RADIUS * 1.4 * math.cos(angle), HEIGHT / 2 + RADIUS * math.sin(angle)
        name = _label(one.file, [other.file for other in related if other.file != one.file])
        anchor = "start" if math.cos(angle) > 0 else "end"
        yield DrawnFile(one.file, name, one.sessions, round(x), round(y), anchor, round(1 + 4 * one.sessions / most, 1))


def _label(file: str, others: Sequence[str]) -> str:
    """Return a file's name, with its folder's name if another file has the same name."""
    parts = file.split("/")
    name, longer = parts[-1], "/".join(parts[-2:])
    return longer if any(f"/{other}".endswith(f"/{name}") for other in others) else name


def _file_here(machine: Machine, events: Sequence[Event]) -> Path | None:
    """Return the last edited file that exists inside its project's folder on this machine; None if none does."""
    roots = [(one.name, Path(one.git_root or one.cwd)) for _, one in project_rows(machine.store)]
    edits = dict.fromkeys((one.project, one.text) for one in events if one.what == "edited")
    for project, name in edits:
        for root in (root for known, root in roots if known == project):
            path = root / name
            if look_at(path) and path.resolve().is_relative_to(root.resolve()):
                return path
    return None


def _written(machine: Machine, path: Path) -> Iterator[WrittenLines]:
    """Yield the lines of a file with the call that wrote them.

    Raises:
        NotFoundError, UsageError: The file is missing, not text, or too long.
    """
    found = blame(machine, str(path))
    with system_errors(path):
        text = path.read_bytes().decode("utf-8", "replace").split("\n")[:MAX_LINES]
    for call, group in groupby((one for one in found.lines if one.first <= len(text)), key=lambda one: one.call):
        same = list(group)
        shown = text[same[0].first - 1 : same[-1].last]
        yield WrittenLines(same[0].first, tuple(map(harmless, shown)), call)
