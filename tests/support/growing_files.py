"""The samples of an agent as they grow: each file in any state that its program left it in while it wrote.

A file of lines grows by bytes, a document by messages, a database by statements.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import apsw
from hypothesis import strategies as st

from crystal.config.harnesses import HARNESSES
from crystal.transcript.line import parse_line
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import columns_of, unpacked
from tests.support import agent_samples as samples

_NOT_OF_A_COMPACTION = {"messages": "WHERE metadata_json IS NULL OR metadata_json NOT LIKE '%isible\": false%'"}
"""Goose hides what it compacted and repeats the last prompt: without the hidden rows the copy would be a prompt."""

Cuts = dict[int, int]
"""How far some of the files, by their numbers, have grown at one moment."""
ALL = 10
Loss = tuple[int, int]
"""How many tenths of a file its program deletes, and a number that tells which."""


@dataclass(frozen=True)
class GrowingFile:
    """One file of a sample, and where it lies in a home.

    ``order`` is 0 for what stands beside conversations, 1 for conversations, 2 for copies of them. ``is_rewritten``
    tells lines that their program may delete anywhere.
    """

    sample: Path
    name: str
    order: int = 1
    is_rewritten: bool = False

    @cached_property
    def _data(self) -> bytes:
        return self.sample.read_bytes()

    @cached_property
    def _pieces(self) -> list[bytes]:
        return self._data.split(b";\n")

    @property
    def _is_database(self) -> bool:
        return self.sample.suffix == samples.DATABASE_SUFFIX

    @property
    def _is_document(self) -> bool:
        return self.sample.suffix == ".json"

    @cached_property
    def length(self) -> int:
        """Return how far it grows; it is not there at 0."""
        if self._is_database:
            return len(self._pieces)
        return len(_longest_list(json.loads(self._data))) + 1 if self._is_document else len(self._data)

    def write(self, home: Path, cut: int) -> None:
        """Write it as it was when it had grown that far."""
        if cut:
            samples.write_sample(home / self.name, self._at(cut), is_sql=self._is_database)

    def lose(self, home: Path, loss: Loss) -> None:
        """Let its program delete some of it: rows of messages, messages or lines anywhere; the end of a file of lines.

        A session's own row goes with the file alone, after all that it has.
        """
        path, (share, seed) = home / self.name, loss
        drawn = random.Random(seed)
        if share == ALL:
            path.unlink()
        elif self._is_database:
            _delete_messages(path, lambda: drawn.random() * ALL >= share)
        elif self._is_document:
            document = json.loads(self._data)
            messages = _longest_list(document)
            messages[:] = [one for one in messages if drawn.random() * ALL >= share]
            path.write_bytes(_as_bytes(document))
        elif self.is_rewritten:
            lines = self._data.splitlines(keepends=True)
            path.write_bytes(b"".join(line for line in lines if drawn.random() * ALL >= share))
        else:
            path.write_bytes(self._data[: len(self._data) * (ALL - share) // ALL])

    def _at(self, cut: int) -> bytes:
        if cut == self.length:
            return self._data
        if self._is_database:
            return b";\n".join(self._pieces[:cut]) + b";\n"
        if not self._is_document:
            return self._data[:cut]
        document = json.loads(self._data)
        del _longest_list(document)[cut - 1 :]
        return _as_bytes(document)


def growing_files(harness: str) -> list[GrowingFile]:
    """Return the files of a harness's samples."""
    places = HARNESSES[harness].places

    def growing(path: Path, name: str) -> GrowingFile:
        owners = [place for place in places if place.owns(Path(name))]
        order = 0 if not owners else 2 if any(place.are_copies for place in owners) else 1
        is_rewritten = path.suffix == ".jsonl" and any(place.form == "document" for place in owners)
        return GrowingFile(path, name, order, is_rewritten)

    return [growing(path, name) for path, name in samples.sample_files(harness)]


@st.composite
def lives(draw: st.DrawFn, files: list[GrowingFile]) -> list[Cuts]:
    """Return moments in the life of some files, at each of which some have grown; at the last, all are whole.

    What stands beside conversations is there first: it names whose subagent one is. Copies grow when the others are
    whole: crystal takes a conversation from them only if no other file has it.
    """
    life: list[Cuts] = []
    for order in range(3):
        numbers = [number for number, file in enumerate(files) if file.order == order]
        moments = st.lists(st.sets(st.sampled_from(numbers), min_size=1, max_size=6), max_size=4)
        for moment in draw(moments) if numbers and order else ():
            cuts = {number: draw(st.integers(0, files[number].length)) for number in sorted(moment)}
            life.append(cuts)
        life.append({number: files[number].length for number in numbers})
    return life


def losses(files: list[GrowingFile]) -> st.SearchStrategy[list[dict[int, Loss]]]:
    """Return moments at each of which some files of conversations have lost something since the moment before."""
    numbers = [number for number, file in enumerate(files) if file.order]
    loss = st.tuples(st.integers(1, ALL), st.integers(0, 1 << 16))
    return st.lists(st.dictionaries(st.sampled_from(numbers), loss, min_size=1, max_size=6), min_size=1, max_size=3)


def live(files: list[GrowingFile], home: Path, life: list[Cuts]) -> Iterator[None]:
    """Let files grow in a home, moment by moment."""
    reached = dict.fromkeys(range(len(files)), 0)
    for cuts in life:
        for number, cut in cuts.items():
            if cut > reached[number]:
                files[number].write(home, cut)
                reached[number] = cut
        yield


def _delete_messages(path: Path, is_kept: Callable[[], bool]) -> None:
    """Delete rows of messages, and messages in the JSON of other rows."""
    database = apsw.Connection(str(path))
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite%'"
    for table in (str(name) for (name,) in database.execute(tables).fetchall()):
        with contextlib.suppress(apsw.SQLError):  # a table without row ids
            if "message" in table or "part" in table:
                rows = database.execute(f'SELECT rowid FROM "{table}" {_NOT_OF_A_COMPACTION.get(table, "")}').fetchall()
                database.executemany(f'DELETE FROM "{table}" WHERE rowid = ?', [row for row in rows if not is_kept()])
            else:
                _delete_in_values(database, table, is_kept)
    database.execute("VACUUM")
    database.close()


def _delete_in_values(database: apsw.Connection, table: str, is_kept: Callable[[], bool]) -> None:
    """Delete messages in JSON, but in no old thread of Zed: a result stands behind its call there, and nothing deletes."""
    names = columns_of(Snapshot(Path(), b"", database.execute, {}), table)
    for number, *row in database.execute(f'SELECT rowid, {", ".join(names)} FROM "{table}"').fetchall():
        for name, value in zip(names, row, strict=True):
            whole = parse_line(unpacked(value if isinstance(value, bytes) else str(value).encode()))
            messages = _longest_list(whole)
            if len(messages) > 1 and not any("tool_results" in one for one in messages):
                messages[:] = [one for one in messages if is_kept()] or messages[-1:]
                written = (_as_bytes(whole) if isinstance(value, bytes) else json.dumps(whole), number)
                database.execute(f'UPDATE "{table}" SET {name} = ? WHERE rowid = ?', written)


def _as_bytes(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _longest_list(document: Any) -> list[Any]:
    """Return the list in a document that its program appends to: the longest."""
    if isinstance(document, list):
        return document
    lists = [value for value in document.values() if isinstance(value, list)] if isinstance(document, dict) else []
    return max(lists, key=len, default=[])
