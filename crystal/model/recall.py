"""Define questions to the memory and its answers: frozen values that packages pass to each other.

Separate from ``crystal.model.capture`` because capturing a turn needs none of them, and making each class takes time.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from crystal.model.capture import Category, Memory, MemoryStatus
from crystal.model.quick_dataclass import dataclass
from crystal.model.sources import FilePlace


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory: something that the user or an agent asked to remember.

    Attributes:
        id: ``mem-`` and 12 hexadecimal digits, the same on every machine.
        text: What to remember, cleaned.
        category: Its category.
        key: Its name for exact look-up, which only one memory has.
        project: The name of its project; None: everywhere.
        cwd: That project's folder; if only a name was given, the name.
        status: Whether it is found.
        source: How it was added: ``cli``, ``mcp``, ``prompt``, ``python``, or a caller's own name.
        agent: crystal's agent id of the machine where it was requested.
        device: That machine's name.
        session_id: The session in which it was requested.
        created_at: When it was first remembered.
        updated_at: When it was last changed. The newest version wins between machines.
        memory: Where it was found.
    """

    id: str
    text: str
    category: Category
    key: str | None
    project: str | None
    cwd: str | None
    status: MemoryStatus
    source: str
    agent: str
    device: str
    session_id: str | None
    created_at: int
    updated_at: int
    memory: Memory = "local"


@dataclass(frozen=True, slots=True)
class FormerMemory:
    """A version of a memory from one moment until it was changed at another."""

    text: str
    category: Category
    status: MemoryStatus
    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of a search. Every set field narrows the result; None allows all.

    ``project`` is a name or a folder (the folder and all below it), ``since`` is inclusive and ``before`` exclusive.
    ``general`` also allows memories without a project beside those of the project.
    """

    project: str | None = None
    session: str | None = None
    role: str | None = None
    agent: str | None = None
    device: str | None = None
    branch: str | None = None
    source: str | None = None
    since: int | None = None
    before: int | None = None
    general: bool = False


ValidityState = Literal["unchanged", "changed", "gone", "reverted", "superseded"]


@dataclass(frozen=True, slots=True)
class Validity:
    """State of a file or a decision since a text named it.

    Attributes:
        what: The file, below the project's folder; a symbol in it; or the memory that is valid now.
        state: Its state. ``superseded``: a later decision is valid.
        commit: The commit that changed it, None if not committed or unknown.
        session: The session that changed it, None if unknown.
        at: When, ms, None if unknown.
    """

    what: str
    state: ValidityState
    commit: str | None = None
    session: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A message just before or after a hit: its beginning, or for the one before, its end."""

    role: str
    text: str
    uuid: str
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer of a search: a chunk with its origin.

    ``score`` is the fused score (higher is better); ``ranks`` and ``scores`` are the results of each engine by name.
    ``copies`` counts the places within the search's filters with exactly this text, the hit itself included.
    ``memory`` is where it was found; the ids of the mirror's chunks have ``MIRROR_IDS`` added. ``similar`` counts
    answers with nearly the same text, which are not shown. ``before`` and ``after`` are the messages around it.
    ``harness`` is the program of the conversation.
    For a memory, ``uuid`` is its id, ``category`` its category, and ``key`` its key.
    ``file`` is its place in a file of a source, or None. ``validity`` says whether what it names has changed since,
    None if unknown.
    """

    id: int
    score: float
    text: str
    role: str
    session_id: str
    uuid: str
    project: str | None
    cwd: str | None
    branch: str | None
    agent: str
    device: str
    timestamp: int | None
    freshness: str
    source: str
    ranks: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    subagent: str | None = None
    tool: str | None = None
    copies: int = 1
    memory: Memory = "local"
    similar: int = 0
    before: Neighbour | None = None
    after: Neighbour | None = None
    category: Category | None = None
    key: str | None = None
    harness: str | None = None
    file: FilePlace | None = None
    validity: Validity | None = None
