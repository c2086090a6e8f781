"""A real terminal, and what stands on it as a picture: tmux runs the program, its screen becomes an SVG file.

Nothing on a picture is typed by hand: every character comes from the screen, with its colour.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

SECONDS = 60.0
CELL, LINE, SIZE, EDGE = 8.43, 19.0, 14, 18.0
NAMESPACE = "http://www.w3.org/2000/svg"
FONTS = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"
PAPER, INK, BAR, TITLE = "#16181d", "#d6d9e0", "#23262e", "#9aa0ad"
THEME = TerminalTheme(
    (22, 24, 29),
    (214, 217, 224),
    [(60, 64, 74), (239, 110, 110), (126, 201, 137), (226, 185, 98), (109, 160, 236), (196, 138, 228), (92, 194, 203),
     (200, 204, 212)],
    [(110, 116, 130), (255, 138, 138), (152, 224, 161), (245, 208, 127), (140, 184, 255), (215, 165, 243),
     (124, 215, 222), (240, 242, 246)],
)  # fmt: skip


class Screen:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path, env: Mapping[str, str], size: tuple[int, int]) -> None:
        self._socket = f"crystal-picture-{uuid.uuid4().hex[:8]}"
        self._env = {**env, "LANG": "C.UTF-8", "TMUX_TMPDIR": "/tmp", "COLORTERM": "truecolor"}  # noqa: S108
        start = f"cd {shlex.quote(str(folder))} && exec {shlex.join(command)}"
        columns, rows = map(str, size)
        self._tmux("-f", os.devnull, "new-session", "-d", "-s", "it", "-x", columns, "-y", rows, start)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words],
            env=self._env, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        return done.stdout

    def text(self) -> str:
        """What stands there, without colours."""
        return self._tmux("capture-pane", "-p", "-t", "it")

    def coloured(self) -> str:
        """What stands there, with the escape sequences of its colours."""
        return self._tmux("capture-pane", "-p", "-e", "-N", "-t", "it")

    def is_alive(self) -> bool:
        """Whether the program runs."""
        return self._tmux("list-panes", "-t", "it", "-F", "#{pane_dead}").strip() == "0"

    def press(self, *keys: str) -> None:
        """Press keys, in tmux' words: Enter, C-o."""
        self._tmux("send-keys", "-t", "it", *keys)

    def type(self, line: str) -> None:
        """Type a line and send it, when the screen shows that it has arrived."""
        self._tmux("send-keys", "-t", "it", "-l", line)
        end = "".join(line.split())[-20:]
        self.wait_for(lambda: end in "".join(self.text().split()), f"{line!r} to be typed")
        self.press("Enter")

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds; says what stands on the screen when it does not.

        Raises:
            TimeoutError: It did not within a minute.
        """
        deadline = time.monotonic() + SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited for {what}; the screen shows:\n{self.text()}")
            time.sleep(0.05)


@dataclass(frozen=True)
class Run:
    """Characters of one style beside each other, and the column in which they begin."""

    column: int
    text: str
    style: Style


def runs_of(line: Text) -> Iterator[Run]:
    """One line of a screen as pieces of one style each."""
    column = 0
    marks = sorted({0, len(line), *(place for span in line.spans for place in (span.start, span.end))})
    for start, end in itertools.pairwise(marks):
        piece = line.plain[start:end]
        found = [span.style for span in line.spans if span.start <= start < span.end]
        style = Style.combine([Style.null(), *(Style.parse(each) if isinstance(each, str) else each for each in found)])
        yield Run(column, piece, style)
        column += cell_len(piece)


def colour(found: Color | None, otherwise: str, *, is_ground: bool = False) -> str:
    """A colour of the terminal as one of the picture."""
    if found is None or found.is_default:
        return otherwise
    return found.get_truecolor(THEME, foreground=not is_ground).hex


def draw(screen: str, title: str, said: str) -> str:
    """A screen as SVG.

    Args:
        screen: Lines with escape sequences.
        title: What stands in the bar above.
        said: The picture in words, for who does not see it.
    """
    lines = list(AnsiDecoder().decode(screen))
    while lines and not lines[-1].plain.strip():
        lines.pop()
    columns = max((cell_len(line.plain.rstrip()) for line in lines), default=1)
    width, top = columns * CELL + 2 * EDGE, 34 + EDGE
    height = top + len(lines) * LINE + EDGE - 6
    parts = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" xml:space="preserve">',
        f"<title>{escape(said)}</title>",
        f"<style>text{{font:{SIZE}px {FONTS};white-space:pre;fill:{INK}}}</style>",
        f'<rect width="100%" height="100%" rx="9" fill="{PAPER}"/>',
        f'<path d="M0 34V9a9 9 0 0 1 9-9h{width - 18:.0f}a9 9 0 0 1 9 9v25z" fill="{BAR}"/>',
        *(f'<circle cx="{18 + 18 * at}" cy="17" r="5.5" fill="#4a4f5c"/>' for at in range(3)),
        f'<text x="{width / 2:.0f}" y="22" text-anchor="middle" style="fill:{TITLE}">{escape(title)}</text>',
    ]
    for number, line in enumerate(lines):
        for run in runs_of(line):
            parts += drawn(run, top + number * LINE)
    return "\n".join([*parts, "</svg>", ""])


def drawn(run: Run, top: float) -> Iterator[str]:
    """The elements of one piece of a line."""
    front, ground = colour(run.style.color, INK), colour(run.style.bgcolor, PAPER, is_ground=True)
    if run.style.reverse:
        front, ground = ground, front
    left = EDGE + run.column * CELL
    if ground != PAPER:
        wide = cell_len(run.text) * CELL
        yield f'<rect x="{left:.1f}" y="{top:.0f}" width="{wide:.1f}" height="{LINE:.0f}" fill="{ground}"/>'
    text = run.text.strip()
    if not text:
        return
    left += cell_len(run.text[: len(run.text) - len(run.text.lstrip())]) * CELL
    style = f"fill:{front};" if front != INK else ""
    style += "font-weight:bold;" if run.style.bold else ""
    style += "font-style:italic;" if run.style.italic else ""
    style += "text-decoration:underline;" if run.style.underline else ""
    style += "opacity:.65;" if run.style.dim else ""
    looks = f' style="{style}"' if style else ""
    length = cell_len(text) * CELL
    yield (
        f'<text x="{left:.1f}" y="{top + LINE - 5:.0f}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
        f"{looks}>{escape(text)}</text>"
    )
