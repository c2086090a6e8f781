"""The agents whose conversations are on this machine: where they are, and how much of them is in the memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from crystal.app.capture_engine import make_capture
from crystal.app.cleanup import cleanup_of
from crystal.app.context import Machine, this_home
from crystal.app.transcript_formats import FormatState, format_states
from crystal.capture import finder
from crystal.capture.engine import Capture
from crystal.capture.safe_open import Folders
from crystal.capture.snapshots import Container
from crystal.capture.unread import unproved_bytes, unread_in, unread_lines
from crystal.config.harnesses import CLAUDE_CODE, HARNESSES, Root
from crystal.errors import CrystalError
from crystal.install.claude_settings.claude_file import read_facts
from crystal.install.live.changes import is_live
from crystal.integrity.proof import MAX_UNPROVED
from crystal.model.capture import BEFORE_CRYSTAL, Watermark
from crystal.model.named_tuple import NamedTuple
from crystal.store.capture import ledger, snapshots
from crystal.store.health.stats import NO_COUNTS, HarnessCounts, counts_by_harness
from crystal.transcript.framing import end_of_lines

LOOK_SECONDS, MAX_LOOK_BYTES = 1.0, 8 << 20
"""Limits for reading files that agents rewrite: once the time is over, and for larger documents, all bytes of a
changed file count as not captured."""
REST_MS = 3_600_000
"""A file in which nothing was written for so long is not being written."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent.

    Attributes:
        name: As in ``sessions`` and JSON.
        title: For people.
        folders: Its folders on this machine.
        files: Number of files with conversations in them.
        last_at: When one of them was written last, ms.
        sessions: Sessions of it in the memory.
        captured, private, before: Bytes in the memory, kept out of it as private, and written before crystal came.
        waiting: Bytes that are not captured: the next sync captures them, or nobody can read them.
        unreadable: Number of files and folders of which a part cannot be read.
        since: When the first of it was captured, ms.
        cleanup: What the agent deletes by itself, and when.
        unknown_percent: The share of the records in its newest files whose kinds this version does not know, 0 to 100.
        unknown_kinds: These kinds, the most frequent first.
        live: Whether it tells crystal when a turn ends; None if it has no way to, and the sweep alone reads it.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    files: int
    last_at: int | None
    sessions: int
    captured: int
    private: int
    before: int
    waiting: int
    unreadable: int
    since: int | None
    cleanup: str
    unknown_percent: float
    unknown_kinds: tuple[str, ...]
    live: bool | None

    @property
    def is_here(self) -> bool:
        """Return whether it has files on this machine, or sessions in the memory."""
        return bool(self.files or self.sessions or self.unreadable)

    @property
    def percent(self) -> float | None:
        """Return the share of its conversations that is in the memory, 0 to 100; None if there are none."""
        known = self.captured + self.before + self.waiting
        if not known:
            return MAX_UNPROVED if self.unreadable else None
        return min(MAX_UNPROVED if self.unreadable else 100.0, 100 * self.captured / known)


class AgentFile(NamedTuple):
    """A file of conversations: where it was found, how far it is read, and the bytes that are not captured.

    ``is_readable`` is False if a part of it cannot be read; then all of a file that is rewritten counts.
    """

    found: finder.TranscriptFile
    root: Root
    offset: int
    unread: int
    is_readable: bool


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """The agents' files and what the memory has of them, as seen at one time: a look costs 0.05 s at 7,000 sessions.

    Attributes:
        folders: Where capture looks.
        same: Files that are unchanged since they were read to their end: by root, their number and when one of
            them was written last, ms.
        files: The other files on this machine.
        refused: Files and folders that cannot be read, each with its agent.
        formats: Returns the state of each agent's format, read once.
    """

    folders: Folders
    same: Mapping[Root, tuple[int, int]]
    files: Sequence[AgentFile]
    refused: Mapping[Path, str]
    formats: Callable[[], Mapping[str, FormatState]]

    @property
    def number(self) -> int:
        """Return how many files there are."""
        return len(self.files) + sum(number for number, _ in self.same.values())

    @property
    def last_at(self) -> int | None:
        """Return when one of them was written last, ms; None if there are none."""
        times = [*(one.found.modified for one in self.files), *(at for _, at in self.same.values())]
        return max(times, default=None)

    def of(self, name: str) -> AgentFiles:
        """Return the files of one agent."""
        same = {root: found for root, found in self.same.items() if root.harness == name}
        files = [one for one in self.files if one.root.harness == name]
        return replace(self, same=same, files=files, refused={p: one for p, one in self.refused.items() if one == name})


