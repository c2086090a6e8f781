"""Values of forgetting: the request, the plan and the result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from crystal.config.harnesses import Root
from crystal.errors import CrystalError
from crystal.model.capture import Memory
from crystal.model.named_tuple import NamedTuple
from crystal.model.recall import Hit
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone, TombstoneKind
from crystal.store.forget.forgotten_rows import ForgottenSource, KeptRow

if TYPE_CHECKING:
    from crystal.sync.cleaning import SealedOutbox

T = TypeVar("T")

Because = Literal[
    "asked",
    "same-text",
    "quote",
    "remembered",
    "summary",
    "bookkeeping",
    "copy",
    "session",
    "project",
    "before",
    "learned",
]
"""Reason for deleting something.

Requested; equal text; contains the whole text; the prompt that asked for a memory; the client's summary of it; the
client's own notes that repeat it; covered by a scope; learned only from what is deleted.
"""


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Request to forget. Every set field narrows; ``targets`` are memories (mem-...), hit numbers, ids of lines.

    With ``keep_memories`` only conversation is deleted, not memories.
    """

    targets: tuple[str, ...] = ()
    query: str | None = None
    session: str | None = None
    project: str | None = None
    before: int | None = None
    key: str | None = None
    keep_memories: bool = False

    @property
    def is_empty(self) -> bool:
        """True if nothing is requested."""
        return self == ForgetRequest(keep_memories=self.keep_memories)


@dataclass(slots=True)
class Selection:
    """Lines and memories by id."""

    lines: set[str] = field(default_factory=set)
    memories: set[str] = field(default_factory=set)

    def __and__(self, other: Selection) -> Selection:
        return Selection(self.lines & other.lines, self.memories & other.memories)

    def add(self, said: ForgottenSource) -> None:
        """Select the line or memory that says something."""
        (self.lines if said.uuid else self.memories).add(said.uuid or said.uid)


class ArchivedMatch(NamedTuple):
    """Archived line to delete: its place, its own id, those of its turns, and the reason."""

    row: KeptRow
    number: int
    because: Because
    uuid: str | None = None
    turns: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        """Return what the line and its turns are named by; of a copy, the line alone."""
        turns = () if self.because == "copy" else self.turns
        return {name for name in (self.uuid, *turns) if name is not None}


