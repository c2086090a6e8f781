"""Split a file's text at headings, at functions and classes, or else at paragraphs.

Pure, apart from the installed grammars. Every line with a letter or a digit is in a chunk.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from crystal.model.named_tuple import NamedTuple
from crystal.sources import code
from crystal.sources.obsidian import name_of
from crystal.store.sources.source_files import FileChunk
from crystal.text.chunking import code_fences, split

FORMAT = 2
"""Version of the splitting, and of the titles of notes; raise it to have all files read again."""
MARKDOWN = (".md", ".markdown", ".mdown", ".mdx")
MAX_TITLE = 200
_WORD = re.compile(r"\w")
_ATX = r"^ {0,3}(?P<level>#{1,6})[ \t]+(?P<atx>[^\n]*?)(?:[ \t]+#+)?[ \t]*$"
_SETEXT = r"(?:(?<=\n\n)|\A) {0,3}(?P<setext>[^\s#>|`*+\-][^\n]*)\n {0,3}(?P<line>={3,}|-{3,})[ \t]*$"
_HEADING = re.compile(f"{_ATX}|{_SETEXT}", re.MULTILINE)


class Section(NamedTuple):
    """A part of a text, ``text[start:end]``, and its title."""

    title: str
    start: int
    end: int


def file_chunks(path: str, text: str, *, is_vault: bool = False) -> list[FileChunk]:
    """Return the chunks of a file's text, in order; in a vault the names and tags of a note are in its titles."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    found = sections(path, text)
    if is_vault and path.lower().endswith(MARKDOWN):
        name = name_of(path, text)
        found = [one._replace(title=name.title_of(one.title)) for one in found]
    return [chunk for section in found for chunk in _chunks(section, text, lines)]


def sections(path: str, text: str) -> list[Section]:
    """Divide a text into sections that follow each other without a gap."""
    if path.lower().endswith(MARKDOWN):
        return _markdown_sections(text)
    found = code.definitions(path, text)
    return [Section(title, start, end) for title, start, end in found] or [Section("", 0, len(text))]


def read_as() -> str:
    """Return a name for how files are split on this machine, which depends on the installed grammars."""
    return " ".join((str(FORMAT), *code.installed_grammars()))


def _chunks(section: Section, text: str, lines: Sequence[int]) -> Iterator[FileChunk]:
    for start, piece in split(text[section.start : section.end]):
        if not _WORD.search(piece):
            continue
        # The first line keeps its indent: it may be code.
        begin = piece.rfind("\n", 0, len(piece) - len(piece.lstrip())) + 1
        first = bisect_right(lines, section.start + start + begin)
        shown = piece[begin:].rstrip()
        yield FileChunk(section.title, shown, first, first + shown.count("\n"))


def _markdown_sections(text: str) -> list[Section]:
    fences = code_fences(text)
    starts = [start for start, _ in fences]
    above: list[tuple[int, str]] = []
    found = [Section("", 0, 0)]
    for match in _HEADING.finditer(text):
        at = bisect_right(starts, match.start()) - 1
        if at >= 0 and match.start() < fences[at][1]:
            continue
        level = len(match["level"]) if match["level"] else 1 + match["line"].startswith("-")
        name = " ".join((match["atx"] or match["setext"] or "").split())
        above = [*(one for one in above if one[0] < level), (level, name)]
        found.append(Section(" > ".join(one for _, one in above if one)[:MAX_TITLE], match.start(), match.end()))
    return _joined(found, text)


def _joined(headings: Sequence[Section], text: str) -> list[Section]:
    """Extend each section to the next heading; a heading without text below it is joined with the next section."""
    done: list[Section] = []
    begin = 0
    for one, after in pairwise([*headings, Section("", len(text), len(text))]):
        if text[one.end : after.start].strip() or after.start == len(text):
            done.append(Section(one.title, begin, after.start))
            begin = after.start
    return done
