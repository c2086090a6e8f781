"""Import one store of another program: preview the import, run it, and count every row once.

What was said goes the way of every export (archive, ledger, turns); what was to be remembered becomes memories. All of
it can be stopped anywhere and run again: a row is known by its id.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine
from crystal.app.memories import remember
from crystal.app.migrate.found import FoundStore
from crystal.capture.backfill import PastFile, has_transcript, is_all_known, plan_file, repeats_withheld
from crystal.capture.safe_open import ANYWHERE
from crystal.capture.snapshots import Container
from crystal.capture.source import opened_source
from crystal.config.providers import EMBEDDING_PROVIDERS
from crystal.errors import UsageError
from crystal.ingest.said_by_agent import said_by_agent
from crystal.memories.rules import CATEGORIES, cleaned_text
from crystal.model.capture import Origin
from crystal.store import Store
from crystal.store.capture import ledger, snapshots
from crystal.store.capture.turns import chunks_of, stored_uuids
from crystal.store.memories.memories import forgotten_memories, version_of
from crystal.store.notes import ALIAS, read_note
from crystal.store.search import vectors
from crystal.store.texts import text_hash
from crystal.text.chunking import split
from crystal.transcript.line import clean_text
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.stores import NO_TEXT, StoredMemory, StoredVector, StoreRow

NEW, KNOWN = "new", "known"
GONE = "private, or forgotten here"
HAS_TRANSCRIPT = "its transcript is on this disk: crystal backfill imports it"
NOTHING_LEFT = "no text is left of it"
REFUSED = "too long for a memory, or nothing but secrets"
MEMORIES = "memories"
BATCH = 500


@dataclass(slots=True)
class RowCounts:
    """The rows of a store: each is in exactly one of ``new``, ``known`` and ``left_out`` (by the reason)."""

    new: int = 0
    known: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Return the number of all rows."""
        return self.new + self.known + self.left_out.total()


@dataclass(frozen=True, slots=True)
class TakenVectors:
    """The vectors of a store: how many it has, of which model, and how many chunks here have got one of them now."""

    read: int = 0
    model: tuple[str, str] | None = None
    is_chosen: bool = False
    kept: int = 0


