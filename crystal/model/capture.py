"""Define the values that packages pass to each other: frozen, without behaviour beyond ids.

Times are integers, milliseconds since the Unix epoch, UTC, unless a name says otherwise. Offsets are bytes from
the start of a transcript file and are always after a newline.
"""

import re
from typing import Literal

from crystal.model.named_tuple import NamedTuple

Role = Literal["user", "assistant", "thinking", "tool_call", "tool_result", "subagent", "summary", "source", "memory"]
"""Speaker. ``subagent`` is any text in a subagent's transcript, prompt or answer."""

LedgerState = Literal["captured", "private", "skipped"]

ID_END = "~"
"""Separates an agent's own session id from crystal's suffix, which is added if the id is not unique."""

Memory = Literal["local", "mirror"]
"""Place where something was found: this machine's own store, or its copy of the home machine's."""

Recency = Literal["off", "light", "strong"]
"""Degree to which a search prefers what is new among answers that are nearly as good."""

Fusion = Literal["weighted", "rrf", "similarity"]
"""Way in which a search combines its engines: by their scores, by reciprocal ranks (k = 60), or by meaning alone."""

Category = Literal["fact", "preference", "event", "opinion", "skill"]
"""Kind of a memory."""

MemoryStatus = Literal["active", "deprecated"]
"""A ``deprecated`` memory is kept, but found only by its id."""


MIRROR_IDS = 10**12
"""Added to the ids of the mirror's rows in results, so that each number identifies one thing."""


def hit_name(number: int) -> str:
    """Return the name of a hit: ``h17`` in this machine's memory, ``m17`` in the mirror of home's."""
    return f"m{number - MIRROR_IDS}" if number > MIRROR_IDS else f"h{number}"


def is_unicode(value: str) -> bool:
    """Return True if a string has no lone surrogate, so that it can be stored."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(text: str) -> str:
    """Return text without lone surrogates, which SQLite does not store."""
    return text.encode("utf-8", "replace").decode()


def parse_hit_name(text: str) -> int | None:
    """Return the number of a hit from ``h17``, ``m17`` or ``17``; None for anything else."""
    found = re.fullmatch(r"([hm]?)([0-9]{1,18})", text.strip().lower(), re.ASCII)
    if found is None:
        return None
    return int(found[2]) + (MIRROR_IDS if found[1] == "m" else 0)


BEFORE_CRYSTAL = "before-crystal"
"""Rule for skipped bytes that existed when crystal first scanned the folder. Backfill imports them."""

RESTORED = "restored"
"""Rule for skipped bytes that are in the archive already: written by ``restore``, or recovered."""

UNSENT = "unsent"
"""Rule for skipped bytes that a device without a memory of its own had captured, and whose sealed lines are lost."""

PRIVACY_LOST = "privacy-lost"
"""Rule for skipped bytes of which it is no longer known whether they were private."""


class Origin(NamedTuple):
    """Origin of a transcript: its agent, machine, session and program.

    ``agent`` is crystal's name for the agent on this machine (``cc-laptop``), ``device`` the machine's name,
    ``session_id`` the session's id, ``subagent`` the id of the subagent whose own transcript this is, or None, and
    ``harness`` the program that writes the transcript, see ``crystal.config.harnesses``.
    """

    agent: str
    device: str
    session_id: str
    subagent: str | None = None
    harness: str = "claude-code"


class Watermark(NamedTuple):
    """Position up to which one transcript was read, with what recognises the file again.

    ``tail_hash`` is a keyed hash of the (at most 4096) bytes just before ``offset``; empty at offset 0.
    ``generation`` counts how often the file was replaced. ``written`` changes whenever the file is written; 0 if
    unknown.
    """

    transcript: str
    offset: int = 0
    dev: int = 0
    inode: int = 0
    generation: int = 0
    tail_hash: bytes = b""
    written: int = 0

    def at(self, offset: int) -> "Watermark":
        """Return this watermark if it is at the offset, else one there that recognises no file."""
        return self if self.offset == offset else Watermark(self.transcript, offset, generation=self.generation)

    @property
    def counts_records(self) -> bool:
        """Return whether the offset counts lines made of records, which are in no file."""
        return self.offset > 0 and not self.tail_hash


class RawSegment(NamedTuple):
    """Complete lines of one transcript, verbatim: the bytes ``[start, end)`` of the file."""

    start: int
    raw: bytes

    @property
    def end(self) -> int:
        """Return the offset just after the last byte."""
        return self.start + len(self.raw)


class SegmentPiece(NamedTuple):
    """A run of lines of a segment in one ledger state.

    ``kept`` contains the lines without secrets and private spans, and is empty unless ``state`` is ``captured``; also
    for a single huge line, which only ``lines`` has, so that memory contains it once. ``raw_hash`` is a keyed hash of
    the bytes in the file, None for private pieces: a hash of private text would confirm a guess. ``lines`` has (offset
    in the file, clean line without its newline) for every captured line that is not empty.
    """

    start: int
    end: int
    state: LedgerState
    rule: str | None = None
    kept: bytes = b""
    raw_hash: bytes | None = None
    lines: tuple[tuple[int, bytes], ...] = ()

    @property
    def clean(self) -> bytes:
        """The lines as they may be stored; empty unless captured."""
        return self.kept or b"".join(line + b"\n" for _, line in self.lines)


class Finding(NamedTuple):
    """The number of removed secrets of one kind."""

    kind: str
    number: int


class Segment(NamedTuple):
    """The unit of capture: consecutive lines of one transcript, cleaned, with their byte range and origin.

    The watermark counts it, the archive keeps it, the envelope seals it, ``ingest`` stores it. ``before`` is the
    watermark from which it was read and ``after`` the one to store in the same transaction as its rows.
    ``private_uuids`` are the ids of lines that were left out; copies of them in other files stay private too.
    """

    origin: Origin
    path: str
    before: Watermark
    after: Watermark
    pieces: tuple[SegmentPiece, ...]
    findings: tuple[Finding, ...] = ()
    private_uuids: tuple[str, ...] = ()


class Turn(NamedTuple):
    """One message, thought, tool call or tool result: a block of a transcript line.

    Its identity is (``uuid``, ``part``): the line's own uuid and the index of the block in the line. ``text`` is
    valid Unicode without NUL, never blank; for a long tool result it is the head and the tail, and ``full_length`` is
    the length of the whole in characters. ``timestamp`` is None if the line has none. ``offset`` is the line's start.
    """

    uuid: str
    part: int
    role: Role
    text: str
    offset: int
    timestamp: int | None = None
    parent_uuid: str | None = None
    cwd: str | None = None
    branch: str | None = None
    tool: str | None = None
    message_id: str | None = None
    model: str | None = None
    full_length: int = 0


class Chunk(NamedTuple):
    """A part of a turn's text: ``turn.text[start:start + len(text)]``, the unit that is indexed and embedded."""

    start: int
    text: str


class Project(NamedTuple):
    """A place of work: a folder, its git data (None if it has none), and the identity that it had until now."""

    cwd: str
    git_root: str | None = None
    remote: str | None = None
    name: str = ""
    former: str | None = None
