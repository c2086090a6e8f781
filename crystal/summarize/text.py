"""Content of a summary: made by ``simple`` and ``llm``, written by ``markdown``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Part of a summary: one line of text, with an optional label (``Asked``)."""

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
    """File used by tools; ``how`` is a sorted selection of ``edited``, ``read`` and ``written``."""

    path: str
    how: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deeds:
    """Actions of a session: the files used and the commands run, each once, in the order of first use."""

    files: tuple[FileTouched, ...] = ()
    commands: tuple[str, ...] = ()
