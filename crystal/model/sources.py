"""Define files that a person adds to the memory: frozen values that packages pass to each other."""

from __future__ import annotations

from crystal.model.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Place of a text: a file and a position in it.

    Attributes:
        name: The user's name for the source.
        folder: The source's folder.
        path: The file, below the folder, with slashes.
        title: The headings above the text, or its class and function; may be empty.
        first_line: Its first line in the file, from 1.
        last_line: Its last line.
    """

    name: str
    folder: str
    path: str
    title: str
    first_line: int
    last_line: int

    @property
    def lines(self) -> str:
        """Return the range of lines: ``12`` or ``12-30``."""
        return str(self.first_line) if self.first_line == self.last_line else f"{self.first_line}-{self.last_line}"


def searched_text(title: str, text: str) -> str:
    """Return the searched text of a file's chunk: its title, which names the subject, and its text."""
    return f"{title_prefix(title)}{text}"


def title_prefix(title: str) -> str:
    """Return the text that precedes a chunk of a file with this title in the searched text."""
    return f"{title}\n" if title else ""


def shown_text(place: FilePlace | None, text: str) -> str:
    """Return a chunk's text as it is in its file, without the title that precedes it for search."""
    return text if place is None else text.removeprefix(title_prefix(place.title))
