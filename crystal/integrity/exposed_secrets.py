"""Find secrets in transcripts on disk and in the memory, and report their location, never their text. Read-only.

The agents' transcripts contain every secret that ever appeared. Crystal's own data is redacted, but by the rules at
the time of capture; today's rules find what an older version missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crystal.capture import finder
from crystal.config.harnesses import Root
from crystal.ingest import archive
from crystal.redact import Redactor
from crystal.store import Store
from crystal.store.forget.forgotten_rows import KeptRow, each_text, kept_rows, lines_named
from crystal.store.forget.traces import has_line
from crystal.transcript.reader import reader_of

MAX_LINE_BYTES = 16 << 20
"""Longer lines are read in pieces of this size, which bounds the memory for any transcript."""

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
    """Return the transcripts that an import would read, without duplicates: those in ``paths``, or all in ``roots``."""
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


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """Secrets of one kind in one text of the memory.

    Attributes:
        id: The line of a turn, or the memory (mem-...), as ``crystal forget`` takes it; empty for an agent's own note.
        session: The id of its session; empty for a memory.
        kind: The kind of secret, as in the markers of the redaction.
        count: Number of secrets in the text.
    """

    id: str
    session: str
    kind: str
    count: int


def find_kept(
    stores: Sequence[Store], ldm_home: Path, progress: Callable[[str, int, int], None], unread: Callable[[str], None]
) -> Iterator[KeptSecret]:
    """Yield the secrets in the archives of the first store, then those that are only in the texts of a store.

    Args:
        stores: This machine's own store, and the mirror's if there is one.
        ldm_home: The folder to which archive paths are relative.
        progress: Called with the name of the step, the amount done, and the total; 0 if unknown.
        unread: Called with each archive that cannot be read completely.
    """
    redactor = Redactor(b"not kept")
    told: set[tuple[str, str]] = set()
    rows = kept_rows(stores[0])
    for number, row in enumerate(rows):
        progress("looking through the archives", number, len(rows))
        text = archive.text_of(ldm_home / row.archive, archive.Frame(row.offset, row.length))
        if text is None:
            unread(row.archive)
        for found in _in_row(redactor, stores[0], row, text or b""):
            told.add((found.id, found.kind))
            yield found
    for store in stores:
        for number, said in enumerate(each_text(store)):
            progress("looking through the texts", number, 0)
            name = said.uuid or said.uid
            for kind, count in redactor.clean_text(said.text)[1].items():
                if kind not in _NO_SECRET and (name, kind) not in told:
                    told.add((name, kind))
                    session = next((line[3] for line in lines_named(store, [said.uuid])), "")
                    yield KeptSecret(name, session, kind, count)


def _in_row(redactor: Redactor, store: Store, row: KeptRow, text: bytes) -> Iterator[KeptSecret]:
    """Yield the secrets of one archived row. A line without a stored turn has no id that ``forget`` accepts."""
    at, placed = row.start, []
    for line in text.split(b"\n")[:-1]:
        placed.append((at, line))
        at += len(line) + 1
    found = {place: Counter(kind for _, kind in redactor.findings(line)) for place, line in placed}
    if not any(kinds.keys() - _NO_SECRET for kinds in found.values()):
        return
    turns: dict[int, str] = {}
    for turn in reader_of(row.harness).turns(placed, row.key, subagent=row.subagent is not None):
        if has_line(store, turn.uuid):
            turns.setdefault(turn.offset, turn.uuid)
    for place, kinds in found.items():
        for kind in kinds.keys() - _NO_SECRET:
            yield KeptSecret(turns.get(place, ""), row.session_id, kind, kinds[kind])


def _in_line(redactor: Redactor, path: Path, number: int, offset: int, line: bytes) -> Iterator[Exposure]:
    findings = [(start, kind) for start, kind in redactor.findings(line) if kind not in _NO_SECRET]
    first = {kind: start for start, kind in reversed(findings)}
    for kind, count in Counter(kind for _, kind in findings).items():
        yield Exposure(path, number, offset + first[kind], kind, count)
