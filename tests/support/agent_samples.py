"""Samples of every agent's conversations, as they lie in a home: ``tests/data/agents/<harness>/``.

``home/`` has the files; a database stands there as the SQL that makes it, ``<name>.sql``. ``turns.json`` and
``sessions.json`` say what they give; ``python -m tests.support.agent_samples HARNESS`` writes both anew, to be read.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import apsw

from crystal.api import Crystal
from crystal.config.harnesses import HARNESSES, places_of_all
from crystal.transcript.line_context import complete
from crystal.transcript.messages import SnapshotReader
from crystal.transcript.reader import reader_of
from crystal.transcript.snapshot import Snapshot, SourceError
from tests.support.command import crystal

AGENTS = Path(__file__).parents[1] / "data" / "agents"
SHOWN_LENGTH = 200
ONE_OF_EACH = ("pi", "cline", "goose")
"""A harness with lines, one with documents, one with a database: what costs seconds runs fast for these alone."""
DATABASE_SUFFIX = ".sql"

Fact = dict[str, Any]


def sampled() -> list[str]:
    """Return the harnesses with samples."""
    return sorted(folder.name for folder in AGENTS.iterdir() if folder.is_dir())


@functools.cache
def sample_files(harness: str) -> tuple[tuple[Path, str], ...]:
    """Return (file, its path in the home) of a harness."""
    home = AGENTS / harness / "home"
    found = sorted(path for path in home.rglob("*") if path.is_file())
    return tuple((path, str(path.relative_to(home)).removesuffix(DATABASE_SUFFIX)) for path in found)


def write_sample(target: Path, data: bytes, *, is_sql: bool) -> None:
    """Write a file of a sample as its program would."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not is_sql:
        target.write_bytes(data)
        return
    target.unlink(missing_ok=True)
    database = apsw.Connection(str(target))
    database.execute(data.decode("utf-8"))
    database.close()


def lay_out(harness: str, home: Path) -> None:
    """Put all samples of a harness into a home."""
    for path, name in sample_files(harness):
        write_sample(home / name, path.read_bytes(), is_sql=path.suffix == DATABASE_SUFFIX)


def import_command(harness: str, home: Path) -> tuple[str, ...]:
    """Return the command that imports a harness's conversations."""
    return ("import", str(home)) if HARNESSES[harness].is_export else ("backfill",)


def captured() -> tuple[list[Fact], list[Fact]]:
    """Return the sessions in crystal's store, and their turns, in a form that stands in the samples' folders."""
    sessions: list[Fact] = []
    turns: list[Fact] = []
    with Crystal.reader() as memory:
        for found in sorted(memory.sessions(limit=1000), key=lambda one: one.id):
            shown = memory.show(found.id)
            sessions.append(_session_fact(found, shown.turns))
            turns += [_turn_fact(found.id, turn) for turn in shown.turns]
    return sessions, turns


def expected(harness: str) -> tuple[list[Fact], list[Fact]]:
    """Return what the samples of a harness give."""
    folder = AGENTS / harness
    sessions, turns = ((folder / name).read_text("utf-8") for name in ("sessions.json", "turns.json"))
    return json.loads(sessions), json.loads(turns)


@functools.cache
def stored_lines(harness: str) -> tuple[bytes, ...]:
    """Return the lines of a harness's samples as capture stores them: those of the files, or the records in them."""
    reader = reader_of(harness)
    found: list[bytes] = []
    for path, name in sample_files(harness):
        if not _is_conversation(harness, name):
            continue
        if isinstance(reader, SnapshotReader):
            found += _records(harness, reader, path, name)
        else:
            found += path.read_bytes().split(b"\n")
    return tuple(found)


def database_of(path: Path) -> apsw.Connection:
    """Return the database that a file of SQL makes, in memory."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", _content_of(path))
    return connection


@functools.cache
def _content_of(path: Path) -> bytes:
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        connection.execute(path.read_text("utf-8")).fetchall()
        return connection.serialize("main")


def snapshot_of(database: apsw.Connection, name: str) -> Snapshot:
    """Return a database as its reader sees it."""

    def rows(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield from database.execute(sql, values)  # type: ignore[arg-type]

    return Snapshot(PurePath(name), b"", rows, {})


def no_such_table(sql: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Answer a query as a file does that is no database."""
    raise SourceError(f"no such table: {sql} {values}")
    yield ()


def _is_conversation(harness: str, name: str) -> bool:
    return any(place.owns(PurePath(name)) for owner, _, place in places_of_all() if owner == harness)


def _records(harness: str, reader: SnapshotReader, path: Path, name: str) -> Iterator[bytes]:
    data, rows = path.read_bytes(), no_such_table
    if path.suffix == DATABASE_SUFFIX:
        database = database_of(path)
        data, rows = b"", lambda sql, values=(): iter(database.execute(sql, values).fetchall())
    source = Snapshot(PurePath("/home/me", name), data, rows, {})
    for conversation in reader.conversations(source):
        for record in reader.records(source, conversation):
            yield complete(record.line, record.context._replace(id=f"{harness}:{record.id}"))


def _session_fact(found: Any, turns: Any) -> Fact:
    models = sorted({turn.model for turn in turns if turn.model})
    return {
        "session": found.id,
        "title": found.title,
        "cwd": found.cwd and found.cwd.replace(os.environ["HOME"], "~"),
        "branch": found.branch,
        "models": models,
        "turns": len(turns),
        "without a time": sum(turn.timestamp is None for turn in turns),
    }


def _turn_fact(session: str, turn: Any) -> Fact:
    return {
        "session": session,
        "subagent": turn.subagent,
        "role": turn.role,
        "tool": turn.tool,
        "text": turn.text[:SHOWN_LENGTH],
    }


def _write(harness: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        lay_out(harness, Path(home))
        for words in (("init", "--yes", "--no-import"), import_command(harness, Path(home))):
            done = crystal(*words)
            assert done.code == 0, done.err
        for name, facts in zip(("sessions", "turns"), captured(), strict=True):
            lines = ",\n".join(json.dumps(fact, ensure_ascii=False) for fact in facts)
            (AGENTS / harness / f"{name}.json").write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    for word in sys.argv[1:]:
        _write(word)