def look_at_files(machine: Machine) -> AgentFiles:
    """Return the agents' files on this machine."""
    capture, known = make_capture(machine).with_projects(), ledger.read_to(machine.store, machine.config.device)
    look, refused, same = _Look(capture), dict[Path, str](), dict[Root, tuple[int, int]]()
    there: dict[str, AgentFile | None] = {}
    for root in finder.existing(capture.roots):
        marks, unchanged = known if root.place.form == "lines" else finder.NOTHING_KNOWN, dict[str, int]()
        refuse = partial(_refuse, refused, root.harness)
        for found in finder.in_root(root, capture.folders, refuse, marks, unchanged):
            if found.name not in there:
                there[found.name] = look.at(found, root)
        new = unchanged.keys() - there.keys()
        if new:
            same[root] = len(new), max(map(unchanged.__getitem__, new)) // 1_000_000
        there.update(dict.fromkeys(new))
    files = [one for one in there.values() if one is not None]
    return AgentFiles(capture.folders, same, files, refused, cache(lambda: format_states(machine.store)))


def _refuse(refused: dict[Path, str], harness: str, path: Path, _error: Exception) -> None:
    refused.setdefault(path, harness)


def list_agents(machine: Machine, look: AgentFiles, names: Iterable[str] = HARNESSES) -> list[AgentState]:
    """Return agents that crystal can read, all or some, those found on this machine first, by their last use."""
    counts = counts_by_harness(machine.store, machine.config.device)
    found = [_state_of(machine, name, look, counts.get(name, NO_COUNTS)) for name in names]
    return sorted(found, key=lambda one: (not one.is_here, -(one.last_at or 0)))


def deleting_agents(machine: Machine, look: AgentFiles) -> list[AgentState]:
    """Return the agents on this machine that delete conversations by themselves."""
    names = [name for name, harness in HARNESSES.items() if harness.cleanup]
    return [one for one in list_agents(machine, look, names) if one.is_here and one.cleanup]


def describe_cleanup(agent: AgentState) -> str:
    """Describe what an agent deletes, and how much of that is in the memory."""
    has = "has nothing of it yet" if agent.percent is None else f"has {describe_percent(agent.percent)} of them"
    return f"{agent.title} deletes {agent.cleanup}; crystal {has}"


def describe_percent(percent: float) -> str:
    """Return a percentage that says 100 only if nothing is missing."""
    return "100 %" if percent == 100 else f"{min(99.9, percent):.3g} %"


def _state_of(machine: Machine, name: str, look: AgentFiles, counts: HarnessCounts) -> AgentState:
    own, roots = look.of(name), [root for root in look.folders.roots if root.harness == name]
    used = {*own.same, *(one.root for one in own.files)}
    shown = [root for root in roots if not root.place.in_projects or root in used]
    sizes, known = counts.bytes, look.formats().get(name, FormatState())
    return AgentState(
        name,
        HARNESSES[name].title,
        tuple(dict.fromkeys(str(root.folder) for root in shown if root.is_here)),
        own.number,
        own.last_at,
        counts.sessions,
        sizes.get("captured", 0),
        sum(size for state, size in sizes.items() if state.startswith("private")),
        sizes.get(BEFORE_CRYSTAL, 0),
        sum(one.unread for one in own.files),
        sum(not one.is_readable for one in own.files) + len(own.refused),
        counts.since,
        cleanup_of(machine, name),
        round(known.percent, 1),
        tuple(known.kinds),
        tells_of_turns(machine, name),
    )


