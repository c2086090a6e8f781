"""Format terminal output: make stored text harmless, measure its width, highlight and wrap it.

Stored text may come from web pages, tool output or other people. Every string of it passes ``harmless`` before it is
printed, so that it cannot move the cursor or change the title, the colours or the reading direction.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TextIO

from crystal.config.harnesses import title_of
from crystal.model.quick_dataclass import dataclass
from crystal.model.recall import Validity
from crystal.model.sources import FilePlace
from crystal.text.excerpt import Span, excerpt_span
from crystal.text.harmless import harmless
from crystal.timewords.parse import local

Word = list[tuple[str, bool]]
"""Characters of one line, each with whether it is marked."""

_COMMAND = re.compile(r"(?<=: )(?:chmod|crystal|mv|rm|sudo) [^();,]*[^();, ]")
_NEXT_COMMAND = re.compile(rf"(?:\A|(?<=: )){_COMMAND.pattern.removeprefix('(?<=: )')}")
"""Pattern of commands, which are not wrapped so that they can be copied. A hint begins with one."""
MAX_WIDTH = 110
PIPE_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Look:
    """Width and colours of the output.

    Attributes:
        width: Columns.
        colour: Whether it may have colours.
        is_terminal: Whether a person reads it: lines are wrapped then.
    """

    width: int
    colour: bool
    is_terminal: bool = False

    def bold(self, text: str) -> str:
        """Emphasise a text."""
        return self._styled(text, "1")

    def dim(self, text: str) -> str:
        """Dim a text."""
        return self._styled(text, "2")

    def mark(self, text: str) -> str:
        """Highlight a search word."""
        return self._styled(text, "1;33")

    def name(self, text: str) -> str:
        """Highlight the name of a speaker."""
        return self._styled(text, "1;36")

    def good(self, text: str) -> str:
        """Highlight a good state."""
        return self._styled(text, "32")

    def warning(self, text: str) -> str:
        """Highlight what needs attention."""
        return self._styled(text, "33")

    def bad(self, text: str) -> str:
        """Highlight a failure."""
        return self._styled(text, "1;31")

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


def look_of(stream: TextIO, env: Mapping[str, str] | None = None) -> Look:
    """Return the format for a stream: plain unless it is a terminal, or if ``NO_COLOR`` is set."""
    env = os.environ if env is None else env
    terminal = stream.isatty()
    width = _columns(env, stream if terminal else None)
    colour = terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    if sys.platform == "win32":
        colour = colour and bool(env.get("WT_SESSION") or env.get("TERM") or env.get("ANSICON"))
    return Look(max(20, min(width, MAX_WIDTH)), colour, terminal)


def _columns(env: Mapping[str, str], terminal: TextIO | None) -> int:
    columns = env.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) < 6 and int(columns):
        return int(columns)
    with contextlib.suppress(OSError, ValueError):  # the stream's own size: standard output may be a pipe
        if terminal and (told := os.get_terminal_size(terminal.fileno()).columns):
            return told
    return PIPE_WIDTH


def say(*lines: str, stream: TextIO | None = None) -> None:
    """Print lines; characters that the stream's encoding lacks become question marks instead of an error."""
    out = sys.stdout if stream is None else stream
    encoding = out.encoding or "utf-8"
    for line in lines:
        out.write(line.encode(encoding, "replace").decode(encoding) + "\n")


def item(label: str, text: str, look: Look, *, style: Callable[[str], str] = str) -> list[str]:
    """Return a label and a text in lines, wrapped and indented below the label; without a terminal one, for ``grep``.

    Long words such as paths, and commands, are not broken, so that they can be copied. The label must be plain text.
    """
    first, *others = wrapped(text, look, cells(label))
    return [(style(label) if look.is_terminal else label) + first, *others]


def wrapped(text: str, look: Look, indent: int, *, whole: re.Pattern[str] = _COMMAND) -> list[str]:
    """Return a text in lines for a terminal, the later ones indented; without a terminal, the text as one line."""
    if not look.is_terminal:
        return [text]
    text = whole.sub(lambda found: found[0].replace(" ", "\0"), text)
    width = max(20, look.width - indent)
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False) or [""]
    return [" " * (indent if number else 0) + line.replace("\0", " ") for number, line in enumerate(lines)]


def note(*lines: str, kind: str = "note") -> None:
    """Print notes to standard error, apart from results; wrapped on a terminal, otherwise one line for each."""
    for line in lines:
        say_aside(f"crystal: {kind}: ", line, whole=_NEXT_COMMAND if kind == "hint" else _COMMAND)


def say_aside(label: str, text: str, *, whole: re.Pattern[str] = _COMMAND) -> None:
    """Print a label and a text to standard error in the same way."""
    first, *others = wrapped(harmless(text).replace("\n", " "), look_of(sys.stderr), cells(label), whole=whole)
    say(label + first, *others, stream=sys.stderr)


def warn(*lines: str) -> None:
    """Print warnings to standard error."""
    note(*lines, kind="warning")


def hint(line: str) -> None:
    """Print the next step to standard error."""
    note(line, kind="hint")


def say_nothing(what: str, next_step: str) -> None:
    """Print to standard error that there is nothing to show, and the next step."""
    say_aside("crystal: ", what)
    hint(next_step)


def first_of(lines: Sequence[str], most: int, indent: str = "  ", rest: str = "") -> list[str]:
    """Return the first lines, and a line with the number of the others; ``rest`` says where to see them."""
    more = [f"{indent}and {len(lines) - most:,} more{rest}"] if len(lines) > most else []
    return [*(indent + line for line in lines[:most]), *more]


