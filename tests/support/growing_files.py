"""The samples of an agent as they grow: each file in any state that its program left it in while it wrote.

A file of lines grows by bytes, a document by messages, a database by statements.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import apsw
from hypothesis import strategies as st

from crystal.config.harnesses import HARNESSES
from tests.support import agent_samples as samples

Cuts = dict[int, int]
"""How far some of the files, by their numbers, have grown at one moment."""


@dataclass(frozen=True)
class GrowingFile:
    """One file of a sample, and where it lies in a home.

    ``order`` is 0 for what stands beside conversations, 1 for conversations, 2 for copies of them.
    """

    sample: Path
    name: str
    order: int = 1

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

    def lose(self, home: Path, cut: int) -> None:
        """Let its program delete some of it: what was said last, or the file at 0.

        Programs take back the newest messages; a session's own row goes with the file alone, after all that it has.
        """
        path = home / self.name
        if not cut or not self._is_database:
            path.unlink(missing_ok=True)
            self.write(home, cut)
            return
        database = apsw.Connection(str(path))
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite%'"
        for (table,) in database.execute(tables).fetchall():
            if "message" not in table and "part" not in table:
                continue
            with contextlib.suppress(apsw.SQLError):  # a table without row ids
                newest = f'SELECT max(rowid) * {cut % 3 + 1} / 4 FROM "{table}"'
                database.execute(f'DELETE FROM "{table}" WHERE rowid > ({newest})')
        database.execute("VACUUM")
        database.close()

    def _at(self, cut: int) -> bytes:
        if cut == self.length:
            return self._data
        if self._is_database:
            return b";\n".join(self._pieces[:cut]) + b";\n"
        if not self._is_document:
            return self._data[:cut]
        document = json.loads(self._data)
        del _longest_list(document)[cut - 1 :]
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def growing_files(harness: str) -> list[GrowingFile]:
    """Return the files of a harness's samples."""
    places = HARNESSES[harness].places

    def order(name: str) -> int:
        owners = [place for place in places if place.owns(Path(name))]
        return 0 if not owners else 2 if any(place.are_copies for place in owners) else 1

    return [GrowingFile(path, name, order(name)) for path, name in samples.sample_files(harness)]


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


def losses(files: list[GrowingFile]) -> st.SearchStrategy[list[Cuts]]:
    """Return moments at each of which some files of conversations have lost something since the moment before."""
    numbers = [number for number, file in enumerate(files) if file.order]
    cuts = {number: st.integers(0, files[number].length - 1) for number in numbers}
    one = st.sets(st.sampled_from(numbers), min_size=1, max_size=6).flatmap(
        lambda chosen: st.fixed_dictionaries({number: cuts[number] for number in sorted(chosen)})
    )
    return st.lists(one, min_size=1, max_size=3)


def live(files: list[GrowingFile], home: Path, life: list[Cuts]) -> Iterator[None]:
    """Let files grow in a home, moment by moment."""
    reached = dict.fromkeys(range(len(files)), 0)
    for cuts in life:
        for number, cut in cuts.items():
            if cut > reached[number]:
                files[number].write(home, cut)
                reached[number] = cut
        yield


def _longest_list(document: Any) -> list[Any]:
    """Return the list in a document that its program appends to: the longest."""
    if isinstance(document, list):
        return document
    lists = [value for value in document.values() if isinstance(value, list)] if isinstance(document, dict) else []
    return max(lists, key=len, default=[])
