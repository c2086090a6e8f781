"""The reader of OpenClaw's ``context-embeddings.sqlite``: pieces of messages, each with its vector.

memory-crystal took its rows over, so a text has the same id in both.

Source: the statements of memory-crystal that read it; no real database was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.transcript.line import Fields, clean_text, digest, word
from crystal.transcript.memory_crystal import IDS, MODELS, record_id, session_of
from crystal.transcript.messages import Record
from crystal.transcript.parts import Part
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.stores import NO_TEXT, PAGE, StoredVector, StoreReader, StoreRow, record_of, role_of
from crystal.transcript.tables import columns_of, moment_of

_PIECES = "SELECT id, chunk_text, session_key, timestamp FROM conversation_chunks ORDER BY timestamp, id"
_VECTORS = (
    "SELECT rowid, chunk_text, timestamp, embedding FROM conversation_chunks WHERE rowid > ? ORDER BY rowid LIMIT ?"
)


class ContextEmbeddingsReader(StoreReader):
    """See ``StoreReader``."""

    ids_of = IDS
    models = MODELS

    def rows(self, source: Snapshot) -> Iterator[StoreRow]:
        """Yield the pieces."""
        if "chunk_text" not in columns_of(source, "conversation_chunks"):
            raise SourceError(f"{source.path} has no conversation_chunks", hint="name another with --from")
        for key, text, session, at in source.rows(_PIECES):
            left_out = "" if word(text) else NO_TEXT
            record = _record(text, at)
            yield StoreRow("conversation_chunks", key, record, session_of(session), None, record, left_out)

    def record(self, row: StoreRow, fields: Fields) -> Record:
        """Return the record of a piece."""
        said = [Part(role_of(fields.pop("role", None)), word(fields.pop("chunk_text", None)) or "")]
        return record_of(row, moment_of(fields.pop("timestamp", None)), said, fields)

    def vectors(self, source: Snapshot) -> Iterator[StoredVector]:
        """Yield the vector of each piece."""
        last = -(1 << 63)
        while some := list(source.rows(_VECTORS, (last, PAGE))):
            last = some[-1][0]
            for _, text, at, data in some:
                if isinstance(data, bytes) and word(text):
                    yield StoredVector(_record(text, at), text, data)


def _record(text: object, at: object) -> str:
    return record_id(digest(clean_text(str(text))), moment_of(at))


READER = ContextEmbeddingsReader()