@dataclass(frozen=True)
class Migration:
    """A store, read from ``container``, and the memory that takes it over."""

    machine: Machine
    found: FoundStore
    container: Container

    def survey(self) -> dict[Hashable, str]:
        """Return the state of every row: ``new``, ``known``, or why it is left out.

        Raises:
            SourceError, UnavailableError: The store cannot be read, or its owner is writing to it.
        """
        with self._source() as source:
            states: dict[Hashable, str] = dict(self._rows(source))
            gone, given = forgotten_memories(self.machine.store), set()
            for number, one in enumerate(self.found.reader.memories(source)):
                state = self._state_of_memory(one, gone)
                states[MEMORIES, number] = KNOWN if state == NEW and one.key in given else state
                given.add(one.key)
        return states

    def counts(self, before: dict[Hashable, str] | None = None) -> RowCounts:
        """Count the rows in each state; with the states ``before`` an import, those that it added."""
        counts = RowCounts()
        after = self.survey()
        came = {row for row in after if before is not None and before.get(row) == NEW and after[row] == KNOWN}
        without = came - self._with_turns(came)
        repeated = self._said_by_agent(without)
        for row, state in after.items():
            if row in repeated:
                counts.known += 1
            elif row in without:
                counts.left_out[NOTHING_LEFT] += 1
            elif state == NEW or row in came:
                counts.new += 1
            elif state == KNOWN:
                counts.known += 1
            else:
                counts.left_out[state] += 1
        return counts

    def plan(self) -> list[PastFile]:
        """Return the conversations with rows that are new."""
        capture = make_capture(self.machine)._replace(anywhere=True)
        return plan_file(capture, self.container, named=True)

    def take_memories(self) -> None:
        """Remember what is new of the memories."""
        with self._source() as source:
            every = list(self.found.reader.memories(source))
        gone = forgotten_memories(self.machine.store)
        for one in every:
            if self._state_of_memory(one, gone) == NEW:
                self._remember(one)

    def keep_vectors(self) -> TakenVectors:
        """Give the chunks of what came the vectors that their texts had, if they are of the model that is set."""
        with self._source() as source:
            found = self.found.reader.vectors(source)
            first = next(found, None)
            if first is None:
                return TakenVectors()
            model = self.found.reader.models.get(len(first.data) // 4)
            if model is None or model != self._chosen_model():
                return TakenVectors(1 + sum(1 for _ in found), model)
            dimension, store = len(first.data) // 4, self.machine.store
            generation = vectors.ensure_generation(store, *model, dimension, self.machine.now())
            read, kept = 1, self._put_vectors(generation, [first])
            while some := list(islice(found, BATCH)):
                read += len(some)
                kept += self._put_vectors(generation, [one for one in some if len(one.data) == 4 * dimension])
        if not vectors.pending_chunks(store, generation, 1):
            vectors.promote(store, generation)
        return TakenVectors(read, model, is_chosen=True, kept=kept)

    # ------------------------------------------------------------------------------------------------------- rows

    def _source(self) -> AbstractContextManager[Snapshot]:
        return opened_source(self.container.found.path, self.container.root.place.form, ANYWHERE, {})

    def _rows(self, source: Snapshot) -> Iterator[tuple[Hashable, str]]:
        known: dict[tuple[str, str | None], tuple[dict[str, str], str]] = {}
        given = set()
        for row in self.found.reader.listed(source):
            place = (row.session, row.about)
            if place not in known:
                known[place] = self._seen(*place)
            state = row.left_out or _state(row, *known[place])
            if state == NEW and (place, row.record) in given:
                state = KNOWN  # the same once more
            given.add((place, row.record))
            yield (row.table, row.key, self._uuid(row), row.session), state

    def _seen(self, session: str, about: str | None) -> tuple[dict[str, str], str]:
        """Return the states of a session's records, and the state of a record that was not seen before."""
        config, store = self.machine.config, self.machine.store
        origin = Origin(config.agent_id, config.device, session, about, self.found.name)
        key = f"{self.found.name}/{session}" + (f"/{about}" if about else "")
        state = ledger.state_of(store, config.device, key)
        seen = {} if state is None else snapshots.seen_records(store, state.id)
        return {name: one.state for name, one in seen.items()}, _unseen(store, origin)

    def _uuid(self, one: StoreRow | StoredVector) -> str:
        return f"{self.found.reader.ids_of or self.found.name}:{one.record}"

    def _with_turns(self, rows: set[Hashable]) -> set[Hashable]:
        """Return the rows, memories among them, of which something is in the memory: all on a device without one."""
        if self.machine.config.role == "device" and not self.machine.config.relay_local_memory:
            return rows
        uuids = {row[2] for row in rows if isinstance(row, tuple) and row[0] != MEMORIES}
        stored = stored_uuids(self.machine.store, uuids) if uuids else set()
        return {row for row in rows if isinstance(row, tuple) and (row[0] == MEMORIES or row[2] in stored)}

    def _said_by_agent(self, rows: set[Hashable]) -> set[Hashable]:
        """Return the rows whose words the agent's own transcripts have too."""
        store, home = self.machine.store, self.machine.places.ldm_home
        named = [row for row in rows if isinstance(row, tuple) and row[0] != MEMORIES]
        repeated = {uuid for session in {row[3] for row in named} for uuid, _ in said_by_agent(store, home, session)}
        return {row for row in named if row[2] in repeated}

    # --------------------------------------------------------------------------------------------------- memories

    def _ident(self, one: StoredMemory) -> str:
        words = f"{self.found.name}:{one.key}:{one.text}".encode("utf-8", "replace")
        return f"mem-{hashlib.sha256(words).hexdigest()[:12]}"

    def _state_of_memory(self, one: StoredMemory, gone: set[str]) -> str:
        store, ident = self.machine.store, self._ident(one)
        if one.left_out or ident in gone:
            return one.left_out or GONE
        try:
            cleaned_text(one.text, self._clean)
        except UsageError:
            return REFUSED if one.text.strip("\0 \t\r\n") else NO_TEXT
        is_known = version_of(store, ident) is not None or read_note(store, f"{ALIAS}{ident}") is not None
        return KNOWN if is_known else NEW

    def _remember(self, one: StoredMemory) -> None:
        kind = one.category if one.category in CATEGORIES else None
        keep = partial(
            remember, self.machine, one.text, category=kind, source=self.found.name, ident=self._ident(one), at=one.at
        )
        try:
            keep(project=one.project)
        except UsageError:  # that is no project's name
            keep()

    @cached_property
    def _clean(self) -> Callable[[str], tuple[str, Mapping[str, int]]]:
        return self.machine.redactor().clean_text

    # ---------------------------------------------------------------------------------------------------- vectors

    def _chosen_model(self) -> tuple[str, str] | None:
        config = self.machine.config
        row = EMBEDDING_PROVIDERS.get(config.embedding_provider)
        return None if row is None else (row.name, config.embedding_model or row.default_model)

    def _put_vectors(self, generation: int, some: list[StoredVector]) -> int:
        """Store vectors of texts; each part of a text that was divided gets the vector of the whole.

        A text from which something was taken out gets none: its vector is of what must not be kept.
        """
        by_uuid = {self._uuid(one): one for one in some}
        chunks: dict[str, list[tuple[int, bytes]]] = {}
        for uuid, ident, sha in chunks_of(self.machine.store, list(by_uuid)):
            chunks.setdefault(uuid, []).append((ident, sha))
        put = []
        for uuid, parts in chunks.items():
            one = by_uuid[uuid]
            if {sha for _, sha in parts} == {text_hash(part.text) for part in split(clean_text(one.text))}:
                put += [(ident, one.data) for ident, _ in parts]
        return vectors.put_vectors(self.machine.store, generation, put)


def _unseen(store: Store, origin: Origin) -> str:
    if is_all_known(store, origin):
        return KNOWN
    if has_transcript(store, origin):
        return HAS_TRANSCRIPT
    return GONE if repeats_withheld(store, origin) else NEW


def _state(row: StoreRow, seen: dict[str, str], unseen: str) -> str:
    found = seen.get(row.record)
    if found is None:
        return unseen
    return GONE if found in ("private", "lost") else KNOWN
