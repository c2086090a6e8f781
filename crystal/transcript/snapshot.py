"""Snapshots: the content of a file that is rewritten, or of a database, at one moment, as a reader gets it.

It says what of it is broken, damaged or not yet whole, so that this is kept and named.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import PurePath
from typing import Any

from crystal.errors import CrystalError
from crystal.transcript.damaged import MessageList, last_record_at, parse_damaged
from crystal.transcript.line import Fields, digest, format_line, parse_line


class SourceError(CrystalError):
    """A file does not have the form that its reader knows. The file stays as it is, and is tried again."""


class PartMissingError(SourceError):
    """A table or a column that its reader knows is not in a database. Every record that is there was read."""


class Snapshot:
    """A file that is rewritten, or a database, as it was at one moment.

    Attributes:
        path: Its path.
        data: Its content without a byte order mark; empty for a database.
        rows: Runs a query on the database, with its values, and gives the rows; raises ``SourceError``.
        sides: The side files that exist.
        missing: Tables and columns that its reader knows and did not find, although it reads the rest.
        sessions: The sessions that were read from this file before, each with its subagent, or an empty text.
        known: Gives the ids of a session's records that were captured before.
        broken: Records of the conversation being read that are no JSON. They are kept as they are, and counted.
        damaged: What cannot be read, although the rest is.
        rest: The end of the file, if it is not whole. It is kept like a broken record once the file is at rest.
        is_at_rest: Whether its program seems to write no more of it.
        modified: When it was last written, ms, if that is known.
    """

    def __init__(
        self,
        path: PurePath,
        data: bytes,
        rows: Callable[..., Iterator[tuple[Any, ...]]],
        sides: Mapping[PurePath, bytes],
    ) -> None:
        self.path, self.data, self.rows, self.sides = path, data.removeprefix(codecs.BOM_UTF8), rows, sides
        self.missing: list[str] = []
        self.sessions: Collection[tuple[str, str]] = ()
        self.known: Callable[[str], Collection[str]] = lambda _: ()
        self.broken: list[bytes] = []
        self.damaged: list[SourceError] = []
        self.rest, self.is_at_rest = b"", True
        self.modified: int | None = None
        self.found: dict[str, Any] = {}  # for its reader, which is asked several times

    def other_form(self, missing: str) -> SourceError:
        """Return the error for a database or a document in which its reader does not find what it reads."""
        if self.path.suffix == ".json" and self.parsed is None:
            return SourceError(f"{self.path} is not complete JSON", hint="crystal tries again by itself")
        return SourceError(f"{self.path} has no {missing}, which crystal reads", hint="update crystal")

    @cached_property
    def parsed(self) -> object:
        """Return what its JSON is, None if it is none. Parsed once."""
        return (parse_line(b'{"it":' + self.data + b"}") or {}).get("it")

    def document(self, listed: MessageList | None = None) -> object:
        """Return what its JSON is; if it is damaged, with the messages that are whole. See ``parse_damaged``."""
        if self.parsed is not None or self.path.suffix != ".json":
            return self.parsed
        if "document" not in self.found:
            self.found["document"], left_out = parse_damaged(self.data, listed)
            self.rest = b"\n".join(self.data[one] for one in left_out)
            if self.found["document"] is not None:
                told = self.other_form("messages")
                places = " and ".join(f"{one.start:,} to {one.stop:,}" for one in left_out)
                words = f"bytes {places} cannot be read" if places else "its beginning is missing"
                self.damaged.append(SourceError(f"{told.message}: {words}", hint=told.hint))
        return self.found["document"]

    @property
    def is_unfinished(self) -> bool:
        """Return whether its program may be writing the end of it just now."""
        return bool(self.rest) and not self.is_at_rest

    def objects(self) -> list[Fields]:
        """Return the objects in a file of JSON lines."""
        return [fields for _, fields in self.lines(self.data)]

    def lines(self, data: bytes) -> list[tuple[bytes, Fields]]:
        """Return the lines of a file that are JSON objects, with these. The last one may be half written."""
        *lines, last = chain.from_iterable(map(_records_in, data.split(b"\n")))
        end = parse_line(last)
        self.rest = last if end is None and last.strip() else b""
        found = [*((line, self.object_of(line)) for line in lines), (last, end or {})]
        return [(line, fields) for line, fields in found if fields]

    def object_of(self, value: object) -> Fields:
        """Parse a record as a JSON object. Any other record gives an empty one, and is kept as a broken record.

        So do a number and NULL; an empty text is not kept.
        """
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        if not isinstance(raw, bytes):
            raw = format_line(raw)
        if not raw.strip():
            return {}
        fields = parse_line(raw)
        if fields is None:
            self.broken.append(raw)
        return fields or {}

    @cached_property
    def stamp(self) -> str:
        """Return a text that differs when its content or a side file does."""
        return digest(b"".join((self.data, *self.sides.values())))


def _records_in(line: bytes) -> Iterator[bytes]:
    """Yield a line; in two parts where a record follows one that was never finished."""
    if middle := last_record_at(line):
        yield line[:middle]
    yield line[middle:]