def tells_of_turns(machine: Machine, name: str) -> bool | None:
    """Return whether an agent runs crystal at the end of each turn; None if it has no way to."""
    if name == CLAUDE_CODE:
        found = [read_facts(folder / "settings.json") for folder in machine.places.claude_dirs]
        return any(facts.commands or facts.plugin for facts in found)
    return is_live(name, os.environ, this_home())


def unfinished_lines(look: AgentFiles, now: int) -> Iterator[tuple[Path, int, int]]:
    """Yield (file, bytes of an unfinished last line, bytes before it) of files that no program writes any more."""
    for found, root, offset, *_ in look.files:
        if root.place.form == "lines" and offset < found.size and now - found.modified > REST_MS:
            with contextlib.suppress(OSError, CrystalError), finder.opened(found.path) as file:
                end = end_of_lines(file, found.size)
                if end == offset:
                    yield found.path, found.size - end, end


class _Look:
    """Reads how much of each file was captured."""

    def __init__(self, capture: Capture) -> None:
        own = cache(lambda: ledger.all_states(capture.store, capture.device))
        self._capture, self._moved = capture, cache(lambda: _watermarks(own()))
        self._marks = cache(lambda: {state.path: state.mark for state in own()})
        self._stamps = snapshots.file_stamps(capture.store)
        self._until = time.monotonic() + LOOK_SECONDS

    def at(self, found: finder.TranscriptFile, root: Root) -> AgentFile:
        """Return a file of conversations, with the number of bytes that are not captured."""
        if root.place.form == "lines":
            known = self._marks().get(found.name)
            mark = known or _mark_of_moved(self._moved(), found)
            if known is None and mark.offset - found.size in (0, 1):
                return AgentFile(found, root, mark.offset, 0, is_readable=True)  # moved: its size is enough
            start, stop, error = unread_lines(found, mark, self._capture.cleaner)
            return AgentFile(found, root, start, stop - start, error is None)
        if self._stamps.get(found.name) == found.stamp:
            return AgentFile(found, root, 0, 0, is_readable=True)
        if time.monotonic() > self._until or (found.size > MAX_LOOK_BYTES and root.place.form == "document"):
            return AgentFile(found, root, 0, found.size, is_readable=True)
        size, problem = unread_in(self._capture, Container(found, root))
        return AgentFile(found, root, 0, size + unproved_bytes(problem, found.size), problem is None)


Watermarks = dict[Hashable, Watermark]
"""The watermark of each file: by device, inode and name: a link may give a folder another name; by name and
size, and by a name that only one has: after a move to another disk it may be the same file.
"""


def _watermarks(states: Sequence[ledger.TranscriptState]) -> Watermarks:
    """Return how far the files of some transcripts are read."""
    marks: Watermarks = {}
    named = [(state.path.rpartition(os.sep)[2], state.mark) for state in states]
    count = Counter(name for name, _ in named)
    for name, mark in named:
        marks.setdefault((mark.dev, mark.inode, name), mark)
        for size in (mark.offset, mark.offset - 1):  # the newline of the last line may be still to come
            marks.setdefault((name, size), mark)
        if count[name] == 1:
            marks.setdefault(name, mark)
    return marks


def _mark_of_moved(marks: Watermarks, found: finder.TranscriptFile) -> Watermark:
    """Return how far a file is read that had another path then; 0 if it is new."""
    name = found.name.rpartition(os.sep)[2]
    keys = ((found.dev, found.inode, name), (name, found.size), name)
    return next((marks[key] for key in keys if key in marks), Watermark(""))
