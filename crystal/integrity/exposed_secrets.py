"""Find secrets in transcripts on disk and report their location, never their text. Read-only.

Crystal's own data is redacted. The agents' transcripts are not: they hold every secret that was ever shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crystal.capture import finder
from crystal.config.harnesses import Root
from crystal.redact import Redactor

MAX_LINE_BYTES = 16 << 20
"""A longer line is read in pieces, so that no transcript needs more memory than this."""

_NO_SECRET = frozenset(("private-span", "recalled"))


@dataclass(frozen=True, slots=True)
class Exposure:
    """Secrets of one kind in one line of a transcript.

    Attributes:
        path: The transcript.
        line: The line number, from 1.
        offset: Offset of the first secret in bytes.
        kind: The kind of secret, as in the markers of the redaction.
        count: Number of secrets in the line.
    """

    path: Path
    line: int
    offset: int
    kind: str
    count: int


def list_transcripts(
    roots: Sequence[Root], paths: Sequence[Path], refusal: Callable[[Path, Exception], None]
) -> list[finder.TranscriptFile]:
    """Return the transcripts that an import would read, each once: those in ``paths``, or all in ``roots``."""
    if not paths:
        return list(finder.all_transcripts(roots, refusal))
    return list({found.path: found for path in paths for found in finder.under(path)}.values())


def find_exposures(path: Path, progress: Callable[[int], None]) -> Iterator[Exposure]:
    """Yield the secrets of one transcript, line by line; ``progress`` is called with the bytes read.

    Raises:
        FileNotFoundError: The transcript does not exist.
        UnavailableError: The system refuses to open or read it.
    """
    redactor = Redactor(b"not kept")
    offset, number = 0, 1
    with finder.opened(path) as file:
        while piece := file.readline(MAX_LINE_BYTES):
            yield from _in_line(redactor, path, number, offset, piece.rstrip(b"\n"))
            offset += len(piece)
            number += piece.endswith(b"\n")
            progress(len(piece))


def _in_line(redactor: Redactor, path: Path, number: int, offset: int, line: bytes) -> Iterator[Exposure]:
    findings = [(start, kind) for start, kind in redactor.findings(line) if kind not in _NO_SECRET]
    first = {kind: start for start, kind in reversed(findings)}
    for kind, count in Counter(kind for _, kind in findings).items():
        yield Exposure(path, number, offset + first[kind], kind, count)
