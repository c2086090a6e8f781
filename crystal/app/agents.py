"""The agents whose conversations are on this machine: where they are, and how much of them is in the memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crystal.app.capture_engine import capture_folders
from crystal.app.context import Machine
from crystal.capture import files
from crystal.capture.safe_open import Folders
from crystal.capture.source import stamp_of
from crystal.config.harnesses import HARNESSES, Root
from crystal.model.capture import BEFORE_CRYSTAL
from crystal.store.capture import ledger, snapshots
from crystal.store.health.stats import HarnessCounts, counts_by_harness


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
        waiting: Bytes that the next sync captures; of a file that is rewritten, its size.
        since: When the first of it was captured, ms.
        cleanup: What the agent deletes by itself, and when.
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
    since: int | None
    cleanup: str

    @property
    def percent(self) -> float | None:
        """Return the share of its conversations that is in the memory, 0 to 100; None if there are none."""
        known = self.captured + self.before + self.waiting
        return 100 * self.captured / known if known else None


def list_agents(machine: Machine) -> list[AgentState]:
    """Return every agent that crystal can read, those found on this machine first, by their last use."""
    counts = counts_by_harness(machine.store, machine.config.device)
    marks = {state.path: state.mark.offset for state in ledger.all_states(machine.store, machine.config.device)}
    folders = capture_folders(machine)
    found = [_state_of(machine, name, folders, counts.get(name), marks) for name in HARNESSES]
    return sorted(found, key=lambda one: (not one.files and not one.sessions, -(one.last_at or 0)))


def _state_of(
    machine: Machine, name: str, folders: Folders, counts: HarnessCounts | None, marks: dict[str, int]
) -> AgentState:
    roots = [root for root in folders.roots if root.harness == name]
    there = [(found, root) for root in roots for found in files.in_root(root, folders)]
    shown = [root for root in roots if not root.place.in_projects or any(one == root for _, one in there)]
    sizes = counts.bytes if counts else {}
    return AgentState(
        name,
        HARNESSES[name].title,
        tuple(dict.fromkeys(str(root.folder) for root in shown if Path(root.folder).is_dir())),
        len(there),
        max((found.modified for found, _ in there), default=None),
        counts.sessions if counts else 0,
        sizes.get("captured", 0),
        sum(size for state, size in sizes.items() if state.startswith("private")),
        sizes.get(BEFORE_CRYSTAL, 0),
        sum(_waiting(machine, found, root, marks) for found, root in there),
        counts.since if counts else None,
        HARNESSES[name].cleanup,
    )


def _waiting(machine: Machine, found: files.TranscriptFile, root: Root, marks: dict[str, int]) -> int:
    if root.place.form == "lines":
        return max(0, found.size - marks.get(str(found.path), 0))
    stamp = stamp_of(found, root.place.form, machine.transcript_folders)
    return 0 if snapshots.stamps(machine.store, found.path).get("") == stamp else found.size
