"""What a summary says, whoever made it: the value that ``markdown`` writes and ``simple`` and ``llm`` make."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A part of a summary: one line of text, under a word that says what it is (``Asked``) or under none."""

    text: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class SummaryText:
    """Title, summary and topics: plain text, one line each, nothing escaped yet."""

    title: str
    paragraphs: tuple[Paragraph, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileTouched:
    """A file that tools touched; ``how`` is a sorted choice of ``edited``, ``read`` and ``written``."""

    path: str
    how: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deeds:
    """What a session did: the files it touched and the commands it ran, each once, in the order of the first time."""

    files: tuple[FileTouched, ...] = ()
    commands: tuple[str, ...] = ()
