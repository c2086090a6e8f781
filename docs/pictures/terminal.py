"""A real terminal, and what stands on it as a picture: tmux runs the program, its screen becomes an SVG file.

Nothing on a picture is typed by hand: every character comes from the screen, with its colour.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import TerminalTheme

SECONDS = 60.0
FONTS = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"
SVG = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{width}} {{height}}" width="{{width}}">
<title>{{said}}</title>
<style>
.{{unique_id}}-matrix {{{{ font: {{char_height}}px {FONTS}; line-height: {{line_height}}px; }}}}
.{{unique_id}}-title {{{{ font: bold 18px sans-serif; }}}}
{{styles}}
</style>
<defs><clipPath id="{{unique_id}}-clip-terminal">
<rect width="{{terminal_width}}" height="{{terminal_height}}"/></clipPath>{{lines}}</defs>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})" clip-path="url(#{{unique_id}}-clip-terminal)">
{{backgrounds}}
<g class="{{unique_id}}-matrix">{{matrix}}</g>
</g>
</svg>
"""
"""A frame without the fonts that rich's own fetches from the network."""
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


def draw(screen: str, title: str, said: str) -> str:
    """A screen as SVG.

    Args:
        screen: Lines with escape sequences.
        title: What stands in the bar above.
        said: The picture in words, for who does not see it.
    """
    lines = list(AnsiDecoder().decode(screen.rstrip()))
    width = max((cell_len(line.plain.rstrip()) for line in lines), default=1)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for line in lines:
        line.rstrip()
        console.print(line, no_wrap=True, crop=False)
    named = SVG.replace("{said}", escape(said).replace("{", "{{").replace("}", "}}"))
    return console.export_svg(title=title, theme=THEME, code_format=named, unique_id="screen")