# ------------------------------------------------------------------------------------------------------------ text


def one_line(text: str) -> str:
    """Return stored text as one line without control characters."""
    return " ".join(harmless(text).split())


@lru_cache(maxsize=4096)
def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cells(text: str) -> int:
    """Return the number of columns that a text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def clipped(text: str, width: int) -> str:
    """Shorten a text to a number of columns, with an ellipsis if it was cut."""
    if cells(text) <= width:
        return text
    room = width - 1
    for at, character in enumerate(text):
        room -= _cells(character)
        if room < 0:
            return text[:at].rstrip() + "…"
    return text


def padded(text: str, width: int) -> str:
    """Pad a text with spaces to a number of columns."""
    return text + " " * (width - cells(text))


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines: the first column left-aligned, the others right-aligned."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([padded(first, widths[0]), *map(str.rjust, rest, widths[1:])]) for first, *rest in rows]


def speaker(role: str, tool: str | None = None, harness: str | None = None) -> str:
    """Return the speaker of a message, in words: an agent's name if its harness is known."""
    if role in ("tool_call", "tool_result"):
        what = "call" if role == "tool_call" else "result"
        return f"{one_line(tool)} {what}" if tool else f"tool {what}"
    agent = agent_title(harness).removesuffix(" Code").removesuffix(" CLI") or "agent"
    names = {"user": "you", "assistant": agent, "thinking": f"{agent}, thinking", "source": "file"}
    return names.get(role, role)


def file_words(place: FilePlace | None) -> list[str]:
    """Return the place of a text in a file of a source, in words; empty for other texts."""
    return [] if place is None else [place.name, f"{place.path}:{place.lines}", place.title]


def validity_words(found: Validity) -> str:
    """Describe whether the named things have changed since: ``cart.py: changed since (2 Mar 2026, a1b2c3d4)``."""
    is_decision = found.state == "superseded"
    what = f"superseded by {found.what}" if is_decision else f"{found.what}: {found.state} since"
    when = "" if found.at is None else f"{local(found.at).day} {local(found.at):%b %Y}"
    facts = [when, (found.commit or "")[:8], f"session {found.session[:8]}" if found.session else ""]
    told = ", ".join(fact for fact in facts if fact)
    return one_line(f"{what} ({told})" if told else what)


def agent_title(harness: str | None) -> str:
    """Return the name of a harness for people; empty if there is none."""
    return one_line(title_of(harness or ""))


def shown_branch(branch: str | None) -> str | None:
    """Return the branch unless it is the main one."""
    return None if branch in ("main", "master", "HEAD", "") else branch


def size_words(size: int) -> str:
    """Format a number of bytes for people: ``1.4 MB``."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return ""


def lasting(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 2:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 6000 else f"{round(seconds / 3600):,} h"


def price(usd: float) -> str:
    """Format a price in words; from one dollar on in whole cents."""
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def count_words(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 session``, ``2 sessions``, ``2 memories``."""
    plural = re.sub(r"(?<![aeiou])y$", "ie", noun) + "s"
    return f"{number:,} {noun if number == 1 else plural}"


# --------------------------------------------------------------------------------------------------------- snippets


def snippet(text: str, spans: Sequence[Span], look: Look, *, lines: int = 3, indent: str = "    ") -> list[str]:
    """Return the part of a text with the most marked spans, wrapped, with the marks visible.

    Args:
        text: Stored text.
        spans: The spans to mark, in order, not overlapping.
        look: The width, and whether there are colours; without colours marks are left out.
        lines: Maximum number of lines.
        indent: The beginning of every line.
    """
    width = max(8, look.width - cells(indent))
    start, end = excerpt_span(text, spans, lines * width)
    safe, marked = harmless(text), {at for span in spans for at in range(*span)}
    found = re.compile(r"\S+").finditer(safe, start, end)
    words = [[(safe[at], at in marked) for at in range(*match.span())] for match in found]
    if start > 0:
        before = [] if safe[start - 1].isspace() else words.pop(0)
        words.insert(0, [("…", False), *before])
    wrapped = _wrap(words, width)
    is_cut = end < len(safe.rstrip()) or len(wrapped) > lines
    wrapped = wrapped[:lines]
    if is_cut and wrapped:
        wrapped[-1] = _with_ellipsis(wrapped[-1], width)
    return [indent + _styled(line, look) for line in wrapped]


def _styled(line: Word, look: Look) -> str:
    groups = itertools.groupby(line, key=lambda one: one[1])
    pieces = [("".join(character for character, _ in group), is_marked) for is_marked, group in groups]
    return "".join(look.mark(piece) if is_marked else piece for piece, is_marked in pieces)


def _wrap(words: Iterable[Word], width: int) -> list[Word]:
    """Fill lines of at most ``width`` columns with words; break a word that is wider."""
    lines: list[Word] = [[]]
    used = 0
    for word in words:
        size = sum(_cells(character) for character, _ in word)
        if used and used + 1 + size <= width:
            lines[-1].append((" ", False))
            used += 1
        elif used:
            lines.append([])
            used = 0
        for character, is_marked in word:
            if used + _cells(character) > width:
                lines.append([])
                used = 0
            lines[-1].append((character, is_marked))
            used += _cells(character)
    return [line for line in lines if line]


def _with_ellipsis(line: Word, width: int) -> Word:
    while line and sum(_cells(character) for character, _ in line) > width - 2:
        line = line[:-1]
    return [*line, (" ", False), ("…", False)]
