"""Define the content of the mirror: the kinds of rows, and the content of one object.

Home's store fills an object, a device's mirror applies it; ``crystal.sync.mirror`` converts it to and from bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class RowKind:
    """A kind of rows in the mirror.

    Attributes:
        table: Their table; ``t`` in SQL.
        columns: The columns that are sent; the first is NULL in no row.
        size: SQL for the approximate bytes of a row.
        key: SQL for the key of a row in ``mirror_rows``.
        of_key: SQL condition for the row of a note ``r``, where ``key = r.key`` would use no index.
        has_words: If such a row is deleted, objects with it are made again without it.
        first: SQL condition for the rows that are published when publishing begins; None if another kind has them.
    """

    table: str
    columns: tuple[str, ...]
    size: str
    key: str = "t.id"
    of_key: str = ""
    has_words: bool = False
    first: str | None = "TRUE"

    @property
    def condition(self) -> str:
        """Return the SQL condition for the row of a note ``r``."""
        return self.of_key or f"{self.key} = r.key"


_SESSION = (
    "id session_id agent device harness project branch title started_at last_at ended_at last_turn summarized_turn"
    " summary_path summary_mode summary_title logged_turn"
)
_TURN = "id uuid part session offset role tool subagent ts project branch message_id model full_length"
_CHUNK = "id source role session project agent device branch subagent ts memory"
_TEXT = f"{_CHUNK} turn start text"
_MEMORY = "id uid text category key project status source agent device session created_at updated_at"
_OF_COPY_KEY = "t.session = CAST(r.key AS INTEGER) AND t.turn = CAST(substr(r.key, instr(r.key, ':') + 1) AS INTEGER)"

KINDS: dict[str, RowKind] = {
    "project": RowKind("projects", ("id", "cwd", "git_root", "remote", "name"), "octet_length(t.cwd) * 2"),
    "session": RowKind(
        "sessions", tuple(_SESSION.split()), "200 + 2 * coalesce(octet_length(t.title), 0)", has_words=True
    ),
    "memory": RowKind("memories", tuple(_MEMORY.split()), "octet_length(t.text)", has_words=True),
    "learned": RowKind("learned_from", ("id", "memory", "line", "session", "kind", "confidence", "at"), "120"),
    "private": RowKind("private_lines", ("uuid",), "octet_length(t.uuid)", "t.uuid"),
    "turn": RowKind("turns", tuple(_TURN.split()), "140"),
    "text": RowKind("chunks", tuple(_TEXT.split()), "octet_length(t.text)", has_words=True, first="source <> 'file'"),
    "chunk": RowKind("chunks", tuple(_CHUNK.split()), "0", first=None),
    "vector": RowKind("chunks", ("id",), "0", has_words=True, first=None),
    "copy": RowKind("turn_copies", ("session", "turn"), "0", "t.session || ':' || t.turn", _OF_COPY_KEY),
}
"""Row kinds by the kind of the notes in ``mirror_rows``, in the order in which they are published.

``text`` is a chunk with its text and vector, ``chunk`` a changed chunk with the same text and vector, ``vector`` the
later vector of a chunk.
"""


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """The model that made the vectors, under home's number for it."""

    id: int
    provider: str
    model: str
    dimension: int


@dataclass(slots=True)
class ObjectRows:
    """The rows of one object.

    Attributes:
        first: The oldest position that it covers.
        marks: 8 bytes for each position, in order.
        rows: By kind of ``KINDS``, each row in the order of its columns. A row of ``vector`` has the chunk's id and the
            stored vector in hexadecimal; None if the provider of ``space`` refuses the text.
        gone: Keys of deleted rows, by kind.
        space: The model of the vectors.
    """

    first: int
    marks: bytes
    rows: dict[str, list[Row]] = field(default_factory=dict)
    gone: dict[str, list[Any]] = field(default_factory=dict)
    space: VectorSpace | None = None

    @property
    def last(self) -> int:
        """Return the newest position that it covers."""
        return self.first + len(self.marks) // 8 - 1
