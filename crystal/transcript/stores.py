"""Interface of readers of other programs' stores: each row becomes a record, or is left out for a named reason.

Such a store holds what was said, in pieces; what was noted about it; and what was to be remembered. The first two
become turns. Notes about a session are kept as if a subagent of it had written them: they are forgotten with it.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crystal.model.named_tuple import NamedTuple
from crystal.transcript.line import Fields, dicts_of, digest, format_line, milliseconds, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader
from crystal.transcript.parts import Part
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import columns_of

PAGE = 500
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
ROLES = {"user": "user", "human": "user", "assistant": "assistant"}
"""Any other role becomes a summary: neither the user nor the agent said it."""
NO_TEXT, NO_ID = "without text", "without an id"


class StoreRow(NamedTuple):
    """A row of a store.

    Attributes:
        table: Its table.
        key: Its ``id`` in the table.
        record: The id of its record.
        session: The session that it belongs to.
        about: The program that wrote it, where it is a note about the session.
        stamp: A value that differs when the row does.
        left_out: Why it does not become a record, or empty.
    """

    table: str
    key: Any
    record: str = ""
    session: str = ""
    about: str | None = None
    stamp: object = None
    left_out: str = ""


class StoredMemory(NamedTuple):
    """A memory in another program's store; ``left_out`` says why it does not become a memory."""

    key: str
    text: str
    category: str = "fact"
    project: str | None = None
    at: int | None = None
    left_out: str = ""


class StoredVector(NamedTuple):
    """The vector of a row's text, little-endian float32."""

    record: str
    text: str
    data: bytes


class StoreReader(SnapshotReader):
    """Reads the store of another memory program."""

    silent_kinds = ("*",)

    models: Mapping[int, tuple[str, str]] = {}
    """The embedding model, as (provider, model), by the dimension of its vectors."""

    @abstractmethod
    def rows(self, source: Snapshot) -> Iterable[StoreRow]:
        """Return every row except memories, in the order in which they were said."""

    @abstractmethod
    def record(self, row: StoreRow, fields: Fields) -> Record:
        """Return the record of a row; ``fields`` are its columns."""

    def memories(self, source: Snapshot) -> Iterable[StoredMemory]:  # noqa: ARG002 - the interface's
        """Return the rows that are memories."""
        return ()

    def vectors(self, source: Snapshot) -> Iterator[StoredVector]:  # noqa: ARG002 - the interface's
        """Yield the vectors of the rows' texts."""
        yield from ()

    def listed(self, source: Snapshot) -> Iterator[StoreRow]:
        """Yield the rows of ``rows``; one whose key is no id gets ``left_out``."""
        for row in self.rows(source):
            has_id = isinstance(row.key, str | int)
            yield row if has_id else row._replace(left_out=row.left_out or NO_ID)

    def conversations(self, source: Snapshot) -> Iterator[SessionStamp]:
        """Yield the sessions with rows that become records."""
        for (session, about), rows in self.grouped(source).items():
            yield SessionStamp(session, digest(repr([(row.record, row.stamp) for row in rows])), about)

    def grouped(self, source: Snapshot) -> dict[tuple[str, str | None], list[StoreRow]]:
        """Return the rows that become records, by (session, about)."""
        if "rows" not in source.found:
            found: dict[tuple[str, str | None], list[StoreRow]] = {}
            for row in self.listed(source):
                if not row.left_out:
                    found.setdefault((row.session, row.about), []).append(row)
            source.found["rows"] = found
        return source.found["rows"]  # type: ignore[no-any-return]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the records of a session."""
        rows = self.grouped(source).get((conversation.session, conversation.subagent), [])
        for at in range(0, len(rows), PAGE):
            some = rows[at : at + PAGE]
            fields = self._fields(source, some)
            yield from (self.record(row, fields[row[:2]]) for row in some if row[:2] in fields)

    def _fields(self, source: Snapshot, rows: list[StoreRow]) -> dict[tuple[str, Any], Fields]:
        found = {}
        for table in dict.fromkeys(row.table for row in rows):
            names = columns_of(source, table)
            listed = ", ".join(f'"{name}"' for name in names)
            sql = f'SELECT {listed} FROM "{table}" WHERE id IN (SELECT value FROM json_each(?))'
            for values in source.rows(sql, (json.dumps([row.key for row in rows if row.table == table]),)):
                fields = dict(zip(names, values, strict=True))
                found[table, fields["id"]] = fields
        return found

    def time_of(self, fields: Fields, context: Context) -> int | None:  # noqa: ARG002 - the interface's
        """Return when a row was written."""
        return milliseconds(fields.get("at"))

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a record."""
        for one in dicts_of(fields.get("said")):
            yield Part(one.get("role", "summary"), word(one.get("text")) or "", word(one.get("tool")))


def record_of(
    row: StoreRow, at: int | None, said: Iterable[Part], rest: Fields, context: Context | None = None
) -> Record:
    """Return the record of a row: its parts, its time in ms, and its other columns that are texts or numbers."""
    parts = [{name: value for name, value in part._asdict().items() if value is not None} for part in said]
    kept = {name: value for name, value in rest.items() if isinstance(value, str | int | float)}
    line = {"type": row.table, **({} if at is None else {"at": at}), "said": parts, "row": kept}
    return Record(row.record, format_line(line), context or Context())


def session_name(value: object) -> str:
    """Return the id of a session: unchanged if it is a plain name, else a plain name that is unique by a hash."""
    text = str(value or "unknown")
    if _PLAIN.fullmatch(text):
        return text
    return f"{_ODD.sub('-', text)[:60]}-{digest(text)[:12]}".lstrip("-.")


def role_of(value: object) -> Any:
    """Return the role of a part by the row's role; ``summary`` if it is unknown."""
    return ROLES.get(str(value).lower(), "summary")
