"""Draw QR codes on a terminal: two rows of modules in each line of half blocks."""

from __future__ import annotations

import segno

_HALVES = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
QUIET = 4
"""Width of the light border around the code, in modules, as the standard requires."""

_BLACK_WITH_WHITE_TEXT, _AS_BEFORE = "\x1b[40;97m", "\x1b[0m"


def qr_text(text: str) -> str:
    """Draw a QR code with light modules as blocks, for light text on a dark terminal.

    On a light terminal it is inverted, which newer cameras read but older ones do not; ``qr_ansi`` is right on both.
    Capital letters, digits, ``-`` and ``:`` make the smallest code: pass ``text.upper()`` if case does not matter.

    Returns:
        Lines without escape sequences, all of the same width; the last ends without a line break.
    """
    rows = [bytes(row) for row in segno.make_qr(text, error="l").matrix_iter(border=QUIET)]
    if len(rows) % 2:
        rows.append(bytes(len(rows[0])))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return "\n".join("".join(_HALVES[above, below] for above, below in zip(*pair, strict=True)) for pair in pairs)


def qr_ansi(text: str) -> str:
    """Draw the same QR code with its own colours, independent of the terminal's."""
    return "\n".join(f"{_BLACK_WITH_WHITE_TEXT}{line}{_AS_BEFORE}" for line in qr_text(text).split("\n"))
