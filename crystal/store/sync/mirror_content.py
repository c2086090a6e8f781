"""Content of one object of the mirror: rows by table, deleted keys, texts, documents and vectors.

Home's store fills it, a device's mirror applies it; the relay package encodes it as bytes and decodes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Sequence[Any]

_SESSION = (
    "id session_id agent device project branch title started_at last_at ended_at last_turn summarized_turn"
    " summary_path summary_mode summary_title logged_turn"
)
_TURN = "id uuid part session offset role tool parent_uuid subagent ts project branch message_id model full_length"
_CHUNK = "id turn start source role session project agent device branch subagent ts memory"
_MEMORY = "id uid text category key project status source agent device session created_at updated_at"

COLUMNS: dict[str, tuple[str, ...]] = {
    "projects": ("id", "cwd", "git_root", "remote", "name"),
    "sessions": tuple(_SESSION.split()),
    "turns": tuple(_TURN.split()),
    "chunks": tuple(_CHUNK.split()),
    "chunk_origins": tuple(_CHUNK.replace("turn start ", "").split()),
    "memories": tuple(_MEMORY.split()),
    "turn_copies": ("session", "turn"),
    "private_lines": ("uuid",),
}
"""The columns that are sent. A chunk's text is sent beside its row; ``chunk_origins`` change a row without its text."""

KINDS = {
    "project": "projects",
    "session": "sessions",
    "memory": "memories",
    "private": "private_lines",
    "turn": "turns",
    "text": "chunks",
    "chunk": "chunk_origins",
    "copy": "turn_copies",
    "document": "documents",
}
"""Which table a note of ``mirror_rows`` is about, in the order in which notes are published."""


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """The model that made the vectors, under home's number for it."""

    id: int
    provider: str
    model: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Document:
    """A file of home's agents: a session summary or a daily log. ``path`` is below the agent's folder."""

    agent: str
    path: str
    content: bytes


@dataclass(slots=True)
class Content:
    """The rows of one object.

    Attributes:
        first: The oldest position that it covers.
        marks: 8 bytes for each position, in order.
        rows: By table of ``COLUMNS``, each row in the order of its columns.
        texts: Of ``rows["chunks"]``, in their order.
        gone: Keys of rows that were deleted, by kind of ``KINDS``.
        documents: Files of home's agents.
        space: The model of the vectors.
        vectors: Chunk id and vector, little-endian float32.
        refused: Chunks whose text the provider of ``space`` refuses.
    """

    first: int
    marks: bytes
    rows: dict[str, list[Row]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    gone: dict[str, list[Any]] = field(default_factory=dict)
    documents: list[Document] = field(default_factory=list)
    space: VectorSpace | None = None
    vectors: list[tuple[int, bytes]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        """Return the newest position that it covers."""
        return self.first + len(self.marks) // 8 - 1
