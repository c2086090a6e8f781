"""Questions to the memory and its answers: frozen values that packages hand to each other.

Apart from ``crystal.model.capture`` because capturing a turn needs none of them, and making each class takes time.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from crystal.model.capture import Category, Memory, MemoryStatus
from crystal.model.quick_dataclass import dataclass
from crystal.model.sources import FilePlace


@dataclass(frozen=True, slots=True)
class Remembered:
    """Something that somebody asked to remember.

    Attributes:
        id: ``mem-`` and 12 hexadecimal digits, the same on every machine.
        text: What to remember, cleaned.
        category: What kind of thing it is.
        key: Names it for exact look-up; one memory has it.
        project: Where it holds, by name; None: everywhere.
        cwd: That project's folder; where only a name was given, the name.
        status: Whether it is found.
        source: How it came in: ``cli``, ``mcp``, ``prompt``, ``python``, or a caller's own name.
        agent: crystal's agent id of the machine where it was asked for.
        device: That machine's name.
        session_id: The session in which it was asked for.
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
    """Version of a memory from one moment until it was changed at another."""

    text: str
    category: Category
    status: MemoryStatus
    from_at: int
    until_at: int


@dataclass(frozen=True, slots=True)
class Filters:
    """Limits of what a search may return. Every set field narrows; None lets all through.

    ``project`` is a name or a folder (the folder and all below it), ``since`` is inclusive and ``before`` exclusive.
    ``general`` lets memories that hold everywhere through beside those of the project.
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
        what: The file, below the project's folder; a symbol in it; or the memory that holds now.
        state: What became of it. ``superseded``: a later decision holds.
        commit: The commit that did it, None if it is not committed or not known.
        session: The session that did it, None if none is known.
        at: When, ms, None if that is not known.
    """

    what: str
    state: ValidityState
    commit: str | None = None
    session: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Words of a person or the assistant just before or after a hit: the beginning of it, or before it the end."""

    role: str
    text: str
    uuid: str
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer of a search: a chunk and everything that says where it comes from.

    ``score`` is the fused score (higher is better); ``ranks`` and ``scores`` tell each engine's view by name.
    ``copies`` counts the places within the search's filters that say exactly this, the hit itself included.
    ``memory`` tells where it was found; the ids of the mirror's chunks have ``MIRROR_IDS`` added. ``similar`` counts
    answers that say nearly the same and are not shown. ``before`` and ``after`` are what was said around it.
    ``harness`` is the program that held the conversation.
    Of something that somebody asked to remember, ``uuid`` is its id, ``category`` its kind, and ``key`` its key.
    ``file`` says where in which file of a source it is, None for what is in none. ``validity`` says whether what
    it names has changed since, None if nothing is known.
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
