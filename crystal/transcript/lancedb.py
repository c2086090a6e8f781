"""The reader of memory-crystal's LanceDB tables, copied into a database of the form of ``context_embeddings``.

They have every chunk, also those of files and of memories, which memory-crystal's database has, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.transcript.context_embeddings import ContextEmbeddingsReader
from crystal.transcript.memory_crystal import NOT_TAKEN
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.stores import StoreRow

_NOT_TAKEN = NOT_TAKEN | {"manual": "the text of a memory: crystal migrate memory-crystal has it"}


class LanceDBReader(ContextEmbeddingsReader):
    """See ``StoreReader``."""

    def rows(self, source: Snapshot) -> Iterator[StoreRow]:
        """Yield the chunks."""
        kinds = dict(source.rows("SELECT id, source_type FROM conversation_chunks"))
        for row in super().rows(source):
            yield row._replace(left_out=row.left_out or _NOT_TAKEN.get(kinds[row.key], ""))


READER = LanceDBReader()
