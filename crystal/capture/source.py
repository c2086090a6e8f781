"""Read a file that its owner rewrites, or a database, as it is at one moment."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from crystal.capture import files
from crystal.capture.database import opened_database
from crystal.capture.safe_open import Folders
from crystal.config.harness import Form
from crystal.errors import CrystalError
from crystal.transcript import Source, SourceError

MAX_DOCUMENT_BYTES = 256 << 20


@contextlib.contextmanager
def opened_source(path: Path, form: Form, folders: Folders, sides: Mapping[PurePath, bytes]) -> Iterator[Source]:
    """Open a file as a source.

    Args:
        path: The file.
        form: ``document`` or ``database``.
        folders: The folders that may be read.
        sides: The side files that exist.

    Raises:
        FileNotFoundError: It is gone.
        SourceError: It is no database, or too large.
        TranscriptRefusedError, TranscriptBlockedError, UnavailableError: As for every transcript.
    """
    if form == "document":
        with files.opened(path, folders) as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise SourceError(f"{path} is larger than {MAX_DOCUMENT_BYTES >> 20} MB", hint="crystal reads no such file")
        yield Source(path, data, _no_rows, sides)
        return
    with opened_database(path, folders) as rows:
        yield Source(path, b"", rows, sides)


def _no_rows(*_: object) -> Iterator[tuple[Any, ...]]:
    raise CrystalError("a document has no tables")
