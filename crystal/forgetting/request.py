"""What somebody wants forgotten, what that comes to, and what became of it: the values of this room."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from crystal.errors import CrystalError
from crystal.model.capture import Memory
from crystal.model.recall import Hit
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone

T = TypeVar("T")

Because = Literal[
    "asked", "same-text", "quote", "remembered", "summary", "bookkeeping", "copy", "session", "project", "before"
]
"""Why something goes: it was asked for; it says the same; it holds the whole text; the words with which a memory was
asked for; the client's summary of it; the client's own notes that repeat it; what a scope takes in."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to forget. Every set field narrows; ``targets`` are memories (mem-...), hit numbers, ids of lines.

    With ``keep_memories`` only what was said goes, not what somebody asked to remember.
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
        """Whether nothing is asked for."""
        return self == Wish(keep_memories=self.keep_memories)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that goes: a line of a transcript with all that it says, a memory, or a note of the client.

    ``uuid`` is the line's, the memory's (mem-...), or empty for a line without one. ``text`` is at most its beginning.
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


@dataclass(frozen=True, slots=True)
class Place:
    """Lines of an archived stretch: ``row`` of the ledger, numbers of its lines; None for all of them."""

    row: int
    lines: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What would go, listed before anything is changed.

    Attributes:
        wish: What was asked.
        items: Every line and memory, oldest first, each with the reason.
        kinds: The tombstones to be, as (kind, value, until_at), without a time.
        places: Archived lines that only the archive has.
        sessions: Claude Code's ids of the sessions that something goes from.
        devices: The machines where it was said.
        first_at, last_at: When it was said, ms; None where nothing says when.
        still_held: Files of other programs that hold it and are not touched: Claude Code's own transcripts.
        suggestions: When nothing has the words of the query: the best hits by search. They are not forgotten.
        token: A short digest of exactly what would go.
        needles: Stretches of the words that go, for the proof. Kept in memory only.
        is_brief: Whether of a large memory only the archives of these sessions were looked through; see ``complete``.
    """

    wish: Wish
    items: tuple[Item, ...] = ()
    kinds: tuple[tuple[str, dict[str, Any], int | None], ...] = ()
    places: tuple[Place, ...] = ()
    sessions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    first_at: int | None = None
    last_at: int | None = None
    still_held: tuple[Path, ...] = ()
    suggestions: tuple[Hit, ...] = ()
    token: str = ""
    needles: tuple[str, ...] = field(default=(), repr=False)
    is_brief: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing would go."""
        return not self.kinds and not self.places


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of a plan.

    Attributes:
        lines, memories, notes: How many went.
        tombstones: Their uids.
        is_done: Whether nothing of it is left on this machine; else the next run goes on.
        pending: Why not, in words.
        machines: Other machines that are to forget it too and have not said that they have.
    """

    lines: int
    memories: int
    notes: int
    tombstones: tuple[str, ...]
    is_done: bool
    pending: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()


class OutboxCleaner(Protocol):
    """Finds and replaces what waits in the outbox and holds what is forgotten."""

    def find(self, matches: Callable[[bytes], bool]) -> list[Any]:
        """The blobs whose plain bytes match, as values that JSON can hold: names and numbers, never words."""

    def clean(self, found: list[Any]) -> None:
        """Replace them by blobs without the words. Doing it again changes nothing."""

    def unopened(self) -> int:
        """How many blobs cannot be looked into."""


def _tell_nobody(_: Store, __: Sequence[Tombstone]) -> None:
    """There is no other machine."""


Progress = Callable[[str, int, int], None]
"""Told which step is at work, how much of it is done, and how much there is of it; 0 where that is not known."""
TOLD_EACH = 500


def counted(items: Iterable[T], step: str, total: int, progress: Progress) -> Iterator[T]:
    """Give items as they come, and tell how many of them have been."""
    progress(step, 0, total)
    for count, item in enumerate(items, 1):
        yield item
        if count % TOLD_EACH == 0:
            progress(step, count, total)


@dataclass(frozen=True, slots=True)
class Grounds:
    """What forgetting works on: this machine.

    Attributes:
        store: Open for writing, in no transaction.
        ldm_home: What archive paths are relative to.
        data_dir: The folder of crystal.db.
        agent_folder: Gives an agent's folder by its id.
        device: This machine's name.
        roots: Claude Code's transcript folders: looked at, never touched.
        open_mirror: Opens the copy of home's memory for writing; gives None where there is none.
        capture_lock: Holds the lock of capture and acts on the notes that wait; entered around what deletes.
        outbox: Cleans the outbox, None where nothing is ever sent.
        on_tombstones: Told of new tombstones inside the transaction that adds them, to send them to other machines.
        suggest: The best hits of a search.
        machines: The other machines that are to forget it too.
        progress: Told how far the forgetting is.
    """

    store: Store
    ldm_home: Path
    data_dir: Path
    agent_folder: Callable[[str], Path]
    device: str
    roots: tuple[Path, ...]
    open_mirror: Callable[[], AbstractContextManager[Store | None]]
    capture_lock: Callable[[], AbstractContextManager[None]]
    outbox: OutboxCleaner | None = None
    on_tombstones: Callable[[Store, Sequence[Tombstone]], None] = _tell_nobody
    suggest: Callable[[str], Sequence[Hit]] = lambda _: ()
    machines: Callable[[Store], Sequence[str]] = lambda _: ()
    progress: Progress = lambda *_: None

    @contextlib.contextmanager
    def mirror(self) -> Iterator[tuple[Store | None, str | None]]:
        """The copy of home's memory, and why it cannot be opened: that keeps nobody from forgetting here."""
        with contextlib.ExitStack() as stack:
            store, problem = None, None
            try:
                store = stack.enter_context(self.open_mirror())
            except CrystalError as error:
                problem = error.message
            yield store, problem