class SearchedArchives(NamedTuple):
    """Findings in some rows for forgotten ids: a row that is the same need not be searched for them again.

    That holds while ``state_of_memory`` is the same: what was forgotten since may have left words that are rare now. In
    other sessions than ``sessions``, a line counts only if it has more than a stretch or a word in common.
    """

    state: tuple[int, ...] = ()
    ids: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    rows: frozenset[KeptRow] = frozenset()
    matches: tuple[ArchivedMatch, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetItem:
    """One thing to delete: a line of a transcript with all its text, a memory, or a note of the client.

    ``uuid`` is the line's, the memory's (mem-...), or empty for a line without one. ``text`` holds at most its
    beginning. ``parts`` counts what the line says and calls: all of it goes.
    """

    kind: Literal["line", "memory", "note"]
    uuid: str
    because: Because
    role: str
    text: str
    session_id: str | None = None
    project: str | None = None
    device: str | None = None
    timestamp: int | None = None
    memory: Memory = "local"
    harness: str | None = None
    parts: int = 1


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Plan of what would be deleted, listed before anything is changed.

    Attributes:
        request: What is to be forgotten.
        items: Every line and memory, oldest first, each with its reason.
        kinds: The future tombstones as (kind, value, until_at), without a time.
        places: Lines that only the archive has: (row of the ledger, numbers of its lines).
        sessions: Ids of the affected sessions.
        devices: The machines of origin.
        first_at, last_at: Time range, ms; None if unknown.
        still_held: Files of others that hold it and are not changed: the agents' own transcripts, archives of another
            crystal home to which a link leads, and files that have its memory in a block, until the next ``crystal
            files sync``.
        source_files: Files of the person's own sources that have the words of the query; they stay, and are found.
        suggestions: If nothing has the words of the query: the best search hits. They are not forgotten.
        token: A short digest of exactly what would be deleted.
        needles: The word or phrase of the query, which no file may hold afterwards. Kept in memory only.
        is_brief: True if a large memory was not searched for all repetitions; see ``complete``.
        unread: Messages of a large memory that may have the words, too, and were not read yet.
        searched: What archives have of it. Kept in memory only: an interrupted deletion searches again.
    """

    request: ForgetRequest
    items: tuple[ForgetItem, ...] = ()
    kinds: tuple[tuple[TombstoneKind, dict[str, Any], int | None], ...] = ()
    places: tuple[tuple[int, tuple[int, ...]], ...] = ()
    sessions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    first_at: int | None = None
    last_at: int | None = None
    still_held: tuple[Path, ...] = ()
    source_files: tuple[Path, ...] = ()
    suggestions: tuple[Hit, ...] = ()
    token: str = ""
    needles: tuple[str, ...] = field(default=(), repr=False)
    is_brief: bool = False
    unread: int = 0
    searched: SearchedArchives | None = field(default=None, repr=False, compare=False)

    @property
    def is_empty(self) -> bool:
        """True if nothing would be deleted."""
        return not self.kinds and not self.places and not self.unread

    def lines_beyond(self, preview: ForgetPlan) -> tuple[ForgetItem, ...]:
        """Return the lines with the words of the query that a preview of this plan neither listed nor counted."""
        shown = {item.uuid for item in preview.items}
        more = [one for one in self.items if (one.kind, one.because) == ("line", "asked") and one.uuid not in shown]
        return tuple(more) if len(more) > preview.unread else ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Result of a plan.

    Attributes:
        lines, memories, notes: Number of deleted items.
        tombstones: Uids of the tombstones.
        is_done: True if nothing is left on this machine; else the next run continues.
        pending: Why something is left, in words.
        machines: Other machines that have not confirmed yet.
    """

    lines: int
    memories: int
    notes: int
    tombstones: tuple[str, ...]
    is_done: bool
    pending: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()


Progress = Callable[[str, int, int], None]
"""Called with the name of the current step, how much is done, and how much there is; 0 if unknown."""
TOLD_EACH = 500


def counted(items: Iterable[T], step: str, total: int, progress: Progress) -> Iterator[T]:
    """Yield items and report how many were yielded."""
    progress(step, 0, total)
    for count, item in enumerate(items, 1):
        yield item
        if count % TOLD_EACH == 0:
            progress(step, count, total)


@dataclass(frozen=True, slots=True)
class ForgetContext:
    """Context of forgetting: this machine.

    Attributes:
        store: The store, open for writing, in no transaction.
        ldm_home: What archive paths are relative to.
        data_dir: The folder of crystal.db.
        agent_folder: Returns an agent's folder by its id.
        device: This machine's name.
        roots: The agents' folders of transcripts: read, never changed.
        open_mirror: Opens the copy of home's memory for writing, or returns None.
        capture_lock: Holds the capture lock and processes waiting notes; entered around deletions.
        outbox: Cleans the outbox; None if nothing is ever sent.
        on_tombstones: Called with new tombstones inside the transaction that adds them, to send them to other machines.
        suggest: Returns the best hits of a search.
        machines: The other machines that must forget it too.
        vault: The folder in which the person keeps memories as files; a proof looks at its notes.
        files: Files that agents read and that have a block of memories, and archives of another crystal home; a proof
            looks at them.
        progress: Called with the progress.
    """

    store: Store
    ldm_home: Path
    data_dir: Path
    agent_folder: Callable[[str], Path]
    device: str
    roots: tuple[Root, ...]
    open_mirror: Callable[[], AbstractContextManager[Store | None]]
    capture_lock: Callable[[], AbstractContextManager[None]]
    outbox: SealedOutbox | None = None
    on_tombstones: Callable[[Store, Sequence[Tombstone]], None] = lambda *_: None
    suggest: Callable[[str], Sequence[Hit]] = lambda _: ()
    machines: Callable[[Store], Sequence[str]] = lambda _: ()
    vault: Path | None = None
    files: tuple[Path, ...] = ()
    progress: Progress = lambda *_: None

    @contextlib.contextmanager
    def mirror(self) -> Iterator[tuple[Store | None, str | None]]:
        """Return the copy of home's memory, and why it cannot be opened, which does not stop forgetting here."""
        with contextlib.ExitStack() as stack:
            store, problem = None, None
            try:
                store = stack.enter_context(self.open_mirror())
            except CrystalError as error:
                problem = error.message
            yield store, problem
