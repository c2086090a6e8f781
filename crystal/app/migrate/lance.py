"""Copy memory-crystal's LanceDB tables into a database, in which they are read like OpenClaw's context-embeddings.

LanceDB is a package of its own (the extra ``lancedb``): 250 MB with what it needs, for one import.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crystal.app.context import Machine
from crystal.config.packages import install_command
from crystal.config.working_folder import working_folder
from crystal.errors import NotConfiguredError, UnavailableError
from crystal.store.copied_chunks import CopiedChunk, write_chunks
from crystal.transcript.tables import moment_of

TABLE = "chunks"
UNPACK_FOLDER = "imports"


@contextlib.contextmanager
def copied_tables(machine: Machine, path: Path) -> Iterator[Path]:
    """Yield a database with the rows of a table ``chunks.lance``, until the end of the block.

    Raises:
        NotConfiguredError: The package is not installed.
        UnavailableError: LanceDB cannot read it.
    """
    try:
        lancedb = importlib.import_module("lancedb")
    except ImportError as error:
        hint = install_command("lancedb")
        raise NotConfiguredError("reading LanceDB tables needs the package lancedb", hint=hint) from error
    with working_folder(machine.places.data_dir / UNPACK_FOLDER) as folder:
        copy = folder / "chunks.db"
        try:
            table = lancedb.connect(str(path.parent)).open_table(TABLE)
            write_chunks(copy, _chunks(table))
        except (RuntimeError, ValueError, OSError) as error:  # what LanceDB raises
            raise UnavailableError(f"{path}: {error}", hint="end memory-crystal, then try again") from error
        yield copy


def _chunks(table: Any) -> Iterator[CopiedChunk]:
    number = 0
    for batch in table.search().limit(table.count_rows()).to_batches():
        for row in batch.to_pylist():
            number += 1
            yield CopiedChunk(
                number,
                row.get("agent_id"),
                row.get("source_id"),
                row.get("text"),
                row.get("role"),
                moment_of(row.get("created_at")),
                row.get("source_type"),
                tuple(row.get("vector") or ()),
            )
