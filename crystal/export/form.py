"""Read the open form: the records that an import needs, checked. What it does not know is ignored.

Source: docs/spec/export-format.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from crystal.config.paths import system_errors
from crystal.errors import DamagedError, UsageError

FORMAT = "crystal-export"
VERSION = 1
_MAX_OFFSET = 1 << 53

Name = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"\A[^\0\n]+\Z")]
Offset = Annotated[int, Meta(ge=0, lt=_MAX_OFFSET)]


class Header(Struct, frozen=True, tag_field="type", tag="header"):
    """The first record."""

    format: str
    version: int


class TranscriptRecord(Struct, frozen=True, tag_field="type", tag="transcript"):
    """A transcript and its origin; its stretches follow."""

    session: Name
    key: Name
    harness: Name
    agent: Name
    device: Name
    subagent: Name | None = None


class StretchRecord(Struct, frozen=True, tag_field="type", tag="stretch"):
    """Bytes of a transcript that were captured together; their lines follow."""

    generation: Annotated[int, Meta(ge=-1, lt=1 << 31)]
    start: Offset
    stop: Offset


class LineRecord(Struct, frozen=True, tag_field="type", tag="line"):
    """An archived line."""

    offset: Offset
    raw: str | None = None
    raw_base64: str | None = None

    @property
    def line(self) -> bytes:
        """Return the line as it was archived.

        Raises:
            ValueError: It has a newline, or no text.
        """
        text = self.raw.encode() if self.raw is not None else base64.b64decode(self.raw_base64 or "", validate=True)
        if not text or b"\n" in text:
            raise ValueError("a line must have text and no newline")
        return text


class End(Struct, frozen=True, tag_field="type", tag="end"):
    """The last record."""

    lines: int


class _Kind(Struct, frozen=True):
    type: str


Record = Header | TranscriptRecord | StretchRecord | LineRecord | End
_KINDS = {"header": Header, "transcript": TranscriptRecord, "stretch": StretchRecord, "line": LineRecord, "end": End}


def is_export(path: Path) -> bool:
    """Return whether a file begins as an export of crystal does; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.readline(1 << 16), type=Header).format == FORMAT
    except (OSError, msgspec.DecodeError):
        return False


def read_export(path: Path) -> Iterator[tuple[Record, int]]:
    """Yield each record that an import needs, with its length in bytes.

    Raises:
        UsageError: The file is no export, or of a newer version.
        DamagedError: A record is malformed, or the end is missing.
        UnavailableError: The file cannot be read.
    """
    with system_errors(path), path.open("rb") as file:
        if not is_export(path):
            raise UsageError(f"{path} is no export of crystal", hint="make one: crystal export --as jsonl")
        lines, is_whole = 0, False
        for number, text in enumerate(file, 1):
            record = _parse(text, f"{path}, line {number}")
            if isinstance(record, Header) and record.version > VERSION:
                raise UsageError(f"{path} has version {record.version}, known is {VERSION}", hint="update crystal")
            lines += isinstance(record, LineRecord)
            is_whole = isinstance(record, End) and record.lines == lines
            if record is not None:
                yield record, len(text)
    if not is_whole:
        raise DamagedError(
            f"{path} is cut off or changed", hint="export again; the complete stretches in it are imported"
        )


def _parse(text: bytes, place: str) -> Record | None:
    try:
        kind = _KINDS.get(msgspec.json.decode(text, type=_Kind).type)
        record: Record | None = None if kind is None else msgspec.json.decode(text, type=kind)
        if isinstance(record, LineRecord):
            _ = record.line
    except (msgspec.DecodeError, ValueError, binascii.Error, RecursionError) as error:
        raise DamagedError(f"{place}: {error}", hint="export again; what came before it is imported") from error
    return record
